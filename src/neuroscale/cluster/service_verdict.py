"""Judges a deployed service from the objects that were read: a pure function.

It compares what runs (`running_verdict`) with what Git holds, and sees faults that Argo CD's health check does not see.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from neuroscale.cluster.object_fields import differences, name_of, sentence, served_model_name
from neuroscale.cluster.pod_state import last_warnings
from neuroscale.cluster.running_verdict import Running, last_failure
from neuroscale.cluster.service_status import Application, Judged, Observed, ServiceStatus
from neuroscale.core.printable import first_of
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Object


def judge_service(observed: Observed, now: datetime) -> ServiceStatus:
    """The verdict. Anything that cannot be judged makes it `unknown`, never `ready`."""
    return _Judge(observed, now).status()


class _Judge:
    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now
        self.service: Object = observed.service or {}
        self.runs = Running(observed, now)
        self.notes = self.runs.notes
        self.running: Judged | None = None

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
            model=served_model_name(part(self.service, "spec", "predictor", "model").get("args")),
            application=self._application(),
            generation=generation if isinstance(generation, int) else None,
            replicas_needed=self.runs.needed if self.service else 0,
            replicas_ready=len(self.runs.in_state("ready")),
            replicas_old=len(self.runs.older),
            conditions=self.runs.failing,
            transition=str(model.get("transitionStatus") or ""),
            model_state=str(part(model, "states").get("targetModelState") or ""),
            last_failure=last_failure(model) if judged.verdict != "ready" else "",
            pods=(*self.runs.newest, *self.runs.older),
            events=last_warnings(observed.events, self.now) if running.verdict != "ready" else (),
            notes=tuple(self.notes),
            running=running.verdict,
            running_reason=running.reason,
            waits_for=running.waits_for,
        )

    def _verdict(self) -> Judged:
        observed = self.observed
        needed = [kind for kind in observed.unreadable if kind != "Application"]
        if needed:
            told = "; ".join(observed.unreadable[kind] for kind in sorted(needed))
            return Judged("unknown", told, "Ask the platform's team for the right to read it.")
        if observed.service is None:
            return self._absent()
        if part(self.service, "metadata").get("deletionTimestamp"):
            return self._deleted()
        running = self.running = self.runs.verdict()
        if observed.removed:
            return Judged(
                "removing",
                f"its folder is gone from Git, and Argo CD has not removed it from the cluster yet; it is "
                f"{running.verdict}: {running.reason}",
                "Wait.",
            )
        synced = self._synced()
        if synced is not None and (synced.verdict == "not synced" or running.verdict == "ready"):
            self.notes.append(f"What is in the cluster: {running.verdict}: {running.reason}.")
            return synced
        health = part(observed.application, "status", "health")
        if running.verdict == "ready" and observed.application is not None and health.get("status") != "Healthy":
            told = sentence(f"Argo CD calls its health {health.get('status') or 'unknown'}", health.get("message"))
            return Judged("starting", told, "Wait; if it stays, see the application's other objects in Argo CD.")
        return running

    def _deleted(self) -> Judged:
        """The verdict on an InferenceService that ends: Argo CD prunes what Git no longer holds."""
        if self.observed.removed:
            told = "it is being removed, because its folder is gone from Git; its pods end"
            return Judged("removing", told, "Wait until it is gone.")
        if self.observed.wanted is None:
            return Judged("removing", "it is being deleted, and Git does not hold it", "Wait until it is gone.")
        do = f"If its removal was merged just now, run: {self.observed.fetch}; else Argo CD makes it again."
        return Judged("missing", "it is being deleted, although this clone's main branch holds it", do)

    def _absent(self) -> Judged:
        application = self.observed.application
        if application is not None:
            if part(application, "status", "sync").get("status") != "Synced":
                return self._not_synced(_trouble(application) or "Argo CD has not applied it yet")
            return Judged(
                "missing",
                "Argo CD calls its application Synced, but the InferenceService does not exist",
                f"See the application {name_of(application)} in Argo CD: "
                "does its folder hold an inferenceservice.yaml?",
            )
        if self.observed.removed:
            return Judged("missing", "it was removed from Git, and the cluster does not have it any more")
        if self.observed.wanted is None:
            return Judged(
                "missing", "neither the cluster nor this clone has it", "Ask for it: neuroscale request --interactive"
            )
        if (undeployed := self._undeployed()) is not None:
            return replace(undeployed, verdict="missing", reason=f"it is not in the cluster: {undeployed.reason}")
        where = f" in {self.observed.environment}" if self.observed.environment else ""
        why = self.observed.unreadable.get("Application", f"Argo CD has no application for it{where}")
        return Judged("missing", f"it is not in the cluster: {why}", "Is its change merged, and the context right?")

    def _undeployed(self) -> Judged | None:
        """None unless no ApplicationSet of this cluster's Argo CD deploys the service's environment."""
        environment, deployed = self.observed.environment, self.observed.deployed
        if not environment or deployed is None or environment in deployed:
            return None
        told = f"nothing deploys {environment} to this cluster; Argo CD deploys {', '.join(sorted(deployed))} to it"
        where = self.observed.lines.program
        do = f"Ask the cluster of {environment}, or let this one deploy it: {where} platform install, or local up"
        return Judged("not synced", told, f"{do}, with --environment {environment}.")

    def _not_synced(self, reason: str) -> Judged:
        observed, application = self.observed, self.observed.application
        name = name_of(application) if application is not None else ""
        do = (
            f"{observed.lines.kubectl} -n argocd describe application {name}"
            if name
            else "See Argo CD's ApplicationSet."
        )
        return Judged("not synced", reason, do)

    def _synced(self) -> Judged | None:
        """None if the live object is the one that Git holds; else why it is not, or why that cannot be judged."""
        observed, application = self.observed, self.observed.application
        if "Application" in observed.unreadable:
            return self._compared(f"Argo CD cannot be asked ({observed.unreadable['Application']})")
        if application is None and (undeployed := self._undeployed()) is not None:
            return undeployed
        if application is None:
            return self._not_synced("no application of Argo CD deploys it, so changes in Git do not reach this cluster")
        if part(application, "metadata").get("deletionTimestamp"):
            return self._not_synced("its application is being deleted")
        revision = part(application, "status", "sync").get("revision")
        if observed.contains is False:
            return self._not_synced(f"Argo CD is at {_short(revision)}, which lacks the service's last change")
        if part(application, "status", "sync").get("status") != "Synced":
            said = part(application, "status", "sync").get("status") or "nothing about it"
            return self._not_synced(_trouble(application) or f"Argo CD says {said}")
        holds = [
            one
            for one in items(application, "status", "resources")
            if (one.get("kind"), one.get("namespace"), one.get("name"))
            == ("InferenceService", observed.namespace, observed.name)
        ]
        if not holds or any(one.get("status") != "Synced" for one in holds):
            return self._not_synced(f"the application {name_of(application)} does not list it as Synced")
        if observed.contains is None:
            return self._compared(f"this clone does not know the commit {_short(revision)} that Argo CD is at")
        # Argo CD's last status stays while Argo CD is stopped or paused, even if the object changes.
        if fields := self._other_fields():
            told = (
                f"Argo CD calls it Synced, but it differs from the commit {_short(revision)} in {first_of(fields, 3)}"
            )
            return self._not_synced(told)
        return None

    def _other_fields(self) -> list[str]:
        """The fields of the repository's object that the cluster's object lacks or holds with another value."""
        wanted = self.observed.wanted or {}
        return differences({key: wanted.get(key) for key in ("metadata", "spec")}, self.service)

    def _compared(self, why: str) -> Judged | None:
        """Compare contents, where commits cannot be compared."""
        wanted = self.observed.wanted
        if wanted is None:
            if "Application" in self.observed.unreadable:
                return Judged(
                    "unknown", f"{why}, and this clone does not hold the service", f"Run: {self.observed.fetch}"
                )
            self.notes.append(f"{why[:1].upper()}{why[1:]}; it does not hold this service either.")
            return None
        if fields := self._other_fields():
            told = f"{why}, and the cluster's object differs from this clone's in {first_of(fields, 3)}"
            return Judged("unknown", told, f"Run: {self.observed.fetch}; then ask again.")
        self.notes.append(f"{why[:1].upper()}{why[1:]}; the cluster's object is what this clone holds.")
        return None

    def _application(self) -> Application | None:
        found = self.observed.application
        if found is None:
            return None
        sync, health = part(found, "status", "sync"), part(found, "status", "health")
        return Application(
            name=name_of(found),
            sync=str(sync.get("status") or "Unknown"),
            health=str(health.get("status") or "Unknown"),
            revision=str(sync.get("revision") or ""),
            contains_last_change=self.observed.contains,
            told=_trouble(found),
        )


def _trouble(application: Object) -> str:
    """The errors that Argo CD reports: of the comparison, and of the last operation if it has not ended well."""
    told = [
        sentence(one.get("type"), one.get("message"))
        for one in items(application, "status", "conditions")
        if "Warning" not in str(one.get("type"))
    ]
    operation = part(application, "status", "operationState")
    if operation.get("phase") in ("Failed", "Error", "Running"):
        told.append(sentence(f"its synchronisation is {operation['phase']}", operation.get("message")))
    return "; ".join(told)


def _short(revision: Any) -> str:
    return str(revision or "no commit")[:10]
