"""What a log says: the first line that matters, bounded, without colours and secrets."""

from __future__ import annotations

import io
import time

import pytest

from neuroscale.explain import diagnose, facts_of_log, load_causes, read_lines, read_log
from neuroscale.vllm.argument_values import words_of

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB."


def found(text: str) -> str:
    diagnosis = diagnose(read_lines(text), load_causes())
    return diagnosis.cause.name if diagnosis.cause else diagnosis.verdict


def test_the_first_error_is_the_cause_and_not_the_last_line() -> None:
    log = "\n".join(
        (
            "(Worker_TP1 pid=61) \x1b[31mERROR\x1b[0m 05-02 23:41:19 [multiproc_executor.py:870]     self.load_model()",
            f"(Worker_TP1 pid=61) \x1b[1;31mERROR 05-02 23:41:19 [multiproc_executor.py:870] {OOM}\x1b[0m",
            "(EngineCore_DP0 pid=12) torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.cpp:133",
            "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
        )
    )
    diagnosis = diagnose(read_lines(log), load_causes())
    assert diagnosis.cause
    assert diagnosis.cause.name == "cuda_oom_weights"
    assert [one.line for one in diagnosis.evidence] == [2]
    assert [cause.name for cause, _ in diagnosis.also] == ["nccl_p2p_hang"]


def test_engine_core_initialization_failed_is_no_cause() -> None:
    log = "(APIServer pid=302) RuntimeError: Engine core initialization failed. See root cause above."
    diagnosis = diagnose(read_lines(f"something else\n{log}"), load_causes())
    assert diagnosis.verdict == "unknown"


@pytest.mark.parametrize(
    "line",
    [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes "
        "are hanging or doing some time-consuming work (e.g. compilation).",
        "[W709 12:11:52.57 TCPStore.cpp:343] [c10d] TCP client failed to connect/validate to host 127.0.0.1:50705 - "
        "retrying (try=0, timeout=600000ms, delay=889ms): Interrupted system call",
    ],
)
def test_what_is_left_of_a_log_without_its_error_is_no_cause(line: str) -> None:
    assert found(line) == "unknown"


def test_an_unknown_log_shows_the_lines_that_matter() -> None:
    log = "INFO 05-02 23:41:19 [core.py:1] fine\nZorgError: the flux is inverted\nINFO 05-02 23:41:20 [core.py:2] bye"
    diagnosis = diagnose(read_lines(log), load_causes())
    assert diagnosis.verdict == "unknown"
    assert [(one.line, one.text) for one in diagnosis.evidence] == [(2, "ZorgError: the flux is inverted")]
    assert diagnose([], load_causes()).sentence == "The log is empty."


def test_a_start_after_a_failure_is_healthy_and_tells_the_failure() -> None:
    log = "OSError: [Errno 98] Address already in use\nINFO:     Application startup complete."
    diagnosis = diagnose(read_lines(log), load_causes())
    assert diagnosis.verdict == "healthy"
    assert [cause.name for cause, _ in diagnosis.also] == ["port_in_use"]
    assert found(f"{log}\n(EngineCore pid=1) {OOM}") == "cuda_oom_run_time"


def test_a_request_that_failed_does_not_make_a_server_that_answers_its_probe_ill() -> None:
    started = "(APIServer pid=1) INFO:     Application startup complete."
    failed = "(APIServer pid=1) ERROR 05-02 23:41:19 [serving.py:1] The model `gpt-4` does not exist."
    probed = '(APIServer pid=1) INFO:     10.0.0.1:38700 - "GET /health HTTP/1.1" 200 OK'
    assert found(f"{started}\n{failed}\n{probed}") == "healthy"


def test_a_message_that_a_terminal_broke_is_read_whole() -> None:
    broken = (
        "(EngineCore pid=7) ERROR 11-28 18:00:03 [core.py:1] ValueError: NvFp4 MoE backend 'FLASHINFER_CUTLASS' does "
        "not support the\ndeployment configuration since kernel does not support current device."
    )
    diagnosis = diagnose(read_lines(broken), load_causes())
    assert diagnosis.cause
    assert diagnosis.cause.name == "quant_not_supported_on_gpu"
    (line,) = diagnosis.evidence
    assert (
        line.line,
        line.text.endswith("support the deployment configuration since kernel does not support current device."),
    ) == (1, True)
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    for other in ("frame #0: c10::Error::Error(c10::SourceLocation)", "(Worker pid=9) another process", "    raise e"):
        assert read_lines(f"(EngineCore pid=7) {error}\n{other}")[0].text == error


def test_an_illegal_instruction_is_the_processors_unless_the_accelerator_ran_it() -> None:
    assert found("Fatal Python error: Illegal instruction") == "processor_lacks_instructions"
    assert found("Worker proc VllmWorker-0 died unexpectedly (exit code: -4)") == "processor_lacks_instructions"
    assert found("server ended with exit code 132") == "processor_lacks_instructions"
    assert found("server ended with exit code 1") == "unknown"
    assert found("RuntimeError: CUDA error: an illegal instruction was encountered") == "engine_died_runtime"


def test_an_old_card_is_too_old_for_flashinfer_and_a_newer_one_is_not() -> None:
    error = "RuntimeError: FlashInfer requires GPUs with sm75 or higher"
    assert found(f"INFO GPU 0: Tesla V100-SXM2-16GB\n{error}") == "gpu_too_old"
    assert found(f"INFO GPU 0: NVIDIA RTX PRO 6000 Blackwell\n{error}") == "toolkit_older_than_card"


def test_an_inspection_that_failed_is_no_cause_by_itself() -> None:
    told = "Model architectures ['Qwen2ForCausalLM'] failed to be inspected. Please check the logs for more details."
    assert found(f"ValueError: {told}") == "unknown"
    assert found(f"ModuleNotFoundError: No module named 'xformers'\nValueError: {told}") == "missing_library"


def test_the_hub_that_refuses_for_now_is_no_missing_network() -> None:
    refused = "429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/Qwen/Qwen3-8B"
    assert found(f"huggingface_hub.errors.HfHubHTTPError: {refused}") == "hub_rate_limited"
    bucket = "429 Client Error: Too Many Requests for url: https://bucket.example.com/model"
    assert found(f"requests.exceptions.HTTPError: {bucket}") == "unknown"


def test_nccl_is_not_blamed_where_it_had_no_memory() -> None:
    nccl = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:133, unhandled cuda error"
    assert found(nccl) == "nccl_p2p_hang"
    assert found(f"{nccl}\nLast error:\nCuda failure 'out of memory'") == "cuda_oom"


def test_an_allocator_that_ends_while_it_reports_is_out_of_memory() -> None:
    line = 'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":844, please report a bug'
    assert found(f"ERROR [__main__.py:254] Failed to start model server: {line}") == "cuda_oom"


def test_a_server_that_ended_after_its_start_by_an_unknown_error_is_not_healthy() -> None:
    assert found("INFO:     Application startup complete.\nZorgError: the flux is inverted") == "unknown"


@pytest.mark.parametrize(
    "note",
    [
        "INFO 11-28 18:00:06 [shm_broadcast.py:495] No available shared memory broadcast block found in 60 seconds. "
        "This typically happens when some processes are hanging or doing some time-consuming work",
        "INFO 11-28 18:00:03 [cuda.py:234] Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
        "WARNING 11-28 18:00:03 [custom_all_reduce.py:137] Custom allreduce is disabled because your platform lacks "
        "GPU P2P capability or P2P test failed.",
        "INFO 11-28 18:00:05 [nixl_utils.py:20] Setting UCX_RCACHE_MAX_UNRELEASED to '1024' to avoid a rare memory "
        "leak in UCX when using NIXL.",
        "INFO 11-28 18:00:07 [gpu_model_runner.py:1] If out-of-memory error occurs during cudagraph capture, consider "
        "decreasing `gpu_memory_utilization`",
        "get_mempolicy: Operation not permitted",
    ],
)
def test_a_note_of_a_good_start_is_no_cause_of_an_unknown_error(note: str) -> None:
    assert found(f"{note}\nZorgError: the flux is inverted") == "unknown"


def test_a_warning_is_no_cause_where_an_error_follows() -> None:
    told = "ImportError('libcudart.so.12: cannot open shared object file')"
    log = f"WARNING 08-27 13:59:59 _custom_ops.py:15] Failed to import from vllm._C with {told}"
    assert found(log) == "missing_library"
    assert found(f"{log}\nvllm: error: unrecognized arguments: --omni") == "unknown_flag"


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        ("process_weights_after_loading(model)", "cuda_oom_quantise"),
        ("self.model_runner.profile_run()", "cuda_oom_profile_run"),
        ("self.model_runner.initialize_kv_cache(kv_cache_config)", "cuda_oom_kv_cache"),
        ("self.model_runner.capture_model()", "cuda_oom_graph_capture"),
        ("in _dummy_sampler_run", "cuda_oom_sampler_warmup"),
        ("engine_core.run_busy_loop()", "cuda_oom_run_time"),
        ("", "cuda_oom"),
    ],
)
def test_the_step_at_which_the_memory_ended_is_read_from_the_traceback(frames: str, cause: str) -> None:
    assert found(f"(EngineCore pid=7) {frames}\n(EngineCore pid=7) {OOM}") == cause


def test_a_traceback_of_another_process_does_not_count() -> None:
    own = f"(Worker_TP1 pid=2)     self.capture_model()\n(Worker_TP1 pid=2) {OOM}"
    log = f"(Worker_TP0 pid=1)     process_weights_after_loading(\n{own}"
    assert found(log) == "cuda_oom_graph_capture"


def test_secrets_are_not_kept() -> None:
    log = (
        "HF_TOKEN=hf_abcdefghijklmnopqrstuv used\nAuthorization: Bearer abc.def-ghi\n"
        "non-default args: {'model': 'a/b', 'api_key': ['topsecret'], 'hf_token': 'hushhush'}\n"
        "vllm serve a/b --api-key topsecret --port 8000\npull https://user:passw0rd@registry.example/image"
    )
    kept = "\n".join(line.text for line in read_lines(log))
    for secret in ("hf_abcdef", "abc.def", "topsecret", "hushhush", "passw0rd"):
        assert secret not in kept
    facts = facts_of_log(read_lines(log))
    assert facts.model == "a/b"
    assert not {"api_key", "hf_token"} & set(facts.arguments)


SECRET = "topsecret99"


@pytest.mark.parametrize(
    "line",
    [
        f"vllm serve a/b --api-key {SECRET} second-{SECRET} --port 8000",
        f"['vllm', 'serve', 'a/b', '--api-key', '{SECRET}', '--port', '8000']",
        f"vllm: error: unrecognized arguments: --api-kee {SECRET}",
        f"Namespace(api_key=['{SECRET}', '{SECRET}'], port=1)",
        f"api_key=['{SECRET}",
        f"X-API-Key: {SECRET}",
        f"Authorization: Basic {SECRET}==",
        f"password: {SECRET}",
        f'{{"name":"HF_TOKEN", "value":"{SECRET}"}}',
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"github_pat_11AAAAAAA0{SECRET}",
        f"nvapi-{SECRET}{SECRET}",
        f"https://store.example/model?sv=1&sig={SECRET}%3D",
    ],
)
def test_a_secret_of_any_form_is_not_kept(line: str) -> None:
    assert SECRET not in read_lines(line)[0].text


def test_what_only_sounds_like_a_secret_is_kept() -> None:
    line = "--max-num-batched-tokens 8192 --tokenizer a/b --ssl-keyfile /a pad_token_id=5 api_key=None token_ids: [1]"
    assert read_lines(line)[0].text == line


@pytest.mark.parametrize(
    "log",
    [
        "2026/11/28 18:00:01 [error] 29#29: *1 connect() failed (111: Connection refused) while connecting to upstream",
        "Traceback (most recent call last):\n  File \"train.py\", line 10, in <module>\nKeyError: 'model.price'",
        "psycopg2.OperationalError: could not connect to server: Connection refused",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
        "panic: runtime error: invalid memory address or nil pointer dereference",
        "DEBUG 11-12 10:59:18 [platforms/__init__.py:105] CUDA platform is not available because: NVML Shared Library "
        "Not Found",
    ],
)
def test_the_log_of_something_else_is_unknown(log: str) -> None:
    assert found(log) == "unknown"


@pytest.mark.parametrize("data", [bytes(range(256)) * 4000, b"\0" * 1_000_000])
def test_a_binary_file_is_said_to_be_no_text(data: bytes) -> None:
    diagnosis = diagnose(read_log(io.BytesIO(data)), load_causes())
    assert (diagnosis.verdict, diagnosis.evidence) == ("unknown", ())
    assert "no text" in diagnosis.sentence


def test_a_log_of_50_mb_takes_bounded_time_and_memory() -> None:
    line = b'(Worker_TP0 pid=61) ERROR 05-02 23:41:19 [multiproc_executor.py:870]   File "/x/vllm/v1/y.py", line 1\n'
    started = time.process_time()
    lines = read_log(_Endless(line, 52_000_000))
    assert diagnose(lines, load_causes()).verdict == "unknown"
    assert sum(len(one.text) for one in lines) < 4_000_000
    assert time.process_time() - started < 15


class _Endless(io.BytesIO):
    """A file of one line again and again, which is nowhere in memory."""

    def __init__(self, line: bytes, size: int) -> None:
        super().__init__()
        self._part, self._left = line * 5000, size

    def read(self, size: int | None = -1, /) -> bytes:
        part = self._part[: min(size or 0, self._left)]
        self._left -= len(part)
        return part


def test_the_server_is_read_from_its_log() -> None:
    facts = facts_of_log(
        read_lines(
            "(APIServer pid=1) INFO 01-20 16:32:02 [api_server.py:1977] vLLM API server version 0.11.1\n"
            "(APIServer pid=1) INFO 01-20 16:32:02 [utils.py:253] non-default args: {"
            "'model_tag': '/data/Qwen/Qwen3-8B', "
            "'host': '10.0.0.1', 'port': 4, 'model': '/data/Qwen/Qwen3-8B', 'max_model_len': 65536, "
            "'enable_expert_parallel': True, 'speculative_config': {'method': 'mtp'}, 'gpu_memory_utilization': 0.35}\n"
            "INFO 01-20 16:33:02 [gpu_model_runner.py:1] Model loading took 14.2488 GiB and 4.06 seconds\n"
            "INFO 01-20 16:33:03 [gpu_worker.py:1] Available KV cache memory: 5.01 GiB\n"
            "INFO 01-20 16:33:04 [kv_cache_utils.py:1] GPU KV cache size: 93,872 tokens\n"
            "INFO 01-20 16:33:05 [kv_cache_utils.py:2] Maximum concurrency for 16,384 tokens per request: 5.73x\n"
            "Using default MoE config. device_name=NVIDIA_H100_80GB_HBM3.json"
        )
    )
    assert (facts.version, facts.model, facts.card) == ("0.11.1", "/data/Qwen/Qwen3-8B", "NVIDIA H100 80GB HBM3")
    assert words_of(facts.arguments) == (
        "--max-model-len=65536",
        "--enable-expert-parallel",
        '--speculative-config={"method": "mtp"}',
        "--gpu-memory-utilization=0.35",
    )
    assert facts.measured == {
        "weights_gib": 14.2488,
        "load_seconds": 4.06,
        "available_kv_cache_gib": 5.01,
        "kv_cache_tokens": 93872,
        "max_concurrency": 5.73,
        "max_model_len": 16384,
    }


def test_a_long_log_is_read_at_both_ends_and_keeps_its_line_numbers() -> None:
    filler = "INFO 01-20 16:33:02 [logger.py:1] " + "x" * 200
    log = "\n".join(
        ["vllm serve a/b --max-model-len=8192", *[filler] * 40_000, "vllm: error: unrecognized arguments: --omni"]
    )
    lines = read_log(io.BytesIO(log.encode()))
    assert len(lines) < 25_000
    assert facts_of_log(lines).arguments == {"max_model_len": 8192}
    diagnosis = diagnose(lines, load_causes())
    assert diagnosis.cause
    assert diagnosis.cause.name == "unknown_flag"
    assert diagnosis.evidence[0].line == 40_002


@pytest.mark.parametrize(
    "line",
    [
        "a" * 100_000,
        "(" * 50_000,
        "max seq len (1" * 5000,
        "CUDA out of memory " * 4000,
        "'x': " * 20_000,
        "\x1b[" * 9000,
    ],
)
def test_a_hostile_line_costs_no_time(line: str) -> None:
    started = time.process_time()
    lines = read_lines("\n".join([line] * 20))
    diagnose(lines, load_causes())
    facts_of_log(lines)
    assert time.process_time() - started < 2


_OF_THE_PINNED_VERSION = {
    "unknown_flag": ["api_server.py: error: unrecognized arguments: --max-modell-len"],
    "model_not_found": [
        "    raise HFValidationError(",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        "'/models/not-there'. Use `repo_type` argument if needed.",
    ],
    "no_network": [
        "    raise LocalEntryNotFoundError(",
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub "
        "and we cannot find the requested files in the local cache.",
        "    raise OSError(",
        "OSError: We couldn't connect to 'http://127.0.0.1:9' to load the files, and couldn't find them in the cached "
        "files.",
    ],
    "offline_mode": [
        "    raise LocalEntryNotFoundError(",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the "
        "specified revision on the local disk and outgoing traffic has been disabled.",
    ],
    "wrong_weights": [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
        "  Value error, Expecting value: line 1 column 1993 (char 1992) [type=value_error, input_type=ArgsKwargs]",
    ],
    "tp_does_not_divide_heads": [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
        "  Value error, Total number of attention heads (4) must be divisible by tensor parallel size (3).",
    ],
    "port_in_use": ["OSError: [Errno 98] Address already in use"],
    "tokenizer_missing": ["ValueError: Couldn't instantiate the backend tokenizer from one of:"],
    "missing_library": ["importlib.metadata.PackageNotFoundError: No package metadata was found for vllm"],
    "probe_kill": [
        "(EngineCore pid=28503) INFO 11-28 16:00:36 [core.py:1454] [shutdown] EngineCore: trigger received "
        "signal=SIGTERM",
        "(EngineCore pid=28503) ERROR 11-28 16:00:41 [multiproc_executor.py:315] Worker proc VllmWorker-0 died "
        "unexpectedly (exit code: 0), shutting down executor.",
        "KeyboardInterrupt: terminated",
    ],
}
"""What vLLM 0.32 wrote here when it was started wrongly on purpose."""


@pytest.mark.parametrize("cause", _OF_THE_PINNED_VERSION)
def test_the_pinned_version_is_understood(cause: str) -> None:
    assert found("\n".join(_OF_THE_PINNED_VERSION[cause])) == cause


def test_a_server_that_was_told_to_stop_after_its_start_is_healthy() -> None:
    log = (
        "(EngineCore pid=29330) INFO 11-28 16:02:30 [kv_cache_utils.py:2327] CPU KV cache size: 1,048,576 tokens, "
        "Maximum concurrency for 256 tokens per request: 4096.00x",
        "(APIServer pid=29216) INFO:     Application startup complete.",
        "(EngineCore pid=29330) INFO 11-28 16:03:10 [core.py:1454] [shutdown] EngineCore: trigger received "
        "signal=SIGTERM",
        "(EngineCore pid=29330) INFO 11-28 16:03:10 [core.py:1460] [shutdown] EngineCore: start mode=abort timeout=0s",
    )
    assert found("\n".join(log)) == "healthy"
    assert facts_of_log(read_lines("\n".join(log))).measured["kv_cache_tokens"] == 1048576


def test_the_longest_context_of_the_model_is_read_as_a_whole_number() -> None:
    line = (
        "  Value error, User-specified max_model_len (9000000) is greater than the derived max_model_len "
        "(max_position_embeddings=2048.0 or model_max_length=None in model's config.json)."
    )
    diagnosis = diagnose(read_lines(line), load_causes())
    assert diagnosis.captured == {"length": "9000000", "longest": "2048"}


TRUST = "requires you to execute the configuration file in that repo; set the option `trust_remote_code=True` OOMKilled"


@pytest.mark.parametrize(
    "quoting",
    [
        "INFO 01-20 16:32:02 [logger.py:39] Received request chatcmpl-1: prompt: '{}', params: SamplingParams(n=1)",
        "INFO 01-20 16:32:02 [logger.py:39] Received request chatcmpl-1: params: '{}'",
        "(APIServer pid=1) DEBUG 01-20 16:32:02 [logger.py:39] Request chatcmpl-1 details: prompt: '{}'",
        "INFO 01-20 16:32:02 [logger.py:99] Generated response chatcmpl-1 (streaming complete): output: '{}'",
        "INFO 01-20 16:32:02 [async_llm.py:1] Added request {}.",
        "Received request {}: prompt: 'x'",
        "ERROR 01-20 16:32:02 [serving_engine.py:1] Error with model error=ErrorInfo(message='{}')",
    ],
)
def test_what_a_client_sent_is_no_evidence(quoting: str) -> None:
    line = quoting.format(TRUST)
    assert found(line) == "unknown"
    assert found(f"{line}\nZorgError: the flux is inverted") == "unknown"
    assert "trust_remote_code" not in read_lines(line)[0].text
    assert found(f"{line}\n{OOM}") in ("cuda_oom", "cuda_oom_run_time")


def test_the_address_that_a_client_asked_for_is_no_evidence() -> None:
    asked = 'INFO:     10.0.0.1:38700 - "GET /OOMKilled?x=trust-remote-code%20Error HTTP/1.1" 404 Not Found'
    assert found(asked) == "unknown"
    assert read_lines(asked)[0].text.endswith('"GET *** HTTP/1.1" 404 Not Found')
    assert found('INFO:     10.0.0.1:38700 - "GET /health HTTP/1.1" 200 OK') == "healthy"
    assert (
        "/v1/chat/completions" in read_lines('INFO: 10.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK')[0].text
    )


def test_an_error_before_the_cause_that_it_does_not_explain_speaks_against_it() -> None:
    log = f"ZorgError: the flux is inverted\n{OOM}\n{OOM}"
    diagnosis = diagnose(read_lines(log), load_causes())
    assert diagnosis.cause
    assert diagnosis.against
    assert (diagnosis.doubt, diagnosis.against.line) == ("an error before it is not explained by it", 1)
    for sure in (OOM, f"{OOM}\n{OOM}", f"{OOM}\nZorgError: the flux is inverted"):
        diagnosis = diagnose(read_lines(sure), load_causes())
        assert (diagnosis.doubt, diagnosis.against) == ("", None)


@pytest.mark.parametrize(
    ("log", "doubt"),
    [
        ('  File "/x/vllm/lora/manager.py", line 1, in f\nValueError: the flux is inverted', "another cause, too"),
        ("EngineDeadError", "another cause, too"),
        ("INFO 05-02 23:41:19 [a.py:1] no space left on device", "only a note"),
    ],
)
def test_a_line_that_may_follow_from_another_cause_is_said_to_be_not_sure(log: str, doubt: str) -> None:
    diagnosis = diagnose(read_lines(log), load_causes())
    assert diagnosis.cause
    assert doubt in diagnosis.doubt


def test_most_causes_of_real_lines_are_sure() -> None:
    doubted = [cause.name for cause in load_causes() if diagnose(read_lines(cause.example), load_causes()).doubt]
    assert len(doubted) <= 4


def test_an_error_with_a_name_behind_it_matters() -> None:
    log = "vLLM API server version 0.6.6\npynvml.NVMLError_NoPermission: Insufficient Permissions\nbye"
    assert [one.line for one in diagnose(read_lines(log), load_causes()).evidence] == [2]


@pytest.mark.parametrize("config", ["ModelConfig", "VllmConfig"])
def test_the_sentence_of_a_pydantic_error_is_shown_and_not_its_header(config: str) -> None:
    log = (
        f"(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}\n"
        "(APIServer pid=1)   Assertion failed, the flux (4176) must be <= the zorg (2048). [type=assertion_error, "
        "input_value=ArgsKwargs((), {'model_co...}), input_type=ArgsKwargs]"
    )
    (line,) = diagnose(read_lines(log), load_causes()).evidence
    assert (line.line, "the flux (4176) must be <= the zorg (2048)" in line.text) == (2, True)
