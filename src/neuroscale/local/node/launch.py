"""Plans the process for a container: the one place that decides how a pod of vLLM becomes a process of this machine.

Pure: the same pod, values and machine give the same process.

Decides which images this machine can stand in for: those of vLLM for the CPU, at the installed version.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroscale.kube.client import Object
from neuroscale.local.node.events import name_of
from neuroscale.local.node.read_only_root import TEMPORARY
from neuroscale.local.node.variables import Place, Sources, amount, expand_all, resolve
from neuroscale.local.node.waiting import CONFIGURATION, CREATION, PULL_FAILED, WaitingError

REPOSITORY = "vllm-openai-cpu"
"""The last part of the name of upstream's images for the CPU, in any registry."""

# Source: the grammar of github.com/distribution/reference; the length is Kubernetes' own limit of a name.
_DOMAIN = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?(?::[0-9]+)?/)?"
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?P<name>{_DOMAIN}{_PATH}(?:/{_PATH})*)(?::(?P<tag>[\w][\w.-]{{0,127}}))?(?:@(?P<digest>[a-z0-9+._-]+:[0-9a-f]{{32,}}))?",
    re.ASCII,
)
_LONGEST = 255


@dataclass(frozen=True)
class Image:
    """The parts of an image's name; `tag` and `digest` are empty if it has none."""

    name: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Image:
        """Raises WaitingError (InvalidImageName) if the text is not the name of an image."""
        match = _IMAGE.fullmatch(text)
        if match is None or len(match["name"]) > _LONGEST:
            told = f'Failed to apply default image tag "{text}": couldn\'t parse image name: invalid reference format'
            raise WaitingError("InvalidImageName", told)
        return cls(match["name"], match["tag"] or "", match["digest"] or "")


def check_image(text: str, version: str) -> None:
    """Raises WaitingError if the image would run something else than vLLM `version` for the CPU."""
    image = Image.parse(text)
    last = image.name.rsplit("/", 1)[-1]
    if last != REPOSITORY:
        told = f"this machine pulls no images: it runs vLLM {version} for the CPU, which stands in for .../{REPOSITORY}"
        raise WaitingError(PULL_FAILED, f'Failed to pull image "{text}": {told}:v{version}')
    if image.tag.removeprefix("v") != version:
        said = f"is of version {image.tag}" if image.tag else "does not say its version in a tag"
        told = f"it {said}, and vLLM {version} is installed on this machine, which pulls no images"
        raise WaitingError(PULL_FAILED, f'Failed to pull image "{text}": {told}')


MODULE = "vllm.entrypoints.openai.api_server"
"""The module that `vllm serve` runs; the CPU build's own command looks for a package of another name."""
MODELS = "/mnt/models"
"""The container's folder of models; here it leads to those that set-up makes."""

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the machine's own, which every process has already
_PYTHON = re.compile(r"python[0-9.]*")


@dataclass(frozen=True)
class LocalVllm:
    """vLLM on this machine: its Python, its version, its models, and why it cannot be used (or None).

    `libraries`: the folder of Python's own shared libraries, None if the system finds them. `cache`: the first content
    of a pod's `VLLM_CACHE_ROOT`.
    """

    python: Path
    version: str
    models: Path
    problem: str | None = None
    libraries: Path | None = None
    cache: Path | None = None


@dataclass(frozen=True)
class ReadOnlyRoot:
    """A view of this machine's files for one process, which may write to its volumes alone.

    `temporary`: its folder at /tmp (None: nothing is mounted there). `writable`: the folders of its volumes. `needed`:
    folders that it reads, wherever they lie.
    """

    temporary: Path | None
    writable: tuple[Path, ...]
    needed: tuple[Path, ...]


@dataclass(frozen=True)
class Launch:
    """A process. `volumes`: the empty folders of its pod that it needs; `memory`: bytes that it may use, or None.

    `read_only_root`: None for a process that may write wherever its user may.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    volumes: tuple[str, ...]
    memory: int | None
    read_only_root: ReadOnlyRoot | None = None


def plan_process(
    pod: Object,
    container: Object,
    sources: Sources,
    server: LocalVllm,
    place: Place,
    root: Path,
    *,
    read_only_roots: bool = False,
) -> Launch:
    """The process to start. `root`: the pod's folder on this machine; `volume` and `scratch` name the folders below it.

    `read_only_roots`: this machine can give a process a read-only root file system. Raises WaitingError.
    """
    check_image(container["image"], server.version)
    if server.problem:
        raise WaitingError(PULL_FAILED, f'Failed to pull image "{container["image"]}": {server.problem}')
    _check_user(pod, container)
    mounts = _mounts(pod, container, server, root)
    read_only_root = None
    if read_only_roots and asks_for_read_only_root(container):
        read_only_root = _read_only_root(container, mounts, server, root)
        mounts = [pair for pair in mounts if pair[0] != TEMPORARY]
    variables = resolve(pod, container, sources, place)
    arguments = expand_all(_arguments(container), variables)
    own = scratch(root, container["name"])
    working = translate(container.get("workingDir") or "", mounts)
    environment = {
        **_usual(pod, own, server, place),
        # Else it shares the machine's /tmp. The full path of its working folder would be too long for sockets.
        **({} if read_only_root else {"TMPDIR": str(own), "VLLM_RPC_BASE_PATH": "."}),
        **{name: translate(value, mounts) for name, value in variables.items()},
    }
    memory = amount(container, "limits", "memory")
    return Launch(
        argv=(str(server.python), "-m", MODULE, *_at(_translated(arguments, mounts), place.address)),
        environment=environment,
        folder=Path(working) if working.startswith(str(root)) else own,
        volumes=tuple(sorted(_empty_folders(pod, container))),
        memory=None if memory is None else math.ceil(memory),
        read_only_root=read_only_root,
    )


def asks_for_read_only_root(container: Object) -> bool:
    """Whether the container must not write to its image's files."""
    return (container.get("securityContext") or {}).get("readOnlyRootFilesystem") is True


def volume(root: Path, name: str) -> Path:
    """The path of an empty folder (`emptyDir`) of a pod."""
    return root / "volumes" / name


def scratch(root: Path, container: str) -> Path:
    """The folder for a container's files outside of its volumes."""
    return root / "scratch" / container


def translate(text: str, mounts: Sequence[tuple[str, Path]]) -> str:
    """A path of a container as a path of this machine; a path below no mount stays as it is.

    `mounts`: paths of the container with their paths on this machine, the longest first.
    """
    for inside, outside in mounts:
        if text == inside or text.startswith(f"{inside}/"):
            return f"{outside}{text.removeprefix(inside)}"
    return text


def _translated(arguments: Sequence[str], mounts: Sequence[tuple[str, Path]]) -> list[str]:
    """`--name=PATH` and `PATH` alike."""
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and equals:
            found.append(f"{name}={translate(value, mounts)}")
        else:
            found.append(translate(argument, mounts))
    return found


def _at(arguments: Sequence[str], address: str) -> list[str]:
    """The arguments with the pod's own address to listen on: on all addresses, other machines could ask the server."""
    found: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--host":
            skip = True
        elif not argument.startswith("--host="):
            found.append(argument)
    return [*found, f"--host={address}"]


def _arguments(container: Object) -> list[str]:
    """The container's arguments for vLLM's server. Raises WaitingError if the container runs something else."""
    command, arguments = list(container.get("command") or ()), list(container.get("args") or ())
    given = [*command, *arguments]
    if command:
        program = posixpath.basename(given[0])
        if program == "vllm" and given[1:2] == ["serve"]:
            given = given[2:]
        elif _PYTHON.fullmatch(program) and given[1:3] == ["-m", MODULE]:
            given = given[3:]
        else:
            told = f"this node runs only `vllm serve`, and not `{' '.join(given[:2])}`"
            raise WaitingError(CREATION, told)
    # `vllm serve MODEL` is `--model=MODEL` of the module.
    if given and not given[0].startswith("-"):
        given[0] = f"--model={given[0]}"
    return given


def _check_user(pod: Object, container: Object) -> None:
    """Checks the user as a kubelet does: vLLM's images run as root by default."""
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    if not context.get("runAsNonRoot"):
        return
    user = context.get("runAsUser")
    told = f'(pod: "{name_of(pod)}", container: {container["name"]})'
    if user is None:
        raise WaitingError(CONFIGURATION, f"container has runAsNonRoot and image will run as root {told}")
    if user == 0:
        raise WaitingError(CONFIGURATION, f"container's runAsUser breaks non-root policy {told}")


def _mounts(pod: Object, container: Object, server: LocalVllm, root: Path) -> list[tuple[str, Path]]:
    found: dict[str, Path] = {MODELS: server.models}
    _empty_folders(pod, container)
    for mount in container.get("volumeMounts") or ():
        inside = posixpath.normpath(mount["mountPath"])
        if inside == _SHARED_MEMORY:
            continue
        below = posixpath.normpath(mount.get("subPath") or ".")
        if below.startswith(("..", "/")):
            raise WaitingError(CONFIGURATION, f"the subPath {below!r} leaves its volume")
        found[inside] = volume(root, mount["name"]) / below
    return sorted(found.items(), key=lambda pair: -len(pair[0]))


def _read_only_root(
    container: Object, mounts: Sequence[tuple[str, Path]], server: LocalVllm, root: Path
) -> ReadOnlyRoot:
    open_ones = {one["name"] for one in container.get("volumeMounts") or () if one.get("readOnly") is not True}
    needed = (root, server.models, server.python.parent.parent, *((server.libraries,) if server.libraries else ()))
    return ReadOnlyRoot(
        temporary=dict(mounts).get(TEMPORARY),
        writable=tuple(volume(root, name) for name in sorted(open_ones)),
        needed=needed,
    )


def _empty_folders(pod: Object, container: Object) -> set[str]:
    """The volumes that the container mounts, all of which must be empty folders. Raises WaitingError."""
    known: dict[str, Any] = {one["name"]: one for one in pod["spec"].get("volumes") or ()}
    found = set()
    for mount in container.get("volumeMounts") or ():
        kinds = set(known.get(mount["name"], {})) - {"name"}
        if kinds != {"emptyDir"}:
            kind = ", ".join(sorted(kinds)) or "unknown"
            told = f'this node offers only emptyDir volumes, and volume "{mount["name"]}" is of the kind {kind}'
            raise WaitingError(CONFIGURATION, told)
        found.add(mount["name"])
    return found


def _usual(pod: Object, own: Path, server: LocalVllm, place: Place) -> dict[str, str]:
    """The default variables of a container, and those that keep vLLM on this machine and within its cores."""
    return {
        "PATH": os.pathsep.join((str(server.python.parent), os.defpath)),
        "LANG": "C.UTF-8",
        "HOME": str(own),
        "HOSTNAME": pod["metadata"]["name"],
        # Its lines are the container's log.
        "PYTHONUNBUFFERED": "1",
        # It must not write beside its modules.
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_HOST_IP": place.address,
        # This node serves models of a few megabytes: a second thread would spin for the first and speed up nothing.
        "OMP_NUM_THREADS": "1",
        # The engine computes itself: a worker beside it would import all that it imports once more.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        **({"LD_LIBRARY_PATH": str(server.libraries)} if server.libraries else {}),
    }
