"""Names the team of a service and whom that wants told, for texts on the forge about a fault."""

from __future__ import annotations

from neuroscale.actions.open_repository import OpenedInputs
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import read_mapping
from neuroscale.repo.layout import REQUEST_FILE, ServicePath
from neuroscale.repo.snapshot import read_text


def team_contact(opened: OpenedInputs, path: ServicePath) -> str:
    """The team of a service's request, and whom it wants told; "" if the files of the repository do not say it."""
    file = f"{path.folder}/{REQUEST_FILE}"
    try:
        name = read_mapping(read_text(opened.files, file), file).value.get("team")
        team = opened.catalog.teams.get(str(name))
    except InputError:
        return ""
    return "" if team is None else team.reached_by
