"""Lists the weight tensors of models as transformers builds them, without memory behind them. Run by vLLM's own Python.

`transformers_count.py CASES ANSWERS`: CASES is a JSON list of objects with `name` and `config` (a config.json), ANSWERS
gets a JSON line for each: `name`, `tensors` (parameters by name) and `buffers` (values by name: what a checkpoint holds
besides), or `error`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers


def tensors(config: dict[str, Any]) -> dict[str, dict[str, int]]:
    """By name; a matrix that two names share counts once, under the first."""
    told = {key: value for key, value in config.items() if key not in ("quantization_config", "auto_map")}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(told), encoding="utf-8")
        settings = transformers.AutoConfig.from_pretrained(folder)
    named = config["architectures"][0]
    # transformers spells one class otherwise than the model's own files and vLLM.
    kind = getattr(transformers, {"PhiMoEForCausalLM": "PhimoeForCausalLM"}.get(named, named))
    with torch.device("meta"):
        model = kind(settings)
    model.tie_weights()
    saved = model.state_dict()
    return {
        "tensors": {name: parameter.numel() for name, parameter in model.named_parameters()},
        "buffers": {name: buffer.numel() for name, buffer in model.named_buffers() if name in saved},
    }


def main(cases: str, answers: str) -> None:
    """Answer all cases."""
    with Path(answers).open("w", encoding="utf-8") as out:
        for case in json.loads(Path(cases).read_text(encoding="utf-8")):
            try:
                said: dict[str, Any] = tensors(case["config"])
            except Exception as error:
                said = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"name": case["name"], **said}), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
