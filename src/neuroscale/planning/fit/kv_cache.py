"""Models vLLM's KV cache: the groups of layers, the bytes of a block, and the blocks that a request needs.

Follows v1/core/kv_cache_utils.py and v1/kv_cache_interface.py of vLLM 0.32 with its default layout (layer by layer).
All sizes are bytes of one rank. Nobody has measured a start with compressed tokens (DeepSeek V4) for this project.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from neuroscale.models.facts import COMPRESSED, CacheKind, CacheLayers, ModelFacts
from neuroscale.models.mixers import page_of

_WHOLE = frozenset({"full", "latent", "indexer"})  # kinds that keep the whole context


class PagesDiffer(Exception):  # noqa: N818
    """Two kinds of layers cannot share the blocks of one cache: vLLM refuses such a model."""


@dataclass(frozen=True)
class LayerSpec:
    """The cache of one layer on one rank."""

    kind: CacheKind | Literal["state"]
    block_size: int
    bytes_per_token: int
    window: int | None = None  # tokens of a sliding window or chunk
    padded: int | None = None  # bytes of a page that is larger than its `block_size` tokens need
    shards: int = 1  # ranks that share the tokens of a request among them
    held: int = 0  # for a state, the pages that a request holds, however long it is; such a page has the size `padded`
    # The KV heads of a rank, and the values of a key and of a value: layers of different shapes do not share a table,
    # even if their pages have one size.
    shape: tuple[int, ...] = ()

    @property
    def page_bytes(self) -> int:
        """Bytes of one block."""
        return self.padded if self.padded is not None else self.block_size * self.bytes_per_token

    def blocks(self, length: int, in_flight: int) -> int:
        """Blocks that a request of `length` tokens may hold while `in_flight` tokens are computed."""
        if self.kind == "state":
            return self.held
        if self.kind == "sliding" and self.window is not None:
            # One block more, since a window may start inside a block.
            return math.ceil(min(self.window - 1 + in_flight, length) / self.block_size) + 1
        if self.kind == "chunked" and self.window is not None:
            return math.ceil(min(self.window + in_flight, length) / self.block_size)
        return math.ceil(math.ceil(length / self.shards) / self.block_size)


@dataclass(frozen=True)
class Group:
    """`layers` layers with one block table. `page_bytes`: bytes of one block of all of them together."""

    spec: LayerSpec
    layers: int
    page_bytes: int


@dataclass(frozen=True)
class Pool:
    """One pool of blocks that all groups draw from."""

    groups: tuple[Group, ...]

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of one block, which is as wide as the widest group."""
        return max(group.page_bytes for group in self.groups)

    @cached_property
    def kinds(self) -> tuple[tuple[LayerSpec, int], ...]:
        """The different specs of the groups, and how many groups have each."""
        return tuple(Counter(group.spec for group in self.groups).items())

    def blocks_per_request(self, length: int, in_flight: int) -> int:
        """Blocks that all groups together take from the pool for one request."""
        return sum(spec.blocks(length, in_flight) * groups for spec, groups in self.kinds)

    def request_bytes(self, length: int, in_flight: int) -> int:
        """Bytes that vLLM reserves for one request of `length` tokens."""
        return self.block_bytes * self.blocks_per_request(length, in_flight)

    def held_bytes(self, requests: int, length: int, in_flight: int) -> int:
        """Bytes that `requests` requests of `length` tokens hold at once while `in_flight` tokens are computed. vLLM
        admits a request when its `request_bytes` are free. Admitted requests share the tokens in flight: a windowed
        layer keeps the window of each request, but the tokens of the steps in flight only once."""
        if requests < 1:
            return 0
        blocks = 0
        for spec, groups in self.kinds:
            alone, settled = spec.blocks(length, in_flight), spec.blocks(length, 1)
            blocks += groups * min(requests * alone, requests * settled + math.ceil(in_flight / spec.block_size))
        return self.block_bytes * max(blocks, self.blocks_per_request(length, in_flight))

    def num_blocks(self, available: int) -> int:
        """Whole blocks in `available` bytes."""
        return max(available, 0) // self.block_bytes

    def longest(self, available: int, in_flight: int, most: int) -> int:
        """The longest request, at most `most` tokens, that `available` bytes hold; 0 if they hold none. vLLM's
        'estimated maximum model length'."""
        if most < 1 or self.request_bytes(1, in_flight) > available:
            return 0
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request_bytes(middle, in_flight) <= available else (low, middle - 1)
        return low


def pool(
    layers: Sequence[tuple[LayerSpec, int]], *, hybrid: bool, padding_ratio: float | None = 1.5, padded: bool = True
) -> Pool:
    """The pool for kinds of layers and the number of each. Raises PagesDiffer. Without the hybrid manager (`hybrid`
    false), windowed layers beside full ones keep the whole context. `padding_ratio`: if the largest kind has fewer than
    this many times the layers of the smallest, all kinds are padded up to the largest. `padded`: pages that do not
    divide the largest are padded, too; otherwise they raise."""
    merged = _counted(layers if hybrid else _promoted(layers))
    if (whole := _one_table(merged)) is not None:
        return whole
    try:
        return _by_pattern(_one_page(merged, padded), padding_ratio)
    except PagesDiffer:
        # As a last resort, windowed layers beside latent attention keep the whole context.
        whole = _one_table(_counted(_promoted(layers))) if padded else None
        if whole is None:
            raise
        return whole


def _counted(layers: Sequence[tuple[LayerSpec, int]]) -> dict[LayerSpec, int]:
    counted: dict[LayerSpec, int] = {}
    for spec, count in layers:
        counted[spec] = counted.get(spec, 0) + count
    return counted


def _one_table(layers: dict[LayerSpec, int]) -> Pool | None:
    """One block table for all layers if they need the same number of token slots: a block holds a page of each."""
    first = next(iter(layers))
    if len(layers) > 1 and not _uniform(list(layers)):
        return None
    return Pool((Group(first, sum(layers.values()), sum(spec.page_bytes * count for spec, count in layers.items())),))


def _uniform(specs: list[LayerSpec]) -> bool:
    """Whether all layers need the same number of token slots."""
    if len({spec.block_size for spec in specs}) > 1:
        return False
    first = specs[0]
    if first.kind == "state":
        return all(spec.kind == "state" and spec.page_bytes == first.page_bytes for spec in specs)
    if first.kind in _WHOLE:
        return all(spec.kind in _WHOLE for spec in specs)
    return all(spec.kind == first.kind and spec.window == first.window for spec in specs)


def _promoted(layers: Sequence[tuple[LayerSpec, int]]) -> list[tuple[LayerSpec, int]]:
    """The layers with windowed ones changed to full ones, if the model has full ones, too."""
    if len({(spec.kind, spec.window) for spec, _ in layers if spec.window is not None}) > 1:
        # One table keeps one window.
        raise PagesDiffer
    full = [spec for spec, _ in layers if spec.kind in _WHOLE]
    if 0 < sum(spec.kind == "state" for spec, _ in layers) < len(layers):
        # States and tokens cannot share a block table.
        raise PagesDiffer
    if not full or len(full) == len(layers):
        return list(layers)
    sizes = {spec.block_size for spec in full}
    size = sizes.pop() if len(sizes) == 1 else None
    return [
        (replace(spec, kind="full", window=None, block_size=size or spec.block_size), count)
        if spec.kind in ("sliding", "chunked")
        else (spec, count)
        for spec, count in layers
    ]


def _one_page(layers: dict[LayerSpec, int], padded: bool) -> dict[LayerSpec, int]:
    """Makes all pages one size: smaller ones hold more tokens, or are padded if they do not divide the largest."""
    largest = max(spec.page_bytes for spec in layers)
    same: dict[LayerSpec, int] = {}
    for spec, count in layers.items():
        page = spec.page_bytes
        if page == largest:
            new = spec
        elif spec.kind == "state":
            new = replace(spec, padded=largest)
        elif largest % page == 0:
            new = replace(spec, block_size=spec.block_size * (largest // page))
        elif padded and spec.kind != "latent":
            new = replace(spec, padded=largest)
        else:
            raise PagesDiffer
        same[new] = same.get(new, 0) + count
    return same


def _by_pattern(layers: dict[LayerSpec, int], padding_ratio: float | None) -> Pool:
    """Groups of equally many layers, each of one kind; the last of a kind is padded to that number."""
    fewest, most = min(layers.values()), max(layers.values())
    size = most if padding_ratio is not None and most < fewest * padding_ratio else fewest
    groups = []
    for spec, count in layers.items():
        parts = math.ceil(count / size)
        # Layers are dealt out in turn, so the sizes of a kind's groups differ by one at most.
        for index in range(parts):
            held = len(range(index, count, parts))
            groups.append(Group(spec, held, held * spec.page_bytes))
    return Pool(tuple(groups))


_Bucket = dict[LayerSpec, int]


def is_compressed(facts: ModelFacts) -> bool:
    """Whether the model attends over compressed tokens."""
    return any(layers.kind in COMPRESSED for layers in facts.cache)


def packed_pool(cache: Sequence[CacheLayers]) -> Pool:
    """The pool of all layers. Layers whose blocks hold equally many tokens share a table; their pages of different
    sizes lie side by side in a block, which is as wide as the widest group."""
    buckets: dict[tuple[int | None, int], _Bucket] = {}
    for kind in cache:
        spec = _spec(kind)
        bucket = buckets.setdefault((spec.window, spec.block_size), {})
        bucket[spec] = bucket.get(spec, 0) + kind.layers
    repeats = _repeats(list(buckets.values()))
    groups: list[Group] = []
    for bucket in buckets.values():
        most = max(bucket.values())
        parts = math.ceil(most / repeats) if repeats and _is_balanced(bucket) else 1
        groups += [_group(bucket, part, parts) for part in range(parts)]
    return Pool(tuple(groups))


def _group(bucket: _Bucket, part: int, parts: int) -> Group:
    """One of the `parts` groups of a bucket: its layers are dealt out in turn."""
    held = {spec: len(range(part, count, parts)) for spec, count in bucket.items()}
    return Group(next(iter(bucket)), sum(held.values()), sum(spec.page_bytes * count for spec, count in held.items()))


def _repeats(buckets: Sequence[_Bucket]) -> int:
    """How many layers of each page size a group of a balanced bucket gets; 0 if buckets stay whole. The number that
    pads the buckets least, and the larger of two that pad alike (`_approximate_gcd`)."""
    balanced = [bucket for bucket in buckets if _is_balanced(bucket)]
    least = max(
        (max(bucket.values()) for bucket in balanced if len({spec.page_bytes for spec in bucket}) > 1), default=0
    )
    if not least:
        return 0
    counts = [max(bucket.values()) for bucket in balanced]
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _is_balanced(bucket: _Bucket) -> bool:
    by_size: dict[int, int] = {}
    for spec, count in bucket.items():
        by_size[spec.page_bytes] = by_size.get(spec.page_bytes, 0) + count
    return len(set(by_size.values())) == 1


def _spec(kind: CacheLayers) -> LayerSpec:
    block, page = page_of(kind)
    return LayerSpec("full" if kind.window is None else "sliding", block, 0, window=kind.window, padded=page)
