"""Says where an estimate of speed comes from, which measurement corrects it, and how far it may be off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device
from neuroscale.planning.speed.kinds import accelerator_class, model_kind, weight_type
from neuroscale.planning.speed.rates import class_in_fit, fitted
from neuroscale.vllm.engine_arguments import EngineArguments

Coverage = Literal["measured", "interpolated", "extrapolated", "unknown"]
"""Where figures come from. `measured`: the catalog has a measurement of this model on this accelerator. `interpolated`:
the fit has this accelerator, data type and kind of model. `extrapolated`: it lacks one. `unknown`: no number."""

Band = Literal["ttft", "ttft_p95", "inter_token", "inter_token_p95", "tokens_per_second"]
BANDS: tuple[Band, ...] = get_args(Band)

Shared = Literal["accelerator", "model"]
"""What two configurations of one model share: the accelerator, with other numbers of ranks, or the model alone."""

RATIOS: tuple[Band, ...] = ("ttft", "tokens_per_second")
"""The figures by which two configurations are ordered."""


@dataclass(frozen=True)
class Known:
    """The coverage of a replica's figures with its reasons, as sentences."""

    coverage: Coverage
    reasons: tuple[str, ...]

    def band(self, figure: Band) -> tuple[float, float]:
        """The factors of an estimate between which eight of ten measurements lie."""
        low, high = fitted()["bands"][self.coverage][figure]
        return low, high


def shared_by(one: str, two: str) -> Shared:
    """What two configurations of one model on accelerators of these names share."""
    return "accelerator" if one == two else "model"


def is_apart(one: float, two: float, figure: Band, shared: Shared) -> bool:
    """Whether two estimates of one model under one load differ by so much that their order is known. Errors of two
    such estimates are alike, so their ratio is known better than either."""
    least = fitted()["ratios"][shared].get(figure)
    return least is not None and max(one, two) > least * min(one, two)


def known(facts: ModelFacts, device: Device, arguments: EngineArguments, measured: Mapping[str, float]) -> Known:
    """The coverage for a model on an accelerator."""
    if measured:
        return Known("measured", ())
    lacking = [
        what
        for what, figure in (("bandwidth", device.bandwidth_gb_s), ("peak of 16-bit operations", device.bf16_tflops))
        if figure is None
    ]
    if lacking:
        return Known("unknown", (f"The {' and the '.join(lacking)} of {device.title} are not known.",))
    found = accelerator_class(device)
    stand_in = class_in_fit(device)
    if stand_in is None:
        return Known("unknown", (f"No measurement of an accelerator like {device.title} is known.",))
    reasons = []
    if stand_in != found:
        reasons.append(f"No measurement of the class {found} is known: the figures are those of {stand_in}.")
    elif covered_by(facts, device, arguments) not in fitted()["covered"]:
        kind, stored = model_kind(facts), weight_type(facts, arguments.quantization)
        reasons.append(f"No measurement of a {kind} model with {stored} weights on the class {stand_in} is known.")
    if arguments.speculative:
        reasons.append("How many guessed tokens are right is not known: the figures are those without guessing.")
    if arguments.cpu_offload_gib:
        if device.pcie_gb_s is None:
            return Known("unknown", (f"How fast {device.title} reads offloaded weights over PCIe is not known.",))
        reasons.append("No measurement with offloaded weights is known: they are taken to cross PCIe in each step.")
    if arguments.pipeline_parallel_size > 1:
        reasons.append("No measurement with pipeline stages is known.")
    if arguments.enable_lora:
        reasons.append("No measurement with LoRA adapters is known: the figures are those of the model alone.")
    return Known("extrapolated" if reasons else "interpolated", tuple(reasons))


def covered_by(facts: ModelFacts, device: Device, arguments: EngineArguments) -> str:
    """The name under which the fit lists measurements alike: accelerator class, type of the weights, kind of model."""
    return f"{accelerator_class(device)} {weight_type(facts, arguments.quantization)} {model_kind(facts)}"
