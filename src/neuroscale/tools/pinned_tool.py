"""Fetches another version of this tool by its digest: its delivered files, or an environment that runs it.

Packages come from where uv finds them (UV_INDEX_URL, UV_FIND_LINKS), and from the wheels that the tool cache keeps.
Whatever a source sends, a package with another digest is not installed.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.core.tool_cache import PACKAGES_STAMP, cache_folder, digest, is_installed, python_version, wheels
from neuroscale.repo.layout import REQUIREMENTS
from neuroscale.repo.tool_pin import requirement
from neuroscale.tools.locks import locked
from neuroscale.tools.machine import write_stamp
from neuroscale.tools.packages import WheelPackages, environment, make_environment, unpack
from neuroscale.tools.running import SetupError


@dataclass(frozen=True)
class _Cache:
    folder: Path

    @property
    def tools(self) -> Path:
        return self.folder / "neuroscale"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


def package_of(version: str, sha256: str) -> Path:
    """The folder of the package `neuroscale` out of the wheel with that version and digest; nothing of it runs.

    Raises InputError if no source has a wheel of that digest.
    """
    cache = _Cache(cache_folder())
    folder = cache.tools / f"{version}-{sha256[:24]}"
    with _fetching(cache, folder.name, f"Fetching neuroscale {version}") as lines:
        if not (folder / "neuroscale").is_dir():
            lines.write_text(f"{requirement(version, sha256)}\n", encoding="utf-8")
            uv = _uv(cache)
            unpack(uv, Path(sys.executable), lines, folder, cache.logs / f"{folder.name}.log", _sources(cache))
    return folder / "neuroscale"


def environment_of(requirements: str) -> Path:
    """The interpreter of an environment that holds exactly these packages. `requirements`: each with its digests.

    Raises InputError if no source has a package of its digest.
    """
    cache = _Cache(cache_folder())
    folder = cache.tools / f"environment-{digest(python_version(), requirements)}"
    with _fetching(cache, folder.name, "Installing the pinned tool") as lines:
        if not is_installed(folder):
            lines.write_text(requirements, encoding="utf-8")
            log = cache.logs / f"{folder.name}.log"
            title = "Installing the pinned tool"
            make_environment(_uv(cache), Path(sys.executable), lines, folder, title, log, _sources(cache))
            write_stamp(folder / PACKAGES_STAMP, folder.name)
    return folder / "bin" / "python"


@contextlib.contextmanager
def _fetching(cache: _Cache, name: str, doing: str) -> Iterator[Path]:
    """A file for requirements, while nobody else fetches the same. Its progress goes to standard error."""
    lock = cache.folder / "locks" / f"{name}.lock"
    with contextlib.redirect_stdout(sys.stderr), locked(lock, doing), tempfile.TemporaryDirectory() as scratch:
        try:
            yield Path(scratch) / "requirements.txt"
        except SetupError as error:
            fix = "Set UV_INDEX_URL or UV_FIND_LINKS to a place that has the wheel, and run this again."
            raise InputError.at(REQUIREMENTS, "neuroscale", str(error), fix) from error


def _uv(cache: _Cache) -> Path:
    packages = WheelPackages(delivered.FOLDER, cache.logs, cache.folder)
    if not packages.uv.exists():
        packages.fetch_uv()
    return packages.uv


def _sources(cache: _Cache) -> dict[str, str]:
    """The variables for uv: those of the user, and the folder of wheels that the tool cache keeps."""
    variables = environment()
    kept = wheels(cache.folder)
    if kept.is_dir():
        variables["UV_FIND_LINKS"] = ",".join(filter(None, (variables.get("UV_FIND_LINKS"), str(kept))))
    return variables
