"""Where things lie in the platform repository: the one place that knows its folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neuroscale.errors import InputError, Problem

MANIFESTS = "manifests"
POLICIES = "policies"
EXCEPTIONS = "policies/exceptions"
CATALOG = "platform/catalog"
SETTINGS = "platform/settings.yaml"
TEMPLATE = "templates/llm-inference-service"

# Everything that decides how a change is judged. Whose name ends in a slash is a folder. Some would stand in place of
# others: workflows in .forgejo and .gitea on forges of these names, the other names of make's file, uv.toml.
GATE_CODE = (
    ".ci/",
    ".forgejo/",
    ".gitea/",
    ".github/",
    "GNUmakefile",
    "Makefile",
    "makefile",
    "platform/local/tools/",
    "pyproject.toml",
    "requirements/",
    "scripts/",
    "src/",
    "uv.toml",
)
CLUSTER_FILES = (
    *("platform/argocd/", "platform/clusters/", "platform/monitoring/"),
    *("platform/serving/", "platform/tenancy/"),
)
"""What every cluster gets, with all rights in it."""
SMOKE_TESTS = "smoke-tests"
PROTECTED = (*GATE_CODE, f"{POLICIES}/", *CLUSTER_FILES, f"{SMOKE_TESTS}/")
"""What only an owner may merge a change of, by hand: gate code, workflows, policies and their exceptions, what clusters
get beside services, and the smoke tests, which run with rights in clusters and say whether a merge is reverted."""

REQUEST_FILE = "request.yaml"
PLAN_FILE = "plan.yaml"
# The files of a service that reach the cluster, and the one kind that each may hold.
RENDERED_KINDS = {
    "inferenceservice.yaml": "InferenceService",
    "networkpolicy.yaml": "NetworkPolicy",
    "poddisruptionbudget.yaml": "PodDisruptionBudget",
}


@dataclass(frozen=True)
class ServicePath:
    """The folder of a service: `manifests/<environment>/<service>`."""

    environment: str
    service: str

    @property
    def folder(self) -> str:
        return f"{MANIFESTS}/{self.environment}/{self.service}"

    @classmethod
    def of(cls, path: str) -> ServicePath | None:
        """The service that a repository path lies in, or None for a path outside every service folder."""
        parts = path.split("/")
        if len(parts) >= 4 and parts[0] == MANIFESTS:
            return cls(parts[1], parts[2])
        return None


def find_root(start: Path) -> Path:
    """The platform repository that `start` lies in. Raises InputError outside one."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / SETTINGS).is_file():
            return folder
    raise InputError(
        Problem(
            str(start),
            "",
            f"is not inside a platform repository (no {SETTINGS} here or above)",
            "Run the command in your fork of the platform repository, or name it with --repository.",
        )
    )
