"""Reads the inputs of planning and rendering beside a form's answers: a repository's catalog, settings and template."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.settings import Settings, check_settings, load_settings
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


def read_planning_inputs(snapshot: Snapshot) -> PlanningInputs:
    """The inputs as they are in a snapshot. Raises InputError with every problem in them."""
    catalog, settings = load_catalog(snapshot), load_settings(snapshot)
    check_settings(settings, catalog)
    return PlanningInputs(catalog, settings, load_template(snapshot))
