"""One accelerator as vLLM sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from neuroscale.catalog import Accelerator
from neuroscale.core.units import GIB

DeviceFamily = Literal["cuda", "rocm", "tpu", "cpu"]


_OF_AMD = re.compile(r"\b(amd|radeon|instinct|mi[1-4]\d\d[a-z]?|rx ?[679]\d{3}|gfx\d+|strix)\b", re.IGNORECASE)


def family_of(name: str) -> DeviceFamily:
    """What kind of accelerator a name is of: CUDA where it tells no other."""
    words = name.replace("-", " ").replace("_", " ")
    if _OF_AMD.search(words):
        return "rocm"
    if re.search(r"\btpu\b", words, re.IGNORECASE):
        return "tpu"
    return "cpu" if re.match(r"cpu\b", words, re.IGNORECASE) else "cuda"


@dataclass(frozen=True)
class Device:
    """`memory_gib`: what the runtime reports as its total memory (GiB, 2^30 bytes), less than the data sheet says.

    `bandwidth_gb_s` of its memory and `pcie_gb_s` to the host in 10^9 bytes a second; None where nobody published them.
    `counts`: how many of them one pod may hold (empty: any).
    """

    name: str
    title: str
    family: DeviceFamily
    memory_gib: float | None
    bandwidth_gb_s: float | None = None
    pcie_gb_s: float | None = None
    counts: tuple[int, ...] = ()
    kv_cache_dtypes: tuple[str, ...] = ("auto", "fp8")

    @cached_property
    def shared(self) -> bool:
        """Whether host and accelerator share one memory (GB10 and Jetson): vLLM's processes lie in it as well, and its
        size cannot be asked for in the common way, so that the defaults are those of a small card."""
        return any(word in f"{self.name} {self.title}".lower() for word in ("gb10", "spark", "jetson", "thor"))

    @property
    def switched(self) -> bool:
        """Whether several of them talk over NVLink with switches that add up (Hopper and later, SXM): those have memory
        of 3,000 GB/s and more."""
        return (self.bandwidth_gb_s or 0.0) >= 3000

    @property
    def memory_bytes(self) -> int:
        """0 where it is unknown."""
        return round((self.memory_gib or 0.0) * GIB)


def device(accelerator: Accelerator) -> Device:
    """An accelerator of the catalog."""
    return Device(
        name=accelerator.name,
        title=accelerator.title,
        family="rocm" if accelerator.resource.startswith("amd.com/") else accelerator.family,
        memory_gib=accelerator.memory_gib.value,
        bandwidth_gb_s=accelerator.bandwidth_gb_s.value,
        pcie_gb_s=accelerator.pcie_gb_s.value,
        counts=accelerator.counts,
        kv_cache_dtypes=accelerator.kv_cache_dtypes,
    )
