"""Keeps the output of a lesson's programs in its pages: it stands between two marks, and the runner renews it.

<!-- output of ./before -->
```text
$ kyverno apply ...
```
<!-- end of output -->
"""

from __future__ import annotations

import re

from neuroscale.milestones.lessons import PAGES, Lesson, Part

_END = "<!-- end of output -->"


def pasted(lesson: Lesson, part: Part) -> str | None:
    """The output that a page holds, or None if the page has no place for it."""
    found = _block(part).search(lesson.page(part).read_text(encoding="utf-8"))
    return None if found is None else found["text"]


def as_pasted(output: str) -> str:
    """An output in the form of a page: without spaces at the ends of lines, with one line break at its end."""
    return "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())


def is_current(lesson: Lesson, part: Part, output: str) -> bool:
    """Whether a page holds this output."""
    return pasted(lesson, part) == as_pasted(output)


def renew(lesson: Lesson, part: Part, output: str) -> bool:
    """Write an output into its page; says whether that changed the page.

    Raises ValueError if the page has no place for it, or if the output would end its own block.
    """
    page = lesson.page(part)
    text = page.read_text(encoding="utf-8")
    if _END in output or "```" in output:
        raise ValueError(f"{page}: the output holds a line that would end its block")
    block = f"{_start(part)}\n```text\n{as_pasted(output)}```\n{_END}"
    new, places = _block(part).subn(lambda _: block, text)
    if places != 1:
        raise ValueError(f"{page}: {places} places are marked `{_start(part)}` ... `{_END}`, and there must be one")
    if new != text:
        page.write_text(new, encoding="utf-8")
    return new != text


def _start(part: Part) -> str:
    return f"<!-- output of ./{part} -->"


def _block(part: Part) -> re.Pattern[str]:
    assert part in PAGES
    return re.compile(rf"{re.escape(_start(part))}\n(?:```text\n(?P<text>.*?)```\n)?{re.escape(_END)}", re.DOTALL)
