"""Calls as they end, and those that take long, as a stream of events: for the pages, and for `/admin/traffic`.

The rules this file keeps: who may not administer the gateway any more is told nothing more; who reads nothing is let
go; and neither holds up the end of the gateway.
"""

from __future__ import annotations

from collections.abc import Callable

from toolgate.core import jsonrpc
from toolgate.core.clock import Clock
from toolgate.core.model import Principal
from toolgate.frontends.streams import QUIET, Receive, Response, gone, until_any
from toolgate.gateway.gateway import Gateway
from toolgate.telemetry.traffic import Traffic, Wanted, Watcher

LOOK = 0.25  # seconds between two portions
PATIENCE = 30.0  # seconds for one to be read

IsLetIn = Callable[[], bool]


class LiveTraffic:
    def __init__(self, gateway: Gateway, traffic: Traffic, clock: Clock) -> None:
        self._gateway, self._traffic, self._clock = gateway, traffic, clock

    async def stream(
        self, wanted: Wanted, principal: Principal, is_let_in: IsLetIn, receive: Receive, response: Response
    ) -> None:
        """Until the client leaves, or is not `is_let_in`. Raises `Fault` where too many watch."""
        watcher = self._traffic.watch(wanted)
        try:
            await until_any(gone(receive), self._tell(watcher, principal, is_let_in, response))
        finally:
            self._traffic.leave(watcher)

    async def _tell(self, watcher: Watcher, principal: Principal, is_let_in: IsLetIn, response: Response) -> None:
        await response.comment()
        said = self._clock.now()
        while self._goes_on(principal) and is_let_in():
            portion = watcher.portion(self._traffic.under_way(self._clock.wall()))
            if portion or self._clock.now() - said >= QUIET:
                said = self._clock.now()
                if not await self._is_read(
                    response, self._gateway.redactor.body(jsonrpc.encode(portion)) if portion else b""
                ):
                    return
            await self._clock.sleep(LOOK)
        await response.end()

    async def _is_read(self, response: Response, event: bytes) -> bool:
        try:
            async with self._clock.timeout(PATIENCE):
                await (response.event(event) if event else response.comment())
        except TimeoutError:
            return False
        return True

    def _goes_on(self, principal: Principal) -> bool:
        is_in_time = principal.expires is None or self._clock.wall() < principal.expires
        return is_in_time and self._gateway.phase == "serving"
