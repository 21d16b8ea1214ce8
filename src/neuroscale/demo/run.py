"""Runs the demo: the main job from answers to a merge, with the same commands that people type.

It works in the repository of an example organisation, which `neuroscale repository init` writes into a scratch folder,
and on a forge of its own: nothing else changes. It ends with an error when a step does not end as it must.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from neuroscale.actions.new_repository import digest_of_tool
from neuroscale.cluster.command_lines import own_program
from neuroscale.core import delivered
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.demo.forge import platform_steps
from neuroscale.demo.progress import Step, run_steps
from neuroscale.demo.setup import set_up_beside, wheel_of_tool
from neuroscale.demo.steps import DENSE_EXAMPLE, EXAMPLE, MANIFEST, START, Demo, Result, edit

_POLICY = "no-mutable-image-tags"


def run_demo(state: Path | None, wheel: Path | None, *, keep: bool) -> int:
    """Run every step, or those that an earlier run left; returns 0 when each ended as it must.

    `state`: the folder of the files of forge and cluster; `keep` leaves them running. `wheel`: the tool's own, where
    neither a checkout can build it nor the installation recorded it. Raises NeuroscaleError.
    """
    checkout = delivered.CHECKOUT
    again = "make demo" if checkout == Path.cwd() else f"make -C {shlex.quote(str(checkout))} demo"
    if state or wheel or keep or checkout is None:
        named = [("--state", state), ("--wheel", wheel)]
        options = [word for option, value in named if value for word in (option, str(value))]
        again = shlex.join([own_program(), "demo", *(["--keep"] if keep else []), *options])
    folder = state or (checkout or Path.cwd()) / ".state" / "demo"
    with wheel_of_tool(wheel) as file, set_up_beside() as rest:
        steps = [*_OWN_STEPS, *platform_steps(rest.wait)]
        prepare = partial(_make_repository, wheel=file)
        run_steps(steps, digest_of_tool(file), folder, keep=keep, again=again, prepare=prepare)
    return ExitStatus.PASSED


def _make_repository(demo: Demo, wheel: Path) -> None:
    """Do what docs/adopt.md tells an organisation to do first, with the example organisation's answers."""
    folder = demo.root.parent
    demo.heading("An organisation's own repository")
    shutil.copyfile(delivered.EXAMPLE_ANSWERS, folder / "answers.yaml")
    shutil.copyfile(wheel, folder / wheel.name)
    init = ("repository", "init", demo.root.name, "--answers", "answers.yaml", "--wheel", wheel.name)
    demo.neuroscale(*init, expect=ExitStatus.PASSED, folder=folder)
    demo.git("init", "--quiet", "--initial-branch=main")
    demo.commit("Our platform")


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
