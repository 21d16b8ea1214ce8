"""From the log of a server that ended to the pull request of a configuration that fits: a 31B on one L4."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from forge_server import ForgeServer
from neuroscale.planning.plan import dump_plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.rendering.service_folder import pull_request_of
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE, SERVICE_FILE
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.request.service_request import dump_request, load_request
from request_site import Site, make_platform, opened_site
from roots import ROOT

EXAMPLE = ROOT / "templates/examples/gemma-4-31b-qat-on-one-l4.yaml"
FOLDER = "manifests/dev/deep-analysis"
LOG = """\
(EngineCore pid=63) INFO [gpu_model_runner.py:5001] Starting to load model google/gemma-4-31B-it-qat-w4a16-ct...
(EngineCore pid=63) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB. GPU 0 has a total capacity \
of 21.96 GiB of which 2.15 GiB is free. Process 1148 has 19.81 GiB memory in use.
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.
"""
"""The lines that an article on Cloud Run with an L4 shows (dev.to/gde, June 2026), as vLLM prefixes them."""

pytestmark = pytest.mark.tools


@pytest.fixture
def site(forge_server: ForgeServer, kyverno_once: None, tmp_path: Path) -> Iterator[Site]:
    """With a 31B on one L4 on main, which planning refuses: somebody merged it past the gate."""
    (tmp_path / "platform").mkdir()
    with opened_site(forge_server, make_platform(tmp_path / "platform"), tmp_path) as made:
        inputs = read_planning_inputs(FolderSnapshot(made.main.root))
        request = load_request(f"schema_version: 1\n{EXAMPLE.read_text()}", str(EXAMPLE))
        free = request.model_copy(update={"overrides": ()})
        fitting = plan(free, inputs.catalog, inputs.settings, inputs.template.version)
        forced = plan(request, inputs.catalog, inputs.settings, inputs.template.version)
        assert forced.verdict == "refused"
        files: dict[str, bytes | str | None] = dict(pull_request_of(free, fitting, inputs.template).files)
        files[f"{FOLDER}/{REQUEST_FILE}"] = dump_request(request)
        files[f"{FOLDER}/{PLAN_FILE}"] = dump_plan(forced)
        one = str(files[f"{FOLDER}/{SERVICE_FILE}"]).replace("--tensor-parallel-size=2", "--tensor-parallel-size=1")
        files[f"{FOLDER}/{SERVICE_FILE}"] = one
        made.push_main({**files}, "Serve it on the L4 that is left")
        made.clone.run("pull", "--quiet", made.url(forge_server.admin), "main")
        yield made


def test_a_31b_on_an_l4_from_its_log_to_a_pull_request_that_fits(site: Site) -> None:
    log = site.folder / "server.log"
    log.write_text(LOG)
    explain = [*("explain", "dev/deep-analysis", "--log", str(log), "--repository", str(site.clone.root))]
    found = site.plainly(*explain, "--json").json
    assert found["cause"] in ("cuda_oom_weights", "cuda_oom"), found["sentence"]
    assert "2.62" in found["evidence"][0]["text"]
    following = found["next"]
    assert following["fit"]["verdict"] in ("fits", "tight")
    assert following["fit"]["memory_gib"]["free"] >= 0
    program, command, *words = shlex.split(following["update"])
    assert (program, command, words[0]) == ("neuroscale", "update", "dev/deep-analysis")
    shown = site.run(command, *words, "--dry-run", "--json")
    assert (shown.status, shown.json["outcome"], site.pulls()) == (0, "dry_run", [])
    opened = site.run(command, *words, "--json")
    assert (opened.status, opened.json["outcome"]) == (0, "opened"), opened.out + opened.err
    made = yaml.safe_load(site.files(site.pull().head_sha)[f"{FOLDER}/{PLAN_FILE}"])
    assert made["verdict"] in ("fits", "tight")
    assert (made["accelerator"], made["accelerator_count"]) != ("nvidia-l4", 1)
    assert following["update"].partition("--set=")[2].split("=")[0] in site.pull().title
