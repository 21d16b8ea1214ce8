"""The pin check: a change names another tool only if the base's publisher released it, and nothing takes its place."""

from __future__ import annotations

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.check import GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation
from neuroscale.gate.pin_change import GATE, conflict_markers, rules_on, touches_pin
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.repo.tool_pin import ToolPin, publisher_name


class PinCheck(GateCheck):
    """Whether the change's pin and requirements may stand in the base's place."""

    name = GATE
    title = "The pinned tool"

    def left_out(self, run: Run) -> LeftOut | None:
        return None if run.change is not None and touches_pin(run.change) else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        caught = _caught()
        seen = run.pin()
        if seen.failure:
            raise UntrustedError(seen.failure)
        return Evaluation(seen.findings, 2, 2, "files", caught, caught)


_KEYS = [publisher_name(bytes([number]) * 32) for number in (1, 2)]
_BASE = ToolPin(version="1.1.0", sha256="1" * 64, publisher=_KEYS[0], signature="AA==")
_TRIPWIRES: dict[str, dict[str, str]] = {
    "older": {"version": "1.0.0", "sha256": "2" * 64},
    "same-version": {"sha256": "2" * 64},
    "unsigned": {"version": "1.2.0", "sha256": "2" * 64},
    "publisher": {"version": "1.2.0", "sha256": "2" * 64, "publisher": _KEYS[1]},
}
"""By the rule that must find it, what a pin names otherwise than the base's."""
_CONFLICT = b"<<<<<<< ours\na: 1\n=======\na: 2\n>>>>>>> theirs\n"


def _caught() -> int:
    """The number of known-bad pins. Raises UntrustedError if a rule does not find its own."""
    for rule, values in _TRIPWIRES.items():
        findings = rules_on(_BASE, _BASE.model_copy(update=values), [PIN, REQUIREMENTS])
        if [finding.rule for finding in findings] != [rule]:
            raise UntrustedError(f"the pin check did not find its tripwire for the rule {rule!r}.")
    if not conflict_markers(MemorySnapshot({PIN: _CONFLICT}), [PIN]):
        raise UntrustedError("the pin check did not find its tripwire, a conflict marker.")
    return len(_TRIPWIRES) + 1
