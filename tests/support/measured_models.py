"""Makes measurements, and models of the catalog that have some."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from neuroscale.catalog import Catalog, ModelEntry
from neuroscale.catalog.measurements import Measurement

REPORT = f"sha256:{'7' * 64}"


def measured_load(
    users: int,
    prompt: int = 1024,
    answer: int = 256,
    *,
    inter_token: float = 0.02,
    ttft: float | None = 0.2,
    **other: Any,
) -> dict[str, Any]:
    """The values of a load whose figures agree with each other; the p95 is a quarter above the mean."""
    first = None if ttft is None else {"mean": ttft, "p50": ttft, "p95": 1.25 * ttft}
    return {
        "users": users,
        "prompt_tokens": prompt,
        "answer_tokens": answer,
        "ttft_seconds": first,
        "inter_token_seconds": {"mean": inter_token, "p50": inter_token, "p95": 1.25 * inter_token},
        "tokens_per_second": {"user": 1 / inter_token, "total": users / (inter_token + (ttft or 0.0) / answer)},
        "requests": 8 * users,
        "failed_requests": 0,
        **other,
    }


def measurement_file(
    model: ModelEntry,
    accelerator: str,
    *,
    loads: Sequence[dict[str, Any]] = (),
    start: dict[str, Any] | None = None,
    version: str = "0.32.0",
    **other: Any,
) -> dict[str, Any]:
    """The values of a measurement of a model of the catalog, as they stand in its file."""
    arguments: dict[str, Any] = other.pop("arguments", {})
    return {
        "accelerator": accelerator,
        "count": arguments.get("tensor_parallel_size", 1),
        "vllm_version": version,
        "revision": model.weights.revision,
        "weights": model.weights_digest,
        "arguments": arguments,
        "date": "2026-11-28",
        "report": REPORT,
        "source": "measured by a test",
        **({"start": start} if start else {"loads": list(loads)}),
        **other,
    }


def measurement(model: ModelEntry, accelerator: str, **values: Any) -> Measurement:
    """The same as the catalog holds it."""
    return Measurement.model_validate_json(json.dumps(measurement_file(model, accelerator, **values)))


def with_measurements(model: ModelEntry, *measurements: Measurement) -> ModelEntry:
    """The model with these measurements."""
    return model.model_copy(update={"measurements": measurements})


def catalog_with(catalog: Catalog, model: ModelEntry) -> Catalog:
    """The catalog with this entry in the place of the model's own."""
    models = {**catalog.models, model.name: model}
    return Catalog(models, catalog.accelerators, catalog.prices, catalog.runtimes, catalog.teams)
