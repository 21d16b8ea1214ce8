"""An organisation's pin of the tool: its version, digest and publisher, and the packages that its workflows install.

A publisher is an Ed25519 key. It signs the version and the digest of each wheel that it releases, so that a gate which
knows the key can tell the publisher's next release from anything else.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from packaging.version import Version
from pydantic import Field, field_validator, model_validator

from neuroscale import __version__
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import from_document, parse, wrong
from neuroscale.core.yaml_io import read_mapping
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import Snapshot, read_text

_PIN = """\
# The tool that judges, renders and tests here. Its workflows install it from {requirements}, by these digests.
# `sha256` is the digest of its wheel. Whoever changes this file chooses the judge: only an owner may merge it.
tool:
  version: "{version}"
  sha256: "{sha256}"
"""
_PUBLISHED = """\
  # The key that signs each release, and its signature of this version and digest. The gate accepts another version only
  # if this key signed it.
  publisher: "{publisher}"
  signature: "{signature}"
"""
_RELEASES = """\
  # The publisher's list of releases, which `neuroscale repository status` and `upgrade` read.
  releases: "{releases}"
"""
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)[^\\]*(?P<hashes>(\\\n\s+--hash=sha256:[0-9a-f]{64}\s*)+)"
)
_KEY = "ed25519:"
RELEASES = "releases.json"
"""The file of a publisher's list of releases, beside the wheel of the newest one."""

Release = Annotated[str, Field(pattern=r"^[0-9]{1,5}\.[0-9]{1,5}\.[0-9]{1,5}((a|b|rc)[0-9]{1,5})?(\.dev[0-9]{1,5})?$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ToolPin(Frozen):
    """The pinned tool. `sha256`: of its wheel, in hexadecimal. `publisher`: `ed25519:` and the public key's 32 bytes in
    base64; `signature`: its 64 bytes in base64, of `statement`. `releases`: the address of the publisher's list.

    A pin without a publisher is one of a wheel that somebody built: nothing can say which wheel follows it.
    """

    version: Release
    sha256: Digest
    publisher: str | None = None
    signature: str | None = None
    releases: Annotated[str, Field(pattern=r"^(https?://[^\s@\"\\]+|/[^\s\"\\]+)$")] | None = None

    @field_validator("publisher")
    @classmethod
    def _is_key(cls, publisher: str | None) -> str | None:
        if publisher is not None and _public_key(publisher) is None:
            raise wrong("is not a key", "Write ed25519: and the 32 bytes of the public key in base64.")
        return publisher

    @model_validator(mode="after")
    def _has_both(self) -> ToolPin:
        if (self.publisher is None) != (self.signature is None):
            raise wrong("has only one of publisher and signature", "Write both, or neither.")
        return self

    @property
    def release(self) -> Version:
        return Version(self.version)

    @property
    def is_signed(self) -> bool:
        """Whether its own publisher signed this version and digest."""
        return self.publisher is not None and is_signed_by(self.publisher, self.version, self.sha256, self.signature)


class _PinFile(Frozen):
    tool: ToolPin


class ListedRelease(Frozen):
    """A release in its publisher's list. `changes`: the part of the changelog that tells of it, in Markdown."""

    version: Release
    sha256: Digest
    signature: str
    changes: str = ""

    @property
    def release(self) -> Version:
        return Version(self.version)


class ReleaseList(Frozen):
    """A publisher's releases, as RELEASES holds them."""

    schema_version: Literal[1]
    publisher: str
    releases: tuple[ListedRelease, ...]


def read_releases(text: str, where: str) -> ReleaseList:
    """The list in a file, the oldest release first. Raises InputError with every problem, a false signature too."""
    listed = parse(ReleaseList, text, where)
    problems = [
        Problem(where, f"releases.{entry.version}", "is not signed by the list's publisher", "Fetch the list anew.")
        for entry in listed.releases
        if not is_signed_by(listed.publisher, entry.version, entry.sha256, entry.signature)
    ]
    if problems:
        raise InputError(problems)
    return listed.model_copy(update={"releases": tuple(sorted(listed.releases, key=lambda entry: entry.release))})


def recorded_digest() -> str:
    """The SHA-256 of this tool's wheel as the installation recorded it, in hexadecimal; "" if it recorded none."""
    archive = _recorded().get("archive_info") or {}
    digest: str = (archive.get("hashes") or {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    return digest


def recorded_wheel() -> Path | None:
    """The place of this tool's wheel as the installation recorded it; None if that was no file of this machine."""
    url = urlsplit(_recorded().get("url", ""))
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _recorded() -> dict[str, Any]:
    try:
        recorded: dict[str, Any] = json.loads(metadata.distribution("neuroscale").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return {}
    return recorded


def is_running(pin: ToolPin) -> bool:
    """Whether this tool is the pinned one: its version, and the digest where the installation recorded one."""
    return pin.version == __version__ and recorded_digest() in ("", pin.sha256)


def other_tool(snapshot: Snapshot) -> str:
    """The sentence which says that this tool is not the one that a repository pins; "" where it is, or nothing is
    pinned, or the pin cannot be read."""
    try:
        pin = read_pin(snapshot)
    except InputError:
        return ""
    if pin is None or is_running(pin):
        return ""
    which = "of this version with another digest" if pin.version == __version__ else pin.version
    command = f"pip install --no-deps --require-hashes --requirement {REQUIREMENTS}"
    return f"This is neuroscale {__version__}, and {PIN} pins {which}. To install that one: `{command}`"


def statement(version: str, sha256: str) -> bytes:
    """What a publisher signs of a release."""
    return f"neuroscale {version} sha256:{sha256}\n".encode()


def is_signed_by(publisher: str, version: str, sha256: str, signature: str | None) -> bool:
    """Whether a publisher's key signed that version with that digest."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key, signed = _public_key(publisher), _decoded(signature or "")
    if key is None or signed is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signed, statement(version, sha256))
    except (InvalidSignature, ValueError):
        return False
    return True


def publisher_name(public_key: bytes) -> str:
    """The publisher of a pin, for the 32 bytes of a public key."""
    return f"{_KEY}{base64.b64encode(public_key).decode()}"


def read_pin(snapshot: Snapshot) -> ToolPin | None:
    """The pin of a repository; None where it has none, because it holds the tool itself. Raises InputError."""
    if snapshot.read(PIN) is None:
        return None
    return from_document(_PinFile, read_mapping(read_text(snapshot, PIN), PIN), PIN).tool


def pin_text(pin: ToolPin) -> str:
    """The content of the pin's file."""
    values: dict[str, Any] = pin.model_dump()
    parts = [_PIN, *([_PUBLISHED] if pin.publisher else []), *([_RELEASES] if pin.releases else [])]
    return "".join(parts).format(requirements=REQUIREMENTS, **values)


def pin_files(pin: ToolPin, locked: str) -> dict[str, str]:
    """The pin and the requirements, by path. `locked`: the version's `locked_requirements`."""
    own = f"{requirement(pin.version, pin.sha256)}\n"
    return {PIN: pin_text(pin), REQUIREMENTS: f"{locked.rstrip()}\n{own}"}


def locked_requirements(delivered: Snapshot) -> str:
    """The tool's own requirements, each with its digests, in the files that a version delivers. Raises InputError."""
    return read_text(delivered, "requirements/runtime.txt")


def requirement(version: str, sha256: str) -> str:
    """The line of a requirements file that installs the tool by its digest alone."""
    return f"neuroscale=={version} \\\n    --hash=sha256:{sha256}"


def pin_problems(snapshot: Snapshot) -> list[Problem]:
    """Why the requirements are not those of the pin, or would install a package without its digest.

    A repository with neither file holds the tool itself: it has no problem.
    """
    if snapshot.read(PIN) is None and snapshot.read(REQUIREMENTS) is None:
        return []
    try:
        pin = read_pin(snapshot)
        if pin is None:
            return [Problem(PIN, "", "is missing", f"Restore it, or remove {REQUIREMENTS}.")]
        text = read_text(snapshot, REQUIREMENTS)
    except InputError as error:
        return list(error.problems)
    problems = []
    if pin.publisher is not None and not pin.is_signed:
        message = "is not the publisher's signature of this version and digest"
        problems.append(Problem(PIN, "tool.signature", message, "Copy it from the publisher's list of releases."))
    return [*problems, *_requirement_problems(pin, text)]


def _requirement_problems(pin: ToolPin, text: str) -> Iterable[Problem]:
    lines = "\n".join(line for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    packages = list(_REQUIREMENT.finditer(lines))
    if rest := _REQUIREMENT.sub("", lines).strip():
        message = f"holds more than packages with a version and digests: {rest.splitlines()[0][:80]!a}"
        return [Problem(REQUIREMENTS, "", message, "Remove it: only what a digest names may be installed.")]
    own = [match for match in packages if match["name"].lower().replace("_", "-") == "neuroscale"]
    digests = [re.findall(r"sha256:([0-9a-f]{64})", match["hashes"]) for match in own]
    if [match["version"] for match in own] != [pin.version] or digests != [[pin.sha256]]:
        message = f"does not install exactly the tool that {PIN} names"
        fix = f"Write neuroscale=={pin.version} with that digest alone."
        return [Problem(REQUIREMENTS, "neuroscale", message, fix)]
    return []


def _public_key(publisher: str) -> bytes | None:
    key = _decoded(publisher.removeprefix(_KEY)) if publisher.startswith(_KEY) else None
    return key if key is not None and len(key) == 32 else None


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
