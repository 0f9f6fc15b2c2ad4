"""A collector, or what listens in its place, answers what it is sent with gigabytes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from toolgate.telemetry import otlp

pytest.importorskip("requests")
ENDLESS = 256 * 1024 * 1024  # bytes that it would send, in a bounded test


class _Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.accepted.append(self.headers["Accept-Encoding"])
        self.send_response(self.server.status)
        if self.server.body is not None:
            self.send_header("Content-Length", str(len(self.server.body)))
            self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(self.server.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while self.server.sent < ENDLESS:
                self.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                self.server.sent += 0x10000
        except OSError:
            self.close_connection = True
        self.server.is_over.set()

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def collector(status: int = 200, body: bytes | None = None) -> Generator[Any]:
    with HTTPServer(("127.0.0.1", 0), _Collector) as server:
        there: Any = server
        there.status, there.body, there.sent, there.accepted, there.is_over = status, body, 0, [], threading.Event()
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield there
        finally:
            server.shutdown()
            serving.join(30)


@pytest.mark.parametrize("status", [200, 302, 500])
def test_of_an_answer_without_end_the_beginning_is_read(status: int) -> None:
    with collector(status) as there, otlp.session() as session:
        answer = session.post(f"http://127.0.0.1:{there.server_port}/v1/traces", data=b"spans", timeout=30)
        assert (answer.status_code, len(answer.content)) == (status, otlp.MOST_READ)
        assert there.is_over.wait(30) and there.sent < ENDLESS


def test_nothing_is_decoded() -> None:
    with collector(body=gzip.compress(bytes(1_000_000))) as there, otlp.session() as session:
        url = f"http://127.0.0.1:{there.server_port}/v1/logs"
        for _ in range(2):
            assert len(session.post(url, data=b"lines", timeout=30).content) < otlp.MOST_READ
        assert there.accepted == ["identity", "identity"]
