"""Makes the platforms by which the gate renders requests anew: that of the base, and that of the merge result.

An example that a change alters or removes still uses the base's names; with those, the merge result renders it, too.
"""

from __future__ import annotations

from dataclasses import replace

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import check_settings
from neuroscale.core.errors import InputError
from neuroscale.gate.merged_change import Change
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.layout import CATALOG, SETTINGS, TEMPLATE


def platform_before(change: Change, after: PlanningInputs, base: PlatformSources) -> PlanningInputs | None:
    """The base's platform; None if it cannot be read. A part that the change does not touch is taken from `after`."""
    try:
        return PlanningInputs(
            base.catalog() if change.touches(CATALOG) else after.catalog,
            base.settings() if change.touches(SETTINGS) else after.settings,
            load_template(base.snapshot) if change.touches(TEMPLATE) else after.template,
        )
    except InputError:
        return None


def with_names_of_base(after: PlanningInputs, base: PlanningInputs) -> PlanningInputs:
    """The platform of the merge result, and what requests of the base name and the change removes or renames: teams,
    environments with their accelerators and price lists, and models. `after` itself where the two do not agree."""
    catalog = Catalog(
        {**base.catalog.models, **after.catalog.models},
        {**base.catalog.accelerators, **after.catalog.accelerators},
        {**base.catalog.prices, **after.catalog.prices},
        after.catalog.runtimes,
        {**base.catalog.teams, **after.catalog.teams},
    )
    environments = {**base.settings.environments, **after.settings.environments}
    settings = after.settings.model_copy(update={"environments": environments})
    try:
        check_settings(settings, catalog)
    except InputError:
        return after
    return replace(after, catalog=catalog, settings=settings)
