"""guidellm as a program: what it is given, that the key is no argument and in no log, and that it never outlives us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_lab import report_of
from neuroscale.bench.cells import Cell, Limits, Room, plan_cell
from neuroscale.bench.guidellm import LOG, PROMPTS_OF, REPORT, Guidellm, Target
from neuroscale.bench.reading import CellError
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.secret_text import SecretText
from neuroscale.core.tool_cache import PACKAGES_STAMP
from neuroscale.tools.guidellm_environment import GuidellmEnvironment
from waiting import wait_for

KEY = "-".join(("key", "of", "the", "test"))
PLANNED = plan_cell(Cell(4, 256, 16), Limits(40, 30.0), Room(), None)


def _environment(folder: Path, program: str) -> GuidellmEnvironment:
    """One whose Python runs another program instead."""
    found = GuidellmEnvironment(folder / "environment", "0.8.1")
    found.python.parent.mkdir(parents=True)
    found.python.write_text(f"#!{sys.executable}\n{textwrap.dedent(program)}", encoding="utf-8")
    found.python.chmod(0o755)
    (found.folder / PACKAGES_STAMP).write_text(json.dumps({"key": found.folder.name}), encoding="utf-8")
    return found


def _run(folder: Path, program: str, tokenizer: str = "owner/model", revision: str = "") -> tuple[Path, list[Any]]:
    told: list[Any] = []
    target = Target("http://127.0.0.1:1", "tiny", SecretText(KEY), tokenizer, revision)
    cell = folder / "cell"
    client = Guidellm(_environment(folder, program))
    client.run(target, PLANNED, cell, lambda answered, failed, _: told.append((answered, failed)))
    return cell, told


_WRITES = f"""
import json, os, pathlib, sys
print("Benchmark 1: running | successful=7 errored=1 incomplete=0 |", os.environ["GUIDELLM__SPEC__BACKEND__API_KEY"])
names = [name for name in os.environ if name.startswith(("GUIDELLM", "NEUROSCALE", "HF_HUB_OFFLINE"))]
pathlib.Path("seen.json").write_text(json.dumps([sys.argv, names]))
pathlib.Path("{REPORT}").write_text("{{}}")
"""


def test_the_key_is_in_no_argument_and_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCALE_API_KEY", KEY)
    monkeypatch.setenv("GUIDELLM__SPEC__SEED__VALUE", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    cell, told = _run(tmp_path, _WRITES)
    words, names = json.loads((cell / "seen.json").read_text(encoding="utf-8"))
    assert KEY not in " ".join(words)
    assert sorted(names) == ["GUIDELLM__MAX_WORKER_PROCESSES", "GUIDELLM__SPEC__BACKEND__API_KEY"]
    assert told == [(7, 1)]
    for file in cell.iterdir():
        assert KEY not in file.read_text(encoding="utf-8"), file
    assert "***" in (cell / LOG).read_text(encoding="utf-8")


def test_prompts_are_made_ahead_new_in_each_run_and_answers_have_their_length(tmp_path: Path) -> None:
    seeds = set()
    for number in range(3):
        cell, _ = _run(tmp_path / str(number), _WRITES, revision="0" * 40)
        spec = json.loads((cell / PROMPTS_OF).read_text(encoding="utf-8"))["spec"]
        seeds.add(spec["seed"]["value"])
    assert len(seeds) == 3
    assert spec["data"] == [{"kind": "synthetic_text", "prompt_tokens": 256, "output_tokens": 16}]
    assert spec["data_loader"] == {"kind": "pytorch", "num_workers": 0, "samples": 4 + 40 + 8}
    assert spec["profile"] == {"kind": "concurrent", "streams": [4], "warmup": {"mode": "requests", "value": 4}}
    assert spec["constraints"][:2] == [{"kind": "min_requests", "count": 44}, {"kind": "max_duration", "seconds": 30.0}]
    assert spec["backend"]["verify"]
    assert spec["tokenizer"] == {
        "kind": "huggingface_auto",
        "model": "owner/model",
        "load_kwargs": {"revision": "0" * 40},
    }


def test_a_tokenizer_of_a_folder_is_looked_up_nowhere_else(tmp_path: Path) -> None:
    cell, _ = _run(tmp_path, _WRITES, tokenizer=str(tmp_path))
    assert "HF_HUB_OFFLINE" in json.loads((cell / "seen.json").read_text(encoding="utf-8"))[1]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('no such tokenizer'); raise SystemExit(1)", "exit code 1: no such tokenizer"),
        ("print('nothing to do')", "exit code 0, and without a report: nothing to do"),
        (f"open('{REPORT}', 'w').write('x'); print('no'); raise SystemExit(3)", "exit code 3: no"),
    ],
)
def test_an_end_without_a_report_is_a_failure_with_its_last_line(tmp_path: Path, program: str, told: str) -> None:
    with pytest.raises(CellError, match=told):
        _run(tmp_path, program)


def test_a_report_of_an_earlier_run_is_never_taken_for_this_ones(tmp_path: Path) -> None:
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / REPORT).write_text(json.dumps(report_of(PLANNED.cell)), encoding="utf-8")
    with pytest.raises(CellError, match="without a report"):
        _run(tmp_path, "print('nothing')")


def test_one_that_hangs_is_ended_with_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscale.bench.guidellm._PATIENCE", 1.0 - PLANNED.seconds - 5 * PLANNED.preparing_seconds)
    program = """
    import pathlib, subprocess, time
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path("child").write_text(str(child.pid))
    print("working", flush=True)
    time.sleep(600)
    """
    with pytest.raises(CellError, match="did not end within 1 s: working"):
        _run(tmp_path, program)
    child = int((tmp_path / "cell" / "child").read_text(encoding="utf-8"))
    wait_for(lambda: not _runs(child), 10.0, "its worker ended")


def test_it_ends_when_the_program_that_started_it_is_killed(tmp_path: Path) -> None:
    """The launcher itself, with the modules that it imports in guidellm's environment as empty ones."""
    import neuroscale.bench.guidellm as module

    for path, text in {
        "datasets.py": "",
        "transformers.py": "AutoTokenizer = PreTrainedTokenizerBase = None",
        "guidellm/__init__.py": "",
        "guidellm/data/__init__.py": "",
        "guidellm/data/loaders.py": "from torch.utils.data.dataloader import DataLoader",
        "guidellm/cli.py": "import os, time\ndef cli():\n    print(os.getpid(), flush=True)\n    time.sleep(600)",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    caller = f"""
import subprocess, sys
words = [sys.executable, "-P", {str(module._LAUNCHER)!r}]
child = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
child.wait()
"""
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", caller], stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        assert psutil.pid_exists(number)
        process.kill()
    wait_for(lambda: not _runs(number), 10.0, "guidellm ended")


def _runs(number: int) -> bool:
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_export_that_wrote_nothing_is_an_error(tmp_path: Path) -> None:
    client = Guidellm(_environment(tmp_path, "print('no template')"))
    with pytest.raises(UntrustedError, match="did not write its html and csv"):
        client.export(tmp_path / REPORT)


def test_without_guidellm_the_message_says_how_to_install_it_and_how_large_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0\.8\.1 is not installed .*0\.5 GB.*setup\.py --for bench"):
        Guidellm(GuidellmEnvironment(tmp_path, "0.8.1"))
