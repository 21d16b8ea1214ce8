"""The change's tool beside the base's: which answers count, and that none of another tool's code runs otherwise."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from neuroscale import __version__
from neuroscale.core.errors import InputError
from neuroscale.gate import gate_of_pin, pin_change
from neuroscale.gate.gate_code_of_base import JUDGE, JudgeAnswer
from neuroscale.gate.gate_of_pin import combined, judged_by_both_pins
from neuroscale.gate.merged_change import find_change
from neuroscale.gate.platform_sources import UNREADABLE
from neuroscale.gate.verdict import Check, Finding, Outcome, Verdict
from neuroscale.repo.layout import PIN
from neuroscale.repo.tool_pin import ToolPin, pin_files
from neuroscale.tools.pinned_tool import environment_of, package_of
from pin_lab import NEWER, shared_cache
from publisher import Publisher
from repositories import Repository

OURS, THIEF = Publisher(), Publisher()
OLD = "ab" * 32


def check(name: str, outcome: Outcome = Outcome.PASSED, count: int = 2, detail: str = "") -> Check:
    ran = outcome is not Outcome.NOT_RUN
    return Check(
        name=name,
        title=name.title(),
        outcome=outcome,
        evaluated=count if ran else 0,
        expected=count if ran else 0,
        tripwires=int(ran),
        tripwires_caught=int(ran),
        detail=detail,
    )


def finding(gate: str, message: str = "is wrong") -> Finding:
    return Finding(gate=gate, rule="rule", file="a.yaml", message=message, fix="Correct it.")


def verdict(*checks: Check, findings: tuple[Finding, ...] = (), version: str = __version__) -> Verdict:
    status = 1 if any(each.outcome is Outcome.FINDINGS for each in checks) else 0
    return Verdict(
        tool_version=version,
        exit_status=status,  # type: ignore[arg-type]
        headline="Passed" if status == 0 else "Refused",
        base="b" * 40,
        head="c" * 40,
        checks=checks,
        findings=findings,
    )


def both(mine: Verdict, *checks: Check, status: int | None = None, **values: Any) -> Verdict:
    """The combined verdict, where the change's tool gives these checks."""
    head = verdict(*checks, version=NEWER, findings=values.pop("findings", ())).model_copy(update=values)
    answer = JudgeAnswer(head.exit_status if status is None else status, head, "")
    return combined(mine, answer, OURS.pin(NEWER, OLD))


FIT, DRIFT = check("fit"), check("drift")
REFUSES = verdict(check("drift", Outcome.FINDINGS), FIT, findings=(finding("drift"),))


def outcomes(made: Verdict) -> dict[str, str]:
    return {each.name: each.outcome.value for each in made.checks}


def test_the_changes_tool_answers_what_the_base_plans_otherwise() -> None:
    made = both(REFUSES, DRIFT, FIT)
    assert (made.exit_status, made.findings) == (0, ())
    assert outcomes(made) == {"drift": "passed", "fit": "passed", "gate-of-pin": "passed"}
    assert f"and by {NEWER}, the change's." in made.notes[0]


@pytest.mark.parametrize(
    "name", ["policy", "secrets", "files", "kinds", "owners", "schema", "cost", "production", "pin"]
)
def test_what_the_base_refuses_by_its_own_rules_stays_refused(name: str) -> None:
    base = verdict(check(name, Outcome.FINDINGS), FIT, findings=(finding(name),))
    made = both(base, check(name), FIT)
    assert made.exit_status == 1
    assert made.findings == (finding(name),)
    assert made.headline.startswith("Refused: 1 finding")


@pytest.mark.parametrize("name", ["policy", "drift", "platform"])
def test_what_the_changes_tool_refuses_is_refused(name: str) -> None:
    made = both(verdict(check(name), FIT), check(name, Outcome.FINDINGS), FIT, findings=(finding(name),))
    assert made.exit_status == 1
    assert made.findings == (finding(name),)


VANISHED: dict[str, tuple[Check, ...]] = {
    "no such check": (FIT,),
    "a check that did not run": (check("drift", Outcome.NOT_RUN, detail=UNREADABLE), FIT),
    "fewer objects": (check("drift", count=1), FIT),
    "objects that it did not look at": (DRIFT.model_copy(update={"evaluated": 1}), FIT),
    "no tripwire": (DRIFT.model_copy(update={"tripwires": 0, "tripwires_caught": 0}), FIT),
}


@pytest.mark.parametrize(
    ("name", "base"),
    # A base that did not run a check does not know the number of its objects.
    [*((name, "findings") for name in VANISHED), *((name, "not run") for name in VANISHED if name != "fewer objects")],
)
def test_no_check_vanishes_between_the_two(name: str, base: str) -> None:
    mine = REFUSES if base == "findings" else verdict(check("drift", Outcome.NOT_RUN, detail=UNREADABLE), FIT)
    made = both(mine, *VANISHED[name])
    assert made.exit_status == 3
    assert "drift" in made.checks[-1].detail
    assert {each.gate for each in made.findings} <= {"drift"}


@pytest.mark.parametrize("name", ["policy-of-head", "policy-tests"])
def test_policies_that_only_the_changes_tool_can_read_are_its_to_judge(name: str) -> None:
    base = verdict(check(name, Outcome.UNTRUSTED), FIT)
    assert both(base, check(name), FIT).exit_status == 0
    assert both(base, FIT).exit_status == 3
    assert both(base, check(name, Outcome.UNTRUSTED), FIT).exit_status == 3
    refused = verdict(check(name, Outcome.FINDINGS), FIT, findings=(finding(name),))
    assert both(refused, check(name), FIT).exit_status == 1


@pytest.mark.parametrize("name", ["policy", "secrets", "drift", "fit", "pin"])
def test_a_check_of_the_base_that_cannot_be_trusted_stays_so(name: str) -> None:
    assert both(verdict(check(name, Outcome.UNTRUSTED), FIT), check(name), FIT).exit_status == 3


def test_what_neither_runs_for_the_same_reason_is_no_gap() -> None:
    server = check("server", Outcome.NOT_RUN, detail="the run has no --server")
    assert both(verdict(FIT, server), FIT, server).exit_status == 0
    assert both(verdict(FIT, server), FIT).exit_status == 3


def test_effects_that_the_base_cannot_render_are_fitted_by_the_changes_tool() -> None:
    base = verdict(check("effects", Outcome.NOT_RUN, detail=UNREADABLE), FIT)
    assert both(base, check("effects"), FIT).exit_status == 3
    made = both(base, check("effects"), check("effects-fit"), FIT)
    assert (made.exit_status, outcomes(made)["effects-fit"]) == (0, "passed")


@pytest.mark.parametrize(
    "values",
    [
        {"status": 1},
        {"status": 3},
        {"exit_status": 0, "checks": (check("drift", Outcome.FINDINGS), FIT), "status": 0},
        {"tool_version": "98.0.0"},
        {"head": "d" * 40},
        {"base": "d" * 40},
    ],
)
def test_an_answer_that_contradicts_itself_or_is_of_another_change_is_none(values: dict[str, Any]) -> None:
    assert both(REFUSES, DRIFT, FIT, **values).exit_status == 3


def test_no_answer_is_untrusted_and_the_bases_findings_stay() -> None:
    made = combined(REFUSES, JudgeAnswer(1, None, "no wheel"), OURS.pin(NEWER, OLD))
    assert (made.exit_status, made.findings) == (3, REFUSES.findings)
    assert "no wheel" in made.checks[-1].detail


# Real packages


@dataclass(frozen=True)
class Desk:
    """A repository with a pin on main, and a folder of wheels, where uv looks alone."""

    repository: Repository
    wheels: Path
    ran: Path
    """A file that the code of a wheel makes when it runs."""

    def wheel(self, checks: tuple[Check, ...] = (), status: int = 0, more: str = "") -> str:
        """Make a wheel of the tool which answers so; returns its digest."""
        text = verdict(*checks, version=NEWER).model_dump_json()
        program = (
            f"import os, pathlib, sys\npathlib.Path({str(self.ran)!r}).write_text(str(sorted(os.environ)))\n"
            "if sys.argv[1] == 'tools': sys.exit(0)\n"
            "words = dict(zip(sys.argv, sys.argv[1:]))\n"
            f"text = {text!r}.replace('b' * 40, words['--base']).replace('c' * 40, words['--head'])\n"
            f"pathlib.Path(words['--json']).write_text(text)\nsys.exit({status})\n{more}"
        )
        info = f"neuroscale-{NEWER}.dist-info"
        contents = {
            "neuroscale/__init__.py": "",
            "neuroscale/__main__.py": program,
            "neuroscale/delivered/requirements/runtime.txt": "",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: neuroscale\nVersion: {NEWER}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{name},sha256={_hash(text)},{len(text)}\n" for name, text in contents.items())
        path = self.wheels / f"neuroscale-{NEWER}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as file:
            for name, text in {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
                file.writestr(zipfile.ZipInfo(name), text)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def judged(self, pin: ToolPin, base: Verdict | None = None, **beside: str) -> Verdict:
        """The verdict on a change to that pin, with files beside it."""
        self.repository.commit({**pin_files(pin, ""), **beside})
        change = find_change(self.repository.git, "HEAD~1", "HEAD")
        mine = verdict(check("pin"), *(base or REFUSES).checks, findings=(base or REFUSES).findings)
        mine = mine.model_copy(update={"base": change.base, "head": change.head})
        return judged_by_both_pins(change, mine, server=False, strict=True)


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name, value in {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NEUROSCALE_CACHE", str(shared_cache(tmp_path / "cache")))
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.delenv(JUDGE, raising=False)
    repository = Repository(tmp_path / "repository")
    repository.commit({**pin_files(OURS.pin("1.0.0", OLD), "")})
    yield Desk(repository, wheels, tmp_path / "ran")
    repository.git.close()


@pytest.mark.tools
def test_a_signed_tool_is_installed_and_judges_without_secrets(desk: Desk) -> None:
    made = desk.judged(OURS.pin(NEWER, desk.wheel((DRIFT, FIT))))
    assert made.exit_status == 0, made.checks[-1]
    assert "HF_TOKEN" not in desk.ran.read_text()
    assert JUDGE in desk.ran.read_text()


@pytest.mark.tools
@pytest.mark.parametrize("status", [1, 2])
def test_a_green_verdict_with_another_exit_status_is_no_verdict(desk: Desk, status: int) -> None:
    made = desk.judged(OURS.pin(NEWER, desk.wheel((DRIFT, FIT), status)))
    assert made.exit_status == 3
    assert "contradicts" in made.checks[-1].detail


@pytest.mark.tools
def test_a_green_verdict_with_fewer_checks_is_no_verdict(desk: Desk) -> None:
    assert desk.judged(OURS.pin(NEWER, desk.wheel((FIT,)))).exit_status == 3


@pytest.mark.tools
@pytest.mark.parametrize("how", ["unsigned", "of a stranger", "older"])
def test_a_tool_that_is_not_accepted_never_runs(desk: Desk, how: str) -> None:
    digest = desk.wheel((DRIFT, FIT))
    pin = (THIEF if how == "of a stranger" else OURS).pin(NEWER, digest)
    if how == "unsigned":
        pin = pin.model_copy(update={"signature": THIEF.pin(NEWER, digest).signature})
    if how == "older":
        desk.repository.commit({**pin_files(OURS.pin("99.1.0", OLD), "")})
    made = desk.judged(pin)
    assert "gate-of-pin" not in outcomes(made)
    assert not desk.ran.exists()


@pytest.mark.tools
def test_a_wheel_of_another_digest_is_neither_read_nor_run(desk: Desk) -> None:
    """The index sends another wheel of the same name and version."""
    pin = OURS.pin(NEWER, desk.wheel((DRIFT, FIT)))
    desk.wheel((DRIFT, FIT), more="# tampered")
    with pytest.raises(InputError, match="neuroscale"):
        package_of(pin.version, pin.sha256)
    with pytest.raises(InputError, match="neuroscale"):
        environment_of(pin_files(pin, "")["platform/requirements.txt"])
    made = desk.judged(pin)
    assert "gate-of-pin" not in outcomes(made)
    assert not desk.ran.exists()


@pytest.mark.tools
def test_a_tool_that_cannot_be_installed_leaves_no_verdict(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = OURS.pin(NEWER, desk.wheel((DRIFT, FIT)))
    package = package_of(pin.version, pin.sha256)
    monkeypatch.setattr(pin_change, "package_of", lambda version, sha256: package)
    desk.wheel((DRIFT, FIT), more="# tampered")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    made = desk.judged(pin)
    assert made.exit_status == 3
    assert "cannot be installed" in made.checks[-1].detail
    assert not desk.ran.exists()


BESIDE = {
    "neuroscale.py": "open('trap', 'w')\n",
    "neuroscale/__init__.py": "open('trap', 'w')\n",
    "neuroscale/__main__.py": "open('trap', 'w')\n",
    "sitecustomize.py": "open('trap', 'w')\n",
    "bin/neuroscale": "#!/bin/sh\ntouch trap\n",
    "bin/python": "#!/bin/sh\ntouch trap\n",
    ".env": "UV_INDEX_URL=https://elsewhere.test/simple\n",
    "uv.toml": "index-url = 'https://elsewhere.test/simple'\n[pip]\nfind-links = ['./no']\nrequire-hashes = false\n",
    "pip.conf": "[global]\nindex-url = https://elsewhere.test/simple\n",
    "pyproject.toml": "[tool.uv]\nno-index = false\nfind-links = ['./stolen']\n",
}


@pytest.mark.tools
def test_nothing_in_the_checkout_or_on_the_path_takes_the_tools_place(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.repository.root)
    monkeypatch.setenv("PATH", f"{desk.repository.root / 'bin'}:/usr/bin:/bin")
    desk.repository.commit(dict(BESIDE))
    for name in ("neuroscale", "python"):
        (desk.repository.root / "bin" / name).chmod(0o755)
    made = desk.judged(OURS.pin(NEWER, desk.wheel((DRIFT, FIT))))
    assert made.exit_status == 0, made.checks[-1]
    assert desk.ran.exists()
    assert not (desk.repository.root / "trap").exists()


def test_a_judge_starts_no_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JUDGE, "1")
    monkeypatch.setattr(gate_of_pin, "judge_pin_change", None)
    repository = Repository(tmp_path / "repository")
    repository.commit({PIN: "a"})
    repository.commit({PIN: "b"})
    assert (
        judged_by_both_pins(find_change(repository.git, "HEAD~1", "HEAD"), REFUSES, server=False, strict=True)
        is REFUSES
    )
    repository.git.close()
