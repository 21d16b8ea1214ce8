"""Writes the bill of materials of set-up's tools and packages: CycloneDX 1.6 as JSON, made from the installed files.

A Go binary holds the list of the modules that it was built from; the Python and Node packages are those of the lock
files.
"""

from __future__ import annotations

import json
import mmap
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.core.tool_cache import STAMP, Tool, digest
from neuroscale.tools.running import SetupError

# The marks that Go's linker puts around the list of modules (cmd/go/internal/modload/build.go: infoStart and infoEnd).
_START = bytes.fromhex("3077af0c9274080241e1c107e6d618e6")
_END = bytes.fromhex("f932433186182072008242104116d8f2")
_LOCKED = re.compile(
    r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^\s;\\]+)(?P<hashes>(?:.*\\\n\s+--hash=\S+)*)", re.MULTILINE
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

MODULE_COPY = "./module"
"""The folder of a copy of a tool's module, as the tool's binary names it."""

Component = dict[str, Any]


@dataclass(frozen=True)
class BillOfMaterials:
    """The bill in `file`, which lists these tools, and the packages in these lock files of pip and of npm."""

    file: Path
    tools: Sequence[Tool]
    locks: Sequence[Path]
    node_lock: Path

    def done(self) -> bool:
        """Whether the file exists and lists the tools and packages that are installed now."""
        try:
            metadata = json.loads(self.file.read_text(encoding="utf-8"))["metadata"]
            return bool(metadata["properties"] == [self._made_of()])
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def write(self) -> None:
        """Write the file anew. All tools must be built. Raises SetupError if a binary does not list its modules."""
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": {"type": "application", "name": "neuroscale"},
                "properties": [self._made_of()],
            },
            "components": [
                *(_tool(tool) for tool in self.tools),
                *_packages(self.locks),
                *_node_packages(self.node_lock),
            ],
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        half = self.file.with_name(f".{self.file.name}.new")
        half.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
        half.replace(self.file)

    def _made_of(self) -> Mapping[str, str]:
        files = [*(tool.folder / STAMP for tool in self.tools), *self.locks, self.node_lock]
        return {"name": "neuroscale:made-of", "value": digest(*(file.read_text(encoding="utf-8") for file in files))}


def modules_of(binary: Path) -> list[tuple[str, str, str]]:
    """Path, version and `h1:` sum of each module in a Go binary; for a replaced module those of its replacement, unless
    that is a copy of it.

    Raises SetupError if the binary holds no such list.
    """
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # The linker's own code holds the first mark as well, without a list behind it.
        start = content.find(_START)
        while start >= 0 and content[start + len(_START) : start + len(_START) + 5] != b"path\t":
            start = content.find(_START, start + 1)
        end = content.find(_END, start)
        if start < 0 or end < 0:
            raise SetupError(f"{binary} does not say which modules it is built from.")
        text = content[start + len(_START) : end].decode()
    found: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        kind, _, rest = line.partition("\t")
        fields = [*rest.split("\t"), "", ""]
        if kind == "=>" and fields[0] == MODULE_COPY:
            continue
        if kind == "=>" and found:
            found.pop()
        if kind in ("dep", "=>"):
            found.append((fields[0], fields[1], fields[2]))
    return found


def _tool(tool: Tool) -> Component:
    stamp: Mapping[str, Any] = json.loads((tool.folder / STAMP).read_text(encoding="utf-8"))
    main = tool.module
    return {
        "type": "application",
        "bom-ref": f"{tool.name}@{main.version}",
        "name": tool.name,
        "version": main.version,
        "purl": f"pkg:golang/{main.path}@{main.version}",
        "hashes": [{"alg": "SHA-256", "content": stamp["sha256"]}],
        "properties": [{"name": "neuroscale:compiler", "value": stamp["go"]}],
        "components": [_module(tool, *module) for module in modules_of(tool.binary)],
    }


def _module(tool: Tool, path: str, version: str, checksum: str) -> Component:
    return {
        "type": "library",
        "bom-ref": f"{tool.name}/{path}@{version}",
        "name": path,
        "version": version,
        "purl": f"pkg:golang/{path}@{version}",
        **({"properties": [{"name": "neuroscale:go.sum", "value": checksum}]} if checksum else {}),
    }


def _packages(locks: Iterable[Path]) -> Iterator[Component]:
    seen: set[str] = set()
    for lock in locks:
        for match in _LOCKED.finditer(lock.read_text(encoding="utf-8")):
            name, version = match["name"].lower(), match["version"]
            purl = f"pkg:pypi/{name}@{version}"
            if purl in seen:
                continue
            seen.add(purl)
            # One of the hashes is that of the file that this machine installs; which one differs between machines.
            files = [{"name": "neuroscale:file-sha256", "value": one} for one in _HASH.findall(match["hashes"])]
            yield {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "properties": files,
            }


def _node_packages(lock: Path) -> Iterator[Component]:
    """The packages of a package-lock.json (version 3): a package may stand in several folders, and counts once."""
    seen: set[str] = set()
    for folder, entry in json.loads(lock.read_text(encoding="utf-8"))["packages"].items():
        if not folder:  # that of the lock file itself
            continue
        name = entry.get("name", folder.rpartition("node_modules/")[2])  # an alias has a folder of another name
        purl = f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}"
        if purl in seen:
            continue
        seen.add(purl)
        algorithm, _, checksum = entry["integrity"].partition("-")
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": entry["version"],
            "purl": purl,
            "hashes": [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": b64decode(checksum).hex()}],
        }
