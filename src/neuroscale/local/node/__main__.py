"""Runs the agent of the local platform's own node for the supervisor: `python -m neuroscale.local.node STATE`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from neuroscale.core.errors import NeuroscaleError
from neuroscale.local.node.service import run
from neuroscale.local.process import say
from neuroscale.local.state import State


def main(folder: Path) -> int:
    """Run until SIGTERM."""
    state = State.read(folder)
    if state is None:
        say(f"{folder} does not hold a local platform")
        return 2
    agent, health = run(state, say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    with health.serve():
        agent.run()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except NeuroscaleError as error:
        say(str(error))
        sys.exit(error.exit_status)
