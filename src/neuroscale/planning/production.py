"""Names the demands of a production environment that a plan does not meet yet: the gate would refuse its service."""

from __future__ import annotations

from collections.abc import Iterator

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import FEWEST_IN_PRODUCTION, Settings
from neuroscale.planning.plan import Plan


def unmet_demands(plan: Plan, catalog: Catalog, settings: Settings) -> tuple[str, ...]:
    """Sentences on the rules that block a merge and that planning can see: a model without a revision, one replica.
    They are no part of the plan, which holds whatever the rules are. The gate's production check judges the files."""
    if plan.verdict == "refused" or plan.environment not in settings.production.environments:
        return ()
    return tuple(_unmet(plan, catalog, settings))


def _unmet(plan: Plan, catalog: Catalog, settings: Settings) -> Iterator[str]:
    rules, weights = settings.production, catalog.models[plan.model].weights
    if rules.model_revision == "block" and weights.kind == "hub" and weights.revision is None:
        yield (
            f"The gate refuses it in {plan.environment}, since the catalog has no revision of {plan.model}: run "
            f"`neuroscale catalog add {weights.path}` where the Hub can be reached."
        )
    if rules.replicas == "block" and plan.replicas.min < FEWEST_IN_PRODUCTION:
        yield (
            f"The gate refuses it in {plan.environment} with {plan.replicas.min} replica: answer high to the question "
            "about availability."
        )
