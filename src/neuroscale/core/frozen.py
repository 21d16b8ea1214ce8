"""Holds the base class of every value that is read from or written to a file, and the scalars that many files have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Source = Annotated[str, Field(min_length=8, max_length=600)]
Positive = Annotated[float, Field(gt=0)]


class Frozen(BaseModel):
    """An immutable value; an unknown field is an error, so a typo is never silently dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
