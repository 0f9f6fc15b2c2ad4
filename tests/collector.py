"""A collector of OpenTelemetry at a loopback port, that keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

BODIES: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


def attributes(of: Any) -> dict[str, Any]:
    """Of a span, a resource, a point or a line of a log."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of}


class Collector:
    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[tuple[str, Any]] = []

    def of(self, path: str) -> list[Any]:
        return [body for at, body in self.received if at == path]

    @property
    def spans(self) -> list[Any]:
        """In the order in which they began."""
        groups = [scope for body in self.of("/v1/traces") for each in body.resource_spans for scope in each.scope_spans]
        found = [span for scope in groups for span in scope.spans]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    @property
    def metrics(self) -> dict[str, Any]:
        """The last of each name."""
        bodies = self.of("/v1/metrics")
        groups = [scope for body in bodies for each in body.resource_metrics for scope in each.scope_metrics]
        return {metric.name: metric for scope in groups for metric in scope.metrics}

    @property
    def lines(self) -> list[Any]:
        bodies = self.of("/v1/logs")
        groups = [scope for body in bodies for each in body.resource_logs for scope in each.scope_logs]
        return [line for scope in groups for line in scope.log_records]


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.received.append((self.path, BODIES[self.path].FromString(body)))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
