"""Prints the verdicts on a cluster's services, for people: a line for each, or one service with all its facts."""

from __future__ import annotations

import typer

from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.cluster.service_status_reader import Question, ServiceStatuses
from neuroscale.core.printable import terminal


def print_status(answer: ServiceStatuses, question: Question, *, detailed: bool) -> None:
    """Print a line for each service, and all its facts if `detailed`."""
    width = max((len(label(one)) for one in answer.services), default=0)
    for one in answer.services:
        what = f"{one.reason}{_endpoint(one)}" if one.verdict == "ready" else f"{one.reason}. {one.next}"
        typer.echo(f"{label(one):<{width}}  {one.verdict:<11}  {terminal(what, 4000)}")
        if detailed:
            _print_details(one)
        elif one.notes and one.verdict == "ready":
            typer.echo(f"{'':<{width}}  note: {terminal(one.notes[0], 2000)}")
    for line in answer.unreadable:
        typer.echo(f"Cannot be read: {terminal(line)}")
    if not answer.services and not answer.unreadable:
        where = f" of the environment {question.environment}" if question.environment else ""
        typer.echo(
            f"No service{where} is in this cluster, and this clone does not hold one for it. Check that the cluster "
            f"is right. Ask for a service: neuroscale request --interactive"
        )


def _print_details(one: ServiceStatus) -> None:
    rows: list[tuple[str, str]] = []
    if one.application is not None:
        application = one.application
        held = {True: "with the last change", False: "without the last change", None: "not known to this clone"}
        told = f"{application.sync}, {application.health}, at {application.revision[:10] or 'no commit'}"
        rows.append(("Argo CD", f"{application.name}: {told} ({held[application.contains_last_change]})"))
        rows += [("", application.told)] if application.told else []
    if one.generation is not None:
        old = f", {one.replicas_old} of earlier generations" if one.replicas_old else ""
        rows.append(("generation", f"{one.generation}: {one.replicas_ready} of {one.replicas_needed} pods ready{old}"))
        rows.append(("model", f"{one.transition or 'not reported'}, newest {one.model_state or 'not reported'}"))
    if one.last_failure:
        rows.append(("", f"last failure: {one.last_failure}"))
    for condition in one.conditions:
        why = ": ".join(text for text in (condition.reason, condition.message) if text)
        rows.append(("condition", f"{condition.type} {condition.status}{f': {why}' if why else ''}"))
    for pod in one.pods:
        restarts = f", {pod.restarts} restarts" if pod.restarts else ""
        rows.append(("pod", f"{pod.name} on {pod.node or 'no node'}: {pod.state}: {pod.told}{restarts}"))
    rows += [("event", text) for text in one.events]
    rows += [("note", text) for text in one.notes]
    rows += [("URL", one.url), ("address", one.address)]
    for name, text in rows:
        if text:
            typer.echo(f"  {name:<11} {terminal(text, 2000)}")
    if one.curl:
        typer.echo("\nAsk it (the command reads its key without showing it):\n")
        typer.echo(terminal(one.curl, 4000))


def _endpoint(one: ServiceStatus) -> str:
    return "".join(f" {url}" for url in (one.url, one.address) if url)


def label(one: ServiceStatus) -> str:
    """A service's name, with its environment's."""
    return terminal(f"{one.environment or '?'}/{one.name}")
