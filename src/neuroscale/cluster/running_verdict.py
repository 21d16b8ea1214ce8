"""Judges a running service from its objects in the cluster alone: a pure function.

It knows more than KServe's own conditions (release 0.20, Standard mode):

- KServe says Ready while the pods of the previous Deployment still serve: it takes Available for Ready.
- `status.observedGeneration` is the Deployment's, not the service's. Only the Deployment itself shows whether KServe
  applied a change.
- Kubernetes calls a Deployment failed (ProgressDeadlineExceeded) after 600 s, but loading may take longer: the startup
  probe's budget decides.
- `modelStatus.lastFailureInfo` stays after the failure is over.

Compares a service with its Deployment, field by field, to see whether KServe has applied the service's last
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from neuroscale.cluster.object_fields import (
    condition,
    differences,
    is_owned_by,
    moment,
    name_of,
    owners_of,
    seconds_since,
    sentence,
    uid_of,
    written_at,
)
from neuroscale.cluster.pod_state import ACCELERATOR, SERVER, PodState, is_ending, look, server_container, warnings
from neuroscale.cluster.service_status import Condition, Judged, Observed
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import first_of, plainly_counted
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Object
from neuroscale.manifests.kserve_pods import STOP, nothing_scales
from neuroscale.manifests.runtime_merge import runtime_annotations
from neuroscale.planning.startup import PROGRESS_DEADLINE
from neuroscale.rendering import object_names
from neuroscale.repo.layout import SETTINGS

_NO_FIELDS_OF_A_CONTAINER = (
    *("modelFormat", "runtime", "runtimeVersion", "protocolVersion"),
    *("storageUri", "storage", "confidential", "args", "name"),
)
_NO_FIELDS_OF_A_POD = (
    *("annotations", "autoScaling", "batcher", "canaryTrafficPercent", "containerConcurrency", "containers"),
    *("deploymentStrategy", "labels", "logger", "maxReplicas", "minReplicas", "model", "name"),
    *("scaleMetric", "scaleMetricType", "scaleTarget", "storageContainerName", "storageUris", "timeout"),
)
_STORAGE_URI = "internal.serving.kserve.io/storage-initializer-sourceuri"


def stale_fields(service: Object, deployment: Object, runtime: Object | None) -> list[str]:
    """The fields of the service that its Deployment does not have yet. KServe merges the fields of its `runtime` with
    them."""
    predictor = part(service, "spec", "predictor")
    model = part(predictor, "model")
    template = part(deployment, "spec", "template")
    server = server_container(template)
    pod = {key: value for key, value in predictor.items() if key not in _NO_FIELDS_OF_A_POD}
    container = {key: value for key, value in model.items() if key not in _NO_FIELDS_OF_A_CONTAINER}
    fields = differences(pod, part(template, "spec"), "predictor")
    fields += differences(_plain(container), server, "predictor.model")
    if _other_arguments(model.get("args") or [], server.get("args") or [], runtime):
        fields.append("predictor.model.args")
    if model.get("storageUri") and part(template, "metadata", "annotations").get(_STORAGE_URI) != model["storageUri"]:
        fields.append("predictor.model.storageUri")
    fewest = predictor.get("minReplicas")
    if isinstance(fewest, int) and _nothing_scales(service, predictor, runtime):
        fields += ["predictor.minReplicas"] if part(deployment, "spec").get("replicas") != fewest else []
    return fields


def _nothing_scales(service: Object, predictor: Object, runtime: Object | None) -> bool:
    try:
        return nothing_scales(service, predictor, runtime_annotations(runtime))
    except ValueError:  # a malformed object
        return False


def _other_arguments(wanted: Any, found: Any, runtime: Object | None) -> bool:
    """Whether the arguments differ: KServe puts the runtime's before the service's, and fills in placeholders."""
    if not isinstance(wanted, list) or not isinstance(found, list):
        return True
    containers = items(runtime, "spec", "containers")
    first = next((one.get("args") or [] for one in containers if one.get("name") == SERVER), None)
    if first is not None:
        wanted = [*first, *wanted]
        found = found if len(found) == len(wanted) else [None] * len(wanted)
    else:
        found = found[len(found) - len(wanted) :] if len(found) >= len(wanted) else [None] * len(wanted)
    return any(one != other and "{{" not in str(one) for one, other in zip(wanted, found, strict=True))


def _plain(container: dict[str, Any]) -> dict[str, Any]:
    """The object without the fields that have a placeholder, which KServe fills in."""
    return {key: value for key, value in container.items() if "{{" not in str(value)}


_SETTLES = 60
"""Seconds within which the controllers, one after the other, notice a change. A longer time is a fault."""

_REQUIRED = ("Ready", "PredictorReady", "IngressReady")
_IMAGE_TROUBLES = ("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName")
_REPLACED = ". With an override of rollout with replace it starts, too: its merge ends pods that serve first"
_REVISION = "deployment.kubernetes.io/revision"


class Running:
    """The state of a service by the cluster's own objects, without Git.

    `newest`: pods of the newest generation; `older`: pods of earlier ones that serve. `failing`: KServe's conditions
    that do not have the value they should have. `notes`: remarks beside the verdict.
    """

    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now
        self.service: Object = observed.service or {}
        self.deployment: Object = observed.deployment or {}
        self.notes: list[str] = []
        self.kubectl = f"{observed.lines.kubectl} -n {observed.namespace}"
        self.describe = f"{self.kubectl} describe isvc {observed.name}"
        replicas = part(self.service, "spec", "predictor").get("minReplicas")
        self.needed = max(1, replicas) if isinstance(replicas, int) else 1
        self.newest, self.older = self._pods()
        self.who = "the new version" if self.older else "it"
        self.failing = self._failing_conditions()

    def verdict(self) -> Judged:
        """The verdict on a service that exists and is not being deleted."""
        service = self.service
        if str(part(service, "metadata", "annotations").get(STOP)).lower() == "true":
            return Judged("stopped", f"it is stopped by its annotation {STOP}", "Remove the annotation.")
        if condition(service, "Stopped").get("status") == "True":
            return Judged("starting", "KServe still reports it as stopped", self.describe)
        if other := self._not_judged():
            return Judged("unknown", other, self.describe)
        if not items(service, "status", "conditions"):
            return self._unseen("KServe has reported nothing")
        if part(service, "status", "modelStatus").get("transitionStatus") == "InvalidSpec":
            if self._changed_after("status"):
                return self._pending("it was changed just now, and KServe's status may be older")
            return self._failed(self._model_failure("KServe cannot use it") + self._serving())
        if self.observed.deployment is None:
            refused = [one for one in self.failing if one.status == "False" and one.message]
            if refused and not self._changed_after("status"):
                return self._failed(sentence(refused[0].type, refused[0].reason, refused[0].message))
            errors = [
                one.get("message") for one in warnings(self.observed.events) if one.get("reason") == "InternalError"
            ]
            if errors:
                return self._failed(sentence("KServe cannot make its Deployment", errors[-1]))
            return self._unseen("KServe has made no Deployment")
        return self._generations() or self._pods_verdict() or self._conditions_verdict()

    def in_state(self, *states: str) -> list[PodState]:
        """The newest pods that are in one of these states."""
        return [pod for pod in self.newest if pod.state in states]

    # ------------------------------------------------------------ objects

    def _pods(self) -> tuple[tuple[PodState, ...], tuple[PodState, ...]]:
        """Pods of the newest generation, and those of earlier ones that serve. Pods that are being deleted do not
        count."""
        newest = uid_of(self._replica_set())
        own = {
            uid_of(one)
            for one in self.observed.replica_sets
            if is_owned_by(one, self.deployment) and uid_of(one) and uid_of(one) != newest
        }
        alive = [pod for pod in self.observed.pods if not is_ending(pod)]
        events, wait = self.observed.events, self.observed.node_wait
        new = [look(pod, self.now, events, wait) for pod in alive if newest and newest in owners_of(pod)]
        old = [replace(look(pod, self.now), old=True) for pod in alive if own & owners_of(pod)]
        return tuple(new), tuple(pod for pod in old if pod.state == "ready")

    def _replica_set(self) -> Object:
        """The ReplicaSet of the Deployment as it is now; {} if it does not exist yet."""
        revision = part(self.deployment, "metadata", "annotations").get(_REVISION)
        for one in self.observed.replica_sets:
            same = part(one, "metadata", "annotations").get(_REVISION) == revision
            template = part(self.deployment, "spec", "template", "spec")
            if revision and same and is_owned_by(one, self.deployment) and template:
                return one if not differences(template, part(one, "spec", "template", "spec")) else {}
        return {}

    def _failing_conditions(self) -> tuple[Condition, ...]:
        found = [one for one in items(self.service, "status", "conditions") if one.get("type") != "Stopped"]
        failing = [
            Condition(*(str(one.get(key) or "") for key in ("type", "status", "reason", "message")))
            for one in found
            if one.get("status") != "True" and one.get("severity") != "Info"
        ]
        if not self.service:
            return ()
        there = [one.get("type") for one in found]
        return (*failing, *(Condition(name, "missing", "", "") for name in _REQUIRED if name not in there))

    # ------------------------------------------------------------ the verdict

    def _not_judged(self) -> str:
        spec = part(self.service, "spec")
        mode = part(self.service, "status").get("deploymentMode") or part(self.service, "metadata", "annotations").get(
            "serving.kserve.io/deploymentMode"
        )
        if mode not in (None, "Standard", "RawDeployment"):
            return f"it runs in KServe's mode {mode}; only Standard can be judged"
        if not part(spec, "predictor", "model"):
            return "it has no model server that the platform renders"
        more = [name for name in ("transformer", "explainer", "canary") if spec.get(name)]
        return f"it has parts that are not judged: {', '.join(more)}" if more else ""

    def _unseen(self, told: str) -> Judged:
        changed = written_at(self.service) or moment(part(self.service, "metadata").get("creationTimestamp"))
        age = None if changed is None else int((self.now - changed).total_seconds())
        if age is not None and age <= _SETTLES:
            return Judged("starting", f"{told} yet", "Wait.")
        since = "" if age is None else f" for {duration(age)}"
        pods = f"{self.observed.lines.kubectl} -n kserve get pods"
        return Judged("unknown", f"{told}{since}", f"Does KServe's controller run? {pods}")

    def _generations(self) -> Judged | None:
        """Whether the change went from the service to the Deployment, from there to the ReplicaSet, and back into the
        status."""
        deployment = self.deployment
        if not is_owned_by(deployment, self.service):
            name = name_of(deployment)
            see = f"{self.kubectl} get deployment {name} -o yaml"
            return Judged("unknown", f"the Deployment {name} does not belong to it", see)
        generation = part(deployment, "metadata").get("generation")
        if fields := stale_fields(self.service, deployment, self.observed.runtime):
            return self._pending(
                f"KServe has not applied the newest generation to its Deployment: {first_of(fields, 3)} differs"
            )
        if part(deployment, "spec").get("replicas") == 0:
            return Judged("stopped", "its Deployment asks for no pods", f"{self.kubectl} get deployment,hpa")
        written = written_at(deployment)
        # A Deployment written in the same second counts as the answer: the lines above report one that still differs.
        if written is not None and self._changed_after("status") and self._changed_after("", written):
            # A change that does not affect the Deployment ends here too.
            return self._pending("it was changed just now, and KServe may not have seen the change")
        if part(deployment, "status").get("observedGeneration") != generation:
            return self._pending("Kubernetes has not seen the newest Deployment")
        if part(self.service, "status").get("observedGeneration") != generation:
            return self._pending("KServe's status is about an earlier Deployment")
        return None if self._replica_set() else self._pending("the newest Deployment has no ReplicaSet")

    def _changed_after(self, subresource: str, written: datetime | None = None) -> bool:
        """Whether the service changed moments ago, and no controller has written an answer since.

        KServe's status is such an answer: the API server accepts it only from a client that has seen the newest object.
        """
        changed = written_at(self.service)
        answered = written or written_at(self.service, subresource)
        if changed is None or (self.now - changed).total_seconds() > _SETTLES / 2:
            return False
        # Times are whole seconds: a status of the same second may be older.
        return answered is None or (answered <= changed if subresource else answered < changed)

    def _serving(self) -> str:
        """The pods of earlier generations that still answer, in words."""
        alive = [pod for pod in self.observed.pods if not is_ending(pod)]
        ready = sum(look(pod, self.now).state == "ready" for pod in alive)
        return _still_serving(ready)

    def _pending(self, reason: str) -> Judged:
        """The verdict on a change that is on its way from the service to the pods."""
        failed = [one for one in self.failing if one.status == "False" and one.reason == "ReconcileFailed"]
        if failed and not self._changed_after("status"):
            return self._failed(sentence(failed[0].type, failed[0].reason, failed[0].message) + self._serving())
        do = f"Wait; if it stays: does KServe's controller run? {self.describe}"
        return Judged("out of date" if self._serving() else "starting", reason, do)

    def _pods_verdict(self) -> Judged | None:
        old = _still_serving(len(self.older))
        refused = condition(self.deployment, "ReplicaFailure")
        if refused.get("status") == "True":
            return self._refused(refused, old)
        ready, failed = len(self.in_state("ready")), self.in_state("failed")
        deadline = condition(self.deployment, "Progressing").get("reason") == "ProgressDeadlineExceeded"
        if ready >= self.needed:
            self.notes += [f"Pod {pod.name} is not ready: {pod.told}." for pod in self.in_state("failed", "starting")]
            if not self.older:
                return None
            return Judged("out of date", f"the newest generation is ready{old}", "Wait until they have ended.")
        if failed:
            told = f"{self._waited(failed[0].waits_for)}pod {failed[0].name}: {failed[0].told}"
            more = f" ({len(failed) - 1} more)" if len(failed) > 1 else ""
            return self._failed(f"{told}{more}{old}", self._remedy(failed[0]))
        starting = self.in_state("starting")
        told = f"pod {starting[0].name}: {starting[0].told}" if starting else "it has no pod yet"
        waiting = next((pod for pod in starting if pod.waits_for), None)
        if waiting is not None and not any(pod.secret for pod in starting):
            return self._waiting(waiting.waits_for, f"pod {waiting.name}: {waiting.told}{old}", waiting)
        if deadline and starting:
            self.notes.append(
                f"Kubernetes' own deadline of {duration(PROGRESS_DEADLINE)} has passed (ProgressDeadlineExceeded). The "
                f"startup probe allows more time: this is not a failure."
            )
        count = f"{ready} of {self.needed} ready; " if self.needed > 1 else ""
        if deadline and not starting:
            return self._failed(f"{count}{told}, and its Deployment makes no progress{old}")
        do = self._remedy(starting[0]) if starting and starting[0].secret else "Wait."
        return Judged("out of date" if self.older else "starting", f"{count}{told}{old}", do)

    def _waiting(self, lacks: str, told: str, pod: PodState | None = None) -> Judged:
        """The verdict on pods that the cluster has no room for, within the time that the settings give them."""
        see = f"{self.kubectl} describe pod {pod.name}" if pod else f"{self.kubectl} get resourcequota"
        do = f"Make room for it; after {self.observed.node_wait // 60} min without, it counts as failed"
        do += _REPLACED if self.older and lacks == ACCELERATOR else ""
        do = f"{'Wait: a node is being made' if pod and pod.node_is_made else do}. See: {see}"
        return Judged("out of date" if self.older else "starting", f"{self.who} waits for {lacks}: {told}", do, lacks)

    def _waited(self, lacks: str) -> str:
        limit = f"{self.observed.node_wait // 60} min (node_wait_minutes in {SETTINGS})"
        return f"{self.who} has waited for {lacks} for more than {limit}: " if lacks else ""

    def _refused(self, refused: Mapping[str, Any], old: str) -> Judged:
        """The verdict on pods that the API server refuses to make. Room in a quota may come; nothing else changes."""
        told = sentence("its pods are refused", refused.get("reason"), refused.get("message")) + old
        if "exceeded quota: " not in str(refused.get("message")):
            return self._failed(told, "A policy or the namespace's security level; see the message.")
        since = seconds_since(refused.get("lastTransitionTime"), self.now) or 0
        lacks = "room in the namespace's quota"
        if since <= self.observed.node_wait:
            return self._waiting(lacks, told)
        return self._failed(self._waited(lacks) + told, f"Make room in it: {self.kubectl} get resourcequota")

    def _remedy(self, pod: PodState) -> str:
        """What to do about a pod that cannot start."""
        if not pod.node:  # it has no log
            room = f"Make room for {pod.waits_for}: " if pod.waits_for else ""
            return f"{room}{self.kubectl} describe pod {pod.name}"
        if pod.secret == object_names.secret_name(self.observed.name):
            where = f" --environment {self.observed.environment}" if self.observed.environment else ""
            return f"Make its key: {self.observed.lines.own(f'key {self.observed.name}{where}')}"
        if pod.secret:
            return f"Find out what writes the Secret {pod.secret}: {self.kubectl} get secrets"
        if pod.waiting in _IMAGE_TROUBLES:
            return f"Check the image's name and the right to pull it: {self.kubectl} describe pod {pod.name}"
        if pod.waiting and not pod.restarts:
            return f"{self.kubectl} describe pod {pod.name}"
        where = f" --environment {self.observed.environment}" if self.observed.environment else ""
        return f"Read the cause: {self.observed.lines.own(f'explain {self.observed.name}{where}')}"

    def _conditions_verdict(self) -> Judged:
        """The verdict on a service whose pods are all ready: whether KServe's conditions agree."""
        transition = part(self.service, "status", "modelStatus").get("transitionStatus")
        target = part(self.service, "status", "modelStatus", "states").get("targetModelState")
        if transition == "BlockedByFailedLoad":
            return self._failed(self._model_failure("the model failed to load"))
        told = ""
        if self.failing:
            one = next(
                (one for one in self.failing if one.type != "Ready" and one.status != "missing"), self.failing[0]
            )
            told = sentence(f"KServe's condition {one.type} is {one.status}", one.reason, one.message)
        elif transition != "UpToDate":
            told = f"KServe reports the model as {transition or 'nothing'}, not UpToDate"
        elif target != "Loaded":
            told = f"KServe reports the newest model as {target or 'nothing'}, not Loaded"
        if not told:
            ready = len(self.in_state("ready"))
            return Judged("ready", f"{ready} of {max(ready, self.needed)} pods of the newest generation answer")
        names = {pod.name for pod in self.in_state("ready")}
        since = [
            seconds_since(condition(pod, "Ready").get("lastTransitionTime"), self.now)
            for pod in self.observed.pods
            if part(pod, "metadata").get("name") in names
        ]
        if min((seconds for seconds in since if seconds is not None), default=0) > _SETTLES:
            return self._failed(told, f"{self.describe}; does KServe run?")
        return Judged("starting", told, "Wait.")

    def _model_failure(self, told: str) -> str:
        return sentence(told, last_failure(part(self.service, "status", "modelStatus")))

    def _failed(self, reason: str, do: str = "") -> Judged:
        return Judged("failed", reason, do or self.describe)


def _still_serving(pods: int) -> str:
    if not pods:
        return ""
    return f"; {plainly_counted(pods, 'pod')} of an earlier generation still {'serves' if pods == 1 else 'serve'}"


def last_failure(model: Mapping[str, Any]) -> str:
    """The reason of the model's last failure to load, from a service's `modelStatus`."""
    info = part(model, "lastFailureInfo")
    code = f"exit code {info['exitCode']}" if info.get("exitCode") else ""
    return sentence(info.get("reason"), code, info.get("message"))
