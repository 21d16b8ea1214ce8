"""Tells which attention and experts each backend of vLLM's kernels serves on CUDA cards, by version.

Read from the releases 0.11.2 to 0.32.0: the names in `AttentionBackendEnum` (attention/backends/registry.py, later
v1/attention/backends/registry.py), the conditions in each backend's `validate_configuration` (v1/attention/backends),
and the names in `map_*_backend` of model_executor/layers/fused_moe/oracle. vLLM ends where a backend that the command
names does not meet one of its conditions (`get_attn_backend_cls` of platforms/cuda.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from neuroscale.core.releases import Release, release

OLDEST_READ: Release = (0, 11, 2)
NEWEST_READ: Release = (0, 32, 0)
"""The releases whose backends were read."""

VARIABLE = "VLLM_ATTENTION_BACKEND"
VARIABLE_READ_BEFORE: Release = (0, 15, 0)
"""0.14 still reads the variable, which wins over the argument; 0.16 does not, and 0.15 was not read."""
VARIABLE_UNREAD_SINCE: Release = (0, 16, 0)

_NAMES: Mapping[str, tuple[str, ...]] = {
    "0.11.2": (
        *("CPU_ATTN", "CUSTOM", "CUTLASS_MLA", "FLASHINFER", "FLASHINFER_MLA", "FLASHMLA", "FLASHMLA_SPARSE"),
        *("FLASH_ATTN", "FLASH_ATTN_MLA", "FLEX_ATTENTION", "IPEX", "NO_ATTENTION", "PALLAS", "ROCM_AITER_FA"),
        *("ROCM_AITER_MLA", "ROCM_AITER_UNIFIED_ATTN", "ROCM_ATTN", "TORCH_SDPA", "TREE_ATTN", "TRITON_ATTN"),
        *("TRITON_MLA", "XFORMERS"),
    ),
    "0.12.0": ("ROCM_AITER_MLA_SPARSE", "ROCM_AITER_TRITON_MLA"),
    "0.14.0": ("FLASH_ATTN_DIFFKV",),
    "0.17.0": ("FLASHINFER_MLA_SPARSE",),
    "0.18.0": ("XPU_MLA_SPARSE",),
    "0.20.0": ("TURBOQUANT",),
    "0.21.0": ("TOKENSPEED_MLA",),
    "0.23.0": ("FLASHINFER_MLA_SPARSE_DSV4", "FLASHMLA_SPARSE_DSV4", "ROCM_FLASHMLA_SPARSE_DSV4"),
    "0.24.0": ("FLASHINFER_MLA_SPARSE_SM120", "MINIMAX_M3_SPARSE", "TRITON_ATTN_DIFFKV"),
    "0.25.0": ("FLASH_ATTN_MLA_SPARSE", "HPC_ATTN"),
    "0.27.0": ("CUTLASS_MSA", "TRITON_MSA"),
    "0.28.0": ("CPU_MLA",),
    "0.29.0": ("AMX_MLA",),
    "0.30.0": (
        *("B12X", "FLASHINFER_MLA_SPARSE_DSV41", "FLASHINFER_MLA_SPARSE_SM90", "FLASHMLA_SPARSE_DSV41"),
        *("TRITON_FLASHINFER", "TRITON_FLASH_ATTN"),
    ),
    "0.31.0": ("FLASHMLA_MEGA_ATTN_DSV41",),
    "0.32.0": ("ROCM_SEGMENTED_ATTN", "ULTRAQUANT"),
}
"""The names of attention backends, by the release that brought them."""

_REMOVED: Mapping[str, tuple[str, ...]] = {
    "0.12.0": ("XFORMERS",),
    "0.14.0": ("PALLAS",),
    "0.16.0": ("IPEX",),
    "0.21.0": ("TREE_ATTN",),
}
"""Those that went, by the first release that was read without them."""


@dataclass(frozen=True)
class AttentionRules:
    """The layers that an attention backend serves. Majors are those of compute capabilities: 9 is Hopper."""

    latent: bool = False  # multi-head latent attention, and nothing else
    heads: frozenset[int] = frozenset()  # head sizes (empty: by the three limits below)
    least_head: int = 1
    most_head: int | None = None
    head_step: int = 1
    capabilities: tuple[int, int] = (0, 999)  # the lowest and the highest, 75 for 7.5
    majors: frozenset[int] | None = None  # the only ones (None: any)
    cache: frozenset[str] = frozenset()  # dtypes of a quantised cache
    cache_majors: frozenset[int] | None = None  # where it reads such a cache (None: anywhere)
    sinks: frozenset[int] | None = frozenset()  # majors with attention sinks (None: any)
    spans: bool = True  # tokens of an image that see each other (mm_prefix)
    single: bool = False  # computes float32, too
    block: int = 1  # --block-size must be a multiple of it
    unsure: frozenset[int] = frozenset()  # majors on which the installed kernels decide what the rest refuses
    nope: frozenset[int] = frozenset()  # values of latent attention's heads without a position (empty: any)


_FP8 = frozenset({"fp8", "fp8_e4m3"})
_FP8_AND_E5M2 = _FP8 | {"fp8_e5m2"}
_SIZES = frozenset({64, 128, 256})
_LATENT = AttentionRules(latent=True, heads=frozenset({576}))

_ATTENTION: Mapping[str, tuple[tuple[str, AttentionRules | dict[str, object]], ...]] = {
    "FLASH_ATTN": (
        (
            "0.11.2",
            AttentionRules(
                heads=frozenset(range(32, 257, 32)),
                capabilities=(80, 999),
                cache=_FP8_AND_E5M2,
                cache_majors=frozenset({9}),
                sinks=frozenset({9}),
                block=16,
            ),
        ),
        ("0.12.0", {"heads": frozenset(), "head_step": 8, "most_head": 256}),
        ("0.13.0", {"spans": False}),
        # FlashAttention 4 reads larger heads and more; whether it is there, the installed packages decide.
        ("0.17.0", {"unsure": frozenset({9, 10, 11})}),
        ("0.22.0", {"cache": _FP8}),
    ),
    "FLASHINFER": (
        (
            "0.11.2",
            AttentionRules(heads=_SIZES, capabilities=(75, 121), cache=_FP8_AND_E5M2, sinks=frozenset({10}), block=16),
        ),
        ("0.13.0", {"spans": False}),
        ("0.22.0", {"heads": _SIZES | {512}}),
        ("0.24.0", {"capabilities": (80, 121)}),
        ("0.28.0", {"sinks": frozenset({10, 12})}),
        ("0.30.0", {"sinks": frozenset({9, 10, 12})}),
    ),
    "TRITON_ATTN": (("0.11.2", AttentionRules(least_head=32, cache=_FP8_AND_E5M2, sinks=None, single=True, block=16)),),
    "FLEX_ATTENTION": (("0.11.2", AttentionRules(single=True)), ("0.21.0", {"block": 16})),
    "FLASHMLA": (
        # Since 0.14 its dense kernels ask for Hopper; before, whether Blackwell had some was not read.
        ("0.11.2", replace(_LATENT, cache=_FP8, majors=frozenset({9}), unsure=frozenset({10}), block=64)),
        ("0.14.0", {"unsure": frozenset()}),
        ("0.18.0", {"heads": frozenset({320, 576})}),
        ("0.30.0", {"heads": frozenset({320, 512, 576})}),
    ),
    "FLASH_ATTN_MLA": (
        ("0.11.2", replace(_LATENT, majors=frozenset({9}), block=16)),
        ("0.18.0", {"heads": frozenset({320, 576})}),
        ("0.30.0", {"heads": frozenset({320, 512, 576})}),
    ),
    "FLASHINFER_MLA": (
        ("0.11.2", replace(_LATENT, cache=_FP8, majors=frozenset({10}), block=32)),
        ("0.16.0", {"nope": frozenset({128})}),
        ("0.18.0", {"nope": frozenset({64, 128}), "heads": frozenset({320, 576})}),
        ("0.19.0", {"nope": frozenset({64, 128, 192})}),
        ("0.30.0", {"heads": frozenset({320, 512, 576})}),
    ),
    "CUTLASS_MLA": (
        ("0.11.2", replace(_LATENT, cache=_FP8, majors=frozenset({10}), block=128)),
        ("0.18.0", {"heads": frozenset({320, 576})}),
        ("0.30.0", {"heads": frozenset({320, 512, 576})}),
    ),
    "TRITON_MLA": (("0.11.2", _LATENT), ("0.18.0", {"heads": frozenset(), "cache": _FP8, "block": 16})),
}
"""The rules of the backends that are judged, and what later releases changed of them."""

SPANS: Mapping[str, str] = {"gemma3": "0.13.0", "molmo2": "0.16.0", "paligemma": "0.16.0"}
"""The model types whose images' tokens see each other, by the release since which backends are asked for it. Gemma 4
says it in its config (`use_bidirectional_attention: vision`), since 0.20."""

SPANS_IN_CONFIG: Release = (0, 20, 0)
SPANS_FOR_IMAGES_ALONE: Release = (0, 27, 0)
"""Since then a command that takes no images does not ask for it."""

_EXPERTS: Mapping[str, frozenset[str]] = {
    "": frozenset({"triton", "batched_triton", "flashinfer_trtllm", "flashinfer_cutlass", "aiter"}),
    "fp8": frozenset(
        {
            *("triton", "deep_gemm", "cutlass", "flashinfer_trtllm", "flashinfer_cutlass", "marlin", "humming"),
            *("aiter", "hpc"),
        }
    ),
    "mxfp4": frozenset(
        {
            *("b12x", "deep_gemm", "flashinfer_trtllm", "flashinfer_trtllm_afp8", "flashinfer_cutlass"),
            *("flashinfer_cutlass_afp8", "flashinfer_moe_ep_cutedsl", "flashinfer_moe_ep_mega_deep_gemm", "triton"),
            *("triton_unfused", "humming", "marlin", "aiter", "aiter_triton_mxfp4_bf16", "aiter_mxfp4_fp8"),
            *("aiter_mxfp4_mxfp4", "xpu", "cpu", "ck", "emulation", "deep_gemm_mega_moe"),
            *("flashinfer_moe_ep_mega_cutedsl",),
        }
    ),
}
"""The experts' backends that any release takes, by the quantisation method of the files ("": none)."""

_EXPERTS_SURE = frozenset({("", "triton"), ("fp8", "marlin"), ("mxfp4", "marlin")})
"""The pairs that vLLM itself takes on cards without newer kernels."""


@lru_cache(maxsize=64)
def attention_names(of: Release) -> frozenset[str]:
    """The names of attention backends that a release has."""
    added = {name for since, names in _NAMES.items() if release(since) <= of for name in names}
    return frozenset(added - {name for since, names in _REMOVED.items() if release(since) <= of for name in names})


@lru_cache(maxsize=64)
def attention_rules(name: str, of: Release) -> AttentionRules | None:
    """The rules of a backend in a release; None for a backend that is not judged."""
    rules: AttentionRules | None = None
    for since, change in _ATTENTION.get(name, ()):
        if release(since) > of:
            break
        rules = change if isinstance(change, AttentionRules) else replace(rules or AttentionRules(), **change)  # type: ignore[arg-type]
    return rules


def experts_verdict(name: str, method: str) -> bool | None:
    """Whether vLLM computes experts with a backend: the files' quantisation `method` ("": none) rules some out. None:
    not known."""
    known = _EXPERTS.get(method)
    if known is not None and name not in known:
        return False
    return True if (method, name) in _EXPERTS_SURE else None
