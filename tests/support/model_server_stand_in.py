"""Stands in for vLLM's server where only a kubelet's rules are tested: it takes its arguments and answers `/health`.

`--served-model-name` selects its behaviour: `ok`; `crash` (ends at once with exit status 3); `slow` (listens after two
seconds); `stubborn` (ignores SIGTERM); `writes` (says in which folders it can write); `sick` (is well until the file
`sick` lies in its folder); `done` (ends well).
"""

from __future__ import annotations

import argparse
import http.server
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as long as the server is well."""

    def do_GET(self) -> None:
        status = 503 if Path("sick").exists() else 200
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None: ...


def _can_write(folder: str) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def main() -> int:
    """Behave as asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    asked = parser.parse_args()
    print(f"I am process {os.getpid()} and listen on {asked.host}:{asked.port}", flush=True)
    print(f"the key has {len(os.environ.get('VLLM_API_KEY', ''))} characters", file=sys.stderr, flush=True)
    behaviour = asked.served_model_name
    if behaviour == "crash":
        print("cannot load the model", file=sys.stderr, flush=True)
        return 3
    if behaviour == "done":
        return 0
    if behaviour == "writes":
        for place in ("/tmp", "/var/tmp", "/dev/shm", "/", ".", os.environ["HOME"], os.environ["MODELS"]):
            print(f"{place}: {'can write' if _can_write(place) else 'cannot write'}", flush=True)
        print(f"temporary files lie in {tempfile.gettempdir()}", flush=True)
    if behaviour == "slow":
        time.sleep(2)
    server = http.server.ThreadingHTTPServer((asked.host, asked.port), Handler)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: print("I stay", flush=True))
    else:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    print("goodbye", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
