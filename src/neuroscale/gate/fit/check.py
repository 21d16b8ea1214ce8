"""The fit gate: whether the command that a pod runs is one that vLLM takes, and fits the accelerator it asks for.

It reads manifests as they are rendered, whoever wrote them. What it cannot judge it says, by a notice at the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.check import Evaluation, GateCheck
from neuroscale.gate.fit.judgement import GATE, NOT_JUDGED, judge
from neuroscale.gate.fit.known_bad_services import Tripwire, tripwires
from neuroscale.gate.fit.known_models import Knowledge, read_knowledge
from neuroscale.gate.fit.vllm_pods import servers
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest
from neuroscale.repo.layout import CATALOG, SETTINGS

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run


class FitCheck(GateCheck):
    """Whether what runs vLLM fits its accelerators. Facts of models and accelerators are the base's."""

    name = GATE
    title = "Fit"

    def evaluate(self, run: Run) -> Evaluation:
        return evaluate_fit(run.manifests, run.runtimes, lambda: _knowledge(run))

    def not_checked(self, run: Run) -> Iterable[str]:
        result = run.result(self.name)
        return () if result is None else unjudged(result.findings)


def _knowledge(run: Run) -> Knowledge | None:
    if run.change is not None and run.change.touches(CATALOG, SETTINGS):
        return read_knowledge(run.judge, run.after)
    if run.platform is not None:
        return Knowledge(run.platform.catalog, run.platform.settings)
    return read_knowledge(run.judge)


def evaluate_fit(
    manifests: Sequence[Manifest],
    elsewhere: Callable[[str], Manifest | None],
    knowledge: Callable[[], Knowledge | None],
) -> Evaluation:
    """Judge everything that runs vLLM among the manifests.

    `elsewhere`: a ClusterServingRuntime by its name. `knowledge` reads the catalog, and gives None where that cannot be
    read; it is asked only where something runs vLLM. Raises UntrustedError where a service known to be bad comes back
    clean.
    """
    traps = tripwires()
    for trap in traps:
        _must_be_caught(trap)
    there = list(servers(manifests, elsewhere))
    known = knowledge() if there else None
    seen = [judge(found, known) for found in there]
    findings = tuple(finding for one in seen for finding in one.findings)
    in_part = sum(not one.whole for one in seen)
    detail = f"{in_part} of {len(seen)} commands judged in part" if in_part else ""
    caught = sum(len(trap.wanted) for trap in traps)
    return Evaluation(findings, len(seen), len(seen), "commands", caught, caught, detail)


def _must_be_caught(trap: Tripwire) -> None:
    judged = [judge(one, trap.knowledge) for one in servers(trap.manifests, lambda _: None)]
    found = [finding for one in judged for finding in one.findings]
    for rule, told in trap.wanted:
        if not any(one.rule == rule and told in one.message for one in found):
            raise UntrustedError(f"the fit gate did not catch its tripwire: {trap.title} ({rule}: {told}).")


def unjudged(findings: Sequence[Finding]) -> Iterator[str]:
    """What was not judged, in words, for the verdict's list."""
    places = sorted({f"{one.file}:{one.line}" if one.line else one.file for one in findings if one.rule == NOT_JUDGED})
    if places:
        shown = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
        yield f"Fit: what the files or the catalog do not tell of commands of vLLM (see the notices), at {shown}."
