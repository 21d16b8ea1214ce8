"""The secrets check: gitleaks searches every text that a change brings in any of its commits.

Allow comments, ignore files and a configuration inside the change are switched off: a change cannot excuse its own
secrets. Known-bad texts go through the same run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.units import MIB
from neuroscale.gate.check import GateCheck, Run
from neuroscale.gate.checks.texts_in_archives import line_of_origin, look_inside
from neuroscale.gate.evaluation import Evaluation, file_finding
from neuroscale.gate.judged_files import LARGEST_TEXT, Text
from neuroscale.gate.run_upstream_tool import run_tool
from neuroscale.gate.verdict import Finding

GATE = "secrets"
_MOST_BYTES = 8 * MIB  # that one run searches, unpacked texts included
_MOST_TEXTS = 10_000
_MOST_LEAKS = 500
_MOST_PLACES = 100
_BATCH = MIB  # bytes that one run of gitleaks reads: its report on them fits in memory
_LEAKS_FOUND = 9
# In bytes. The magic numbers that gitleaks knows start within 264 bytes, except one in files of more than 32774 bytes;
# the longest secret is a private key of a few KiB.
_BLANKS = b" ".ljust(511) + b"\n"
_PIECE = 30_000
_OVERLAP = 10_000
_PRINTED = bytes(byte if byte in b"\t\n\r" or 0x20 <= byte < 0x7F else 0x20 for byte in range(256))
_REVOKE = (
    "Revoke the secret now: it is in the history. Refer to a Secret by secretKeyRef instead, and rewrite the commits "
    "so that they never held it."
)
_SPLIT = "Bring it in with several smaller changes."
_SHRINK = (
    "Keep large and packed files elsewhere (a model store, a registry, a release), or commit them unpacked in parts."
)


class SecretsCheck(GateCheck):
    """Whether any text of the input holds a secret. Hands the secrets on to the mask of the verdict."""

    name = GATE
    title = "Secrets"
    beside = True

    def evaluate(self, run: Run) -> Evaluation:
        evaluation, self.value = evaluate_secrets(
            run.subject.texts(), tool_cache.find("gitleaks"), run.folder / "secrets"
        )
        return evaluation


def evaluate_secrets(texts: Iterable[Text], gitleaks: Path, folder: Path) -> tuple[Evaluation, frozenset[str]]:
    """Scan every text. `folder` is an empty scratch folder.

    The second value holds the secrets, for the mask of reports: they are never copied into a finding.

    A text that is too large, or cannot be unpacked, is a finding. Raises UntrustedError if gitleaks misses one of the
    known-bad texts or its report cannot be read.
    """
    search = _Search(gitleaks, folder)
    for text in texts:
        search.add(text)
    search.scan()
    tripwires = len(_tripwires())
    seen = Evaluation(tuple(search.findings()), search.count, search.count, "texts", tripwires, tripwires)
    return seen, frozenset(search.secrets)


@dataclass(frozen=True)
class _Leak:
    """A secret that gitleaks found in a content."""

    rule: str
    line: int
    description: str


@dataclass
class _Content:
    """The secrets and unsearched parts of one content, and the texts that have this content."""

    texts: list[tuple[str, Callable[[], str]]] = field(default_factory=list)
    leaks: list[_Leak] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Piece:
    """A file that gitleaks reads: the content that it is a part of, and the lines that it comes from."""

    of: str
    lines_before: int
    origins: tuple[tuple[int, int], ...] = ()

    def line(self, number: int) -> int:
        number += self.lines_before
        return line_of_origin(self.origins, number) if self.origins else number


class _Search:
    """Passes the texts of one run through gitleaks, in batches."""

    def __init__(self, gitleaks: Path, folder: Path) -> None:
        self.count = 0
        self.secrets: set[str] = set()
        self._gitleaks = gitleaks
        self._folder = folder
        self._contents: dict[str, _Content] = {}
        self._pieces: dict[str, _Piece] = {}
        self._waiting = 0  # bytes of the pieces that gitleaks has not read
        self._room = _MOST_BYTES
        self._leaks = 0
        self._left_out: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, text: Text) -> None:
        """Search a text, unless a text with the same content was searched before."""
        self.count += 1
        # Each content is searched once: a commit that only moves a file brings nothing new. gitleaks does not get the
        # names, because it leaves out files with some names.
        size = text.unread or len(text.content)
        name = f"{size}-{text.name}" if text.unread else hashlib.sha256(text.content).hexdigest()
        known = self._contents.get(name)
        if known is None and (len(self._contents) >= _MOST_TEXTS or self._leaks > _MOST_LEAKS):
            self._left_out.append(text.name)
            return
        content = self._contents.setdefault(name, _Content())
        content.texts.append((text.name, text.place))
        if known is not None:
            return
        if size > LARGEST_TEXT:
            content.unread.append(f"has {size} bytes, and at most {LARGEST_TEXT} are searched")
        elif size > self._room:
            content.texts.pop()
            self._left_out.append(text.name)
        else:
            self._room -= size
            self._search(name, text, content)

    def _search(self, name: str, text: Text, content: _Content) -> None:
        plain = _plain(text.content)
        self._write(plain, name, ())
        inside = look_inside(text.name, text.content, plain, min(LARGEST_TEXT, self._room))
        content.unread.extend(inside.unread)
        for index, hidden in enumerate(inside.texts):
            self._room -= len(hidden.content)
            self._write(_plain(hidden.content), f"{name}.{index}", hidden.origins)

    def _write(self, content: bytes, name: str, origins: tuple[tuple[int, int], ...]) -> None:
        for piece, lines_before in _pieces_of(content):
            file = f"{name}.{len(self._pieces)}"
            self._store(file, piece, _Piece(name.partition(".")[0], lines_before, origins))
            if self._waiting >= _BATCH:
                self.scan()
            if self._leaks > _MOST_LEAKS:
                return  # a finding says that the search ended here

    def _store(self, file: str, content: bytes, piece: _Piece) -> None:
        scanned = self._folder / "texts"
        scanned.mkdir(exist_ok=True)
        (scanned / file).write_bytes(content)
        self._pieces[file] = piece
        self._waiting += len(content)

    def scan(self) -> None:
        """Run gitleaks over the waiting pieces and the known-bad texts."""
        tripwires = _tripwires()
        for rule, bad in tripwires.items():
            # Each lies across the end of a piece, in a content that looks like a program by its first letters.
            hidden = b"MZ".ljust(_PIECE - 10) + b"\n" + bad.encode()
            for index, (piece, lines_before) in enumerate(_pieces_of(hidden)):
                self._store(f"tripwire-{rule}.{index}", piece, _Piece(f"tripwire-{rule}", lines_before))
        caught = set()
        for rule, file, line, description, secret in _leaks(self._gitleaks, self._folder):
            known = self._pieces.get(file)
            if known is None:
                raise UntrustedError(f"gitleaks' report names a file that it was not given: {file!r}")
            of = known.of
            if of.startswith("tripwire-"):
                if of == f"tripwire-{rule}":
                    caught.add(rule)
                continue
            self._leaks += 1
            self.secrets.add(secret)
            if self._leaks <= _MOST_LEAKS:
                self._contents[of].leaks.append(_Leak(rule, known.line(line), description))
        if missed := sorted(set(tripwires) - caught):
            raise UntrustedError(f"gitleaks did not find its known-bad text for {', '.join(missed)}.")
        shutil.rmtree(self._folder / "texts")
        self._pieces.clear()
        self._waiting = 0

    def findings(self) -> list[Finding]:
        """The findings: secrets, and texts that were not searched."""
        unique: dict[tuple[str, int | None, str], Finding] = {}
        for content in self._contents.values():
            if not (content.leaks or content.unread):
                continue
            for file, place in content.texts:
                if len(unique) > _MOST_LEAKS:
                    break
                # Each call of `place` runs git to find the commit.
                where = f" (in {told})" if len(unique) < _MOST_PLACES and (told := place()) else ""
                found = [_leaked(file, leak, where) for leak in content.leaks]
                found += [_unsearched(file, f"{told}{where}") for told in content.unread]
                for finding in found:
                    unique.setdefault((finding.file, finding.line, finding.rule), finding)
        return [*self._ends(), *unique.values()]

    def _ends(self) -> Iterator[Finding]:
        if self._leaks > _MOST_LEAKS:
            more = self._leaks - _MOST_LEAKS
            told = f"and others hold {more} more secrets than are listed, and the search ended there"
            first = next(content.texts[0][0] for content in self._contents.values() if content.leaks)
            yield file_finding(GATE, "many-secrets", first, told, _REVOKE)
        if self._left_out:
            others = f" and {len(self._left_out) - 1} more texts are" if len(self._left_out) > 1 else " is"
            told = (
                f"{others.strip()} not searched for secrets: one run searches {_MOST_BYTES} bytes, {_MOST_TEXTS} texts "
                f"and up to {_MOST_LEAKS} secrets"
            )
            yield file_finding(GATE, "not-searched", self._left_out[0], told, _SPLIT)


def _leaks(gitleaks: Path, folder: Path) -> Iterator[tuple[str, str, int, str, str]]:
    """Rule, file, line, description and text of every secret that gitleaks finds in the folder's texts."""
    configuration = folder / "gitleaks.toml"
    configuration.write_text("[extend]\nuseDefault = true\n")
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    run = run_tool(
        [
            gitleaks,
            *("dir", folder / "texts", "--config", configuration, "--report-format", "json", "--report-path", report),
            *("--ignore-gitleaks-allow", "--gitleaks-ignore-path", folder / "none"),
            *("--no-banner", "--log-level", "error", "--exit-code", str(_LEAKS_FOUND)),
        ],
        folder=folder,
        timeout=180,
        statuses=frozenset({0, 1, _LEAKS_FOUND}),
    )
    if run.exit_status != _LEAKS_FOUND:
        raise UntrustedError(
            f"gitleaks ended with exit status {run.exit_status} although known-bad texts were in its run. "
            f"It printed: {run.errors[-500:] or 'nothing'}"
        )
    try:
        for leak in json.loads(report.read_text()):
            place = Path(leak["File"]).name, int(leak["StartLine"])
            yield str(leak["RuleID"]), *place, str(leak["Description"]), str(leak["Secret"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UntrustedError(f"gitleaks' report cannot be read: {error!r}") from error


def _leaked(file: str, leak: _Leak, where: str) -> Finding:
    message = f"{leak.description}{where}"
    return file_finding(GATE, leak.rule, file, message, _REVOKE, max(leak.line, 1))


def _unsearched(file: str, told: str) -> Finding:
    return file_finding(GATE, "not-searched", file, f"is not searched for secrets in full: it {told}", _SHRINK)


def _plain(content: bytes) -> bytes:
    """The content in a form that gitleaks reads: it leaves out content that looks binary, as UTF-16 does."""
    try:
        content.decode("utf-8")
        if b"\0" not in content:
            return content
    except UnicodeDecodeError:
        pass
    return content.translate(_PRINTED, b"\0")


def _pieces_of(content: bytes) -> Iterator[tuple[bytes, int]]:
    """The content as pieces that gitleaks reads in full, each with the number to add to its line numbers.

    gitleaks leaves out a file whose first bytes look like a program or document, and may cut a long one in the middle
    of a secret. So each piece starts with a line of blanks, is short, and repeats the end of the piece before.
    """
    lines = counted = 0
    for start in range(0, max(len(content) - _OVERLAP, 1), _PIECE - _OVERLAP):
        lines += content.count(b"\n", counted, start)
        counted = start
        yield _BLANKS + content[start : start + _PIECE], lines - 1


def _tripwires() -> dict[str, str]:
    """A known-bad text for each kind of secret that this platform meets, made here so that none is in Git."""

    def letters(alphabet: str, length: int) -> str:
        stream = b"".join(hashlib.sha256(bytes([index])).digest() for index in range(8))
        return "".join(alphabet[byte % len(alphabet)] for byte in stream[:length])

    lower = "abcdefghijklmnopqrstuvwxyz"
    mixed = lower + lower.upper() + "0123456789"
    begin, end = (f"-----{word} RSA PRIVATE KEY-----" for word in ("BEGIN", "END"))
    return {
        "huggingface-access-token": f"token: hf_{letters(lower + lower.upper(), 34)}\n",
        "github-pat": f"token: ghp_{letters(mixed, 36)}\n",
        "private-key": f"{begin}\n{letters(mixed, 64)}\n{letters(mixed, 60)}\n{end}\n",
    }
