"""Keeps a record for the next run in a hidden line of the comment on a merged pull request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from neuroscale.forge.after_merge.evidence import ServiceEvidence
from neuroscale.forge.interface import Account, Comment

MARKER = "<!-- neuroscale-smoke -->"
_LINE = re.compile(r"<!-- neuroscale-smoke-record (\{.*\}) -->")
# GitHub's adapter returns this for every token of an app, because such a token does not show its account.
_SOME_APP = "github-actions[bot]"


@dataclass(frozen=True)
class Record:
    """The reported results. `services`: the outcome and the failed checks, by `ENVIRONMENT/SERVICE`. `revert`: the
    number of the revert (0: none).
    """

    services: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    revert: int = 0

    @classmethod
    def of(cls, services: Iterable[ServiceEvidence], revert: int) -> Record:
        told = {one.name: (one.outcome, tuple(sorted(check.check for check in one.failed))) for one in services}
        return cls(told, revert)

    def passed(self, name: str) -> bool:
        """Whether the service has passed after this merge: a later failure is not the merge's fault."""
        return self.services.get(name, ("", ()))[0] == "passed"

    def line(self) -> str:
        """The hidden line."""
        services = {name: [outcome, *failed] for name, (outcome, failed) in sorted(self.services.items())}
        text = json.dumps({"services": services, "revert": self.revert}, separators=(",", ":"))
        return (
            f"<!-- neuroscale-smoke-record {text.replace('-', chr(92) + 'u002d').replace('>', chr(92) + 'u003e')} -->"
        )


def read_record(comments: Iterable[Comment], account: Account) -> Record | None:
    """The record in the account's own comment; None without one. A comment of another account never counts."""
    for comment in comments:
        own = comment.author == account.login or (account.login == _SOME_APP and comment.author.endswith("[bot]"))
        lines = comment.body.replace("\r\n", "\n").split("\n")
        if own and lines[0] == MARKER and len(lines) > 2 and (match := _LINE.fullmatch(lines[2])):
            return _read(match[1])
    return None


def _read(text: str) -> Record | None:
    try:
        found = json.loads(text)
        services = {str(name): (str(row[0]), tuple(map(str, row[1:]))) for name, row in found["services"].items()}
        return Record(services, int(found["revert"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
