"""Strikes secrets from texts: those that are known, and what looks like a token, a key or a password."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from neuroscale.core.secret_text import forms_of

_SHORTEST = 12  # characters of a known secret that are struck where it is cut short
_ENUMERATED = ("change", "outcome", "severity", "verdict")
"""Fields of a verdict whose values are names of this program."""
_NAMED = r"(?:api[_-]?k(?:ey\w{0,8}|\w{1,3})?|access[_-]?key|token|passw(?:or)?d|secret)(?![a-z])"
_VALUE = r"""(?!(?:None|null|True|False|\*\*\*)\b)(?:\[[^\]\n]*\]?|'[^'\n]*'?|"[^"\n]*"?|[^\s&,;'"\[\](){}]{4,})"""
_TOKENS = (  # what is kept of each stands in its first group
    re.compile(r"()\bhf_[A-Za-z0-9]{6,}"),
    re.compile(r"()\b(?:(?:sk|gh[pousr]|glpat|xox[abp]|nvapi)[-_]|github_pat_|AIza|ya29\.)[A-Za-z0-9_-]{10,}"),
    re.compile(r"()\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    re.compile(r"()\beyJ[\w-]{10,400}\.[\w-]{10,}(?:\.[\w-]*)?"),
)
_WHOLE_TOKENS = (  # long enough to be no name of a person's choice
    re.compile(r"()\bhf_[A-Za-z0-9]{30,}"),
    re.compile(r"()\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_\w{50,}"),
    re.compile(r"()\b(?:sk|glpat|nvapi)-(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{20,}"),
    re.compile(r"()\bAKIA[A-Z0-9]{16}\b|\bAIza[\w-]{35}\b"),
    re.compile(r"()\beyJ[\w-]{20,400}\.[\w-]{20,}\.[\w-]{20,}"),
)
_SECRETS = (
    *_TOKENS,
    re.compile(r"(?i)(\bbearer |\bauthorization['\"]?: ?['\"]?basic )[^\s'\",]{4,}"),
    re.compile(r"(://)[^/\s:@]{1,100}:[^/\s@]{1,200}(?=@)"),
    re.compile(r"(?i)((?:[?&]|\b)(?:signature|sig)=)[^\s&'\"]{8,}"),
    # --api-key takes several words, and a list of words has each in quotes.
    re.compile(
        rf"(?i)((?<!-)--[\w-]{{0,40}}{_NAMED}(?:=|['\"], ?| ))(?!-)"
        r"(?:['\"][^'\"\n]*['\"]?|[^\s'\"]+(?: (?!-)[^\s'\"]+)*)"
    ),
    re.compile(rf"(?i)((?<![a-z]){_NAMED}['\"]? ?[:=] ?){_VALUE}"),
    re.compile(rf"(?i)(\bname['\"]?: ?['\"]?[\w-]{{0,60}}{_NAMED}['\"]?,? {{1,4}}['\"]?value['\"]?: ?){_VALUE}"),
)


def masked(text: str) -> str:
    """The text without what looks like a token, a key or a password."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1***", text)
    return text


class KnownSecrets:
    """Strikes known secrets, and what has the shape of a provider's token, from values that a report shows.

    Words such as `token: ...` stay: a report is prose about fields of such names. A secret of several lines is struck
    line by line, and one that a report cut short is struck as far as it stands there; so is its Base64.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        lines = {line.strip() for secret in secrets for line in secret.splitlines()}
        shown = [line for line in lines if len(line) >= 8 and not line.startswith("-----")]
        known = sorted({form for line in shown for form in forms_of(line)}, key=len)
        self._known = [(re.compile(re.escape(line[:_SHORTEST])), line) for line in reversed(known)]

    def strike(self, value: Any) -> Any:
        """A value of JSON without them: every text in it, however deep; keys stay as they are."""
        if isinstance(value, str):
            return self._struck(value)
        if isinstance(value, dict):
            return {key: each if key in _ENUMERATED else self.strike(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.strike(each) for each in value]
        return value

    def _struck(self, text: str) -> str:
        for start, secret in self._known:
            parts, at = [], 0
            while (match := start.search(text, at)) is not None:
                same = takewhile(lambda pair: pair[0] == pair[1], zip(text[match.start() :], secret, strict=False))
                length = sum(1 for _ in same)
                parts += [text[at : match.start()], "***"]
                at = match.start() + length
            text = "".join(parts) + text[at:] if parts else text
        for pattern in _WHOLE_TOKENS:
            text = pattern.sub("***", text)
        return text
