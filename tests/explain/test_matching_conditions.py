"""What a cause's lines ask of the lines around them: where an error was raised, what follows, and notes."""

from __future__ import annotations

import pytest

from neuroscale.explain import diagnose, load_causes, read_lines

FOLDER = "/usr/local/lib/python3.12/dist-packages"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB."


def found(*lines: str) -> str:
    diagnosis = diagnose(read_lines("\n".join(lines)), load_causes())
    return diagnosis.cause.name if diagnosis.cause else diagnosis.verdict


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("vllm/config/parallel.py", "invalid_argument_value"),
        ("vllm/lora/model_manager.py", "lora_not_fitting"),
        ("vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py", "kv_transfer_failed"),
        ("triton/backends/nvidia/compiler.py", "graph_compile_failed"),
        ("vllm/tokenizers/registry.py", "tokenizer_missing"),
        ("vllm/model_executor/models/llama.py", "unknown"),
    ],
)
def test_an_error_that_no_message_explains_is_known_by_where_it_was_raised(file: str, cause: str) -> None:
    frame = f'  File "{FOLDER}/{file}", line 12, in build'
    assert found(frame, "    raise ValueError(", "ValueError: the flux is inverted") == cause
    later = (f'  File "{FOLDER}/vllm/model_executor/models/llama.py", line 3, in f', "    return f(x)")
    assert found(frame, "    build()", *later, "ValueError: the flux is inverted") == "unknown"


def test_memory_that_ended_before_requests_failed_ended_while_it_served() -> None:
    assert found(OOM) == "cuda_oom"
    assert found(OOM, "(APIServer pid=1) ERROR 05-01 14:39:06 [async_llm.py:699] AsyncLLM output_handler failed.") == (
        "cuda_oom_run_time"
    )


@pytest.mark.parametrize(
    "note",
    [
        "WARNING 06-19 12:00:00 [_custom_ops.py:20] Failed to import from vllm._C with ImportError('libcuda.so.1: "
        "cannot open shared object file: No such file or directory')",
        "node1:123:456 [0] NCCL INFO NET/Plugin: dlerror=libnccl-net.so: cannot open shared object file",
        "INFO 06-19 12:00:00 [fp8.py:1] Using FlashInfer FP8 MoE; DeepGEMM is not supported on the current platform",
        "WARNING 06-19 12:00:00 [utils.py:1] Could not load the generation config. Can't load the configuration of 'x'",
        "W0619 12:00:00.000 torch/_inductor/utils.py:1250] [0/0] Not enough SMs to use max_autotune_gemm mode",
        "INFO 06-19 12:00:00 [__init__.py:30] No platform detected, vLLM is running on UnspecifiedPlatform",
    ],
)
def test_a_note_is_no_cause_beside_an_error_that_no_cause_explains(note: str) -> None:
    assert found(note, "RuntimeError: the flux is inverted") == "unknown"
    assert found(note, "INFO:     Application startup complete.") == "healthy"


def test_an_engine_that_ended_after_its_workers_error_is_no_cause() -> None:
    error = "RuntimeError: Worker failed with error 'the flux is inverted', please check the stack trace above"
    died = "ERROR 02-26 22:14:28 [multiproc_executor.py:247] Worker proc VllmWorker-0 died unexpectedly"
    assert found(died) == "engine_died_runtime"
    assert found(error, died) == "unknown"


def test_vllm_without_its_compiled_part_knows_no_architecture() -> None:
    part = (
        "WARNING 10-25 00:26:20 [_custom_ops.py:19] Failed to import from vllm._C with "
        "ModuleNotFoundError(\"No module named 'vllm._C'\")"
    )
    refused = "ValueError: Model architectures ['LlamaForCausalLM'] are not supported for now."
    assert found(refused) == "architecture_not_supported"
    assert found(part, refused) == "missing_library"
    plugin = "INFO 10-25 00:26:19 [__init__.py:235] Platform plugin ascend is activated"
    assert found(plugin, part, "RuntimeError: the flux is inverted") == "unknown"
