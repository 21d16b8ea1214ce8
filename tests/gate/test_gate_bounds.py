"""No input takes the gate long or much memory: the gate reports what is too large or too much, and never passes it.

The checks that read what a change brings are run in a process of their own, whose time on processors and whose memory
are measured. Kyverno is left out: what it takes grows with the objects that it judges.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroscale.gate.judged_files import LARGEST_TEXT
from neuroscale.repo.git import LARGEST_OBJECT
from roots import CHECKOUT

pytestmark = pytest.mark.tools

SECONDS, MIB = 20, 1024
MEGABYTE = 2**20
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\ndata: "

JUDGE = """
import json, resource, sys
from pathlib import Path
from neuroscale.core import tool_cache
from neuroscale.core.errors import InputError
from neuroscale.gate.evaluation import Evaluation, guarded, problem_findings
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.judged_files import read_paths, texts_of_files
from neuroscale.gate.checks.catalog import load_platform
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.checks.secrets import evaluate_secrets
from neuroscale.repo.snapshot import FolderSnapshot, read_file
from neuroscale.request.service_request import load_request

folder, scratch = Path(sys.argv[1]), Path(sys.argv[2])
given = read_paths([folder], scratch)
platform = PlatformSources(FolderSnapshot(folder))

def request_findings():
    try:
        read_file(FolderSnapshot(folder), "./request.yaml", load_request)
    except InputError as error:
        return problem_findings("drift", "request", error)
    return []

checks = {
    "files": lambda: evaluate_files(given, None)[0],
    "secrets": lambda: evaluate_secrets(texts_of_files(given), tool_cache.find("gitleaks"), scratch / "secrets")[0],
    "drift": lambda: Evaluation(tuple(request_findings()), 1, 1, "files", 1, 1),
    "catalog": lambda: Evaluation(tuple(load_platform(platform)[0]), 3, 3, "parts", 1, 1),
}
results = [guarded(name, name, check) for name, check in checks.items()]
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
# Linux counts in ru_maxrss what the program that started this one held.
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(json.dumps({
    "rules": sorted({finding.rule for one in results for finding in one.findings}),
    "outcomes": [one.check.outcome for one in results],
    "bytes": sum(len(finding.model_dump_json()) for one in results for finding in one.findings),
    "seconds": sum(one.ru_utime + one.ru_stime for one in used),
    "mib": max(own, used[1].ru_maxrss) / 1024,
}))
"""


def secrets(line: str, count: int) -> bytes:
    letters = random.Random(1)
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "".join(line.format("".join(letters.choices(alphabet, k=34))) for _ in range(count)).encode()


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)


def overrides(count: int) -> bytes:
    return b"service: chat\noverrides:\n" + b"- {a: 1}\n" * count


def documents(count: int) -> bytes:
    return b"---\n".join(f"apiVersion: v1\nkind: A\nmetadata: {{name: a{index}}}\n".encode() for index in range(count))


INPUTS: dict[str, tuple[Callable[[], dict[str, bytes]], str]] = {
    "a large blob": (lambda: {"a.yaml": noise(LARGEST_OBJECT + 1)}, "not-searched"),
    "a blob that is searched": (lambda: {"a.yaml": noise(LARGEST_TEXT)}, "unreadable"),
    "several blobs": (lambda: {f"{name}.yaml": bytes([name]) * LARGEST_TEXT for name in (65, 66, 67)}, "not-searched"),
    "tokens": (lambda: {"a.yaml": secrets("hf_{}\n", 60_000)}, "many-secrets"),
    "keys": (lambda: {"a.yaml": secrets("api_key = '{}'\n", 40_000)}, "unreadable"),
    "Base64": (lambda: {"a.yaml": base64.b64encode(noise(2 * MEGABYTE))}, "unreadable"),
    "a bomb": (lambda: {"a.yaml": gzip.compress(bytes(200 * MEGABYTE), 1)}, "not-searched"),
    "a bomb in Base64": (
        lambda: {"a.yaml": b"a: " + base64.b64encode(gzip.compress(bytes(50 * MEGABYTE), 1))},
        "not-searched",
    ),
    "beginnings of archives": (lambda: {"a.yaml": b"H4sIAAAAAAAAAAAAAAAAAAAAAAAA\n" * 100_000}, "not-searched"),
    "escapes": (lambda: {"a.yaml": b'"' + rb"\x41" * 900_000 + b'"'}, "unreadable"),
    "a deep list": (
        lambda: {"a.yaml": (OBJECT + "{a: " * 90 + f"[{'1,' * 500_000}]" + "}" * 90).encode()},
        "unreadable",
    ),
    "many documents": (lambda: {f"{name}.yaml": documents(6_000) for name in "abc"}, "too-much"),
    "many overrides": (lambda: {"request.yaml": overrides(300_000)}, "request"),
    "many overrides in a file that is read": (lambda: {"request.yaml": overrides(14_000)}, "request"),
    "a platform with much in it": (
        lambda: {
            "platform/settings.yaml": b"a: [" + b"1, " * 100_000 + b"1]\n",
            **{f"platform/catalog/models/{name}.yaml": b"- 1\n" * 60_000 for name in range(6)},
            **{f"templates/llm-inference-service/{name}": b"${{" * 80_000 + b"\n" for name in ("template.yaml", "a")},
        },
        "invalid",
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_no_input_takes_long_or_much_memory(tmp_path: Path, name: str) -> None:
    made, rule = INPUTS[name]
    folder, scratch = tmp_path / "input", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    for file, content in made().items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, folder, scratch],
        cwd=CHECKOUT / "src",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert "untrusted" not in seen["outcomes"]
    assert rule in seen["rules"]
    assert seen["seconds"] < SECONDS
    assert seen["mib"] < MIB
    assert seen["bytes"] < 2 * MEGABYTE
