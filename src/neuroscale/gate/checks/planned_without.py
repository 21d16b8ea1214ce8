"""Plans the services of a change once more without the facts that the change itself brings: what rests on them alone.

Of a model and an accelerator that the base knows, the base's facts and measurements count, and of a new model no
measurement; of an environment, the load that the base's settings expect. Prices, teams, runtimes and the other settings
are the merge result's: other rules judge those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from neuroscale.catalog import Catalog
from neuroscale.catalog.directions import Notice
from neuroscale.catalog.loading import MEASUREMENTS
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError
from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import shortened
from neuroscale.gate.check import Run
from neuroscale.gate.checks.change_notices import FIXES
from neuroscale.gate.evaluation import file_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import read_manifests
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import CATALOG, PLAN_FILE, RENDERED_KINDS, REQUEST_FILE, SETTINGS, ServicePath
from neuroscale.repo.snapshot import read_file
from neuroscale.request.service_request import check_request, load_request


@dataclass(frozen=True)
class Without:
    """A service of a change whose plan differs without the change's own facts. `facts`: the names of what differs.
    `without`: the other plan, with its `objects`; None where there is none, and `why`."""

    path: ServicePath
    with_them: Plan
    facts: tuple[str, ...]
    without: Plan | None = None
    objects: tuple[Mapping[str, Any], ...] = ()
    why: str = ""

    def finding(self, gate: str) -> Finding:
        """What a reviewer must know; it refuses a service that cannot be served without the facts."""
        name = f"{self.path.environment}/{self.path.service}"
        rests = f"{name} rests on facts or measurements that the change itself brings ({shortened(self.facts, 3)})"
        other, severity = f"it cannot be served. {self.why}", Severity.ERROR
        if self.without is not None:
            other, severity = f"{_in_words(self.without)}. The dearer one decides about budgets", Severity.NOTICE
        told = f"{rests}: with them it is {_in_words(self.with_them)}, and without them {other}"
        file = f"{self.path.folder}/{PLAN_FILE}"
        return file_finding(gate, Notice.OWN_FACTS, file, told, FIXES[Notice.OWN_FACTS], severity=severity)


def planned_without(run: Run) -> Iterator[Without]:
    """The services whose plans the change alters and that would get other accelerators, another number of them or none
    without the facts that the change brings. Nothing where the base's catalog or settings cannot be read."""
    after, change = run.platform, run.change
    if after is None or change is None or not change.touches(CATALOG, SETTINGS):
        return
    try:
        catalog = _facts_of_base(after.catalog, run.judge.catalog())
        base = PlanningInputs(catalog, _loads_of_base(after.settings, run.judge.settings()), after.template)
    except InputError:
        return
    cards = [name for name, one in after.catalog.accelerators.items() if catalog.accelerators[name] != one]
    for service in run.given.services:
        folder = service.path.folder
        try:
            request = read_file(change.after, f"{folder}/{REQUEST_FILE}", load_request)
            locked = read_plan(change.after, folder)
            if not service.plan_changed or request is None or locked is None or locked.verdict == "refused":
                continue
            check_request(request, base.known, REQUEST_FILE)
        except InputError:
            continue  # the drift check reports what is wrong with them
        name, of = request.model, request.environment
        facts = [name, *cards] if catalog.models[name] != after.catalog.models[name] else [*cards]
        if base.settings.environments[of] != after.settings.environments[of]:
            facts.append(f"settings of {of}")
        if not facts:
            continue
        differing = partial(Without, service.path, locked, tuple(facts))
        try:
            other = base.plan(request)
            files = {} if other.verdict == "refused" else render(request, other, after.template)
        except InputError as error:  # the base's facts and the change's settings do not agree
            yield differing(why=str(error.problems[0]))
            continue
        if other.verdict == "refused":
            yield differing(why=" ".join(other.reasons))
        elif _size(other) != _size(locked):
            objects = (read_manifests(text.encode(), file) for file, text in files.items() if file in RENDERED_KINDS)
            yield differing(other, tuple(manifest.value for manifests in objects for manifest in manifests))


def _facts_of_base(after: Catalog, base: Catalog) -> Catalog:
    models = {
        name: base.models[name] if name in base.models else model.model_copy(update={MEASUREMENTS: ()})
        for name, model in after.models.items()
    }
    accelerators = {name: base.accelerators.get(name, one) for name, one in after.accelerators.items()}
    return Catalog(models, accelerators, after.prices, after.runtimes, after.teams)


def _loads_of_base(after: Settings, base: Settings) -> Settings:
    environments = {
        name: one.model_copy(update={field: getattr(base.environments.get(name, one), field) for field in _LOAD})
        for name, one in after.environments.items()
    }
    return after.model_copy(update={"environments": environments})


_LOAD = ("typical_share", "tokens_per_second_per_user", "certainty")
"""The settings of an environment from which a plan's number of replicas follows, beside the request."""


def _size(made: Plan) -> tuple[Any, ...]:
    """What a plan takes."""
    accelerators = made.accelerator, made.accelerator_count, made.replicas.max
    return *accelerators, made.resources.cpu, made.resources.memory_gib


def _in_words(made: Plan) -> str:
    price = "of no known price" if made.cost.monthly_max is None else f"for {usd(made.cost.monthly_max)} a month"
    return f"{made.replicas.max} x {made.accelerator_count} {made.accelerator} {price}"
