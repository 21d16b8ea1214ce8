"""`neuroscale local` as a user runs it: up, down, status and logs, also after crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from forge_server import ForgeServer
from neuroscale.actions.open_repository import local_forge
from neuroscale.core.errors import InputError
from neuroscale.local.process import INSTANCE_VARIABLE, belonging
from neuroscale.local.state import State
from printed_lines import check_lines
from repositories import Repository
from waiting import wait_for

pytestmark = pytest.mark.tools


class Local:
    """The command in a repository of its own, with a state folder of its own."""

    def __init__(self, folder: Path, state: Path | None = None) -> None:
        self.folder = state or folder / "state"
        self.repository = Repository(folder / "repository")
        self.commit = self.repository.commit({"platform/settings.yaml": "schema_version: 1\n"})

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "neuroscale", "local", *arguments, "--state", str(self.folder)]
        if arguments[0] == "up":
            command.append("--no-cluster")
        return subprocess.Popen(
            command, cwd=self.repository.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *arguments: str, expect: int = 0) -> str:
        with self.start(*arguments) as process:
            out, _ = process.communicate(timeout=180)
        assert process.returncode == expect, out
        assert "Traceback" not in out
        return out

    def status(self, expect: int | None = 0) -> dict[str, Any]:
        """What `status --json` prints; `expect` is its exit status, None for any."""
        with self.start("status", "--json") as process:
            out, _ = process.communicate(timeout=60)
        assert expect in (None, process.returncode), out
        value = json.loads(out)
        assert isinstance(value, dict)
        return value

    def rows(self, expect: int | None = 0) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.status(expect)["processes"]}

    def pids(self) -> dict[str, int]:
        return {name: row["pid"] for name, row in self.rows().items()}

    @property
    def state(self) -> State:
        state = State.read(self.folder)
        assert state is not None
        return state

    def running(self) -> list[psutil.Process]:
        return list(belonging(self.state.instance.id))

    def wait_for_restart(self, name: str) -> None:
        """Until that process was started once more than before, and is healthy."""

        def again() -> bool:
            row = self.rows(None)[name]
            return bool(row["restarts"] == 1 and row["health"] == "healthy")

        wait_for(again, 60)


@pytest.fixture
def local() -> Iterator[Local]:
    # Not pytest's own temporary folder, which the forge's user may not enter.
    with tempfile.TemporaryDirectory(prefix="neuroscale-local-") as scratch:
        Path(scratch).chmod(0o755)
        local = Local(Path(scratch))
        try:
            yield local
        finally:
            local.run("down", "--delete")


@pytest.fixture
def running(forge_server: ForgeServer, tmp_path: Path) -> Local:
    """The command for the platform that the tests share: to look at, not to change."""
    return Local(tmp_path, forge_server.folder)


def ended(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_up_seeds_the_forge_and_a_second_up_changes_nothing_and_down_ends_everything(local: Local) -> None:
    said = local.run("up")
    assert "gitea is healthy" in said
    assert "runner is healthy" in said
    status = local.status()
    assert f"{status['url']}/neuroscale/platform" in said
    for role in ("admin", "developer", "owner"):
        file = local.folder / "tokens" / role
        assert str(file) in said
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().strip() not in said
    remote, ask = said.split("Ask for a service there, in this repository:\n")[1].splitlines()[:2]
    subprocess.run(remote, shell=True, check=True, cwd=local.repository.root)
    assert local.repository.run("ls-remote", "local", "refs/heads/main")
    assert check_lines(ask)
    assert "--remote local --token-file" in ask
    local.repository.run("remote", "remove", "local")
    default = local.repository.root / ".state/local"
    default.parent.mkdir()
    (default.parent / ".gitignore").write_text("*\n")
    default.symlink_to(local.folder)
    address, token = local_forge(local.repository.root)
    assert (address, token.secret) == (
        f"{status['url']}/neuroscale/platform.git",
        (local.folder / "tokens/developer").read_text().strip(),
    )

    tip = local.repository.run("ls-remote", f"{status['url']}/neuroscale/platform.git", "refs/heads/main")
    assert tip.split()[0] == local.commit

    files = [*local.folder.glob("tokens/*"), *local.folder.glob("passwords/*"), local.folder / "instance.json"]
    before = {path: path.stat().st_mtime_ns for path in files}
    pids = local.pids()
    local.repository.commit({"later": "1"})
    assert "starting" not in local.run("up")
    assert local.pids() == pids
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert local.repository.run("remote") == ""
    assert local.repository.run("status", "--porcelain") == ""

    processes = local.running()
    local.run("down")
    assert ended(processes)
    assert all(row["health"] == "stopped" for row in local.rows(expect=1).values())
    with pytest.raises(InputError, match="does not hold a local platform that runs"):
        local_forge(local.repository.root)
    shutil.rmtree(default.parent)
    local.run("down")
    local.run("up")
    again = local.status()
    assert again["url"] == status["url"]
    assert all(row["restarts"] == 0 for row in again["processes"])


def test_a_process_that_is_killed_is_started_again_and_one_that_hangs_is_ill(local: Local) -> None:
    """It fails if a process that was killed is not started again."""
    local.run("up")
    before = local.pids()
    for name in ("runner", "gitea"):
        os.kill(before[name], signal.SIGKILL)
        local.wait_for_restart(name)
    after = local.pids()
    assert after["supervisor"] == before["supervisor"]
    assert after["gitea"] != before["gitea"]
    assert after["runner"] != before["runner"]
    assert "was killed by signal 9" in local.run("logs", "supervisor")
    os.kill(after["gitea"], signal.SIGSTOP)
    rows = local.rows(expect=1)
    assert rows["gitea"]["health"] == "ill"
    assert rows["gitea"]["log"]
    local.run("down")
    assert local.running() == []


def test_a_killed_supervisor_is_told_of_and_up_starts_anew_and_down_ends_what_is_left(local: Local) -> None:
    """It fails if `down` leaves what a killed supervisor left."""
    local.run("up")
    first = local.running()
    os.kill(local.pids()["supervisor"], signal.SIGKILL)
    rows = local.rows(expect=1)
    assert rows["supervisor"]["health"] == "stopped"
    assert rows["gitea"]["health"] == "ill"
    assert "without its supervisor" in local.run("status", expect=1)
    local.run("up")
    assert ended(first)
    second = local.running()
    assert len(second) == 3
    os.kill(local.pids()["supervisor"], signal.SIGKILL)
    local.run("down")
    assert ended(second)


def test_two_ups_at_once_start_one_platform_and_another_option_is_taken_over(local: Local) -> None:
    with local.start("up") as first, local.start("up") as second:
        said = [process.communicate(timeout=180)[0] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert sum("gitea is starting" in text for text in said) == 1
    assert len([process for process in local.running() if "neuroscale.local.supervisor" in process.cmdline()]) == 1
    before = local.pids()
    local.run("up", "--jobs", "1")
    assert local.pids() != before
    assert json.loads((local.state.run / "runner-settings" / "config.yaml").read_text())["runner"]["capacity"] == 1
    now = local.pids()
    local.run("up")
    assert local.pids() == now


def test_without_a_platform_status_and_logs_say_so_and_down_is_done(local: Local) -> None:
    assert "neuroscale local up" in local.run("status", expect=1)
    assert local.status(expect=1)["healthy"] is False
    assert "neuroscale local up" in local.run("logs", expect=2)
    assert "does not hold a local platform" in local.run("down")


def test_a_folder_with_other_files_is_never_taken_or_deleted(local: Local) -> None:
    local.folder.mkdir()
    (local.folder / "mine.txt").write_text("keep")
    assert "holds other files" in local.run("up", expect=2)
    local.run("down", "--delete", expect=2)
    assert (local.folder / "mine.txt").read_text() == "keep"
    (local.folder / "mine.txt").unlink()


def test_down_ends_what_a_job_left_running_and_nothing_else(local: Local) -> None:
    local.run("up")
    # Numbers that no other sleep on this machine has.
    marked, unmarked, foreign = (f"600.{os.getpid()}{number}" for number in range(3))
    script = f"setsid sleep {marked} & env -i setsid sleep {unmarked} & sleep 1"
    workflow = (
        "on: push\njobs:\n  leave:\n    runs-on: ubuntu-latest\n    steps:\n"
        f"      - shell: bash\n        run: {script}\n"
    )
    other = subprocess.Popen(["sleep", foreign], env={**os.environ, INSTANCE_VARIABLE: "another"})
    try:
        clone = Repository(local.repository.root.parent / "clone")
        clone.commit({".github/workflows/leave.yaml": workflow})
        from neuroscale.local.forge_setup import LocalForge

        LocalForge(local.state).create_repository("leaving", clone.root)

        def sleeping() -> set[str]:
            found = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
            return {line[1] for line in found if line and line[0] == "sleep" and len(line) > 1}

        wait_for(lambda: {marked, unmarked, foreign} <= sleeping(), 60)
        local.run("down")
        assert not {marked, unmarked} & sleeping()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_port_that_another_program_took_is_replaced(local: Local) -> None:
    local.run("up")
    before = local.status()
    port = {row["name"]: row["port"] for row in before["processes"]}["gitea"]
    local.run("down")
    with socket.create_server(("127.0.0.1", port)):
        said = local.run("up")
    assert f"Port {port} of gitea is taken by another program" in said
    after = local.status()
    assert after["url"] != before["url"]
    # The runner has registered at the new address, and the forge gives it.
    assert {row["health"] for row in after["processes"]} == {"healthy"}
    token = (local.folder / "tokens" / "developer").read_text().strip()
    answer = httpx.get(
        f"{after['url']}/api/v1/repos/neuroscale/platform",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
    )
    assert answer.json()["clone_url"].startswith(after["url"])


@pytest.mark.slow
def test_an_up_that_was_killed_at_any_moment_is_completed_by_the_next(local: Local) -> None:
    for pause in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5):
        process = local.start("up")
        time.sleep(pause)  # the moment is the point
        process.kill()
        process.communicate()
        if State.read(local.folder) is not None and pause in (1.5, 2.5):
            for left in local.running():
                left.kill()
    local.run("up")
    status = local.status()
    assert status["healthy"]
    for role in ("admin", "developer", "owner"):
        token = (local.folder / "tokens" / role).read_text().strip()
        answer = httpx.get(
            f"{status['url']}/api/v1/user", headers={"Authorization": f"Bearer {token}"}, trust_env=False
        )
        assert answer.status_code == 200
    password = (local.folder / "passwords" / "owner").read_text().strip()
    answer = httpx.get(f"{status['url']}/api/v1/user", auth=("owner", password), trust_env=False)
    assert answer.json()["login"] == "owner"
    assert local.repository.run("ls-remote", f"{status['url']}/neuroscale/platform.git", "refs/heads/main")


def test_a_start_that_fails_shows_the_last_lines_and_leaves_nothing_running(local: Local) -> None:
    local.run("up")
    local.run("down")
    data = local.state.run / "gitea" / "data"
    database = data / "gitea.db"
    database.write_bytes(b"this is no database" * 100)
    said = local.run("up", expect=2)
    assert "gitea does not run" in said
    assert str(local.folder / "logs" / "gitea.log") in said
    assert "[F]" in said
    assert "database" in said
    assert local.running() == []


def test_logs_are_followed(running: Local) -> None:
    assert "declare successfully" in running.run("logs", "runner", "--lines", "10000")
    everything = running.run("logs")
    assert "gitea | " in everything
    assert "supervisor | " in everything
    assert "Name one of gitea, runner, supervisor" in running.run("logs", "unknown", expect=2)
    with running.start("logs", "gitea", "--lines", "0", "--follow") as follower:
        assert follower.stdout is not None
        output, url = follower.stdout, f"{running.status()['url']}/neuroscale/platform/src/branch/a-name-to-look-for"
        lines: list[str] = []

        def read() -> None:
            for line in output:
                lines.append(line)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()

        def told() -> bool:
            httpx.get(url, trust_env=False, timeout=60)
            return any("a-name-to-look-for" in line and "GET" in line for line in lines)

        wait_for(told, 60, "what happens is told")
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=60) in (130, -signal.SIGINT)
        reading.join(60)


def test_nothing_listens_beyond_this_machine(running: Local) -> None:
    listening = [
        connection.laddr
        for process in running.running()
        for connection in process.net_connections(kind="all")
        if connection.status == psutil.CONN_LISTEN or (connection.type == socket.SOCK_DGRAM and connection.laddr)
    ]
    assert len(listening) == 2
    assert {address.ip for address in listening} == {"127.0.0.1"}


def test_no_secret_is_in_arguments_logs_or_files_that_others_may_read(running: Local) -> None:
    said = running.run("status") + running.run("logs")
    run = running.state.run
    files = [*(running.folder / "tokens").iterdir(), *(running.folder / "passwords").iterdir()]
    files += [run / "gitea-settings" / name for name in ("secret_key", "internal_token", "jwt_secret")]
    found = [path.read_text().strip() for path in files]
    found.append(json.loads((run / "runner" / "registration" / "registration.json").read_text())["token"])
    assert len(found) >= 10
    for process in running.running():
        told = " ".join(process.cmdline()) + " ".join(process.environ().values())
        assert not any(secret in told for secret in found)
    assert not any(secret in said for secret in found)
    for path in running.folder.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.is_relative_to(run / "programs"):
            continue
        if path.is_relative_to(run / "cache"):
            continue
        readable = all(_others_may_pass(parent) for parent in path.parents if parent.is_relative_to(running.folder))
        if (readable and path.stat().st_mode & 0o044) or path.suffix == ".log":
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in found), path


@pytest.mark.skipif(os.geteuid() != 0, reason="started by a user without rights, all run as that user")
def test_started_by_root_neither_the_forge_nor_the_runner_is_root(running: Local) -> None:
    pids = running.pids()
    uids = {name: psutil.Process(pids[name]).uids().real for name in ("gitea", "runner")}
    assert 0 not in uids.values()
    assert uids["gitea"] != uids["runner"]
    for name in uids:
        status = Path(f"/proc/{pids[name]}/status").read_text()
        assert "Groups:\t\n" in status.replace("Groups:\t \n", "Groups:\t\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="any folder of the user's own is within reach")
def test_a_folder_that_the_forges_user_cannot_enter_is_worked_around_and_told_of(local: Local) -> None:
    local.folder.parent.chmod(0o700)
    said = local.run("up")
    run = local.state.run
    assert not run.is_relative_to(local.folder)
    assert f"The processes' files lie in {run}" in said
    assert f"The processes' files lie in {run}" in local.run("status")
    local.run("down", "--delete")
    assert not run.exists()
    assert not local.folder.exists()


def _others_may_pass(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o011)
