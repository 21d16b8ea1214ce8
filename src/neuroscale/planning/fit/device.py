"""Describes one accelerator as vLLM sees it, and the dtype in which it serves a model."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from neuroscale.catalog import Accelerator, Figure
from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.vllm.engine_arguments import EngineArguments


def served_dtype(facts: ModelFacts, arguments: EngineArguments) -> Literal["bfloat16", "float16", "float32"]:
    """Follows `_resolve_auto_dtype` of vLLM's config/model.py: `auto` halves checkpoints in float32, on CPUs, too.
    Cards without bfloat16 compute in float16, which has the same size."""
    if arguments.dtype != "auto":
        return arguments.dtype
    return "bfloat16" if facts.dtype == "float32" else facts.dtype


_CAPABILITIES: tuple[tuple[int, str], ...] = (
    (100, r"g?b[123]00"),
    (121, r"gb10|spark"),
    (120, r"rtx 50[5-9]0|rtx pro|rtx 6000 (pro|blackwell)"),
    (90, r"g?h([128]00|20)"),
    (89, r"l4|l40s?|l20?|rtx 40[5-9]0|rtx [4-6]000 ada"),
    (80, r"a(100|800|30)"),
    (86, r"a(10g?|40|2|16)|a[456]000|rtx 30[5-9]0"),
    (75, r"t4|rtx 20[5-9]0|rtx [3-8]000"),
    (70, r"v100|titan v"),
    (60, r"p(4|40|100)|gtx|titan|quadro"),
)
"""Compute capabilities by names (75 is 7.5): developer.nvidia.com/cuda-gpus. B300 counts as 100, as vLLM's families
do."""

DeviceFamily = Literal["cuda", "rocm", "tpu", "cpu"]

CONTEXT_GIB = 0.5
"""GiB that a driver holds on an accelerator before vLLM measures: vLLM refuses a share larger than the free memory. An
RTX 3090 has 23.3 of 23.6 to 24 GiB free on a host without a desktop (syv-ai/qwen38-27b-rtx3090#83)."""

SHARED_USED = (0.048, 0.083, 0.17)
"""The part of a memory shared by host and accelerator that the system and other programs hold when vLLM starts: the
least, the common and the largest known part. On a GB10 5.8 of 121.7 GiB are in use as the kernel counts
(unslothai/unsloth#10705), and 9.97 of 119.63 when vLLM asked (0.92 of it failed). They are 19.5 to 20.8 of 121.69 on
four hosts, headless and with the page cache dropped (MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47). Since 0.13, vLLM
asks the kernel for the available memory (utils/mem_utils.py); before, the page cache counted as used, too."""

_SHOWN_GIB, _SHOWN_OF_MEMORY = 0.87, 0.027
"""GiB, and part of the memory, that are not free on a card with a desktop. Under WSL2 30.12 of 31.84 GiB are free on an
RTX 5090 (Alex8791-cyber/cognithor#318), 10.79 of 11.99 and 6.93 of 8.0 GiB on smaller ones, as vLLM's messages say."""

SMALL_CARD_GIB = 10.0
"""Workstation cards below this size serve a desktop as a rule."""

_OF_AMD = re.compile(r"\b(amd|radeon|instinct|mi[1-4]\d\d[a-z]?|rx ?[679]\d{3}|gfx\d+|strix)\b", re.IGNORECASE)


def family_of(name: str) -> DeviceFamily:
    """The family of an accelerator by its name: CUDA unless the name says another one."""
    words = name.replace("-", " ").replace("_", " ")
    if _OF_AMD.search(words):
        return "rocm"
    if re.search(r"\btpu\b", words, re.IGNORECASE):
        return "tpu"
    return "cpu" if re.match(r"cpu\b", words, re.IGNORECASE) else "cuda"


@dataclass(frozen=True)
class Device:
    """An accelerator."""

    name: str
    title: str
    family: DeviceFamily
    # The total memory that the runtime reports (GiB, 2^30 bytes), which is less than the data sheet says.
    memory_gib: float | None
    bandwidth_gb_s: float | None = None  # of its memory, in 10^9 bytes a second (None: nobody published it)
    pcie_gb_s: float | None = None  # to the host, in the same unit
    interconnect_gb_s: float | None = None  # to the others of a pod, one direction (None: over PCIe)
    # Dense peaks in 10^12 operations a second (None: unknown, or for 8 and 4 bits: it does not compute in them).
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    int8_tflops: float | None = None
    fp4_tflops: float | None = None
    counts: tuple[int, ...] = ()  # how many of these accelerators one pod may hold (empty: any number)
    kv_cache_dtypes: tuple[str, ...] = ("auto", "fp8")
    # Memory that other programs hold when vLLM starts, beside the driver's own context (None: nothing, or the common
    # part if the accelerator shares the host's memory).
    used_gib: float | None = None
    # What a measured start of the model took beside its weights, more than `overhead` estimates.
    beside_gib: float = 0.0

    @cached_property
    def shared(self) -> bool:
        """Whether host and accelerator share one memory (GB10 and Jetson): it holds vLLM's processes as well, and NVML
        does not report its size, so that vLLM takes the defaults of a small card."""
        return any(word in f"{self.name} {self.title}".lower() for word in ("gb10", "spark", "jetson", "thor"))

    @cached_property
    def slice_of(self) -> int | None:
        """The size of a MIG slice in sevenths of its card; None for a whole card."""
        sevenths = re.search(r"\b([1-7])g[.\-_ ]\d+ ?gb", f"{self.name} {self.title}".lower())
        return int(sevenths[1]) if sevenths else None

    @cached_property
    def capability(self) -> int | None:
        """The compute capability of an NVIDIA card by its name, 89 for 8.9; None if the name does not say it."""
        name = re.sub(r"[-_]", " ", f"{self.name} {self.title}".lower())
        known = (number for number, pattern in _CAPABILITIES if re.search(rf"\b({pattern})\b", name))
        return next(known, None) if self.family == "cuda" else None

    @property
    def may_show(self) -> bool:
        """Whether it is a workstation card, on which a desktop may hold memory that `used_gib` does not count."""
        name = f"{self.name} {self.title}".lower().replace("-", " ")
        return self.used_gib is None and bool(re.search(r"\b(geforce|rtx ?[2-5]0[5-9]0|gtx)", name))

    @property
    def held_bytes(self) -> int:
        """Bytes that are not free when vLLM starts."""
        if self.family not in ("cuda", "rocm"):
            return round((self.used_gib or 0.0) * GIB)
        if self.shared and self.used_gib is None:
            return round(SHARED_USED[1] * self.memory_bytes)
        # A context grows with the multiprocessors of the card.
        return round(((self.used_gib or 0.0) + CONTEXT_GIB * (self.slice_of or 7) / 7) * GIB)

    @property
    def held_band(self) -> tuple[int, int]:
        """The least and the most bytes that may not be free; they differ only if the number is not given and varies."""
        if self.shared and self.used_gib is None and self.family in ("cuda", "rocm"):
            least, _, most = SHARED_USED
            return round(least * self.memory_bytes), round(most * self.memory_bytes)
        if self.slice_of and self.family == "cuda":
            return self.held_bytes, max(self.held_bytes, round(CONTEXT_GIB * GIB))
        return self.held_bytes, self.held_bytes

    @property
    def shown_bytes(self) -> int:
        """The most bytes that are not free if a desktop or Windows uses the card, too."""
        return round((_SHOWN_GIB + _SHOWN_OF_MEMORY * (self.memory_gib or 0.0)) * GIB)

    @property
    def free_share(self) -> float:
        """The largest share of the memory, in whole hundredths, that is free even at the upper end of `held_band`."""
        if not self.memory_bytes:
            return 1.0
        return max(math.floor(100 * (1 - self.held_band[1] / self.memory_bytes) + 1e-6) / 100, 0.01)

    @property
    def switched(self) -> bool:
        """Whether several such cards communicate over NVLink switches that can add up values (Hopper and later, SXM):
        cards with a memory of 3,000 GB/s and more."""
        return (self.bandwidth_gb_s or 0.0) >= 3000

    @property
    def memory_bytes(self) -> int:
        """The memory in bytes; 0 if it is unknown."""
        return round((self.memory_gib or 0.0) * GIB)


def device(accelerator: Accelerator) -> Device:
    """The device of an accelerator of the catalog."""

    def value(figure: Figure | None) -> float | None:
        return figure.value if figure else None

    return Device(
        name=accelerator.name,
        title=accelerator.title,
        family=accelerator.family,
        memory_gib=accelerator.memory_gib.value,
        bandwidth_gb_s=accelerator.bandwidth_gb_s.value,
        pcie_gb_s=accelerator.pcie_gb_s.value,
        interconnect_gb_s=value(accelerator.interconnect_gb_s),
        bf16_tflops=accelerator.bf16_tflops.value,
        fp8_tflops=value(accelerator.fp8_tflops),
        int8_tflops=value(accelerator.int8_tflops),
        fp4_tflops=value(accelerator.fp4_tflops),
        counts=accelerator.counts,
        used_gib=value(accelerator.used_gib),
        kv_cache_dtypes=accelerator.kv_cache_dtypes,
    )
