"""Plans the KV cache of attention over compressed tokens (DeepSeek V4): pages of one size, and groups of layers.

Follows `_get_packed_kv_cache_groups` of v1/core/kv_cache_utils.py of vLLM 0.32. Each rank keeps the whole. Nobody has
measured such a start for this project.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuroscale.models.compressed_attention import page_of
from neuroscale.models.facts import COMPRESSED, CacheLayers, ModelFacts
from neuroscale.planning.fit.kv_cache import Group, LayerSpec, Pool

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
    """How many layers of each page size a group of a balanced bucket gets; 0 if buckets stay whole.

    The number that pads the buckets least, and the larger of two that pad alike (`_approximate_gcd`).
    """
    balanced = [bucket for bucket in buckets if _is_balanced(bucket)]
    least = max((max(bucket.values()) for bucket in balanced if _sizes(bucket) > 1), default=0)
    if not least:
        return 0
    counts = [max(bucket.values()) for bucket in balanced]
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _is_balanced(bucket: _Bucket) -> bool:
    by_size: dict[int, int] = {}
    for spec, count in bucket.items():
        by_size[spec.page_bytes] = by_size.get(spec.page_bytes, 0) + count
    return len(set(by_size.values())) == 1


def _sizes(bucket: _Bucket) -> int:
    return len({spec.page_bytes for spec in bucket})


def _spec(kind: CacheLayers) -> LayerSpec:
    block, page = page_of(kind)
    return LayerSpec("full" if kind.window is None else "sliding", block, 0, window=kind.window, padded=page)
