"""Holds the base class of every value that is read from or written to a file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value; an unknown field is an error, so a typo is never silently dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
