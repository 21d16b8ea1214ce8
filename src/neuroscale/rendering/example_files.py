"""Makes the example organisation's whole platform repository, rendered files included."""

from __future__ import annotations

from collections.abc import Iterable

from neuroscale.rendering.platform.files import is_rendered, render_repository
from neuroscale.repo.example_repository import ExampleSnapshot, example_snapshot


def example_files(paths: Iterable[str], snapshot: ExampleSnapshot | None = None) -> dict[str, bytes]:
    """The content of each file of the example organisation's repository, by path.

    `paths`: those of the delivered files that the repository gets beside the example's own and the rendered ones, such
    as all that git tracks in a checkout. Files that an organisation owns, or that are rendered, are left out of them.
    """
    snapshot = snapshot or example_snapshot()
    wanted = {entry.path for entry in snapshot.example.entries()}
    wanted |= {path for path in paths if not snapshot.is_own(path) and not is_rendered(path)}
    files = {path: content for path in sorted(wanted) if (content := snapshot.read(path)) is not None}
    rendered = render_repository(snapshot)
    return files | {path: text.encode() for path, text in rendered.items() if is_rendered(path) or path in files}
