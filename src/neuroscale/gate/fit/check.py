"""The fit check: vLLM accepts the command that a pod runs, and the model fits the accelerator that the pod asks for.

It reads manifests, rendered here or not. A notice at the place says what it cannot judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.gate.check import Evaluation, GateCheck
from neuroscale.gate.fit.judgement import GATE, NOT_JUDGED, Judged, judge_container
from neuroscale.gate.fit.known_models import Knowledge, read_knowledge
from neuroscale.gate.fit.model_labels import wrong_labels
from neuroscale.gate.fit.model_revisions import loose_findings, must_be_caught
from neuroscale.gate.fit.read_only_root import Excepting, RootExceptions, root_findings
from neuroscale.gate.fit.tripwires import Tripwire, tripwires
from neuroscale.gate.fit.vllm_containers import Found, VllmContainer
from neuroscale.gate.fit.vllm_pods import servers
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest
from neuroscale.repo.layout import CATALOG, SETTINGS

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run


class FitCheck(GateCheck):
    """Whether every server with vLLM fits its accelerators. Facts of models and accelerators are the base's."""

    name = GATE
    title = "Fit"

    def evaluate(self, run: Run) -> Evaluation:
        exceptions = RootExceptions(run)
        result = evaluate_fit(run.manifests, run.runtimes, lambda: _knowledge(run), exceptions.applied)
        caught = must_be_caught()
        left_out = _production(run)
        loose = loose_findings(GATE, run.manifests, run.runtimes, left_out=left_out, strict=run.subject.strict)
        return replace(
            result,
            findings=(*result.findings, *loose, *exceptions.unneeded(run.manifests)),
            tripwires=result.tripwires + caught,
            caught=result.caught + caught,
        )

    def not_checked(self, run: Run) -> Iterable[str]:
        result = run.result(self.name)
        return () if result is None else not_shown(result.findings)


def _production(run: Run) -> tuple[str, ...]:
    """The environments whose models the production check judges."""
    with suppress(InputError):
        rules = run.deciding_settings.production
        return () if rules.model_revision == "off" else rules.environments
    return ()


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
    excepting: Excepting = lambda _, finding: finding,
) -> Evaluation:
    """Judge every container that runs vLLM among the manifests.

    `elsewhere` gives a ClusterServingRuntime by its name. `knowledge` reads the catalog, and gives None if the catalog
    cannot be read; it is called only if a container runs vLLM. `excepting` applies the exceptions from `writable-root`.
    Raises UntrustedError if a known-bad service has no finding.
    """
    traps = tripwires()
    for trap in traps:
        _must_be_caught(trap)
    there = list(servers(manifests, elsewhere))
    seen, findings = _judge_all(there, knowledge() if there else None, excepting)
    in_part = sum(not one.whole for one in seen)
    unjudged = sum(not one.fitted for one in seen)
    told = f"{unjudged} of {len(seen)} commands not judged: whether they fit is not known" if unjudged else ""
    part = f"{in_part - unjudged} of {len(seen)} commands judged in part" if in_part > unjudged else ""
    detail = "; ".join(text for text in (told, part) if text)
    caught = sum(len(trap.wanted) for trap in traps)
    return Evaluation(findings, len(seen), len(seen), "commands", caught, caught, detail, unjudged)


def _judge_all(
    there: Sequence[Found], known: Knowledge | None, excepting: Excepting = lambda _, finding: finding
) -> tuple[list[Judged], tuple[Finding, ...]]:
    """The judgement on each container, and all findings: those about root file systems and labels last."""
    seen = [judge_container(found, known) for found in there]
    models = [(found, one.model) for found, one in zip(there, seen, strict=True) if isinstance(found, VllmContainer)]
    roots = root_findings(GATE, [found for found, _ in models], known, excepting)
    return seen, (*(finding for one in seen for finding in one.findings), *roots, *wrong_labels(GATE, models))


def _must_be_caught(trap: Tripwire) -> None:
    _, found = _judge_all(list(servers(trap.manifests, lambda _: None)), trap.knowledge)
    for rule, told in trap.wanted:
        if not any(one.rule == rule and told in one.message for one in found):
            raise UntrustedError(f"the fit check did not catch its tripwire: {trap.title} ({rule}: {told}).")


def not_shown(findings: Sequence[Finding]) -> Iterator[str]:
    """What was not judged, in words, for the verdict's list."""
    places = sorted({f"{one.file}:{one.line}" if one.line else one.file for one in findings if one.rule == NOT_JUDGED})
    if places:
        shown = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
        yield f"Fit: parts of vLLM commands that the files or the catalog do not show (see the notices), at {shown}."
