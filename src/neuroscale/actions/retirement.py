"""Says what a removal of a service does: who still calls it, what it saves, and what remains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from neuroscale.actions.chosen_cluster import Where, asked_cluster, local_kubeconfig
from neuroscale.actions.chosen_metrics import prometheus_of
from neuroscale.actions.progress import Progress
from neuroscale.actions.service_change import once_for_each_main
from neuroscale.catalog.settings import Settings
from neuroscale.cluster.command_lines import lines_with
from neuroscale.cluster.metrics.service_metrics import finished_requests
from neuroscale.core.errors import ASKED, NeuroscaleError, Problem
from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import terminal
from neuroscale.forge.request_flow import Main, Version
from neuroscale.planning.plan import Plan
from neuroscale.rendering.object_names import secret_name
from neuroscale.repo.layout import ServicePath

_DAYS = 7  # for how long back the requests are counted


def removal_sentences(
    where: Where, prometheus_url: str, root: Path, reason: str, progress: Progress, *, local: bool
) -> Callable[[Main, ServicePath, Version], Sequence[str]]:
    def sentences_of(main: Main, path: ServicePath, version: Version) -> Sequence[str]:
        plan = version.plan
        sentences = [f"Why: {reason}"] if reason else []
        if plan is None:
            return [*sentences, "Its plan cannot be read: what it costs, and what remains of it, is not known."]
        return [
            *sentences,
            last_requests(main.inputs.settings, path, plan, where, prometheus_url, root, progress),
            _saves(plan),
            *what_remains(plan, root, local=local),
        ]

    return once_for_each_main(sentences_of)


def last_requests(
    settings: Settings, path: ServicePath, plan: Plan, where: Where, url: str, root: Path, progress: Progress
) -> str:
    """Who still called it, as far as its metrics say."""

    if not url:
        where = asked_cluster(where, root, path.environment, progress)
    ambiguous = Problem(ASKED, "prometheus-url", "", "Name the Prometheus to ask.")
    try:
        progress.step("Asking Prometheus who called it")
        with prometheus_of(path.environment, where, url, settings, ambiguous) as prometheus:
            at = prometheus.now()
            counts = [
                finished_requests(prometheus, plan.tenancy.namespace, path.service, at, days * 86400.0)
                for days in (_DAYS, 1)
            ]
    except NeuroscaleError as error:
        progress.note(f"Its metrics were not read: {terminal(str(error), 1000)}")
        return "Who still calls it is not known: its metrics were not read."
    # Two digits: the same command a minute later finds its pull request as it should be.
    week, day = (None if count is None else round(float(f"{count:.2g}")) for count in counts)
    if week is None:
        return f"Prometheus has no requests of it in the last {_DAYS} days: it was not scraped, or did not run."
    clients = ", ".join([plan.tenancy.namespace, *plan.surroundings.client_namespaces])
    who = f" Metrics do not say whose they are: pods of {clients} may call it." if week else ""
    return f"It answered about {week:,} requests in the last {_DAYS} days, {day or 0:,} of them in the last 24 h.{who}"


def _saves(plan: Plan) -> str:
    low, high = plan.cost.monthly_min, plan.cost.monthly_max
    if low is None or high is None:
        return f"What this saves is not known: the catalog had no price for {plan.accelerator}."
    held = f"{plan.replicas.min * plan.accelerator_count:,} x {plan.accelerator}"
    return f"This saves {usd(low, high)} a month, and gives {held} back."


def what_remains(plan: Plan, root: Path, *, local: bool) -> list[str]:
    """What of it is not in Git, and what stays in the cluster. `local`: in that of the repository's local platform,
    whose kubeconfig the line names; a pull request elsewhere is read on other machines.
    """

    kubeconfig = local_kubeconfig(root, plan.environment) if local else None
    kubectl = lines_with([f"--kubeconfig={kubeconfig}"], None).kubectl if kubeconfig else "kubectl"
    secret, namespace = secret_name(plan.service), plan.tenancy.namespace
    sentences = [
        f"Its API key is the Secret {secret} of {namespace}, outside Git. If `neuroscale key` or the smoke workflow "
        "made it, the cluster deletes it with the service, and a restored service has a new key. If not, it remains. "
        f"Once the service is gone: {kubectl} --namespace {namespace} delete secret {secret} --ignore-not-found"
    ]
    if (store := plan.surroundings.secret_store) is not None:
        entry = store.key(namespace, secret)
        sentences = [
            f"Its API key is the Secret {secret} of {namespace}, which goes with the service. Its entry {entry} in the "
            f"store {store.store} remains."
        ]
    if plan.needs_hugging_face_token:
        token = plan.surroundings.token_secret
        sentences.append(f"The Secret {token} of {namespace} remains too: other services read it.")
    return sentences
