"""The address of a git remote, read as a repository on a forge."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.core.errors import InputError
from neuroscale.forge.connect import parse_remote
from neuroscale.forge.interface import RepositoryRef

NAMES = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=20)
HOSTS = st.sampled_from(["github.com", "forge.example.com", "git-1.example.co.uk", "localhost", "10.0.0.7"])


@pytest.mark.parametrize(
    ("url", "server", "slug"),
    [
        ("https://github.com/octo/models.git", "https://github.com", "octo/models"),
        ("https://github.com/octo/models", "https://github.com", "octo/models"),
        ("https://GitHub.com:443/octo/models/", "https://github.com", "octo/models"),
        ("git@github.com:octo/models.git", "https://github.com", "octo/models"),
        ("github.com:octo/models.git", "https://github.com", "octo/models"),
        ("ssh://git@ssh.github.com:443/octo/models.git", "https://github.com", "octo/models"),
        ("ssh://git@forge.example.com:2222/octo/models.git", "https://forge.example.com", "octo/models"),
        ("git@forge.example.com:/octo/models.git", "https://forge.example.com", "octo/models"),
        ("https://example.com/git/octo/models.git", "https://example.com/git", "octo/models"),
        ("https://example.com:8443/a/b/octo/models.v2", "https://example.com:8443/a/b", "octo/models.v2"),
        ("http://127.0.0.1:3000/octo/models.git", "http://127.0.0.1:3000", "octo/models"),
        ("http://localhost:3000/octo/models.git", "http://localhost:3000", "octo/models"),
        ("http://[::1]:3000/octo/models.git", "http://[::1]:3000", "octo/models"),
        ("git@[::1]:octo/models.git", "https://[::1]", "octo/models"),
    ],
)
def test_an_address_names_a_server_an_owner_and_a_repository(url: str, server: str, slug: str) -> None:
    owner, name = slug.split("/")
    assert parse_remote(url) == RepositoryRef(server, owner, name)
    assert parse_remote(f" {url}\n") == parse_remote(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models",
        "/srv/git/models.git",
        "./models",
        "C:\\git\\models",
        "file:///srv/git/models.git",
        "git://github.com/octo/models.git",
        "ftp://github.com/octo/models.git",
        "http://forge.example.com/octo/models.git",
        "https://github.com/",
        "https://github.com/models.git",
        "https://github.com/octo/..",
        "https://github.com/octo/..git",
        "https://github.com/octo/.git",
        "https://github.com/../octo/models",
        "https://github.com/octo/mo dels",
        "https://github.com/octo/models?x=1",
        "https://github.com/octo/models#x",
        "https://github.com/octo/%2e%2e",
        "https://github.com/octo/a%2fb",
        "https:///octo/models.git",
        "https://github.com:99999/octo/models",
        "https://git hub.com/octo/models",
        "ssh://git@github.com/octo",
        "git@github.com:octo/team/models.git",
        "git@github.com:models.git",
        "ext::sh -c touch% x",
        "-oProxyCommand=x:octo/models",
        "https://[::1/octo/models",
    ],
)
def test_anything_else_is_refused_in_words(url: str) -> None:
    with pytest.raises(InputError, match="git remote: "):
        parse_remote(url)


@given(HOSTS, NAMES, NAMES, st.sampled_from(["", ".git"]), st.sampled_from(["", "/"]))
def test_every_way_to_write_an_address_names_the_same_repository(
    host: str, owner: str, name: str, suffix: str, slash: str
) -> None:
    expected = RepositoryRef(f"https://{host}", owner, name)
    assert parse_remote(f"https://{host}/{owner}/{name}{suffix}{slash}") == expected
    assert parse_remote(f"https://user:secret@{host}/{owner}/{name}{suffix}{slash}") == expected
    assert parse_remote(f"ssh://git@{host}:2222/{owner}/{name}{suffix}{slash}") == expected
    assert parse_remote(f"git@{host}:{owner}/{name}{suffix}{slash}") == expected
    assert parse_remote(expected.clone_url) == expected


@given(
    st.sampled_from(["https", "http", "ssh", "ftp", "git"]),
    st.text(string.ascii_letters + string.digits + ":/?#%.@[]_-", min_size=8, max_size=40),
    st.text(string.printable, max_size=30),
)
def test_a_password_is_neither_kept_nor_shown(scheme: str, noise: str, rest: str) -> None:
    url = f"{scheme}://user:{noise}hunter2-hunter2{noise}@{rest}"
    try:
        shown = repr(parse_remote(url))
    except InputError as error:
        shown = str(error)
    if "@" not in rest and "hunter2" not in rest:
        assert "hunter2" not in shown


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        ref = parse_remote(text)
    except InputError:
        return
    assert parse_remote(ref.clone_url) == ref
