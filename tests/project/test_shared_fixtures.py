"""The shared servers end after the last test that uses their fixtures, which `tests/conftest.py` knows by name."""

from __future__ import annotations

import re

import comparisons

SHARED = ("api_server", "forge_server", "shared_platform")


def test_no_file_gives_the_name_of_a_shared_server_to_a_fixture_of_its_own() -> None:
    """Its tests would keep the server waiting for them, and count as tests that need it."""
    tests = comparisons.ROOT / "tests"
    defined = re.compile(rf"^def ({'|'.join(SHARED)})\(", re.MULTILINE)
    assert set(defined.findall((tests / "conftest.py").read_text(encoding="utf-8"))) == set(SHARED)
    others = {
        path.name: found for path in tests.rglob("test_*.py") if (found := defined.findall(path.read_text("utf-8")))
    }
    assert others == {}
