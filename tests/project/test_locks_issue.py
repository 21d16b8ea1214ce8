"""The weekly issue about locked packages: which packages it lists, and what it asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from locks_issue import Difference, differences, issue_text, issue_title, read_renewed
from neuroscale.core.errors import InputError

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


def test_the_renewed_files_are_read_as_data(tmp_path: Path) -> None:
    for name, text in LOCKED.items():
        (tmp_path / name).write_text(text + "[click](https://example.org)==1.0\n@somebody==2\n| a | b |==3\n")
    (tmp_path / "more.txt").write_text("evil==1.0\n")
    assert differences(LOCKED, read_renewed(tmp_path, LOCKED)) == ()


def _remove(file: Path) -> None:
    file.unlink()


def _link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def _write(data: bytes) -> Callable[[Path], None]:
    return lambda file: (file.write_bytes(data), None)[1]


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (_remove, "is not a plain file"),
        (_link, "is not a plain file"),
        (_write(b""), "pins no package"),
        (_write(b"\xff\x00"), "pins no package"),
        (_write(b"a" * 200 + b"==1.0\n"), "too long"),
        (_write(b"a==1.0\n" + b"#" * 5_000_000), "is larger than"),
    ],
)
def test_renewed_files_that_are_none_end_in_an_error_and_not_in_an_issue(
    tmp_path: Path, break_it: Callable[[Path], None], told: str
) -> None:
    for name, text in LOCKED.items():
        (tmp_path / name).write_text(text)
    break_it(tmp_path / "dev.txt")
    with pytest.raises(InputError, match=told):
        read_renewed(tmp_path, LOCKED)
