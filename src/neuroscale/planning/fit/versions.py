"""Says how versions of vLLM differ in their use of memory: one table, read from the releases' own source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from neuroscale.core.releases import release

PINNED = "0.32.0"
"""The version that this repository renders for."""

MEASURED = (0, 29, 99)
"""The newest version with measured starts on accelerators; later versions were only read from their source."""

MEASURED_SECOND = (0, 28, 0)
"""The oldest version with measured starts under the second model runner."""

STATES = (0, 20, 0)
"""The oldest release whose source keeps the states of linear attention as the pinned one does: `MambaSpec`
(v1/kv_cache_interface.py) and `_align_hybrid_block_size` (platforms/interface.py) of 0.20.0, 0.23.0, 0.28.0 and 0.32.0.
"""

Sampler = Literal["sorted", "filtered"]
"""How the first model runner picks tokens: by sorting all logits, or by kernels that filter them."""

Runner = Literal["first", "second"]
"""vLLM's model runners. The second profiles its sampler with little memory, but keeps counts of all tokens for each
request."""


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of one version, as far as measured starts or the releases since 0.18 need it."""

    utilization: float = 0.9  # the default of --gpu-memory-utilization
    # 'GPU KV cache size' is the number of requests times their length; before, blocks // groups x block size.
    tokens_by_concurrency: bool = False
    # vLLM subtracts its estimate of CUDA graphs before it sizes the cache; before, they came on top.
    graphs_counted: bool = False
    graphs_switch: bool = False  # a variable decides that
    rocm_graphs_counted: bool = False
    # Under the second runner, too, which counted them as 0 (vllm-project/vllm#49224, mended by #53306).
    second_graphs_counted: bool = False
    steps_in_flight: int = 1  # steps whose tokens a windowed layer reserves under asynchronous scheduling
    spare_block: bool = False  # the block that is never used counts when one request must fit
    padding_ratio: float | None = None  # below it, the kinds of layers are padded to the largest (None: never)
    # Pages of windowed layers that do not divide the largest are padded; before, such models were refused.
    windows_padded: bool = False
    # Layers with windows have blocks of this many tokens, whatever --block-size says (`_largest_kernel_block_within` of
    # model_executor/layers/attention/attention.py); None: as many as the others.
    window_block: int | None = None
    # A block beside states that are kept at blocks' ends must fit into a step ('Mamba cache align mode' of
    # config/vllm.py).
    block_in_step: bool = False
    # Prefixes are cached by default beside states, too: starts of 0.19 and 0.23 print the tokens of one state a
    # request, and those of 0.24 and 0.27 the tokens of two (tests/ground_truth).
    prefixes_of_states: bool = False
    huge_card_gib: float | None = None  # from that memory on 16,384 tokens a step
    # Tokens a step grow to hold a whole image or video if attention is bidirectional inside it (Gemma).
    image_in_one_step: bool = False
    sampler: Sampler = "sorted"
    second_runner: frozenset[str] = frozenset()  # kinds of models for which the second runner is the default
    second_architectures: frozenset[str] = frozenset()  # architectures with experts for which it is, too
    # The compiler tries kernels on copies of their inputs: `benchmark_combo_kernel` of config/compilation.py, with
    # PyTorch 2.13. Starts with PyTorch 2.9 to 2.11 do not show it (tests/ground_truth).
    copies_inputs: bool = False
    process_gib: float = 0.13  # non-torch memory of a process
    # All that a process took of the free memory counts (`total_consumed` of utils/mem_utils.py), on every card.
    consumed_counted: bool = False
    # Marlin's kernels for experts take their scratch space from vLLM's, and data parallelism gathers all ranks' tokens.
    marlin_buffers: bool = False
    fabric_gib: float | None = None  # collectives over a switched fabric (None: by the number of ranks)
    expert_buffers_stay: bool = False  # scratch space of experts outlives the step, so the sampler's is extra
    buffers_counted: bool = False  # the runner's lasting buffers are subtracted before the cache gets its size
    one_line: bool = False  # 'GPU KV cache size' and 'Maximum concurrency' are one line of the log
    # The longest context of a file with YaRN is its original positions times the factor, whatever else it says.
    yarn_multiplied: bool = True
    # CUDA graphs need a block for a state of each of --max-num-seqs (#38270); 0.18 and 0.19 leave out graphs that are
    # too large (#34571).
    blocks_for_all_states: bool = False
    # Prefix caching keeps a state of Mamba at the end of each block of a request; since then, at the last ones alone
    # (`MambaModelConfig` of 0.23.0 and 0.28.0).
    state_each_block: bool = True


_SECOND = frozenset({"DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "Qwen2MoeForCausalLM"})
"""DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES of config/vllm.py in 0.25 to 0.28, as far as they are planned."""

_CHANGES: tuple[tuple[str, dict[str, object]], ...] = (
    ("0.12.0", {"padding_ratio": 1.25}),
    ("0.13.0", {"expert_buffers_stay": True}),
    ("0.17.0", {"sampler": "filtered"}),
    (
        "0.18.0",
        {
            "graphs_switch": True,
            "padding_ratio": 1.5,
            "process_gib": 0.25,
            "fabric_gib": 1.85,
            "block_in_step": True,
        },
    ),
    ("0.19.0", {"marlin_buffers": True}),
    ("0.20.0", {"utilization": 0.92, "graphs_counted": True, "blocks_for_all_states": True}),
    ("0.20.1", {"tokens_by_concurrency": True}),
    ("0.21.0", {"rocm_graphs_counted": True}),
    ("0.22.0", {"image_in_one_step": True}),
    ("0.23.0", {"second_runner": frozenset({"plain"})}),
    ("0.24.0", {"windows_padded": True, "prefixes_of_states": True}),
    (
        "0.25.0",
        {"second_runner": frozenset({"plain", "dense"}), "second_architectures": _SECOND, "window_block": 16},
    ),
    ("0.26.0", {"steps_in_flight": 2}),
    (
        "0.27.0",
        {"buffers_counted": True, "consumed_counted": True, "copies_inputs": True, "block_in_step": False},
    ),
    ("0.28.0", {"huge_card_gib": 160.0, "one_line": True, "state_each_block": False}),
    (
        "0.29.0",
        {"spare_block": True, "second_graphs_counted": True, "second_runner": frozenset({"plain", "dense", "moe"})},
    ),
    ("0.30.0", {"yarn_multiplied": False, "window_block": None}),
)
"""The changes by the release that brought them. Sources: vllm/config, engine/arg_utils.py, v1/core/kv_cache_utils.py,
v1/kv_cache_interface.py, v1/worker/gpu_worker.py and v1/sample/ops of the releases 0.12.0 to 0.32.0."""


@lru_cache(maxsize=128)
def behaviour(version: str) -> Behaviour:
    """The behaviour of a version; versions newer than the table count as the newest in it. Raises ValueError for a text
    that is not a version."""
    does = Behaviour()
    for since, change in _CHANGES:
        if release(since) <= release(version):
            does = replace(does, **change)  # type: ignore[arg-type]
    return does
