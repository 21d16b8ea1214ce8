"""`neuroscale demo`, as a newcomer runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

import live_lab
from gitops_lab import GitOps
from neuroscale.demo.steps import ENVIRONMENT, LIVE
from neuroscale.forge.http import Client
from neuroscale.local.forge_accounts import ADMIN
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.state import State
from platform_lab import state_of

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]


def test_the_demo_goes_from_a_form_to_a_model_that_answers_shows_what_is_refused_and_leaves_all_running_on_request(
    tmp_path: Path, platform_of_the_demo: Path
) -> None:
    state = state_of(platform_of_the_demo)

    def neuroscale(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "neuroscale", *arguments, "--state", str(state)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2400, check=False)

    done = neuroscale("demo", "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^platform: [34]\d\d files written", done.stdout, re.MULTILINE)
    url = re.search(r"(http://127\.0\.0\.1:\d+)/neuroscale/platform/pulls/1: merged", done.stdout)
    assert url
    assert re.search(r"/pulls/2: .* status checks", done.stdout)
    time = r"[0-9.]+ (?:ms|s|min)(?: [0-9]+ s)?"
    assert re.search(rf"^  The merged service: Synced and Ready {time} after the merge$", done.stdout, re.MULTILINE)
    assert re.search(r"simulated-nvidia-l4-[12]\. That node is simulated", done.stdout)
    assert re.search(r"webhook .* denied .* Policy no-mutable-image-tags failed", done.stdout)
    assert re.search(r"A change by hand: undone by Argo CD", done.stdout)
    assert re.search(r"^  The live model: answered, and passed every smoke test$", done.stdout, re.MULTILINE)
    for stage in ("Form to merge", "Merge to Ready", "Ready to first token"):
        assert re.search(rf"^  {stage}: {time}$", done.stdout, re.MULTILINE)
    assert re.search(r"^  \| .*curl ", done.stdout, re.MULTILINE), "the merged pull request tells how to ask"
    bill = re.search(r"^Bill: [0-9.]+ USD = services [0-9.]+ USD \+ idle [0-9.]+ USD", done.stdout, re.MULTILINE)
    assert bill, "the meter divides what just ran"
    for center in ("cc-ml-inference", "cc-search"):
        assert re.search(rf"^{center} ", done.stdout[bill.end() :], re.MULTILINE), done.stdout[bill.start() :]
    metered = r"^  The last minutes: metered [\s\S]{1,120}?compared\s+with\s+their\s+plans$"
    assert re.search(metered, done.stdout, re.MULTILINE), "the output may break the line"
    assert httpx.get(f"{url[1]}/api/v1/version", timeout=30, trust_env=False).status_code == 200
    assert neuroscale("local", "status").returncode == 0
    _leave_to_other_tests(state, tmp_path / "merged")


def _leave_to_other_tests(state: Path, clone: Path) -> None:
    """Other tests ask the service that answers. The services of the two teams are removed."""
    found = State.read(state)
    assert found is not None
    local = LocalForge(found)
    forge = Client(f"{local.url}/api/v1", local.account(ADMIN).token())
    with closing(GitOps(local)) as gitops:
        pull = forge.get(f"/repos/{local.platform.slug}/pulls/1").data
        live_lab.share(state.parent, LIVE.service, pull["merge_commit_sha"])
        subprocess.run(["git", "clone", "--quiet", local.platform.clone_url, str(clone)], check=True, timeout=120)
        files = [one for one in (clone / "manifests" / ENVIRONMENT).rglob("*") if one.is_file()]
        assert files
        gitops.merge({str(one.relative_to(clone)): None for one in files}, "Remove what the demo served")
