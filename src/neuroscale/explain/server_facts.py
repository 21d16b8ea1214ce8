"""Reads from a server's log what it was started with, and the memory that it measured."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuroscale.explain.log_text import LogLine
from neuroscale.vllm.argument_values import values_of

_VERSIONS = (
    re.compile(r"vLLM API server version v?(\d+\.\d+\.\d+[\w.+]{0,40})"),
    re.compile(r"(?i)initializing an? (?:V\d )?LLM engine \(v(\d+\.\d+\.\d+[\w.+]{0,40})\)"),
    re.compile(r"^[\s█▄▀▌▐▖▗▘▙▚▛▜▝▞▟]{0,60}version v?(\d+\.\d+\.\d+[\w.+]{0,40})$"),
)
_CONFIG = re.compile(r"(?i)initializing an? (?:V\d )?LLM engine[^\n]{0,60}with config: (.*)")
_NON_DEFAULT = re.compile(r"non-default args: (\{.*)")
_NAMESPACE = re.compile(r"args: Namespace\((.*)")
_COMMAND = re.compile(r"(?:^|[\s'\"])(?:vllm serve|-m vllm\.entrypoints\.openai\.api_server) (.*)")
_BANNER_MODEL = re.compile(r"^[\s█▄▀▌▐▖▗▘▙▚▛▜▝▞▟]{0,60}model\s{1,8}(\S{1,200})$")
_PAIR = re.compile(
    r"['\"](\w{1,60})['\"]: ?('[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|True|False|None|-?[\d.]{1,20}(?:e-?\d+)?)"
)
_FIELD = re.compile(r"\b(\w{1,60})=('[^'\n]{0,400}'|True|False|None|-?[\d.]{1,20}|[\w./-]{1,120})")

_LARGEST = 1e12  # of a number that a log tells
_TAKEN = (
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_model_len", "max_num_seqs"),
    *("max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_dtype", "quantization", "dtype", "enforce_eager"),
    *("cpu_offload_gb", "enable_expert_parallel", "trust_remote_code", "block_size", "enable_lora", "max_lora_rank"),
)
"""What is taken from an old list of all arguments, which has defaults, too."""
_DEFAULTS: Mapping[str, Any] = {"quantization": None, "dtype": "auto", "kv_cache_dtype": "auto", "max_model_len": None}
_NOT_OF_ENGINE = re.compile(
    r"^(?:model|model_tag|subparser|host|port|uds|uvicorn_log_level|allow\w*|api_key|ssl_\w+|root_path|middleware|config"
    r"|headless|api_server_count|dispatch_function|enable_log_\w+|disable_log_\w+|hf_token|log_config_file|root_path"
    r"|served_model_name|shutdown_timeout|download_dir|load_format|seed|chat_template|response_role|generation_config)$"
)

_CARDS = (
    re.compile(r"device_name=(NVIDIA_[\w-]{2,60}?)(?:,|\.json|$)"),
    re.compile(r"\b(?:GPU \d: |GPU model: )((?:NVIDIA|Tesla|AMD) [\w -]{1,60}?)(?= \(|$|\s{2})"),
    re.compile(r"Your (NVIDIA [\w -]{1,60}?|Tesla [\w-]{1,20}) GPU has compute capability"),
)
_CAPACITIES = (
    re.compile(r"GPU \d{1,2} has a total capacity of ([\d.]+) GiB"),
    re.compile(r"Free memory on device[^\n(]{0,20}\([\d.]+/([\d.]+) Gi?B\)"),
    re.compile(r"total_gpu_memory \(([\d.]+)GiB\)"),
)
_IN_USE = re.compile(
    r"total capacity of (?P<total>[\d.]+) GiB of which (?P<free>[\d.]+) (?P<unit>[KMG])iB is free\."
    r"(?:[^\n]{0,400}?this process has (?P<own>[\d.]+) GiB memory in use)?"
    r"(?:[^\n]{0,400}?Of the allocated memory (?P<allocated>[\d.]+) GiB)?"
)
_MEASURED = {
    "weights_gib": re.compile(r"Model loading took ([\d.]+) Gi?B|Loading model weights took ([\d.]+) GB"),
    "load_seconds": re.compile(r"Model loading took [\d.]+ Gi?B (?:memory )?and ([\d.]+) seconds"),
    "available_kv_cache_gib": re.compile(
        r"Available KV cache memory: (-?[\d.]+) Gi?B|the rest of the memory reserved for KV Cache is ([\d.]+)GiB"
    ),
    "kv_cache_tokens": re.compile(r"\b[CGX]PU KV cache size: ([\d,]+) tokens"),
    "max_concurrency": re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"),
    "max_model_len": re.compile(r"Maximum concurrency for ([\d,]+) tokens per request"),
    "graphs_gib": re.compile(r"Graph capturing finished in [\d.]+ secs?, took (-?[\d.]+) GiB"),
    "start_seconds": re.compile(r"init engine \([^)\n]{0,80}\) took ([\d.]+) s"),
}


@dataclass(frozen=True)
class ServerFacts:
    """What a log shows; empty or None where it does not. `arguments`: those of `vllm serve`, by vLLM's own names, as
    far as they decide about the start. `card`: the accelerator as its driver names it; `memory_gib`: its memory as the
    runtime reports it; `others_gib`: GiB of it that other programs held. `measured`: GiB, tokens and seconds that vLLM
    printed."""

    version: str = ""
    model: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    card: str = ""
    memory_gib: float | None = None
    others_gib: float | None = None
    measured: Mapping[str, float] = field(default_factory=dict)


def facts_of_log(lines: Sequence[LogLine]) -> ServerFacts:
    """What the log shows of the server's command, its accelerator, and the memory that it measured."""
    texts = list(dict.fromkeys(line.text for line in lines))
    version = next((hit[1] for text in texts for pattern in _VERSIONS if (hit := pattern.search(text))), "")
    model, arguments = _command(texts, version)
    card = next((hit[1] for text in texts for pattern in _CARDS if (hit := pattern.search(text))), "")
    memories = (figure(hit[1]) for text in texts for pattern in _CAPACITIES if (hit := pattern.search(text)))
    memory = next((memory for memory in memories if memory), None)
    measured = {}
    for name, pattern in _MEASURED.items():
        reported = next((match for text in texts if (match := pattern.search(text))), None)
        number = next((group for group in reported.groups() if group), "") if reported else ""
        if (value := figure(number)) is not None:
            measured[name] = value
    return ServerFacts(version, model, arguments, card.replace("_", " "), memory, _others(texts), measured)


def figure(text: str) -> float | None:
    """The number that a log tells; None for a text that is none ("1.2.3"), or none that anything measures."""
    try:
        value = float(text.replace(",", "").rstrip("."))
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None


def engine_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that decide about the start of the engine."""
    return {
        name: _plain(value) for name, value in values.items() if not _NOT_OF_ENGINE.match(name) and value is not None
    }


def _command(texts: Sequence[str], version: str) -> tuple[str, dict[str, Any]]:
    """The model and its arguments, by the best line that tells them."""
    model = ""
    config: dict[str, Any] = {}
    for text in texts:
        if match := _NON_DEFAULT.search(text):
            values = _dictionary(match[1])
            named = str(values.get("model") or values.get("model_tag") or "")
            return named or model or _engine_model(texts), engine_values(values)
        if match := _NAMESPACE.search(text):
            values = {name: _literal(value) for name, value in _FIELD.findall(match[1])}
            named = str(values.get("model_tag") or values.get("model") or "")
            taken = {name: values[name] for name in _TAKEN if name in values}
            return named, {name: value for name, value in taken.items() if not _is_default(name, value)}
        if not config and (match := _CONFIG.search(text)):
            values = {name: _literal(value) for name, value in reversed(_FIELD.findall(match[1]))}
            model = model or str(values.get("model") or "")
            config = {name: values[name] for name in _TAKEN if name in values and name not in ("dtype", "quantization")}
            if isinstance(values.get("max_seq_len"), int):
                config["max_model_len"] = values["max_seq_len"]
            config = {name: value for name, value in config.items() if not _is_default(name, value)}
        if match := _COMMAND.search(text):
            try:
                words = shlex.split(match[1])
            except ValueError:
                continue
            values = values_of(words, version, names_model=True)
            return str(values.get("model") or "") or model, engine_values(values)
        if not model and (match := _BANNER_MODEL.match(text)):
            model = match[1]
    return model, config


def _engine_model(texts: Sequence[str]) -> str:
    for text in texts:
        if match := _CONFIG.search(text):
            named = re.search(r"\bmodel='([^'\n]{1,300})'", match[1])
            return named[1] if named else ""
    return ""


def _is_default(name: str, value: Any) -> bool:
    return value is None or value is False or (name in _DEFAULTS and value == _DEFAULTS[name])


def _plain(value: Any, depth: int = 8) -> Any:
    """A value as an argument has it: without what is nested deeper, and a number that nothing takes as its text."""
    if isinstance(value, int | float) and not abs(value) <= _LARGEST:
        return str(value)
    if isinstance(value, dict | list | tuple | set):
        if depth == 0:
            return "..."
        if isinstance(value, dict):
            return {str(name): _plain(item, depth - 1) for name, item in value.items()}
        return [_plain(item, depth - 1) for item in value]
    return value


def _dictionary(text: str) -> dict[str, Any]:
    """Python's own text of a dictionary; its plain values alone if others are among them."""
    try:
        parsed = ast.literal_eval(text.rstrip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {name: _literal(value) for name, value in reversed(_PAIR.findall(text))}
    return {str(name): value for name, value in parsed.items()} if isinstance(parsed, dict) else {}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _others(texts: Sequence[str]) -> float | None:
    """GiB that other programs held when the memory ended, where the message tells the process's own part."""
    for text in texts:
        if (match := _IN_USE.search(text)) and match["own"]:
            total, free, own = (figure(match[name]) for name in ("total", "free", "own"))
            if total is not None and free is not None and own is not None:
                free /= {"K": 1 << 20, "M": 1 << 10, "G": 1}[match["unit"]]
                return max(round(total - free - own, 2), 0.0)
    return None
