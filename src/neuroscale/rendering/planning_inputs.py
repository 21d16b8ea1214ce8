"""Reads the inputs of planning and rendering beside a form's answers: a repository's catalog, settings and template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from neuroscale.catalog import Catalog, PriceList, load_catalog
from neuroscale.catalog.settings import Settings, check_settings, load_settings
from neuroscale.core.errors import ASKED, InputError
from neuroscale.planning.plan import Plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.scaffolder.template import Template, load_template
from neuroscale.repo.snapshot import Snapshot
from neuroscale.request.service_request import KnownNames, Request


@dataclass(frozen=True)
class PlanningInputs:
    """The catalog, the settings and the template of a platform repository, which suit each other."""

    catalog: Catalog
    settings: Settings
    template: Template

    @property
    def known(self) -> KnownNames:
        """The names that requests may use."""
        return KnownNames.of(self.catalog, self.settings)

    def plan(self, request: Request) -> Plan:
        """The plan for a request by these inputs. Raises InputError as the planner does."""
        return plan(request, self.catalog, self.settings, self.template.version)

    def considering(self, environment: str, accelerators: Sequence[str], prices: PriceList | None) -> Self:
        """These inputs where an environment has only the named accelerators (none: its own), and the prices of only one
        list (None: its own lists).

        Raises InputError by the question's fields for accelerators that the catalog or the kind of cluster lacks.
        """
        catalog, changes = self.catalog, dict[str, tuple[str, ...]]()
        if accelerators:
            changes["accelerators"] = tuple(dict.fromkeys(accelerators))
        if prices is not None:
            catalog = catalog.with_prices(prices)
            changes["price_lists"] = (prices.name,)
        before = self.settings.environments
        environments = {**before, environment: before[environment].model_copy(update=changes)}
        settings = self.settings.model_copy(update={"environments": environments})
        try:
            check_settings(settings, catalog)
        except InputError as error:
            asked = [replace(each, where=ASKED, field=each.field.rpartition(".")[2]) for each in error.problems]
            raise InputError(asked) from error
        return replace(self, catalog=catalog, settings=settings)


def read_planning_inputs(snapshot: Snapshot) -> PlanningInputs:
    """The inputs as they are in a snapshot. Raises InputError with every problem in them."""
    catalog, settings = load_catalog(snapshot), load_settings(snapshot)
    check_settings(settings, catalog)
    return PlanningInputs(catalog, settings, load_template(snapshot))
