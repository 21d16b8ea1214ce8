"""Makes a platform repository of an organisation's own out of a few answers: every file, rendered ones included.

The organisation's files are the example's with the answers in place of its values, so each keeps its comments.
What belongs to the tool is left out: the repository names the tool's version and digest instead.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from neuroscale.catalog.cluster_settings import ClusterKind, OwnAuthority, Signer
from neuroscale.catalog.entries import LabelValue
from neuroscale.catalog.settings import CodeOwner, Owners
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen, Label
from neuroscale.core.validation import Money, parse, wrong
from neuroscale.core.yaml_blocks import block_of, with_value, without
from neuroscale.core.yaml_io import read_mapping
from neuroscale.rendering.example_files import example_files
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.repo.example_repository import ExampleSnapshot
from neuroscale.repo.layout import BUDGETS, CATALOG_INFO, EXAMPLES, SETTINGS, TEAMS, FileClass, file_class, is_written
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot, read_text
from neuroscale.request.service_request import read_request

STARTS = {"README.md": "README.md", ".gitignore": "gitignore"}
"""Files that a new repository starts with in words of its own: the name of the text in the folder of starts, by path.

As `.gitignore`, the text would hold for git and for the build of the wheel where it lies.
"""

_DELIVERED = (".github", CATALOG_INFO, "docs/runbooks", "manifests", "platform", "policies", "templates")

Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,20}[a-z0-9])?$")]
Accelerators = Annotated[tuple[Label, ...], Field(min_length=1)]


class NewEnvironment(Frozen):
    """An environment. `production`: the rules on production hold for it. `hub`, `store`: as in the settings' `models`.

    `more`: any other field of an environment in platform/settings.yaml, as it stands there.
    """

    cluster: Literal["local", "kind", "gke", "eks"]
    domain: str | None = None
    production: bool = False
    accelerators: Accelerators
    price_lists: tuple[Label, ...] = ()
    hub: bool = True
    store: str | None = None
    more: dict[str, Any] = Field(default_factory=dict)


class Quota(Frozen):
    """The most that a team's pods may ask for together; memory in GiB. Accelerators that are not listed are refused."""

    cpu: Annotated[int, Field(ge=1)] = 256
    memory_gib: Annotated[int, Field(ge=1)] = 4096
    pods: Annotated[int, Field(ge=1)] = 100
    accelerators: dict[str, int] = Field(default_factory=lambda: {"nvidia.com/gpu": 32})


class NewTeam(Frozen):
    """A team. `owner` and `namespace` are the team's name unless they are given."""

    cost_center: LabelValue
    contact: Annotated[str, Field(pattern=r"^[^\s@]+@[^\s@]+$")]
    owner: LabelValue | None = None
    namespace: Label | None = None
    quota: Quota = Field(default_factory=Quota)


class NewBudget(Frozen):
    """What a cost centre may spend, in US dollars a month, and whose owner approves exceptions from it."""

    monthly_usd: Annotated[Money, Field(gt=0)]
    owner: LabelValue


class NewRepository(Frozen):
    """The answers of an organisation. `teams` and `environments` by name, `budgets` by cost centre.

    `repository`: the address that pull requests go to. `registries` and `storage`: where images and models may come
    from (default: the example's). `certificates`: as in the settings (default: an authority of each cluster's own).
    `owners`: who approves changes on GitHub; another forge protects files by itself.
    """

    schema_version: Literal[1]
    organization: Annotated[str, Field(min_length=1, max_length=100)]
    repository: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]
    default_branch: str = "main"
    domain: str
    registries: tuple[str, ...] | None = None
    storage: tuple[str, ...] | None = None
    owners: Annotated[tuple[CodeOwner, ...], Field(min_length=1)] | Owners | None = None
    certificates: dict[ClusterKind, Signer] | None = None
    environments: Annotated[dict[Name, NewEnvironment], Field(min_length=1)]
    teams: Annotated[dict[Label, NewTeam], Field(min_length=1)]
    budgets: dict[LabelValue, NewBudget] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees(self) -> NewRepository:
        centres = {team.cost_center for team in self.teams.values()}
        for centre in self.budgets:
            if centre not in centres:
                raise wrong(
                    f"budgets.{centre} is the budget of no team's cost centre",
                    f"Write one of {', '.join(sorted(centres))}.",
                )
        return self


def read_new_repository(text: str, where: str) -> NewRepository:
    """The answers in a file. Raises InputError with every problem."""
    return parse(NewRepository, text, where)


def delivered_paths(delivered: Snapshot) -> list[str]:
    """The delivered files from which a repository of an organisation's own gets some."""
    entries = delivered.entries(*_DELIVERED)
    return [entry.path for entry in entries if not any(map(is_written, entry.path.split("/")))]


def own_files(answers: NewRepository, example: Snapshot) -> dict[str, str]:
    """The files that the organisation decides for itself, but its examples of requests: text by path."""
    files = {SETTINGS: _settings(answers, _text(example, SETTINGS))}
    for name, team in answers.teams.items():
        files[f"{TEAMS}/{name}.yaml"] = _team(name, team, _like(example, TEAMS, name))
    for centre, budget in answers.budgets.items():
        files[f"{BUDGETS}/{centre}.yaml"] = _budget(centre, budget, _like(example, BUDGETS, centre))
    return files


def new_files(
    answers: NewRepository,
    delivered: Snapshot,
    example: Snapshot,
    start: Snapshot,
    paths: Iterable[str],
    where: str = "the answers",
) -> dict[str, bytes]:
    """Every file of the organisation's repository, by path.

    `delivered`: the tool's files, of which `paths` are those to choose from; `example`: the example organisation's own;
    `start`: the texts of STARTS; `where`: the file of the answers. Raises InputError with every problem of the answers,
    as the settings, the catalog and the gate would have it.
    """
    own = own_files(answers, example)
    try:
        inputs = read_planning_inputs(_organisation(delivered, own))
    except InputError as error:
        raise InputError([_of_answers(problem, answers, where) for problem in error.problems]) from error
    _check_names(answers, inputs, where)
    own |= dict(_examples(answers, example, inputs))
    wanted = [
        path for path in paths if path not in STARTS and file_class(path) in (FileClass.RENDERED, FileClass.MERGED)
    ]
    files = example_files(wanted, _organisation(delivered, own), inputs)
    return files | start_files(answers.organization, start)


def start_files(organization: str, start: Snapshot) -> dict[str, bytes]:
    """The files of STARTS with the organisation's name in them, by path. `start`: their texts."""
    return {
        path: read_text(start, name).replace("{organization}", organization).encode() for path, name in STARTS.items()
    }


def _organisation(delivered: Snapshot, own: Mapping[str, str]) -> ExampleSnapshot:
    return ExampleSnapshot(delivered, MemorySnapshot({path: text.encode() for path, text in own.items()}))


def _settings(answers: NewRepository, text: str) -> str:
    example = read_mapping(text, SETTINGS).value
    values: dict[tuple[str, ...], Any] = {
        ("organization",): answers.organization,
        ("domain",): answers.domain,
        ("repository", "url"): answers.repository,
        ("repository", "default_branch"): answers.default_branch,
    }
    for name in ("registries", "storage"):
        if (entries := getattr(answers, name)) is not None:
            values[name,] = list(entries)
    signers = answers.certificates or {}
    if {name: signer.model_dump(mode="json") for name, signer in signers.items()} != example["certificates"]:
        kinds = {environment.cluster for environment in answers.environments.values()} - {"local"}
        own: dict[str, Signer] = {kind: OwnAuthority(issuer="own") for kind in sorted(kinds)}
        own |= {kind: signer for kind, signer in signers.items() if kind in kinds}
        values["certificates",] = {kind: signer.model_dump(mode="json") for kind, signer in own.items()}
    values["production", "environments"] = [
        name for name, environment in answers.environments.items() if environment.production
    ]
    for path, value in values.items():
        text = with_value(text, path, value)
    text = _with_owners(text, answers.owners)
    blocks = {
        name: _environment(name, environment, text, example) for name, environment in answers.environments.items()
    }
    if list(blocks) == list(example["environments"]) and all(block in text for block in blocks.values()):
        return text
    return without(text, ["environments"]) + "environments:\n" + "".join(blocks.values())


def _with_owners(text: str, owners: tuple[str, ...] | Owners | None) -> str:
    if owners is None:
        return without(text, ["owners"])
    if not isinstance(owners, Owners):
        owners = Owners(services=owners, platform=owners, catalog=owners)
    for name, people in owners.model_dump(mode="json").items():
        text = with_value(text, ["owners", name], people)
    return text


def _environment(name: str, answers: NewEnvironment, text: str, example: Mapping[str, Any]) -> str:
    """The block of an environment: that of the example's which is most like it, with the answers in it."""
    known = example["environments"]
    production = example["production"]["environments"]
    alike = next(
        (
            each
            for each, values in known.items()
            if (values["cluster"] == "local") == (answers.cluster == "local")
            and (each in production) == answers.production
        ),
        next(iter(known)),
    )
    block = block_of(text, ["environments", name if name in known else alike])
    used = name if name in known else alike
    lines = block.splitlines(keepends=True)
    block = "environments:\n" + "".join(lines).replace(f"  {used}:\n", f"  {name}:\n", 1)
    values: dict[tuple[str, ...], Any] = {
        ("cluster",): answers.cluster,
        ("accelerators",): list(answers.accelerators),
        ("price_lists",): list(answers.price_lists),
        ("models", "hub"): answers.hub,
        ("models", "store"): answers.store,
        **({("domain",): answers.domain} if answers.domain else {}),
        **{(field,): value for field, value in answers.more.items()},
    }
    for path, value in values.items():
        block = with_value(block, ["environments", name, *path], value)
    if answers.domain is None and "domain" in known[used]:
        block = without(block, ["environments", name, "domain"])
    return block.removeprefix("environments:\n")


def _team(name: str, team: NewTeam, text: str) -> str:
    values = {"name": name, "owner": team.owner or name, "cost_center": team.cost_center}
    values |= {"namespace": team.namespace or name, "contact": team.contact}
    for field, value in values.items():
        text = with_value(text, [field], value)
    return with_value(text, ["quota"], team.quota.model_dump())


def _budget(centre: str, budget: NewBudget, text: str) -> str:
    text = with_value(text, ["cost_center"], centre)
    text = with_value(text, ["monthly_usd"], f"{budget.monthly_usd:f}")
    return with_value(text, ["owner"], budget.owner)


def _of_answers(problem: Problem, answers: NewRepository, where: str) -> Problem:
    """A problem of a file that is made of the answers, at the field of the answers that it comes from."""
    if problem.where != SETTINGS:
        for folder, field in ((TEAMS, "teams"), (BUDGETS, "budgets")):
            if problem.where.startswith(f"{folder}/"):
                name = problem.where.removeprefix(f"{folder}/").removesuffix(".yaml")
                return replace(problem, where=where, field=f"{field}.{name}.{problem.field}".rstrip("."), line=None)
        return problem
    field = re.sub(r"^repository\.(url$)?", lambda match: "repository" if match[1] else "", problem.field)
    if field.startswith("production."):
        field = "environments"
    names = field.split(".")
    if names[0] == "environments" and len(names) > 2:
        rest = names[3:] if names[2] == "models" and names[3:] in (["hub"], ["store"]) else names[2:]
        environment = answers.environments.get(names[1])
        if environment is not None and rest[0].partition("[")[0] in environment.more:
            rest = ["more", *rest]
        field = ".".join([*names[:2], *rest])
    return replace(problem, where=where, field=field, line=None)


def _check_names(answers: NewRepository, inputs: PlanningInputs, where: str) -> None:
    """Raises InputError for a quota of an accelerator that no environment has."""
    known = {
        way.resource
        for environment in inputs.settings.environments.values()
        for name in environment.accelerators
        if (way := inputs.catalog.accelerators[name].on(environment.cluster)).resource
    }
    problems = [
        Problem(
            where,
            f"teams.{name}.quota.accelerators",
            f"{resource!r} is a resource of no environment's accelerators",
            f"Write one of {', '.join(sorted(known)) or 'none'}.",
        )
        for name, team in answers.teams.items()
        for resource in team.quota.accelerators
        if known and resource not in known
    ]
    if problems:
        raise InputError(problems)


def _examples(answers: NewRepository, example: Snapshot, inputs: PlanningInputs) -> Iterator[tuple[str, str]]:
    """The example's requests with the organisation's teams and environments in them: those that can be planned."""
    of_example = read_mapping(_text(example, SETTINGS), SETTINGS).value
    teams = _renamed(
        (entry.path.split("/")[-1].removesuffix(".yaml") for entry in example.entries(TEAMS)), answers.teams
    )
    for entry in example.entries(EXAMPLES):
        text = _text(example, entry.path)
        request = read_mapping(text, entry.path).value
        environment = _environment_like(request["environment"], of_example, answers)
        if environment is None:
            continue
        text = with_value(text, ["team"], teams.get(request["team"], next(iter(answers.teams))))
        text = with_value(text, ["environment"], environment)
        try:
            planned = inputs.plan(read_request(text, entry.path, inputs.catalog, inputs.settings))
        except InputError:
            continue
        if planned.verdict != "refused" or request.get("overrides"):
            yield entry.path, text


def _renamed(names: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Each name by itself where it is among the others, else by one of them in turn."""
    kept = list(others)
    return {name: name if name in kept else other for name, other in zip(names, itertools.cycle(kept), strict=False)}


def _environment_like(name: str, example: Mapping[str, Any], answers: NewRepository) -> str | None:
    if name in answers.environments:
        return name
    is_local, is_production = (
        example["environments"][name]["cluster"] == "local",
        name in example["production"]["environments"],
    )
    alike = [each for each, environment in answers.environments.items() if (environment.cluster == "local") == is_local]
    return next(
        (each for each in alike if answers.environments[each].production == is_production), next(iter(alike), None)
    )


def _like(example: Snapshot, folder: str, name: str) -> str:
    """The example's file of that name in a folder, or its first one."""
    path = f"{folder}/{name}.yaml"
    paths = [entry.path for entry in example.entries(folder) if entry.path.endswith(".yaml")]
    return _text(example, path if path in paths else paths[0])


def _text(example: Snapshot, path: str) -> str:
    content = example.read(path)
    if content is None:
        raise InputError.at(path, "", "is missing in the example organisation's files", "Install the package anew.")
    return content.decode()
