"""Patterns that name a quantised model's modules: one that ends with a star matches as `fnmatch` reads it."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from neuroscale.models.config_keys import Keys
from neuroscale.models.quantization import Patterns

_WORDS = st.text("ab.*", min_size=1, max_size=6)


@given(st.lists(_WORDS.map(lambda text: f"{text}*"), min_size=1, max_size=3), st.text("ab.", min_size=1, max_size=8))
def test_a_pattern_with_stars_matches_from_a_parts_beginning(patterns: list[str], module: str) -> None:
    found = Patterns(Keys({}, "test"), "ignore", patterns).match(module)
    assert found == any(fnmatchcase(module, one) or fnmatchcase(module, f"*.{one}") for one in patterns)


def test_a_pattern_matches_whatever_the_prefix_of_its_files_is() -> None:
    # NVIDIA's files of Nemotron-H name modules below `backbone`; vLLM's own names begin with `model`.
    found = Patterns(Keys({}, "test"), "ignore", ["backbone.layers.5.mixer.q_proj", "backbone.layers.1*"])
    assert found.match("model.layers.5.mixer.q_proj")
    assert found.match("model.layers.1.mixer.gate")
    assert not found.match("model.layers.5.mixer.k_proj")
