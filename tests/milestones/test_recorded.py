"""What lessons show of starts that others recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from lesson_tools.program import Program
from lesson_tools.recorded import recorded
from neuroscale.core import delivered
from neuroscale.core.errors import UntrustedError


def test_a_recorded_start_is_shown_with_its_source_arguments_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = recorded(Program(tmp_path), "seed-004-gemma4-31b-offload14")
    told = " ".join(capsys.readouterr().out.split())
    assert "RECORDED elsewhere, not run here" in told
    assert case.source in told
    assert "on 1 x NVIDIA L4: --cpu-offload-gb=14" in told
    assert "It started: a KV cache of 48,161 tokens; 1.6 tokens a second." in told


def test_a_start_that_nobody_recorded_leaves_the_lesson_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path)
    with pytest.raises(UntrustedError, match="does not hold the case seed-9"):
        recorded(program, "seed-9")
    monkeypatch.setattr(delivered, "FOLDER", tmp_path)
    with pytest.raises(UntrustedError, match="cannot be read"):
        recorded(program, "seed-9")
