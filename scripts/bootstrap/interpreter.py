"""Chooses the interpreter for `.venv`: of those on PATH with this Python's version, the one that runs fastest.

A Python that was built without profile-guided optimisation, as pyenv builds it by default, takes a quarter to a half
more processor time than a distribution's. The gate, the tests and much of the platform are Python programs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bootstrap.running import say

ONLY_THIS = "NEUROSCALE_ONLY_THIS_PYTHON"
"""With any value, this variable keeps set-up to the interpreter that runs it: its user named it."""
ALONE = ("-I",)
"""Python would otherwise look for modules in the checkout first, and run a `venv.py` or `pip.py` that was committed."""
_FASTER = 0.85  # of the other's time: a smaller gain is not worth another interpreter than the user's
_WITHIN = 20.0  # seconds
_LOOK = """
import ast, importlib.util, io, json, os, sys, sysconfig, time, tokenize
source = importlib.util.find_spec("dataclasses").loader.get_source("dataclasses")
def work():
    list(tokenize.generate_tokens(io.StringIO(source).readline))
    ast.unparse(ast.parse(source))
def seconds():
    start = time.process_time()
    work()
    return time.process_time() - start
print(json.dumps({
    "path": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "version": list(sys.version_info[:2]),
    "venv": all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip")),
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "seconds": min(seconds() for _ in range(5)),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """One interpreter. `version`: major and minor. `venv`: it can make environments. `headers`: it can build modules,
    as vLLM does. `seconds`: the processor time of a short piece of work."""

    path: str
    version: tuple[int, int]
    venv: bool
    headers: bool
    seconds: float


def this() -> str:
    """The interpreter that runs this, outside any virtual environment: `.venv` cannot be replaced by its own one."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def fastest_on_path() -> str:
    """The path of the fastest interpreter of this Python's version; this one's unless another is clearly faster.

    Says so if it is another.
    """
    if os.environ.get(ONLY_THIS):
        return this()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()]
    found = {os.path.realpath(path) for folder in folders if (path := shutil.which(name, path=folder))}
    others = sorted(found - {this()})
    if not others or (running := look(this())) is None:
        return this()
    chosen = choose(running, filter(None, map(look, others)))
    if chosen != running:
        say(
            f"      Python is {chosen.path}: it runs {running.seconds / chosen.seconds:.1f} times as fast as "
            f"{running.path}. To keep that one: make PYTHON={running.path} ..."
        )
    return chosen.path


def choose(running: Interpreter, others: Iterable[Interpreter]) -> Interpreter:
    """The fastest of those that can do what the running one can; the running one unless another is clearly faster.

    A program on PATH may be a script that starts the running one.
    """
    alike = [
        other
        for other in others
        if other.path != running.path
        and other.version == running.version
        and other.venv
        and other.headers >= running.headers
    ]
    best = min(alike, key=lambda other: other.seconds, default=running)
    return best if best.seconds < _FASTER * running.seconds else running


def look(path: str) -> Interpreter | None:
    """An interpreter as it describes itself; None if it does not."""
    try:
        done = subprocess.run(
            [path, *ALONE, "-c", _LOOK], capture_output=True, text=True, timeout=_WITHIN, check=True, cwd="/"
        )
        said = json.loads(done.stdout)
        major, minor = said["version"]
        return Interpreter(str(said["path"]), (major, minor), said["venv"], said["headers"], float(said["seconds"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None
