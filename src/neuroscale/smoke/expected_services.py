"""Reads from Git the services that an environment should have at a commit, and the policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.cluster.object_fields import part
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import read_mapping
from neuroscale.kube.client import Object
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, REQUEST_FILE, ServicePath
from neuroscale.repo.snapshot import GitSnapshot, read_text
from neuroscale.request.service_request import Request, load_request

MANIFEST = "inferenceservice.yaml"
COST_LABELS = (
    "app.kubernetes.io/owner",
    "cost-center",
    "model-architecture",
    "active-param-ratio",
    "total-params",
)
"""The labels by which costs are attributed."""


@dataclass(frozen=True)
class Service:
    """A service as Git holds it. `wanted`: its InferenceService."""

    path: ServicePath
    request: Request
    plan: Plan
    wanted: Object

    @property
    def name(self) -> str:
        return self.path.service

    @property
    def namespace(self) -> str:
        return str(part(self.wanted, "metadata").get("namespace") or "")

    @property
    def labels(self) -> dict[str, Any]:
        return part(self.wanted, "metadata", "labels")

    @property
    def server(self) -> dict[str, Any]:
        """The model server of the manifest: image, arguments, ports."""
        return part(self.wanted, "spec", "predictor", "model")

    @property
    def arguments(self) -> list[str]:
        return [str(one) for one in self.server.get("args") or []]

    @property
    def model(self) -> str:
        """The name that requests use."""
        flag = "--served-model-name="
        return next((one.removeprefix(flag) for one in self.arguments if one.startswith(flag)), self.plan.model)


@dataclass(frozen=True)
class Target:
    """An environment at a commit."""

    root: Path
    environment: str
    revision: str
    services: tuple[Service, ...]
    namespaces: tuple[str, ...]
    policies: PolicySet

    def service(self, name: str) -> Service:
        """The service of this name. Raises KeyError if there is none."""
        return {one.name: one for one in self.services}[name]


def load_target(root: Path, environment: str, revision: str, service: str = "", fetch: str = "git fetch") -> Target:
    """The services of an environment, or the named one, at a commit of a clone.

    `fetch`: the command that brings newer commits to the clone. Raises InputError if the environment or the service
    does not exist or cannot be read, UntrustedError for policies that cannot be used.
    """
    git = Git(root)
    try:
        snapshot = GitSnapshot(git, revision)
        settings = load_settings(snapshot)
        if environment not in settings.environments:
            fix = suggest(environment, settings.environments)
            message = f"{environment!r} is not an environment of the settings"
            raise InputError(Problem("the command line", "--environment", message, fix))
        catalog = load_catalog(snapshot)
        found = {ServicePath.of(entry.path) for entry in snapshot.entries(f"{MANIFESTS}/{environment}")}
        paths = sorted((path for path in found if path is not None), key=lambda path: path.service)
        if service:
            names = [path.service for path in paths]
            if service not in names:
                where = f"{MANIFESTS}/{environment} at {revision[:10]}"
                fix = f"{suggest(service, names)} Is its change merged? Then run: {fetch}"
                raise InputError(Problem(where, "", f"does not hold the service {service!r}", fix))
            paths = [path for path in paths if path.service == service]
        return Target(
            root,
            environment,
            revision,
            tuple(_service(snapshot, path) for path in paths),
            tuple(sorted({team.namespace for team in catalog.teams.values()})),
            load_policy_set(snapshot),
        )
    finally:
        git.close()


def _service(snapshot: GitSnapshot, path: ServicePath) -> Service:
    texts = {
        name: (file := f"{path.folder}/{name}", read_text(snapshot, file))
        for name in (REQUEST_FILE, PLAN_FILE, MANIFEST)
    }
    file, text = texts[MANIFEST]
    wanted = read_mapping(text, file).value
    metadata = wanted.get("metadata")
    if not isinstance(metadata, dict) or (wanted.get("kind"), metadata.get("name")) != (
        "InferenceService",
        path.service,
    ):
        raise InputError(Problem(file, "", f"is not the InferenceService {path.service}", "Render the service again."))
    if not isinstance(metadata.get("namespace"), str):
        raise InputError(Problem(file, "metadata.namespace", "is missing", "Render the service again."))
    (request_file, request), (plan_file, plan) = texts[REQUEST_FILE], texts[PLAN_FILE]
    return Service(path, load_request(request, request_file), load_plan(plan, plan_file), dict(wanted))
