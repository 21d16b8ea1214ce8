"""Lists the parsers of tool calls and of reasoning that read the format of only one family of models.

They are parsers that vLLM 0.32 (vllm/tool_parsers, vllm/reasoning) names for one family. Parsers outside the list
(hermes, pythonic, hf, xlam, deepseek_r1 and others) read the format of many families, or of fine-tunes of them.
"""

from __future__ import annotations

from collections.abc import Mapping

_TOOLS: Mapping[str, tuple[str, ...]] = {
    "apertus": ("apertus",),
    "cohere_command3": ("cohere",),
    "cohere_command4": ("cohere",),
    "deepseek_v3": ("deepseek_v3",),
    "deepseek_v31": ("deepseek_v3",),
    "deepseek_v32": ("deepseek_v3", "deepseek_v32"),
    "ernie45": ("ernie4_5",),
    "functiongemma": ("gemma3",),
    "gemma4": ("gemma4",),
    "glm45": ("glm4_moe", "glm4v_moe"),
    "glm47": ("glm4_moe", "glm4v_moe"),
    "granite": ("granite",),
    "granite-20b-fc": ("gpt_bigcode", "granite"),
    "granite4": ("granite",),
    "hunyuan_a13b": ("hunyuan",),
    "internlm": ("internlm",),
    "jamba": ("jamba",),
    "kimi_k2": ("deepseek_v3", "kimi_k2"),
    "llama3_json": ("llama", "mllama"),
    "llama4_json": ("llama", "mllama"),
    "llama4_pythonic": ("llama4",),
    "minimax_m2": ("minimax_m2",),
    "mistral": ("mistral", "mixtral", "ministral", "pixtral", "llama"),
    "olmo3": ("olmo",),
    "openai": ("gpt_oss",),
    "phi4_mini_json": ("phi",),
    "qwen3_coder": ("qwen3",),
    "qwen3_xml": ("qwen3",),
    "seed_oss": ("seed_oss",),
}
_REASONING: Mapping[str, tuple[str, ...]] = {
    "cohere_command3": ("cohere",),
    "cohere_command4": ("cohere",),
    "ernie45": ("ernie4_5",),
    "gemma4": ("gemma4",),
    "glm45": ("glm4",),
    "glm47": ("glm4",),
    "granite": ("granite",),
    "hunyuan_a13b": ("hunyuan",),
    "kimi_k2": ("deepseek_v3", "kimi_k2"),
    "minimax_m2": ("minimax_m2",),
    "minimax_m2_append_think": ("minimax_m2",),
    "mistral": ("mistral", "mixtral", "ministral", "pixtral", "llama"),
    "olmo3": ("olmo",),
    "openai_gptoss": ("gpt_oss",),
    "qwen3": ("qwen",),
    "seed_oss": ("seed_oss",),
}


def tools_of(parser: str) -> tuple[str, ...]:
    """The beginnings of the model types whose tool calls a parser reads; () for a parser of many families."""
    return _TOOLS.get(parser, ())


def reasoning_of(parser: str) -> tuple[str, ...]:
    """The beginnings of the model types whose reasoning a parser reads; () for a parser of many families."""
    return _REASONING.get(parser, ())
