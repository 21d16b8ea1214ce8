"""`neuroscale prices update --pull-request` on a real forge: from an export to a pull request that passes, once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forge_server import ForgeServer
from price_exports import google, google_skus, sku
from pull_request_lab import cloned, committed_repository

pytestmark = pytest.mark.tools


def test_an_export_becomes_a_pull_request_that_passes_and_a_newer_one_brings_it_up_to_date(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    project = cloned(forge_server, committed_repository(tmp_path), tmp_path / "clone")
    file = tmp_path / "export.json"
    command = [sys.executable, "-P", "-m", "neuroscale", "prices", "update", "--from", str(file)]
    command += ["--region", "us-central1", "--pull-request", "--json"]
    command += ["--token-file", str(forge_server.token_file("developer"))]
    newer = google_skus()
    newer[4] = sku("BBBB-0001", "Nvidia H100 80GB GPU running in Iowa", 500_000_000, units="9")

    def request(skus: list[dict[str, Any]]) -> Any:
        file.write_text(json.dumps(google(*skus)))
        done = subprocess.run(command, cwd=project.clone.root, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    opened = request(google_skus())
    pull = project.developer.pull(opened["number"])
    assert pull.title == "Update the prices of google-cloud-us-central1"
    assert "1 x nvidia-h100-80gb: 9.796 USD an hour, new" in pull.body
    assert "Nvidia Tesla K80" in pull.body
    assert project.status(pull) == "success", project.comments(pull)
    again, updated = request(google_skus()), request(newer)
    assert [one["outcome"] for one in (opened, again, updated)] == ["opened", "unchanged", "updated"]
    assert {one["number"] for one in (again, updated)} == {opened["number"]}
    assert "9.50 USD an hour, new" in project.developer.pull(opened["number"]).body
    assert project.clone.run("status", "--porcelain") == ""
    project.clone.git.close()
