"""Finds faults of a command of vLLM by its accelerators and the files' quantisation, and counts its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

from neuroscale.catalog import Accelerator, ModelEntry
from neuroscale.models.facts import ModelFacts, Quantization
from neuroscale.vllm.arguments import Parsed


@dataclass(frozen=True)
class Fault:
    """A fault of a command."""

    rule: str
    dest: str  # vLLM's name of the argument at fault ("": no single one)
    message: str
    fix: str
    refused: bool = True  # False for a remark


def of_version(parsed: Parsed, faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults as mere remarks if the version is not known: another version may accept the command."""
    return (replace(fault, refused=fault.refused and parsed.exact) for fault in faults)


_EACH_POD = frozenset(
    {
        *("nnodes", "data_parallel_size_local", "data_parallel_rank", "data_parallel_start_rank"),
        *("data_parallel_hybrid_lb", "data_parallel_external_lb", "headless"),
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


_GROUPED = ("auto_awq", "auto_gptq", "awq", "compressed-tensors", "gptq", "auto-round", "inc")
_SAME_METHOD: Mapping[str, frozenset[str]] = {
    "gptq": frozenset({"auto_gptq", "gptq", "gptq_marlin", "humming", "moe_wna16"}),
    "awq": frozenset({"auto_awq", "awq", "awq_marlin", "humming", "moe_wna16"}),
    "auto-round": frozenset({"auto-round", "inc"}),
    "modelopt": frozenset({"modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"}),
    "mxfp4": frozenset({"gpt_oss_mxfp4", "mxfp4"}),
}
_SET_BY_FILES = ("auto-round", "modelopt")
_REFINED = ("fp8", "gptq", "awq", "auto-round")
_FINEST = 32
_DESCRIBED_ELSEWHERE = ("hf_overrides", "quantization_config")


def check_quantization(parsed: Parsed, facts: ModelFacts) -> Iterator[Fault]:
    """Faults of --quantization and --dtype, for the method that the files name."""
    asked = parsed.arguments.quantization
    if facts.quantization is not None:
        yield from _of_files(parsed, facts, facts.quantization.method, asked)
    elif asked in parsed.snapshot.described_quantizations and not parsed.values.keys() & set(_DESCRIBED_ELSEWHERE):
        yield Fault(
            "quantization",
            "quantization",
            f"--quantization={asked} reads how the files are quantised, and those of {facts.name} are not: vLLM ends",
            "Remove it, serve a checkpoint that is quantised so, or write --quantization=fp8.",
        )
    yield from _deprecated(parsed, facts, asked)
    yield from _dtype(parsed, facts, asked)


def _of_files(parsed: Parsed, facts: ModelFacts, method: str, asked: str | None) -> Iterator[Fault]:
    same = _SAME_METHOD.get(method, frozenset({method}))
    if asked == "humming" and method != "mxfp4":
        return  # this method accepts any files
    if not same & parsed.snapshot.quantization_methods:
        message = (
            f"the files of {facts.name} are quantised with {method}, which vLLM {parsed.version} does not have: it ends"
        )
        fix = "Serve a checkpoint that is not quantised, or quantised in another way."
        yield Fault("quantization", "model", message, fix)
    elif asked is not None and asked not in same:
        set_by_files = method in _SET_BY_FILES or (method == "mxfp4" and facts.model_type == "gpt_oss")
        message = f"--quantization={asked}, but the files of {facts.name} are quantised with {method}: " + (
            "vLLM goes by the files" if set_by_files and asked != "humming" else "vLLM ends"
        )
        fix = "Remove --quantization: vLLM reads the method from the files."
        yield Fault("quantization", "quantization", message, fix, refused=not set_by_files or asked == "humming")


def _deprecated(parsed: Parsed, facts: ModelFacts, asked: str | None) -> Iterator[Fault]:
    method = facts.quantization.method if facts.quantization is not None else asked
    if method in parsed.snapshot.deprecated_quantizations and not parsed.value("allow_deprecated_quantization"):
        message = f"the quantisation {method} is deprecated: vLLM ends unless it is allowed"
        fix = "Quantise in another way; --allow-deprecated-quantization allows it in this version."
        yield Fault("quantization", "quantization" if asked else "model", message, fix)


def _dtype(parsed: Parsed, facts: ModelFacts, asked: str | None) -> Iterator[Fault]:
    dtype = parsed.arguments.dtype
    if dtype == "float16" and facts.model_type in parsed.snapshot.float16_refused:
        message = f"--dtype={parsed.values['dtype']} for {facts.name}, whose numbers exceed those of float16: vLLM ends"
        yield Fault("dtype", "dtype", message, "Write --dtype=bfloat16, or remove it.")
    method = facts.quantization.method if facts.quantization is not None else asked
    known = {"auto-round": "inc"}.get(method or "", method or "")
    if (
        dtype == "float32"
        and known in parsed.snapshot.quantization_methods
        and known not in parsed.snapshot.float32_quantizations
    ):
        message = (
            f"--dtype={parsed.values['dtype']} with the quantisation {method}, which computes in 16 bits: vLLM ends"
        )
        yield Fault("dtype", "dtype", message, "Write --dtype=bfloat16, or remove it.")


def check_groups(parsed: Parsed, facts: ModelFacts, size: int, spread: bool) -> Iterator[Fault]:
    """Faults of groups: weights that share a scale must be on one rank, so a rank must hold whole groups of its rows.
    `spread`: each rank holds whole experts."""
    group = _group(facts.quantization)
    if facts.quantization is None or not group:
        return
    told = set()
    for tensor in facts.tensors:
        inner = tensor.name.endswith(("o_proj.weight", "down_proj.weight", "w2.weight", "out_proj.weight"))
        if not (tensor.linear and inner and len(tensor.shape) >= 2):
            continue
        if tensor.group not in ("attention", "dense_mlp", "routed_experts", "shared_experts"):
            continue
        read = tensor.shape[-1]
        if tensor.group == "routed_experts" and (spread or _refines(parsed, facts, group, read // size)):
            continue
        if read % group == 0 and (read // size) % group and read not in told:
            told.add(read)
            yield Fault(
                "quantized-groups",
                "tensor_parallel_size",
                f"--tensor-parallel-size={size} cuts the quantised groups of {facts.name}: {read} rows of "
                f"{tensor.group.replace('_', ' ')} by {size} is not a multiple of {group}, and vLLM ends",
                "Write a smaller size"
                + (", or add --enable-expert-parallel." if tensor.group == "routed_experts" else "."),
            )


def _group(quantization: Quantization | None) -> int:
    """The number of weights of a row that share a scale; 0 if whole rows or tensors share one."""
    if quantization is None:
        return 0
    if quantization.block is not None:
        return quantization.block[1]
    return max(quantization.group_size or 0, 0) if quantization.method in _GROUPED else 0


def _refines(parsed: Parsed, facts: ModelFacts, group: int, width: int) -> bool:
    """Whether vLLM repeats the scales of experts until a rank holds whole groups, of 32 weights at the least."""
    if facts.quantization is None or facts.quantization.method not in _REFINED:
        return False
    padded = facts.quantization.block is not None and parsed.values.get("moe_backend", "auto") != "auto"
    return padded or gcd(group, width, facts.hidden_size) >= _FINEST


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
        message = f"--kv-cache-dtype={dtype}: {accelerator.title} keeps no KV cache in fp8"
        fix = "Remove --kv-cache-dtype, or choose an accelerator that does."
        yield Fault("kv-cache-dtype", "kv_cache_dtype", message, fix)
    elif not dtype.startswith("fp8") and dtype not in ("auto", "bfloat16", "float16"):
        message = f"--kv-cache-dtype={dtype}: whether {accelerator.title} can keep that is not known to the catalog"
        fix = "Write auto or fp8, or measure it first."
        yield Fault("kv-cache-dtype", "kv_cache_dtype", message, fix, refused=False)
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
        message = (
            f"--tensor-parallel-size={size} on a TPU slice of the topology {topology}: the model runs on all of its "
            f"{chips} chips or does not start"
        )
        yield Fault("tpu-topology", "tensor_parallel_size", message, f"Write --tensor-parallel-size={chips}.")
    elif used != there:
        more = used > there
        message = f"the command runs on {used} accelerators and the pod asks for {there}: " + (
            "vLLM ends" if more else f"{there - used} of them idle and cost"
        )
        fix = f"Ask for {used}, or change the parallel sizes to {there}."
        yield Fault("accelerator-count", "tensor_parallel_size", message, fix)


def check_dtype(parsed: Parsed, facts: ModelFacts, accelerator: Accelerator) -> Iterator[Fault]:
    """A fault if the accelerator does not compute the dtype that the command asks for, or else the model's own."""
    asked = parsed.arguments.dtype
    dtype = facts.dtype if asked == "auto" else asked
    if dtype not in accelerator.dtypes:
        message = f"{accelerator.title} computes no {dtype}, in which {facts.name} would run: vLLM ends"
        yield Fault("dtype", "dtype", message, f"Write --dtype={accelerator.dtypes[0]}, or choose another accelerator.")


def check_support(entry: ModelEntry, accelerator: Accelerator) -> Iterator[Fault]:
    """A fault if the catalog does not list the accelerator's family for the model."""
    if accelerator.family not in entry.serving.families:
        fix = f"Choose an accelerator of the kinds {', '.join(entry.serving.families)}."
        yield Fault("accelerator-family", "model", f"{entry.name} is not known to run on {accelerator.title}", fix)
    if entry.checkpoint.quantization not in accelerator.quantizations:
        yield Fault(
            "quantization",
            "model",
            f"{entry.name} is quantised as {entry.checkpoint.quantization}, which {accelerator.title} does not compute",
            f"Choose a model that is one of {', '.join(accelerator.quantizations)}, or another accelerator.",
        )
