"""Puts the measured speeds of tests/ground_truth to another planner, and writes its answers to its speed_others.yaml.

`other_speed_planners.py [--environment FOLDER]` installs aiconfigurator (85 MB with its measurements of kernels) as
compare_planners.py does, into the same environment, and runs it without a network.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accuracy.reading import Cases, read_cases
from accuracy.speed_cases import Series, measured, read_speed_cases
from accuracy.speed_others import FILE, SpeedOthers
from compare_planners import environment
from neuroscale.catalog import Catalog, load_catalog
from neuroscale.core.errors import NeuroscaleError
from neuroscale.core.tool_cache import cache_folder
from neuroscale.models.config import read_config
from neuroscale.repo.snapshot import FolderSnapshot

REPOSITORY = Path(__file__).resolve().parent.parent
CASES = REPOSITORY / "tests/ground_truth"
TOOL = "aiconfigurator"

HOW = (
    "its cli_estimate for one replica without separate prefill, with the mean lengths, the users as its batch, and its "
    "current database of vLLM on that system (0.24 on most; older ones are not kept up); it gets the configs of "
    "models that it does not bring; open loads are not asked"
)


def main(arguments: list[str]) -> int:
    """Write the file; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--environment", type=Path, default=cache_folder() / "other-planners")
    python = environment(parser.parse_args(arguments).environment)
    cases, catalog = read_cases(CASES), load_catalog(FolderSnapshot(REPOSITORY))
    speed = read_speed_cases(CASES, {*cases.models, *catalog.models}, catalog.accelerators)
    asked = [_question(cases, catalog, series) for series in speed.series if series.left_out is None]
    answered = subprocess.run(
        [str(python), str(REPOSITORY / "scripts/other_speed_answers.py")],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    found = json.loads(answered.stdout)
    text = _written(found["version"], found["answers"])
    (CASES / FILE).write_text(text, encoding="utf-8")
    rows = sum(row is not None for answer in found["answers"].values() for row in answer.get("rows", ()))
    print(f"{TOOL} answers {rows} of {sum(len(question['loads']) for question in asked)} rows")
    return 0


def _question(cases: Cases, catalog: Catalog, series: Series) -> dict[str, Any]:
    """A series in plain figures. `loads`: prompt, answer and users of each row; null for an open load."""
    config = cases.config(series.model) if series.model in cases.models else catalog.models[series.model].config
    try:
        experts = read_config(dict(config), series.model, series.model).kind == "moe"
    except NeuroscaleError:
        experts = False
    rows = [measured(series, row) for row in range(len(series.rows))]
    return {
        "id": series.id,
        "model": series.model,
        "config": dict(config),
        "experts": experts,
        "accelerator": series.accelerator,
        "tensor_parallel": series.tensor_parallel,
        "pipeline_parallel": series.pipeline_parallel,
        "data_parallel": series.data_parallel,
        "expert_parallel": series.expert_parallel,
        "loads": [None if row.users is None else [row.prompt, row.answer, row.users] for row in rows],
    }


def _written(version: str, answers: dict[str, dict[str, Any]]) -> str:
    """The file's text, with the answers to a series in one line."""
    content: dict[str, Any] = {
        "tools": [{"name": TOOL, "version": version, "asked": datetime.now(UTC).date().isoformat(), "how": HOW}],
        "answers": {name: {TOOL: answer} for name, answer in answers.items()},
    }
    SpeedOthers.model_validate_json(json.dumps(content))
    [tool] = content["tools"]
    lines = ["tools:", *(f"  {'- ' if key == 'name' else '  '}{key}: {json.dumps(tool[key])}" for key in tool)]
    lines += ["answers:", *(f"  {name}: {json.dumps({TOOL: answer})}" for name, answer in answers.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
