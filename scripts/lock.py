"""Renews the hash-locked requirements; run by `make lock`. Pass `--upgrade` to move to the newest allowed versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_LOCKS = {
    "runtime.txt": ["pyproject.toml"],
    "dev.txt": ["pyproject.toml", "--extra", "pictures", "--group", "dev", "--constraints", "requirements/runtime.txt"],
    "bootstrap.txt": ["--group", "bootstrap"],
    "go.txt": ["--group", "go"],
    "zig.txt": ["--group", "zig"],
    "redis.txt": ["--group", "redis", "--no-deps"],
    "browser.txt": ["--group", "browser"],
    "compare.txt": ["--group", "compare"],
    # Only the extra: it shares no environment with this package.
    "serve.txt": ["-"],
    # guidellm takes two small classes of torch, for which bench/guidellm_without_torch.py stands in: it and CUDA's
    # libraries are 4.5 GB.
    "bench.txt": ["--group", "bench", "--excludes", "/dev/stdin"],
}


def main(arguments: list[str]) -> int:
    """Write every lock file; returns the exit status."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = {"serve.txt": "\n".join(project["optional-dependencies"]["serve"]), "bench.txt": "torch"}
    for name, sources in _LOCKS.items():
        lock = REPOSITORY / "requirements" / name
        command = [
            *(str(REPOSITORY / ".venv/bin/uv"), "pip", "compile", *sources, *arguments),
            *("--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"),
            *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
            *("--output-file", str(lock)),
        ]
        status = subprocess.run(command, cwd=REPOSITORY, check=False, input=given.get(name), text=True).returncode
        if status != 0:
            print(f"lock: uv could not resolve requirements/{name}; the file is as it was.")
            return status
        if hosts := re.findall(r"\S+://\S+", lock.read_text(encoding="utf-8")):
            print(f"lock: requirements/{name} names an address ({hosts[0]}); nobody else could install from it.")
            return 1
        print(f"requirements/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
