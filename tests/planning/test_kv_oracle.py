"""vLLM itself says how many tokens a KV cache holds and what a rank's weights weigh; the planner must say the same.

Real engines of the pinned version are started on the CPU with dummy weights (`start`); sizes and devices that this
machine lacks are planned by vLLM's own functions (`build`: its model without memory behind it, `plan`: layers alone).

They fail if one of these defects is planted alone, also where `make test` asks its sample: a float32 or 8-bit cache
has the wrong width; the vocabulary is not padded; `mlp_only_layers` is ignored; a missing `q_lora_rank` counts as the
hidden size; ranks that share a context each keep all of it; experts are not spread over ranks; a window is one token
longer; KV heads are split beyond their number; overlapping steps count once; a CPU's block is 64 tokens.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from comparisons import KV_CACHE
from neuroscale.models.config import read_config
from neuroscale.models.facts import COMPRESSED, CacheLayers, ModelFacts, Tensor
from neuroscale.planning.fit import Device, Fit, fit, with_draft
from oracle_configs import FULL, TINY
from oracle_drafts import DRAFTS
from vllm_oracle import Answer, Question, ask_vllm

pytestmark = pytest.mark.slow

_MIB = 2**20
_GIB = 2**30
_CPU = Device(name="cpu", title="this machine", family="cpu", memory_gib=1000.0)
_GPU = Device(name="gpu", title="a card that holds everything", family="cuda", memory_gib=10000.0)

_CLOSE = 0.002
"""Small tables of the towers for images and sound, and Falcon-H1's factors, a vector in each layer."""

_NEED_VECTORS = ("FP8 KV cache on CPU requires", "fp8_scaled_mm_cpu op not available")
_PROCESSOR = Path("/proc/cpuinfo").read_text(encoding="utf-8")
_STATES_IN_32_BITS = "avx512_bf16" in _PROCESSOR
"""On processors with AVX-512 for bfloat16, vLLM keeps states in float32, and on others as the model says."""

_BASE = {
    "max_model_len": 1000,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "kv_cache_memory_bytes": 64 * _MIB,
}


def _start(name: str, model: str, changes: dict[str, object] | None = None, **arguments: object) -> Question:
    config = {**TINY[model], **(changes or {})}
    # Where the processor has matrix tiles, vLLM would choose another kernel, with other block sizes.
    latent = {"block_size": 16, "attention_backend": "CPU_MLA"}
    told = {**_BASE, **(latent if model.startswith("deepseek") else {"block_size": 32}), **arguments}
    return Question(name, config, {key: value for key, value in told.items() if value is not None})


def _facts(question: Question) -> ModelFacts:
    facts = read_config(question.config, question.name)
    if question.draft:
        facts = with_draft(facts, read_config(question.draft, "draft"), question.engine_arguments())
    if question.layers:
        return replace(facts, cache=tuple(_layers(*one) for one in question.layers))
    return facts


def _layers(kind: str, count: int, heads: int, size: int, window: int | None) -> CacheLayers:
    if kind in COMPRESSED:
        return CacheLayers(kind, count, 1, size, 0, window, heads)
    return CacheLayers(kind, count, heads, size, size, window)  # type: ignore[arg-type]


def _drafted(name: str, model: str, draft: str, method: str, ranks: int = 1) -> Question:
    """A start with a draft. The tensors that the planner counts are those of an EAGLE-3 head's checkpoint, which vLLM
    loads: it refuses tensors that it does not know, and lacking ones."""
    guessing = {"method": method, "num_speculative_tokens": 2}
    question = _start(name, model, speculative_config=guessing, tensor_parallel_size=ranks)
    question = replace(question, draft=DRAFTS[draft])
    if method != "eagle3":
        return question
    head = _facts(question).draft
    assert head is not None
    return replace(question, tensors={one.name.format(0): _stored(one) for one in head.tensors})


def _stored(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor; the planner counts the numbers of tokens, of 64 bits, as two values each."""
    return tensor.shape[:1] if tensor.name == "d2t" else tensor.shape


def _types(kinds: str) -> dict[str, object]:
    """Layers as letters: s sliding, f full."""
    names = {"s": "sliding_attention", "f": "full_attention"}
    return {"num_hidden_layers": len(kinds), "layer_types": [names[kind] for kind in kinds]}


def _chosen(questions: list[Question], *names: str) -> list[Question]:
    found = [question for question in questions if question.name in names]
    assert len(found) == len(names), f"not all of these are questions: {', '.join(names)}"
    return found


ARCHITECTURES = [_start(model, model) for model in TINY]
_VARIANTS = [
    _start("blocks of the CPU's own size", "llama", block_size=None),
    _start("blocks of 64", "gemma3", block_size=64),
    _start("8-bit cache", "llama", kv_cache_dtype="fp8_e5m2"),
    _start("8-bit cache with windows", "gemma3", kv_cache_dtype="fp8_e4m3"),
    _start("float16", "qwen3", dtype="float16"),
    _start("float32", "gemma2", dtype="float32"),
    _start("gemma2 without the hybrid manager", "gemma2", disable_hybrid_kv_cache_manager=True),
    _start("gemma3 without the hybrid manager", "gemma3", disable_hybrid_kv_cache_manager=True),
    _start("gemma4 without the hybrid manager", "gemma4", disable_hybrid_kv_cache_manager=True),
    _start("gpt_oss without the hybrid manager", "gpt_oss", disable_hybrid_kv_cache_manager=True),
    _start("llama4 without the hybrid manager", "llama4", disable_hybrid_kv_cache_manager=True),
    _start("a context shorter than the window", "gemma3", max_model_len=96),
    _start("a context shorter than the chunk", "llama4", max_model_len=200),
    _start("a context that ends inside a block", "gemma4_shared", max_model_len=1023),
    _start("a step larger than the context", "gpt_oss", max_num_batched_tokens=2048),
    _start("nine windows to two full layers", "gemma3", _types("ssssfssssfs")),
    _start("four windows to three full layers", "gemma3", _types("sfsfsfs")),
    _start("more full layers than windows", "gemma3", _types("ffsfffsf")),
    _start("windows alone", "gemma3", _types("ssss")),
    _start("full layers alone", "gemma3", _types("ffff")),
    _start("a number of blocks", "gemma4", num_gpu_blocks_override=400),
    _start("a number of blocks, full layers alone", "llama", num_gpu_blocks_override=100),
    _start("the longest context that a number of blocks holds", "llama", max_model_len=-1, num_gpu_blocks_override=20),
    _start("prompts in one step", "gemma3", enable_chunked_prefill=False, max_num_batched_tokens=1024),
    _start("a small cache", "gemma4_moe", kv_cache_memory_bytes=3 * _MIB),
    _start("a vocabulary that is no multiple of 64", "llama", {"vocab_size": 500}),
    _start("latent attention without a query rank", "deepseek_v2", {"q_lora_rank": None}),
    _start("dense layers among the experts", "qwen3_moe", {"mlp_only_layers": [1]}),
    _start(
        "states of guessed tokens",
        "qwen3_5",
        {"mtp_num_hidden_layers": 1},
        speculative_config={"method": "mtp", "num_speculative_tokens": 2},
    ),
    _start("states alone with prefix caching", "mamba2", enable_prefix_caching=True),
    _start("states of Mamba-2 alone with prefix caching", "mamba2", enable_prefix_caching=True),
    _start("states alone without --max-model-len", "mamba2", max_model_len=None, max_num_batched_tokens=2048),
    _start("states without prefix caching", "qwen3_5", enable_prefix_caching=False),
    _start("states of Mamba-2 without prefix caching", "nemotron_h", enable_prefix_caching=False),
    _start("states in 16 bits", "qwen3_next", mamba_cache_dtype="bfloat16", mamba_ssm_cache_dtype="bfloat16"),
    _start("blocks of the CPU's own size beside states", "granite_hybrid", block_size=None),
    _start("the longest context that fits, states", "qwen3_5", max_model_len=-1, kv_cache_memory_bytes=_MIB),
    _start("the longest context that fits, full", "llama", max_model_len=-1, kv_cache_memory_bytes=_MIB),
    _start("the longest context that fits, windows", "gemma3", max_model_len=-1, kv_cache_memory_bytes=_MIB),
    _start("the longest context that fits, latent", "deepseek_v3", max_model_len=-1, kv_cache_memory_bytes=8 * _MIB),
]
_DRAFTED = [
    _drafted("an EAGLE head", "llama", "head of the first generation", "eagle"),
    _drafted("an EAGLE-3 head", "llama", "head with fewer tokens", "eagle3"),
    _drafted("an EAGLE-3 head beside windows", "gpt_oss", "head with fewer tokens", "eagle3"),
    _drafted("an EAGLE-3 head of another library", "qwen3", "head of another library", "eagle3"),
    _drafted("a draft model", "llama", "small model", "draft_model"),
    _drafted("a draft model beside states", "qwen3_5", "small model", "draft_model"),
]
APART = _drafted("a draft model whose layers lie in two groups", "gemma3", "small model", "draft_model")
# One question for each option, dtype or key that no other question has; `PLANS` show how layers are grouped.
VARIANTS = KV_CACHE.sample(
    _VARIANTS,
    _chosen(
        _VARIANTS,
        *("blocks of the CPU's own size", "8-bit cache with windows", "float32", "llama4 without the hybrid manager"),
        *("a context that ends inside a block", "a number of blocks", "a vocabulary that is no multiple of 64"),
        *("latent attention without a query rank", "dense layers among the experts"),
        *("states alone with prefix caching", "states alone without --max-model-len"),
        *("the longest context that fits, windows", "states of Mamba-2 without prefix caching"),
        *("states of guessed tokens", "states in 16 bits", "blocks of the CPU's own size beside states"),
        "the longest context that fits, states",
    ),
)
VARIANTS += _DRAFTED
_TWO_PROCESSES = [
    _start("llama on two ranks", "llama", tensor_parallel_size=2),
    _start("experts spread over two ranks", "qwen3_moe", tensor_parallel_size=2, enable_expert_parallel=True),
    _start("latent attention on two ranks", "deepseek_v2", tensor_parallel_size=2),
    _drafted("an EAGLE-3 head on two ranks", "llama", "head with fewer tokens", "eagle3", ranks=2),
]
# The others are built for more ranks below.
TWO_PROCESSES = KV_CACHE.sample(_TWO_PROCESSES, _chosen(_TWO_PROCESSES, "experts spread over two ranks"))
TOO_LONG = [
    _start(
        f"{model} with a request that the cache does not hold", model, max_model_len=4000, kv_cache_memory_bytes=size
    )
    for model, size in (
        ("llama", _MIB),
        ("gemma3", _MIB),
        ("gemma4", 2 * _MIB),
        ("deepseek_v2", 10 * _MIB),
        ("llama4", 2 * _MIB),
        ("gpt_oss", 2 * _MIB),
    )
]


def _build(name: str, model: str, ranks: int, **arguments: object) -> Question:
    config = {**TINY, **FULL}[model]
    positions = config.get("text_config", config).get("max_position_embeddings", 8192)
    told = {
        "max_model_len": min(8192, positions),
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        # The only sizes of kernels for compressed tokens, and of an indexer's.
        "block_size": 256 if "compress_ratios" in config else 64 if "index_topk" in config else 16,
        "tensor_parallel_size": ranks,
        **arguments,
    }
    return Question(name, config, told, "build", memory=40 * _GIB)


def _guessing(tokens: int) -> dict[str, object]:
    """The arguments of multi-token prediction."""
    return {"speculative_config": {"method": "mtp", "num_speculative_tokens": tokens}}


_RANKS = {"Qwen2.5-7B": 4, "gpt-oss-20b": 2}
"""Eight do not divide the 28 heads of the first; of the last, vLLM has no kernel for an eighth of an expert in bf16."""
_FULL_SIZE = [
    *(_build(f"{model} on one card", model, 1) for model in FULL),
    *(_build(f"{model} on {_RANKS.get(model, 8)} cards", model, _RANKS.get(model, 8)) for model in FULL),
    # Not started: vLLM 0.32 ends with a KeyError at the first layer that reads another one's cache.
    _build("gemma-4-E2B without the hybrid manager", "gemma-4-E2B", 1, disable_hybrid_kv_cache_manager=True),
    _build("DeepSeek-V3 in steps that do not overlap", "DeepSeek-V3", 8, async_scheduling=False),
    _build("gpt-oss-20b in steps that do not overlap", "gpt-oss-20b", 1, async_scheduling=False),
    _build("DeepSeek-V3 whose ranks share a context", "DeepSeek-V3", 8, decode_context_parallel_size=8),
    _build("Qwen3.5-27B without prefix caching", "Qwen3.5-27B", 2, enable_prefix_caching=False),
    _build("Qwen3.5-27B with an 8-bit cache", "Qwen3.5-27B", 1, kv_cache_dtype="fp8_e4m3", max_model_len=131072),
    _build("Qwen3-Next-80B-A3B with blocks of 64", "Qwen3-Next-80B-A3B", 1, block_size=64),
    _build("Llama-4-Scout with blocks of 32", "Llama-4-Scout", 8, block_size=32, max_model_len=131072),
    *(
        _build(f"{model} with tokens guessed", model, 8, **_guessing(2))
        for model in ("DeepSeek-V3", "DeepSeek-V3.2", "Qwen3-Next-80B-A3B", "Nemotron-3-Super-120B-A12B")
    ),
    _build("GLM-5.2 with an 8-bit cache", "GLM-5.2", 8, kv_cache_dtype="fp8", max_model_len=131072),
]
# What several cards split, replicate or pad differs from model to model; what one card holds, `ARCHITECTURES` show.
FULL_SIZE = KV_CACHE.sample(
    _FULL_SIZE,
    _chosen(
        _FULL_SIZE,
        *("Qwen2.5-7B on 4 cards", "Qwen3-30B-A3B on 8 cards", "gemma-3-12b on 8 cards", "gemma-4-12B on 8 cards"),
        *("gemma-4-E2B on 8 cards", "DeepSeek-V2-Lite on 8 cards", "gpt-oss-20b on 2 cards"),
        *("granite-3.0-1b-a400m on 8 cards", "gemma-4-E2B without the hybrid manager"),
        *("gpt-oss-20b in steps that do not overlap", "DeepSeek-V3 whose ranks share a context"),
        *("Qwen3-Next-80B-A3B on 8 cards", "Qwen3.5-27B on 8 cards", "Nemotron-3-Super-120B-A12B on 8 cards"),
        "Mamba-Codestral-7B on 8 cards",
        *("DeepSeek-V3.2 on 8 cards", "GLM-5.2 with an 8-bit cache", "DeepSeek-V4-Flash on 8 cards"),
        *("DeepSeek-V3.2 with tokens guessed", "Nemotron-3-Super-120B-A12B with tokens guessed"),
        *("granite-4.0-h-small on 8 cards", "Qwen3.5-27B with an 8-bit cache", "Llama-4-Scout with blocks of 32"),
    ),
)


def _plans(count: int) -> Iterator[Question]:
    """Layers of any kinds in any numbers: what no model has yet, but might."""
    chosen = random.Random(20260)
    for index in range(count):
        kinds: list[tuple[str, int, int, int, int | None]] = []
        # 129 and 1009 are one token more than whole blocks: a window that is off by one takes another block.
        windows = chosen.sample((64, 129, 512, 1009, 2048), 2)
        for kind in chosen.choice((["full"], ["full", "sliding"], ["full", "sliding", "sliding"], ["full", "chunked"])):
            window = None if kind == "full" else windows.pop()
            heads, size = chosen.choice((1, 2, 4, 8)), chosen.choice((64, 80, 96, 128, 256))
            kinds.append((kind, chosen.randint(1, 12), heads, size, window))
        arguments = {
            "max_model_len": chosen.choice((100, 1000, 1024, 4000)),
            "max_num_batched_tokens": chosen.choice((256, 512, 2048)),
            "max_num_seqs": 4,
            "block_size": chosen.choice((16, 32, 64)),
            "async_scheduling": chosen.random() < 0.5,
            "disable_hybrid_kv_cache_manager": chosen.random() < 0.2,
        }
        memory = chosen.choice((100, 1000, 4000)) * _MIB
        yield Question(f"layers of any kinds {index}", TINY["llama"], arguments, "plan", memory=memory, layers=kinds)


def _compressed(windows: int, fours: int, long: int) -> list[tuple[str, int, int, int, int | None]]:
    """The caches of DeepSeek V4 with so many layers of a window alone, of the ratio 4, and of the ratio 128."""
    found = [
        ("latent_window", windows + fours + long, 1, 512, 128),
        ("compressed", fours, 4, 512, None),
        ("compressed_indexer", fours, 4, 128, None),
        ("compressor", fours, 4, 512, 8),
        ("compressor", fours, 4, 128, 8),
        ("compressed", long, 128, 512, None),
        ("compressor", long, 128, 512, 128),
    ]
    return [one for one in found if one[1]]


def _packed() -> Iterator[Question]:
    """Layers of compressed tokens: DeepSeek V4 Flash, as many as a larger one may have, and unequal numbers."""
    for number, counts in enumerate(((2, 21, 20), (2, 30, 29), (0, 5, 5), (7, 3, 0), (1, 2, 9), (0, 1, 1))):
        arguments = {
            "max_model_len": (1000, 30_000)[number % 2],
            "max_num_batched_tokens": (256, 8192)[number % 2],
            "max_num_seqs": 4,
            "block_size": 256,
            "async_scheduling": number % 3 == 0,
        }
        told = "compressed layers {} + {} + {}".format(*counts)
        config = {**TINY["llama"], "max_position_embeddings": 40_000}
        yield Question(told, config, arguments, "plan", memory=20_000 * _MIB, layers=_compressed(*counts))


PLANS = [*_plans(200), *_packed()]


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """What vLLM says, all in one process, one import of vLLM for all."""
    return ask_vllm([*ARCHITECTURES, *VARIANTS, *TWO_PROCESSES, *TOO_LONG, APART, *FULL_SIZE, *PLANS])


def _planned(question: Question) -> Fit:
    device = _CPU if question.how == "start" else _GPU
    return fit(_facts(question), device, question.engine_arguments())


def _started(question: Question, answers: dict[str, Answer]) -> Answer:
    """What vLLM says of an engine that must start; skips what this processor cannot do."""
    said = answers[question.name]
    if "avx512f" not in _PROCESSOR and any(need in said.error for need in _NEED_VECTORS):
        pytest.skip(said.error)
    assert not said.error
    return said


def _named(questions: list[Question]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("question", questions, ids=lambda question: question.name)


@_named([*ARCHITECTURES, *VARIANTS, *TWO_PROCESSES])
def test_the_planned_kv_tokens_and_requests_are_those_that_vllm_prints(
    question: Question, answers: dict[str, Answer]
) -> None:
    said = _started(question, answers)
    told = "\n".join(said.printed)
    printed = re.search(r"KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens.*: ([\d.]+)x", told)
    assert printed is not None, told
    tokens, length, requests = (text.replace(",", "") for text in printed.groups())

    planned = _planned(question)

    assert planned.max_model_len == int(length)
    assert planned.verdict != "refused"
    if _facts(question).states and not _STATES_IN_32_BITS:
        # The plan is made for any processor, and so never expects less of its memory to be taken.
        assert planned.kv_cache_tokens <= int(tokens)
        assert float(f"{planned.max_concurrency:.2f}") <= float(requests)
    else:
        assert planned.kv_cache_tokens == int(tokens)
        assert f"{planned.max_concurrency:.2f}" == requests


@_named([*ARCHITECTURES, *VARIANTS, *TWO_PROCESSES])
def test_the_planned_weights_are_the_bytes_that_every_rank_of_a_started_vllm_holds(
    question: Question, answers: dict[str, Answer]
) -> None:
    held = _started(question, answers).held
    assert len(held) == question.arguments.get("tensor_parallel_size", 1)
    planned = _planned(question)
    weights = sum(planned.weights_gib.values()) * _GIB

    for rank in held:
        assert weights == pytest.approx(sum(rank), rel=_CLOSE)


@_named(TOO_LONG)
def test_a_request_that_vllm_refuses_is_refused_with_vllms_own_longest_context(
    question: Question, answers: dict[str, Answer]
) -> None:
    error = answers[question.name].error
    longest = re.search(r"the estimated maximum model length is (\d+)", error)
    assert longest is not None, error

    planned = _planned(question)

    assert (planned.verdict, planned.kv_cache_tokens) == ("refused", 0)
    assert planned.max_context == int(longest[1])


def test_a_draft_whose_layers_lie_in_several_groups_is_refused_as_vllm_refuses_it(answers: dict[str, Answer]) -> None:
    assert "All drafting layers should belong to the same kv cache group" in answers[APART.name].error
    planned = _planned(APART)
    assert planned.verdict == "refused"
    assert "several groups of the KV cache" in planned.reasons[0]


@_named(FULL_SIZE)
def test_a_published_model_has_the_kv_tokens_and_weights_that_vllm_builds_it_with(
    question: Question, answers: dict[str, Answer]
) -> None:
    said = _started(question, answers)

    planned = _planned(question)

    assert (planned.kv_cache_tokens, f"{planned.max_concurrency:.4f}") == (said.tokens, f"{said.concurrency:.4f}")
    weights = sum(planned.weights_gib.values()) * _GIB
    # Small tables of the towers.
    assert weights == pytest.approx(sum(said.held[0]), rel=_CLOSE)


@_named(PLANS)
def test_layers_of_any_kinds_are_grouped_as_vllm_groups_them(question: Question, answers: dict[str, Answer]) -> None:
    said = answers[question.name]
    planned = _planned(question)

    assert (planned.verdict == "refused") == bool(said.error), said.error
    assert (planned.kv_cache_tokens, f"{planned.max_concurrency:.6f}") == (said.tokens, f"{said.concurrency:.6f}")


def test_every_family_is_started_and_most_have_windows_or_experts() -> None:
    # The tests above prove little where their questions are few.
    assert len(ARCHITECTURES) >= 17
    everything = (*ARCHITECTURES, *_VARIANTS, *_TWO_PROCESSES, *TOO_LONG, *_FULL_SIZE)
    assert len({question.name for question in everything}) > 80
