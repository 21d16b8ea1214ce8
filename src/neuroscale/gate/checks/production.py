"""Judges whether services of production environments stay, keep answering, and name images and models for good.

`production` of the settings names these environments and the level of each rule. A rule finds what the files show: the
images that KServe's own settings add to a pod (such as its storage initializer) are the cluster's.

Holds known-bad services of a production environment: every run of the production check must find each fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from neuroscale.catalog.settings import FEWEST_IN_PRODUCTION, PRODUCTION_RULES, ProductionRules
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.printable import counted, shortened
from neuroscale.core.validation import mapping, sequence
from neuroscale.core.yaml_io import Path, parts
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation, file_finding, manifest_finding
from neuroscale.gate.fit.model_revisions import loose_models
from neuroscale.gate.judged_files import ServiceFolder, group_services
from neuroscale.gate.platform_sources import UNREADABLE
from neuroscale.gate.policy_exceptions import Exceptions
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests import pod_sets
from neuroscale.manifests.kserve_pods import COMPONENTS
from neuroscale.manifests.objects import SERVICE, TRIPWIRE_PREFIX, Manifest, read_manifests, tripwire
from neuroscale.manifests.pod_sets import Object, PodSet, UnknownPods, labels_of, texts
from neuroscale.manifests.pods_of_objects import pods_of_objects
from neuroscale.manifests.serving_runtimes import KSERVE, runtimes_below
from neuroscale.repo.layout import MANIFESTS, REQUEST_FILE, RUNTIMES, SERVICE_FILE, ServicePath
from neuroscale.repo.snapshot import read_file
from neuroscale.request.service_request import fault_of, load_request

_IMAGE_BY_DIGEST = f"example.com/vllm@sha256:{'0' * 64}"
_PODS = {SERVICE: TRIPWIRE_PREFIX}


@dataclass(frozen=True)
class ProductionTripwire:
    """The objects of a service with one fault, which `rule` must find."""

    title: str
    rule: str
    objects: tuple[Manifest, ...]


REMOVALS: tuple[tuple[tuple[str, ...], int], ...] = ((("one",), 0), (("one", "two"), 0), (("one", "two"), 1))
"""Removals that the rule must name: the services that a change removes, and how many stay."""


@cache
def production_tripwires() -> tuple[ProductionTripwire, ...]:
    """All tripwires of the production check: good services with one change."""
    service, budget = _service(), _budget({"maxUnavailable": 1})
    replicas, disruptions, digest, revision, _ = PRODUCTION_RULES
    return (
        ProductionTripwire("one replica", replicas, (_service(replicas=1), budget)),
        ProductionTripwire("no budget", disruptions, (service,)),
        ProductionTripwire("a budget that keeps every pod", disruptions, (service, _budget({"minAvailable": "51%"}))),
        ProductionTripwire("a budget that keeps no pod", disruptions, (service, _budget({"maxUnavailable": "51%"}))),
        ProductionTripwire(
            "a budget of other pods", disruptions, (service, _budget({"maxUnavailable": 1}, {SERVICE: "another"}))
        ),
        ProductionTripwire("an image by its tag", digest, (_service(image="example.com/vllm:v0.32.0"), budget)),
        ProductionTripwire("a model's image by its tag", digest, (_service(source="oci://example.com/m:1"), budget)),
        ProductionTripwire("a model by its branch", revision, (_service(source="hf://owner/name"), budget)),
    )


def _service(replicas: int = 2, image: str = _IMAGE_BY_DIGEST, source: str = "") -> Manifest:
    container: dict[str, Any] = {"name": "kserve-container", "image": image, "args": ["--model=/mnt/models"]}
    if source:
        container["env"] = [{"name": "STORAGE_URI", "value": source}]
    predictor = {"minReplicas": replicas, "containers": [container]}
    annotations = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "none"}
    metadata = {"namespace": TRIPWIRE_PREFIX, "annotations": annotations}
    return tripwire("serving.kserve.io/v1beta1", "InferenceService", metadata, spec={"predictor": predictor})


def _budget(bound: dict[str, Any], pods: dict[str, str] | None = None) -> Manifest:
    selector = {"matchLabels": _PODS if pods is None else pods}
    spec = {"selector": selector, **bound}
    return tripwire("policy/v1", "PodDisruptionBudget", {"namespace": TRIPWIRE_PREFIX}, spec=spec)


GATE = "production"
_REPLICAS, _BUDGET, _DIGEST, _REVISION, _REMOVAL = PRODUCTION_RULES
_BY_DIGEST = re.compile(r"[^@]+@sha256:[0-9a-f]{64}")
_MODEL_IMAGE = re.compile(r"oci(\+[a-z]+)?://")
_REPLICAS_FIX = (
    "Answer high to the form's question about availability, or override replicas.min in request.yaml with a reason and "
    "a last day; then run `neuroscale replan` on the folder."
)
_BUDGET_FIX = "Write a PodDisruptionBudget of the service's pods with maxUnavailable: 1, as the template does."
_REMOVAL_FIX = (
    "Make sure that nobody calls them any more. One service of several, in a change of its own, may always retire."
)
_NAMED = 3
_DIGEST_FIX = "Enter the digest of the runtime's image in platform/catalog/runtimes/, then run `neuroscale replan`."


class ProductionCheck(GateCheck):
    """Whether each service of a production environment keeps answering, and names its images and models for good."""

    name = GATE
    title = "Production"
    needs = ("files",)

    def __init__(self) -> None:
        self._rules = ProductionRules()
        self._removed: list[tuple[ServicePath, str]] = []

    def left_out(self, run: Run) -> LeftOut | None:
        try:
            self._rules = run.deciding_settings.production
        except InputError:
            return LeftOut(UNREADABLE) if run.given.services else LeftOut()
        self._removed = _removed(run, self._rules)
        some_on = any(level != "off" for rule, level in self._rules.levels.items() if rule != _REMOVAL)
        return None if self._removed or (some_on and _services(run, self._rules)) else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        caught = _caught()
        runtimes = [one.value for one in runtimes_below(run.given.snapshot, RUNTIMES)]
        known = run.judge.policies().exceptions
        of_services = [one for one in known if one.policy in PRODUCTION_RULES and one.policy != _REMOVAL]
        of_removals = [one for one in known if one.policy == _REMOVAL]
        exceptions = Exceptions(lambda: of_services, run.today, run.longest_days)
        from_removal = Exceptions(lambda: of_removals, run.today, run.longest_days)
        findings: list[Finding] = []
        judged: list[Manifest] = []
        for service in _services(run, self._rules):
            objects = [one for one in run.manifests if one.service == service.path]
            for manifest, finding in judge_service(objects, self._rules, runtimes, run.runtimes):
                left = _overridden(run, service, finding) if finding.rule == _REPLICAS else finding
                findings.append(exceptions.applied(manifest, left))
            judged += [one for one in objects if _is_service(one)]
        findings += exceptions.unneeded(judged)
        severity = Severity.ERROR if self._rules.removal == "block" else Severity.NOTICE
        for path, message in self._removed:
            finding = file_finding(GATE, _REMOVAL, path.folder, message, _REMOVAL_FIX, severity=severity)
            for manifest in filter(_is_service, _manifests_before(run, path)):
                finding = from_removal.applied(manifest, finding)
            findings.append(finding)
        count = len(judged) + len(self._removed)
        return Evaluation(tuple(findings), count, count, "services", caught, caught)


def _services(run: Run, rules: ProductionRules) -> list[ServiceFolder]:
    return [one for one in run.given.services if one.change != "removed" and one.path.environment in rules.environments]


def _removed(run: Run, rules: ProductionRules) -> list[tuple[ServicePath, str]]:
    """The services whose removal the rule names, each with what is told about it."""
    if rules.removal == "off":
        return []
    gone: dict[str, list[ServicePath]] = {}
    for one in run.given.services:
        if one.change == "removed" and one.path.environment in rules.environments:
            gone.setdefault(one.path.environment, []).append(one.path)
    told = []
    added = {one.path for one in run.given.services if one.change == "added"}
    for environment, paths in gone.items():
        there, _ = group_services(run.given.snapshot.entries(f"{MANIFESTS}/{environment}"))
        messages = removals([f"{environment}/{one.service}" for one in paths], environment, len(there.keys() - added))
        told += list(zip(paths, messages, strict=False))
    return told


def removals(names: Sequence[str], environment: str, stay: int) -> list[str]:
    """What is told about each service of an environment that a change removes, while so many of the base's `stay`:
    nothing where it retires one of several."""
    left = f"{counted(stay, 'service')} of {environment} {'stays' if stay == 1 else 'stay'}"
    left = left if stay else f"no other service of {environment} stays"
    if len(names) == 1:
        return [] if stay else [f"is removed, and {left}"]
    told = []
    for name in names:
        others = [one for one in names if one != name]
        told.append(f"is removed together with {shortened(others, _NAMED)}, and {left}")
    return told


def _manifests_before(run: Run, service: ServicePath) -> list[Manifest]:
    """The objects of a removed service, as the base has them; none if they cannot be read."""
    path = f"{service.folder}/{SERVICE_FILE}"
    with suppress(InputError):
        if (data := run.judge.snapshot.read(path)) is not None:
            return read_manifests(data, path, service)
    return []


def _is_service(manifest: Manifest) -> bool:
    return (manifest.group, manifest.kind) == (KSERVE, "InferenceService")


def _overridden(run: Run, service: ServiceFolder, finding: Finding) -> Finding:
    """The finding, a notice if the service's request overrides the number of replicas with a valid reason."""
    with suppress(InputError):  # the drift check reports a request that cannot be read
        request = read_file(run.given.snapshot, f"{service.path.folder}/{REQUEST_FILE}", load_request)
        for one in request.overrides if request else ():
            if one.field == "replicas.min" and not fault_of(one.reason, one.expires, run.today, run.longest_days):
                told = f"{finding.message} (the override of replicas.min is in force until {one.expires}: {one.reason})"
                return finding.model_copy(update={"severity": Severity.NOTICE, "message": told})
    return finding


def judge_service(
    objects: Sequence[Manifest],
    rules: ProductionRules,
    runtimes: Iterable[Object],
    elsewhere: Callable[[str], Manifest | None],
) -> Iterator[tuple[Manifest, Finding]]:
    """The findings about each InferenceService among the objects of one service, by the rules that are not off.

    `runtimes`: the known serving runtimes. `elsewhere` gives a ClusterServingRuntime outside of the objects by name.
    """
    budgets = [one for one in objects if (one.group, one.kind) == pod_sets.KIND]
    read = pods_of_objects([one.value for one in objects], runtimes)
    for manifest, pods in zip(objects, read, strict=True):
        if not _is_service(manifest):
            continue
        seen = _Judgement(manifest, rules)
        for one in pods.found or (UnknownPods("", "the files show no pods"),):
            if not isinstance(one, PodSet):
                seen.unknown(one)
                continue
            if one.part in COMPONENTS:  # a canary and a worker are not the service's only pods
                seen.replicas(one)
                seen.budget(one, budgets)
            try:
                seen.images(one)
            except ValueError as error:
                seen.unknown(UnknownPods(one.part, str(error), decisive=False))
        seen.models()
        for loose in loose_models([manifest], elsewhere):
            seen.say(_REVISION, loose.at, loose.told, loose.fix)
        yield from ((manifest, finding) for finding in seen.findings)


class _Judgement:
    """The findings about one InferenceService."""

    def __init__(self, manifest: Manifest, rules: ProductionRules) -> None:
        self.manifest = manifest
        self.rules = rules
        self.findings: list[Finding] = []

    def say(self, rule: str, path: Path, told: str, fix: str) -> None:
        level = self.rules.levels[rule]
        if level != "off":
            severity = Severity.ERROR if level == "block" else Severity.NOTICE
            self.findings.append(manifest_finding(GATE, rule, self.manifest, path, told, fix, severity=severity))

    def unknown(self, pods: UnknownPods) -> None:
        told = f"whether its {pods.part or 'pods'} can be relied on is not known: {pods.reason}"
        for rule in (_REPLICAS, _BUDGET, _DIGEST) if pods.decisive else (_DIGEST,):
            self.say(rule, ("spec",), told, "Write the service so that its files show all of its pods.")

    def replicas(self, pods: PodSet) -> None:
        fewest = _fewest(pods)
        if fewest < FEWEST_IN_PRODUCTION:
            told = f"its {pods.part} may run {counted(fewest, 'replica')}: nothing answers while that node drains"
            self.say(_REPLICAS, ("spec", pods.part, "minReplicas"), told, _REPLICAS_FIX)

    def budget(self, pods: PodSet, budgets: Sequence[Manifest]) -> None:
        fewest, at = _fewest(pods), ("spec", pods.part)
        try:
            labels = self._labels(pods)
            selecting = [
                spec
                for one in budgets
                if one.namespace == self.manifest.namespace
                and pod_sets.selects(spec := mapping(one.value.get("spec"), "spec"), labels)
            ]
            if len(selecting) > 1:
                told = f"{len(selecting)} PodDisruptionBudgets select the pods of its {pods.part}: no node can drain"
                self.say(_BUDGET, at, told, "Keep one of them.")
                return
            kept = pod_sets.pods_kept(selecting[0], fewest) if selecting else 0
        except ValueError as error:
            self.say(_BUDGET, at, f"its PodDisruptionBudget cannot be read: {error}", _BUDGET_FIX)
            return
        if selecting and kept >= fewest > 0:
            told = f"its PodDisruptionBudget keeps {kept} of {fewest} pods of its {pods.part}: no node can drain"
            self.say(_BUDGET, at, told, _BUDGET_FIX)
        elif fewest >= FEWEST_IN_PRODUCTION and kept == 0:
            which = "its PodDisruptionBudget keeps none" if selecting else "no PodDisruptionBudget keeps one"
            self.say(_BUDGET, at, f"{which} of the {fewest} pods of its {pods.part} while nodes drain", _BUDGET_FIX)

    def _labels(self, pods: PodSet) -> dict[str, str]:
        """The labels of the pods, as KServe's release 0.20 makes them in the deployment mode Standard."""
        name = self.manifest.name
        added = {f"{KSERVE}/inferenceservice": name, "component": pods.part, "app": f"isvc.{name}-{pods.part}"}
        return texts(labels_of(self.manifest.value), "labels") | texts(pods.labels, "labels") | added

    def images(self, pods: PodSet) -> None:
        for image in dict.fromkeys(_images(pods)):
            if _BY_DIGEST.fullmatch(image):
                continue
            told = (
                f"a container of its {pods.part} runs {image}: without a digest, the registry can change what that is"
                if image
                else f"the files do not show the image of a container of its {pods.part}"
            )
            part = pods.part if pods.part in COMPONENTS else "canary"
            self.say(_DIGEST, ("spec", part), told, _DIGEST_FIX)

    def models(self) -> None:
        """KServe runs a model of an `oci://` address as a container image beside the server."""
        for path, text in parts(self.manifest.value.get("spec"), ("spec",)):
            if isinstance(text, str) and _MODEL_IMAGE.match(text) and not _BY_DIGEST.fullmatch(text):
                told = f"{text} is an image without a digest: the registry can change which model that is"
                self.say(_DIGEST, path, told, "Write the image's digest behind it: @sha256: and 64 digits.")


def _fewest(pods: PodSet) -> int:
    return pods.bounds.fewest if pods.bounds else 0


def _images(pods: PodSet) -> Iterator[str]:
    for spec, _ in pods.specs:
        for key in ("initContainers", "containers"):
            for item in sequence(spec.get(key), key):
                yield str(mapping(item, "a container").get("image") or "")
        for item in sequence(spec.get("volumes"), "volumes"):
            if (source := mapping(item, "a volume").get("image")) is not None:
                yield str(mapping(source, "image").get("reference") or "")


def _caught() -> int:
    """How many known-bad services have the one finding that they must have. Raises UntrustedError if one has not."""
    traps = production_tripwires()
    rules = ProductionRules(replicas="block", disruption_budget="block", image_digest="block", model_revision="block")
    for trap in traps:
        found = [(one.rule, one.severity) for _, one in judge_service(trap.objects, rules, (), lambda _: None)]
        if found != [(trap.rule, Severity.ERROR)]:
            raise UntrustedError(f"the production check did not catch its tripwire: {trap.title} ({trap.rule}).")
    for names, stay in REMOVALS:
        if len(removals(names, "production", stay)) != len(names):
            raise UntrustedError(f"the production check did not catch its tripwire: removal of {names} ({_REMOVAL}).")
    return len(traps) + len(REMOVALS)
