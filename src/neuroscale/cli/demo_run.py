"""Runs the demo: the main job from answers to a merge, with the same commands that people type.

It works in a clone of this repository in a scratch folder and on a forge of its own, so that this repository stays
untouched, and ends with an error when a step does not end as it must.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from neuroscale.cli.demo_forge import show as show_platform
from neuroscale.cli.demo_setup import set_up_beside
from neuroscale.cli.demo_steps import DENSE_EXAMPLE, EXAMPLE, MANIFEST, Demo, Result, edit
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.repo.git import Git
from neuroscale.repo.layout import find_root

_POLICY = "no-mutable-image-tags"


def run_demo(state: Path | None, *, keep: bool) -> int:
    """Run every step; returns 0 when each ended as it must.

    `state`: the folder of the files of forge and cluster; `keep` leaves them running.
    """
    console = Console(highlight=False)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="neuroscale-demo-") as scratch, set_up_beside() as rest:
        root = Path(scratch) / "platform"
        source = find_root(Path.cwd())
        clone = ["git", "clone", "--quiet", "--no-hardlinks", "--branch", _branch(source), str(source), str(root)]
        subprocess.run(clone, check=True, capture_output=True)
        git = Git(root)
        demo = Demo(root, console, git.commit("HEAD", "HEAD"))
        git.close()
        demo.git("switch", "--quiet", "--force-create", "main")
        for step in (_green, _refused, _caught, _sabotaged):
            step(demo)
        demo.heading("5. A real forge and a real cluster on this machine")
        rest.wait(demo.say)
        show_platform(demo, state or source / ".state" / "demo", keep=keep)
    demo.heading("What was shown")
    for result in demo.results:
        console.print(f"  {result.title}: {result.told}", markup=False)
    console.print(f"  {time.monotonic() - start:.0f} s. This repository is unchanged: the demo ran in a scratch clone.")
    return ExitStatus.PASSED


def _branch(source: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(source), "symbolic-ref", "--quiet", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UntrustedError("the repository is on no branch. Run `git switch -c demo` first.")
    return done.stdout.strip()


def _green(demo: Demo) -> None:
    demo.heading("1. Gemma 4 26B-A4B QAT: answers, plan, manifests, green")
    demo.git("switch", "--quiet", "--create", "support-chat")
    demo.neuroscale("new", "--answers", EXAMPLE, expect=ExitStatus.PASSED)
    demo.commit("Serve Gemma 4 26B-A4B for support-chat")
    start = time.monotonic()
    demo.neuroscale("gate", "--base", "main", "--head", "support-chat", expect=ExitStatus.PASSED)
    demo.results.append(Result("Gemma 4 26B-A4B QAT on one L4", f"green, in {time.monotonic() - start:.1f} s"))


def _refused(demo: Demo) -> None:
    demo.heading("2. Gemma 4 31B QAT on one L4: refused, with the numbers")
    demo.neuroscale("plan", DENSE_EXAMPLE, expect=ExitStatus.FINDINGS)
    demo.results.append(Result("Gemma 4 31B QAT on one L4", "refused, with what works instead"))


def _caught(demo: Demo) -> None:
    demo.heading("3. A rendered file edited by hand: caught by the policy gate, by name")
    demo.git("switch", "--quiet", "--create", "edited")
    edit(demo.root / MANIFEST, "vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:latest")
    demo.commit("Use the newest image")
    report = demo.root.parent / "verdict.json"
    demo.neuroscale("gate", "--base", "main", "--head", "edited", "--json", str(report), expect=ExitStatus.FINDINGS)
    findings: list[dict[str, Any]] = json.loads(report.read_text())["findings"]
    wanted = ("policy", _POLICY, MANIFEST)
    told = [one["message"] for one in findings if (one["gate"], one["rule"], one["file"]) == wanted]
    if len(told) != 1:
        raise UntrustedError(f"the demo expected one finding of the policy {_POLICY} for {MANIFEST}.")
    demo.refusal = told[0]
    demo.results.append(Result("A mutable image tag", f"caught by the policy {_POLICY} (and as drift)"))


def _sabotaged(demo: Demo) -> None:
    demo.heading("4. A policy that does not load: the gate says so, and gives no verdict")
    demo.git("switch", "--quiet", "main")
    policy = demo.root / "policies" / _POLICY / "policy.yaml"
    text = policy.read_text()
    place = text.index("- expression:")
    policy.write_text(text[:place] + text[place:].replace("- expression:", "- expression: no_such_function() &&", 1))
    demo.commit("Break a policy")
    demo.git("switch", "--quiet", "support-chat")
    demo.git("rebase", "--quiet", "main")
    demo.neuroscale("gate", "--base", "main", "--head", "support-chat", expect=ExitStatus.UNTRUSTED)
    demo.results.append(Result("A policy that does not load", "exit status 3: no verdict, and no green"))
