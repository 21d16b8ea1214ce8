"""One accelerator as vLLM sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neuroscale.catalog import Accelerator

DeviceFamily = Literal["cuda", "rocm", "tpu", "cpu"]


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

    @property
    def memory_bytes(self) -> int:
        """0 where it is unknown."""
        return round((self.memory_gib or 0.0) * 2**30)


def device(accelerator: Accelerator) -> Device:
    """An accelerator of the catalog."""
    return Device(
        name=accelerator.name,
        title=accelerator.title,
        family=accelerator.family,
        memory_gib=accelerator.memory_gib.value,
        bandwidth_gb_s=accelerator.bandwidth_gb_s.value,
        pcie_gb_s=accelerator.pcie_gb_s.value,
        counts=accelerator.counts,
    )
