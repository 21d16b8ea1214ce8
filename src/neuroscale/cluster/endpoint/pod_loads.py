"""Reads for some seconds what the servers of a service's ready pods count, each through the API server. No key is
needed: vLLM shows its metrics without one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from neuroscale.cluster.command_lines import command_lines
from neuroscale.cluster.endpoint.access import ReadyPod, pods_of, ready_pods
from neuroscale.cluster.endpoint.connection import Endpoint, client
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.forward import port_forward
from neuroscale.cluster.endpoint.metrics import Histogram, Sampler, Snapshot
from neuroscale.cluster.pod_state import server_container
from neuroscale.core.validation import part
from neuroscale.explain.slow_service import PodLoad
from neuroscale.kube.client import Cluster, Object
from neuroscale.vllm.argument_values import values_of_container

_MOST_PODS = 16
"""The pods that are read: one port-forward each. Those of a larger service are alike, or the newest show it."""
_READINGS = 20


def read_loads(
    cluster: Cluster, namespace: str, service: str, seconds: float
) -> tuple[tuple[PodLoad, ...], tuple[str, ...]]:
    """What the servers of the ready pods counted for so many seconds, and why others could not be read: empty both if
    no pod is ready. Raises KubernetesError, and InputError without kubectl."""
    try:
        ready = ready_pods(cluster, namespace, service)
    except EndpointError:
        return (), ()
    places = {str(part(pod, "metadata").get("name")): _places(pod) for pod in pods_of(cluster, namespace, service)}
    unread: list[str] = []
    samplers: list[tuple[ReadyPod, Sampler]] = []
    with contextlib.ExitStack() as stack:
        for pod in ready[:_MOST_PODS]:
            try:
                port = stack.enter_context(port_forward(cluster, namespace, pod.name, pod.port))
            except EndpointError as error:
                unread.append(f"{pod.name}: {error}")
                continue
            url = f"http://127.0.0.1:{port}"
            http = stack.enter_context(client(url))
            lines = command_lines(cluster)
            endpoint = Endpoint(url, pod.model, None, http, "port-forward", namespace, service, pod.name, lines)
            samplers.append((pod, stack.enter_context(Sampler(endpoint, every=seconds / _READINGS))))
        if any(not sampler.problem for _, sampler in samplers):
            time.sleep(seconds)
    loads = []
    for pod, sampler in samplers:
        if sampler.problem:
            unread.append(f"{pod.name}: {sampler.problem}")
        elif (load := load_between(pod.name, sampler.snapshots, places.get(pod.name))) is None:
            unread.append(f"{pod.name}: its metrics do not say how many requests run and wait. Is it vLLM?")
        else:
            loads.append(load)
    unread += [f"{pod.name}: not read, after {_MOST_PODS} others" for pod in ready[_MOST_PODS:]]
    return tuple(loads), tuple(unread)


def load_between(pod: str, snapshots: Sequence[Snapshot], places: int | None = None) -> PodLoad | None:
    """The load between the first reading and the last one; None if the server does not count its requests."""
    running = [one.running for one in snapshots if one.running is not None]
    waiting = [one.waiting for one in snapshots if one.waiting is not None]
    if len(running) < len(snapshots) or len(waiting) < len(snapshots) or len(snapshots) < 2:
        return None
    first, last = snapshots[0], snapshots[-1]
    ttft, itl = _between(first.ttft, last.ttft), _between(first.itl, last.itl)
    queue, prefill, decode = (
        one.mean if (one := _between(getattr(first, name), getattr(last, name))) else None
        for name in ("queue", "prefill", "decode")
    )
    usage = [one.kv_cache_usage for one in snapshots if one.kv_cache_usage is not None]
    keeps = last.prefix_caching is not False and last.prefix_hits is not None
    return PodLoad(
        pod=pod,
        seconds=last.at - first.at,
        running=sum(running) / len(running),
        most_running=max(running),
        waiting=sum(waiting) / len(waiting),
        waits=sum(one > 0 for one in waiting) / len(waiting),
        most_at_once=max(one + other for one, other in zip(running, waiting, strict=True)),
        places=places,
        cache=max(usage, default=None),
        cache_tokens=last.cache_tokens,
        preemptions=_more(first.preemptions, last.preemptions),
        first_tokens=ttft.count if ttft else 0.0,
        ttft_p95=ttft.quantile(0.95) if ttft else None,
        ttft=ttft.mean if ttft else None,
        itl=itl.mean if itl else None,
        itl_p50=itl.quantile(0.5) if itl else None,
        itl_p95=itl.quantile(0.95) if itl else None,
        queue=queue,
        prefill=prefill,
        decode=decode,
        prompt_tokens=_more(first.prompt_tokens, last.prompt_tokens),
        answer_tokens=_more(first.generation_tokens, last.generation_tokens),
        cached_tokens=_more(first.prefix_hits, last.prefix_hits) if keeps else None,
    )


def _between(first: Histogram | None, last: Histogram | None) -> Histogram | None:
    return None if last is None else last if first is None else last.since(first)


def _more(first: float | None, last: float | None) -> float:
    """What was counted between two readings: all of the last one after a restart."""
    if last is None:
        return 0.0
    return last - first if first is not None and first <= last else last


def _places(pod: Object) -> int | None:
    """The requests that a pod's server computes at a time, by its arguments."""
    found = values_of_container(server_container(pod)).get("max_num_seqs")
    return found if isinstance(found, int) and not isinstance(found, bool) else None
