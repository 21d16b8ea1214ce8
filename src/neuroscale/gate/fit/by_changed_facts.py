"""Judges the fit by a change's own catalog and settings, beside the fit by those of the base."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.check import Evaluation, GateCheck, LeftOut
from neuroscale.gate.fit.check import FitCheck, evaluate_fit
from neuroscale.gate.fit.known_models import read_knowledge
from neuroscale.gate.fit.read_only_root import RootExceptions
from neuroscale.repo.layout import CATALOG, SETTINGS

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run


class ChangedFactsFitCheck(GateCheck):
    """The findings by the change's own facts that the base's facts do not give."""

    name = f"{FitCheck.name}-of-head"
    title = "Fit by the facts of the change"

    def left_out(self, run: Run) -> LeftOut | None:
        return None if run.change is not None and run.change.touches(CATALOG, SETTINGS) else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        by_the_base = run.result(FitCheck.name)
        if by_the_base is None:
            raise UntrustedError("the fit by the facts of the base was not judged before it.")
        excepting = RootExceptions(run).applied
        seen = evaluate_fit(run.manifests, run.runtimes, lambda: read_knowledge(run.after), excepting)
        known = set(by_the_base.findings)
        return replace(seen, findings=tuple(one for one in seen.findings if one not in known))
