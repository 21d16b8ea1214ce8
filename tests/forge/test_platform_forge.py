"""`neuroscale platform forge`, against a server of GitHub's recorded shapes."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from pathlib import Path

import pytest

from command_line import commands
from github_server import running_github
from neuroscale.repo.layout import SETTINGS
from roots import ROOT


def test_an_unprotected_branch_is_red_and_a_protected_one_green(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / SETTINGS).parent.mkdir()
    shutil.copy(ROOT / SETTINGS, tmp_path / SETTINGS)
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(20))
    token.chmod(0o600)
    command = commands(capsys, monkeypatch, "platform", "forge", "--repository", tmp_path, "--token-file", token)
    with running_github({token.read_text(): "developer"}) as server:
        made = server.add("neuroscale", "platform", set())
        subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
        remote = ["remote", "add", "origin", f"{server.url}/{made.slug}.git"]
        subprocess.run(["git", "-C", str(tmp_path), *remote], check=True)

        said = command()
        assert said.status == 1
        assert "Nothing protects main" in said.out
        made.required, made.approvals, made.rebases = {"gate"}, 0, False
        said = command("--json")
        assert said.status == 1
        assert said.json["problems"] == ["main requires no approval."]
        made.approvals = 1
        for made.merge_methods, made.rebases, expected in [
            (["merge", "squash", "rebase"], None, "not shown to this token"),
            (["merge", "squash", "rebase"], True, "main takes merges by rebasing (rebase)"),
            (None, True, "main takes merges by rebasing (rebase)"),
            (None, False, ""),
            (["merge", "squash"], True, ""),
        ]:
            said = command("--json")
            assert said.status == (1 if expected else 0)
            assert [expected in one for one in said.json["problems"]] == ([True] if expected else [])
        said = command()
        assert said.status == 0
        assert "main needs a pull request, the gate and an approval" in said.out
        assert "Note: platform/settings.yaml names no account of the smoke workflow" in said.out
        assert server.violations == []
