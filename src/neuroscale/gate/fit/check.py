"""The fit check: vLLM accepts the command that a pod runs, and the model fits the accelerator that the pod asks for.

It reads manifests, rendered here or not, also those of services that the gate renders anew, and judges by the base's
catalog and settings and by the change's own. A notice at the place says what it cannot judge. It also compares the
model labels with the facts of the model: showback weights costs by `active-param-ratio`, and people read the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.printable import shortened
from neuroscale.core.yaml_io import Path
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation, manifest_finding
from neuroscale.gate.fit.judgement import GATE, NOT_JUDGED, Judged, judge_container
from neuroscale.gate.fit.known_models import Knowledge, KnownModel, read_knowledge
from neuroscale.gate.fit.model_revisions import loose_findings, must_be_caught
from neuroscale.gate.fit.read_only_root import Excepting, root_exceptions, root_findings
from neuroscale.gate.fit.tripwires import Tripwire, tripwires
from neuroscale.gate.fit.vllm_containers import Found, VllmContainer
from neuroscale.gate.fit.vllm_pods import servers
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import ARCHITECTURE, RATIO, TOTAL, Manifest
from neuroscale.rendering.scaffolder.skeleton_values import parameters_label, ratio_label
from neuroscale.repo.layout import CATALOG, SETTINGS

RULE = "model-labels"
_PLACES: tuple[Path, ...] = (
    ("metadata", "labels"),
    ("spec", "labels"),  # those of an LLMInferenceService's pods
    ("spec", "template", "metadata", "labels"),
    ("spec", "jobTemplate", "spec", "template", "metadata", "labels"),
)
_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([MBT])")
_RATIO = re.compile(r"[01](?:\.[0-9]{1,12})?")
_UNITS = {"M": 10**6, "B": 10**9, "T": 10**12}
_LEEWAY = 1.25
"""How far a label may be from the nearest figure: publishers round, and count embeddings or not."""


def wrong_labels(gate: str, servers: Sequence[tuple[VllmContainer, KnownModel | None]]) -> Iterator[Finding]:
    """A finding for each label that fits none of the models of its object.

    An object with a server whose model is not known is not judged. The labels of an InferenceService describe the
    service, and not its canaries.
    """
    by_object: dict[int, list[tuple[VllmContainer, KnownModel | None]]] = {}
    for server, model in servers:
        if not server.description and "canary" not in server.at:
            by_object.setdefault(id(server.manifest), []).append((server, model))
    for group in by_object.values():
        models = [model for _, model in group if model is not None]
        if len(models) == len(group):
            yield from _of_object(gate, group[0][0].manifest, models)


def _of_object(gate: str, manifest: Manifest, models: Sequence[KnownModel]) -> Iterator[Finding]:
    facts = models[0].facts
    right = {
        ARCHITECTURE: facts.kind,
        RATIO: ratio_label(facts.kind, facts.active_params / facts.total_params),
        TOTAL: parameters_label(facts.total_params),
    }
    for place in _PLACES:
        metadata = manifest.at(place)
        labels = metadata if isinstance(metadata, dict) else {}
        for name, value in right.items():
            text = labels.get(name)
            if text is None or any(_fits(name, str(text), model) for model in models):
                continue
            sentence = f"the label {name} is {str(text)!r:.80}, and that of {models[0].entry.name} is {value}"
            yield manifest_finding(gate, RULE, manifest, (*place, name), sentence, f'Write "{value}".')


def _fits(name: str, text: str, model: KnownModel) -> bool:
    facts, published = model.facts, model.entry.parameters
    if name == ARCHITECTURE:
        return text not in ("moe", "dense") or text == facts.kind
    totals = [facts.total_params, facts.total_params + facts.tower_params]
    active = [facts.active_params, facts.active_params_without_embedding]
    if published.published_total:
        totals.append(published.published_total)
    if published.published_active:
        active.append(published.published_active)
    if name == TOTAL:
        number = _NUMBER.fullmatch(text)
        return number is None or _near(float(number[1]) * _UNITS[number[2]], min(totals), max(totals))
    # The policies say which ratios are valid, and that a dense model's is 1.
    if facts.kind == "dense" or not _RATIO.fullmatch(text):
        return True
    return _near(float(text), min(active) / max(totals), max(active) / min(totals))


def _near(value: float, least: float, most: float) -> bool:
    return least / _LEEWAY <= value <= most * _LEEWAY


class FitCheck(GateCheck):
    """Whether every server with vLLM fits its accelerators. Facts of models and accelerators are the base's."""

    name = GATE
    title = "Fit"
    needs = ("files", "catalog")

    def evaluate(self, run: Run) -> Evaluation:
        exceptions = root_exceptions(run)
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
    in_part = sum(not judged.whole for judged in seen)
    unjudged = sum(not judged.fitted for judged in seen)
    nothing = f"{unjudged} of {len(seen)} commands not judged: whether they fit is not known" if unjudged else ""
    part = f"{in_part - unjudged} of {len(seen)} commands judged in part" if in_part > unjudged else ""
    detail = "; ".join(text for text in (nothing, part) if text)
    caught = sum(len(trap.wanted) for trap in traps)
    return Evaluation(findings, len(seen), len(seen), "commands", caught, caught, detail, unjudged)


def _judge_all(
    there: Sequence[Found], known: Knowledge | None, excepting: Excepting = lambda _, finding: finding
) -> tuple[list[Judged], tuple[Finding, ...]]:
    """The judgement on each container, and all findings: those about root file systems and labels last."""
    seen = [judge_container(server, known) for server in there]
    both = zip(there, seen, strict=True)
    models = [(server, judged.model) for server, judged in both if isinstance(server, VllmContainer)]
    roots = root_findings(GATE, [server for server, _ in models], known, excepting)
    return seen, (*(finding for judged in seen for finding in judged.findings), *roots, *wrong_labels(GATE, models))


def _must_be_caught(trap: Tripwire) -> None:
    _, findings = _judge_all(list(servers(trap.manifests, lambda _: None)), trap.knowledge)
    for rule, part in trap.wanted:
        if not any(finding.rule == rule and part in finding.message for finding in findings):
            raise UntrustedError(f"the fit check did not catch its tripwire: {trap.title} ({rule}: {part}).")


def not_shown(findings: Sequence[Finding]) -> Iterator[str]:
    """What was not judged, in words, for the verdict's list."""
    unknown = [finding for finding in findings if finding.rule == NOT_JUDGED]
    places = sorted({f"{notice.file}:{notice.line}" if notice.line else notice.file for notice in unknown})
    if places:
        shown = shortened(places, 5)
        yield f"Fit: parts of vLLM commands that the files or the catalog do not show (see the notices), at {shown}."


class RenderedAnewFitCheck(GateCheck):
    """Whether they fit by the change's facts: the base may lack the facts that the change brings or corrects."""

    name = "effects-fit"
    title = "Fit of services, rendered again"
    needs = ("catalog", "effects")

    def left_out(self, run: Run) -> LeftOut | None:
        # If the platform cannot be read, the check that renders reports it.
        return LeftOut() if run.anew is None or run.platform is None else None

    def evaluate(self, run: Run) -> Evaluation:
        platform, anew = run.platform, run.anew
        if platform is None or anew is None:
            raise UntrustedError("there is no platform whose facts could judge, or nothing was rendered.")
        seen = evaluate_fit(anew.servers, run.runtimes, lambda: Knowledge(platform.catalog, platform.settings))
        # Notices on plans that the planner has just made concern only those who request such a service.
        kept = tuple(each for each in seen.findings if each.severity is Severity.ERROR or each.rule == NOT_JUDGED)
        return replace(seen, findings=kept)


class ChangedFactsFitCheck(GateCheck):
    """The findings by the change's own facts that the base's facts do not give."""

    name = f"{FitCheck.name}-of-head"
    title = "Fit by the facts of the change"
    needs = ("files", FitCheck.name)

    def left_out(self, run: Run) -> LeftOut | None:
        return None if run.change is not None and run.change.touches(CATALOG, SETTINGS) else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        by_the_base = run.result(FitCheck.name)
        if by_the_base is None:
            raise UntrustedError("the fit by the facts of the base was not judged before it.")
        excepting = root_exceptions(run).applied
        seen = evaluate_fit(run.manifests, run.runtimes, lambda: read_knowledge(run.after), excepting)
        known = set(by_the_base.findings)
        return replace(seen, findings=tuple(finding for finding in seen.findings if finding not in known))
