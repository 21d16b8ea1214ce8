"""The form's answers, as `request.yaml` holds them."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from neuroscale.model import Frozen

Availability = Literal["standard", "high"]
SERVICE_NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"


class Override(Frozen):
    """A reviewed exception to the plan: `field` names what is set, until and including the day `expires`."""

    field: str
    value: str | int | float | bool
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    expires: date


class Request(Frozen):
    """What the form asked for. Lengths in tokens, the time to first token in seconds at p95."""

    schema_version: Literal[1] = 1
    service: Annotated[str, Field(pattern=SERVICE_NAME)]
    model: str
    team: str
    environment: str
    concurrent_users: Annotated[int, Field(ge=1, le=4096)]
    longest_prompt_tokens: Annotated[int, Field(ge=1, le=1_048_576)]
    longest_answer_tokens: Annotated[int, Field(ge=1, le=131_072)]
    p95_ttft_seconds: Annotated[float, Field(gt=0, le=120)]
    availability: Availability
    overrides: tuple[Override, ...] = ()
