"""Kyverno's command line that answers a repeated question from memory, for tests that ask it the same many times.

A question is an `apply` by one build of Kyverno, with its arguments and the contents of all files and folders that they
name: `test` reads files that its own files name, and is always Kyverno's own. All processes of a test run share the
memory, and so do the runs of a week on one machine. `make test-all` begins without one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from comparisons import ALL
from neuroscale.core import tool_cache

_PROGRAM = """#!{python} -IS
import hashlib, os, subprocess, sys, time

arguments = sys.argv[1:]
if arguments[:1] != ["apply"] or "-" in arguments:
    os.execv({kyverno!r}, [{kyverno!r}, *arguments])

def parts(argument):
    yield argument if not os.path.isabs(argument) else "a path"
    if "=" in argument:
        yield from parts(argument.partition("=")[2])
    if os.path.isfile(argument):
        with open(argument, "rb") as file:
            yield file.read()
    for folder, folders, files in os.walk(argument):
        folders.sort()
        for name in sorted(files):
            yield os.path.relpath(os.path.join(folder, name), argument)
            yield from parts(os.path.join(folder, name))

digest = hashlib.sha256({build!r}.encode())
for argument in arguments:
    for part in parts(argument):
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
kept = os.path.join({memory!r}, digest.hexdigest())
try:
    with open(kept, "rb") as file:
        if time.time() - os.fstat(file.fileno()).st_mtime > {seconds}:
            raise FileNotFoundError
        output = file.read()
except FileNotFoundError:
    done = subprocess.run([{kyverno!r}, *arguments], capture_output=True)
    output = b"%d\\n" % done.returncode + done.stdout
    sys.stderr.buffer.write(done.stderr)
    if done.returncode in (0, 1) and not done.stderr:
        with open(f"{{kept}}.{{os.getpid()}}", "wb") as file:
            file.write(output)
        os.replace(file.name, kept)
status, _, said = output.partition(b"\\n")
sys.stdout.buffer.write(said)
sys.exit(int(status))
"""


_SECONDS = 7 * 24 * 60 * 60
"""An older answer is asked for again."""


def cache_with_memory(folder: Path) -> Path:
    """A tool cache whose Kyverno remembers; everything else is that of set-up. Made once in `folder`."""
    made = folder / "cache-with-memory"
    if made.exists():
        return made
    kyverno = tool_cache.find_tool("kyverno")
    building = folder / f"cache-with-memory.{os.getpid()}"
    (building / "tools" / "kyverno").mkdir(parents=True)
    memory = made / "answers" if os.environ.get(ALL) else tool_cache.cache_folder() / "kyverno-answers"
    (building / "answers" if memory.is_relative_to(made) else memory).mkdir(exist_ok=True)
    for answer in memory.glob("*"):
        if time.time() - answer.stat().st_mtime > _SECONDS:
            answer.unlink(missing_ok=True)
    for there, here in ((tool_cache.cache_folder(), building), (kyverno.folder.parents[1], building / "tools")):
        for path in there.iterdir():
            if not (here / path.name).exists():
                (here / path.name).symlink_to(path)
    program = building / "tools" / "kyverno" / kyverno.folder.name / kyverno.name
    program.parent.mkdir()
    text = _PROGRAM.format(
        python=sys.executable,
        memory=str(memory),
        kyverno=str(kyverno.binary),
        build=kyverno.folder.name,
        seconds=_SECONDS,
    )
    program.write_text(text)
    program.chmod(0o755)
    (program.parent / tool_cache.STAMP).write_text(json.dumps({"size": len(text.encode())}))
    try:
        building.rename(made)
    except OSError:
        # Another worker was faster.
        assert made.exists()
    return made
