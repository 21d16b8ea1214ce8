"""Finds a model's family by its name and type: its heading in the form, and vLLM's parsers for its output.

The parsers are those of vLLM's recipes (github:vllm-project/recipes, models/, read on 2026-08-21) and of vLLM 0.32's
documents on tool calling and reasoning outputs. A model outside this table gets no parsers, and its entry says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RECIPES = "github:vllm-project/recipes, models/ (read on 2026-08-21), by family"
UNKNOWN = "not known here: vLLM's recipes name no parser for this family"


@dataclass(frozen=True)
class Parsers:
    """The names of vLLM's parsers; None if vLLM cannot separate the model's tool calls (or its reasoning)."""

    tool_call: str | None
    reasoning: str | None


@dataclass(frozen=True)
class _Row:
    """A row. `types`: beginnings of model types. `name`: an expression to find in the name, in upper or lower case."""

    types: tuple[str, ...]
    name: str
    parsers: Parsers


def _row(types: str, name: str, tool_call: str | None, reasoning: str | None) -> _Row:
    return _Row(tuple(types.split()), name, Parsers(tool_call, reasoning))


_ROWS = (
    # The first row that matches decides.
    _row("qwen2 llama", "r1-distill", None, "deepseek_r1"),
    _row("deepseek_v32", "", "deepseek_v32", "deepseek_v3"),
    _row("deepseek_v4", "", "deepseek_v4", "deepseek_v4"),
    _row("deepseek_v3", "kimi.*thinking", "kimi_k2", "kimi_k2"),
    _row("deepseek_v3", "kimi", "kimi_k2", None),
    _row("deepseek_v3", "r1", "deepseek_v3", "deepseek_r1"),
    _row("deepseek_v3", "v3\\.1", "deepseek_v31", "deepseek_v3"),
    _row("deepseek_v3", "v3", "deepseek_v3", None),
    _row("ernie4_5", "", None, None),
    _row("gemma4", "", "gemma4", "gemma4"),
    _row("glm4_moe glm4v_moe", "4\\.7", "glm47", "glm45"),
    _row("glm4_moe glm4v_moe", "", "glm45", "glm45"),
    _row("glm_moe_dsa", "", "glm47", "glm45"),
    _row("gpt_oss", "", "openai", None),
    _row("granite", "instruct", "granite", None),
    _row("hunyuan", "instruct", "hunyuan_a13b", "hunyuan_a13b"),
    _row("kimi_k2 kimi_k25", "thinking|k2\\.[5-9]", "kimi_k2", "kimi_k2"),
    _row("kimi_k2", "", "kimi_k2", None),
    _row("laguna", "", "poolside_v1", "poolside_v1"),
    _row("lfm2", "thinking", "lfm2", "qwen3"),
    _row("lfm2", "instruct|8b-a1b", "lfm2", None),
    _row("llama4", "instruct", "llama4_pythonic", None),
    _row("llama", "llama-3\\.[123].*instruct", "llama3_json", None),
    _row("minimax_m2", "", "minimax_m2", "minimax_m2"),
    _row("ministral3 mistral mistral3", "reasoning", "mistral", "mistral"),
    _row("ministral3 mistral mistral3", "ministral-3|mistral-small-[34]|mistral-nemo|mistral-large", "mistral", None),
    _row("nemotron_h", "nemotron-3", "qwen3_coder", "nemotron_v3"),
    _row("olmo3", "think", "olmo3", "olmo3"),
    _row("olmo3", "instruct", "olmo3", None),
    _row("phi3", "phi-4-mini-instruct", "phi4_mini_json", None),
    _row("qwen2", "qwen2\\.5.*instruct|kimi-dev", "hermes", None),
    _row("qwen2", "qwq", "hermes", "deepseek_r1"),
    _row("qwen3_5", "", "qwen3_coder", "qwen3"),
    _row("qwen3", "coder", "qwen3_coder", None),
    _row("qwen3", "base|embedding|reranker|guard", None, None),
    _row("qwen3", "thinking", "hermes", "qwen3"),
    _row("qwen3", "instruct", "hermes", None),
    _row("qwen3", "", "hermes", "qwen3"),
    _row("seed_oss", "", "seed_oss", "seed_oss"),
    _row("step3p5", "", "step3p5", "step3p5"),
)


def parsers_of(name: str, *model_types: str) -> Parsers | None:
    """The parsers of a model by its name and model types (its own, and its language model's); None if unknown."""
    for row in _ROWS:
        if any(one.startswith(row.types) for one in model_types) and re.search(row.name, name, re.IGNORECASE):
            return row.parsers
    return None


TRIAL = "For trying it out"
_HEADINGS = (
    # An expression for the beginning of the name (without its owner), and the heading.
    ("deepseek-r1-distill", "DeepSeek R1 Distill"),
    ("deepseek-r1", "DeepSeek R1"),
    ("deepseek-v2", "DeepSeek V2"),
    ("deepseek-v3", "DeepSeek V3"),
    ("deepseek-v4", "DeepSeek V4"),
    ("gemma-([234])", "Gemma {}"),
    ("glm-([45])", "GLM-{}"),
    ("gpt-oss", "gpt-oss"),
    ("granite-([34])", "Granite {}"),
    ("kimi-k2", "Kimi K2"),
    ("laguna", "Laguna"),
    ("(?:meta-)?llama-([234])", "Llama {}"),
    ("minimax-m([23])", "MiniMax M{}"),
    ("ministral-3", "Ministral 3"),
    ("mistral-small", "Mistral Small"),
    ("mixtral", "Mixtral"),
    ("(?:nvidia-)?nemotron-3", "Nemotron 3"),
    ("olmo-?([23])", "OLMo {}"),
    ("phi-([34])", "Phi-{}"),
    (r"qwen(2\.5|2|3\.5|3\.6|3\.8|3)", "Qwen{}"),
    ("tiny-", TRIAL),
)


def heading_of(name: str) -> str:
    """The family by a model's name; else the model's owner; else "Other"."""
    owner, _, last = name.rpartition("/")
    for expression, heading in _HEADINGS:
        if found := re.match(expression, last, re.IGNORECASE):
            return heading.format(*found.groups())
    return owner or "Other"
