"""Strikes what looks like a token, a key or a password from a text, such as a log."""

from __future__ import annotations

import re

_NAMED = r"(?:api[_-]?k(?:ey\w{0,8}|\w{1,3})?|access[_-]?key|token|passw(?:or)?d|secret)(?![a-z])"
_VALUE = r"""(?!(?:None|null|True|False|\*\*\*)\b)(?:\[[^\]\n]*\]?|'[^'\n]*'?|"[^"\n]*"?|[^\s&,;'"\[\](){}]{4,})"""
_SECRETS = (  # what is kept of each stands in its first group
    re.compile(r"()\bhf_[A-Za-z0-9]{6,}"),
    re.compile(r"()\b(?:(?:sk|gh[pousr]|glpat|xox[abp]|nvapi)[-_]|github_pat_|AIza|ya29\.)[A-Za-z0-9_-]{10,}"),
    re.compile(r"()\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    re.compile(r"()\beyJ[\w-]{10,400}\.[\w-]{10,}(?:\.[\w-]*)?"),
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
