"""Finds the lessons of `milestones/`: each is a folder with two pages and two programs.

Keeps the output of a lesson's programs in its pages: it stands between two marks, and the runner renews it.

<!-- output of ./before -->
```text
$ kyverno apply ...
```
<!-- end of output -->
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, cast, get_args

from neuroscale.core import delivered, schemas, tool_cache
from neuroscale.core.errors import InputError, Problem, UntrustedError
from neuroscale.core.tool_cache import PinError
from neuroscale.repo.layout import find_root
from neuroscale.tools.model_server import ModelServer

FOLDER = "milestones"
STAGES = "stages"
"""Beside the lessons: the six stages from a fork to production."""
_NO_LESSONS = (STAGES, "lesson_tools", "__pycache__")
"""Folders beside the lessons; the programs of lessons import `lesson_tools`."""
Part = Literal["before", "after"]
PARTS: tuple[Part, ...] = get_args(Part)
PAGES: dict[Part, str] = {"before": "BEFORE.md", "after": "AFTER.md"}

HOLDS, FALSE = "✔ ", "✘ NOT SO: "
"""A program begins a line with one of these for each claim, if it is true or false."""
REFUTED = 4
"""Exit status of a program with a false claim. Python uses 1 for its own errors, and a shell 126 and more."""
STATE_VARIABLE = "NEUROSCALE_MILESTONES_STATE"
"""The environment variable in which a program finds the state folder of the local platform."""
REPOSITORY_VARIABLE = "NEUROSCALE_MILESTONES_REPOSITORY"
"""The same for the platform repository that the lessons are run for; unset: this package's files."""
EXAMPLE_VARIABLE = "NEUROSCALE_MILESTONES_EXAMPLE"
"""The same for the example organisation's repository, with the policies of that one; unset: the program makes it."""
PLATFORM = "platform"
"""A lesson needs the local platform."""
VLLM = "vllm"
"""A lesson runs the vLLM that set-up installs for this machine's processors."""
GATE = "gate"
"""A lesson runs this project's gate on files, which needs all of _GATE_TOOLS and the schemas."""
_GATE_TOOLS: tuple[tool_cache.ToolName, ...] = ("kubeconform", "gitleaks", "kyverno")


class Evidence(StrEnum):
    """How the `before` of a lesson shows its failure."""

    REAL_TOOL = "real tool"
    """The failure happens in the run, in the tool that the lesson is about."""
    RECORDED_LOG = "recorded log"
    """Somebody recorded the failure where it happened; the run prints the recorded lines and their source."""
    STAND_IN = "stand-in"
    """The failure happens in the run, where something that cannot run here is replaced; the page says what and how."""
    COMPUTED = "computed"
    """The failure follows from figures: nothing fails in the run."""


_WITH_SCHEMAS = {GATE, "kubeconform"}
"""Lessons that need one of these use the schemas."""

_TITLE = re.compile(r"^# (?P<title>\S.*)$", re.MULTILINE)
_NEEDS = re.compile(r"^<!-- needs: (?P<names>[a-z0-9, -]+) -->$", re.MULTILINE)
_EVIDENCE = re.compile(r"^<!-- evidence: (?P<kind>[^>]*?) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Lesson:
    """A lesson in its `folder`; `needs` are names of upstream tools, PLATFORM, VLLM or GATE."""

    name: str
    folder: Path
    title: str
    needs: tuple[str, ...]
    evidence: Evidence

    @property
    def needs_platform(self) -> bool:
        return PLATFORM in self.needs

    def page(self, part: Part) -> Path:
        return self.folder / PAGES[part]

    def program(self, part: Part) -> Path:
        return self.folder / part

    def missing(self) -> str | None:
        """Why the lesson cannot be run on this machine, in a sentence, or None.

        It does not look for the platform: a program that needs the platform finds it, or says that it is missing.
        """
        try:
            for name in self.needs:
                if name == VLLM:
                    problem = ModelServer.find().problem()
                    if problem is not None:
                        return problem
                elif name != PLATFORM:
                    for tool in _GATE_TOOLS if name == GATE else (cast("tool_cache.ToolName", name),):
                        tool_cache.find(tool)
            if _WITH_SCHEMAS.intersection(self.needs):
                schemas.find()
        except (UntrustedError, PinError) as error:
            return str(error)
        return None


def find_places(named: Path | None) -> tuple[Path, Path]:
    """The repository that lessons are run for, and the one that holds them: the same, where it holds any.

    `named`: a folder of the repository. None: the current folder, or the delivered files outside every repository.
    Raises InputError.
    """
    try:
        root = find_root(named or Path.cwd())
    except InputError:
        if named is not None:
            raise
        root = delivered.FOLDER
    return root, root if (root / FOLDER).is_dir() else delivered.FOLDER


def find_lessons(root: Path) -> list[Lesson]:
    """Every lesson of a platform repository, by name.

    Raises InputError for a folder that lacks one of its four files, a page without a title, an unknown need, and a
    missing or unknown kind of evidence.
    """
    folder = root / FOLDER
    folders = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    names = sorted(path.name for path in folders if path.name not in _NO_LESSONS)
    if not names:
        raise InputError.at(str(folder), "", "holds no lesson", "Name a complete clone with --repository.")
    problems: list[Problem] = []
    lessons = [_read(folder / name, problems) for name in names]
    if problems:
        raise InputError(problems)
    return lessons


def choose(lessons: Sequence[Lesson], wanted: Sequence[str], *, without_platform: bool) -> list[Lesson]:
    """The lessons of these names, or all. Raises InputError for a name that no lesson has, or if no lesson is left."""
    known = {lesson.name for lesson in lessons}
    for name in wanted:
        if name not in known:
            message = "is not a lesson"
            raise InputError.at("the command line", name, message, f"Write one of {', '.join(sorted(known))}.")
    chosen = [lesson for lesson in lessons if not wanted or lesson.name in wanted]
    if without_platform:
        chosen = [lesson for lesson in chosen if not lesson.needs_platform]
    if not chosen:
        message = "leaves no lesson: what you name needs the platform"
        raise InputError.at("the command line", "--without-platform", message, "Leave the option out.")
    return chosen


def _read(folder: Path, problems: list[Problem]) -> Lesson:
    for name in (*PARTS, *PAGES.values()):
        if not (folder / name).is_file():
            fix = "A lesson has BEFORE.md, AFTER.md, before and after."
            problems.append(Problem(str(folder), name, "is missing", fix))
    page = folder / PAGES["before"]
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    title, needs = _TITLE.search(text), _NEEDS.search(text)
    if text and title is None:
        problems.append(Problem(str(page), "", "has no title", "Begin the page with a line `# What went wrong`."))
    names = tuple(part.strip() for part in needs["names"].split(",")) if needs else ()
    known = {*get_args(tool_cache.ToolName), PLATFORM, VLLM, GATE}
    for name in names:
        if name not in known:
            problems.append(Problem(str(page), "needs", f"names {name}", f"Write names of {', '.join(sorted(known))}."))
    return Lesson(folder.name, folder, title["title"] if title else folder.name, names, _evidence(page, text, problems))


def _evidence(page: Path, text: str, problems: list[Problem]) -> Evidence:
    kinds = _EVIDENCE.findall(text)
    if len(kinds) == 1 and kinds[0] in list(Evidence):
        return Evidence(kinds[0])
    if text:
        message = f"is {', '.join(map(repr, kinds))}" if kinds else "is missing"
        fix = f"Write one line `<!-- evidence: KIND -->`, where KIND is one of: {', '.join(Evidence)}."
        problems.append(Problem(str(page), "evidence", message, fix))
    return Evidence.COMPUTED


_END = "<!-- end of output -->"


def pasted(lesson: Lesson, part: Part) -> str | None:
    """The output that a page holds, or None if the page has no place for it."""
    block = _block(part).search(lesson.page(part).read_text(encoding="utf-8"))
    return None if block is None else block["text"]


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
