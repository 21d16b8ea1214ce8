"""Reads environment variables that change memory: `with_variables` reads the planned ones, and names the others.

Names and defaults are from vllm/envs.py of the releases 0.19 to 0.32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neuroscale.vllm.engine_arguments import EngineArguments
from neuroscale.vllm.unplanned_arguments import Unplanned

ESTIMATE_GRAPHS = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
SECOND_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"

_GRAPHS = "the CUDA graphs that it asks for"
_UNPLANNED = {
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": ("1", "what chunks of a context keep"),
    "VLLM_ALLREDUCE_USE_SYMM_MEM": ("1", "the buffers between ranks"),
    "VLLM_DEEPEP_BUFFER_SIZE_MB": ("1024", "the buffers between ranks"),
    "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": (None, "the buffer of attention"),
    "VLLM_FUSED_MOE_CHUNK_SIZE": (None, "the scratch space of experts"),
    "VLLM_KV_CACHE_LAYOUT": (None, "how the cache is laid out"),
    "VLLM_MLA_DISABLE": ("0", "what latent attention keeps without its own kernels"),
    "VLLM_USE_BREAKABLE_CUDAGRAPH": (None, _GRAPHS),
    "VLLM_USE_FLASHINFER_SAMPLER": (None, "what its sampler takes"),
    "VLLM_USE_NCCL_SYMM_MEM": ("0", "the buffers between ranks"),
    "VLLM_USE_V1": ("1", "what the first engine takes"),
}
"""Each variable with its default (None: the default varies), and the memory that planning does not count."""


def with_variables(arguments: EngineArguments, environment: Mapping[str, str]) -> EngineArguments:
    """The arguments with the settings on memory in the server's environment variables."""
    found = [
        Unplanned(name, what)
        for name, (default, what) in _UNPLANNED.items()
        if name in environment and environment[name] != default
    ]
    switches: dict[str, bool | None] = {}
    for name in (ESTIMATE_GRAPHS, SECOND_RUNNER):
        if name in environment:
            switches[name] = _switch(environment[name])
            if switches[name] is None:
                found.append(Unplanned(name, f"the value {environment[name]!r}, which is neither 0 nor 1"))
    return replace(
        arguments,
        graphs_estimated=switches.get(ESTIMATE_GRAPHS),
        second_runner=switches.get(SECOND_RUNNER),
        unplanned=(*arguments.unplanned, *found),
    )


def _switch(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text.strip())
