"""Sorts accelerators, weights and models into the classes that the fit of speeds tells apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from neuroscale.core.releases import release
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device

AcceleratorClass = Literal[
    "hopper",
    "blackwell",
    "blackwell-graphics",
    "blackwell-unified",
    "ampere",
    "ampere-graphics",
    "ada",
    "turing",
    "cdna3",
    "cdna4",
    "tpu",
    "cpu",
]

_CLASSES: tuple[tuple[AcceleratorClass, str], ...] = (
    ("hopper", r"g?h(100|200|800|20)"),
    ("blackwell", r"g?b(100|200|300)"),
    ("blackwell-graphics", r"(rtx )?50[5-9]0|rtx pro \d+"),
    ("blackwell-unified", r"gb10|(dgx )?spark"),
    ("ampere", r"a100|a800|a30"),
    ("ampere-graphics", r"a10g?|a16|a40|(rtx )?30[5-9]0|(rtx )?a[2-6]000"),
    ("ada", r"l4|l40s?|(rtx )?40[5-9]0|(rtx )?[4-6]000 ada"),
    ("turing", r"t4|(rtx )?20[6-8]0"),
    ("cdna3", r"mi3(00|08|25)[ax]?"),
    ("cdna4", r"mi35[05]x?"),
)

NEAREST: Mapping[AcceleratorClass, AcceleratorClass] = {
    "blackwell": "hopper",
    "blackwell-graphics": "ada",
    "blackwell-unified": "blackwell-graphics",
    "ampere": "hopper",
    "ampere-graphics": "ada",
    "ada": "ampere-graphics",
    "turing": "ampere-graphics",
    "cdna3": "hopper",
    "cdna4": "cdna3",
}
"""The class whose efficiencies stand in for those of a class without a measurement. TPU and CPU have none."""


GRAPHICS: frozenset[AcceleratorClass] = frozenset(
    {"ampere-graphics", "ada", "turing", "blackwell-graphics", "blackwell-unified"}
)
"""Classes whose kernels of quantised experts are Marlin's, Triton's and CUTLASS's: DeepGEMM and TensorRT-LLM have none
for them (model_executor/layers/fused_moe/oracle of vLLM 0.29)."""


def accelerator_class(device: Device) -> AcceleratorClass | None:
    """The class of an accelerator by its family and name; None for a name that no class has."""
    if device.family in ("tpu", "cpu"):
        return "tpu" if device.family == "tpu" else "cpu"
    words = re.sub(r"[^a-z0-9]+", " ", f"{device.name} {device.title}".lower())
    for name, pattern in _CLASSES:
        if re.search(rf"\b({pattern})( ti| super)?\b", words):
            return name
    return None


WeightType = Literal["16-bit", "fp8", "int8", "4-bit", "8-bit", "mxfp4", "nvfp4"]
"""How matrices are stored and computed with: in 16 bits; fp8 or int8 with activations of the same type; 4 or 8 bits
with activations of 16 bits; microscaled 4-bit floats (mxfp4); nvfp4 with activations of 4 bits."""


def weight_type(facts: ModelFacts, quantization: str | None) -> WeightType:
    """The type of the quantised matrices of a model. `quantization`: what the command converts them to, if it does."""
    scheme = facts.quantization
    if scheme is None:
        return _ONLINE.get(quantization or "", "16-bit")
    method, bits = scheme.method, scheme.bits
    if method == "mxfp4" or (method.startswith("fp8") and bits == 4):
        return "mxfp4"
    if bits == 4:
        # A scale of one byte belongs to nvfp4, whose activations are converted, too.
        return "nvfp4" if scheme.scale_bytes == 1 and method in ("modelopt", "compressed-tensors") else "4-bit"
    if method in ("fp8", "fbgemm_fp8", "modelopt"):
        return "fp8"
    if method == "compressed-tensors" and bits == 8:
        return _compressed(facts)
    return "8-bit" if bits == 8 else "4-bit"


_ONLINE: Mapping[str, WeightType] = {
    **dict.fromkeys(("fp8", "fp8_per_block", "fp8_per_channel", "fp8_per_tensor"), "fp8"),
    **dict.fromkeys(("experts_int8", "int8_per_channel_weight_only", "mxfp8"), "8-bit"),
    "bitsandbytes": "4-bit",
    "mxfp4": "mxfp4",
    "nvfp4_per_token": "nvfp4",
}


def _compressed(facts: ModelFacts) -> WeightType:
    """The type of 8-bit matrices of compressed-tensors: the config says whether they are integers, and whether
    activations are converted, too."""
    config: Any = facts.config or {}
    section = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config") or {}
    groups = section.get("config_groups") if isinstance(section, Mapping) else None
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping):
            weights = group.get("weights")
            if group.get("input_activations") is None:
                return "8-bit"
            return "fp8" if isinstance(weights, Mapping) and weights.get("type") == "float" else "int8"
    return "int8" if re.search(r"w8a8|int8", facts.name.lower()) else "fp8"


ModelKind = Literal["dense", "moe", "states", "latent"]


def model_kind(facts: ModelFacts) -> ModelKind:
    """Latent attention, or layers with a state, weigh more than experts: their kernels differ more."""
    if any(layers.kind.startswith(("latent", "compressed")) for layers in facts.cache):
        return "latent"
    return "states" if facts.states else facts.kind


_EARLIER = (0, 18, 0)
"""Releases before this one are measured to be slower at the same work."""


def is_earlier(version: str) -> bool:
    """Whether a release is one of the slower ones. Raises ValueError for a text that is no version."""
    return release(version) < _EARLIER


_OVERLAPPED = (0, 14, 0)
"""The first release that prepares the next step while the accelerator computes, by default."""


def overlaps(version: str) -> bool:
    """Whether the scheduler's work overlaps with the accelerator's. Raises ValueError for a text that is no version."""
    return release(version) >= _OVERLAPPED


_IN_GRAPHS = (0, 8, 0)
"""The first release whose default engine computes steps with prompts in CUDA graphs, too."""


def captures_prompts(version: str) -> bool:
    """Whether small steps with prompts run as CUDA graphs. Raises ValueError for a text that is no version."""
    return release(version) >= _IN_GRAPHS
