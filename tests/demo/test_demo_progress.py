"""The demo's wheel, and its steps: what a failure says and keeps, and where the next run goes on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from neuroscale.actions.new_repository import digest_of_tool
from neuroscale.core import delivered
from neuroscale.core.errors import ExitStatus, InputError, UntrustedError
from neuroscale.demo import run as demo_run
from neuroscale.demo import setup as demo_setup
from neuroscale.demo.progress import Step, StepFailedError, run_steps
from neuroscale.demo.setup import wheel_of_tool
from neuroscale.demo.steps import MANIFEST, PLATFORM, Demo, Result
from repositories import Repository


class Run:
    """Runs four steps, of which `failing` fails as it is told to."""

    def __init__(self, folder: Path) -> None:
        self.made = Repository(folder / "source")
        self.made.commit({"README.md": "x\n"})
        self.state = folder / "state" / "demo"
        self.progress = folder / "state" / "demo-progress"
        self.worked: list[str] = []
        self.failing: dict[str, Callable[[Demo], None]] = {}

    def step(self, name: str) -> Step:
        def work(demo: Demo) -> None:
            self.worked.append(name)
            demo.facts.setdefault("first", name)
            demo.results.append(Result(name, f"after {demo.facts['first']}"))
            if name in self.failing:
                self.failing[name](demo)

        return Step(f"The step {name}", work)

    def __call__(self, *, keep: bool = False) -> list[str]:
        """The names of the steps that this run worked on."""
        self.worked.clear()
        steps = [self.step(name) for name in ("one", "two", "three", "four")]
        tool = self.made.run("rev-parse", "HEAD")
        run_steps(steps, tool, self.state, keep=keep, again="make demo", prepare=self.prepare)
        return self.worked

    def prepare(self, demo: Demo) -> None:
        """Make the repository of the steps."""
        self.made.run("clone", "--quiet", "--branch", "main", str(self.made.root), str(demo.root))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def command(demo: Demo) -> None:
    """A command of the demo that fails, and says why before its last line."""
    demo.neuroscale("fit", "--no-such-option", expect=ExitStatus.PASSED)


def test_a_failed_demo_names_step_line_and_command_and_the_next_run_goes_on_at_that_step(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.failing["three"] = command
    with pytest.raises(StepFailedError) as caught:
        run()
    assert caught.value.exit_status is ExitStatus.UNTRUSTED
    first, line, last = str(caught.value).splitlines()
    assert first == ("the demo failed at step 3 of 4 (The step three): the demo expected exit status 0 and got 2.")
    assert last == "Go on at this step: make demo"
    place = re.fullmatch(r"  (?P<log>/\S+demo\.log):(?P<number>\d+): (?P<text>.*No such option.*)", line)
    assert place
    assert Path(place["log"]).read_text().splitlines()[int(place["number"]) - 1].strip() == place["text"]
    assert place["text"] in capsys.readouterr().out, "the command's output is shown, too"

    with pytest.raises(StepFailedError, match="step 3 of 4"):
        run()
    assert run.worked == ["three"]
    run.failing.clear()
    capsys.readouterr()
    assert run() == ["three", "four"]
    shown = capsys.readouterr().out
    assert "goes on at step 3 of 4" in shown
    summary = shown.partition("What was shown")[2]
    assert re.findall(r"^  (\w+): after one$", summary, re.MULTILINE) == ["one", "two", "three", "four"]
    assert not run.progress.exists()
    assert run() == ["one", "two", "three", "four"]


def failed(run: Run, step: str, error: BaseException) -> str:
    def fail(_: Demo) -> None:
        raise error

    run.failing[step] = fail
    with pytest.raises((StepFailedError, KeyboardInterrupt)) as caught:
        run()
    run.failing.clear()
    return str(caught.value)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UntrustedError("the demo expected a comment."), "the demo expected a comment."),
        (
            subprocess.CalledProcessError(128, ["git", "push"], stderr=b"fatal: no\n"),
            "git push ended with 128: fatal: no",
        ),
        (KeyError("pods"), "a defect: KeyError: 'pods'"),
    ],
)
def test_any_failure_is_told_and_goes_on_there(run: Run, error: Exception, told: str) -> None:
    assert f"step 2 of 4 (The step two): {told}\n" in failed(run, "two", error)
    assert run() == ["two", "three", "four"]


def test_an_interrupted_demo_goes_on_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    failed(run, "two", KeyboardInterrupt())
    assert "Interrupted at step 2 of 4 (The step two). Go on there: make demo" in capsys.readouterr().out
    assert run(keep=True) == ["two", "three", "four"]


def test_a_demo_of_another_tool_begins_at_the_first_step(run: Run) -> None:
    failed(run, "two", UntrustedError("no"))
    run.made.commit({"README.md": "y\n"})
    assert run() == ["one", "two", "three", "four"]


def test_a_demo_whose_forge_and_cluster_were_removed_begins_at_the_first_step(run: Run) -> None:
    def fail(demo: Demo) -> None:
        demo.facts[PLATFORM] = True
        raise UntrustedError("no")

    run.failing["two"] = fail
    with pytest.raises(StepFailedError, match=rf"local down --delete --state {run.state}\n"):
        run()
    run.failing.clear()
    assert run() == ["one", "two", "three", "four"]


def test_two_demos_do_not_share_a_folder(run: Run) -> None:
    def begin_another(_: Demo) -> None:
        with pytest.raises(InputError, match="is in use by another demo"):
            Run.__call__(run)

    run.failing["two"] = begin_another
    run()


def test_what_the_first_steps_make_can_be_made_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fails once at its end, with what it made still there."""
    monkeypatch.setattr(Demo, "neuroscale", _write_manifest)
    run.made.commit({"policies/no-mutable-image-tags/policy.yaml": "- expression: true\n"})
    for number in (1, 3, 4):
        work = demo_run._OWN_STEPS[number - 1].work
        demos: list[Demo] = []

        def twice(demo: Demo, work: Callable[[Demo], None] = work, demos: list[Demo] = demos) -> None:
            work(demo)
            demos.append(demo)
            work(demo)

        run.failing[("one", "two", "three", "four")[number - 1]] = twice
    run()


def _write_manifest(demo: Demo, command: str, *arguments: str, **_: object) -> None:
    if command == "new":
        file = demo.root / MANIFEST
        file.parent.mkdir(parents=True)
        file.write_text("image: vllm/vllm-openai:v0.32.0\n")
    if "--json" in arguments:
        finding = {"gate": "policy", "rule": "no-mutable-image-tags", "file": MANIFEST, "message": "refused"}
        Path(arguments[-1]).write_text(json.dumps({"findings": [finding]}))


def test_a_checkout_builds_the_wheel_of_its_code_and_a_wheels_tool_takes_the_one_that_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for _ in range(2):
        with wheel_of_tool(None) as wheel:
            digests.add(digest_of_tool(wheel))
        assert not wheel.exists()
    assert len(digests) == 1, "a demo of the same code goes on where it was"
    monkeypatch.setattr(delivered, "CHECKOUT", tmp_path)
    with pytest.raises(UntrustedError, match=rf"wheel of this checkout was not built: .* `make -C {tmp_path} demo`"):
        wheel_of_tool(None).__enter__()
    with wheel_of_tool(tmp_path / "named") as wheel:
        assert wheel == tmp_path / "named"
    monkeypatch.setattr(delivered, "CHECKOUT", None)
    monkeypatch.setattr(demo_setup, "installed_wheel", lambda: tmp_path / "installed")
    with wheel_of_tool(None) as wheel:
        assert wheel == tmp_path / "installed"
