"""Gives a request the newest commit of its model where production demands a revision and the catalog has none.

The caller brings the look-up: planning itself asks nobody. The commit becomes a part of the request, so that the same
request is planned and rendered to the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError
from neuroscale.request.service_request import Request

Newest = Callable[[str], str]
"""The newest commit of a model of the Hub, by its name there. Raises InputError where that is not known."""


def with_revision(
    request: Request, catalog: Catalog, settings: Settings, newest: Newest | None
) -> tuple[Request, tuple[str, ...]]:
    """The request, with the newest commit of its model where it needs one, and sentences for the person who asks.

    `newest`: None where nobody can be asked. Then, and where the Hub cannot be asked, the request stays as it is.
    """
    rules, entry = settings.production, catalog.models[request.model]
    demanded = rules.model_revision == "block" and request.environment in rules.environments
    lacking = entry.weights.kind == "hub" and entry.weights.revision is None and request.model_revision is None
    if not (demanded and lacking) or newest is None:
        return request, ()
    path = entry.weights.path
    try:
        commit = newest(path)
    except InputError as error:
        told = f"{request.environment} demands a revision of {request.model}, and {path} {error.problems[0].message}."
        return request, (f"{told} Run `neuroscale catalog add {path}` where the Hub can be reached.",)
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        told = f"{request.environment} demands a revision of {request.model}, and the Hub names none that is a commit."
        return request, (told,)
    told = f"The catalog has no revision of {request.model}: the service takes the newest one, {commit[:12]}."
    return request.model_copy(update={"model_revision": commit}), (told,)


def keeping_revision(request: Request, there: Request | None) -> Request:
    """The request with the commit that its service has already, if it is one of the same model."""
    if there is None or request.model_revision is not None or there.model != request.model:
        return request
    return request.model_copy(update={"model_revision": there.model_revision})
