"""The form's answers, as `request.yaml` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from neuroscale.catalog import Catalog
from neuroscale.errors import InputError, Problem
from neuroscale.model import Frozen
from neuroscale.settings import Settings
from neuroscale.validation import parse, shorten, suggest, wrong
from neuroscale.yaml_io import dump

Availability = Literal["standard", "high"]
SERVICE_NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"


def _scale_to_zero() -> PydanticCustomError:
    return wrong(
        "scale to zero is not offered: a replica needs minutes to load its weights, and nothing wakes it yet",
        "Write 1 or more, or remove the service.",
    )


_OVERRIDES: Mapping[str, tuple[str, TypeAdapter[Any]]] = MappingProxyType(
    {
        "accelerator": ("the name of an accelerator in the catalog", TypeAdapter(str)),
        "accelerator_count": ("a whole number from 1 to 64", TypeAdapter(Annotated[int, Field(ge=1, le=64)])),
        "replicas.min": ("a whole number from 1 to 1000", TypeAdapter(Annotated[int, Field(ge=1, le=1000)])),
        "replicas.max": ("a whole number from 1 to 1000", TypeAdapter(Annotated[int, Field(ge=1, le=1000)])),
        "max_model_len": (
            "a whole number of tokens from 16 to 1048576",
            TypeAdapter(Annotated[int, Field(ge=16, le=1_048_576)]),
        ),
        "max_num_seqs": ("a whole number from 1 to 1024", TypeAdapter(Annotated[int, Field(ge=1, le=1024)])),
        "gpu_memory_utilization": (
            "a number from 0.50 to 0.95, with at most three digits behind the point",
            TypeAdapter(Annotated[float, Field(ge=0.5, le=0.95)]),
        ),
        "kv_cache_dtype": ("auto or fp8", TypeAdapter(Literal["auto", "fp8"])),
    }
)
OVERRIDE_FIELDS = tuple(_OVERRIDES)
"""What an override may set."""


class Override(Frozen):
    """A reviewed exception to the plan: `field` names what is set, until and including the day `expires`."""

    field: str
    value: str | int | float | bool
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    expires: date

    @field_validator("field")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in _OVERRIDES:
            raise wrong(f"{shorten(name)} cannot be overridden", suggest(name, _OVERRIDES))
        return name

    @field_validator("reason")
    @classmethod
    def _says_something(cls, reason: str) -> str:
        if not reason.strip():
            raise wrong("the reason is empty", "Write what a reviewer needs to understand the exception.")
        return reason

    @model_validator(mode="after")
    def _typed(self) -> Override:
        wanted, adapter = _OVERRIDES[self.field]
        if self.field.startswith("replicas.") and self.value == 0 and not isinstance(self.value, bool):
            raise _scale_to_zero()
        try:
            adapter.validate_python(self.value, strict=True)
        except ValidationError as error:
            raise wrong(f"the value {shorten(self.value)} does not suit {self.field}", f"Write {wanted}.") from error
        if isinstance(self.value, float) and self.value != round(self.value, 3):
            raise wrong(f"the value {shorten(self.value)} does not suit {self.field}", f"Write {wanted}.")
        return self


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
    p95_ttft_seconds: Annotated[float, Field(ge=0.01, le=120)]
    availability: Availability
    overrides: tuple[Override, ...] = ()

    @field_validator("overrides")
    @classmethod
    def _once(cls, overrides: tuple[Override, ...]) -> tuple[Override, ...]:
        fields = [override.field for override in overrides]
        for field in fields:
            if fields.count(field) > 1:
                raise wrong(f"{field} is overridden twice", "Keep one of the two.")
        return overrides


_FIXES = {
    "service": "Write 1 to 40 lower-case letters, digits and hyphens, starting with a letter, such as support-chat.",
    "concurrent_users": "Write a whole number from 1 to 4096.",
    "longest_prompt_tokens": "Write a whole number of tokens from 1 to 1048576.",
    "longest_answer_tokens": "Write a whole number of tokens from 1 to 131072.",
    "p95_ttft_seconds": "Write seconds from 0.01 to 120, such as 2 or 0.5.",
    "availability": "Write standard or high.",
    "reason": "Write why the exception is needed, in 1 to 500 characters.",
    "expires": 'Write the last day as a quoted date, such as "2027-01-31".',
}


def load_request(text: str, where: str) -> Request:
    """The request in a `request.yaml`. Raises InputError with file, field, line and what to write instead."""
    return parse(Request, text, where, _FIXES)


def dump_request(request: Request) -> str:
    """`request.yaml` for a request; `load_request` gives the same value back."""
    return dump(request.model_dump(mode="json"))


def check_request(request: Request, catalog: Catalog, settings: Settings, where: str) -> None:
    """Raises InputError where the request names what the catalog or the settings do not have."""
    problems = [
        Problem(where, field, f"{shorten(name)} is not {what}", suggest(name, known))
        for field, name, known, what in (
            ("model", request.model, catalog.models, "a model of the catalog"),
            ("team", request.team, catalog.teams, "a team of the catalog"),
            ("environment", request.environment, settings.environments, "an environment of the settings"),
        )
        if name not in known
    ]
    for index, override in enumerate(request.overrides):
        if override.field == "accelerator" and override.value not in catalog.accelerators:
            problems.append(
                Problem(
                    where,
                    f"overrides[{index}].value",
                    f"{shorten(override.value)} is not an accelerator of the catalog",
                    suggest(str(override.value), catalog.accelerators),
                )
            )
    if problems:
        raise InputError(problems)
