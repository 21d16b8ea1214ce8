"""Holds the rates of an accelerator: its peak figures times efficiencies fitted on measurements (`scripts/fit-speed`).

A value of `fitted.json` is a base, such as `memory`, or a factor of it for a class, such as `memory.hopper`. What no
measurement told apart has the factor 1, so a class without one takes those of the nearest class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from neuroscale.planning.fit.device import Device
from neuroscale.planning.speed.kinds import (
    GRAPHICS,
    NEAREST,
    AcceleratorClass,
    ModelKind,
    WeightType,
    accelerator_class,
)
from neuroscale.planning.speed.work import Work

_PCIE_GB_S = 32.0
"""A link between accelerators without a figure of its own: PCIe 4.0 x16, in 10^9 bytes a second and direction."""

_FABRIC_GB_S = 200.0
"""Links from this rate on are NVLink or Infinity Fabric, with collectives of their own."""

_NOMINAL_GB_S, _NOMINAL_TFLOPS = 20.0, 0.05
"""Figures that stand in for those of an accelerator without any, where a measurement then sets the scale: about
those of two cores of a processor."""


@lru_cache(maxsize=1)
def fitted() -> Mapping[str, Any]:
    """The fitted values with their sources, what the fit covers, and its bands."""
    data: dict[str, Any] = json.loads(Path(__file__).with_name("fitted.json").read_text(encoding="utf-8"))
    return data


@lru_cache(maxsize=1)
def fitted_values() -> Mapping[str, float]:
    """The fitted values by name."""
    return {name: entry["value"] for name, entry in fitted()["values"].items()}


@dataclass(frozen=True)
class Rates:
    """What one rank does in a second, and the seconds that do not depend on the amount of work."""

    memory: tuple[float, ...]  # bytes a second, for each of the work's matrices, and for the output's at the end
    compute: tuple[float, ...]  # operations a second, in the same order
    alike: float  # tokens of a batch choose experts as this power of their number would at random
    sharpness: float  # reading and computing overlap: the p-norm of the two times
    cache: float  # bytes a second of the KV cache
    decode_attention: float  # operations a second of attention while answers are written
    prompt_attention: float  # operations a second of attention while prompts are read
    fixed: float  # seconds of a step, whatever it computes
    request: float  # seconds of a step for each request
    launching: float  # seconds that a step without a CUDA graph takes at least
    captured: float  # the part of that for a step of so few tokens that most of it is in graphs
    exchanges: float  # seconds of a step's exchanges between ranks, whatever their size
    exchange_rate: float  # bytes a second between ranks
    first: float  # seconds outside the engine before the first token
    prompt_token: float  # seconds outside the engine for each token of a prompt
    user: float  # the same for each request in flight: client and server handle the tokens of all of them
    burst: float  # the share of requests that come all at once
    behind: float  # steps under way or prepared before a prompt is looked at
    queueing: float  # of a prompt's wait for others, as a part of what prompts that come at random wait


def peak_tflops(device: Device, kind: WeightType) -> float | None:
    """The peak of an accelerator for weights of a type, dense, in 10^12 operations a second. Weights whose type it does
    not compute in are unpacked to 16 bits."""
    if kind == "fp8":
        return device.fp8_tflops or device.bf16_tflops
    if kind == "int8":
        return device.int8_tflops or device.bf16_tflops
    if kind == "nvfp4":
        return device.fp4_tflops or device.bf16_tflops
    if kind == "mxfp4":
        return device.fp8_tflops if device.fp4_tflops and device.fp8_tflops else device.bf16_tflops
    return device.bf16_tflops


def class_in_fit(device: Device, classes: Mapping[str, Any] | None = None) -> AcceleratorClass | None:
    """The class of an accelerator, or the nearest one that the fit has; None if there is none."""
    known = fitted()["classes"] if classes is None else classes
    found = accelerator_class(device)
    while found is not None and found not in known:
        found = NEAREST.get(found)
    return found


def rates(
    values: Mapping[str, float],
    work: Work,
    device: Device,
    of_class: AcceleratorClass | None,
    kind: ModelKind,
    *,
    serial: bool,
    eager: bool,
    earlier: bool,
) -> Rates:
    """The rates for a work on an accelerator. `serial`: the scheduler waits for each step; `eager`: no CUDA graphs;
    `earlier`: a release of vLLM that is slower at the same work."""

    def value(base: str, *factors: str) -> float:
        product = values[base]
        for factor in factors:
            product *= values.get(f"{base}.{factor}", 1.0)
        return product

    name = of_class or ""
    bandwidth = (device.bandwidth_gb_s or _NOMINAL_GB_S) * 1e9
    peak = (device.bf16_tflops or _NOMINAL_TFLOPS) * 1e12
    split = work.ranks
    memory, compute = [], []
    kernels = "experts.graphics" if of_class in GRAPHICS else "experts"
    for part in (*work.matrices, work.head):
        what = ("experts", f"{kernels}.{part.type}", f"experts.{name}") if part.experts else ()
        memory.append(bandwidth * value("memory", name, part.type, *what) * split ** -values["memory.split"])
        flops = (peak_tflops(device, part.type) or _NOMINAL_TFLOPS) * 1e12
        compute.append(
            flops * value("compute", name, part.type, f"{name}.{part.type}", *what) * split ** -values["compute.split"]
        )
    fabric = (device.interconnect_gb_s or device.pcie_gb_s or _PCIE_GB_S) >= _FABRIC_GB_S
    link = "fabric" if fabric else "pcie"
    layer = work.layers * value("layer", name)
    layer += work.expert_layers * value("expert_layer", name)
    layer += work.layers * values.get(f"layer.{kind}", 0.0)
    fixed = value("step", name) + (values["step.serial"] if serial else 0.0)
    launching = work.layers * value("launch", name, kind) * (values["launch.split"] if split > 1 else 1.0)
    launching *= values["launch.earlier"] if earlier else 1.0
    exchanged = (
        0.0
        if split == 1
        else 2 * work.layers * value(f"exchange.{link}", name) * (split / 2) ** values["exchange.more"]
    )
    return Rates(
        memory=tuple(memory),
        compute=tuple(compute),
        alike=values["alike"],
        sharpness=values["sharpness"],
        cache=bandwidth * value("cache", name, kind),
        decode_attention=peak * value("decode_attention", name, kind),
        prompt_attention=peak * value("prompt_attention", name, kind),
        fixed=fixed + (0.0 if eager else layer) + work.offloaded / (1e9 * (device.pcie_gb_s or _PCIE_GB_S)),
        request=value("request", name) + (values["request.serial"] if serial else 0.0),
        launching=launching,
        captured=1.0 if eager else values["launch.captured"],
        exchanges=exchanged,
        exchange_rate=(device.interconnect_gb_s or device.pcie_gb_s or _PCIE_GB_S) * 1e9 * value(f"link.{link}", name),
        first=value("first", name, kind) + (values["first.split"] if split > 1 else 0.0),
        prompt_token=values["prompt_token"],
        user=values["first.user"],
        burst=values["burst"],
        behind=values["behind.serial" if serial else "behind"],
        queueing=values["queueing"],
    )
