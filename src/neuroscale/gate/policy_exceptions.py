"""Applies the reviewed exceptions to findings, and reports faulty exceptions as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.evaluation import file_finding, manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import PolicyException

GATE = "policy"
WRITABLE_ROOT = "writable-root"
"""The name of the rule that the catalog's runtimes decide; exceptions name it as their `policy`."""


def exception_findings(exceptions: Iterable[PolicyException], today: date, longest_days: int) -> list[Finding]:
    """A finding at the file of each exception that is not valid."""
    return [
        file_finding(
            GATE, f"exception-{fault.rule}", one.file, f"{fault.field}: the exception {fault.message}", fault.fix
        )
        for one in exceptions
        if (fault := one.fault(today, longest_days)) is not None
    ]


class Exceptions:
    """The reviewed exceptions from some rules, as they hold on the day of a run. `read` gives them; it may raise
    UntrustedError, where policies cannot be read. `longest_days`: how far ahead an exception may end."""

    def __init__(self, read: Callable[[], Iterable[PolicyException]], today: date, longest_days: int) -> None:
        self._read, self._today, self._longest_days = read, today, longest_days
        self._needed: set[tuple[str, int]] = set()

    def need(self, rule: str, manifest: Manifest) -> None:
        """Note that an object does not pass a rule, and so needs an exception from it."""
        self._needed.add((rule, id(manifest)))

    def applied(self, manifest: Manifest, finding: Finding) -> Finding:
        """A rule's finding after the exceptions: a notice if one of them is valid, and otherwise why none is."""
        self.need(finding.rule, manifest)
        for exception in self._read():
            if not exception.covers(finding.rule, manifest):
                continue
            fault = exception.fault(self._today, self._longest_days)
            if fault is None:
                note = f"(excepted by {exception.file} until {exception.expires}: {exception.reason})"
                changed = {"severity": Severity.NOTICE, "message": f"{finding.message} {note}"}
                return finding.model_copy(update=changed)
            note = f"{finding.message} (the exception {exception.file} {fault.message})"
            finding = finding.model_copy(update={"message": note})
        return finding

    def unneeded(self, manifests: Sequence[Manifest]) -> Iterator[Finding]:
        """A notice for each exception in force that its object does not need, since the rule does not refuse it."""
        named: dict[tuple[str, str, str], list[Manifest]] = {}
        for manifest in manifests:
            named.setdefault((manifest.kind, manifest.namespace, manifest.name), []).append(manifest)
        with suppress(UntrustedError):  # the policy check reports policies that cannot be read
            for one in self._read():
                if one.fault(self._today, self._longest_days) is not None:
                    continue
                until = f"{one.file} excepts it until {one.expires}: {one.reason}"
                message, fix = f"the policy {one.policy} does not refuse it, and {until}", f"Remove {one.file}."
                for manifest in named.get((one.kind, one.namespace, one.name), ()):
                    if (one.policy, id(manifest)) not in self._needed:
                        place, notice = ("kind",), Severity.NOTICE
                        yield manifest_finding(
                            GATE, "exception-unneeded", manifest, place, message, fix, severity=notice
                        )
