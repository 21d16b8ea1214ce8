"""Asks aiconfigurator about measured speeds: a JSON list in, an object out.

`other_speed_planners.py` runs it with the Python of an environment of its own. It uses no network: the tool brings the
measurements of kernels with it, and gets the configs of models that it does not bring.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

SYSTEMS = {
    "nvidia-a100-80gb": "a100_sxm",
    "nvidia-b200": "b200_sxm",
    "nvidia-b300": "b300_sxm",
    "nvidia-h100-80gb": "h100_sxm",
    "nvidia-h100-pcie": "h100_pcie",
    "nvidia-h200-141gb": "h200_sxm",
    "nvidia-l4": "l4",
    "nvidia-l40s": "l40s",
    "nvidia-rtx-pro-6000": "rtx_pro_6000_server",
}
"""Its names of the accelerators."""

Row = list[float] | None


class Aiconfigurator:
    """Its estimate of one replica without separate prefill, with its current database of vLLM."""

    def __init__(self, folder: Path) -> None:
        self._estimate = importlib.import_module("aiconfigurator.cli.api").cli_estimate
        self._folder = folder
        self._versions: dict[str, str] = {}  # of its database, by system: it takes a second to find the newest

    def series(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answers to all rows of a series, or why there are none."""
        if asked["accelerator"] not in SYSTEMS:
            return {"problem": "does not know this accelerator"}
        path, reason = self._model(asked)
        if path is None:
            return {"problem": reason}
        rows: list[Row] = []
        for load in asked["loads"]:
            row, reason = self._row(path, asked, load)
            rows.append(row)
        return {"rows": rows} if any(rows) else {"problem": reason}

    def _model(self, asked: dict[str, Any]) -> tuple[str | None, str]:
        """The model by its name if the tool brings its config, else a folder with its config."""
        known = importlib.import_module("aiconfigurator_core")
        name = asked["model"].replace("/", "--")
        if (Path(str(known.__file__)).parent / f"model_configs/{name}_config.json").is_file():
            return asked["model"], ""
        if asked["config"] is None:
            return None, "does not know this model"
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        config = dict(asked["config"])
        quantization = config.get("quantization_config", {})
        if "producer" in quantization:  # ModelOpt's own file, which the tool reads
            del config["quantization_config"]
            (folder / "hf_quant_config.json").write_text(json.dumps(quantization), encoding="utf-8")
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return str(folder), ""

    def _row(self, path: str, asked: dict[str, Any], load: list[float] | None) -> tuple[Row, str]:
        if load is None:
            return None, "knows no open load"
        prompt, answer, users = load
        ranks, replicas = asked["tensor_parallel"], asked["data_parallel"]
        experts: dict[str, int] = {}
        if asked["experts"]:
            spread = ranks * replicas
            parallel = asked["expert_parallel"]
            experts = {"moe_tp_size": 1 if parallel else spread, "moe_ep_size": spread if parallel else 1}
        system = SYSTEMS[asked["accelerator"]]
        try:
            with contextlib.redirect_stdout(sys.stderr):
                found = self._estimate(
                    model_path=path,
                    system_name=system,
                    mode="agg",
                    backend_name="vllm",
                    backend_version=self._versions.get(system),
                    isl=round(prompt),
                    osl=round(answer),
                    batch_size=max(round(users / replicas), 1),
                    tp_size=ranks,
                    pp_size=asked["pipeline_parallel"],
                    attention_dp_size=replicas,
                    **experts,
                )
            self._versions[system] = found.raw["version"]
            total = float(found.raw["tokens/s"])
            return [_short(found.ttft / 1000), _short(found.tpot / 1000), _short(total)], ""
        except Exception as error:  # part of the answer
            return None, f"fails with {type(error).__name__}"


def _short(value: float) -> float:
    return float(f"{float(value):.4g}")


def main() -> int:
    """Answer the questions of standard input; returns the exit status."""
    questions = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        tool = Aiconfigurator(Path(folder))
        answers = {asked["id"]: tool.series(asked) for asked in questions}
    json.dump({"version": importlib.metadata.version("aiconfigurator"), "answers": answers}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
