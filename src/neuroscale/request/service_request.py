"""Reads, checks and writes the form's answers, as `request.yaml` holds them.

Says whether a reviewed exception is valid: it needs a reason, and an end within the longest term.

Overrides of a plan, exceptions from policies and exceptions from budgets are reviewed exceptions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import RolloutKind, Settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import from_document, parse, shorten, suggest, wrong
from neuroscale.core.yaml_io import Document, dotted, dump, read_mapping
from neuroscale.repo.layout import ACCELERATORS, MODELS, SETTINGS, TEAMS


@dataclass(frozen=True)
class Fault:
    """The reason why a reviewed exception is not valid: `rule` is its short name, `field` the field at fault."""

    rule: Literal["expired", "term", "reason"]
    field: Literal["expires", "reason"]
    message: str
    fix: str


_SHORTEST_REASON = 10  # letters and digits


def fault_of(reason: str, expires: date, today: date, longest_days: int) -> Fault | None:
    """The fault of an exception by its reason and its last day; None if it is valid."""
    if expires < today:
        return Fault("expired", "expires", f"expired on {expires}", "Remove it, or have a new expiry reviewed.")
    if (expires - today).days > longest_days:
        return Fault(
            "term",
            "expires",
            f"ends on {expires}, and may last {longest_days} days at most",
            f'Write "{today + timedelta(days=longest_days)}" or an earlier day; exceptions.longest_days of the '
            "settings sets the longest term.",
        )
    if sum(character.isalnum() for character in reason) < _SHORTEST_REASON:
        return Fault(
            "reason",
            "reason",
            f"has the reason {shorten(reason)}, which says nothing",
            f"Write why it is needed, in {_SHORTEST_REASON} letters or more.",
        )
    return None


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
        "rollout": ("surge or replace", TypeAdapter(RolloutKind)),
    }
)
OVERRIDE_FIELDS = tuple(_OVERRIDES)
"""The fields that an override may set."""


class Override(Frozen):
    """A reviewed exception to the plan: sets `field` to `value`, up to and including the day `expires`."""

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

    @field_validator("value", mode="before")
    @classmethod
    def _typed(cls, value: Any, info: ValidationInfo) -> Any:
        field = info.data.get("field")
        if field is None:  # already reported
            return value if isinstance(value, str | int | float) else ""
        wanted, adapter = _OVERRIDES[field]
        if field.startswith("replicas.") and value == 0 and not isinstance(value, bool):
            raise _scale_to_zero()
        unsuitable = wrong(f"the value {shorten(value)} does not suit {field}", f"Write {wanted}.")
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError as error:
            raise unsuitable from error
        if isinstance(value, float) and value != round(value, 3):
            raise unsuitable
        return value


def _is_none(value: object) -> bool:
    """For `exclude_if`: leaves a newer field out of files and digests if it is not set."""
    return value is None


class Request(Frozen):
    """The answers of the form. Lengths are in tokens, the time to first token is in seconds at p95 while all users ask,
    and so are the tokens per second of each user (None: the settings of the environment say them).

    A typical length is the length of most requests at the busiest time (None: neither the form nor the service's files
    give it). `model_revision`: the commit of the Hub that the service loads if the catalog names none. No form asks
    for it: it is looked up where production demands one that the catalog lacks.
    """

    schema_version: Literal[1] = 1
    service: Annotated[str, Field(pattern=SERVICE_NAME)]
    model: str
    team: str
    environment: str
    concurrent_users: Annotated[int, Field(ge=1, le=4096)]
    longest_prompt_tokens: Annotated[int, Field(ge=1, le=1_048_576)]
    longest_answer_tokens: Annotated[int, Field(ge=1, le=131_072)]
    typical_prompt_tokens: Annotated[int | None, Field(ge=1, le=1_048_576, exclude_if=_is_none)] = None
    typical_answer_tokens: Annotated[int | None, Field(ge=1, le=131_072, exclude_if=_is_none)] = None
    p95_ttft_seconds: Annotated[float, Field(ge=0.01, le=120)]
    tokens_per_second_per_user: Annotated[float | None, Field(ge=0.1, le=1000, exclude_if=_is_none)] = None
    availability: Availability
    model_revision: Annotated[str | None, Field(pattern=r"^[0-9a-f]{40}$", exclude_if=_is_none)] = None
    overrides: tuple[Override, ...] = ()

    @field_validator("typical_prompt_tokens", "typical_answer_tokens")
    @classmethod
    def _within_the_longest(cls, typical: int | None, info: ValidationInfo) -> int | None:
        what = (info.field_name or "").split("_")[1]
        longest = info.data.get(f"longest_{what}_tokens")
        if typical is not None and longest is not None and typical > longest:
            raise wrong(
                f"a typical {what} of {typical} tokens is longer than the longest, which has {longest}",
                f"Write at most {longest}, or raise longest_{what}_tokens.",
            )
        return typical

    @field_validator("overrides")
    @classmethod
    def _once(cls, overrides: tuple[Override, ...]) -> tuple[Override, ...]:
        fields = [override.field for override in overrides]
        for field in fields:
            if fields.count(field) > 1:
                raise wrong(f"{field} is overridden twice", "Keep one of the two.")
        values = {override.field: override.value for override in overrides}
        fewest, most = values.get("replicas.min"), values.get("replicas.max")
        if isinstance(fewest, int) and isinstance(most, int) and most < fewest:
            raise wrong(
                f"replicas.max is overridden with {most}, and replicas.min with {fewest}",
                "Raise replicas.max or lower replicas.min.",
            )
        return overrides


class ChangedAnswer(Frozen):
    """An answer, or the override of a field, that a change alters. None: there was none before, or is none after."""

    field: str
    before: str | None
    after: str | None


def changed_answers(before: Request | None, after: Request | None) -> tuple[ChangedAnswer, ...]:
    """The answers that differ between two requests of a service (None: it is not there), in the order of the form, and
    then the overrides, each with its last day."""
    old, new = (_texts(request) if request else {} for request in (before, after))
    return tuple(
        ChangedAnswer(field=name, before=old.get(name), after=new.get(name))
        for name in dict.fromkeys((*new, *old))
        if old.get(name) != new.get(name)
    )


def _texts(request: Request) -> dict[str, str]:
    answers = request.model_dump(mode="json", exclude={"schema_version", "overrides"})
    overrides = {f"overrides.{one.field}": f"{one.value} until {one.expires}" for one in request.overrides}
    return {name: str(value) for name, value in answers.items()} | overrides


_FIXES = {
    "service": "Write 1 to 40 lower-case letters, digits and hyphens, starting with a letter, such as support-chat.",
    "concurrent_users": "Write a whole number from 1 to 4096.",
    "longest_prompt_tokens": "Write a whole number of tokens from 1 to 1048576.",
    "longest_answer_tokens": "Write a whole number of tokens from 1 to 131072.",
    "typical_prompt_tokens": "Write a whole number of tokens from 1 to the longest prompt's, or leave it out.",
    "typical_answer_tokens": "Write a whole number of tokens from 1 to the longest answer's, or leave it out.",
    "p95_ttft_seconds": "Write seconds from 0.01 to 120, such as 2 or 0.5.",
    "tokens_per_second_per_user": "Write tokens per second from 0.1 to 1000, such as 10, or leave it out.",
    "availability": "Write standard or high.",
    "model_revision": "Write the 40 hexadecimal digits of a commit of the model on the Hub, or leave it out.",
    "reason": "Write why the exception is needed, in 1 to 500 characters.",
    "expires": 'Write the last day as a quoted date, such as "2027-01-31".',
}


@dataclass(frozen=True)
class KnownNames:
    """The names that a request may use, and how many days ahead its overrides may end."""

    models: Collection[str]
    teams: Collection[str]
    environments: Collection[str]
    accelerators: Collection[str]
    longest_days: int

    @classmethod
    def of(cls, catalog: Catalog, settings: Settings) -> KnownNames:
        """The names of a repository's catalog and settings."""
        days = settings.exceptions.longest_days
        return cls(catalog.models, catalog.teams, settings.environments, catalog.accelerators, days)

    def problems(self, values: Mapping[str, Any], where: str) -> list[Problem]:
        """The problems of unknown names in a request's values. Values that are not text are left to the reader."""
        found = [
            Problem(where, field, f"{shorten(name)} is not {what}", suggest(name, names, listed))
            for field, names, what, listed in (
                ("model", self.models, "a model of the catalog", MODELS),
                ("team", self.teams, "a team of the catalog", TEAMS),
                ("environment", self.environments, "an environment of the settings", SETTINGS),
            )
            if isinstance(name := values.get(field), str) and name not in names
        ]
        overrides = values.get("overrides")
        for index, override in enumerate(overrides if isinstance(overrides, list) else []):
            if not isinstance(override, dict) or override.get("field") != "accelerator":
                continue
            name = override.get("value")
            if isinstance(name, str) and name not in self.accelerators:
                place = f"overrides[{index}].value"
                told = f"{shorten(name)} is not an accelerator of the catalog"
                found.append(Problem(where, place, told, suggest(name, self.accelerators, ACCELERATORS)))
        return found


def load_request(text: str, where: str) -> Request:
    """The request in a `request.yaml`. Raises InputError with file, field, line and what to write instead."""
    return parse(Request, text, where, _FIXES)


def read_request(text: str, where: str, catalog: Catalog, settings: Settings) -> Request:
    """As `load_request`, and checks the names against the catalog and the settings; problems carry their lines."""
    return request_in(read_mapping(text, where), where, KnownNames.of(catalog, settings))


def request_in(document: Document, where: str, known: KnownNames | None) -> Request:
    """The request that a document holds. Raises InputError with every mistake at once: values that no request may have,
    and names that are not `known` (None: the caller checks the names)."""
    problems: list[Problem] = []
    request = None
    try:
        request = from_document(Request, document, where, _FIXES)
    except InputError as error:
        problems += error.problems
    if known is not None:
        refused = {problem.field for problem in problems}
        lines = {dotted(path): line for path, line in document.lines.items()}
        problems += [
            replace(problem, line=lines.get(problem.field))
            for problem in known.problems(document.value, where)
            if problem.field not in refused
        ]
    if problems or request is None:
        raise InputError(problems)
    return request


def dump_request(request: Request) -> str:
    """`request.yaml` for a request; `load_request` gives the same value back."""
    return dump(request.model_dump(mode="json"))


def check_request(request: Request, known: KnownNames, where: str) -> None:
    """Raises InputError if the request names anything that the catalog and the settings lack."""
    if problems := known.problems(request.model_dump(mode="json"), where):
        raise InputError(problems)
