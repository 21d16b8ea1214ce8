"""Runs the second half of the demo: pull requests on a real forge, a deployed service, and its costs."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscale.cluster.endpoint.access import pods_of
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.core.waiting import attempts
from neuroscale.core.yaml_io import read_mapping
from neuroscale.demo import live, steps
from neuroscale.demo.progress import Step
from neuroscale.demo.steps import ENVIRONMENT, LIVE, MANIFEST, OTHER_SERVICE, PLATFORM, SERVICE, Result
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.connect import connect
from neuroscale.forge.interface import MergeRefusedError, PullRequest
from neuroscale.forge.rest import Forge, wait_for_status
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.local.control_plane import cluster, kubeconfig
from neuroscale.local.forge_accounts import DEVELOPER, MAINTAINER
from neuroscale.local.forge_repository import REQUIRED_STATUS
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.kwok import SIMULATED
from neuroscale.local.pages import Pages
from neuroscale.local.start_and_stop import Options, down, up
from neuroscale.repo.git import Git
from neuroscale.report.markdown import MARKER

if TYPE_CHECKING:
    from neuroscale.demo.steps import Demo


_READY_SECONDS = 180
_HEALED_SECONDS = 60.0


def _deployed(demo: Demo, local: LocalForge) -> None:
    state = ("--state", str(local.state.folder))
    arguments = (SERVICE, "--environment", ENVIRONMENT, "--wait", str(_READY_SECONDS))
    demo.follow_main()
    demo.neuroscale("status", *arguments, *state, expect=ExitStatus.PASSED, folder=demo.developers_clone)
    took = time.time() - demo.facts["merged_first_team"]
    with cluster(local.state) as live:
        _where_it_runs(demo, live, _manifest(demo))
    demo.results.append(Result("The merged service", f"Synced and Ready {duration(took)} after the merge"))


def _manifest(demo: Demo) -> Any:
    return read_mapping((demo.developers_clone / MANIFEST).read_text(encoding="utf-8"), MANIFEST).value


def _where_it_runs(demo: Demo, live: Cluster, manifest: Object) -> None:
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    pods = pods_of(live, namespace, name)
    for pod in pods:
        node = live.get("v1", "Node", pod["spec"]["nodeName"])
        if node is None or node["metadata"]["labels"].get(SIMULATED) != "true":
            raise UntrustedError(f"the demo expected {pod['metadata']['name']} on a simulated node.")
        demo.say(
            f"{pod['metadata']['name']} runs on {pod['spec']['nodeName']}. That node is simulated, and so is the "
            f"pod's readiness: it has no GPU and no vLLM. API server, scheduler, KServe and Argo CD are real."
        )


def _refused(demo: Demo, local: LocalForge) -> None:
    manifest = _manifest(demo)
    moving = {**manifest, "metadata": {**manifest["metadata"], "name": f"{SERVICE}-newest"}}
    model = manifest["spec"]["predictor"]["model"]
    newest = {**model, "image": f"{model['image'].rsplit(':', 1)[0]}:latest"}
    moving["spec"] = {**manifest["spec"], "predictor": {**manifest["spec"]["predictor"], "model": newest}}
    demo.say(f"An InferenceService with the image {newest['image']}, sent straight to the API server:")
    refusal = demo.facts["refusal"]
    try:
        with cluster(local.state) as live:
            live.create(moving)
    except RefusedError as error:
        demo.say(f"  {error.message}")
        if refusal not in error.message:
            raise UntrustedError(f"the demo expected the gate's message: {refusal}") from error
    else:
        raise UntrustedError("the demo expected the API server to refuse an image tag that moves.")
    demo.results.append(Result("The same image by hand", "refused by the live webhook, with the gate's message"))


def _healed(demo: Demo, local: LocalForge) -> None:
    manifest = _manifest(demo)
    identity, wanted = Identity.of(manifest), manifest["spec"]["predictor"].get("terminationGracePeriodSeconds")
    with cluster(local.state) as live:
        began = time.monotonic()
        live.merge(identity, {"spec": {"predictor": {"terminationGracePeriodSeconds": 1}}})
        demo.say("terminationGracePeriodSeconds of the live InferenceService was set to 1.")
        for _ in attempts(_HEALED_SECONDS, pause=0.2):
            if (present := _grace(live, identity)) == wanted:
                break
        else:
            raise UntrustedError(f"the demo expected {identity} to have {wanted} again; it has {present}.")
    took = time.monotonic() - began
    demo.say(f"It is {wanted} again, as in Git, after {duration(took)}.")
    demo.results.append(Result("A change by hand", f"undone by Argo CD in {duration(took)}"))


def _grace(live: Cluster, identity: Identity) -> Any:
    service = live.get(identity.group_version, identity.kind, identity.name, identity.namespace)
    if service is None:
        raise UntrustedError(f"the demo expected {identity} to exist.")
    return service["spec"]["predictor"].get("terminationGracePeriodSeconds")


_COST_READY_SECONDS = 180.0
_MINUTE = 60
_LEAST, _MOST = 1, 5  # minutes


def _cost(demo: Demo, local: LocalForge) -> None:
    """Ask the meter about the last minutes in which both teams' services ran."""
    minutes = _minutes(demo, local)
    demo.follow_main()
    arguments = ("--window", f"{minutes}m", "--state", str(local.state.folder))
    clone = demo.developers_clone
    demo.neuroscale("showback", *arguments, expect=ExitStatus.PASSED, folder=clone)
    demo.say(
        "The nodes are simulated: their accelerators cost what the catalog says, and they have more CPU and memory "
        "than real machines, so the idle costs are too high."
    )
    demo.neuroscale(
        *("reconcile", "--environment", ENVIRONMENT, "--dry-run"), *arguments, expect=ExitStatus.PASSED, folder=clone
    )
    demo.results.append(
        Result("The last minutes", f"metered ({minutes}), divided between two teams and compared with their plans")
    )


def _minutes(demo: Demo, local: LocalForge) -> int:
    """The whole minutes, at most 5, in which both services ran until now; waits until there is one."""
    begins = _both_run_since(local)
    # The meter sees a pod some seconds later.
    begins = (int(begins) // _MINUTE + 1) * _MINUTE
    ends = begins + _LEAST * _MINUTE
    if time.time() < ends:
        demo.say(f"The meter gets {duration(ends - time.time())} more.")
    while time.time() < ends:
        time.sleep(1.0)
    return min(_MOST, int(time.time() - begins) // _MINUTE)


def _both_run_since(local: LocalForge) -> float:
    """When the last pod of both services started, in seconds since 1970."""
    with cluster(local.state) as live:
        for _ in attempts(_COST_READY_SECONDS, pause=0.5):
            pods = [pods_of(live, "", name) for name in (SERVICE, OTHER_SERVICE)]
            started = [_started(pod) for of in pods for pod in of]
            if all(pods) and None not in started:
                return max(filter(None, started))
    raise UntrustedError(f"the demo expected {SERVICE} and {OTHER_SERVICE} to run.")


def _started(pod: Object) -> float | None:
    for status in pod["status"].get("containerStatuses") or ():
        if running := status.get("state", {}).get("running"):
            return datetime.fromisoformat(running["startedAt"]).timestamp()
    return None


_EDITED = "support-chat-newest"
_RUN_SECONDS = 600.0


def platform_steps(set_up: Callable[[Callable[[str], None]], None]) -> list[Step]:
    """The steps on a forge and a cluster. `set_up` waits until all that they need is there."""

    def begin(demo: Demo) -> None:
        set_up(demo.say)
        demo.fresh_branch("main", steps.START)
        if demo.state.exists():
            demo.say("An earlier demo's forge and cluster are removed.")
            down(demo.state, demo.say, delete=True)
        demo.facts[PLATFORM] = True
        started(demo)

    running: list[LocalForge] = []

    def started(demo: Demo) -> LocalForge:
        if not running:
            clock = time.monotonic()
            running.append(up(demo.state, demo.root, Options(cluster=True, cost=True, pages=demo.keep), demo.say))
            local = running[0]
            took = duration(time.monotonic() - clock)
            demo.say(f"All parts are healthy after {took}. {local.url}/{local.platform.slug}")
        return running[0]

    def step(title: str, work: Callable[[Demo, LocalForge], None]) -> Step:
        return Step(title, lambda demo: work(demo, started(demo)))

    return [
        Step("A real forge and a real cluster on this machine", begin),
        step("A developer, who may only read the repository, asks for a model that runs on this machine", _asked),
        step("A second pull request: an image edited by hand to :latest", _edited),
        step("The runner judges both, by the workflow of main", _judged),
        step("An owner approves both; only the green one can be merged", _merged),
        step("While the model loads: two teams' services the same way, on L4s that are simulated", _two_teams),
        step("Argo CD deploys the merged service", _deployed),
        step("The cluster refuses what the gate refuses, with the same message", _refused),
        step("A change by hand does not last", _healed),
        step("A real vLLM loads the tiny model, on this machine's CPU", live.loads),
        step("It answers (its weights are random, and so are its words)", live.answers),
        step("Smoke tests: the running service matches its request", live.is_tested),
        step("The forge's runner tests it too, and comments on the merged pull request", _commented),
        step("What the two teams' services cost, by OpenCost, and against their plans", _cost),
        step("Where to look", _left),
    ]


def _left(demo: Demo, local: LocalForge) -> None:
    """End forge and cluster and remove their files, or say how to look around."""
    if not demo.keep:
        down(demo.state, demo.say, delete=True)
        demo.say(
            "Forge and cluster are gone. `neuroscale demo --keep` leaves them running, so that you can look around."
        )
        return
    token = local.account(DEVELOPER).token_file
    demo.say(f"Ask for a service on a page: {Pages(local.state).url} (sign in with the token in {token})")
    demo.say(f"The forge keeps running at {local.url}. Its pages have no styles, because its source lacks them.")
    for role in (DEVELOPER, MAINTAINER):
        account = local.account(role)
        demo.say(f"Sign in as {account.login}; the password is in {account.password_file}.")
    demo.say(f"export KUBECONFIG={kubeconfig(local.state)}")
    demo.say(f"neuroscale local status --state {demo.state}")
    demo.say(f"neuroscale local down --delete --state {demo.state}")


def _asked(demo: Demo, local: LocalForge) -> None:
    """Open a pull request as the developer, who may only read the repository and so works in a fork."""
    demo.facts.setdefault("asked", time.time())
    clone = demo.developers_clone
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", local.platform.clone_url, str(clone)], check=True, capture_output=True)
    _requested(demo, local, LIVE.path, LIVE.example)
    demo.say("Asked again, nothing changes:")
    demo.facts["live"] = _requested(demo, local, LIVE.path, LIVE.example).number


def _edited(demo: Demo, local: LocalForge) -> None:
    developer, target = local.account(DEVELOPER), local.platform
    forge = connect(target.clone_url, developer.token())
    commit = _edited_commit(demo)
    git = Git(demo.developers_clone)
    try:
        fork = forge.fork().ref
        branches = Branches(git, Access(target.clone_url, developer.token()))
        branches.push(fork, _EDITED, commit, branches.tip(fork, _EDITED))
    finally:
        git.close()
    edited = forge.open_pull("Use the newest image", "Always the newest image.", fork, _EDITED, "main")
    demo.facts["edited"] = edited.number
    demo.say(edited.url)


def _pulls(demo: Demo, forge: Forge) -> tuple[PullRequest, PullRequest]:
    """The pull request for the service that really runs, and the one that was edited by hand."""
    return forge.pull(demo.facts["live"]), forge.pull(demo.facts["edited"])


def _owner(local: LocalForge) -> Forge:
    return connect(local.platform.clone_url, local.account(MAINTAINER).token())


def _commented(demo: Demo, local: LocalForge) -> None:
    forge = _owner(local)
    live.is_reported(demo, forge, _pulls(demo, forge)[0])


def _requested(demo: Demo, local: LocalForge, service: str, answers: str) -> PullRequest:
    """The pull request that asks for a service, by the developer; an earlier run may have merged it."""
    developer = local.account(DEVELOPER)
    clone = demo.developers_clone
    request = ("request", "--answers", answers, "--token-file", str(developer.token_file))
    demo.neuroscale(*request, expect=ExitStatus.PASSED, folder=clone)
    forge = connect(local.platform.clone_url, developer.token())
    pull = forge.last_pull(forge.fork().ref, f"neuroscale/{service}", "main")
    if pull is None:
        raise UntrustedError(f"the demo expected a pull request that asks for {service}.")
    return pull


def _edited_commit(demo: Demo) -> str:
    """A service as rendered, with an image tag that moves."""
    clone = demo.developers_clone
    scratch = steps.Demo(clone, demo.log, demo.state)
    scratch.fresh_branch(_EDITED, "origin/main")
    scratch.neuroscale(*("new", "--answers", steps.EXAMPLE), expect=ExitStatus.PASSED)
    steps.edit(clone / steps.MANIFEST, "vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:latest")
    scratch.commit("Use the newest image")
    return Git(clone).commit("HEAD", "HEAD")


def _judged(demo: Demo, local: LocalForge) -> None:
    forge = _owner(local)
    for pull, wanted in zip(_pulls(demo, forge), ("success", "failure"), strict=True):
        _await_verdict(demo, forge, pull, wanted)
        for line in _without_details(_comment(forge, pull)):
            demo.say(f"  | {line}")
    took = time.time() - demo.facts["asked"]
    demo.results.append(Result("Two pull requests", f"judged by the runner {duration(took)} after the form"))


def _await_verdict(demo: Demo, forge: Forge, pull: PullRequest, wanted: str) -> None:
    status = wait_for_status(forge, pull.head_sha, REQUIRED_STATUS, _RUN_SECONDS)
    demo.say("")
    demo.say(f"{pull.url}  {status.context}: {status.state} ({status.description})", style="bold")
    if status.state != wanted:
        raise UntrustedError(f"the demo expected the status {wanted} for {pull.url} and got {status.state}.")


def _comment(forge: Forge, pull: PullRequest) -> str:
    comments = [comment.body for comment in forge.comments(pull.number) if comment.body.startswith(MARKER)]
    if len(comments) != 1:
        raise UntrustedError(f"the demo expected one comment of the gate on {pull.url} and found {len(comments)}.")
    return "\n".join(line for line in comments[0].splitlines() if not line.startswith("<!--"))


def _without_details(comment: str) -> list[str]:
    """The lines of a comment without the parts that its page shows folded."""
    lines, folded = [], False
    for line in comment.splitlines():
        folded = folded or line.startswith("<details>")
        if not folded or "<summary>" in line:
            lines.append(line)
        folded = folded and line != "</details>"
    return lines


def _merged(demo: Demo, local: LocalForge) -> None:
    """Try to merge both, and make the key of the service."""
    forge = _owner(local)
    green, edited = _pulls(demo, forge)
    forge.approve(edited.number, edited.head_sha)
    try:
        forge.merge(edited.number, edited.head_sha)
    except MergeRefusedError as error:
        demo.say(f"{edited.url}: {error}")
    else:
        raise UntrustedError(f"the demo expected the forge to refuse the merge of {edited.url}.")
    demo.facts["merged"] = _merge(demo, forge, green)
    demo.results.append(Result("The green pull request", "merged; the red one's merge was refused"))
    live.make_key(demo, local)


def _two_teams(demo: Demo, local: LocalForge) -> None:
    """Merge services of two teams on accelerators that this machine lacks."""
    answers = {SERVICE: steps.EXAMPLE, OTHER_SERVICE: str(_other_answers(demo))}
    forge = _owner(local)
    for name, file in answers.items():
        # One after the other: the gate judges a pull request again when main has moved.
        demo.follow_main()
        pull = _requested(demo, local, f"{ENVIRONMENT}/{name}", file)
        _await_verdict(demo, forge, pull, "success")
        merged = _merge(demo, forge, pull)
        demo.facts.setdefault("merged_first_team", merged)


def _other_answers(demo: Demo) -> Path:
    """The dense model's answers without the override that was refused, for another team."""
    example = (demo.root / steps.DENSE_EXAMPLE).read_text(encoding="utf-8")
    answers, _, _ = example.partition("overrides:")
    file = demo.root.parent / f"{steps.OTHER_SERVICE}.yaml"
    file.write_text(answers, encoding="utf-8")
    steps.edit(file, "team: team-alpha", f"team: {steps.OTHER_TEAM}")
    return file


def _merge(demo: Demo, forge: Forge, pull: PullRequest) -> float:
    """Approve and merge. Returns the time of the merge, in seconds since 1970."""
    forge.approve(pull.number, pull.head_sha)
    began = time.time()
    forge.merge(pull.number, pull.head_sha)
    if forge.pull(pull.number).state != "merged":
        raise UntrustedError(f"the demo expected {pull.url} to be merged.")
    demo.say(f"{pull.url}: merged")
    return began
