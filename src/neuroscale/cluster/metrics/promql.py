"""Builds Prometheus queries so that no name can become part of their syntax."""

from __future__ import annotations

from collections.abc import Mapping


def quoted(text: str) -> str:
    """`text` as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def selector(metric: str, labels: Mapping[str, str], within: float | None = None) -> str:
    """The series of a metric with exactly these labels; with `within`, their samples of the last `within` seconds."""
    matchers = ",".join(f"{name}={quoted(value)}" for name, value in labels.items())
    return f"{metric}{{{matchers}}}{'' if within is None else f'[{duration(within)}]'}"


def duration(seconds: float) -> str:
    """A time as PromQL writes it, to the millisecond."""
    return f"{max(1, round(seconds * 1000))}ms"
