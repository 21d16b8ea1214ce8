"""The verdict on a deployed service, from the objects that were read: a pure function.

What it knows beyond Argo CD's health check and KServe's own conditions (release 0.20, Standard mode):

- KServe says Ready while the pods of the previous Deployment still serve: it takes Available for Ready.
- `status.observedGeneration` is the Deployment's, not the service's. Whether KServe carried a change on is seen in the
  Deployment itself.
- Kubernetes calls a Deployment failed (ProgressDeadlineExceeded) after 600 s, and a load may take longer: the startup
  probe's budget decides.
- `modelStatus.lastFailureInfo` stays after the failure is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from neuroscale.cluster.object_differences import differences
from neuroscale.cluster.object_fields import condition, items, moment, part, seconds_since, sentence
from neuroscale.cluster.pod_state import SERVER, PodState, look
from neuroscale.core.counting import plainly_counted
from neuroscale.kube.client import Object
from neuroscale.planning.probes import PROGRESS_DEADLINE
from neuroscale.rendering import api_key

Verdict = Literal["ready", "starting", "out of date", "not synced", "failed", "stopped", "missing", "unknown"]

SETTLES = 60
"""Seconds within which the controllers, one after the other, notice what has changed. Longer is told as a fault."""

_REQUIRED = ("Ready", "PredictorReady", "IngressReady")
_NO_FIELDS_OF_A_CONTAINER = (
    "modelFormat",
    "runtime",
    "runtimeVersion",
    "protocolVersion",
    "storageUri",
    "storage",
    "confidential",
    "args",
    "name",
)
_NO_FIELDS_OF_A_POD = (
    "annotations",
    "autoScaling",
    "batcher",
    "canaryTrafficPercent",
    "containerConcurrency",
    "containers",
    "deploymentStrategy",
    "labels",
    "logger",
    "maxReplicas",
    "minReplicas",
    "model",
    "name",
    "scaleMetric",
    "scaleMetricType",
    "scaleTarget",
    "storageContainerName",
    "storageUris",
    "timeout",
)
_IMAGE_TROUBLES = ("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName")
_SERVED_NAME = "--served-model-name="
_STORAGE_URI = "internal.serving.kserve.io/storage-initializer-sourceuri"
_REVISION = "deployment.kubernetes.io/revision"


@dataclass(frozen=True)
class Observed:
    """What was read of one service; None or empty where there is none.

    `wanted`: the InferenceService as the repository holds it, at the commit that Argo CD is at where this clone has it.
    `application`: Argo CD's. `contains`: whether that commit has the service's last change (None: this clone cannot
    tell). `runtime`: the serving runtime, of the namespace or of the cluster. `unreadable`: by kind what could not be
    read, and why.
    """

    name: str
    namespace: str
    environment: str = ""
    wanted: Object | None = None
    application: Object | None = None
    contains: bool | None = None
    service: Object | None = None
    runtime: Object | None = None
    deployment: Object | None = None
    replica_sets: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    events: tuple[Object, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Application:
    """Argo CD's part. `contains_last_change`: None where this clone cannot tell."""

    name: str
    sync: str
    health: str
    revision: str
    contains_last_change: bool | None
    told: str


@dataclass(frozen=True)
class Condition:
    """A condition of KServe's that is not as it should be."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class ServiceStatus:
    """The verdict on one service: `reason` says why, `next` what to do (empty where nothing).

    `replicas_ready` of `replicas_needed` are pods of the newest generation; `replicas_old` of earlier ones still serve.
    `url` is for clients outside of the cluster, where it has an ingress; `address` for those within. `running` judges
    what is in the cluster alone, whatever Git holds, and `running_reason` says why.
    """

    name: str
    namespace: str
    environment: str
    verdict: Verdict
    reason: str
    next: str
    url: str = ""
    address: str = ""
    model: str = ""
    curl: str = ""
    application: Application | None = None
    generation: int | None = None
    replicas_needed: int = 0
    replicas_ready: int = 0
    replicas_old: int = 0
    conditions: tuple[Condition, ...] = ()
    transition: str = ""
    model_state: str = ""
    last_failure: str = ""
    pods: tuple[PodState, ...] = ()
    events: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    running: Verdict = "unknown"
    running_reason: str = ""


@dataclass(frozen=True)
class _Judged:
    verdict: Verdict
    reason: str
    next: str = ""


def judge(observed: Observed, now: datetime) -> ServiceStatus:
    """The verdict. What cannot be judged is `unknown`, never `ready`."""
    return _Judge(observed, now).status()


class _Judge:
    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now
        self.service: Object = observed.service or {}
        self.deployment: Object = observed.deployment or {}
        self.notes: list[str] = []
        self.where = f"-n {observed.namespace}"
        replicas = part(self.service, "spec", "predictor").get("minReplicas")
        self.needed = max(1, replicas) if isinstance(replicas, int) else 1
        self.newest, self.older = self._pods()
        self.failing = self._failing_conditions()
        self.running: _Judged | None = None

    def status(self) -> ServiceStatus:
        observed = self.observed
        judged = self._verdict()
        running = self.running or judged
        model = part(self.service, "status", "modelStatus")
        generation = part(self.service, "metadata").get("generation")
        return ServiceStatus(
            name=observed.name,
            namespace=observed.namespace,
            environment=observed.environment,
            verdict=judged.verdict,
            reason=judged.reason,
            next=judged.next,
            url=str(part(self.service, "status").get("url") or ""),
            address=str(part(self.service, "status", "address").get("url") or ""),
            model=_model_name(part(self.service, "spec", "predictor", "model").get("args")),
            application=self._application(),
            generation=generation if isinstance(generation, int) else None,
            replicas_needed=self.needed if self.service else 0,
            replicas_ready=len(self._in_state("ready")),
            replicas_old=len(self.older),
            conditions=self.failing,
            transition=str(model.get("transitionStatus") or ""),
            model_state=str(part(model, "states").get("targetModelState") or ""),
            last_failure=_failure(model) if judged.verdict != "ready" else "",
            pods=(*self.newest, *self.older),
            events=_events(observed.events) if judged.verdict != "ready" else (),
            notes=tuple(self.notes),
            running=running.verdict,
            running_reason=running.reason,
        )

    # ------------------------------------------------------------ what is there

    def _pods(self) -> tuple[tuple[PodState, ...], tuple[PodState, ...]]:
        """Pods of the newest generation, and those of earlier ones that serve; what is being ended counts nowhere."""
        newest = _uid(self._replica_set())
        own = {
            _uid(one)
            for one in self.observed.replica_sets
            if _owned(one, self.deployment) and _uid(one) and _uid(one) != newest
        }
        alive = [pod for pod in self.observed.pods if not part(pod, "metadata").get("deletionTimestamp")]
        new = [look(pod, self.now) for pod in alive if newest and newest in _owners(pod)]
        old = [look(pod, self.now) for pod in alive if own & _owners(pod)]
        return tuple(new), tuple(pod for pod in old if pod.state == "ready")

    def _replica_set(self) -> Object:
        """The ReplicaSet of the Deployment as it is now; {} where there is none yet."""
        revision = part(self.deployment, "metadata", "annotations").get(_REVISION)
        for one in self.observed.replica_sets:
            same = part(one, "metadata", "annotations").get(_REVISION) == revision
            template = part(self.deployment, "spec", "template", "spec")
            if revision and same and _owned(one, self.deployment) and template:
                return one if not differences(template, part(one, "spec", "template", "spec")) else {}
        return {}

    def _in_state(self, *states: str) -> list[PodState]:
        return [pod for pod in self.newest if pod.state in states]

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

    def _verdict(self) -> _Judged:
        observed = self.observed
        needed = [kind for kind in observed.unreadable if kind != "Application"]
        if needed:
            told = "; ".join(observed.unreadable[kind] for kind in sorted(needed))
            return _Judged("unknown", told, "Ask the platform's team for the right to read it.")
        if observed.service is None:
            return self._absent()
        if part(self.service, "metadata").get("deletionTimestamp"):
            return _Judged("missing", "it is being deleted", "Wait, or see who deleted it.")
        running = self.running = self._running()
        synced = self._synced()
        if synced is not None and (synced.verdict == "not synced" or running.verdict == "ready"):
            self.notes.append(f"What is in the cluster: {running.verdict}: {running.reason}.")
            return synced
        health = part(observed.application, "status", "health")
        if running.verdict == "ready" and observed.application is not None and health.get("status") != "Healthy":
            told = sentence(f"Argo CD calls its health {health.get('status') or 'unknown'}", health.get("message"))
            return _Judged("starting", told, "Wait; if it stays, see the application's other objects in Argo CD.")
        return running

    def _absent(self) -> _Judged:
        application = self.observed.application
        if application is not None:
            if part(application, "status", "sync").get("status") != "Synced":
                return self._not_synced(_trouble(application) or "Argo CD has not applied it yet")
            return _Judged(
                "missing",
                "Argo CD calls its application Synced, and there is no InferenceService",
                f"See the application {_name(application)} in Argo CD: does its folder hold an inferenceservice.yaml?",
            )
        if self.observed.wanted is None:
            return _Judged("missing", "neither the cluster nor this clone has it", "Ask for it: neuroscale request")
        where = f" in {self.observed.environment}" if self.observed.environment else ""
        why = self.observed.unreadable.get("Application", f"Argo CD has no application for it{where}")
        return _Judged("missing", f"it is not in the cluster: {why}", "Is its change merged, and the context right?")

    def _not_synced(self, reason: str) -> _Judged:
        application = self.observed.application
        name = _name(application) if application is not None else ""
        do = f"kubectl -n argocd describe application {name}" if name else "See Argo CD's ApplicationSet."
        return _Judged("not synced", reason, do)

    def _synced(self) -> _Judged | None:
        """None where the live object is what Git holds; else why not, or why that cannot be told."""
        observed, application = self.observed, self.observed.application
        if "Application" in observed.unreadable:
            return self._compared(f"Argo CD cannot be asked ({observed.unreadable['Application']})")
        if application is None:
            return self._not_synced("no application of Argo CD's deploys it: what Git holds does not get here")
        if part(application, "metadata").get("deletionTimestamp"):
            return self._not_synced("its application is being deleted")
        revision = part(application, "status", "sync").get("revision")
        if observed.contains is False:
            return self._not_synced(f"Argo CD is at {_short(revision)}, which lacks the service's last change")
        if part(application, "status", "sync").get("status") != "Synced":
            return self._not_synced(_trouble(application) or f"Argo CD says {_sync(application)}")
        holds = [
            one
            for one in items(application, "status", "resources")
            if (one.get("kind"), one.get("namespace"), one.get("name"))
            == ("InferenceService", observed.namespace, observed.name)
        ]
        if not holds or any(one.get("status") != "Synced" for one in holds):
            return self._not_synced(f"the application {_name(application)} does not list it as Synced")
        if observed.contains is None:
            return self._compared(f"this clone does not know the commit {_short(revision)} that Argo CD is at")
        # Argo CD's word stays when it is dead or paused, whatever becomes of the object.
        if fields := self._other_fields():
            told = f"Argo CD calls it Synced, and it differs from the commit {_short(revision)} in {_list(fields)}"
            return self._not_synced(told)
        return None

    def _other_fields(self) -> list[str]:
        """What of the repository's object the cluster's lacks or holds otherwise."""
        wanted = self.observed.wanted or {}
        return differences({key: wanted.get(key) for key in ("metadata", "spec")}, self.service)

    def _compared(self, why: str) -> _Judged | None:
        """By content, where commits cannot be compared."""
        wanted = self.observed.wanted
        if wanted is None:
            if "Application" in self.observed.unreadable:
                return _Judged("unknown", f"{why}, and this clone does not hold the service", "Run git fetch.")
            self.notes.append(f"{why[:1].upper()}{why[1:]}; it does not hold this service either.")
            return None
        if fields := self._other_fields():
            told = f"{why}, and the cluster's object differs from this clone's in {_list(fields)}"
            return _Judged("unknown", told, "Run git fetch, and ask again.")
        self.notes.append(f"{why[:1].upper()}{why[1:]}; the cluster's object is what this clone holds.")
        return None

    def _running(self) -> _Judged:
        """What runs, whatever Git holds."""
        service = self.service
        if str(part(service, "metadata", "annotations").get("serving.kserve.io/stop")).lower() == "true":
            return _Judged("stopped", "it is told to stop (serving.kserve.io/stop)", "Remove the annotation.")
        if condition(service, "Stopped").get("status") == "True":
            return _Judged("starting", "KServe still calls it stopped", f"kubectl {self.where} describe isvc")
        if other := self._not_judged():
            return _Judged("unknown", other, f"kubectl {self.where} describe isvc {self.observed.name}")
        if not items(service, "status", "conditions"):
            return self._unseen("KServe has reported nothing")
        if part(service, "status", "modelStatus").get("transitionStatus") == "InvalidSpec":
            if self._changed_after("status"):
                return self._pending("it was changed just now, and what KServe says may be older")
            return self._failed(self._model_failure("KServe cannot use it") + self._serving())
        if self.observed.deployment is None:
            refused = [one for one in self.failing if one.status == "False" and one.message]
            if refused and not self._changed_after("status"):
                return self._failed(sentence(refused[0].type, refused[0].reason, refused[0].message))
            errors = [
                one.get("message") for one in _unique(self.observed.events) if one.get("reason") == "InternalError"
            ]
            if errors:
                return self._failed(sentence("KServe cannot make its Deployment", errors[-1]))
            return self._unseen("KServe has made no Deployment")
        return self._generations() or self._pods_verdict() or self._conditions_verdict()

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

    def _unseen(self, told: str) -> _Judged:
        changed = _written(self.service) or moment(part(self.service, "metadata").get("creationTimestamp"))
        age = None if changed is None else int((self.now - changed).total_seconds())
        if age is not None and age <= SETTLES:
            return _Judged("starting", f"{told} yet", "Wait.")
        since = "" if age is None else f" for {age:,} s"
        return _Judged("unknown", f"{told}{since}", "Does KServe's controller run? kubectl -n kserve get pods")

    def _generations(self) -> _Judged | None:
        """Whether the change went from the service to the Deployment, from there to the ReplicaSet, and back."""
        deployment = self.deployment
        if not _owned(deployment, self.service):
            return _Judged(
                "unknown",
                f"the Deployment {_name(deployment)} does not belong to it",
                f"kubectl {self.where} get deployment {_name(deployment)} -o yaml",
            )
        generation = part(deployment, "metadata").get("generation")
        if fields := self._stale_fields():
            return self._pending(f"KServe has not carried the newest generation on: {_list(fields)} differs")
        if part(deployment, "spec").get("replicas") == 0:
            return _Judged("stopped", "its Deployment asks for no pods", f"kubectl {self.where} get deployment,hpa")
        written = _written(deployment)
        # A Deployment of the same second is taken for the answer: one that still differed is told above.
        if written is not None and self._changed_after("status") and self._changed_after("", written):
            # A change of what is no field of the Deployment ends here too.
            return self._pending("it was changed just now, and KServe may not have seen it")
        if part(deployment, "status").get("observedGeneration") != generation:
            return self._pending("Kubernetes has not seen the newest Deployment")
        if part(self.service, "status").get("observedGeneration") != generation:
            return self._pending("what KServe says is about an earlier Deployment")
        return None if self._replica_set() else self._pending("the newest Deployment has no ReplicaSet")

    def _stale_fields(self) -> list[str]:
        """The fields of the service that its Deployment does not have: KServe merges the runtime's with them."""
        predictor = part(self.service, "spec", "predictor")
        model = part(predictor, "model")
        template = part(self.deployment, "spec", "template")
        server = next((one for one in items(template, "spec", "containers") if one.get("name") == SERVER), {})
        pod = {key: value for key, value in predictor.items() if key not in _NO_FIELDS_OF_A_POD}
        container = {key: value for key, value in model.items() if key not in _NO_FIELDS_OF_A_CONTAINER}
        fields = differences(pod, part(template, "spec"), "predictor")
        fields += differences(_plain(container), server, "predictor.model")
        if self._other_arguments(model.get("args") or [], server.get("args") or []):
            fields.append("predictor.model.args")
        if (
            model.get("storageUri")
            and part(template, "metadata", "annotations").get(_STORAGE_URI) != model["storageUri"]
        ):
            fields.append("predictor.model.storageUri")
        annotations = part(self.service, "metadata", "annotations")
        fewest = predictor.get("minReplicas")
        if annotations.get("serving.kserve.io/autoscalerClass") == "none" and isinstance(fewest, int):
            fields += ["predictor.minReplicas"] if part(self.deployment, "spec").get("replicas") != fewest else []
        return fields

    def _other_arguments(self, wanted: Any, found: Any) -> bool:
        """KServe puts the runtime's before the service's, and fills in placeholders."""
        if not isinstance(wanted, list) or not isinstance(found, list):
            return True
        runtime = items(self.observed.runtime, "spec", "containers")
        first = next((one.get("args") or [] for one in runtime if one.get("name") == SERVER), None)
        if first is not None:
            wanted = [*first, *wanted]
            found = found if len(found) == len(wanted) else [None] * len(wanted)
        else:
            found = found[len(found) - len(wanted) :] if len(found) >= len(wanted) else [None] * len(wanted)
        return any(one != other and "{{" not in str(one) for one, other in zip(wanted, found, strict=True))

    def _changed_after(self, subresource: str, written: datetime | None = None) -> bool:
        """Whether the service changed moments ago, and nothing was written in answer to it since.

        KServe's status is such an answer: the API server takes it only from who has seen the newest object.
        """
        changed = _written(self.service)
        answered = written or _written(self.service, subresource)
        if changed is None or (self.now - changed).total_seconds() > SETTLES / 2:
            return False
        # Times are whole seconds: in the same one, a status may be older.
        return answered is None or (answered <= changed if subresource else answered < changed)

    def _serving(self) -> str:
        """In words, the pods that answer whatever the newest generation does."""
        alive = [pod for pod in self.observed.pods if not part(pod, "metadata").get("deletionTimestamp")]
        ready = sum(look(pod, self.now).state == "ready" for pod in alive)
        return f"; {plainly_counted(ready, 'pod')} of an earlier generation still serve" if ready else ""

    def _pending(self, reason: str) -> _Judged:
        """On its way from the service to the pods."""
        failed = [one for one in self.failing if one.status == "False" and one.reason == "ReconcileFailed"]
        if failed and not self._changed_after("status"):
            return self._failed(sentence(failed[0].type, failed[0].reason, failed[0].message) + self._serving())
        do = f"Wait; if it stays: does KServe's controller run? kubectl {self.where} describe isvc {self.observed.name}"
        return _Judged("out of date" if self._serving() else "starting", reason, do)

    def _pods_verdict(self) -> _Judged | None:
        old = f"; {plainly_counted(len(self.older), 'pod')} of an earlier generation still serve" if self.older else ""
        refused = condition(self.deployment, "ReplicaFailure")
        if refused.get("status") == "True":
            told = sentence("its pods are refused", refused.get("reason"), refused.get("message"))
            return self._failed(f"{told}{old}", "A quota, a policy or the namespace's security level; see the message.")
        ready, failed = len(self._in_state("ready")), self._in_state("failed")
        deadline = condition(self.deployment, "Progressing").get("reason") == "ProgressDeadlineExceeded"
        if ready >= self.needed:
            self.notes += [f"Pod {pod.name} is not ready: {pod.told}." for pod in self._in_state("failed", "starting")]
            if not self.older:
                return None
            return _Judged("out of date", f"the newest generation is ready{old}", "Wait for their end.")
        if failed:
            told = f"pod {failed[0].name}: {failed[0].told}"
            more = f" ({len(failed) - 1} more)" if len(failed) > 1 else ""
            return self._failed(f"{told}{more}{old}", self._remedy(failed[0]))
        starting = self._in_state("starting")
        told = f"pod {starting[0].name}: {starting[0].told}" if starting else "it has no pod yet"
        if deadline and starting:
            self.notes.append(
                f"Kubernetes' own patience of {PROGRESS_DEADLINE} s is over (ProgressDeadlineExceeded). The startup "
                "probe allows more: this is no failure."
            )
        count = f"{ready} of {self.needed} ready; " if self.needed > 1 else ""
        if deadline and not starting:
            return self._failed(f"{count}{told}, and its Deployment makes no progress{old}")
        do = self._remedy(starting[0]) if starting and starting[0].secret else "Wait."
        return _Judged("out of date" if self.older else "starting", f"{count}{told}{old}", do)

    def _remedy(self, pod: PodState) -> str:
        """What to do about a pod that gets no further."""
        if pod.secret == api_key.secret_name(self.observed.name):
            where = f" --environment {self.observed.environment}" if self.observed.environment else ""
            return f"Make its key: neuroscale key {self.observed.name}{where}"
        if pod.secret:
            return f"Who writes the Secret {pod.secret}? kubectl {self.where} get secrets"
        if pod.waiting in _IMAGE_TROUBLES:
            return f"The image, or who may pull it; see the message, and kubectl {self.where} describe pod {pod.name}"
        if pod.waiting and not pod.restarts:
            return f"kubectl {self.where} describe pod {pod.name}"
        return f"kubectl {self.where} logs {pod.name} -c {SERVER}{' --previous' if pod.restarts else ''}"

    def _conditions_verdict(self) -> _Judged:
        """The pods are there. Is what KServe says of it the same?"""
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
            told = f"KServe calls the model {transition or 'nothing'}, not UpToDate"
        elif target != "Loaded":
            told = f"KServe calls the newest model {target or 'nothing'}, not Loaded"
        if not told:
            ready = len(self._in_state("ready"))
            return _Judged("ready", f"{ready} of {max(ready, self.needed)} pods of the newest generation answer")
        names = {pod.name for pod in self._in_state("ready")}
        since = [
            seconds_since(condition(pod, "Ready").get("lastTransitionTime"), self.now)
            for pod in self.observed.pods
            if part(pod, "metadata").get("name") in names
        ]
        if min((seconds for seconds in since if seconds is not None), default=0) > SETTLES:
            return self._failed(told, f"kubectl {self.where} describe isvc {self.observed.name}; does KServe run?")
        return _Judged("starting", told, "Wait.")

    def _model_failure(self, told: str) -> str:
        return sentence(told, _failure(part(self.service, "status", "modelStatus")))

    def _failed(self, reason: str, do: str = "") -> _Judged:
        return _Judged("failed", reason, do or f"kubectl {self.where} describe isvc {self.observed.name}")

    def _application(self) -> Application | None:
        found = self.observed.application
        if found is None:
            return None
        sync, health = part(found, "status", "sync"), part(found, "status", "health")
        return Application(
            name=_name(found),
            sync=str(sync.get("status") or "Unknown"),
            health=str(health.get("status") or "Unknown"),
            revision=str(sync.get("revision") or ""),
            contains_last_change=self.observed.contains,
            told=_trouble(found),
        )


def _trouble(application: Object) -> str:
    """What Argo CD says is wrong: errors of the comparison, and of the last operation where it is not over."""
    told = [
        sentence(one.get("type"), one.get("message"))
        for one in items(application, "status", "conditions")
        if "Warning" not in str(one.get("type"))
    ]
    operation = part(application, "status", "operationState")
    if operation.get("phase") in ("Failed", "Error", "Running"):
        told.append(sentence(f"its synchronisation is {operation['phase']}", operation.get("message")))
    return "; ".join(told)


def _sync(application: Object) -> str:
    return str(part(application, "status", "sync").get("status") or "nothing about it")


def _failure(model: Mapping[str, Any]) -> str:
    info = part(model, "lastFailureInfo")
    code = f"exit code {info['exitCode']}" if info.get("exitCode") else ""
    return sentence(info.get("reason"), code, info.get("message"))


def _events(found: tuple[Object, ...]) -> tuple[str, ...]:
    """Warnings in words, the last ones last."""
    rows = sorted(
        (str(one.get("lastTimestamp") or one.get("eventTime") or ""), _told_event(one)) for one in _unique(found)
    )
    return tuple(text for _, text in rows)[-10:]


def _told_event(one: Object) -> str:
    return sentence(part(one, "involvedObject").get("name"), one.get("reason"), one.get("message"))


def _unique(found: tuple[Object, ...]) -> list[Object]:
    """Warnings, without those of a write that is tried again at once."""
    last: dict[tuple[Any, ...], Object] = {}
    for one in found:
        if one.get("type") == "Warning" and "the object has been modified" not in str(one.get("message")):
            last[part(one, "involvedObject").get("name"), one.get("reason"), one.get("message")] = one
    return list(last.values())


def _written(found: Object, subresource: str = "") -> datetime | None:
    """When somebody last wrote a field of the spec, or of a subresource."""
    times = [
        when
        for entry in items(found, "metadata", "managedFields")
        if (entry.get("subresource") or "") == subresource
        if subresource or "f:spec" in part(entry, "fieldsV1")
        if (when := moment(entry.get("time"))) is not None
    ]
    return max(times, default=None)


def _model_name(arguments: Any) -> str:
    """What the server calls its model; empty where its arguments do not say."""
    given = [str(one) for one in arguments] if isinstance(arguments, list) else []
    return next((one.removeprefix(_SERVED_NAME) for one in reversed(given) if one.startswith(_SERVED_NAME)), "")


def _plain(container: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that have a placeholder, which KServe fills in."""
    return {key: value for key, value in container.items() if "{{" not in str(value)}


def _owners(found: Object) -> set[str]:
    return {str(one["uid"]) for one in items(found, "metadata", "ownerReferences") if one.get("uid")}


def _owned(found: Object, owner: Object) -> bool:
    return bool(_uid(owner)) and _uid(owner) in _owners(found)


def _uid(found: Object) -> str:
    return str(part(found, "metadata").get("uid") or "")


def _name(found: Object) -> str:
    return str(part(found, "metadata").get("name") or "")


def _short(revision: Any) -> str:
    return str(revision or "no commit")[:10]


def _list(fields: list[str], most: int = 3) -> str:
    more = f" and {len(fields) - most} more" if len(fields) > most else ""
    return ", ".join(fields[:most]) + more
