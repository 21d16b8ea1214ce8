"""The mask of reports: no known secret is left in what a report shows, however deep or short it is quoted."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from neuroscale.core.masked_secrets import KnownSecrets

KEY = "\n".join(
    ("-----BEGIN RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEA7bq", "Zx90dkWq1LmN8rT", "-----END RSA PRIVATE KEY-----")
)
_SECRETS = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=12, max_size=60)


@given(secret=_SECRETS, around=st.tuples(st.text(), st.text()), keep=st.integers(min_value=12))
def test_no_part_of_a_known_secret_is_left(secret: str, around: tuple[str, str], keep: int) -> None:
    quoted: dict[str, Any] = {"findings": [{"message": f"{around[0]}{secret[:keep]}{around[1]}"}], "count": 3}
    shown = KnownSecrets([secret]).strike(quoted)
    assert secret[:12] not in shown["findings"][0]["message"].replace("***", "\0")
    assert shown["count"] == 3


def test_a_key_of_several_lines_is_struck_line_by_line_and_its_frame_stays() -> None:
    shown = KnownSecrets([KEY]).strike([f"is {KEY!r}", *KEY.splitlines()])
    assert not any(line in json.dumps(shown) for line in KEY.splitlines()[1:-1])
    assert "-----BEGIN RSA PRIVATE KEY-----" in shown


def test_a_providers_token_is_struck_unknown_and_words_about_tokens_stay() -> None:
    mask = KnownSecrets([])
    prose = "token: the field token_secret names a Secret; api_key: none here"
    token = "gh" + "p_" + "a1B2" * 9
    assert mask.strike([prose, f"set {token}!"]) == [prose, "set ***!"]


def test_names_of_people_and_of_this_program_stay() -> None:
    names = ["manifests/prod/sk-assistant-eu/plan.yaml", "chat-sk-bratislava1", "--hf_overrides", "hf_config"]
    assert KnownSecrets([]).strike(names) == names
    values = {"outcome": "untrusted", "message": "untrusted-and-long holds it"}
    assert KnownSecrets(["untrusted", "untrusted-and-long"]).strike(values) == {
        "outcome": "untrusted",
        "message": "*** holds it",
    }
