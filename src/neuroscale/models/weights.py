"""Collects weight tensors layer by layer, and puts equal ones together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from neuroscale.models.facts import Group, Sharding, Tensor


class Weight(NamedTuple):
    """`copies` tensors of one shape in one place of a checkpoint.

    `name`: as in the checkpoint, with the layer's number; `{}` stands for the number of an expert. `linear`: a matrix
    that quantisation methods convert. Experts that a checkpoint fuses into one tensor count one by one.
    `full_precision`: as in `Tensor`.
    """

    name: str
    group: Group
    shape: tuple[int, ...]
    sharding: Sharding
    linear: bool = False
    copies: int = 1
    full_precision: bool = False

    @property
    def module(self) -> str:
        """The name without `.weight`, as lists of unquantised modules write it."""
        return self.name.removesuffix(".weight")


class Weights:
    """Collects weights. `groups` divides the numbers of similar layers into those that a quantisation treats alike."""

    def __init__(self, groups: Callable[[Sequence[int]], list[list[int]]] = lambda numbers: [list(numbers)]) -> None:
        self.all: list[Weight] = []
        self._groups = groups

    def alike(self, numbers: Sequence[int], add: Callable[[int], None]) -> None:
        """Adds similar layers by `add`: the first number of each group, with a copy for each other one."""
        for group in self._groups(numbers):
            start = len(self.all)
            add(group[0])
            if len(group) > 1:
                self.all[start:] = [one._replace(copies=one.copies * len(group)) for one in self.all[start:]]

    def add(
        self,
        name: str,
        group: Group,
        shape: Sequence[int],
        sharding: Sharding = "replicated",
        *,
        copies: int = 1,
        full_precision: bool = False,
    ) -> None:
        """Adds a tensor that quantisation does not convert. `full_precision`: as in `Tensor`."""
        self.all.append(Weight(name, group, tuple(shape), sharding, copies=copies, full_precision=full_precision))

    def linear(
        self,
        name: str,
        group: Group,
        width: tuple[int, int],
        sharding: Sharding,
        *,
        bias: bool = False,
        bias_sharding: Sharding | None = None,
        copies: int = 1,
        convert: bool = True,
        full_precision: bool = False,
    ) -> None:
        """Adds a matrix from `width[0]` to `width[1]` values, stored as (out, in), and its bias.

        `bias_sharding`: the sharding of the bias if it differs from the matrix's, as after a `RowParallelLinear`.
        `convert`: false for a matrix that vLLM's layers never quantise. `full_precision`: as in `Tensor`.
        """
        into, out = width
        self.all.append(Weight(f"{name}.weight", group, (out, into), sharding, convert, copies, full_precision))
        if bias:
            self.all.append(Weight(f"{name}.bias", group, (out,), bias_sharding or sharding, copies=copies))


def together(weights: Iterable[Weight]) -> tuple[Tensor, ...]:
    """The weights with equal tensors of different layers as one entry, in the order of their first layer."""
    found: Counter[tuple[str, Group, tuple[int, ...], Sharding, bool, bool]] = Counter()
    for one in weights:
        key = (_without_numbers(one.name), one.group, one.shape, one.sharding, one.linear, one.full_precision)
        found[key] += one.copies
    return tuple(
        Tensor(name, group, shape, copies, sharding, linear, full_precision)
        for (name, group, shape, sharding, linear, full_precision), copies in found.items()
    )


@lru_cache(maxsize=65_536)
def _without_numbers(name: str) -> str:
    """A tensor's name with `{}` for the numbers of layers and experts."""
    return ".".join("{}" if part.isdigit() else part for part in name.split("."))
