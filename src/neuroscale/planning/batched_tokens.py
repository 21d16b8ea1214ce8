"""Decides how many tokens of all requests a planned server computes in one step (`--max-num-batched-tokens`)."""

from __future__ import annotations

from neuroscale.catalog import Accelerator, ModelEntry


def batched_tokens(model: ModelEntry, accelerator: Accelerator) -> int:
    """The number that a plan writes: 8192 from 70 GiB on; below, 2048, or 2560 for a model that takes more than text.

    Gemma 4 computes an image or a video in one step, and a video takes up to 2,496 tokens: 2048 would not start.
    """
    # A plan always writes the number, and counts its speed and its memory with it. vLLM's own default for a command
    # without the argument depends on version, family and card (1024 on a TPU, 2048 for each rank on a CPU, 16384 from
    # 160 GiB on): `_batch` of planning/fit/argument_defaults.py computes it.
    if (accelerator.memory_gib.value or 0.0) >= 70:
        return 8192
    return 2560 if model.serving.multimodal else 2048
