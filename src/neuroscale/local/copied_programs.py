"""Copies the programs that set-up built to a place where the processes' users can read but not change them.

The tool cache may lie where nobody else may go, such as below the home of root. Copies are hard links where that is
possible: they take no space.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import cast

from neuroscale.core import delivered, tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.tool_cache import ToolName, find_tool
from neuroscale.local.state import State


def copy_cache(target: Path) -> None:
    """Copy the gate's tools below `target`, in the layout of the tool cache; remove older versions. Also uv and this
    tool's own wheels, where they were kept.

    Raises UntrustedError if set-up has not built the tools.
    """
    source = tool_cache.cache_folder()
    schemas = tool_cache.schema_pins().folder
    if not schemas.is_dir():
        raise UntrustedError(f"The JSON schemas are missing. Run `{delivered.install_command('gate')}`.")
    tools = [find_tool(cast("ToolName", name)).folder for name in tool_cache.GATE_TOOLS]
    uv = tool_cache.kept_uv(source)
    wheels = tool_cache.wheels(source)
    for folder in (*tools, schemas, *([uv.parent] if uv.exists() else []), *([wheels] if wheels.is_dir() else [])):
        copy_folder(folder, target, folder.relative_to(source))
    for wheel in wheels.glob("*.whl"):  # another build of the same version has the same name
        copy = target / wheel.relative_to(source)
        if not (copy.exists() and copy.samefile(wheel)):
            new = copy.with_name(".new")
            new.unlink(missing_ok=True)
            link_or_copy(str(wheel), str(new))
            new.replace(copy)


def copy_tool(state: State, name: ToolName) -> None:
    """Copy a tool to where the platform's users can run it. Raises UntrustedError if set-up has not built it."""
    copy_folder(find_tool(name).folder, _programs(state), _place(name))


def copied(state: State, name: ToolName) -> Path:
    """The binary that `copy_tool` copied."""
    return _programs(state) / _place(name) / name


def copied_files(state: State, name: ToolName) -> Path:
    """The folder of the files that the tool reads at run time, beside its binary."""
    return _programs(state) / _place(name) / tool_cache.FILES


def _programs(state: State) -> Path:
    return state.run / "programs"


def _place(name: ToolName) -> Path:
    folder = find_tool(name).folder
    return Path(folder.parent.name, folder.name)


def copy_folder(source: Path, base: Path, place: Path) -> None:
    """Copy a folder to `base/place`, whole or not at all; its name identifies its content. Its siblings are removed.

    Everybody may read `base` and what is below it.
    """
    target = base / place
    target.parent.mkdir(parents=True, exist_ok=True)
    for parent in (base, *(base / part for part in place.parents)):
        parent.chmod(0o755)
    if not target.is_dir():
        half = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
        shutil.copytree(source, half, copy_function=link_or_copy, dirs_exist_ok=True)
        for path in (half, *half.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        half.replace(target)
    for other in target.parent.iterdir():
        if other != target:
            shutil.rmtree(other)


def link_or_copy(source: str, target: str) -> None:
    """Link a file that everybody may read and only its owner may write; copy any other file, with these rights.

    Copies keep the source's time, by which Python checks that its compiled modules are up to date.
    """
    known = os.stat(source)  # noqa: PTH116
    wanted = 0o755 if known.st_mode & 0o100 else 0o644
    if known.st_mode & 0o777 == wanted and known.st_uid == os.geteuid():
        with contextlib.suppress(OSError):  # another file system
            os.link(source, target)
            return
    shutil.copy2(source, target)
    Path(target).chmod(wanted)
