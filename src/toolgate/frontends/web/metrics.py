"""How the gateway and its servers are, for Prometheus.

    GET /metrics   in Prometheus's text format 0.0.4

The rules this file keeps: only administrators read it, since it names every server. A label holds only what the
configuration, a server's list, or this code names, and who was let in; never what a client wrote, so nobody outside
adds a series. Of calls there is only what `policy/telemetry` has counted, where that is wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import get_args

from toolgate.auth.credential_states import CredentialState
from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed
from toolgate.frontends.streams import Receive, Response
from toolgate.gateway.gateway import Gateway
from toolgate.telemetry import names
from toolgate.telemetry.exposition import Sample, counter, gauge, histogram
from toolgate.telemetry.usage import BY_KIND, COUNTED, Called, Durations, Usage
from toolgate.upstreams.base import State

PATH = "/metrics"
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"
_STATES = (*get_args(State), "disabled")


class Metrics:
    """`audience` is the path that a token of an administrator must be for."""

    def __init__(self, gateway: Gateway, usage: Usage, guards: Guards, audience: str) -> None:
        self._gateway = gateway
        self._usage = usage
        self._audience = audience
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`, `Unauthorized`."""
        if str(scope["path"]).rstrip("/") != PATH:
            raise Refused(404, f"Not found: {scope['path']}")
        await self._guards.admit_admin(scope, receive, self._audience)
        if scope["method"] not in ("GET", "HEAD"):
            raise not_allowed("GET")
        body = "".join([*self._of_gateway(), *self._of_servers(), *self._of_credentials()])
        if self._gateway.snapshot.config.telemetry.counts:
            body += "".join(await asyncio.to_thread(lambda: [*self._of_calls(), *self._of_durations()]))
        await response.whole(200, body.encode(), ((b"cache-control", b"no-store"),), _TEXT)

    def _of_gateway(self) -> Iterable[str]:
        info = self._gateway.gateway_info
        yield gauge("toolgate_build_info", "The version that runs.", [({"version": info.version}, 1)])
        yield gauge("toolgate_start_time_seconds", "When it started, in seconds since 1970.", [({}, info.started)])
        is_serving = self._gateway.phase == "serving"
        yield gauge("toolgate_serving", "1 if it takes calls, 0 while it shuts down.", [({}, is_serving)])
        is_invalid = bool(info.problem())
        help = "1 if the configuration could not be read and the previous one is served."
        yield gauge("toolgate_configuration_invalid", help, [({}, is_invalid)])

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
        yield gauge("toolgate_server_state", "1 for the state that a server is in, 0 for all others.", states)
        yield gauge("toolgate_server_calls", "Calls of a server that are in progress or parked.", calls)

    def _of_credentials(self) -> Iterable[str]:
        states = [(_credential(each), each) for each in self._gateway.gateway_info.credentials()]
        ends = [({**labels, "renews": str(each.renews).lower()}, each.expires) for labels, each in states]
        name, help = "toolgate_credential_expires_timestamp_seconds", "When it is good no more, in seconds since 1970."
        yield gauge(name, help, ((labels, end) for labels, end in ends if end is not None))
        help = "1 if it was refused or could not be renewed, and has not worked since."
        yield gauge("toolgate_credential_failing", help, ((labels, bool(each.problem)) for labels, each in states))
        since = [(labels, each.failing_since) for labels, each in states]
        name = "toolgate_credential_failing_since_timestamp_seconds"
        help = "Since when it fails, in seconds since 1970."
        yield gauge(name, help, ((labels, began) for labels, began in since if began is not None))

    def _of_calls(self) -> Iterable[str]:
        """By principal, method, server and tool."""
        lines = [(called._asdict(), line) for called, line in self._usage.lines().items()]
        for name, _, help, of in COUNTED:
            yield counter(_total(name), help, ((labels, of(line)) for labels, line in lines))
        for name, help, kind, counts_of in BY_KIND:
            samples = (
                ({**labels, kind: each}, count) for labels, line in lines for each, count in counts_of(line).items()
            )
            yield counter(_total(name), help, samples)

    def _of_durations(self) -> Iterable[str]:
        """By method, server, tool and type of error."""
        timed = list(self._usage.timed())
        help = "Seconds from a client's request to its answer."
        of_served = (each for called, served, _ in timed for each in _by_error(called, served))
        yield histogram(names.prometheus(names.SERVED) + "_seconds", help, of_served)
        help = "Seconds from what a server was asked to its answer."
        of_sent = (each for called, _, sent in timed for each in _by_error(called, sent))
        yield histogram(names.prometheus(names.SENT) + "_seconds", help, of_sent)


def _total(name: str) -> str:
    return names.prometheus(name) + "_total"


def _credential(state: CredentialState) -> Mapping[str, str]:
    return {"server": state.server, "principal": state.principal, "credential": state.credential}


def _by_error(called: Called, durations: Mapping[str, Durations]) -> Iterable[tuple[Mapping[str, str], Durations]]:
    method, tool = names.prometheus(names.METHOD), names.prometheus(names.TOOL)
    labels = {method: called.method, "server": called.server, tool: called.tool}
    for error, of_error in durations.items():
        yield {**labels, names.prometheus(names.ERROR): error}, of_error
