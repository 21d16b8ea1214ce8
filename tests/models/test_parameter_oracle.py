"""transformers itself says how many parameters a published model has, by tensor; the planner must count the same.

The models are built without memory behind them, from their published sizes. What vLLM makes of the same sizes on one
rank of several is compared in test_kv_oracle.py.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from neuroscale.models.config import read_config
from oracle_configs import COUNTED, FULL, TINY
from vllm_oracle import count_with_transformers

pytestmark = pytest.mark.slow

CONFIGS = {**FULL, **COUNTED, **{f"tiny {name}": config for name, config in TINY.items()}}

GROUPS = (
    ("projector", r"visual\.(merger|deepstack_merger_list)"),
    ("vision", r"vision_tower|vision_model|visual\b"),
    ("audio", r"audio_tower"),
    ("projector", r"embed_vision|embed_audio|multi_modal_projector|connector"),
    ("per_layer_embedding", r"embed_tokens_per_layer"),
    ("embedding", r"embed_tokens|word_embeddings|^(model|backbone)\.embeddings"),
    ("lm_head", r"lm_head"),
    ("norm", r"norm(_\d)?\.weight$|norm\.bias$|layer_scalar$|norm_f\.weight$|\.ln_(f|attn|mlp)\.|_hc\.|hc_head\."),
    ("shared_experts", r"shared_expert|shared_mlp"),
    ("router", r"router|(mlp|block_sparse_moe|mixer|feed_forward)\.gate\.|expert_bias|fc\d_latent_proj"),
    ("routed_experts", r"experts|block_sparse_moe\.(input|output)_linear"),
    ("recurrent", r"linear_attn|mamba\.|\.conv\.|mixer\.((in|out|x|dt)_proj|conv1d|A_log|D|dt_bias)"),
    ("attention", r"self_attn|self_attention|mixer\.[qkvo]_proj"),
    (
        "dense_mlp",
        r"mlp|feed_forward|mixer\.(up|down)_proj|\.linear\.weight|per_layer_(input_gate|projection|model_projection)",
    ),
)
"""What a tensor of transformers is for, by its name; the first that matches."""


def _group(name: str) -> str:
    found = next((group for group, pattern in GROUPS if re.search(pattern, name)), None)
    assert found is not None, f"{name} belongs to no group"
    return found


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, Any]]:
    """What transformers says of all models."""
    return count_with_transformers(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_counted_by_group_as_transformers_builds_the_model(
    name: str, counted: dict[str, dict[str, Any]]
) -> None:
    parameters: Counter[str] = Counter()
    for tensor, count in counted[name]["tensors"].items():
        parameters[_group(tensor)] += count
    # What a file holds and no optimiser sees, such as the correction of a router.
    saved: Counter[str] = Counter()
    for buffer, count in counted[name]["buffers"].items():
        saved[_group(buffer)] += count

    facts = read_config(CONFIGS[name], name)
    ours: Counter[str] = Counter()
    for tensor in facts.tensors:
        if tensor.group != "mtp":
            ours[tensor.group] += tensor.params

    assert set(ours) == set(parameters)
    off = {
        group: f"{ours[group]:,} counted, {parameters[group]:,} built and {saved[group]:,} beside them"
        for group in ours
        if not parameters[group] <= ours[group] <= parameters[group] + saved[group]
    }
    assert not off
    assert facts.basis == "config"
    assert facts.total_params + facts.tower_params == sum(ours.values())
    assert facts.tower_params == sum(ours[group] for group in ("vision", "audio", "projector"))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_with_experts_activates_the_chosen_share_of_them(name: str, counted: dict[str, dict[str, Any]]) -> None:
    facts = read_config(CONFIGS[name], name)
    text = CONFIGS[name].get("text_config", CONFIGS[name])
    built: Counter[str] = Counter()
    for tensor, count in counted[name]["tensors"].items():
        built[_group(tensor)] += count
    routed = built["routed_experts"]

    assert (facts.kind == "moe") == (routed > 0)
    if routed:
        experts = next(text[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if text.get(key))
        chosen = text.get("num_experts_per_tok") or text["top_k_experts"]
        # Without the experts left out, and the table that is only looked up.
        assert (
            facts.active_params
            == facts.total_params - built["per_layer_embedding"] - routed + routed * chosen // experts
        )
