"""Lists the values that the fit searches: where each starts, and how strongly it is drawn there.

The strength is a standard deviation of the value's logarithm: 0.15 lets it move by some 15 % against weak evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from neuroscale.planning.speed.kinds import AcceleratorClass, ModelKind, WeightType

BASES: dict[str, tuple[float, float]] = {
    # Shares of the bandwidth and of the peak that matrices reach; those of routed experts are factors of the same.
    # `split`: each of n ranks reaches n to the power of minus this of it.
    "memory": (0.8, 0.15),
    "memory.experts": (0.75, 0.4),
    "memory.split": (0.05, 1.0),
    "compute": (0.6, 0.3),
    "compute.experts": (0.6, 0.5),
    "compute.split": (0.05, 1.0),
    # How much reading and computing overlap, and how much alike the tokens of a batch choose their experts.
    "sharpness": (2.5, 0.5),
    "alike": (0.95, 0.15),
    # Shares of the bandwidth and of the 16-bit peak that attention reaches.
    "cache": (0.6, 0.4),
    "decode_attention": (0.3, 0.7),
    "prompt_attention": (0.4, 0.5),
    # Seconds of a step for each layer, and for each layer with experts, with a state or with latent attention.
    "layer": (1e-5, 1.0),
    "expert_layer": (2e-5, 1.0),
    "layer.states": (1e-5, 1.0),
    "layer.latent": (1e-5, 1.0),
    # Seconds of a step, and for each of its requests; `serial`: more, where the scheduler waits for the accelerator.
    "step": (1.5e-3, 1.0),
    "step.serial": (1.5e-3, 1.0),
    "request": (1e-5, 1.0),
    "request.serial": (1e-5, 1.0),
    # Seconds for each layer of a step without a CUDA graph, at least, and the part of it up to 512 tokens.
    "launch": (2e-4, 1.0),
    "launch.captured": (0.4, 0.7),
    "launch.split": (1.2, 0.5),
    "launch.earlier": (1.0, 0.5),
    # Seconds of an all-reduce of two ranks, its growth with more ranks, and the share of the link's rate.
    "exchange.fabric": (8e-6, 0.7),
    "exchange.pcie": (2.5e-5, 0.7),
    "exchange.more": (0.3, 0.7),
    "link.fabric": (0.5, 0.5),
    "link.pcie": (0.5, 0.5),
    # Seconds outside the engine before the first token, for each token of the prompt, and for each user.
    "first": (6e-3, 1.0),
    "first.split": (6e-3, 1.0),
    "prompt_token": (2e-6, 1.0),
    "first.user": (2e-4, 1.0),
    # The steps under way when a prompt comes, and its wait for others beside that in a queue of random arrivals, where
    # each user asks again after an answer.
    "behind": (1.5, 0.5),
    "behind.serial": (0.5, 0.5),
    "queueing": (0.8, 0.5),
}

FIXED = {"burst": 0.05}
"""The share of requests that come all at once where no benchmark started them so: not fitted."""

_BY_CLASS = {
    "memory": 0.15,
    "compute": 0.3,
    "memory.experts": 0.2,
    "compute.experts": 0.3,
    "cache": 0.3,
    "prompt_attention": 0.3,
    "layer": 0.4,
    "expert_layer": 0.4,
    "step": 0.5,
    "request": 0.4,
    "launch": 0.4,
    "first": 0.5,
    "exchange.fabric": 0.4,
    "exchange.pcie": 0.4,
    "link.fabric": 0.4,
    "link.pcie": 0.4,
}
_OF_TYPE_AND_CLASS = 0.3
_BY_TYPE = {"memory": 0.15, "compute": 0.3, "memory.experts": 0.3, "compute.experts": 0.4}
_BY_KIND = {"cache": 0.3, "prompt_attention": 0.4, "launch": 0.8, "first": 0.4}


def factors() -> Iterator[tuple[str, float]]:
    """The names of factors, which start at 1, with their strength."""
    for base, strength in _BY_CLASS.items():
        yield from ((f"{base}.{name}", strength) for name in get_args(AcceleratorClass))
    for base, strength in _BY_TYPE.items():
        # Outside of experts, 16 bits are the base.
        types = get_args(WeightType) if base.endswith("experts") else get_args(WeightType)[1:]
        yield from ((f"{base}.{name}", strength) for name in types)
        if base.endswith("experts"):
            yield from ((f"{base}.graphics.{name}", strength) for name in types)
    for name in get_args(AcceleratorClass):
        # Kernels of a type are better on some classes than on others.
        yield from ((f"compute.{name}.{stored}", _OF_TYPE_AND_CLASS) for stored in get_args(WeightType))
    for base, strength in _BY_KIND.items():
        yield from ((f"{base}.{name}", strength) for name in get_args(ModelKind)[1:])


START: dict[str, float] = {
    **{name: start for name, (start, _) in BASES.items()},
    **FIXED,
    **{name: 1.0 for name, _ in factors()},
}
STRENGTH: dict[str, float] = {**{name: strength for name, (_, strength) in BASES.items()}, **dict(factors())}
