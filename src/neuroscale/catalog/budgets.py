"""Reads budgets of cost centres, and the reviewed exceptions from the rules on cost: `platform/catalog/budgets/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from neuroscale.catalog.entries import LabelValue
from neuroscale.catalog.loading import Catalog
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen
from neuroscale.core.units import MIB
from neuroscale.core.validation import Money, parse, suggest, wrong
from neuroscale.repo.layout import BUDGETS
from neuroscale.repo.snapshot import Snapshot, Texts

EXCEPTIONS = f"{BUDGETS}/exceptions"

Rule = Literal["over-budget", "without-price", "stale-price", "large-change"]
"""The rules on cost by which the gate can refuse a change, in this order: the new total of a cost centre is beyond its
budget; pods have no price; a price is more than 90 days old; the bill changes by more than a threshold."""


class Budget(Frozen):
    """The most that the services of a cost centre may cost: US dollars a month of 730 hours, with the most replicas.

    `owner` approves exceptions from it.
    """

    cost_center: LabelValue
    monthly_usd: Annotated[Money, Field(gt=0)]
    owner: LabelValue


class CostException(Frozen):
    """Exempts one subject from a rule on cost, up to and including the day `expires`.

    `subject`: the cost centre (over-budget), `ENVIRONMENT/SERVICE` (without-price, large-change) or the price list
    (stale-price). `monthly_usd`: the limit of the cost centre in place of its budget, in US dollars a month.
    `approved_by` is the owner that agreed, by the author's word: who may merge the file is the forge's affair.
    """

    rule: Rule
    subject: Annotated[str, Field(min_length=1, max_length=200)]
    monthly_usd: Annotated[Money, Field(gt=0)] | None = None
    reason: Annotated[str, Field(max_length=1000)]
    approved_by: LabelValue
    expires: date

    @model_validator(mode="after")
    def _complete(self) -> CostException:
        if (self.rule == "over-budget") != (self.monthly_usd is not None):
            raise wrong(
                "monthly_usd belongs to an exception from over-budget, and to no other",
                'Write how far the cost centre may go, such as monthly_usd: "12000", or leave it out.',
            )
        return self


@dataclass(frozen=True)
class Budgets:
    """Budgets by cost centre, and exceptions by their file."""

    budgets: Mapping[str, Budget]
    exceptions: Mapping[str, CostException]
    files: Mapping[str, str]

    def file(self, cost_center: str) -> str:
        """The path of the file of a cost centre's budget."""
        return self.files[cost_center]


def load_budgets(snapshot: Snapshot) -> Budgets:
    """The budgets of a repository, which may have none. Raises InputError with every problem of every file."""
    problems: list[Problem] = []
    budgets: dict[str, Budget] = {}
    files: dict[str, str] = {}
    exceptions: dict[str, CostException] = {}
    texts = Texts(snapshot, BUDGETS, MIB)
    for entry in snapshot.entries(BUDGETS):
        below = entry.path.removeprefix(f"{BUDGETS}/")
        if below in ("README.md", "exceptions/README.md"):
            continue
        is_exception = below.startswith("exceptions/")
        name = below.removeprefix("exceptions/")
        if entry.kind != "file" or "/" in name or not name.endswith(".yaml"):
            fix = f"Keep budgets in {BUDGETS}/NAME.yaml and exceptions in {EXCEPTIONS}/NAME.yaml."
            problems.append(Problem(entry.path, "", "is neither a budget nor an exception", fix))
            continue
        try:
            text = texts.read(entry.path)
            if is_exception:
                exceptions[entry.path] = parse(CostException, text, entry.path)
                continue
            budget = parse(Budget, text, entry.path)
        except InputError as error:
            problems += error.problems
            continue
        if budget.cost_center in budgets:
            message = f"{budget.cost_center!r} has a budget in {files[budget.cost_center]} too"
            problems.append(Problem(entry.path, "cost_center", message, "Keep one of the two."))
            continue
        budgets[budget.cost_center], files[budget.cost_center] = budget, entry.path
    problems += _unapproved(budgets, exceptions)
    if problems:
        raise InputError(problems)
    return Budgets(budgets, exceptions, files)


def check_budgets(budgets: Budgets, catalog: Catalog) -> list[Problem]:
    """The problems of budgets and exceptions that name a cost centre or an owner that no team of the catalog has."""
    centers = {team.cost_center for team in catalog.teams.values()}
    owners = {team.owner for team in catalog.teams.values()}
    problems = []
    for center, budget in budgets.budgets.items():
        for field, value, known in (("cost_center", center, centers), ("owner", budget.owner, owners)):
            if value not in known:
                message = f"{value!r} is not a team's {field.replace('_', ' ')}"
                problems.append(Problem(budgets.file(center), field, message, suggest(value, known)))
    for path, one in budgets.exceptions.items():
        if one.approved_by not in owners:
            message = f"{one.approved_by!r} is not a team's owner"
            problems.append(Problem(path, "approved_by", message, suggest(one.approved_by, owners)))
    return problems


def _unapproved(budgets: Mapping[str, Budget], exceptions: Mapping[str, CostException]) -> list[Problem]:
    problems = []
    for path, one in exceptions.items():
        if one.rule != "over-budget":
            continue
        budget = budgets.get(one.subject)
        if budget is None:
            problems.append(
                Problem(path, "subject", f"{one.subject!r} has no budget", f"Name one of {sorted(budgets)}.")
            )
        elif one.approved_by != budget.owner:
            message = f"is not {budget.owner}, who owns the budget of {one.subject}"
            problems.append(Problem(path, "approved_by", message, f"Let {budget.owner} approve it."))
    return problems
