"""Runs guidellm for one cell, in an environment of its own, and lets it write its HTML and CSV of all cells."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol
from urllib.parse import urlsplit

from neuroscale.bench.cells import PlannedCell
from neuroscale.bench.reading import CellError
from neuroscale.core.addresses import is_loopback
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import one_line
from neuroscale.core.secret_text import SecretText, redact
from neuroscale.tools.guidellm_environment import INSTALL, GuidellmEnvironment

Api = Literal["chat", "completions"]
REPORT = "guidellm.json"
PROMPTS_OF = "guidellm-settings.json"
LOG = "guidellm.log"

_PATHS: Mapping[Api, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_LAUNCHER = Path(__file__).with_name("guidellm_without_torch.py")
_KEY = "GUIDELLM__SPEC__BACKEND__API_KEY"
_OWN = re.compile(r"GUIDELLM_|NEUROSCALE_|PYTHON")
_MOST_ERRORS = 3
_MOST_WORKERS = 8
_SATURATED_AFTER = 30.0  # seconds, guidellm's own default
_PATIENCE = 120.0  # seconds beyond the cell's own, before guidellm is ended
_SLOW = 5.0  # how many times as long a machine may take to make the prompts as ours
_ANSWERED = re.compile(r"successful=(\d+) errored=(\d+)")


@dataclass(frozen=True)
class Target:
    """An endpoint to drive. `tokenizer`: a folder of this machine, or a repository of the Hub at `revision` ("": its
    newest). `url`: without `/v1`."""

    url: str
    model: str
    key: SecretText | None
    tokenizer: str
    revision: str = ""
    api: Api = "chat"


Progress = Callable[[int, int, float], None]
"""Called while a cell runs: requests answered, requests failed, seconds."""


class Client(Protocol):
    """What runs a cell; guidellm, or a stand-in in tests."""

    @property
    def version(self) -> str: ...

    def run(self, target: Target, planned: PlannedCell, folder: Path, progress: Progress) -> None:
        """Run a cell, and write REPORT into its folder. Raises CellError."""

    def export(self, report: Path) -> None:
        """Write the HTML and the CSV of a report beside it. Raises UntrustedError."""


class Guidellm:
    """guidellm of this machine. Raises InputError if it is not installed."""

    def __init__(self, environment: GuidellmEnvironment | None = None) -> None:
        self._environment = environment or GuidellmEnvironment.find()
        if not self._environment.installed:
            told = f"{self._environment.version} is not installed on this machine"
            raise InputError.at("guidellm", "", told, f"Install it (0.5 GB): {INSTALL}")

    @property
    def version(self) -> str:
        return self._environment.version

    def run(self, target: Target, planned: PlannedCell, folder: Path, progress: Progress) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REPORT).unlink(missing_ok=True)
        scenario = {"spec": _spec(target, planned)}
        (folder / PROMPTS_OF).write_text(json.dumps(scenario, indent=2), encoding="utf-8")
        workers = max(1, min(_MOST_WORKERS, (os.cpu_count() or 2) - 1, planned.cell.users))
        variables = {"GUIDELLM__MAX_WORKER_PROCESSES": str(workers)}
        if target.key is not None:
            variables[_KEY] = target.key.secret
        if Path(target.tokenizer).is_dir():
            variables["HF_HUB_OFFLINE"] = "1"
        if is_loopback(urlsplit(target.url).hostname or ""):
            variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1")
        seconds = planned.seconds + _SLOW * planned.preparing_seconds + _PATIENCE
        words = ["run", "--config", PROMPTS_OF, "--disable-console-interactive"]
        status, last = self._start(words, folder, variables, seconds, target.key, progress)
        if status or not (folder / REPORT).is_file():
            without = "" if status else ", and without a report"
            raise CellError(f"guidellm ended with exit code {status}{without}: {last}. See {folder / LOG}")

    def export(self, report: Path) -> None:
        outputs = [f"kind={kind},path={report.with_suffix(f'.{kind}').name}" for kind in ("html", "csv")]
        words = ["export", report.name, *(word for output in outputs for word in ("--output", output))]
        status, last = self._start(words, report.parent, {}, _PATIENCE, None, lambda *_: None)
        missing = [kind for kind in ("html", "csv") if not report.with_suffix(f".{kind}").is_file()]
        if status or missing:
            raise UntrustedError(f"guidellm did not write its {' and '.join(missing) or 'files'} of {report}: {last}")

    def _start(
        self,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        seconds: float,
        key: SecretText | None,
        progress: Progress,
    ) -> tuple[int, str]:
        """Run it in a folder; its exit code and the last line that it printed. Raises CellError after the seconds."""
        inherited = {name: value for name, value in os.environ.items() if not _OWN.match(name)}
        process = subprocess.Popen(
            [str(self._environment.python), "-I", str(_LAUNCHER), *words],
            cwd=folder,
            env={**inherited, "TOKENIZERS_PARALLELISM": "false", **variables},
            stdin=subprocess.PIPE,  # nothing is written: it ends when we do
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        over = threading.Event()

        def end() -> None:
            over.set()
            _kill(process)

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout, (folder / LOG).open("w", encoding="utf-8") as log:
                last = _follow(process.stdout, log, key, progress)
            status = process.wait()
        finally:
            timer.cancel()
            _kill(process)
        if over.is_set():
            raise CellError(f"guidellm did not end within {duration(seconds)}: {last}. See {folder / LOG}")
        return status, last


def _spec(target: Target, planned: PlannedCell) -> dict[str, Any]:
    """guidellm's settings of a cell. Its prompts are made before it begins, so that their making slows no request; no
    two begin alike, nor do those of two runs, so that no prefix cache knows them."""
    cell = planned.cell
    limits: list[dict[str, Any]] = [
        {"kind": "min_requests", "count": planned.warm_up + planned.requests},
        {"kind": "max_duration", "seconds": planned.seconds},
        {"kind": "max_errors", "count": _MOST_ERRORS},
        {"kind": "over_saturation", "min_seconds": _SATURATED_AFTER},
    ]
    return {
        "backend": {
            "kind": "openai_http",
            "target": target.url,
            "model": target.model,
            "request_format": _PATHS[target.api],
            "verify": True,
            "follow_redirects": False,
        },
        "profile": {
            "kind": "concurrent",
            "streams": [cell.users],
            "warmup": {"mode": "requests", "value": planned.warm_up},
        },
        "constraints": limits,
        "tokenizer": {
            "kind": "huggingface_auto",
            "model": target.tokenizer,
            "load_kwargs": {"revision": target.revision} if target.revision else {},
        },
        # It asks for exactly so many tokens of an answer: `ignore_eos` and the most tokens.
        "data": [
            {"kind": "synthetic_text", "prompt_tokens": cell.prompt_tokens, "output_tokens": cell.answer_tokens},
        ],
        "data_loader": {"kind": "pytorch", "num_workers": 0, "samples": planned.prompts},
        "seed": {"kind": "static", "value": secrets.randbelow(2**31)},
        "outputs": [{"kind": "json", "path": REPORT}],
        # Neither prompts nor answers are kept: the figures of each request are.
        "metrics": {"kind": "generative", "sample_size": 0},
    }


def _follow(output: IO[str], log: IO[str], key: SecretText | None, progress: Progress) -> str:
    began, last = time.monotonic(), "it printed nothing"
    for line in output:
        text = redact(line, key)
        log.write(text)
        if counts := _ANSWERED.search(text):
            progress(int(counts[1]), int(counts[2]), time.monotonic() - began)
        elif text.strip():
            last = one_line(text, 300).rstrip(".")
    return last


def _kill(process: subprocess.Popen[str]) -> None:
    """End it with its workers, which are in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
