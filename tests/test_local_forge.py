"""The local forge as it is seeded: accounts, tokens, and a main branch that lets only reviewed green changes in."""

from __future__ import annotations

import pytest

from forge_server import ForgeServer

pytestmark = pytest.mark.tools


def test_each_account_has_a_token_and_the_developer_may_only_read(forge_server: ForgeServer) -> None:
    repository = forge_server.create_repository()
    logins = [
        forge_server.forge(repository, token).account().login
        for token in (forge_server.admin, forge_server.developer, forge_server.owner)
    ]
    assert logins == ["forge-admin", "developer", "owner"]
    assert forge_server.forge(repository, forge_server.owner).info().may_push
    assert not forge_server.forge(repository, forge_server.developer).info().may_push
