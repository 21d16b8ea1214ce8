"""Shows what the demo's services cost, by the meter, and what their plans said."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from neuroscale.cli.demo_steps import ENVIRONMENT, OTHER_SERVICE, SERVICE, Result
from neuroscale.cluster.endpoint.access import pods_of
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.local.control_plane import cluster

if TYPE_CHECKING:
    from neuroscale.cli.demo_steps import Demo
    from neuroscale.kube.client import Object
    from neuroscale.local.forge_setup import LocalForge

_READY_SECONDS = 180.0
_MINUTE = 60
_LEAST, _MOST = 1, 5  # minutes


def show(demo: Demo, local: LocalForge) -> None:
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
        for _ in attempts(_READY_SECONDS, pause=0.5):
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
