"""Runs the command line as a program or a person does, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from neuroscale.cli import app


@dataclass(frozen=True)
class Said:
    """The exit status of a command, and its output."""

    status: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "Traceback" not in self.out + self.err
        assert "a defect of this program" not in self.out + self.err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def commands(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *before: object,
    main: Callable[[], None] = app.main,
) -> Callable[..., Said]:
    """Runs `neuroscale`, or another program's `main`, with the arguments in `before` and those of the call."""

    def command(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["neuroscale", *map(str, (*before, *arguments))])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, captured.out, captured.err)

    return command
