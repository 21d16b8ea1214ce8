"""Keeps answers of what may be slow or silent: a cluster, its Prometheus, and the forge that says who may read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from neuroscale.core.errors import NeuroscaleError
from neuroscale.core.printable import one_line

_KEPT = 10.0  # seconds for which an answer is given again
_WAITS = 8.0  # seconds that a page waits for one
_MOST = 1000  # questions; those whose answers are too old to be given again go
_log = logging.getLogger(__name__)

Value = TypeVar("Value")


@dataclass
class _Question(Generic[Value]):
    """What was asked at `began`, by `time.monotonic`, and may be asked again after `again_from`."""

    began: float
    again_from: float = float("inf")
    answered: threading.Event = field(default_factory=threading.Event)
    value: Value | None = None
    why: str = ""


class KeptAnswers(Generic[Value]):
    """Answers of something that may be slow, or silent. It is asked again only when an answer is some seconds old.
    Whoever asks meanwhile waits for the same answer, and for some seconds at most: a silent cluster must hold neither
    a page nor the threads that all pages share. An error is kept as well, unless not `errors`."""

    def __init__(self, *, errors: bool = True) -> None:
        self._errors = errors
        self._lock = threading.Lock()
        self._questions: dict[str, _Question[Value]] = {}

    def ask(self, name: str, ask: Callable[[], Value]) -> tuple[Value | None, str]:
        """The answer, or None and why there is none. `name`: what is asked about."""
        now = time.monotonic()
        with self._lock:
            question = self._questions.get(name)
            if question is None or question.again_from < now:
                if len(self._questions) >= _MOST:
                    self._questions = {key: other for key, other in self._questions.items() if other.again_from >= now}
                question = self._questions[name] = _Question(now)
                threading.Thread(target=_answer, args=(question, ask, self._errors), daemon=True).start()
        if not question.answered.wait(max(0.0, question.began + _WAITS - now)):
            return None, f"no answer came within {_WAITS:g} s"
        return question.value, question.why


def _answer(question: _Question[Value], ask: Callable[[], Value], keep_errors: bool) -> None:
    try:
        question.value = ask()
    except NeuroscaleError as error:
        question.why = one_line(str(error), 300)
    except Exception:
        _log.exception("a question failed")
        question.why = "this program failed; see its log"
    finally:
        question.again_from = time.monotonic() + (_KEPT if keep_errors or not question.why else 0.0)
        question.answered.set()
