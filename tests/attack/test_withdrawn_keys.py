"""What came in by a token ends when its issuer has withdrawn the key that signed it, whether or not anybody else comes:
streams, WebSockets, sessions and calls under way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doors.issuers import AUDIENCE, CONFIG, KEYS, NOW, Issuer, bearer, issuer, key, public
from doors.pipes import WebSocket
from inmemory import MODERN, Exchange, Scripted, Visitor, gateway, tools
from virtualtime import FakeClock, settle

from toolgate.app import App

__all__ = ["issuer"]

LASTS = NOW + 400_000
BOTH = [f"{AUDIENCE}/mcp", f"{AUDIENCE}/mcp/sse"]
HOUR = 3700


class FrontendDeps:
    """Whatever may last, begun by who shows this."""

    def __init__(self, app: App, shown: dict[str, str]) -> None:
        self.app = app
        self.visitor = Visitor(app, **shown)
        self.shown = shown

    async def begin(self) -> None:
        await self.visitor.initialize()
        accepts = {"accept": "text/event-stream"}
        call = self.visitor.request("tools/call", name="there__slow")
        modern = Visitor(self.app, **self.shown)
        told = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
        listen = modern.modern_request("subscriptions/listen", notifications={"toolsListChanged": True})
        self.exchanges: list[Exchange] = [
            self.visitor.begin("GET", headers=accepts),
            self.visitor.begin("POST", json.dumps(call).encode()),
            modern.begin("POST", json.dumps(listen).encode(), headers=told),
            Visitor(self.app, "/mcp/sse", **self.shown).begin("GET", headers=accepts),
        ]
        self.socket = WebSocket(self.app.http, "/mcp", self.shown.items())
        await settle()
        assert not any(each.work.done() for each in self.exchanges) and self.socket.accepted

    @property
    def is_out(self) -> bool:
        return all(each.work.done() for each in self.exchanges) and self.socket.task.done()

    @property
    def is_in(self) -> bool:
        return not any(each.work.done() for each in self.exchanges) and not self.socket.task.done()

    async def end(self) -> None:
        for each in self.exchanges:
            await each.gone()
        if not self.socket.task.done():
            await self.socket.leave()


def slow() -> Scripted:
    return Scripted(tools_list=tools("slow"), tools_call=...)


def running(clock: FakeClock) -> Any:
    return gateway(config=CONFIG, scripts={"there": slow()}, clock=clock)


@pytest.mark.promise("b.attacks.withdrawn")
async def test_a_withdrawn_key_ends_what_its_tokens_have_begun_without_another_request(issuer: Issuer) -> None:
    clock = FakeClock()
    async with running(clock) as app:
        by_ec = FrontendDeps(app, bearer(issuer.token(exp=LASTS, aud=BOTH)))
        by_rsa = FrontendDeps(app, bearer(issuer.token(by=issuer.rsa, exp=LASTS, aud=BOTH)))
        by_key = FrontendDeps(app, bearer(KEYS["ada"]))
        for each in (by_ec, by_rsa, by_key):
            await each.begin()
        issuer.keys = [public(issuer.rsa)]
        await clock.advance(HOUR)
        assert by_ec.is_out and (await by_ec.socket.ended()).code == 1008
        assert (await by_ec.visitor.ask("ping")).status == 401
        for each in (by_rsa, by_key):
            assert each.socket.accepted and not each.socket.task.done()
            assert (await each.visitor.ask("ping")).status == 200
            await each.end()


async def test_a_new_key_beside_the_old_one_ends_nothing(issuer: Issuer) -> None:
    clock = FakeClock()
    async with running(clock) as app:
        inside = FrontendDeps(app, bearer(issuer.token(exp=LASTS, aud=BOTH)))
        await inside.begin()
        issuer.keys = [public(key("EC", "e2")), *reversed(issuer.keys)]
        await clock.advance(2 * HOUR)
        assert issuer.looks > 1 and not inside.socket.task.done()
        await inside.end()


async def test_another_key_under_the_same_name_is_another_key(issuer: Issuer) -> None:
    clock = FakeClock()
    async with running(clock) as app:
        inside = FrontendDeps(app, bearer(issuer.token(exp=LASTS, aud=BOTH)))
        await inside.begin()
        other = public(key("EC", "e2")) | {"kid": "e1"}
        issuer.keys = [other]
        await clock.advance(HOUR)
        assert inside.is_out


async def test_what_a_strangers_token_makes_us_look_at_counts_at_once(issuer: Issuer) -> None:
    clock = FakeClock()
    async with running(clock) as app:
        inside = FrontendDeps(app, bearer(issuer.token(exp=LASTS, aud=BOTH)))
        await inside.begin()
        issuer.keys = [public(issuer.rsa)]
        await clock.advance(31)
        assert inside.is_in, "nobody has looked yet"
        stranger = await Visitor(app, **bearer(issuer.token({"kid": "x"}))).ask_modern("tools/list")
        assert stranger.status == 401
        await settle()
        assert inside.is_out


async def test_while_the_issuer_is_away_its_keys_hold_for_a_day_and_no_longer(issuer: Issuer) -> None:
    clock = FakeClock()
    async with running(clock) as app:
        visitor = Visitor(app, **bearer(issuer.token(exp=LASTS, aud=BOTH)))
        socket = WebSocket(app.http, "/mcp", bearer(issuer.token(exp=LASTS, aud=BOTH)).items())
        await settle()
        assert (await visitor.initialize()).status == 200 and socket.accepted
        issuer.is_there = False
        await clock.advance(80_000)
        assert not socket.task.done()
        await clock.advance(10_000)
        assert socket.task.done()
        assert (await visitor.ask("ping")).status == 503


async def test_nobody_is_looked_for_where_nobody_came_by_a_token(issuer: Issuer) -> None:
    clock = FakeClock()
    async with running(clock) as app:
        assert (await Visitor(app, **bearer(KEYS["ada"])).ask("ping")).status == 200
        await clock.advance(2 * HOUR)
        assert issuer.looks == 0


async def test_a_token_that_was_refused_before_does_not_come_back_with_its_key_unseen(issuer: Issuer) -> None:
    """Nothing is remembered of a withdrawn key: when it is there again, tokens are checked again."""
    clock = FakeClock()
    async with running(clock) as app:
        shown = bearer(issuer.token(exp=LASTS, aud=BOTH))
        assert (await Visitor(app, **shown).ask("ping")).status == 200
        before, issuer.keys = issuer.keys, [public(issuer.rsa)]
        await clock.advance(HOUR)
        assert (await Visitor(app, **shown).ask("ping")).status == 401
        issuer.keys = before
        await clock.advance(HOUR)
        assert (await Visitor(app, **shown).ask("ping")).status == 200
