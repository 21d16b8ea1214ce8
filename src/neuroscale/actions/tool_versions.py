"""Finds versions of the tool for a repository: the publisher's list, the release to take, its files, its program."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from neuroscale import __version__
from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.core.files import read_bounded
from neuroscale.core.units import MIB
from neuroscale.core.yaml_io import decode
from neuroscale.rendering.repository_upgrade import ToolVersion
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot
from neuroscale.repo.tool_pin import ListedRelease, ReleaseList, ToolPin, pin_files, read_pin, read_releases
from neuroscale.tools.pinned_tool import environment_of, package_of

_LARGEST_LIST = 4 * MIB
_SECONDS = 20.0
_RUNS = "NEUROSCALE_RUNS_VERSION"
"""Set for a version of the tool that another one started, so that it starts no further one."""


@dataclass(frozen=True)
class Target:
    """The repository's pin, the pin that it gets, and the releases in between, the newest first."""

    pin: ToolPin
    wanted: ToolPin
    newer: tuple[ListedRelease, ...]

    @property
    def is_running(self) -> bool:
        """Whether this program is the wanted version."""
        return self.wanted.version == __version__


def pin_of(repository: Snapshot) -> ToolPin:
    """The pin of an organisation's own repository. Raises InputError where it has none."""
    pin = read_pin(repository)
    if pin is None:
        message = "is missing: this repository holds the tool's own code"
        raise InputError.at(PIN, "", message, "Make it one that only pins the tool: neuroscale repository adopt.")
    return pin


def releases_of(pin: ToolPin, address: str | None) -> ReleaseList:
    """The list of the pin's publisher, from an address or a file (None: the address in the pin).

    Raises InputError if there is none, if it cannot be read, or if another publisher signed it.
    """
    if pin.publisher is None:
        fix = "Write the publisher's key and its signature of this version there, in a change of their own."
        raise InputError.at(PIN, "tool.publisher", "is missing, so nobody can say which version follows this one", fix)
    where = address or pin.releases
    if where is None:
        fix = "Name the publisher's list with --releases, or write its address there."
        raise InputError.at(PIN, "tool.releases", "is missing", fix)
    listed = read_releases(list_text(where), where)
    if listed.publisher != pin.publisher:
        fix = "Take the list of that publisher. Another publisher is a change of its own."
        raise InputError.at(where, "publisher", f"is not {pin.publisher}, whose key {PIN} names", fix)
    return listed


def find_target(pin: ToolPin, listed: ReleaseList, version: str | None) -> Target:
    """The named version, or the newest one. Raises InputError for one that is older, unknown or another of its name."""
    known = {entry.version: entry for entry in listed.releases}
    if version is not None and version not in known:
        fix = f"Name one of {', '.join([*known][-5:]) or 'none'}."
        raise InputError.at("the command line", "--to", f"{version!a} is not in the publisher's list", fix)
    if not known:
        raise InputError.at("the list of releases", "", "is empty", "Fetch the list anew.")
    release = known[version] if version is not None else listed.releases[-1]
    if release.release < pin.release:
        message = f"is older than {pin.version}, which {PIN} names"
        raise InputError.at(f"release {release.version}", "", message, "Name a newer one, or fetch the list anew.")
    if release.release == pin.release and release.sha256 != pin.sha256:
        message = f"has another digest than {PIN} names for this version"
        raise InputError.at(f"release {release.version}", "", message, "Ask the publisher: one of the two is forged.")
    changed = {"version": release.version, "sha256": release.sha256, "signature": release.signature}
    newer = (entry for entry in listed.releases if pin.release < entry.release <= release.release)
    return Target(pin, pin.model_copy(update=changed), tuple(newer)[::-1])


def tool_version(version: str, sha256: str) -> ToolVersion:
    """A version's files. Nothing is fetched for that of an installed wheel which runs now. Raises InputError."""
    if version == __version__ and delivered.CHECKOUT is None:
        return ToolVersion(version, FolderSnapshot(delivered.FOLDER), FolderSnapshot(delivered.START))
    package = package_of(version, sha256)
    return ToolVersion(version, FolderSnapshot(package / "delivered"), FolderSnapshot(package / "repo" / "start"))


def run_version(pin: ToolPin, words: list[str], folder: Path, *, judges: bool) -> int:
    """Run the wanted version's own command with these words in a folder; returns its exit status.

    It is installed by its digest; where it `judges`, so are the upstream tools that it pins. Raises InputError if one
    cannot be, or if this program was started in this way.
    """
    if started := os.environ.get(_RUNS):
        message = f"is {__version__}, and was started as {started}"
        raise InputError.at("this program", "", message, "Install the tool anew, and run the command again.")
    python = environment_of(pin_files(pin, tool_version(pin.version, pin.sha256).locked)[REQUIREMENTS])
    # A path of modules that the caller's shell names would come before the installed ones.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables = {**kept, _RUNS: pin.version}
    program = [str(python), "-P", "-m", "neuroscale"]
    sys.stdout.flush()
    if judges:
        install = [*program, "tools", "install", "--for", "gate"]
        done = subprocess.run(install, cwd=folder, env=variables, check=False)
        if done.returncode != 0:
            message = f"has upstream tools that cannot be installed (exit status {done.returncode})"
            raise InputError.at(f"neuroscale {pin.version}", "", message, "See above, and run the command again.")
    return subprocess.run([*program, *words], cwd=folder, env=variables, check=False).returncode


def list_text(address: str) -> str:
    """The text of a list of releases, from a file or over HTTP. Raises InputError."""
    if not address.startswith(("http://", "https://")):
        return decode(read_bounded(Path(address), _LARGEST_LIST, "Name the publisher's list of releases."), address)
    data = b""
    try:
        with httpx.stream("GET", address, timeout=_SECONDS, follow_redirects=True) as answer:
            answer.raise_for_status()
            for part in answer.iter_bytes():
                data += part
                if len(data) > _LARGEST_LIST:
                    message = f"has more than {_LARGEST_LIST:,} bytes"
                    raise InputError.at(address, "", message, "Name the publisher's list of releases.")
    except httpx.HTTPError as error:
        fix = "Try again, or download the list and name the file with --releases."
        raise InputError.at(address, "", f"cannot be read: {error}", fix) from error
    return decode(data, address)
