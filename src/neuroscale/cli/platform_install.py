"""Reads the objects that `neuroscale platform install` applies: an environment's, as rendered and checked in."""

from __future__ import annotations

import re
from pathlib import Path

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import Settings, check_settings, load_settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.rendering.platform import argocd, charts, files
from neuroscale.rendering.platform.filling import Object
from neuroscale.repo.layout import SETTINGS, find_root
from neuroscale.repo.snapshot import FolderSnapshot, read_text

# No name or password: everybody who can read an Application could read them.
_URL = re.compile(
    r"https://[^\s@]+|http://127\.0\.0\.1(:[0-9]+)?/[^\s@]*|ssh://[^\s:]+@[^\s@]+|[\w.-]+@[\w.-]+:[^\s@]+"
)


def installed_objects(
    repository: Path | None, environment: str, repository_url: str, revision: str
) -> tuple[list[Object], Settings]:
    """The objects that Argo CD of an environment's cluster gets, and the settings.

    `repository_url` and `revision`: the repository that Argo CD reads ("": by the settings). Raises InputError for an
    unknown environment, and for a repository that is not rendered.
    """
    root = find_root(repository or Path.cwd())
    snapshot = FolderSnapshot(root)
    settings, catalog = load_settings(snapshot), load_catalog(snapshot)
    check_settings(settings, catalog)
    if environment not in settings.environments:
        message = f"has no environment {environment!r}"
        raise InputError(Problem(SETTINGS, "environments", message, suggest(environment, settings.environments)))
    if repository_url and not _URL.fullmatch(repository_url):
        fix = "Write https://HOST/PATH or ssh://USER@HOST/PATH; a password belongs in Argo CD's repository Secret."
        raise InputError(Problem("the command line", "--repo-url", "is not an address without a password", fix))
    # Argo CD reads the checked-in files from Git: outdated files would undo this installation.
    if problems := files.differences(snapshot, files.render(snapshot, catalog, settings)):
        raise InputError(problems)
    rendered = argocd.render(
        settings,
        catalog,
        charts.load_charts(snapshot),
        environment,
        repository_url or None,
        revision or None,
    )
    config = argocd.config_maps(read_text(snapshot, argocd.VALUES))
    return [*config, *argocd.environment_objects(rendered)], settings
