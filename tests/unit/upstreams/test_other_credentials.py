"""A message that was refused, and what else there is to show with it."""

from __future__ import annotations

from typing import Any, cast

from virtualtime import FakeClock, settle

from toolgate.auth.oauth.base import Refusal
from toolgate.config import Server
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.http import Attempt, HttpLink
from toolgate.upstreams.links.places import Places


class Broken:
    """A credential with a mistake of ours."""

    async def refused(self, refusal: Refusal) -> str:
        raise RuntimeError("a mistake")


async def nowhere(host: str, port: int) -> Any:
    raise ConnectionRefusedError


async def test_a_call_whose_sign_in_fails_by_a_mistake_of_ours_fails_at_once() -> None:
    failed: list[tuple[int, Fault]] = []

    def take(id: int, fault: Fault) -> None:
        failed.append((id, fault))

    nothing = cast(Any, lambda *_: None)
    receiver = Receiver("", lambda id: "", nothing, lambda id: True, take, nothing, nothing)
    server = Server(id="docs", name="Docs", type="http", url="http://localhost/mcp")
    link = HttpLink(server, receiver, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()), cast(Any, Broken()))
    link.try_again(7, Attempt(b"{}", (), ""), Refusal(401))
    await settle()
    ((id, fault),) = failed
    assert (id, fault.code, fault.reach, fault.server) == (7, "INTERNAL", "not_sent", "docs")
    await link.close()
