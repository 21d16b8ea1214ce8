"""Judges the fit of services that the gate renders anew, because a change alters what they are rendered from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.check import Evaluation, GateCheck, LeftOut
from neuroscale.gate.fit.check import evaluate_fit
from neuroscale.gate.fit.judgement import NOT_JUDGED
from neuroscale.gate.fit.known_models import Knowledge
from neuroscale.gate.merged_change import touches_rendering
from neuroscale.gate.verdict import Severity

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run


class RenderedAnewFitCheck(GateCheck):
    """Whether they fit by the change's facts: the base may lack the facts that the change brings or corrects."""

    name = "effects-fit"
    title = "Fit of services, rendered again"

    def left_out(self, run: Run) -> LeftOut | None:
        # If the platform cannot be read, the check that renders reports it.
        if run.change is None or run.platform is None or not touches_rendering(run.change):
            return LeftOut()
        return None

    def evaluate(self, run: Run) -> Evaluation:
        platform = run.platform
        if platform is None:
            raise UntrustedError("there is no platform whose facts could judge.")
        seen = evaluate_fit(run.servers, run.runtimes, lambda: Knowledge(platform.catalog, platform.settings))
        # Notices on plans that the planner has just made concern only those who request such a service.
        kept = tuple(one for one in seen.findings if one.severity is Severity.ERROR or one.rule == NOT_JUDGED)
        return replace(seen, findings=kept)
