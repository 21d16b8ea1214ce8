"""Counts the ranks that a command of vLLM runs: in one replica, in one pod, and in all pods of a server."""

from __future__ import annotations

from neuroscale.vllm.arguments import Parsed

_EACH_POD = frozenset(
    {
        "nnodes",
        "data_parallel_size_local",
        "data_parallel_rank",
        "data_parallel_start_rank",
        "data_parallel_hybrid_lb",
        "data_parallel_external_lb",
        "headless",
    }
)
"""Arguments that show that each pod of a server has a command of its own."""


def world_size(parsed: Parsed) -> int:
    """The accelerators of one server in all its pods: ranks of tensor, pipeline and context parallelism, times the
    ranks of data parallelism."""
    return pod_ranks(parsed) * positive_number(parsed, "nnodes", 1)


def pod_ranks(parsed: Parsed) -> int:
    """The ranks that the command runs in one pod, for all replicas in it."""
    return ranks(parsed) * local_data_parallel(parsed)


def ranks(parsed: Parsed) -> int:
    """The ranks of one replica inside a server that one pod (or node) holds."""
    read = parsed.arguments
    whole = (
        read.tensor_parallel_size
        * read.pipeline_parallel_size
        * positive_number(parsed, "prefill_context_parallel_size", 1)
    )
    return max(whole // positive_number(parsed, "nnodes", 1), 1)


def local_data_parallel(parsed: Parsed) -> int:
    """The number of data-parallel replicas in one pod."""
    if "data_parallel_rank" in parsed.values:
        return 1
    return positive_number(parsed, "data_parallel_size_local", 0) or parsed.arguments.data_parallel_size


def reaches_all_pods(parsed: Parsed) -> bool:
    """Whether one command runs in all pods of its server, if the server has several."""
    return not _EACH_POD & set(parsed.values)


def positive_number(parsed: Parsed, dest: str, default: int) -> int:
    """The value of an argument by vLLM's own name; `default` if it is not set, or not a number above 0."""
    value = parsed.values.get(dest)
    return value if isinstance(value, int) and value > 0 else default
