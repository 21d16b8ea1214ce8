"""Writes a publisher's list of releases, `releases.json`: it adds a wheel, signed by the publisher's key.

The key comes from a file (`--key FILE`) or from the variable NEUROSCALE_PUBLISHER_KEY, never from the command line.
`--new-key FILE` makes one. It needs Python and the package `cryptography` alone, so that the job of a release that
holds the key runs nothing else.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VARIABLE = "NEUROSCALE_PUBLISHER_KEY"


def main(arguments: list[str]) -> int:
    """Make a key, or write the list; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--new-key", type=Path, metavar="FILE", help="make a key in this new file, and print its publisher"
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help=f"the file of the key; default: ${VARIABLE}")
    parser.add_argument("--wheel", type=Path, help="the wheel to add")
    parser.add_argument("--changelog", type=Path, help="the changelog, whose part on the version the list shows")
    parser.add_argument("--former", type=Path, metavar="FILE", help="the list of the releases before; may be missing")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the file to write")
    given = parser.parse_args(arguments)
    try:
        if given.new_key is not None:
            print(_publisher(_new_key(given.new_key)))
            return 0
        if given.wheel is None or given.output is None:
            parser.error("--wheel and --output are needed")
        listed = add(_key(given.key), given.wheel, given.changelog, given.former)
        given.output.write_text(f"{json.dumps(listed, indent=2, ensure_ascii=False)}\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"release_list: {error}", file=sys.stderr)
        return 2
    return 0


def add(key: Ed25519PrivateKey, wheel: Path, changelog: Path | None, former: Path | None) -> dict[str, Any]:
    """The list with a wheel in it. Raises ValueError if the former list is another publisher's, or has this version
    with another digest: a version is released once."""
    match = re.fullmatch(r"neuroscale-([0-9][^-]*)-[^-]+-[^-]+-[^-]+\.whl", wheel.name)
    if match is None:
        raise ValueError(f"{wheel.name} is not a wheel of neuroscale")
    version, digest = match[1], hashlib.sha256(wheel.read_bytes()).hexdigest()
    listed: dict[str, Any] = {"schema_version": 1, "publisher": _publisher(key), "releases": []}
    if former is not None and former.exists():
        before = json.loads(former.read_text(encoding="utf-8"))
        if before.get("publisher") != listed["publisher"]:
            raise ValueError(f"{former} is the list of another publisher: sign with that one's key")
        listed["releases"] = before["releases"]
    known = {entry["version"]: entry for entry in listed["releases"]}
    if known.get(version, {}).get("sha256", digest) != digest:
        raise ValueError(f"{version} was released with another digest: give the wheel another version")
    signature = base64.b64encode(key.sign(f"neuroscale {version} sha256:{digest}\n".encode())).decode()
    changes = "" if changelog is None else _changes(changelog.read_text(encoding="utf-8"), version)
    known[version] = {"version": version, "sha256": digest, "signature": signature, "changes": changes}
    listed["releases"] = list(known.values())
    return listed


def _changes(changelog: str, version: str) -> str:
    """The part of a changelog below the heading of a version."""
    part = re.search(rf"^## {re.escape(version)}\b.*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    return part[1].strip() if part else ""


def _publisher(key: Ed25519PrivateKey) -> str:
    return f"ed25519:{base64.b64encode(key.public_key().public_bytes_raw()).decode()}"


def _new_key(path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w", encoding="ascii") as file:
        file.write(f"{base64.b64encode(key.private_bytes_raw()).decode()}\n")
    return key


def _key(path: Path | None) -> Ed25519PrivateKey:
    text = path.read_text(encoding="ascii") if path is not None else os.environ.get(VARIABLE, "")
    try:
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError) as error:
        where = path or f"${VARIABLE}"
        raise ValueError(f"{where} holds no key: --new-key FILE makes one") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
