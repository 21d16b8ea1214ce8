"""The weekly issue about locked packages: which packages it lists, and what it asks for."""

from __future__ import annotations

from locks_issue import Difference, differences, issue_text, issue_title

LOCKED = {
    "dev.txt": "mypy==2.4.0 \\\n    --hash=sha256:aa\npip==26.0 ; python_version < '3.12' \\\n    --hash=sha256:bb\n",
    "runtime.txt": "contourpy==1.3.3 ; python_version < '3.12' \\\n    --hash=sha256:cc\n"
    "contourpy==1.4.0 ; python_version >= '3.12' \\\n    --hash=sha256:dd\nhttpx==0.28.1 \\\n    --hash=sha256:ee\n",
}


def test_only_other_versions_count_not_other_hashes() -> None:
    assert differences(LOCKED, {name: text.replace("sha256:", "sha256:0") for name, text in LOCKED.items()}) == ()


def test_each_package_is_listed_with_all_its_versions() -> None:
    renewed = {
        "dev.txt": "mypy==2.4.1 \\\n    --hash=sha256:aa\nnew==1.0\n",
        "runtime.txt": LOCKED["runtime.txt"].replace("contourpy==1.4.0", "contourpy==1.5.0"),
    }
    found = differences(LOCKED, renewed)
    assert found == (
        Difference("dev.txt", "mypy", ("2.4.0",), ("2.4.1",)),
        Difference("dev.txt", "new", (), ("1.0",)),
        Difference("dev.txt", "pip", ("26.0",), ()),
        Difference("runtime.txt", "contourpy", ("1.3.3", "1.4.0"), ("1.3.3", "1.5.0")),
    )
    assert issue_title(found) == "4 locked Python packages can be renewed"
    text = issue_text(found)
    assert "`make lock UPGRADE=--upgrade`" in text
    assert "| requirements/dev.txt | new | none | 1.0 |" in text
    assert "| requirements/runtime.txt | contourpy | 1.3.3, 1.4.0 | 1.3.3, 1.5.0 |" in text


def test_a_long_list_fits_into_an_issue() -> None:
    found = differences({}, {"dev.txt": "".join(f"{'a-long-name-' * 6}{number}==1.0\n" for number in range(2000))})
    assert "1700 more rows are left out." in issue_text(found)
    assert len(issue_text(found)) < 65_000
