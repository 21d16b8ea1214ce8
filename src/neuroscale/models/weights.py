"""Weight tensors layer by layer, before equal ones are put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from neuroscale.models.facts import Group, Sharding, Tensor


@dataclass(frozen=True)
class Weight:
    """`copies` tensors of one shape in one place of a checkpoint.

    `name` as in the checkpoint, with the layer's number in it; `{}` stands for the number of an expert. `linear`: a
    matrix that quantisation methods convert. Experts that a checkpoint fuses into one tensor count as many.
    """

    name: str
    group: Group
    shape: tuple[int, ...]
    sharding: Sharding
    linear: bool = False
    copies: int = 1

    @property
    def module(self) -> str:
        """The name without `.weight`: what lists of unquantised modules name."""
        return self.name.removesuffix(".weight")


class Weights:
    """Collects weights. `apart`: layers that are alike stay apart, for quantisations that name them by number."""

    def __init__(self, *, apart: bool = False) -> None:
        self.all: list[Weight] = []
        self.apart = apart

    def alike(self, numbers: Sequence[int], add: Callable[[int], None]) -> None:
        """Layers of these numbers, which `add` adds alike: one by one, or the first of them as often."""
        if self.apart:
            for number in numbers:
                add(number)
            return
        start = len(self.all)
        add(numbers[0])
        self.all[start:] = [replace(weight, copies=weight.copies * len(numbers)) for weight in self.all[start:]]

    def add(
        self, name: str, group: Group, shape: Sequence[int], sharding: Sharding = "replicated", *, copies: int = 1
    ) -> None:
        """A tensor that quantisation leaves alone."""
        self.all.append(Weight(name, group, tuple(shape), sharding, copies=copies))

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
    ) -> None:
        """A matrix from `width[0]` to `width[1]` values, stored as (out, in), and its bias.

        `bias_sharding`: where it differs from the matrix's, as behind a matrix whose rows are split. `convert`: false
        for those that vLLM's layers never quantise.
        """
        into, out = width
        self.all.append(Weight(f"{name}.weight", group, (out, into), sharding, convert, copies))
        if bias:
            self.all.append(Weight(f"{name}.bias", group, (out,), bias_sharding or sharding, copies=copies))


def together(weights: Iterable[Weight]) -> tuple[Tensor, ...]:
    """Equal tensors of different layers as one entry each, in the order in which they come first."""
    found: Counter[Tensor] = Counter()
    for weight in weights:
        name = ".".join("{}" if part.isdigit() else part for part in weight.name.split("."))
        key = Tensor(name, weight.group, weight.shape, 0, weight.sharding, weight.linear)
        found[key] += weight.copies
    return tuple(replace(tensor, copies=copies) for tensor, copies in found.items())
