"""Backstage beside a local platform: what it is given, and what is said where it is not installed.

That it runs is tested in tests/portal/test_backstage.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscale.local import portal
from neuroscale.local.portal import Portal
from neuroscale.local.state import LocalError, State, locked


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with locked(tmp_path / "state", print):
        made = State.open(tmp_path / "state")
    made.update(pages=True, portal=True, ports={"portal": 1, "pages": 2, "gitea": 3})
    yield made
    made.delete()


def test_a_missing_backstage_is_told_with_what_installs_it(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portal, "FOLDER", tmp_path)
    with pytest.raises(LocalError, match=r"Backstage is not installed .*setup\.py --for portal"):
        Portal(state).prepare()
    assert not state.tokens.exists()


def test_its_token_lies_in_a_private_file_alone(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = tmp_path / "portal/app/dist/index.html"
    pages.parent.mkdir(parents=True)
    pages.touch()
    monkeypatch.setattr(portal, "FOLDER", tmp_path / "portal")
    Portal(state).prepare()
    (token,) = state.tokens.iterdir()
    secret = token.read_text().strip()
    assert (len(secret) > 40, token.stat().st_mode & 0o777, token.parent.stat().st_mode & 0o777) == (True, 0o600, 0o700)
    process = Portal(state).process()
    assert str(token) in process.settings
    assert secret not in " ".join([*process.argv, *process.environment.values(), process.settings])
    Portal(state).prepare()
    assert token.read_text().strip() == secret
