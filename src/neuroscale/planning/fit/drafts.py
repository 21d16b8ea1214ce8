"""Finds the draft model or EAGLE head of a command, and the arguments by which vLLM loads it beside the model."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.draft_heads import DraftMethod, draft_of
from neuroscale.models.facts import CacheLayers, ModelFacts
from neuroscale.planning.fit.device import served_dtype
from neuroscale.planning.fit.kv_cache import Pool
from neuroscale.vllm.engine_arguments import EngineArguments

_ELSEWHERE = "dflash", "dspark", "medusa"  # parts of names by which vLLM takes another method
WITHOUT_OVERLAP = frozenset({"ngram", "[ngram]", "suffix", "medusa", "mlp_speculator"})
"""Methods that guess between steps, so that vLLM's steps do not overlap unless the command asks for it."""


def draft_method(arguments: EngineArguments) -> DraftMethod | None:
    """The method that the command names or that vLLM takes by the draft's name (`__post_init__` of
    config/speculative.py); None without a draft of a planned method."""
    said, name = arguments.speculative, arguments.draft.lower()
    if not name:
        return None
    named = said in (arguments.draft, "draft_model")
    if said == "eagle" or (named and "eagle-" in name):
        return "eagle"
    if said == "eagle3" or (named and "eagle3" in name):
        return "eagle3"
    if not named:
        return None
    return None if any(part in name for part in _ELSEWHERE) else "draft_model"


def with_draft(facts: ModelFacts, draft: ModelFacts, arguments: EngineArguments) -> ModelFacts:
    """The facts of a model together with those of its draft, if its method and its layers are planned. A head on a
    pipeline's last stage is not: vLLM ends there unless the head's files hold an embedding of its own
    (`maybe_share_target_embed` of v1/worker/gpu/spec_decode/eagle/utils.py), which only the files show."""
    method = draft_method(arguments)
    if method is None or (method != "draft_model" and arguments.pipeline_parallel_size > 1):
        return facts
    return replace(facts, draft=draft_of(draft, facts, method))


def stretched(facts: ModelFacts, draft: ModelFacts, arguments: EngineArguments) -> ModelFacts:
    """The draft as it is loaded: vLLM stretches the rotary table of an EAGLE head to the model's context
    (`_maybe_override_draft_max_position_embeddings` of config/speculative.py)."""
    if draft_method(arguments) == "draft_model":
        return draft
    length = arguments.max_model_len or facts.default_context()
    return replace(draft, rotary=tuple(replace(table, rows=max(table.rows, length)) for table in draft.rotary))


def of_draft(facts: ModelFacts, draft: ModelFacts, arguments: EngineArguments) -> EngineArguments:
    """The arguments by which a rank loads the draft: whole on one pipeline stage, in the model's dtype."""
    return EngineArguments(
        model=draft.name,
        tensor_parallel_size=arguments.tensor_parallel_size,
        enable_expert_parallel=arguments.enable_expert_parallel and draft.experts > 0,
        data_parallel_size=arguments.data_parallel_size,
        dtype=served_dtype(facts, arguments),
    )


def shape_of(kind: CacheLayers, ranks: int) -> tuple[int, ...]:
    """The KV heads of a rank, and the values of a key and of a value."""
    heads = kind.kv_heads if kind.on_every_rank else max(1, kind.kv_heads // ranks)
    return heads, kind.head_dim, kind.value_head_dim


def draft_apart(facts: ModelFacts, arguments: EngineArguments, blocks: Pool) -> list[str]:
    """A sentence if the layers of the draft lie in several groups of the cache, which vLLM's first runner refuses
    (`validate_same_kv_cache_group` of v1/spec_decode/llm_base_proposer.py)."""
    draft = facts.draft
    if draft is None or sum(kind.layers for kind in draft.cache) < 2:
        return []
    shapes = {shape_of(kind, arguments.tensor_parallel_size) for kind in draft.cache}
    # Layers are dealt out to the groups of their kind in turn, so two layers that follow each other lie in two groups.
    if sum(group.spec.shape in shapes and group.spec.kind != "state" for group in blocks.groups) < 2:
        return []
    return [
        f"The layers of the draft {draft.name} would lie in several groups of the KV cache of {facts.name}: vLLM needs "
        "them in one. Take a draft with one layer, such as an EAGLE head."
    ]
