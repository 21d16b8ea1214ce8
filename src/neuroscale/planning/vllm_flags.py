"""Writes vLLM's arguments, each as `--name=value`; vLLM 0.32 accepts all of them."""

from __future__ import annotations

from neuroscale.catalog import ModelEntry, RuntimeEntry
from neuroscale.catalog.settings import Environment
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.plan import Architecture
from neuroscale.vllm.engine_arguments import EngineArguments


def architecture(facts: ModelFacts) -> Architecture:
    """The kind and the parameters of the language model, without towers for images and sound."""
    return Architecture(
        kind=facts.kind,
        total_params=facts.total_params,
        active_params=facts.active_params,
        active_params_without_embedding=facts.active_params_without_embedding,
        active_ratio=round(facts.active_params / facts.total_params, 3),
    )


MOUNTED_MODEL = "/mnt/models"
"""The folder in which KServe mounts the files of a model store."""


def model_source(model: ModelEntry, environment: Environment) -> str:
    """`hf://OWNER/NAME` for the hub, else a folder of the environment's store ("" if it has no store)."""
    if model.weights.kind == "hub":
        return f"hf://{model.weights.path}"
    store = environment.models.store
    return f"{store}/{model.weights.path}" if store else ""


def model_argument(model: ModelEntry, environment: Environment) -> str:
    """The value of `--model`: the repository of the hub, or the folder that holds the files in the container."""
    source = model_source(model, environment)
    if source.startswith("hf://"):
        return model.weights.path
    return source.removeprefix("file://") if source.startswith("file://") else MOUNTED_MODEL


def vllm_args(
    model: ModelEntry,
    runtime: RuntimeEntry,
    environment: Environment,
    arguments: EngineArguments,
    *,
    shutdown_timeout: int,
    revision: str | None = None,
) -> tuple[str, ...]:
    """The arguments of `vllm serve`, in a fixed order. `shutdown_timeout`: seconds that vLLM gets for unfinished
    answers when it must end; by default it drops them. `revision`: the request's own, for a model
    whose revision the catalog does not name: what the owners of the catalog reviewed goes before it.
    Experts are spread over the ranks of one replica (`--enable-expert-parallel`); more replicas serve more users. Data
    parallelism is never used: Gemma 4's mixture of experts crashes under it (vllm-project/vllm#38999)."""
    args = [f"--model={model_argument(model, environment)}", f"--served-model-name={model.name}"]
    if model.weights.kind == "hub" and (revision := model.weights.revision or revision):
        args.append(f"--revision={revision}")
    args += [
        f"--tensor-parallel-size={arguments.tensor_parallel_size}",
        f"--max-model-len={arguments.max_model_len}",
        f"--max-num-seqs={arguments.max_num_seqs}",
        f"--max-num-batched-tokens={arguments.max_num_batched_tokens}",
        f"--shutdown-timeout={shutdown_timeout}",
    ]
    if arguments.gpu_memory_utilization is not None:
        args.append(f"--gpu-memory-utilization={arguments.gpu_memory_utilization:g}")
    if arguments.kv_cache_dtype != "auto":
        args.append(f"--kv-cache-dtype={arguments.kv_cache_dtype}")
    if arguments.enable_expert_parallel:
        args.append("--enable-expert-parallel")
    if model.serving.tool_call_parser:
        args += ["--enable-auto-tool-choice", f"--tool-call-parser={model.serving.tool_call_parser}"]
    if model.serving.reasoning_parser:
        args.append(f"--reasoning-parser={model.serving.reasoning_parser}")
    return (*args, *runtime.args)


def environment_variables(model: ModelEntry, runtime: RuntimeEntry, kv_cache_gib: float) -> dict[str, str]:
    """Environment variables of the container, sorted by name: writable folders, and the cache's size on a CPU."""
    variables = dict(runtime.environment)
    if runtime.family == "cpu":
        variables["VLLM_CPU_KVCACHE_SPACE"] = str(round(kv_cache_gib))
    if model.weights.kind == "store":
        variables["HF_HUB_OFFLINE"] = "1"
    return dict(sorted(variables.items()))
