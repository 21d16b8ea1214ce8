"""What `neuroscale promote` takes as a proof that a service works where it is."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from neuroscale.actions import promotion, smoke_comments
from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.smoke_now import Question
from neuroscale.core.errors import InputError
from neuroscale.forge.request_flow import Main
from neuroscale.forge.rest import Forge
from neuroscale.forge.service_pull_request import Base
from neuroscale.repo.layout import ServicePath
from neuroscale.smoke.results import Outcome, Report, Result, Version


@pytest.mark.parametrize(
    ("outcomes", "version", "passed"),
    [
        (["passed"], "new", True),
        (["passed"], "old", False),
        (["passed", "failed"], "new", False),
        (["passed", "error"], "new", False),
        ([], "", False),
    ],
)
def test_in_a_named_cluster_its_smoke_tests_run_at_mains_commit_and_all_must_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcomes: list[Outcome], version: Version, passed: bool
) -> None:
    asked: list[tuple[Question, Where]] = []

    def report(question: Question, where: Where, repository: Path | None) -> Report:
        asked.append((question, where))
        checks = tuple(
            Result("chat", "answers", "It answers", one, 1.0, "no answer", version=version) for one in outcomes
        )
        return Report("dev", "a" * 40, "2026-11-28T12:00:00Z", 9.0, checks)

    monkeypatch.setattr(promotion, "smoke_report", report)
    main = Main(None, Base("main", "a" * 40), None)  # type: ignore[arg-type]
    where = Where(context="dev")
    tested = promotion.tested_in(
        promotion.Proofs(cast("Forge", None), where, tmp_path), main, ServicePath("dev", "chat")
    )
    assert asked == [(Question("dev", "chat", revision="a" * 40), where)]
    assert tested.passed is passed
    assert tested.sentence.startswith("dev/chat, tested now in its cluster: The smoke tests ")
    assert ("It answers: no answer" in tested.sentence) is (len(outcomes) > 1)


@pytest.mark.parametrize(
    ("local", "deployed", "refused", "said"),
    [
        (True, frozenset({"dev", "local"}), True, True),
        (True, frozenset({"dev", "prod"}), False, False),
        (True, None, False, False),  # only a forge, or a cluster that does not say
        (False, frozenset({"dev"}), False, True),  # production may have a cluster of its own
    ],
)
def test_an_environment_that_nothing_deploys_is_named_and_refused_where_no_other_cluster_can_be_meant(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    local: bool,
    deployed: frozenset[str] | None,
    refused: bool,
    said: bool,
) -> None:
    monkeypatch.setattr(promotion, "tested_in", lambda *_: smoke_comments.Tested(True, "It works."))
    monkeypatch.setattr(promotion, "environments_in", lambda *_, **__: deployed)
    main = Main(None, Base("main", "a" * 40), None)  # type: ignore[arg-type]
    proofs = promotion.Proofs(cast("Forge", None), Where(), tmp_path, local=local)
    path = ServicePath("dev", "chat")
    if refused:
        with pytest.raises(InputError, match="nothing deploys prod to the local platform") as error:
            promotion.evidence_of(proofs, "", "prod")(main, path)
        assert "local up --environment dev --environment local --environment prod" in str(error.value)
    reason = "The fair." if refused else ""
    sentences = promotion.evidence_of(proofs, reason, "prod")(main, path)
    assert any("othing deploys prod" in one for one in sentences) is said
