"""Asks vLLM and transformers themselves, in the Python environment of set-up that has them: see vllm_start.py."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from neuroscale.local.start_and_stop import last_lines
from neuroscale.tools.model_server import ModelServer
from neuroscale.vllm.engine_arguments import EngineArguments

_HERE = Path(__file__).parent
_WITHIN = 1800.0
"""Seconds for all questions of a test module: two minutes on an idle machine, several times that on a busy one."""


_OF_VLLM_ALONE = "speculative_config", "attention_backend"
"""Arguments that the planner takes in another form, or not at all."""


@dataclass(frozen=True)
class Question:
    """A question to vllm_start.py. `arguments`: for vLLM's engine and for the planner's EngineArguments alike.

    `draft`: the config.json of the draft model in `speculative_config`; `tensors`: if given, the shapes of the tensors
    in its checkpoint, by name.
    `memory`: bytes for the cache if no engine starts. `layers`: (kind, how many, KV heads, head size, window).
    """

    name: str
    config: Mapping[str, Any]
    arguments: Mapping[str, Any]
    how: Literal["start", "build", "plan"] = "start"
    rank: int = 0
    memory: int = 0
    layers: Sequence[tuple[str, int, int, int, int | None]] = ()
    draft: Mapping[str, Any] | None = None
    tensors: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def engine_arguments(self) -> EngineArguments:
        """The arguments of the same question to the planner."""
        told = {key: value for key, value in self.arguments.items() if key not in _OF_VLLM_ALONE}
        if guessing := self.arguments.get("speculative_config"):
            told |= {"speculative": guessing["method"], "speculative_tokens": guessing["num_speculative_tokens"]}
            told |= {"draft": "draft"} if self.draft else {}
        fixed = {"kv_cache_memory_bytes": self.memory} if self.how != "start" else {}
        return EngineArguments(**{**told, **fixed})


@dataclass(frozen=True)
class Answer:
    """The memory that vLLM held and the lines that it printed, or why it refused. `held`: bytes of parameters and of
    tables, for each rank in the question."""

    name: str
    held: Sequence[tuple[int, int]] = ()
    blocks: int = 0
    block_size: int = 0
    tokens: int = 0
    concurrency: float = 0.0
    printed: Sequence[str] = ()
    error: str = ""
    seconds: float = field(default=0.0, compare=False)


def ask_vllm(questions: Iterable[Question]) -> dict[str, Answer]:
    """Answers by name, all from one process."""
    found = _run("vllm_start.py", [asdict(question) for question in questions])
    return {one["name"]: Answer(**one) for one in found}


def count_with_transformers(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By model: `tensors` and `buffers`, parameters by tensor name."""
    found = _run("transformers_count.py", [{"name": name, "config": config} for name, config in configs.items()])
    failed = {one["name"]: one["error"] for one in found if "error" in one}
    assert not failed, f"transformers cannot build these models: {failed}"
    return {one["name"]: one for one in found}


def _run(script: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    server = ModelServer.find()
    assert server.installed, f"nothing was compared. {server.problem()}"
    with tempfile.TemporaryDirectory() as folder:
        asked, answered, log = (Path(folder) / name for name in ("asked.json", "answered.jsonl", "log"))
        asked.write_text(json.dumps(cases), encoding="utf-8")
        environment = {**os.environ, "VLLM_CACHE_ROOT": folder, "PYTHONPATH": str(_HERE)}
        with log.open("w") as out:
            done = subprocess.run(
                [str(server.python), str(_HERE / script), str(asked), str(answered)],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=_WITHIN,
                check=False,
            )
        told = "\n".join(last_lines(log, 60))
        assert done.returncode == 0, f"{script} ended with {done.returncode}:\n{told}"
        found = [json.loads(line) for line in answered.read_text(encoding="utf-8").splitlines()]
        assert len(found) == len(cases), f"{script} answered {len(found)} of {len(cases)} questions:\n{told}"
        return found
