"""Gives a service a new API key: writes it, replaces the pods one by one, and proves the key at each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from neuroscale.cluster.command_lines import command_lines
from neuroscale.cluster.endpoint import chat, key
from neuroscale.cluster.endpoint.access import ReadyPod, open_endpoint, pods_of, ready_pods
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.pod_state import PodState, is_ending, look, startup_budget
from neuroscale.core.errors import InputError
from neuroscale.core.money_and_time import duration
from neuroscale.core.secret_text import SecretText
from neuroscale.core.validation import part
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.rendering.object_names import ENTRY, secret_name

_BETWEEN = 0.5
_BEYOND = 60.0
"""Seconds for controllers and scheduler, beside the time that a pod takes to end and to start."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Rotation:
    """The outcome. `replaced`: pods that took the earlier key.

    `proven`: each ready pod took the new key and refused the earlier one when it was asked. `unproven`: why that could
    not be checked, or "".
    """

    replaced: tuple[str, ...]
    proven: bool
    unproven: str


def rotate(
    cluster: Cluster,
    namespace: str,
    service: str,
    tell: Tell,
    *,
    seconds: float | None = None,
    with_outage: bool = False,
) -> Rotation:
    """Give a service a new key.

    The Secret gets it first. Then the Eviction API ends each of the earlier pods, one after the other, as soon as the
    replacement of the last one is ready. Meanwhile a pod takes the key with which it was started. `seconds`: for each
    pod (None: its grace period, its startup probe's budget, and a minute). `tell` is called with each step.
    `with_outage`: also where one pod alone answers, which nothing stands in for until the next one is ready.

    A pod takes one key: vLLM 0.32 reads VLLM_API_KEY as a single one (vllm/entrypoints/serve/middleware/register.py),
    and only when it starts. So no second key could spare a service of one pod its start.

    Raises InputError (no Secret, or one that another controller owns; no right to evict; a pod that no node takes
    beside one that answers; an outage that nobody asked for) and EndpointError (a PodDisruptionBudget forbids it)
    before anything is changed; later EndpointError for a pod that is not replaced in time, or that still takes the
    earlier key. Raises KubernetesError.
    """
    name = secret_name(service)
    secret = key.get(cluster, namespace, name)
    if secret is None:
        raise InputError.at(
            f"the Secret {namespace}/{name}",
            "",
            "is missing",
            f"Make it: {command_lines(cluster).own(f'key {service}')}",
        )
    _check_ours(secret, namespace, name)
    before = [pod for pod in pods_of(cluster, namespace, service) if not is_ending(pod)]
    for pod in before:
        _check_evictable(cluster, namespace, service, pod)
    now = datetime.now(UTC)
    ready = [pod for pod in before if look(pod, now).state == "ready"]
    waiting = next((seen for seen in (look(pod, now) for pod in before) if seen.waits_for), None)
    if ready and waiting is not None:
        raise _no_room(cluster, waiting, service)
    if len(ready) == 1 and not with_outage:
        raise _outage(cluster, ready[0], service)
    old = _earlier(secret, service)
    new = SecretText(key.new_key())
    _write(cluster, secret, new)
    tell(f"The Secret {namespace}/{name} holds a new key.")
    needed = max(1, len(ready))
    if len(ready) == 1:
        tell("One pod answers: the service does not answer until the next pod is ready.")
    for index, pod in enumerate(before):
        patience = _patience(pod) if seconds is None else seconds
        _replace(cluster, namespace, service, pod, patience, needed=needed)
        tell(f"{index + 1} of {len(before)}: {_name(pod)} is replaced by a pod that is ready.")
    if not before:
        return Rotation((), proven=False, unproven=f"{service} has no pods")
    replaced = tuple(_name(pod) for pod in before)
    problem = _prove(cluster, namespace, service, new, old)
    return Rotation(replaced, proven=not problem, unproven=problem)


def _no_room(cluster: Cluster, waiting: PodState, service: str) -> InputError:
    told = f"waits for {waiting.waits_for}, so the pod that is to replace one that answers may wait, too"
    status = command_lines(cluster).own(f"status {service}")
    fix = f"Nothing was changed. Make room for it, or take its change back; then rotate the key. See: {status}"
    return InputError.at(f"the pod {waiting.name}", "", told, fix)


def _outage(cluster: Cluster, pod: Object, service: str) -> InputError:
    told = f"is the only one that answers: without it, requests fail until the next pod has started ({_budget(pod)})"
    again = command_lines(cluster).own(f"key {service} --rotate --with-outage")
    fix = (
        "Nothing was changed. Let two replicas run first (an override of replicas.min), or take the outage at a quiet "
        f"time: {again}"
    )
    return InputError.at(f"the pod {_name(pod)}", "", told, fix)


def _budget(pod: Object) -> str:
    return f"its startup probe allows {duration(startup_budget(pod))}"


def _check_ours(secret: Object, namespace: str, name: str) -> None:
    """Raises InputError if another controller owns the Secret: it would write its own key back."""
    owner = next((one for one in part(secret, "metadata").get("ownerReferences") or () if one.get("controller")), None)
    problem = None
    if secret.get("immutable"):
        problem = ("is immutable", "Delete it, and run this command again: it makes a new one.")
    elif owner is not None:
        problem = (
            f"belongs to {owner.get('kind')} {owner.get('name')}",
            "Change the key at the source of that object.",
        )
    if problem is not None:
        raise InputError.at(f"the Secret {namespace}/{name}", "", *problem)


def _earlier(secret: Object, service: str) -> SecretText | None:
    """The earlier key; None if the Secret did not hold a usable one."""
    try:
        return key.key_of(secret, service)
    except InputError:
        return None


def _write(cluster: Cluster, secret: Object, new: SecretText) -> None:
    metadata = secret["metadata"]
    change = {
        # The API server refuses this if somebody else has changed the Secret meanwhile.
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "data": {ENTRY: key.encoded(new.secret)},
    }
    try:
        cluster.merge(Identity("v1", "Secret", metadata["namespace"], metadata["name"]), change)
    except RefusedError as error:
        if error.code != 409:
            raise
        where = f"the Secret {metadata['namespace']}/{metadata['name']}"
        raise InputError.at(
            where, "", "has just been changed by somebody else", "Check the Secret, and try again."
        ) from error


def _replace(cluster: Cluster, namespace: str, service: str, pod: Object, seconds: float, *, needed: int) -> None:
    """Evict one pod, and wait until it is gone and `needed` pods are ready."""
    ends = time.monotonic() + seconds
    _evict(cluster, namespace, service, pod, ends)
    uid = part(pod, "metadata").get("uid")
    while True:
        now = datetime.now(UTC)
        there = pods_of(cluster, namespace, service)
        gone = all(part(one, "metadata").get("uid") != uid for one in there)
        staying = [look(one, now) for one in there if not is_ending(one)]
        ready = sum(one.state == "ready" for one in staying)
        if gone and ready >= needed:
            return
        if time.monotonic() >= ends:
            told = "; ".join(f"{one.name}: {one.told}" for one in staying if one.state != "ready")
            lines = command_lines(cluster)
            raise EndpointError(
                f"{_name(pod)} was not replaced within {duration(seconds)}: {ready} of {needed} pods are ready"
                f"{f' ({told})' if told else ''}. The pods that were not replaced yet take the earlier key. See: "
                f"{lines.own(f'status {service}')}; then run: {lines.own(f'key {service} --rotate')}"
            )
        time.sleep(_BETWEEN)


def _check_evictable(cluster: Cluster, namespace: str, service: str, pod: Object) -> None:
    """Asks by a dry run. Raises InputError or EndpointError if the pod may not be evicted now."""
    try:
        _post_eviction(cluster, namespace, pod, dry_run=True)
    except RefusedError as error:
        where, said = f"the pod {namespace}/{_name(pod)}", error.message.rstrip(".")
        if error.code == 403:
            rotate = command_lines(cluster).own(f"key {service} --rotate")
            fix = f"Nothing was changed. Ask the platform's team to run: {rotate}"
            raise InputError.at(where, "", "is a pod that you may not evict", fix) from error
        if error.code == 429:
            raise EndpointError(
                f"{where} may not be evicted: {said}. Nothing was changed. Are all pods of {service} ready? See: "
                f"{command_lines(cluster).kubectl} -n {namespace} get pdb"
            ) from error
        if not _is_another(cluster, namespace, pod):
            raise


def _evict(cluster: Cluster, namespace: str, service: str, pod: Object, ends: float) -> None:
    """Evict it as soon as its PodDisruptionBudget allows that."""
    while True:
        try:
            _post_eviction(cluster, namespace, pod)
        except RefusedError as error:
            if _is_another(cluster, namespace, pod):
                return
            if error.code not in (409, 429):
                raise
            if time.monotonic() >= ends:
                lines = command_lines(cluster)
                raise EndpointError(
                    f"The pod {_name(pod)} may not be evicted: {error.message.rstrip('.')}. Until it is replaced, "
                    f"it takes the earlier key. See: {lines.kubectl} -n {namespace} get pdb; then run: "
                    f"{lines.own(f'key {service} --rotate')}"
                ) from error
            time.sleep(_BETWEEN)
        else:
            return


def _post_eviction(cluster: Cluster, namespace: str, pod: Object, *, dry_run: bool = False) -> None:
    # Not a newer pod of the same name.
    options: Object = {"preconditions": {"uid": part(pod, "metadata").get("uid")}}
    cluster.request(
        "POST",
        f"{cluster.path('v1', 'Pod', namespace, _name(pod))}/eviction",
        {"dryRun": "All"} if dry_run else {},
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": _name(pod), "namespace": namespace},
            "deleteOptions": {**options, **({"dryRun": ["All"]} if dry_run else {})},
        },
    )


def _is_another(cluster: Cluster, namespace: str, pod: Object) -> bool:
    """Whether the pod is gone, or another pod has taken its name."""
    there = cluster.get("v1", "Pod", _name(pod), namespace)
    return there is None or part(there, "metadata").get("uid") != part(pod, "metadata").get("uid")


def _prove(cluster: Cluster, namespace: str, service: str, new: SecretText, old: SecretText | None) -> str:
    """Check that every pod takes the new key and refuses the earlier one. Returns why that could not be checked, or "".

    Raises EndpointError if a pod does otherwise.
    """
    for pod in ready_pods(cluster, namespace, service):
        if pod.key is None:
            raise EndpointError(
                f"The pod {pod.name} takes its key from nowhere. "
                f"See: {command_lines(cluster).kubectl} -n {namespace} describe pod {pod.name}"
            )
        try:
            _prove_pod(cluster, namespace, service, pod, new, old)
        except EndpointError as error:
            if error.status is not None:
                raise
            return f"{pod.name} could not be asked: {error}"
    return ""


def _prove_pod(
    cluster: Cluster, namespace: str, service: str, pod: ReadyPod, new: SecretText, old: SecretText | None
) -> None:
    with open_endpoint(cluster, namespace, service, api_key=new, pod=pod.name) as endpoint:
        chat.models(endpoint)
        refused = [(None, "no key"), *([(old, "the earlier key")] if old is not None else [])]
        for shown, what in refused:
            try:
                chat.models(replace(endpoint, key=shown))
            except EndpointError as error:
                if error.status == 401:
                    continue
                raise
            raise EndpointError(f"The pod {pod.name} still answers to {what}. Check where it takes its key from.", 200)


def _patience(pod: Object) -> float:
    grace = part(pod, "spec").get("terminationGracePeriodSeconds")
    return (grace if isinstance(grace, int) else 30) + startup_budget(pod) + _BEYOND


def _name(pod: Object) -> str:
    return str(part(pod, "metadata").get("name"))
