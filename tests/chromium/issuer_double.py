"""An issuer at which somebody signs in and out with a browser: on loopback, as a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from doors.issuers import Issuer

CLIENT = "gate"
STAFF = {"sub": "erin", "groups": ["staff"]}


class Double(ThreadingHTTPServer):
    """`left` are the queries of those who have signed out."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.issuer = Issuer(self.url)
        self.asked: dict[str, str] = {}
        self.left: list[dict[str, str]] = []

    def answers(self, path: str, query: dict[str, str]) -> Any:
        if path.startswith("/.well-known/"):
            places = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/jwks"}
            places["end_session_endpoint"] = "/logout"
            return {"issuer": self.url, **{name: self.url + each for name, each in places.items()}}
        if path == "/jwks":
            return {"keys": self.issuer.keys}
        if path == "/token":
            now = int(time.time())
            times = {"iat": now, "nbf": now, "exp": now + 3600}
            claims = {"aud": CLIENT, "nonce": self.asked["nonce"], "scope": ..., **times, **STAFF}
            return {"id_token": self.issuer.token({"typ": "JWT"}, **claims)}
        if path == "/authorize":
            self.asked = query
            return query["redirect_uri"] + "?" + urlencode({"code": "c", "state": query["state"]})
        if path == "/logout":
            self.left.append(query)
            return "Good-bye"
        return None


class _Handler(BaseHTTPRequestHandler):
    server: Double

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        said = self.server.answers(where.path, dict(parse_qsl(where.query)))
        is_off = isinstance(said, str) and said.startswith("http")
        self.send_response(303 if is_off else 200 if said is not None else 404)
        if is_off:
            self.send_header("location", said)
        body = b"" if is_off else said.encode() if isinstance(said, str) else json.dumps(said).encode()
        self.send_header("content-type", "text/plain" if isinstance(said, str) else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """It says nothing."""


@contextmanager
def serving_issuer() -> Iterator[Double]:
    with Double() as double:
        thread = threading.Thread(target=double.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield double
        finally:
            double.shutdown()
            thread.join(10)
