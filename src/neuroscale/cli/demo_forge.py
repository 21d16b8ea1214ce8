"""Runs the second half of the demo: pull requests on a real forge, a deployed service, and its costs."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscale.cli import demo_live, demo_steps
from neuroscale.cli.demo_steps import ENVIRONMENT, LIVE, MANIFEST, OTHER_SERVICE, SERVICE, Result
from neuroscale.cluster.endpoint.access import pods_of
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.core.yaml_io import read_mapping
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.connect import connect
from neuroscale.forge.interface import MergeRefusedError, PullRequest, RepositoryRef
from neuroscale.forge.rest import Forge, wait_for_status
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.local.control_plane import cluster, kubeconfig
from neuroscale.local.forge_accounts import DEVELOPER, MAINTAINER, REQUIRED_STATUS
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.kwok import SIMULATED
from neuroscale.local.pages import Pages
from neuroscale.local.start_and_stop import Options, down, up
from neuroscale.repo.git import Git
from neuroscale.report.markdown import MARKER

if TYPE_CHECKING:
    from neuroscale.cli.demo_steps import Demo


_READY_SECONDS = 180
_HEALED_SECONDS = 60.0


def show_cluster(demo: Demo, local: LocalForge, merged: float) -> None:
    """Wait until the merged service is ready, then try changes that must fail.

    `merged`: the time of the merge, in seconds since 1970. Raises UntrustedError if a step does not end as it must.
    """
    demo.heading("11. Argo CD deploys the merged service")
    state = ("--state", str(local.state.folder))
    asked = (SERVICE, "--environment", ENVIRONMENT, "--wait", str(_READY_SECONDS))
    clone = demo.developers_clone
    demo.follow_main()
    demo.neuroscale("status", *asked, *state, expect=ExitStatus.PASSED, folder=clone)
    took = time.time() - merged
    with cluster(local.state) as live:
        manifest: Any = read_mapping((clone / MANIFEST).read_text(encoding="utf-8"), MANIFEST).value
        _where_it_runs(demo, live, manifest)
        demo.results.append(Result("The merged service", f"Synced and Ready {took:.0f} s after the merge"))
        demo.heading("12. The cluster refuses what the gate refuses, with the same message")
        _refused(demo, live, manifest)
        demo.heading("13. A change by hand does not last")
        _healed(demo, live, Identity.of(manifest))


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


def _refused(demo: Demo, live: Cluster, manifest: Object) -> None:
    moving = {**manifest, "metadata": {**manifest["metadata"], "name": f"{SERVICE}-newest"}}
    model = manifest["spec"]["predictor"]["model"]
    newest = {**model, "image": f"{model['image'].rsplit(':', 1)[0]}:latest"}
    moving["spec"] = {**manifest["spec"], "predictor": {**manifest["spec"]["predictor"], "model": newest}}
    demo.say(f"An InferenceService with the image {newest['image']}, sent straight to the API server:")
    try:
        live.create(moving)
    except RefusedError as error:
        demo.say(f"  {error.message}")
        if demo.refusal not in error.message:
            raise UntrustedError(f"the demo expected the gate's message: {demo.refusal}") from error
    else:
        raise UntrustedError("the demo expected the API server to refuse an image tag that moves.")
    demo.results.append(Result("The same image by hand", "refused by the live webhook, with the gate's message"))


def _healed(demo: Demo, live: Cluster, identity: Identity) -> None:
    wanted = _grace(live, identity)
    began = time.monotonic()
    live.merge(identity, {"spec": {"predictor": {"terminationGracePeriodSeconds": 1}}})
    demo.say("terminationGracePeriodSeconds of the live InferenceService was set to 1.")
    for _ in attempts(_HEALED_SECONDS, pause=0.2):
        if (found := _grace(live, identity)) == wanted:
            break
    else:
        raise UntrustedError(f"the demo expected {identity} to have {wanted} again; it has {found}.")
    took = time.monotonic() - began
    demo.say(f"It is {wanted} again, as in Git, after {took:.1f} s.")
    demo.results.append(Result("A change by hand", f"undone by Argo CD in {took:.1f} s"))


def _grace(live: Cluster, identity: Identity) -> Any:
    found = live.get(identity.group_version, identity.kind, identity.name, identity.namespace)
    if found is None:
        raise UntrustedError(f"the demo expected {identity} to exist.")
    return found["spec"]["predictor"].get("terminationGracePeriodSeconds")


_COST_READY_SECONDS = 180.0
_MINUTE = 60
_LEAST, _MOST = 1, 5  # minutes


def show_cost(demo: Demo, local: LocalForge) -> None:
    """Ask the meter about the last minutes in which both teams' services ran. Raises UntrustedError."""
    demo.heading("18. What the two teams' services cost, by OpenCost, and against their plans")
    minutes = _minutes(demo, local)
    demo.follow_main()
    asked = ("--window", f"{minutes}m", "--state", str(local.state.folder))
    clone = demo.developers_clone
    demo.neuroscale("showback", *asked, expect=ExitStatus.PASSED, folder=clone)
    demo.say(
        "The nodes are simulated: their accelerators cost what the catalog says, and they have more CPU and memory "
        "than real machines, so the idle costs are too high."
    )
    demo.neuroscale(
        *("reconcile", "--environment", ENVIRONMENT, "--dry-run"), *asked, expect=ExitStatus.PASSED, folder=clone
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
        demo.say(f"The meter gets {ends - time.time():.0f} s more.")
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


@dataclass(frozen=True)
class _Pulls:
    """The opened pull requests: one for the service that really runs, and one that was edited by hand."""

    live: PullRequest
    edited: PullRequest


def show(demo: Demo, state: Path, *, keep: bool) -> None:
    """Start forge and cluster, open pull requests as a developer, let the runner judge, merge, and see the services
    run.

    Forge and cluster are ended and their folder removed, unless `keep`; the remains of an earlier demo are removed
    first. Raises the errors of its parts.
    """
    demo.git("switch", "--quiet", "--force-create", "main", demo.start)
    if state.exists():
        demo.say("An earlier demo's forge and cluster are removed.")
        down(state, demo.say, delete=True)
    try:
        clock = time.monotonic()
        local = up(state, demo.root, Options(cluster=True, cost=True, pages=keep), demo.say)
        target = local.platform
        demo.say(f"All parts are healthy after {time.monotonic() - clock:.0f} s. {local.url}/{target.slug}")
        asked = time.time()
        pulls = _open(demo, local, target)
        _judged(demo, local, target, pulls, asked)
        merged = _merged(demo, local, target, pulls)
        demo_live.make_key(demo, local)
        show_cluster(demo, local, _two_teams(demo, local, target))
        demo_live.show(demo, local, demo_live.Times(asked, merged))
        demo_live.told_on_the_merged_one(demo, connect(target.clone_url, local.account(MAINTAINER).token()), pulls.live)
        show_cost(demo, local)
    except BaseException:
        if not keep:
            down(state, demo.say, delete=True)
        raise
    demo.heading("19. Where to look")
    if keep:
        token = local.account(DEVELOPER).token_file
        demo.say(f"Ask for a service on a page: {Pages(local.state).url} (sign in with the token in {token})")
        demo.say(f"The forge keeps running at {local.url}. Its pages have no styles, because its source lacks them.")
        for role in (DEVELOPER, MAINTAINER):
            account = local.account(role)
            demo.say(f"Sign in as {account.login}; the password is in {account.password_file}.")
        demo.say(f"export KUBECONFIG={kubeconfig(local.state)}")
        demo.say(f"neuroscale local status --state {state}")
        demo.say(f"neuroscale local down --delete --state {state}")
    else:
        down(state, demo.say, delete=True)
        demo.say(
            "Forge and cluster are gone. `neuroscale demo --keep` leaves them running, so that you can look around."
        )


def _open(demo: Demo, local: LocalForge, target: RepositoryRef) -> _Pulls:
    """Open both pull requests as the developer, who may only read the repository and so works in a fork."""
    demo.heading("6. A developer, who may only read the repository, asks for a model that runs on this machine")
    developer = local.account(DEVELOPER)
    clone = demo.developers_clone
    subprocess.run(["git", "clone", "--quiet", target.clone_url, str(clone)], check=True, capture_output=True)
    live = _requested(demo, local, target, LIVE.path, LIVE.example)
    demo.say("Asked again, nothing changes:")
    _requested(demo, local, target, LIVE.path, LIVE.example)

    demo.heading("7. A second pull request: an image edited by hand to :latest")
    forge = connect(target.clone_url, developer.token())
    commit = _edited_commit(demo, clone)
    git = Git(clone)
    try:
        fork = forge.fork().ref
        Branches(git, Access(target.clone_url, developer.token())).push(fork, _EDITED, commit, None)
    finally:
        git.close()
    edited = forge.open_pull("Use the newest image", "Always the newest image.", fork, _EDITED, "main")
    demo.say(edited.url)
    return _Pulls(live, edited)


def _requested(demo: Demo, local: LocalForge, target: RepositoryRef, service: str, answers: str) -> PullRequest:
    """The pull request that asks for a service, by the developer."""
    developer = local.account(DEVELOPER)
    clone = demo.developers_clone
    request = ("request", "--answers", answers, "--token-file", str(developer.token_file))
    demo.neuroscale(*request, expect=ExitStatus.PASSED, folder=clone)
    forge = connect(target.clone_url, developer.token())
    pull = forge.find_pull(developer.login, f"neuroscale/{service}", "main")
    if pull is None:
        raise UntrustedError(f"the demo expected a pull request that asks for {service}.")
    return pull


def _edited_commit(demo: Demo, clone: Path) -> str:
    """A service as rendered, with an image tag that moves."""
    scratch = demo_steps.Demo(clone, demo.console, demo.start)
    scratch.git("switch", "--quiet", "--create", _EDITED)
    scratch.neuroscale(*("new", "--answers", demo_steps.EXAMPLE), expect=ExitStatus.PASSED)
    demo_steps.edit(clone / demo_steps.MANIFEST, "vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:latest")
    scratch.commit("Use the newest image")
    return Git(clone).commit("HEAD", "HEAD")


def _judged(demo: Demo, local: LocalForge, target: RepositoryRef, pulls: _Pulls, began: float) -> None:
    demo.heading("8. The runner judges both, by the workflow of main")
    forge = connect(target.clone_url, local.account(MAINTAINER).token())
    for pull, wanted in ((pulls.live, "success"), (pulls.edited, "failure")):
        _await_verdict(demo, forge, pull, wanted)
        for line in _without_details(_comment(forge, pull)):
            demo.say(f"  | {line}")
    demo.results.append(
        demo_steps.Result("Two pull requests", f"judged by the runner {time.time() - began:.0f} s after the form")
    )


def _await_verdict(demo: Demo, forge: Forge, pull: PullRequest, wanted: str) -> None:
    status = wait_for_status(forge, pull.head_sha, REQUIRED_STATUS, _RUN_SECONDS)
    demo.say("")
    demo.say(f"{pull.url}  {status.context}: {status.state} ({status.description})", style="bold")
    if status.state != wanted:
        raise UntrustedError(f"the demo expected the status {wanted} for {pull.url} and got {status.state}.")


def _comment(forge: Forge, pull: PullRequest) -> str:
    found = [comment.body for comment in forge.comments(pull.number) if comment.body.startswith(MARKER)]
    if len(found) != 1:
        raise UntrustedError(f"the demo expected one comment of the gate on {pull.url} and found {len(found)}.")
    return "\n".join(line for line in found[0].splitlines() if not line.startswith("<!--"))


def _without_details(comment: str) -> list[str]:
    """The lines of a comment without the parts that its page shows folded."""
    lines, folded = [], False
    for line in comment.splitlines():
        folded = folded or line.startswith("<details>")
        if not folded or "<summary>" in line:
            lines.append(line)
        folded = folded and line != "</details>"
    return lines


def _merged(demo: Demo, local: LocalForge, target: RepositoryRef, pulls: _Pulls) -> float:
    """Try to merge both. Returns the time of the green one's merge, in seconds since 1970."""
    demo.heading("9. An owner approves both; only the green one can be merged")
    forge = connect(target.clone_url, local.account(MAINTAINER).token())
    forge.approve(pulls.edited.number, pulls.edited.head_sha)
    try:
        forge.merge(pulls.edited.number, pulls.edited.head_sha)
    except MergeRefusedError as error:
        demo.say(f"{pulls.edited.url}: {error}")
    else:
        raise UntrustedError(f"the demo expected the forge to refuse the merge of {pulls.edited.url}.")
    merged = _merge(demo, forge, pulls.live)
    demo.results.append(demo_steps.Result("The green pull request", "merged; the red one's merge was refused"))
    return merged


def _two_teams(demo: Demo, local: LocalForge, target: RepositoryRef) -> float:
    """Merge services of two teams on accelerators that this machine lacks. Returns the time of the first one's merge,
    in seconds since 1970.
    """
    demo.heading("10. While the model loads: two teams' services the same way, on L4s that are simulated")
    answers = {demo_steps.SERVICE: demo_steps.EXAMPLE, demo_steps.OTHER_SERVICE: str(_other_answers(demo))}
    forge = connect(target.clone_url, local.account(MAINTAINER).token())
    merged = []
    for name, file in answers.items():
        # One after the other: the gate judges a pull request again when main has moved.
        demo.follow_main()
        pull = _requested(demo, local, target, f"{demo_steps.ENVIRONMENT}/{name}", file)
        _await_verdict(demo, forge, pull, "success")
        merged.append(_merge(demo, forge, pull))
    return merged[0]


def _other_answers(demo: Demo) -> Path:
    """The dense model's answers without the override that was refused, for another team."""
    example = (demo.root / demo_steps.DENSE_EXAMPLE).read_text(encoding="utf-8")
    answers, _, _ = example.partition("overrides:")
    file = demo.root.parent / f"{demo_steps.OTHER_SERVICE}.yaml"
    file.write_text(answers, encoding="utf-8")
    demo_steps.edit(file, "team: team-alpha", f"team: {demo_steps.OTHER_TEAM}")
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
