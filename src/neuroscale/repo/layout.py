"""Names the folders and files of the platform repository: the only place that knows them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from neuroscale.core.errors import InputError

MANIFESTS = "manifests"
POLICIES = "policies"
POLICY_FILE = "policy.yaml"
"""The file in a policy's folder that clusters get."""
EXCEPTIONS = "policies/exceptions"
DELIVERED_POLICIES = (
    *("accelerator-limits", "allowed-registries", "allowed-storage", "endpoint-key", "inference-resources"),
    *("model-labels", "moe-data-parallelism", "no-host-access", "no-legacy-deployment-mode", "no-mutable-image-tags"),
    *("no-plaintext-secrets", "no-privilege-escalation", "no-remote-code", "non-root", "own-routes"),
    *("ownership-labels", "pinned-models", "probes-present", "readable-model-arguments", "refused-kinds"),
    "single-autoscaler",
)
"""The policies that come with the tool. A policy of any other name is the organisation's own."""
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

PIN, REQUIREMENTS = "platform/neuroscale.yaml", "platform/requirements.txt"
"""The version and digest of the tool that judges an organisation's own repository, and what its workflows install."""

OWN_CODE = "src/neuroscale"
"""The tool's own code, which only the repository of the tool has, or a fork of it."""

TAKES_PLACE_OF = {
    **dict.fromkeys(("GNUmakefile", "makefile"), "Makefile"),
    **dict.fromkeys(("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"), "pytest's part of pyproject.toml"),
    **dict.fromkeys(("tox.ini", "setup.cfg"), "parts of pyproject.toml"),
    "conftest.py": "the fixtures and options of every test",
    **dict.fromkeys(("ruff.toml", ".ruff.toml"), "ruff's part of pyproject.toml"),
    **dict.fromkeys(("mypy.ini", ".mypy.ini"), "mypy's part of pyproject.toml"),
    ".importlinter": "import-linter's part of pyproject.toml",
    "hatch.toml": "hatchling's part of pyproject.toml",
    "uv.toml": "uv's part of pyproject.toml",
}
"""Files at the root that tools read before, or beside, a protected file; with the part that they replace."""

# Every file that decides how a change is judged. A name that ends in a slash is a folder. Workflows may also lie in
# .forgejo and .gitea, on forges of these names.
GATE_CODE = (
    ".ci/",
    ".forgejo/",
    ".gitea/",
    ".github/",
    "Makefile",
    PIN,
    REQUIREMENTS,
    "platform/local/tools/",
    "pyproject.toml",
    "requirements/",
    "scripts/",
    "src/",
    *TAKES_PLACE_OF,
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
ALERT_TESTS = "platform/monitoring/rules_test.yaml"
"""The tests of the alerts, for promtool."""
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

A committed file of such a name would be in a place where the machinery trusts its own work. Examples are an environment
that it runs, a link in place of the folder that a workflow writes to, and compiled modules that Python prefers to their
source.
"""
CODE_OWNERS = ".github/CODEOWNERS"
CATALOG_INFO = "catalog-info.yaml"
"""What Backstage's catalog reads of a service, or at the root of all: no Kubernetes object, and never applied. Folders
of services from before this file existed do without it."""
RUN_ELSEWHERE = (
    *("platform/forge/", "platform/portal/", "milestones/"),
    *(".pre-commit-config.yaml", CATALOG_INFO),
)
"""Files by which programs outside clusters run with somebody's credential: Backstage, which writes to the forge; the
forge's own rules; lessons and hooks, which run on the machines of people and of workflows."""


class FileClass(StrEnum):
    """Who writes a file of a platform repository, and what becomes of it when the tool's next version comes.

    OWN: the organisation; it stays as it is. RENDERED: the tool, whole, out of settings and catalog. MERGED: the tool
    delivers it, the organisation may edit it, and a new version's edits are merged. TOOL: it is part of the tool, and
    only the tool's own repository has it.
    """

    OWN = "own"
    RENDERED = "rendered"
    MERGED = "merged"
    TOOL = "tool"


class FileRow(NamedTuple):
    """A row of FILES. `path` is a file, or a folder if it ends in a slash; a `*` stands for any one name.

    `protected`: only an owner may merge a change of the file, by hand.
    """

    path: str
    file_class: FileClass
    protected: bool = False

    def matches(self, path: str) -> bool:
        """Whether the row is about a file."""
        own, names = self.path.rstrip("/").split("/"), path.split("/")
        is_long_enough = len(names) > len(own) if self.path.endswith("/") else len(names) == len(own)
        return is_long_enough and all(map(fnmatchcase, names, own))


FILES = (
    *(FileRow(path, FileClass.MERGED) for path in (".gitignore", "README.md")),
    *(FileRow(path, FileClass.TOOL) for path in ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md", "docs/")),
    FileRow("docs/runbooks/", FileClass.MERGED),
    *(FileRow(path, FileClass.OWN, protected=True) for path in TAKES_PLACE_OF),
    *(
        FileRow(path, FileClass.TOOL, protected=True)
        for path in (".ci/", "Makefile", "pyproject.toml", "requirements/")
    ),
    *(FileRow(path, FileClass.TOOL, protected=True) for path in ("milestones/", "scripts/", "src/", "tests/")),
    FileRow(f"{SMOKE_TESTS}/", FileClass.TOOL, protected=True),
    FileRow(".pre-commit-config.yaml", FileClass.TOOL, protected=True),
    FileRow(CATALOG_INFO, FileClass.MERGED, protected=True),
    *(FileRow(path, FileClass.OWN, protected=True) for path in (".forgejo/", ".gitea/")),
    FileRow(".github/", FileClass.TOOL, protected=True),
    FileRow(".github/actions/", FileClass.MERGED),
    *(
        FileRow(f".github/workflows/{name}.yaml", FileClass.MERGED)
        for name in ("gate", "reconcile", "smoke", "warm-cache")
    ),
    FileRow(CODE_OWNERS, FileClass.RENDERED),
    FileRow(f"{MANIFESTS}/", FileClass.OWN),
    FileRow(f"{MANIFESTS}/README.md", FileClass.MERGED),
    FileRow(f"{POLICIES}/", FileClass.OWN, protected=True),
    *(FileRow(f"{POLICIES}/{name}.yaml", FileClass.RENDERED) for name in ("shared", "tripwires")),
    *(FileRow(f"{POLICIES}/{name}/", FileClass.RENDERED) for name in DELIVERED_POLICIES),
    *(FileRow(f"{POLICIES}/{name}/mutations.yaml", FileClass.TOOL) for name in DELIVERED_POLICIES),
    FileRow(f"{POLICIES}/README.md", FileClass.MERGED),
    FileRow(f"{EXCEPTIONS}/", FileClass.OWN),
    FileRow(f"{EXCEPTIONS}/README.md", FileClass.MERGED),
    FileRow("templates/", FileClass.MERGED, protected=True),
    FileRow(f"{EXAMPLES}/", FileClass.OWN),
    FileRow("platform/", FileClass.MERGED),
    FileRow(PIN, FileClass.OWN, protected=True),
    FileRow(REQUIREMENTS, FileClass.RENDERED, protected=True),
    FileRow("platform/local/tools/", FileClass.TOOL, protected=True),
    FileRow("platform/portal/", FileClass.TOOL, protected=True),
    FileRow("platform/forge/", FileClass.MERGED, protected=True),
    FileRow(SETTINGS, FileClass.OWN, protected=True),
    FileRow(f"{CATALOG}/runtimes/", FileClass.MERGED, protected=True),
    FileRow(f"{TEAMS}/", FileClass.OWN),
    FileRow(f"{BUDGETS}/", FileClass.OWN, protected=True),
    FileRow(f"{BUDGETS}/exceptions/README.md", FileClass.MERGED),
    *(FileRow(path, FileClass.MERGED, protected=True) for path in CLUSTER_FILES),
    *(FileRow(f"platform/{name}/*/", FileClass.RENDERED) for name in ("argocd", "clusters", "monitoring")),
    *(FileRow(path, FileClass.RENDERED) for path in ("platform/monitoring/scrape.yaml", f"{RUNTIMES}/", f"{TENANCY}/")),
    FileRow("platform/monitoring/alertmanager-*.yaml", FileClass.RENDERED),
)
"""Every file of a platform repository. The last row that matches a file is its own: general rows stand first."""

PROTECTED = tuple(row.path for row in FILES if row.protected)
"""Only an owner may merge a change of these files, by hand. They are gate code, workflows, policies and their
exceptions, files that clusters get beside services, files that every service is rendered from, budgets and their
exceptions, tests, and RUN_ELSEWHERE. The smoke tests run with rights in clusters, and decide whether a merge is
reverted; the other tests run with the rights of whoever runs them. WRITTEN is protected as well, in every folder."""
OWNED_FACTS = (f"{MODELS}/", f"{ACCELERATORS}/", f"{PRICES}/")
"""Facts that CODEOWNERS gives to owners of their own. On Gitea a protected file needs an administrator, and these
change every week: they are not protected there, and the top of the verdict names a change of them."""

REQUEST_FILE = "request.yaml"
PLAN_FILE = "plan.yaml"
SERVICE_FILE = "inferenceservice.yaml"
# The files of a service that reach the cluster, and the one kind that each may hold.
RENDERED_KINDS = {
    SERVICE_FILE: "InferenceService",
    "networkpolicy.yaml": "NetworkPolicy",
    "poddisruptionbudget.yaml": "PodDisruptionBudget",
}
KEY_FILE = "externalsecret.yaml"
"""The file by which External Secrets writes a service's API key: only where the environment has a secret store."""
POSSIBLE_KINDS = {**RENDERED_KINDS, KEY_FILE: "ExternalSecret"}


@dataclass(frozen=True)
class ServicePath:
    """The folder of a service: `manifests/<environment>/<service>`."""

    environment: str
    service: str

    @property
    def folder(self) -> str:
        return f"{MANIFESTS}/{self.environment}/{self.service}"

    @property
    def name(self) -> str:
        """`ENVIRONMENT/SERVICE`, as command lines name it."""
        return f"{self.environment}/{self.service}"

    @classmethod
    def of(cls, path: str) -> ServicePath | None:
        """The service that a repository path lies in, or None for a path outside every service folder."""
        parts = path.split("/")
        if len(parts) >= 4 and parts[0] == MANIFESTS:
            return cls(parts[1], parts[2])
        return None


def file_class(path: str) -> FileClass | None:
    """The class of a file, by FILES; None for a file that no row is about."""
    return next((row.file_class for row in reversed(FILES) if row.matches(path)), None)


def is_written(name: str) -> bool:
    """Whether set-up, workflows, tools or tests write a file or folder of that name, in upper or lower case."""
    return any(fnmatchcase(name.casefold(), pattern) for pattern in WRITTEN)


def is_protected(path: str) -> bool:
    """Whether only an owner may merge a change of this file."""
    return any(path.startswith(one) if one.endswith("/") else path == one for one in PROTECTED) or any(
        map(is_written, path.split("/"))
    )


def is_outside(folder: Path) -> bool:
    """Whether no platform repository is around a folder: neither settings nor models of a catalog, here or above.

    A repository whose settings are missing is a broken one, and around its folders. Raises InputError if a place
    cannot be looked into.
    """
    return not any(_is_there(above / part) for above in (folder, *folder.parents) for part in (SETTINGS, MODELS))


def _is_there(path: Path) -> bool:
    """Whether anything has that name, be it a link to nothing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        message = f"cannot be looked at ({error.strerror}), so a platform repository may be there"
        raise InputError.at(str(path), "", message, "Allow reading it, or name one with --repository.") from error
    return True


def find_root(start: Path) -> Path:
    """The platform repository that `start` lies in. Raises InputError outside one."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / SETTINGS).is_file():
            return folder
    raise InputError.at(
        str(start),
        "",
        f"is not inside a platform repository (no {SETTINGS} here or above)",
        "Run the command in your fork of the platform repository, or name it with --repository.",
    )
