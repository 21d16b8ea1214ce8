"""Runs the demo: the main job from answers to a merge, with the same commands that people type.

It works in a clone of this repository in a scratch folder and on a forge of its own, so that this repository stays
untouched. The clone gets the example organisation's settings, teams and services, whatever this repository's names are.
It ends with an error when a step does not end as it must.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

from neuroscale.cluster.command_lines import own_program
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.demo.forge import platform_steps
from neuroscale.demo.progress import Step, run_steps
from neuroscale.demo.setup import set_up_beside
from neuroscale.demo.steps import DENSE_EXAMPLE, EXAMPLE, MANIFEST, START, Demo, Result, edit
from neuroscale.rendering.example_files import make_example
from neuroscale.repo.layout import find_root

_POLICY = "no-mutable-image-tags"


def run_demo(state: Path | None, *, keep: bool) -> int:
    """Run every step, or those that an earlier run left; returns 0 when each ended as it must.

    `state`: the folder of the files of forge and cluster; `keep` leaves them running. Raises StepFailedError.
    """
    source = find_root(Path.cwd())
    again = "make demo" if source == Path.cwd() else f"make -C {shlex.quote(str(source))} demo"
    if state or keep:
        options = [*(["--keep"] if keep else []), *(["--state", str(state)] if state else [])]
        again = shlex.join([own_program(), "demo", *options])
    with set_up_beside() as rest:
        steps = [*_OWN_STEPS, *platform_steps(rest.wait)]
        run_steps(
            steps, source, state or source / ".state" / "demo", keep=keep, again=again, prepare=_become_the_example
        )
    return ExitStatus.PASSED


def _become_the_example(demo: Demo) -> None:
    """Commit the example organisation's own files to main, where they differ."""
    if make_example(demo.root):
        demo.commit("Take the names of the example organisation")
        demo.say("The scratch clone gets the example organisation's settings, teams and services in place of yours.")


def _green(demo: Demo) -> None:
    demo.fresh_branch("support-chat", START)
    demo.neuroscale("new", "--answers", EXAMPLE, expect=ExitStatus.PASSED)
    demo.commit("Serve Gemma 4 26B-A4B for support-chat")
    start = time.monotonic()
    demo.neuroscale("gate", "--base", "main", "--head", "support-chat", expect=ExitStatus.PASSED)
    demo.results.append(Result("Gemma 4 26B-A4B QAT on one L4", f"green, in {duration(time.monotonic() - start)}"))


def _refused(demo: Demo) -> None:
    demo.neuroscale("plan", DENSE_EXAMPLE, expect=ExitStatus.FINDINGS)
    demo.results.append(Result("Gemma 4 31B QAT on one L4", "refused, with what works instead"))


def _caught(demo: Demo) -> None:
    demo.fresh_branch("edited", "support-chat")
    edit(demo.root / MANIFEST, "vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:latest")
    demo.commit("Use the newest image")
    report = demo.root.parent / "verdict.json"
    demo.neuroscale("gate", "--base", "main", "--head", "edited", "--json", str(report), expect=ExitStatus.FINDINGS)
    findings: list[dict[str, Any]] = json.loads(report.read_text())["findings"]
    wanted = ("policy", _POLICY, MANIFEST)
    messages = [each["message"] for each in findings if (each["gate"], each["rule"], each["file"]) == wanted]
    if len(messages) != 1:
        raise UntrustedError(f"the demo expected one finding of the policy {_POLICY} for {MANIFEST}.")
    demo.facts["refusal"] = messages[0]
    demo.results.append(Result("A mutable image tag", f"caught by the policy {_POLICY} (and as drift)"))


def _sabotaged(demo: Demo) -> None:
    demo.fresh_branch("main", START)
    policy = demo.root / "policies" / _POLICY / "policy.yaml"
    text = policy.read_text()
    place = text.index("- expression:")
    policy.write_text(text[:place] + text[place:].replace("- expression:", "- expression: no_such_function() &&", 1))
    demo.commit("Break a policy")
    demo.git("rebase", "--quiet", "--onto", "main", "support-chat~1", "support-chat")
    demo.neuroscale("gate", "--base", "main", "--head", "support-chat", expect=ExitStatus.UNTRUSTED)
    demo.results.append(Result("A policy that does not load", "exit status 3: no verdict, and no green"))


_OWN_STEPS = (
    Step("Gemma 4 26B-A4B QAT: answers, plan, manifests, green", _green),
    Step("Gemma 4 31B QAT on one L4: refused, with the numbers", _refused),
    Step("A rendered file edited by hand: caught by the policy gate, by name", _caught),
    Step("A policy that does not load: the gate says so, and gives no verdict", _sabotaged),
)
