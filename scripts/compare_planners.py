"""Puts the cases of tests/ground_truth to other planners as well, and writes their answers to its others.yaml.

`compare_planners.py [--environment FOLDER]` installs them from requirements/compare.txt into an environment of their
own, by default in the user's cache, and runs them without a network.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accuracy.cases import Others, StartCase
from accuracy.reading import Cases, read_cases
from neuroscale.core.errors import NeuroscaleError
from neuroscale.core.tool_cache import cache_folder
from neuroscale.core.yaml_io import dump
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import PINNED
from neuroscale.planning.fit.versions import behaviour
from neuroscale.vllm.arguments import parse_arguments

REPOSITORY = Path(__file__).resolve().parent.parent
CASES = REPOSITORY / "tests/ground_truth"
LOCK = REPOSITORY / "requirements/compare.txt"

HOW = {
    "hf-mem": (
        "its own functions for headers and KV cache, given the bytes that this repository counts (the files' headers "
        "are not asked for); it knows neither accelerators nor ranks: verdict by what it adds up against the cards' "
        "memory x utilisation, weights and cache for one accelerator alone"
    ),
    "kvfit": (
        "its own functions for cache and layout, given the bytes that this repository counts and no reserve; tokens: "
        "what is left over the bytes of a request; it tells a bound before the overhead of a runtime"
    ),
    "llm-d-planner": (
        "its own functions of the capacity planner, given the parameters by dtype that this repository counts; tokens: "
        "what is left over the bytes of a token (its count of blocks multiplies by the ranks); most of the starts of "
        "vLLM 0.19.0 are those that its constants were measured by"
    ),
}
TELLS: dict[str, tuple[str, ...]] = {
    "hf-mem": ("verdict", "weights", "tokens_of_memory", "request_gib"),
    "kvfit": ("verdict", "weights", "kv_gib", "kv_tokens", "tokens_of_memory", "concurrency", "request_gib"),
    "llm-d-planner": ("verdict", "weights", "kv_gib", "kv_tokens", "tokens_of_memory", "concurrency"),
}
_DTYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "float32": ("F32", 4)}
_PACKED = {"mxfp4": ("U8", 1), "modelopt": ("U8", 1), "fp8": ("F8_E4M3", 1)}


def main(arguments: list[str]) -> int:
    """Write others.yaml; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--environment", type=Path, default=cache_folder() / "other-planners")
    python = environment(parser.parse_args(arguments).environment)
    cases = read_cases(CASES)
    questions = [_question(cases, case) for case in cases.starts if case.left_out is None]
    asked = subprocess.run(
        [str(python), str(REPOSITORY / "scripts/other_planners.py")],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    found = json.loads(asked.stdout)
    judged: dict[str, set[str]] = {case.id: set(case.judged) for case in cases.starts}
    content: dict[str, Any] = {
        "tools": [
            {
                "name": name,
                "version": version,
                "asked": datetime.now(UTC).date().isoformat(),
                "how": HOW[name],
                "answers": list(TELLS[name]),
            }
            for name, version in found["versions"].items()
        ],
        "answers": {
            case: {name: _kept(answer, judged[case]) for name, answer in answers.items()}
            for case, answers in found["answers"].items()
        },
    }
    Others.model_validate_json(json.dumps(content))
    (CASES / "others.yaml").write_text(dump(content), encoding="utf-8")
    for name in found["versions"]:
        answered = sum("figures" in answers[name] for answers in content["answers"].values())
        print(f"{name} answers {answered} of {len(questions)} cases")
    return 0


def _kept(answer: dict[str, Any], judged: set[str]) -> dict[str, Any]:
    """The figures of a tool that have a measured figure to compare with."""
    if "figures" not in answer:
        return answer
    figures = {
        name: value if isinstance(value, str) else float(f"{value:.5g}")
        for name, value in answer["figures"].items()
        if name in judged
    }
    return {"figures": figures} if figures else {"problem": "tells no figure that is judged here"}


def environment(folder: Path) -> Path:
    """The Python of an environment that holds exactly what the lock names; it is made anew where it differs."""
    stamp = folder / "compare.txt"
    python = folder / "bin/python"
    wanted = LOCK.read_text(encoding="utf-8")
    if python.is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    uv = str(REPOSITORY / ".venv/bin/uv")
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes", "--requirement", str(LOCK)],
    ):
        subprocess.run(command, check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _question(cases: Cases, case: StartCase) -> dict[str, Any]:
    """One case in plain figures. `unasked`: why no tool can answer it."""
    version = case.version or PINNED
    arguments = parse_arguments(case.arguments, version).arguments
    question: dict[str, Any] = {
        "id": case.id,
        "memory_gib": case.accelerator.memory_gib,
        "kv_gib": case.measured.kv_gib if (case.measured.kv_gib or 0) > 0 else None,
        "tp": arguments.tensor_parallel_size,
        "pp": arguments.pipeline_parallel_size,
        "kv_cache_dtype": arguments.kv_cache_dtype,
        "utilization": arguments.gpu_memory_utilization or behaviour(version).utilization,
        "unasked": "",
    }
    if case.model is None:
        return question | {"unasked": "the case names a model of the catalog, not a config"}
    config = cases.config(case.model)
    try:
        facts = read_config(config, case.model, case.model)
    except NeuroscaleError:
        return question | {"unasked": "this repository does not count its weights"}
    if arguments.cpu_offload_gib:
        question["unasked"] = "it knows no weights in the host's memory"
    if arguments.data_parallel_size > 1 or arguments.enable_expert_parallel:
        question["unasked"] = "it knows no expert parallelism"
    if (case.accelerator.name or "").startswith(("CPU", "Google")):
        question["unasked"] = "it knows no start without a graphics card"
    if arguments.quantization is not None and "quantization_config" not in config:
        question["unasked"] = "it knows no quantisation at load time"
    if arguments.dtype == "float32" != facts.dtype:
        question["unasked"] = "it knows no other dtype than the config's"
    length = arguments.max_model_len
    return question | {
        "model": case.model,
        "config": _whole(config, facts),
        "elements": _elements(facts),
        "weight_bytes": sum(facts.weight_bytes.values()),
        "max_model_len": length if isinstance(length, int) and length > 0 else facts.max_position_embeddings,
    }


def _elements(facts: ModelFacts) -> dict[str, int]:
    """Elements by dtype as in the headers of the files: four-bit weights are packed into larger integers."""
    found: dict[str, int] = {}
    for name, size in facts.bytes_by_dtype.items():
        method, _, bits = name.partition(" ")
        packed = ("I8", 1) if bits.startswith("8") else ("I32", 4)
        dtype, width = _DTYPES.get(name) or _PACKED.get(method) or packed
        found[dtype] = found.get(dtype, 0) + size // width
    return found


def _whole(config: dict[str, Any], facts: ModelFacts) -> dict[str, Any]:
    """The config with the defaults of transformers' class for missing keys."""
    told = {
        "num_hidden_layers": facts.num_layers,
        "hidden_size": facts.hidden_size,
        "vocab_size": facts.vocab_size,
        "num_attention_heads": facts.heads,
        "num_key_value_heads": facts.kv_heads,
        "intermediate_size": facts.intermediate_size,
        "max_position_embeddings": facts.max_position_embeddings,
    }
    outer = {"architectures": list(facts.architectures), "torch_dtype": facts.dtype}
    if isinstance(config.get("text_config"), dict):
        return {**outer, **config, "text_config": {**told, **config["text_config"]}}
    return {**outer, **told, **config}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
