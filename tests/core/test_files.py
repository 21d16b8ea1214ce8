"""Files that are replaced whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neuroscale.core.files import write_private, write_public


@pytest.mark.parametrize(("write", "mode"), [(write_private, 0o600), (write_public, 0o644)])
def test_a_link_with_the_name_of_a_file_leads_nowhere(
    write: Callable[[Path, str], None], mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the folder's owner replaces the new file by a link at once."""
    victim, file = tmp_path / "victim", tmp_path / "file"
    victim.write_text("secret")
    victim.chmod(0o400)
    file.symlink_to(victim)
    write(file, "text")
    assert (file.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (False, "text", mode)

    replace = Path.replace

    def swapped(half: Path, path: Path) -> Path:
        replaced = replace(half, path)
        path.unlink()
        path.symlink_to(victim)
        return replaced

    monkeypatch.setattr(Path, "replace", swapped)
    write(file, "text")
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("secret", 0o400)
