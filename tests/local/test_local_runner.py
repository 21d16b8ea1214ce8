"""The local runner: what a job finds, what it cannot reach, and which workflows run at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from forge_server import ForgeServer
from neuroscale.core import tool_cache
from neuroscale.core.errors import InputError
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.interface import RepositoryRef
from neuroscale.local.copied_programs import copy_cache
from neuroscale.local.workflow_runner import find_python, shared
from repositories import Repository
from waiting import wait_for

WORKFLOW = """\
name: look
on: {event}
jobs:
  look:
    name: look
    runs-on: ubuntu-latest
    steps:
      - shell: bash
        run: |
{script}
"""
LOOK = """\
set -euo pipefail
python3 -c 'import sys; assert sys.version_info >= (3, 11)'
python3 -m venv "$RUNNER_TEMP/venv"
"$RUNNER_TEMP/venv/bin/pip" --version
for tool in kubeconform gitleaks kyverno; do
  test -x "$NEUROSCALE_CACHE"/tools/$tool/*/$tool
done
"$NEUROSCALE_CACHE"/tools/kubeconform/*/kubeconform -v
find "$NEUROSCALE_CACHE"/schemas -name kinds.json | grep -q .
"$NEUROSCALE_CACHE"/uv/*/uv --version
test ! -w "$NEUROSCALE_CACHE" -o "$(id -u)" = "$EXPECT_UID"
touch "$HOME/file" "$TMPDIR/file"
env | cut -d= -f1 | sort > "$RUNNER_TEMP/names"
if grep -qE 'PASSWORD|FORBIDDEN_FOR_JOBS' "$RUNNER_TEMP/names"; then exit 1; fi
"""


def workflow(event: str, script: str) -> str:
    return WORKFLOW.format(event=event, script="".join(f"          {line}\n" for line in script.splitlines()))


def state_of(server: ForgeServer, repository: RepositoryRef, commit: str) -> str:
    """The state of the only status of a commit."""
    statuses = server.forge(repository, server.admin).statuses(commit)
    assert len(statuses) <= 1, statuses
    return statuses[0].state if statuses else "none"


def run(server: ForgeServer, folder: Path, script: str) -> tuple[str, str]:
    """The result of a job that a push starts, and its log."""
    clone = Repository(folder)
    commit = clone.commit({".github/workflows/look.yaml": workflow("push", script)})
    repository = server.create_repository(clone.root)
    wait_for(lambda: state_of(server, repository, commit) in ("success", "failure"), 90, "the job's end")
    return state_of(server, repository, commit), log_of(server, repository)


def log_of(server: ForgeServer, repository: RepositoryRef) -> str:
    import httpx

    jobs = server.api("GET", f"/repos/{repository.slug}/actions/jobs")[1]["jobs"]
    answer = httpx.get(
        f"{server.url}/api/v1/repos/{repository.slug}/actions/jobs/{jobs[0]['id']}/logs",
        headers={"Authorization": f"Bearer {server.admin.secret}"},
        trust_env=False,
    )
    return answer.text


@pytest.mark.tools
def test_a_job_finds_python_and_the_gates_tools_and_nothing_of_the_users_environment(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    script = LOOK.replace('"$EXPECT_UID"', f'"{os.geteuid() or "none"}"')
    state, log = run(forge_server, tmp_path / "clone", script)
    assert state == "success", log


@pytest.mark.tools
@pytest.mark.skipif(os.geteuid() != 0, reason="started by a user without rights, all run as that user")
def test_a_job_is_not_root_and_cannot_reach_the_forges_files(forge_server: ForgeServer, tmp_path: Path) -> None:
    state = forge_server.local.state
    script = "\n".join(
        [
            'test "$(id -u)" != 0',
            f'test "$(id -u)" != {state.instance.forge_uid}',
            *(
                f"if cat {path} 2>/dev/null; then exit 1; fi"
                for path in (
                    state.run / "gitea" / "data" / "gitea.db",
                    state.run / "gitea-settings" / "internal_token",
                    state.run / "gitea-settings" / "secret_key",
                    state.tokens / "admin",
                    state.passwords / "admin",
                    state.folder / "instance.json",
                    state.log("gitea"),
                )
            ),
            'for folder in "$NEUROSCALE_CACHE" "$NEUROSCALE_CACHE"/tools/*/*; do',
            '  if touch "$folder/file" 2>/dev/null; then exit 1; fi',
            "done",
            f"if touch {state.run}/runner-settings/config.yaml 2>/dev/null; then exit 1; fi",
        ]
    )
    result, log = run(forge_server, tmp_path / "clone", script)
    assert result == "success", log


@pytest.mark.tools
def test_a_failing_job_is_a_failed_status_and_leaves_no_work_folder(forge_server: ForgeServer, tmp_path: Path) -> None:
    state, log = run(forge_server, tmp_path / "clone", "echo this is why\nexit 1")
    assert state == "failure"
    assert "this is why" in log
    work = forge_server.local.state.run / "runner" / "work"
    # os.walk, unlike Path.rglob, goes on when a folder is removed meanwhile.
    wait_for(
        lambda: not any({"hostexecutor", "event.json"} & {*folders, *files} for _, folders, files in os.walk(work))
    )


@pytest.mark.tools
def test_a_workflow_that_a_fork_brings_does_not_run(forge_server: ForgeServer, tmp_path: Path) -> None:
    clone = Repository(tmp_path / "clone")
    clone.commit(
        {
            ".github/workflows/gate.yaml": workflow("pull_request_target", "echo judged by the base"),
            # Gitea's own folder would take the place of the other one.
            ".gitea/workflows/gate.yaml": workflow("pull_request_target", "exit 1"),
        }
    )
    repository = forge_server.create_repository(clone.root)
    forge = forge_server.forge(repository, forge_server.developer)
    fork = forge.fork().ref
    changed: dict[str, Any] = {
        ".github/workflows/gate.yaml": workflow("pull_request_target", "exit 1"),
        ".github/workflows/own.yaml": workflow("pull_request", "exit 1"),
        ".gitea/workflows/other.yaml": workflow("pull_request_target", "exit 1"),
    }
    head = clone.commit(changed)
    Branches(clone.git, Access(fork.clone_url, forge_server.developer)).push(fork, "own", head, None)
    forge.open_pull("Mine", "", fork, "own", "main")

    def states() -> dict[str, str]:
        return {status.context: status.state for status in forge.statuses(head)}

    wait_for(lambda: states().get("look / look (pull_request_target)") == "success", 90, "the base's workflow")
    assert states() in (
        {"look / look (pull_request_target)": "success"},
        {"look / look (pull_request_target)": "success", "look / look (pull_request)": "pending"},
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIP_INDEX_URL", "https://packages.example.org/simple"),
        ("UV_DEFAULT_INDEX", "https://packages.example.org/simple"),
        ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
        ("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"),
        ("NODE_EXTRA_CA_CERTS", "/etc/ssl/certs/ca-certificates.crt"),
        ("https_proxy", "http://proxy.example.org:3128"),
    ],
)
def test_jobs_see_where_packages_and_certificates_are(name: str, value: str) -> None:
    assert shared({name: value})[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIP_INDEX_URL", "https://user:secret@packages.example.org/simple"),
        ("PIP_EXTRA_INDEX_URL", "https://a.example.org/simple https://token@b.example.org/simple"),
        ("UV_PUBLISH_TOKEN", "secret"),
        ("UV_INDEX_PRIVATE_PASSWORD", "secret"),
        ("https_proxy", "user:secret@proxy.example.org:3128"),
        ("HTTPS_PROXY", "http://user:secret@proxy.example.org:3128"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("GITHUB_TOKEN", "secret"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("KUBECONFIG", "/root/.kube/config"),
        ("PIP_CLIENT_CERT", "/root/client.pem"),
    ],
)
def test_jobs_see_no_credentials(name: str, value: str) -> None:
    assert name not in shared({name: value})


def test_a_proxy_is_never_between_a_job_and_the_forge() -> None:
    kept = shared({"https_proxy": "http://proxy.example.org:3128", "no_proxy": "example.org"})
    assert kept["no_proxy"] == "example.org,127.0.0.1,localhost"
    assert "127.0.0.1" in kept["NO_PROXY"]


def test_without_a_program_that_jobs_need_the_start_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscale.local.workflow_runner._PYTHONS", ("no-such-python",))
    monkeypatch.setattr("sys.base_prefix", "/nowhere")
    with pytest.raises(InputError, match=r"no python3 of version 3\.11 or newer with venv"):
        find_python(None)


def test_jobs_get_the_kept_wheel_also_where_it_was_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tool_cache, "GATE_TOOLS", ())
    tool_cache.schema_pins().folder.mkdir(parents=True)
    kept = tool_cache.wheels(tmp_path / "cache") / "neuroscale-1.0.0-py3-none-any.whl"
    kept.parent.mkdir(parents=True)
    for content in (b"first", b"second", b"second"):
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(kept)
        copy_cache(tmp_path / "jobs")
        copies = list(tool_cache.wheels(tmp_path / "jobs").iterdir())
        assert [(path.name, path.read_bytes()) for path in copies] == [(kept.name, content)]
