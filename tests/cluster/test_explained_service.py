"""`neuroscale explain SERVICE` on a real API server: what a pod's log and state say, and how its servers serve."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from api_server import ApiServer
from cluster_lab import SERVICE, Lab, install_kinds, lab, run
from command_line import Said
from neuroscale.actions import explained_service, smoke_now
from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.open_repository import open_repository
from neuroscale.actions.smoke_now import Question
from neuroscale.cli import smoke
from neuroscale.cli.options import Reports
from neuroscale.explain.slow_service import PodLoad
from neuroscale.forge.after_merge.comments import Told, comment, evidence
from neuroscale.forge.after_merge.evidence import ServiceEvidence
from neuroscale.forge.interface import PullRequest
from neuroscale.forge.revert import FolderChange, Merge
from neuroscale.kube.client import Cluster, Identity
from neuroscale.planning.planner import plan
from neuroscale.repo.layout import ServicePath
from neuroscale.request.field_changes import changed, read_changes
from neuroscale.request.service_request import KnownNames
from neuroscale.smoke.results import Report, Result
from printed_lines import check_lines

pytestmark = pytest.mark.tools

POD = f"{SERVICE}-predictor-1-a"
STARTED = "INFO:     Application startup complete.\n"
REFUSED = "vllm: error: unrecognized arguments: --max-model-length=8192\n"


@pytest.fixture(scope="module")
def kinds(api_server: ApiServer) -> ApiServer:
    install_kinds(api_server)
    return api_server


@pytest.fixture
def here(kinds: ApiServer, tmp_path: Path) -> Iterator[Lab]:
    with lab(kinds, tmp_path) as found:
        found.application(found.new_service())
        yield found


def explain(here: Lab, *more: object) -> Said:
    return run("explain", f"dev/{SERVICE}", "--kubeconfig", here.server.kubeconfig, "--repository", here.root, *more)


def counting(monkeypatch: pytest.MonkeyPatch, *loads: PodLoad, unread: tuple[str, ...] = ()) -> None:
    monkeypatch.setattr(Cluster, "log", lambda *_: STARTED)
    monkeypatch.setattr(explained_service, "read_loads", lambda *_: (loads, unread))


def crashed(here: Lab, code: int, reason: str = "Error", *words: str) -> None:
    """The pod ended so; `words`: arguments that somebody added to the cluster's service by hand."""
    if words:
        live = here.rendered()
        live["spec"]["predictor"]["model"]["args"] += words
        here.put(live)
    broken = {
        "name": "kserve-container",
        "ready": False,
        "restartCount": 3,
        "image": "vllm",
        "imageID": "",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": code, "reason": reason}},
    }
    here.cluster.merge(
        Identity("v1", "Pod", here.namespace, POD), {"status": {"containerStatuses": [broken]}}, "status"
    )


def test_a_service_that_runs_is_told_its_bound_and_an_update_that_gives_more(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.serve()
    busy = PodLoad(
        *(POD, 10.0),
        running=8,
        waiting=40,
        waits=1.0,
        most_at_once=300,
        places=8,
        cache=0.2,
        first_tokens=50,
        answer_tokens=900,
    )
    counting(monkeypatch, busy)
    said = explain(here)
    assert said.status == 1
    assert "Requests wait for a place (requests_waiting). 40 requests wait while 8 run, of 8 at a time" in said.out
    found = explain(here, "--json").json["serving"]
    assert (found["verdict"], found["bound"], found["plan"]["replicas"]) == ("bound", "requests_waiting", 1)
    assert found["pods"][0]["waiting"] == 40
    # Each line runs as it is printed, and what it says of the plan is so.
    opened = open_repository(here.root)
    folder = here.root / "manifests/dev" / SERVICE
    before = yaml.safe_load((folder / "plan.yaml").read_text())
    updates = found["bounds"][0]["updates"]
    assert updates
    for one in updates:
        assert one["update"] in said.out
        words = shlex.split(one["update"])
        assert words[:3] == ["neuroscale", "update", f"dev/{SERVICE}"]
        named = dict(word.removeprefix("--").split("=", 1) for word in words[3:])
        changes = read_changes([named["set"]], [], named.get("reason", ""), named.get("until", ""))
        request = changed(
            opened.read_request(folder / "request.yaml"), changes, KnownNames.of(opened.catalog, opened.settings)
        )
        made = plan(request, opened.catalog, opened.settings, opened.template.version)
        assert made.verdict != "refused"
        places = next(word for word in made.vllm_args if word.startswith("--max-num-seqs="))
        assert (made.replicas.min, places in before["vllm_args"]) != (before["replicas"]["min"], True), one
        assert one["sentence"].startswith("By the plan: ")


def test_nobody_asks_it_and_a_client_that_is_slow(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    here.serve()
    pods = [PodLoad(f"chat-{number}", 10.0) for number in range(2)]
    counting(monkeypatch, *pods)
    said = explain(here)
    assert said.status == 0
    assert "Nobody asks it now: nothing can be judged." in said.out
    calm = PodLoad("chat-0", 10.0, running=0.4, most_at_once=1, places=64, cache=0.01, first_tokens=5, answer_tokens=90)
    counting(monkeypatch, calm, pods[1])
    said = explain(here)
    assert said.status == 0
    assert "The server has room" in said.out


def test_servers_that_cannot_be_read_are_named(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    here.serve()
    counting(monkeypatch, unread=("chat-0: it does not answer", "chat-1: it does not answer"))
    said = explain(here)
    assert "nothing can be judged" in said.out
    assert "Not read: chat-0: it does not answer" in said.out


def test_counters_are_read_for_so_many_seconds_or_not_at_all(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    here.serve()
    counting(monkeypatch, PodLoad("chat-0", 10.0))
    assert explain(here, "--seconds", "0", "--json").json["serving"] is None
    for wrong in ("-1", "0.5", "601", "nan"):
        assert explain(here, "--seconds", wrong).status == 2


def test_a_service_that_was_edited_by_hand_is_restored_by_its_plan(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    here.serve(ready=False)
    crashed(here, 2, "Error", "--max-model-length=8192")
    monkeypatch.setattr(Cluster, "log", lambda *_: REFUSED)
    found: dict[str, Any] = explain(here, "--json").json
    assert found["cause"] == "unknown_flag"
    assert found["next"]["update"] == f"neuroscale upgrade dev/{SERVICE}"
    assert "spec.predictor.model.args" in found["next"]["sentence"]
    assert found["next"]["fit"]["verdict"] in ("fits", "tight")
    told = explained_service.told_of(
        f"dev/{SERVICE}", Where(kubeconfig=here.server.kubeconfig), open_repository(here.root)
    )
    assert told[0] == "An argument that this version does not take (unknown_flag)"
    assert f"neuroscale upgrade dev/{SERVICE}" in told[1]


def test_a_server_that_started_on_another_port_than_its_probe_asks_is_not_healthy(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.serve(ready=False)
    monkeypatch.setattr(Cluster, "log", lambda *_: STARTED)
    said = explain(here)
    assert said.status == 1
    assert "The server started, and its pod is not ready: " in said.out
    moved = {"startupProbe": {"httpGet": {"port": 9090}}, "ports": [], "args": ["--port=8081"]}
    server = {"name": "kserve-container", **moved}
    monkeypatch.setattr(explained_service, "server_container", lambda _: server)
    said = explain(here)
    assert "the server listens on port 8081, and its startupProbe asks port 9090." in said.out


def test_what_a_comment_is_told_is_short_and_without_secrets(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    here.serve(ready=False)
    crashed(here, 1)
    where, opened = Where(kubeconfig=here.server.kubeconfig), open_repository(here.root)
    hidden = f"vllm: error: unrecognized arguments: --token=hf_abcdefghijklmnop {'x' * 5000}\n\x1b[2J"
    monkeypatch.setattr(Cluster, "log", lambda *_: hidden)
    told = " ".join(explained_service.told_of(f"dev/{SERVICE}", where, opened))
    assert "unknown_flag" in told
    assert len(told) < 1200
    assert "hf_abc" not in told
    assert "\x1b" not in told
    monkeypatch.setattr(Cluster, "log", lambda *_: "no known words\n")
    assert explained_service.told_of(f"dev/{SERVICE}", where, opened) == ("", "")
    assert explained_service.told_of("dev/none", where, opened) == ("", "")


def test_the_report_of_the_smoke_tests_names_the_cause_and_the_next_configuration(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.serve(ready=False)
    crashed(here, 2, "Error", "--max-model-length=8192")
    monkeypatch.setattr(Cluster, "log", lambda *_: REFUSED)
    failed = Result(SERVICE, "ready", "It is ready", "failed", message="failed: exit code 2", next="See: x")
    other = Result("other", "ready", "It is ready", "failed", message="failed: it is gone", next="See: y")
    passed = Result(SERVICE, "sync", "It is synced", "passed")
    report = Report("dev", "a" * 40, "2026-11-28T00:00:00Z", 1.0, (failed, other, passed))
    where = Where(kubeconfig=here.server.kubeconfig)
    told = smoke_now.with_causes(report, where, here.root).checks
    assert told[0].message == "failed: exit code 2. An argument that this version does not take (unknown_flag)"
    assert told[0].next.startswith("See: x; next configuration, which fits by the plan: Serve it as its plan")
    assert check_lines(told[0].next) == [f"neuroscale upgrade dev/{SERVICE}"]
    assert told[1:] == (other, passed)
    service = ServiceEvidence(ServicePath("dev", SERVICE), "failed", checks=told[:1])
    merge = Told((service,), (), (), "https://forge.example.com/run", {})
    pull = PullRequest(7, "https://forge.example.com/7", "Change it", "", "merged", "ann", "o", "b", "a" * 40, "main")
    for text in (comment(merge, None, ()), evidence(Merge(pull, FolderChange("a" * 40, 0, "")), merge, (), ())):
        assert "unknown" in text
        assert f"neuroscale upgrade dev/{SERVICE}" in text.replace("\\", "")


def test_causes_are_not_looked_up_once_their_time_is_over(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke_now, "_CAUSE_SECONDS", 0.0)
    monkeypatch.setattr(smoke_now, "told_of", lambda *_: pytest.fail("it was looked up"))
    failed = Result(SERVICE, "ready", "It is ready", "failed", message="failed: exit code 2")
    report = Report("dev", "a" * 40, "2026-11-28T00:00:00Z", 1.0, (failed,))
    assert smoke_now.with_causes(report, Where(kubeconfig=here.server.kubeconfig), here.root) == report


def test_a_command_that_is_ended_while_it_looks_up_causes_leaves_its_report(
    here: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ended(*_: object) -> Report:
        raise KeyboardInterrupt

    failed = Result(SERVICE, "ready", "It is ready", "failed")
    report = Report("dev", "a" * 40, "2026-11-28T00:00:00Z", 1.0, (failed,))
    monkeypatch.setattr(smoke_now, "run_and_confirm", lambda *_, **__: report)
    monkeypatch.setattr(smoke_now, "load_target", lambda *_: SimpleNamespace(services=[SimpleNamespace(name=SERVICE)]))
    monkeypatch.setattr(smoke_now, "with_causes", ended)
    file = tmp_path / "smoke.json"
    with pytest.raises(KeyboardInterrupt):
        smoke.run_smoke_tests(
            Question("dev"), Where(kubeconfig=here.server.kubeconfig), here.root, Reports(file, None, None)
        )
    assert json.loads(file.read_text())["exit_status"] == 1


def test_a_service_that_only_the_default_branch_holds_is_explained_beside_its_plan(
    here: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after `request --local`, which writes nothing into the work tree."""
    monkeypatch.setattr(Cluster, "log", lambda *_: REFUSED)
    here.serve(ready=False)
    crashed(here, 2, "Error", "--max-model-length=8192")
    here.git("checkout", "--quiet", "--detach", "main~1")
    assert not (here.root / "manifests/dev" / SERVICE).exists()
    said = explain(here, "--json")
    assert said.json["cause"] == "unknown_flag"
    assert said.json["next"]["update"] == f"neuroscale upgrade dev/{SERVICE}"
    log = tmp_path / "server.log"
    log.write_text(REFUSED)
    assert explain(here, "--log", log, "--json").json["planned"] is not None
