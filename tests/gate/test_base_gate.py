"""What the gate reads of a verdict that another version of it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroscale.gate.gate_code_of_base import JUDGE, judge_by_base, judge_by_both, needs_judges, read_verdict
from neuroscale.gate.merged_change import find_change
from neuroscale.repo.layout import PIN
from report_examples import refused
from repositories import Repository


def written() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(refused().model_dump_json())
    return value


def test_what_a_newer_gate_says_beside_is_left_out() -> None:
    value = written()
    value["forecast"] = {"of": "tomorrow"}
    value["findings"][0]["colour"] = "red"
    value["checks"][-1]["seconds_of_others"] = [1, 2]
    assert read_verdict(json.dumps(value)) == refused()


@pytest.mark.parametrize("field", ["exit_status", "headline"])
def test_what_this_gate_needs_must_be_there(field: str) -> None:
    value = written()
    value["forecast"] = 1
    del value[field]
    with pytest.raises(ValueError, match=field):
        read_verdict(json.dumps(value))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"exit_status": 0}'])
def test_other_texts_are_no_verdict(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_verdict(text)


def test_a_base_finds_its_set_up_code_where_it_had_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base's gate names its schemas by that code, which lay in `scripts/bootstrap` up to version 0.2.0."""
    monkeypatch.delenv(JUDGE, raising=False)
    repository = Repository(tmp_path / "repository")
    places = {"old": "scripts/bootstrap/kind_schema.py", "new": "src/neuroscale/tools/kind_schema.py"}
    verdict = refused().model_dump_json()
    for name, place in places.items():
        program = (
            "import pathlib, sys\n"
            f"code = pathlib.Path(__file__).parents[2] / {place!r}\n"
            f"text = {verdict!r}.replace({refused().headline!r}, code.read_text())\n"
            "pathlib.Path(sys.argv[sys.argv.index('--json') + 1]).write_text(text)\n"
            f"sys.exit({refused().exit_status})\n"
        )
        repository.commit({"src/neuroscale/__init__.py": "", "src/neuroscale/__main__.py": program, place: name})
    repository.commit({"src/neuroscale/__init__.py": "# changed\n"})
    for base, name in (("main~2", "old"), ("main~1", "new")):
        change = find_change(repository.git, base, "main")
        assert needs_judges(change)
        assert judge_by_base(change).headline == name, (base, name)
    repository.git.close()


@pytest.mark.parametrize(
    ("changes", "is_adoption"),
    [
        ({PIN: "tool: {}\n"}, True),
        ({}, False),
        ({PIN: "tool: {}\n", "scripts/setup.py": "print()\n"}, False),
        ({PIN: "tool: {}\n", "src/other/__init__.py": ""}, False),
    ],
    ids=["a pin in place of the code", "no pin", "set-up stays", "other code stays"],
)
def test_where_a_pin_takes_the_place_of_all_code_the_base_alone_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, bytes | str | None], is_adoption: bool
) -> None:
    monkeypatch.delenv(JUDGE, raising=False)
    repository = Repository(tmp_path / "repository")
    program = (
        "import pathlib, sys\n"
        f"pathlib.Path(sys.argv[sys.argv.index('--json') + 1]).write_text({refused().model_dump_json()!r})\n"
        f"sys.exit({refused().exit_status})\n"
    )
    code: dict[str, bytes | str | None] = {"src/neuroscale/__init__.py": "", "src/neuroscale/__main__.py": program}
    repository.commit(code)
    repository.commit({**dict.fromkeys(code), **changes})
    verdict = judge_by_both(find_change(repository.git, "main~1", "main"))
    repository.git.close()
    judged_head = [check.outcome.value for check in verdict.checks if check.name == "gate-of-head"]
    if is_adoption:
        assert (verdict.exit_status, verdict.findings) == (refused().exit_status, refused().findings)
        assert judged_head == []
        assert "the base's version decided alone" in verdict.notes[-1]
        assert f"Check that {PIN} names" in verdict.not_checked[0]
    else:
        # Without code of its own, the head is judged by the tool that runs, which cannot use it.
        assert verdict.exit_status in (2, 3)
        assert judged_head in (["untrusted"], ["unusable"])
