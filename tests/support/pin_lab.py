"""Two versions of the tool as wheels, and an organisation's repository that pins the older one by a publisher's key."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neuroscale import __version__
from neuroscale.core.tool_cache import cache_folder
from neuroscale.repo.layout import PIN
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import ToolPin, locked_requirements, pin_files, pin_text
from publisher import Publisher
from roots import CHECKOUT, files_of
from wheel_lab import ACME, Adopter, adopted, built_wheel, install_by_digests

NEWER = "99.0.0"
Edit = Callable[[str], str]
L4 = "platform/catalog/accelerators/nvidia-l4.yaml"
NEW_FIELD: Mapping[str, Edit] = {
    "src/neuroscale/catalog/entries.py": lambda text: text.replace(
        "class Accelerator(Frozen):\n", "class Accelerator(Frozen):\n    shelf: str | None = None\n"
    ),
    L4: lambda text: f"{text}shelf: upper\n",
}
"""A field of the catalog that this checkout does not know, with a value in a delivered file."""
NEW_TEMPLATE: Mapping[str, Edit] = {
    "templates/llm-inference-service/skeleton/networkpolicy.yaml": lambda text: text.replace(
        "  # What is not listed", "  # What none of the rules lists"
    )
}


@dataclass(frozen=True)
class TwoVersions:
    """`adopter`: her main pins this checkout's wheel. `newer`: the pin of the other wheel, which lies in `wheels`.
    `newer_tool`: the tool of that wheel in her repository, once it is installed."""

    adopter: Adopter
    publisher: Publisher
    wheels: Path
    newer: ToolPin
    newer_tool: Adopter

    def gate(self, head: str, *options: str) -> tuple[int, dict[str, Any], str]:
        """The pinned tool's exit status and verdict on a branch, and what it printed."""
        report = self.adopter.root.parent / "verdict.json"
        report.unlink(missing_ok=True)
        done = self.adopter.run("gate", "--base=main", f"--head={head}", f"--json={report}", *options)
        return done.returncode, json.loads(report.read_text()), done.stdout + done.stderr


def newer_checkout(folder: Path, edits: Mapping[str, Edit], version: str = NEWER) -> Path:
    """A copy of this checkout with another version and changed files."""
    for name in files_of(CHECKOUT):
        if not name.startswith(("tests/", ".state/", "docs/")) or name.startswith("docs/runbooks/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)
    for name, edit in {"src/neuroscale/__init__.py": lambda text: text.replace(__version__, version), **edits}.items():
        text = (folder / name).read_text(encoding="utf-8")
        assert edit(text) != text, f"the edit of {name} changes nothing"
        (folder / name).write_text(edit(text), encoding="utf-8")
    return folder


def two_versions(folder: Path, edits: Mapping[str, Edit], answers: Mapping[str, Any] = ACME) -> TwoVersions:
    """Build both, and make the repository; what the edited version delivers is not in it yet."""
    adopter, publisher, wheels = adopted(folder, answers), Publisher(), folder / "wheel"
    wheel = built_wheel(wheels / "newer", newer_checkout(folder / "newer", edits))
    shutil.rmtree(folder / "newer")
    (old,) = wheels.glob("*.whl")
    shutil.move(wheel, wheels / wheel.name)
    variables = {**adopter.variables, "NEUROSCALE_CACHE": str(shared_cache(folder / "cache"))}
    adopter = replace(adopter, variables={**variables, "UV_FIND_LINKS": str(wheels)})
    pins = [publisher.pin(*pair) for pair in ((__version__, _digest(old)), (NEWER, _digest(wheels / wheel.name)))]
    (adopter.root / PIN).write_text(pin_text(pins[0]))
    adopter.git("commit", "--quiet", "--all", "--message=Name the publisher")
    return TwoVersions(adopter, publisher, wheels, pins[1], adopter)


def shared_cache(folder: Path) -> Path:
    """A tool cache with this machine's built tools, which keeps packages of the tool for itself."""
    folder.mkdir()
    for entry in cache_folder().iterdir():
        if entry.name not in ("neuroscale", "wheels", "locks", "logs"):
            (folder / entry.name).symlink_to(entry)
    return folder


def upgraded(two: TwoVersions, folder: Path, branch: str = "upgrade") -> Adopter:
    """A branch with what the newer version makes of the same answers and services; returns its tool."""
    adopter = two.adopter
    (newer,) = two.wheels.glob(f"neuroscale-{NEWER}-*.whl")
    environment, made = folder / "newer-environment", folder / "newer-files"
    requirements = folder / "newer-requirements.txt"
    locked = locked_requirements(FolderSnapshot(CHECKOUT))
    requirements.write_text(pin_files(two.newer, locked)["platform/requirements.txt"])
    install_by_digests(environment, requirements, newer)
    tool = replace(
        adopter,
        bin=environment / "bin",
        variables={**adopter.variables, "PATH": f"{environment / 'bin'}:/usr/bin:/bin"},
    )
    answers = f"--answers={folder / 'answers.yaml'}"
    done = tool.run("repository", "init", made, answers, f"--wheel={newer}")
    assert done.returncode == 0, done.stderr
    adopter.git("switch", "--quiet", "--create", branch, "main")
    shutil.copytree(made, adopter.root, dirs_exist_ok=True)
    (adopter.root / PIN).write_text(pin_text(two.newer))
    for service in sorted((adopter.root / "manifests").glob("*/*/request.yaml")):
        done = tool.run("replan", "/".join(service.parts[-3:-1]))
        assert done.returncode == 0, done.stderr
    adopter.git("add", "--all")
    adopter.git("commit", "--quiet", "--message=Take the next version")
    return tool


def _digest(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()
