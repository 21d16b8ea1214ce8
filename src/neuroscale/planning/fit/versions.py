"""Says how versions of vLLM differ in their use of memory: one table, read from the releases' own source."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

PINNED = "0.32.0"
"""The version that this repository renders for."""

MEASURED = (0, 27, 99)
"""The newest version with measured starts on accelerators; later versions were only read from their source."""

STATES = (0, 20, 0)
"""The oldest release whose source keeps the states of linear attention as the pinned one does: `MambaSpec`
(v1/kv_cache_interface.py) and `_align_hybrid_block_size` (platforms/interface.py) of 0.20.0, 0.23.0, 0.28.0 and 0.32.0.
"""

OLDEST = (0, 8, 0)
"""The oldest release whose source was read. Older ones had another engine, of which a few starts are known."""

Sampler = Literal["sorted", "filtered"]
"""How the first model runner picks tokens: by sorting all logits, or by kernels that filter them."""

Runner = Literal["first", "second"]
"""vLLM's model runners. The second profiles its sampler with little memory, but keeps counts of all tokens for each
request."""


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of one version.

    `utilization`: the default of --gpu-memory-utilization. `tokens_by_concurrency`: 'GPU KV cache size' is the number
    of requests times their length; before, blocks // groups x block size. `graphs_counted`: vLLM estimates CUDA graphs
    and subtracts them before it sizes the cache; before, they came on top; `graphs_switch`: a variable decides that;
    `rocm_graphs_counted`: on ROCm, too;
    `lora_graphs`: how often each graph is captured with LoRA adapters (cudagraph_specialize_lora: with any, and none);
    `lora_of_experts`: LoRA adapters may have matrices for experts (FusedMoEWithLoRA), which take memory in any case.
    `second_graphs_counted`: under the second runner, too, which counted them as 0 before (vllm-project/vllm#49224,
    mended by #53306). `steps_in_flight`: how many steps' tokens a windowed layer reserves under asynchronous
    scheduling. `spare_block`: the block that is never used counts when one request must fit. `padding_ratio`: below
    this ratio, the kinds of layers are padded to the largest (None: never).
    `every_card_sequences`: requests of a step on every card (vllm-project/vllm#16158 ended that). `large_by_name`: the
    H100 and the H200, and no other card, count as large, whatever their memory. `others_counted`: vLLM also subtracts
    the memory of other programs and the driver from its share.
    `large_card_gib`: from that memory on 8,192 tokens a step and 1,024 requests; `a100_is_small`: but not on an A100;
    `huge_card_gib`: from that memory on 16,384. `image_in_one_step`: tokens a step grow to hold a whole image or video
    if attention is bidirectional inside it (Gemma). `windows_padded`: pages of windowed layers that do not divide
    the largest are padded; before, such models were refused. `prefixes_of_states`: prefixes are cached by default
    beside states, too, so that a request holds more of them: starts of 0.19 and 0.23 print the tokens of one state a
    request, and those of 0.24 and 0.27 the tokens of two (tests/ground_truth). `chunked_hybrid`: layers with chunks
    free older chunks.
    `cpu_sequences`: requests at once on a CPU. `second_runner`: the models for which the second runner is the default;
    `second_architectures`: the architectures with experts for which it is, too.
    `process_gib`: non-torch memory of a process. `fabric_gib`: memory of collectives over a switched fabric (None: by
    the number of ranks). `expert_buffers_stay`: scratch space of experts outlives the step, so the sampler's is extra.
    `buffers_counted`: vLLM subtracts the runner's lasting buffers before it sizes the cache; before, they came on top.
    `states_at_once`: the requests that need a block for a state each before CUDA graphs are captured: as many as the
    largest graph holds, or all of --max-num-seqs (None: any number of blocks does). Starts of 0.15.0 and 0.17.0 end
    with 'assert num_cache_lines >= batch' (QwenLM/Qwen3-Coder#559, vllm-project/vllm#36324); from 0.18.0 on vLLM leaves
    out graphs that are too large (#34571), and from 0.20.0 on it refuses too few blocks (#38270).
    `state_each_block`: prefix caching keeps a state of Mamba at the end of each block of a request; since then, at the
    last ones alone (`MambaModelConfig` of 0.23.0 and 0.28.0).
    `checkpoint_cache`: methods of quantisation whose checkpoints set the default dtype of the KV cache.
    `yarn_multiplied`: the longest context of a file with YaRN is its original positions times the factor, whatever else
    the file says.
    `video_profiled`: the profiling run may try a video as long as the context; before, only as long as a step.
    `converts`: how --quantization=fp8 converts a checkpoint in 16 bits: all of it once it is loaded, or as it loads,
    with or without the 16 bits beside it until the end.
    `one_line`: 'GPU KV cache size' and 'Maximum concurrency' are one line of the log.
    """

    engine: Literal["v0", "v1"] = "v0"
    utilization: float = 0.9
    tokens_by_concurrency: bool = False
    graphs_counted: bool = False
    lora_graphs: int = 1
    lora_of_experts: bool = False
    video_profiled: bool = False
    converts: Literal["at the end", "beside", "layer by layer"] = "at the end"
    graphs_switch: bool = False
    rocm_graphs_counted: bool = False
    second_graphs_counted: bool = False
    async_scheduling: bool = False
    steps_in_flight: int = 1
    spare_block: bool = False
    hybrid: bool = False
    padding_ratio: float | None = None
    windows_padded: bool = False
    prefixes_of_states: bool = False
    chunked_hybrid: bool = False
    every_card_sequences: int | None = None
    large_by_name: bool = False
    others_counted: bool = False
    large_card_gib: float | None = None
    a100_is_small: bool = False
    huge_card_gib: float | None = None
    image_in_one_step: bool = False
    cpu_sequences: int = 256
    sampler: Sampler = "sorted"
    second_runner: frozenset[str] = frozenset()
    second_architectures: frozenset[str] = frozenset()
    process_gib: float = 0.13
    fabric_gib: float | None = None
    expert_buffers_stay: bool = False
    buffers_counted: bool = False
    one_line: bool = False
    yarn_multiplied: bool = True
    states_at_once: Literal["graph", "all"] | None = None
    state_each_block: bool = True
    checkpoint_cache: frozenset[str] = frozenset()


_SECOND = frozenset({"DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "Qwen2MoeForCausalLM"})
"""DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES of config/vllm.py in 0.25 to 0.28, as far as they are planned."""

_CHANGES: tuple[tuple[str, dict[str, object]], ...] = (
    ("0.8.0", {"engine": "v1", "large_by_name": True, "every_card_sequences": 1024, "others_counted": True}),
    ("0.8.4", {"every_card_sequences": None}),
    ("0.8.5", {"large_by_name": False, "large_card_gib": 70.0}),
    ("0.9.0", {"a100_is_small": True, "hybrid": True, "cpu_sequences": 32}),
    ("0.9.1", {"others_counted": False}),
    ("0.10.0", {"cpu_sequences": 128}),
    ("0.11.0", {"video_profiled": True, "states_at_once": "graph"}),
    ("0.11.1", {"lora_graphs": 2, "lora_of_experts": True}),
    ("0.12.0", {"padding_ratio": 1.25}),
    ("0.13.0", {"expert_buffers_stay": True, "converts": "beside"}),
    ("0.14.0", {"async_scheduling": True, "chunked_hybrid": True, "checkpoint_cache": frozenset({"modelopt"})}),
    ("0.15.0", {"checkpoint_cache": frozenset({"modelopt", "compressed-tensors"})}),
    ("0.16.0", {"converts": "layer by layer"}),
    ("0.17.0", {"sampler": "filtered"}),
    (
        "0.18.0",
        {
            "graphs_switch": True,
            "padding_ratio": 1.5,
            "process_gib": 0.25,
            "fabric_gib": 1.85,
            "states_at_once": None,
        },
    ),
    ("0.20.0", {"utilization": 0.92, "graphs_counted": True, "states_at_once": "all"}),
    ("0.20.1", {"tokens_by_concurrency": True}),
    ("0.21.0", {"rocm_graphs_counted": True}),
    ("0.22.0", {"image_in_one_step": True}),
    ("0.23.0", {"second_runner": frozenset({"plain"})}),
    ("0.24.0", {"windows_padded": True, "prefixes_of_states": True}),
    ("0.25.0", {"second_runner": frozenset({"plain", "dense"}), "second_architectures": _SECOND}),
    ("0.26.0", {"steps_in_flight": 2}),
    ("0.27.0", {"buffers_counted": True}),
    ("0.28.0", {"huge_card_gib": 160.0, "one_line": True, "state_each_block": False}),
    (
        "0.29.0",
        {"spare_block": True, "second_graphs_counted": True, "second_runner": frozenset({"plain", "dense", "moe"})},
    ),
    ("0.30.0", {"yarn_multiplied": False}),
)
"""The changes by the release that brought them. Sources: vllm/config, engine/arg_utils.py, v1/core/kv_cache_utils.py,
v1/kv_cache_interface.py, v1/worker/gpu_worker.py and v1/sample/ops of the releases 0.8.2 to 0.32.0."""


def number(version: str) -> tuple[int, int, int]:
    """The release of a version's text: '0.19.2rc1.dev134+g0' is (0, 19, 2). Raises ValueError for other texts."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise ValueError(version)
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch or 0)


@lru_cache(maxsize=128)
def behaviour(version: str) -> Behaviour:
    """The behaviour of a version; versions newer than the table count as the newest in it.

    Raises ValueError for a text that is not a version.
    """
    asked = number(version)
    does = Behaviour()
    for since, change in _CHANGES:
        if number(since) <= asked:
            does = replace(does, **change)  # type: ignore[arg-type]
    return does
