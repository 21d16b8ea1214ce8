"""Finds values of environment variables that make vLLM (release 0.32) end at its start.

Reads the serving runtimes that the platform itself gives every cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from neuroscale.gate.fit.vllm_containers import ContainerFault
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import CACHE_SPACE, cache_space
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.repo.layout import RUNTIMES
from neuroscale.repo.snapshot import Snapshot


def runtimes_of(snapshot: Snapshot) -> Callable[[str], Manifest | None]:
    """A function that gives a runtime by its name, or None if it does not exist. It reads them at its first call."""

    @cache
    def known() -> dict[str, Manifest]:
        return {one.name: one for one in runtimes_below(snapshot, RUNTIMES)}

    return lambda name: known().get(name)


ENV = ("env",)
"""The field of a container that holds its variables."""
PORT = "VLLM_PORT"
PORT_SERVICE = "vllm"
"""Kubernetes sets VLLM_PORT to the address of a Service of this name, in the pods of its namespace."""
_VISIBLE: Mapping[str, tuple[str, ...]] = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}
"""The variables that hide devices, by the accelerator's family: HIP reads the first two, ROCm's runtime the third."""


def _whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


_VALUES: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    (PORT, _whole, "a whole number"),
    (CACHE_SPACE, _whole, "a whole number"),
    ("VLLM_WORKER_MULTIPROC_METHOD", lambda text: text in ("fork", "spawn"), "fork or spawn"),
)


def check_values(environment: Mapping[str, str]) -> Iterator[ContainerFault]:
    """Faults of the variables that vLLM reads at its start on every accelerator."""
    for name, taken, wanted in _VALUES:
        if name in environment and not taken(environment[name]):
            told = f"{name}: {environment[name]!r} is not {wanted}: vLLM ends"
            yield ContainerFault("variable-value", ENV, told, f"Write {wanted}, or remove the variable.")


def hidden_values(hidden: Mapping[str, str], family: str) -> Iterator[str]:
    """Why the gate cannot judge variables whose values the files do not show. `hidden`: that of a ServeCommand."""
    for name in (
        *(name for name, _, _ in _VALUES if name != CACHE_SPACE),
        *_VISIBLE.get(family, ()),
    ):
        if name in hidden:
            yield f"whether vLLM starts with its {name} cannot be judged: {hidden[name]}"


def check_devices(environment: Mapping[str, str], family: str, used: int, there: int) -> Iterator[ContainerFault]:
    """Faults of variables that hide devices or memory from a pod's `used` ranks; the pod has `there` accelerators."""
    for name in (one for one in _VISIBLE.get(family, ()) if one in environment):
        seen = _visible(environment[name], there)
        if seen < used:
            told = f"{name}={environment[name]} shows vLLM {seen} of the {used} accelerators that it runs on"
            yield ContainerFault(
                "visible-devices",
                ENV,
                f"{told}: it ends",
                "Remove the variable: the pod sees only its own accelerators.",
            )
    space = cache_space(environment)
    if family == "cpu" and space is not None and space < 1:
        told = f"{CACHE_SPACE}={space} leaves no memory for a cache: vLLM ends"
        yield ContainerFault("variable-value", ENV, told, "Write the GiB of the cache, 1 or more.")


def _visible(listed: str, there: int) -> int:
    """How many of a pod's accelerators a list shows: an unknown number ends the list."""
    seen: list[str] = []
    for part in (part.strip() for part in listed.split(",")):
        if not part or (_whole(part) and not 0 <= int(part) < there):
            break
        seen.append(part)
    return len(set(seen))
