"""Shows that the demo's merged service runs in a cluster, and that the cluster refuses what the gate refuses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from neuroscale.cli.demo_steps import ENVIRONMENT, MANIFEST, SERVICE, Result
from neuroscale.cluster.endpoint.access import pods_of
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.core.yaml_io import read_mapping
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.local.control_plane import cluster
from neuroscale.local.nodes import SIMULATED

if TYPE_CHECKING:
    from neuroscale.cli.demo_steps import Demo
    from neuroscale.local.forge_setup import LocalForge

_READY_SECONDS = 180
_HEALED_SECONDS = 60.0


def show(demo: Demo, local: LocalForge, merged: float) -> None:
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
