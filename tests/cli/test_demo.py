"""`neuroscale demo`, as a newcomer runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from pull_request_lab import committed_repository

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]


def test_the_demo_goes_from_a_form_to_a_model_that_answers_shows_what_is_refused_and_leaves_all_running_on_request(
    tmp_path: Path,
) -> None:
    main_branch = committed_repository(tmp_path)
    state = tmp_path / "state"

    def neuroscale(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "neuroscale", *arguments, "--state", str(state)]
        return subprocess.run(command, cwd=main_branch, capture_output=True, text=True, timeout=2400, check=False)

    try:
        done = neuroscale("demo", "--keep")
        assert done.returncode == 0, done.stdout + done.stderr
        url = re.search(r"(http://127\.0\.0\.1:\d+)/neuroscale/platform/pulls/1: merged", done.stdout)
        assert url
        assert re.search(r"/pulls/2: .* status checks", done.stdout)
        assert re.search(
            r"^  The merged service: Synced and Ready [0-9]+ s after the merge$", done.stdout, re.MULTILINE
        )
        assert re.search(r"simulated-nvidia-l4-[12]\. That node is simulated", done.stdout)
        assert re.search(r"webhook .* denied .* Policy no-mutable-image-tags failed", done.stdout)
        assert re.search(r"A change by hand: undone by Argo CD", done.stdout)
        assert re.search(r"^  The live model: answered, and passed every smoke test$", done.stdout, re.MULTILINE)
        for stage in ("Form to merge: [0-9]+ s", "Merge to Ready: [0-9]+ s", r"Ready to first token: [0-9.]+ s"):
            assert re.search(rf"^  {stage}$", done.stdout, re.MULTILINE)
        assert re.search(r"^  \| .*curl ", done.stdout, re.MULTILINE), "the merged pull request tells how to ask"
        bill = re.search(r"^Bill: \$[0-9.]+ = services \$[0-9.]+ \+ idle \$[0-9.]+", done.stdout, re.MULTILINE)
        assert bill, "the meter divides what just ran"
        for center in ("cc-ml-inference", "cc-search"):
            assert re.search(rf"^{center} ", done.stdout[bill.end() :], re.MULTILINE), done.stdout[bill.start() :]
        metered = r"^  The last minutes: metered [\s\S]{1,120}?compared\s+with\s+their\s+plans$"
        assert re.search(metered, done.stdout, re.MULTILINE), "the output may break the line"
        assert httpx.get(f"{url[1]}/api/v1/version", timeout=30, trust_env=False).status_code == 200
        assert neuroscale("local", "status").returncode == 0
    finally:
        assert neuroscale("local", "down", "--delete").returncode == 0
    assert not state.exists()
