"""Matches names of modules with the patterns that quantised checkpoints list in their configs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase

from neuroscale.models.config_keys import Keys
from neuroscale.models.weights import without_prefix

_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "backbone.", "model.")
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_LONGEST_PATTERN = 300
_REPEATED_GROUP = re.compile(r"\)\s*[*+{]")
WILD = re.compile(r"[*?\[]")
"""A letter that makes a pattern match several names."""


def _core(name: str) -> str:
    """A name without the prefixes that the towers of a model put before it."""
    return without_prefix(name, _PREFIXES)


class Patterns:
    """Names of modules as the lists in configs write them: whole, in part, with `*`, or `re:` and an expression. A
    pattern matches whole parts of a name (between dots), whatever the towers' prefixes are."""

    def __init__(self, c: Keys, key: str, patterns: Iterable[str]) -> None:
        self.all = tuple(patterns)
        self._exact: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        self._wild: list[str] = []
        self._beginnings: set[str] = set()
        self._expressions: list[re.Pattern[str]] = []
        for pattern in self.all:
            self._add(c, key, pattern)
        self._lengths = {len(start) for start in self._beginnings}

    def _add(self, c: Keys, key: str, pattern: str) -> None:
        if len(pattern) > _LONGEST_PATTERN:
            raise c.problem(key, f"a pattern has more than {_LONGEST_PATTERN} characters")
        if pattern.startswith("re:"):
            if _REPEATED_GROUP.search(pattern):  # its search could take exponential time
                raise c.problem(key, f"the expression {pattern!r} repeats a group, which is not read here")
            try:
                self._expressions.append(re.compile(pattern[3:]))
            except (re.error, OverflowError) as error:
                raise c.problem(key, f"{pattern!r} is not a regular expression: {error}") from error
        elif pattern.endswith("*") and not WILD.search(pattern[:-1]):
            self._beginnings.add(_core(pattern)[:-1])  # most patterns look like this, and a file may have hundreds
        elif "*" in pattern:
            self._wild.append(_core(pattern))
        else:
            parts = tuple(_core(pattern).removesuffix(".weight").split("."))
            for last in _FUSED.get(parts[-1], (parts[-1],)):
                self._exact[last].append((*parts[:-1], last))

    def match(self, module: str) -> bool:
        """Whether a pattern names the module, such as `model.layers.0.mlp.gate`, or a module that contains it."""
        core = _core(module)
        parts = tuple(core.split("."))
        for length in range(1, len(parts) + 1):
            for wanted in self._exact.get(parts[length - 1], ()):
                if parts[max(0, length - len(wanted)) : length] == wanted:
                    return True
        rests = [core, *(core[at + 1 :] for at, letter in enumerate(core) if letter == ".")]
        if any(rest[:length] in self._beginnings for length in self._lengths for rest in rests):
            return True
        if any(fnmatchcase(core, wild) or fnmatchcase(core, f"*.{wild}") for wild in self._wild):
            return True
        if self._expressions:
            spellings = [core, *(prefix + core for prefix in _PREFIXES)]
            return any(expression.match(name) for expression in self._expressions for name in spellings)
        return False
