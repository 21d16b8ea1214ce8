"""An OpenCost on a port of this machine that gives fixed answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def opencost_server(body: str, status: int = 200, inference: tuple[int, str] | None = None) -> Iterator[str]:
    """Its address, as long as it runs. It answers everything below /allocation/compute with `body`.

    `inference`: what it answers below /inferenceCost/total, as OpenCost does from 1.121 on; before that: 404.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = (404, "404 page not found")
            if self.path.startswith("/allocation/compute?"):
                told = (status, body)
            elif self.path.startswith("/inferenceCost/total?") and inference is not None:
                told = inference
            data = told[1].encode()
            self.send_response(told[0])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
