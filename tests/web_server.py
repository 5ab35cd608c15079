"""A web server on loopback that keeps what it is sent, for tests of messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    body: bytes


class WebServer(ThreadingHTTPServer):
    """What it was sent is in `got`. It answers with `status`, or with the bytes of `raw`, which need be no HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[Request] = []
        self.status = 200
        self.raw = b""

    @property
    def place(self) -> str:
        """Its host and port, as addresses have them."""
        return f"127.0.0.1:{self.server_address[1]}"

    def to(self, path: str) -> list[bytes]:
        """The bodies that were sent to a path, in order."""
        return [one.body for one in self.got if one.path == path]


class _Handler(BaseHTTPRequestHandler):
    server: WebServer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.got.append(Request(self.command, self.path, body))
        if self.server.raw:
            self.wfile.write(self.server.raw)
            return
        self.send_response(self.server.status)
        self.end_headers()

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def web_server() -> Iterator[WebServer]:
    """A server at work; gone at the end."""
    made = WebServer()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()
