"""How the gateway and its servers are, for Prometheus.

    GET /metrics   in Prometheus's text format 0.0.4

The rules this file keeps: only administrators read it, since it names every server. A label holds only what the
configuration or this code names, never what a client wrote, so nobody outside adds a series. All is looked up when it
is asked for: a call does nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed
from toolgate.frontends.streams import Receive, Response
from toolgate.gateway.gateway import Gateway
from toolgate.upstreams.base import State

PATH = "/metrics"
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"
_STATES = (*get_args(State), "disabled")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[Mapping[str, str], float]  # labels and value


class Metrics:
    """`audience` is the path that a token of an administrator must be for."""

    def __init__(self, gateway: Gateway, guards: Guards, audience: str) -> None:
        self._gateway = gateway
        self._audience = audience
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`, `Unauthorized`."""
        if str(scope["path"]).rstrip("/") != PATH:
            raise Refused(404, f"Not found: {scope['path']}")
        await self._guards.admit_admin(scope, receive, self._audience)
        if scope["method"] not in ("GET", "HEAD"):
            raise not_allowed("GET")
        body = "".join([*self._of_gateway(), *self._of_servers()])
        await response.whole(200, body.encode(), ((b"cache-control", b"no-store"),), _TEXT)

    def _of_gateway(self) -> Iterable[str]:
        info = self._gateway.gateway_info
        yield _gauge("toolgate_build_info", "The version that runs.", [({"version": info.version}, 1)])
        yield _gauge("toolgate_start_time_seconds", "When it started, in seconds since 1970.", [({}, info.started)])
        is_serving = self._gateway.phase == "serving"
        yield _gauge("toolgate_serving", "1 if it takes calls, 0 while it shuts down.", [({}, is_serving)])
        is_invalid = bool(info.problem())
        help = "1 if the configuration could not be read and the previous one is served."
        yield _gauge("toolgate_configuration_invalid", help, [({}, is_invalid)])

    def _of_servers(self) -> Iterable[str]:
        snapshot = self._gateway.snapshot
        states: list[Sample] = []
        calls: list[Sample] = []
        for server in snapshot.config.servers:
            upstream = snapshot.upstreams.get(server.id)
            status = upstream.status() if upstream else None
            now = status.state if status else "disabled"
            states += [({"server": server.id, "state": state}, state == now) for state in _STATES]
            calls.append(({"server": server.id}, status.calls if status else 0))
        yield _gauge("toolgate_server_state", "1 for the state that a server is in, 0 for all others.", states)
        yield _gauge("toolgate_server_calls", "Calls of a server that are in progress or parked.", calls)


def _gauge(name: str, help: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {help}", f"# TYPE {name} gauge", *(_line(name, *sample) for sample in samples)]
    return "\n".join(lines) + "\n"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value + 0}" if shown else f"{name} {value + 0}"
