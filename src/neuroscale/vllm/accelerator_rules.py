"""Finds faults of a command of vLLM on the accelerators of its pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from neuroscale.catalog import Accelerator, ModelEntry
from neuroscale.models.facts import ModelFacts
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command_faults import Fault
from neuroscale.vllm.parallel_sizes import pod_ranks, reaches_all_pods

TOPOLOGY = "cloud.google.com/gke-tpu-topology"


@dataclass(frozen=True)
class Place:
    """Where a command runs: the accelerator, its number in a pod, and the number of such pods of one server."""

    accelerator: Accelerator
    count: int
    pods: int = 1


def check_accelerator(parsed: Parsed, place: Place) -> Iterator[Fault]:
    """The faults of the KV cache's dtype and of the number of accelerators."""
    accelerator = place.accelerator
    dtype = parsed.arguments.kv_cache_dtype
    known = set(accelerator.kv_cache_dtypes)
    if dtype.startswith("fp8") and "fp8" not in known:
        yield Fault(
            "kv-cache-dtype",
            "kv_cache_dtype",
            f"--kv-cache-dtype={dtype}: {accelerator.title} keeps no KV cache in fp8",
            "Remove --kv-cache-dtype, or choose an accelerator that does.",
        )
    elif not dtype.startswith("fp8") and dtype not in ("auto", "bfloat16", "float16"):
        yield Fault(
            "kv-cache-dtype",
            "kv_cache_dtype",
            f"--kv-cache-dtype={dtype}: whether {accelerator.title} can keep that is not known to the catalog",
            "Write auto or fp8, or measure it first.",
            refused=False,
        )
    if accelerator.family == "cpu":
        return
    yield from _count(parsed, place)


def _count(parsed: Parsed, place: Place) -> Iterator[Fault]:
    accelerator = place.accelerator
    used, there = pod_ranks(parsed), place.count
    if reaches_all_pods(parsed):
        there *= place.pods
    topology = accelerator.node_selector.get(TOPOLOGY, "")
    chips = prod(int(part) for part in topology.split("x")) if topology else 0
    size = parsed.arguments.tensor_parallel_size
    if accelerator.family == "tpu" and chips and size != chips:
        yield Fault(
            "tpu-topology",
            "tensor_parallel_size",
            f"--tensor-parallel-size={size} on a TPU slice of the topology {topology}: the model runs on all of its "
            f"{chips} chips or does not start",
            f"Write --tensor-parallel-size={chips}.",
        )
    elif used != there:
        more = used > there
        yield Fault(
            "accelerator-count",
            "tensor_parallel_size",
            f"the command runs on {used} accelerators and the pod asks for {there}: "
            + ("vLLM ends" if more else f"{there - used} of them idle and cost"),
            f"Ask for {used}, or change the parallel sizes to {there}.",
        )


def check_dtype(parsed: Parsed, facts: ModelFacts, accelerator: Accelerator) -> Iterator[Fault]:
    """A fault if the accelerator does not compute the dtype that the command asks for, or else the model's own."""
    asked = parsed.arguments.dtype
    dtype = facts.dtype if asked == "auto" else asked
    if dtype not in accelerator.dtypes:
        yield Fault(
            "dtype",
            "dtype",
            f"{accelerator.title} computes no {dtype}, in which {facts.name} would run: vLLM ends",
            f"Write --dtype={accelerator.dtypes[0]}, or choose another accelerator.",
        )


def check_support(entry: ModelEntry, accelerator: Accelerator) -> Iterator[Fault]:
    """A fault if the catalog does not list the accelerator's family for the model."""
    if accelerator.family not in entry.serving.families:
        yield Fault(
            "accelerator-family",
            "model",
            f"{entry.name} is not known to run on {accelerator.title}",
            f"Choose an accelerator of the kinds {', '.join(entry.serving.families)}.",
        )
    if entry.checkpoint.quantization not in accelerator.quantizations:
        yield Fault(
            "quantization",
            "model",
            f"{entry.name} is quantised as {entry.checkpoint.quantization}, which {accelerator.title} does not compute",
            f"Choose a model that is one of {', '.join(accelerator.quantizations)}, or another accelerator.",
        )
