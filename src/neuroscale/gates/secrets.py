"""The secrets gate: gitleaks over every text that a change brings in, in any of its commits.

Allow comments, ignore files and a configuration inside the change are switched off: what is judged cannot pardon
itself. Known-bad texts go through the same run.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from neuroscale.errors import UntrustedError
from neuroscale.gates.check import Evaluation
from neuroscale.gates.process import run_tool
from neuroscale.verdict import Finding

GATE = "secrets"
_LEAKS_FOUND = 9
# Bytes. The magic numbers that gitleaks knows start within 264 bytes, but for one in files of more than 32774; the
# longest secret is a private key of a few KiB.
_BLANKS = b" ".ljust(511) + b"\n"
_PIECE = 30_000
_OVERLAP = 10_000
_ARCHIVES = {
    b"\x1f\x8b": ".gz",
    b"PK\x03\x04": ".zip",
    b"BZh": ".bz2",
    b"\xfd7zXZ\0": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"7z\xbc\xaf\x27\x1c": ".7z",
}
_REVOKE = (
    "Revoke the secret now: it is in the history. Refer to a Secret by secretKeyRef instead, and rewrite the commits "
    "so that they never held it."
)


@dataclass(frozen=True)
class Text:
    """Content to scan. `name` is the file; `place` names the commit that brought it, "" for the work tree."""

    name: str
    content: bytes
    place: Callable[[], str] = str


def evaluate_secrets(texts: Iterable[Text], gitleaks: Path, folder: Path) -> Evaluation:
    """Scan every text. `folder` is an empty scratch folder; secrets are never copied into a finding.

    Raises UntrustedError when gitleaks misses one of the known-bad texts or its answer cannot be read.
    """
    scanned = folder / "texts"
    scanned.mkdir(parents=True)
    by_file: dict[str, list[Text]] = {}
    lines_before: dict[str, int] = {}
    count = 0
    for text in texts:
        count += 1
        # One file for each content: a commit that only moves a file brings nothing new. Names say nothing, since
        # gitleaks leaves out files by their name.
        name = hashlib.sha256(text.content).hexdigest()
        by_file.setdefault(name, []).append(text)
        if len(by_file[name]) == 1:
            lines_before |= _write_pieces(_plain(text.content), scanned, name)
            if suffix := _archive_suffix(text.content):
                (scanned / f"{name}{suffix}").write_bytes(text.content)
    tripwires = _tripwires()
    for rule, content in tripwires.items():
        # Each lies across the end of a piece, in what passes for a program by its first letters.
        hidden = b"MZ".ljust(_PIECE - 10) + b"\n" + content.encode()
        lines_before |= _write_pieces(hidden, scanned, f"tripwire-{rule}")
    configuration = folder / "gitleaks.toml"
    configuration.write_text("[extend]\nuseDefault = true\n")
    report = folder / "report.json"
    run = run_tool(
        [
            gitleaks,
            *("dir", scanned, "--config", configuration, "--report-format", "json", "--report-path", report),
            *("--redact=100", "--ignore-gitleaks-allow", "--gitleaks-ignore-path", folder / "none"),
            *("--no-banner", "--log-level", "error", "--max-archive-depth", "3", "--exit-code", str(_LEAKS_FOUND)),
        ],
        folder=folder,
        timeout=120 + 0.02 * (len(by_file) + len(lines_before)),
        statuses=frozenset({0, 1, _LEAKS_FOUND}),
    )
    if run.exit_status != _LEAKS_FOUND:
        raise UntrustedError(
            f"gitleaks ended with exit status {run.exit_status} although known-bad texts were in its run. "
            f"It printed: {run.errors[-500:] or 'nothing'}"
        )
    findings: list[Finding] = []
    caught = set()
    try:
        for leak in json.loads(report.read_text()):
            file = Path(leak["File"].split("!", 1)[0]).name
            name = file.partition(".")[0]
            rule = str(leak["RuleID"])
            if name.startswith("tripwire-"):
                if name == f"tripwire-{rule}":
                    caught.add(rule)
                continue
            line = int(leak["StartLine"]) + lines_before.get(file, 0)
            findings.extend(_finding(text, rule, line, leak["Description"]) for text in by_file[name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UntrustedError(f"gitleaks' report cannot be read: {error!r}") from error
    if missed := sorted(set(tripwires) - caught):
        raise UntrustedError(f"gitleaks did not find its known-bad text for {', '.join(missed)}.")
    unique = {(finding.file, finding.line, finding.rule): finding for finding in findings}
    return Evaluation(tuple(unique.values()), count, count, "texts", len(tripwires), len(caught))


def _finding(text: Text, rule: str, line: int, description: str) -> Finding:
    place = text.place()
    where = f" (in {place})" if place else ""
    return Finding(
        gate=GATE, rule=rule, file=text.name, line=max(line, 1), message=f"{description}{where}", fix=_REVOKE
    )


def _plain(content: bytes) -> bytes:
    """Content that gitleaks reads: it leaves out what looks binary, and text in UTF-16 looks so."""
    try:
        content.decode("utf-8")
        if b"\0" not in content:
            return content
    except UnicodeDecodeError:
        pass
    return re.sub(rb"[^\t\n\r\x20-\x7e]", b" ", content.replace(b"\0", b""))


def _write_pieces(content: bytes, folder: Path, name: str) -> dict[str, int]:
    """Write content as files that gitleaks reads whole; returns what to add to a line in each of them.

    It leaves out a file whose first bytes look like a program or document, and cuts a long one without regard to what
    stands there. So each piece starts with a line of blanks, is short, and repeats the end of the one before.
    """
    added = {}
    lines = counted = 0
    for index, start in enumerate(range(0, max(len(content) - _OVERLAP, 1), _PIECE - _OVERLAP)):
        file = f"{name}.{index}"
        (folder / file).write_bytes(_BLANKS + content[start : start + _PIECE])
        lines += content.count(b"\n", counted, start)
        counted = start
        added[file] = lines - 1
    return added


def _archive_suffix(content: bytes) -> str:
    """The ending by which gitleaks knows an archive and looks into it; "" for anything else."""
    for magic, suffix in _ARCHIVES.items():
        if content.startswith(magic):
            with contextlib.suppress(tarfile.TarError, EOFError, OSError), tarfile.open(fileobj=io.BytesIO(content)):
                return f".tar{suffix}"
            return suffix
    return ""


def _tripwires() -> dict[str, str]:
    """A known-bad text for each kind of secret that this platform meets. Made here, so that none lies in Git."""

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
