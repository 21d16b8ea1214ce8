"""Finds Git attributes that make a checkout or an archive of trusted files differ from the files in Git.

The gate reads files as Git stores them; Argo CD, the workflows and every clone read them as Git checks them out. So no
`.gitattributes` may convert manifests, the catalog, the template, or the files that judge a change. An attribute that
hides changes from reviewers gets a notice, and so does every change of a `.gitattributes`.

Two ways lead to a finding. The words of each line count for files that may come later, too. And Git itself answers for
each trusted file of the merge result, in a repository of its own, where no setting of this machine has an influence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from neuroscale.core.errors import UntrustedError
from neuroscale.core.files import scratch_folder
from neuroscale.gate.evaluation import file_finding
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import TRIPWIRE_PREFIX
from neuroscale.repo.git import Git, TooLargeError
from neuroscale.repo.layout import MANIFESTS, PROTECTED

ATTRIBUTES = ".gitattributes"
_GATE = "files"
_MOST_BYTES = 100_000
_CONVERTS = re.compile(r"working-tree-encoding=.*|filter=.*|ident|eol=(?!lf$).*|export-ignore|export-subst")
_MACRO = "[attr]"
_ASKED = ("working-tree-encoding", "filter", "ident", "eol", "export-ignore", "export-subst")
_HARMLESS = {("eol", "lf"), *((name, state) for name in _ASKED for state in ("unspecified", "unset"))}
_ANSWER_WITHIN = 60.0  # seconds, for the answers about all files
_MOST_ANSWERS = 20  # findings from Git's answers
_MOST_LINES = 6  # changed lines of a file that a notice shows
_LONGEST_LINE = 120  # characters
_HIDES = re.compile(r"-diff|diff=.*|binary|linguist-(generated|vendored)(=true)?")
_LINE = re.compile(r'(?P<pattern>"(?:[^"\\]|\\.)*"|[^ \t\r]+)[ \t\r]+(?P<attributes>.*)')
_TRUSTED = {MANIFESTS, "platform", "templates", *(path.split("/")[0] for path in PROTECTED)}
# Files that nothing runs or deploys, and that configure nothing.
_MEDIA = frozenset(
    (
        *("avif", "bmp", "cast", "gif", "ico", "jpeg", "jpg", "pdf", "png", "psd", "svg", "tif", "tiff", "webp"),
        *("avi", "mov", "mp3", "mp4", "ogg", "wav", "webm", "eot", "otf", "ttf", "woff", "woff2"),
        *("csv", "docx", "npy", "npz", "parquet", "pptx", "tsv", "xlsx", "h5", "hdf5"),
        *("bin", "ckpt", "gguf", "onnx", "pt", "safetensors", "7z", "bz2", "gz", "tar", "tgz", "xz", "zip", "zst"),
    )
)


def attribute_findings(path: str, content: bytes) -> list[Finding]:
    """Findings for the lines of a `.gitattributes` at `path` that convert trusted files of its folder, or name a macro.

    A macro is an attribute that stands for others. The words of a line that uses one do not show what it does.
    """
    folder = path.rpartition("/")[0]
    macros = [
        file_finding(
            _GATE,
            "attribute-macro",
            path,
            f"defines an attribute that stands for others: {_shown(line)}",
            "Remove the line, and write the attributes themselves behind each pattern.",
            number,
        )
        for number, line in _plain_lines(content[:_MOST_BYTES])
        if _is_macro(line)
    ]
    if folder and folder.split("/")[0] not in _TRUSTED:
        return macros
    if len(content) > _MOST_BYTES:
        return [
            file_finding(
                _GATE, "attributes", path, f"is larger than {_MOST_BYTES} bytes", "Keep only the lines that are needed."
            )
        ]
    found = macros
    for number, pattern, words in _lines(content, folder):
        if converting := [word for word in words if _CONVERTS.fullmatch(word)]:
            message = (
                f"sets {', '.join(converting)} for {pattern}: a checkout may change files that are trusted, "
                "so that Argo CD, a workflow or a clone would read other bytes than the gate"
            )
            fix = "Name files that nothing runs or deploys (*.png, or /docs/**), or remove the attribute."
            found.append(file_finding(_GATE, "attributes", path, message, fix, number))
    return found


def hiding_findings(path: str, content: bytes) -> list[Finding]:
    """Notices for the lines of a `.gitattributes` that make a forge fold up changes of trusted files."""
    found = []
    for number, pattern, words in _lines(content[:_MOST_BYTES], path.rpartition("/")[0]):
        if hiding := [word for word in words if _HIDES.fullmatch(word)]:
            message = f"sets {', '.join(hiding)} for {pattern}: forges hide changes of such files, here and later on"
            fix = "Look at the files themselves, or remove the attribute."
            found.append(file_finding(_GATE, "hidden-changes", path, message, fix, number, severity=Severity.NOTICE))
    return found


def _lines(content: bytes, folder: str) -> Iterator[tuple[int, str, list[str]]]:
    """Number, pattern and attributes of each line of the attributes of `folder` that may match a trusted file."""
    if folder and folder.split("/")[0] not in _TRUSTED:
        return
    for number, line in _plain_lines(content):
        match = _LINE.match(line)
        if match is not None and not _is_macro(line) and _may_mean_trusted(match["pattern"], folder):
            yield number, match["pattern"], re.split(r"[ \t\r]+", match["attributes"])


def _plain_lines(content: bytes) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not a comment, without the space around it."""
    for number, line in enumerate(content.decode("utf-8", "replace").removeprefix("\ufeff").split("\n"), 1):
        text = line.strip(" \t\r")
        if text and not text.startswith("#"):
            yield number, text


def _may_mean_trusted(pattern: str, folder: str) -> bool:
    """Whether a pattern of the attributes of `folder` can match a trusted file, now or later."""
    text = pattern.strip('"')
    if _is_media(text):
        return False
    first, slash, _ = text.removeprefix("/").partition("/")
    anchored = text.startswith("/") or bool(slash)
    literal = not re.search(r"[*?\[\\]", first)
    return bool(folder) or not anchored or not literal or first in _TRUSTED


def changed_attributes(change: Change) -> list[Finding]:
    """A notice for each `.gitattributes` that the change adds, alters or removes, with the lines that differ."""
    notices = []
    for path in change.paths:
        if path.rpartition("/")[2].casefold() != ATTRIBUTES:
            continue
        message = f"decides how files are checked out, and changes: {changed_lines(change, path)}"
        fix = "Read each line: it holds for every clone, and for files that come later."
        notices.append(file_finding(_GATE, "attributes-changed", path, message, fix, severity=Severity.NOTICE))
    return notices


def changed_lines(change: Change, path: str) -> str:
    """The lines of a file that a change removes and adds, escaped and bounded."""
    try:
        before, after = (
            (side.read(path) or b"").decode("utf-8", "replace").split("\n") for side in (change.before, change.after)
        )
    except TooLargeError:
        return "it is too large to be read"
    removed, added = list(Counter(before) - Counter(after)), list(Counter(after) - Counter(before))
    shown = removed[: max(_MOST_LINES // 2, _MOST_LINES - len(added))]
    lines = [f"- {_shown(line)}" for line in shown]
    lines += [f"+ {_shown(line)}" for line in added[: _MOST_LINES - len(shown)]]
    left = len(removed) + len(added) - len(lines)
    more = f"; {left} more lines" if left else ""
    return f"{'; '.join(lines)}{more}" or "only the order of its lines"


def answered_findings(change: Change) -> list[Finding]:
    """Findings for the trusted files of the merge result that Git would check out with other bytes than it stores.

    Raises UntrustedError if Git gives no usable answer, or does not recognise a known-bad file.
    """
    names = change.git.records("ls-tree", "-r", "-z", "--name-only", change.tree)
    attributes = [name for name in names if name.rpartition("/")[2] == ATTRIBUTES]
    if not attributes:
        return []
    for name in attributes:  # in a clone without contents, this fetches them: Git passes over one that it cannot read
        if change.git.read_object(f"{change.tree}:{name}") is None:
            raise UntrustedError(f"git cannot read {name!a} of the merge result.")
    asked = [name for name in names if name.split("/")[0] in _TRUSTED and not _is_media(name)]
    converted: dict[str, list[str]] = {}
    for name, attribute, value in _answers(change, asked):
        if (attribute, value) not in _HARMLESS:
            converted.setdefault(name, []).append(attribute if value == "set" else f"{attribute}={value}")
    found = [
        file_finding(
            _GATE,
            "converted-file",
            name,
            f"has the attributes {_shown(', '.join(words))}: a clone or an archive holds other bytes than Git stores",
            f"Remove the attribute from {', '.join(map(ascii, attributes[:3]))}.",
        )
        for name, words in sorted(converted.items())[:_MOST_ANSWERS]
    ]
    if len(converted) > _MOST_ANSWERS:
        message = f"converts {len(converted) - _MOST_ANSWERS} more trusted files, which are not listed"
        found.append(file_finding(_GATE, "converted-file", attributes[0], message, "Remove the attributes."))
    return found


def _answers(change: Change, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Git's answers about files of the merge result: file, attribute, and its value, `set`, `unset` or `unspecified`.

    An empty repository that borrows the objects gives them: it has no `info/attributes` and no settings.
    """
    bad = f"{TRIPWIRE_PREFIX}attributes"
    objects = change.git.text("rev-parse", "--path-format=absolute", "--git-path", "objects")
    if "\n" in objects:
        raise UntrustedError("the repository lies in a folder with a line end in its name: git cannot be asked.")
    with scratch_folder("neuroscale-attributes-") as scratch:
        git = Git(scratch)
        alone = {"GIT_ATTR_NOSYSTEM": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
        form = change.git.text("rev-parse", "--show-object-format")
        git.run("init", "--quiet", "--bare", "--template=", f"--object-format={form}", ".", environment=alone)
        alternates = scratch / "objects" / "info" / "alternates"
        alternates.parent.mkdir(parents=True, exist_ok=True)
        alternates.write_text(f"{objects}\n", encoding="utf-8", errors="surrogateescape")
        git.run("read-tree", change.tree, environment=alone, timeout=_ANSWER_WITHIN)
        rule = git.run("hash-object", "-w", "--stdin", data=b"* filter=tripwire\n", environment=alone).stdout.decode()
        entry = f"100644,{rule.strip()},{bad}/{ATTRIBUTES}"
        git.run("update-index", "--add", "--cacheinfo", entry, environment=alone)
        asked = "".join(f"{name}\0" for name in (*names, f"{bad}/file")).encode(errors="surrogateescape")
        command = ("check-attr", "--cached", "-z", "--stdin", *_ASKED)
        output = git.run(*command, data=asked, environment=alone, timeout=_ANSWER_WITHIN).stdout
    fields = output.decode(errors="surrogateescape").split("\0")[:-1]
    answers = list(zip(fields[::3], fields[1::3], fields[2::3], strict=True))
    if (
        len(answers) != len(_ASKED) * (len(names) + 1)
        or (f"{bad}/file", "filter", "tripwire") not in answers[-len(_ASKED) :]
    ):
        raise UntrustedError("git check-attr did not answer for each file, or missed its tripwire.")
    return answers[: -len(_ASKED)]


def _is_macro(line: str) -> bool:
    return line.lstrip('"').startswith(_MACRO)


def _is_media(path: str) -> bool:
    return path.rpartition(".")[2].casefold() in _MEDIA


def _shown(line: str) -> str:
    """A line of a file of the change, for a message: escaped and bounded."""
    return ascii(line.strip()[:_LONGEST_LINE])
