"""The form on the terminal for a service that exists: its answers are the defaults."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from neuroscale.cli.options.form_answers import ask
from neuroscale.rendering.planning_inputs import PlanningInputs
from plan_factory import ANSWERS
from platform_repository import PLATFORM


@pytest.mark.parametrize(
    "changes", [{}, {"concurrent_users": 7}, {"availability": "high", "typical_prompt_tokens": 99}]
)
def test_present_answers_are_the_defaults_and_which_service_it_is_stays(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    asked = []

    def prompt(text: str, default: Any = None, **_: Any) -> str:
        asked.append(text.strip())
        return str(changes.get(text.strip(), default))

    monkeypatch.setattr(typer, "prompt", prompt)
    present = {**ANSWERS, "typical_answer_tokens": 64}
    inputs: PlanningInputs = PLATFORM
    assert ask(inputs, on_stderr=True, present=present).values == {**present, **changes}
    assert not {"service", "team", "environment"} & set(asked)
