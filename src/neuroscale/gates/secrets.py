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
    count = 0
    for text in texts:
        count += 1
        # One file for each content: a commit that only moves a file brings nothing new. Names say nothing, since
        # gitleaks leaves out files by their name.
        name = hashlib.sha256(text.content).hexdigest()
        by_file.setdefault(name, []).append(text)
        if len(by_file[name]) == 1:
            (scanned / name).write_bytes(_plain(text.content))
            if suffix := _archive_suffix(text.content):
                (scanned / f"{name}{suffix}").write_bytes(text.content)
    tripwires = _tripwires()
    for rule, content in tripwires.items():
        (scanned / f"tripwire-{rule}").write_text(content)
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
        timeout=120 + 0.02 * len(by_file),
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
            name = Path(leak["File"].split("!", 1)[0]).name
            rule = str(leak["RuleID"])
            if name.startswith("tripwire-"):
                if name == f"tripwire-{rule}":
                    caught.add(rule)
                continue
            findings.extend(
                _finding(text, rule, int(leak["StartLine"]), leak["Description"])
                for text in by_file[name.partition(".")[0]]
            )
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
