"""Finds Git attributes that make a checkout or an archive of trusted files differ from the files in Git.

The gate reads files as Git stores them; Argo CD, the workflows and every clone read them as Git checks them out. So no
`.gitattributes` may convert manifests, the catalog, the template, or the files that judge a change. An attribute that
hides changes from reviewers gets a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from neuroscale.gate.check import file_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.repo.layout import MANIFESTS, PROTECTED

ATTRIBUTES = ".gitattributes"
_GATE = "files"
_MOST_BYTES = 100_000
_CONVERTS = re.compile(r"working-tree-encoding=.*|filter=.*|ident|eol=(?!lf$).*|export-ignore|export-subst")
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
    """Findings for the lines of a `.gitattributes` at `path` that convert trusted files of its folder."""
    folder = path.rpartition("/")[0]
    if folder and folder.split("/")[0] not in _TRUSTED:
        return []
    if len(content) > _MOST_BYTES:
        return [
            file_finding(
                _GATE, "attributes", path, f"is larger than {_MOST_BYTES} bytes", "Keep only the lines that are needed."
            )
        ]
    found = []
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
    for number, line in enumerate(content.decode("utf-8", "replace").removeprefix("\ufeff").split("\n"), 1):
        match = _LINE.match(line.strip(" \t\r"))
        if match is None or line.lstrip(" \t\r").startswith("#"):
            continue
        if _may_mean_trusted(match["pattern"], folder):
            yield number, match["pattern"], re.split(r"[ \t\r]+", match["attributes"])


def _may_mean_trusted(pattern: str, folder: str) -> bool:
    """Whether a pattern of the attributes of `folder` can match a trusted file, now or later."""
    text = pattern.strip('"')
    if text.rpartition(".")[2].casefold() in _MEDIA:
        return False
    first, slash, _ = text.removeprefix("/").partition("/")
    anchored = text.startswith("/") or bool(slash)
    literal = not re.search(r"[*?\[\\]", first)
    return bool(folder) or not anchored or not literal or first in _TRUSTED
