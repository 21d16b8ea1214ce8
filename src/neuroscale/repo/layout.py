"""Names the folders and files of the platform repository: the only place that knows them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from neuroscale.core.errors import InputError, Problem

MANIFESTS = "manifests"
POLICIES = "policies"
EXCEPTIONS = "policies/exceptions"
CATALOG = "platform/catalog"
MODELS = f"{CATALOG}/models"
ACCELERATORS = f"{CATALOG}/accelerators"
PRICES = f"{CATALOG}/prices"
TEAMS = f"{CATALOG}/teams"
BUDGETS = f"{CATALOG}/budgets"
"""What cost centres may spend, and the exceptions from the rules on cost."""
SETTINGS = "platform/settings.yaml"
TEMPLATE = "templates/llm-inference-service"
EXAMPLES = "templates/examples"
"""Answers to the form, for people to copy; the gate renders them to see the effects of a change on new services."""

# Every file that decides how a change is judged. A name that ends in a slash is a folder. Some names would replace
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
RUNTIMES = "platform/serving/runtimes"
"""The serving runtimes that every cluster gets."""
TENANCY = "platform/tenancy"
METER = "platform/cost"
CLUSTER_FILES = (
    *("platform/argocd/", "platform/clusters/", "platform/monitoring/"),
    *("platform/serving/", f"{METER}/", f"{TENANCY}/"),
)
"""The files that every cluster gets, with all rights in it."""
SERVICE_SOURCES = ("templates/", SETTINGS, f"{CATALOG}/runtimes/")
"""The files that decide the content of every service when it is next rendered."""
SMOKE_TESTS = "smoke-tests"
LOCAL_STATE = ".state/local"
"""The folder of a repository's own local platform."""
MILESTONES_STATE = ".state/milestones"
"""The folder of the local platform that `neuroscale milestones` starts."""
WRITTEN = (
    *(".venv", ".state", "node_modules", "__pycache__", "*.egg-info"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
)
"""Names of the files and folders that set-up, workflows, tools and tests write, in any folder; git tracks none of them.

A committed file of such a name would be in a place where the machinery trusts its own work: an environment that it
runs, a link in place of the folder that a workflow writes to, compiled modules that Python prefers to their source.
"""
PROTECTED = (
    *(*GATE_CODE, f"{POLICIES}/", *CLUSTER_FILES, *SERVICE_SOURCES),
    *(f"{BUDGETS}/", f"{SMOKE_TESTS}/"),
)
"""Only an owner may merge a change of these files, by hand: gate code, workflows, policies and their exceptions, files
that clusters get beside services, files that every service is rendered from, budgets and their exceptions, and the
smoke tests, which run with rights in clusters and decide whether a merge is reverted. WRITTEN is protected as well, in
every folder."""

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


def is_written(name: str) -> bool:
    """Whether set-up, workflows, tools or tests write a file or folder of that name, in upper or lower case."""
    return any(fnmatchcase(name.casefold(), pattern) for pattern in WRITTEN)


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
