"""Brings vLLM and its models to a place where the user of model servers can read but not change them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from neuroscale.core import delivered
from neuroscale.core.tool_cache import PinError
from neuroscale.local.copied_programs import link_or_copy
from neuroscale.local.node.launch import LocalVllm
from neuroscale.local.state import LocalError
from neuroscale.local.users import User, tried
from neuroscale.tools.model_server import ModelServer

_PYTHON, _ENVIRONMENT, _MODELS = "python", "environment", "models"
_SETTINGS = "pyvenv.cfg"
# Whether a Python runs, and whether every file of the models can be read.
_RUNS = '"$1" -I -c "import json"'
_READS = 'for file in "$1"/*/*; do test -r "$file" || exit 1; done'


def installed_vllm() -> ModelServer | str:
    """vLLM as set-up installed it, or a sentence that says why it is missing."""
    try:
        installed = ModelServer.find()
    except PinError as error:
        return f"{error} {delivered.repair_advice()}"
    return installed.problem() or installed


def pinned_version() -> str:
    """The pinned version of vLLM, installed or not; `unknown` without a pin."""
    try:
        return ModelServer.find().version
    except PinError:
        return "unknown"


def usable_by_user(installed: ModelServer, folder: Path, user: User | None) -> LocalVllm:
    """vLLM for that user: in its place, or a copy in `folder`, made once for each version.

    Raises LocalError if the user still cannot run it.
    """
    if _runs(user, installed.python) and tried(user, ["/bin/sh", "-c", _READS, "sh", str(installed.models)]):
        return LocalVllm(installed.python, installed.version, installed.models, cache=installed.cache)
    target = folder / f"{installed.environment.name}-{installed.models.name}"
    server = LocalVllm(
        python=target / _ENVIRONMENT / "bin" / "python",
        version=installed.version,
        models=target / _MODELS,
        libraries=target / _PYTHON / "lib",
        cache=target / _ENVIRONMENT / installed.cache.relative_to(installed.environment),
    )
    try:
        if not target.is_dir():
            half = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
            _copy(installed, half, target, user)
            half.chmod(0o755)
            half.replace(target)
        for other in folder.iterdir():
            if other != target:
                shutil.rmtree(other, ignore_errors=True)
    except OSError as error:
        raise LocalError(f"vLLM cannot be copied to {folder}: {error}.") from error
    if not _runs(user, server.python, server.libraries):
        who = f"the user {user.uid}" if user else "this user"
        raise LocalError(f"{who} cannot run {server.python}, a copy of {installed.python}.")
    return server


def _runs(user: User | None, python: Path, libraries: Path | None = None) -> bool:
    environment = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    return tried(user, ["/bin/sh", "-c", _RUNS, "sh", str(python)], environment)


def _copy(installed: ModelServer, half: Path, target: Path, user: User | None) -> None:
    """Copy the environment, its models, and its base Python if the user cannot run that either."""
    _tree(installed.environment, half / _ENVIRONMENT)
    _tree(installed.models, half / _MODELS)
    program = installed.python.resolve()
    if not _runs(user, program):
        home = program.parent.parent
        _tree(home / "bin", half / _PYTHON / "bin", only=(program.name,))
        _tree(home / "lib", half / _PYTHON / "lib", leave=("site-packages", "test", "tests", "idlelib", "tkinter"))
        program = target / _PYTHON / "bin" / program.name
    settings = half / _ENVIRONMENT / _SETTINGS
    lines = settings.read_text(encoding="utf-8").splitlines()
    # Not through the link: it leads to the cache's own file.
    settings.unlink()
    kept = [line for line in lines if line.partition("=")[0].strip() != "home"]
    settings.write_text("\n".join([f"home = {program.parent}", *kept, ""]), encoding="utf-8")
    settings.chmod(0o644)
    for link in (half / _ENVIRONMENT / "bin").glob("python*"):
        link.unlink()
        link.symlink_to(program)


def _tree(source: Path, target: Path, *, leave: Collection[str] = (), only: Collection[str] = ()) -> None:
    """A copy of a folder with its links, readable for everybody and writable for its owner."""

    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name in leave or (only and name not in only)]

    target.parent.mkdir(mode=0o755, exist_ok=True)
    target.parent.chmod(0o755)
    shutil.copytree(source, target, symlinks=True, ignore=left_out, copy_function=link_or_copy)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)
