"""Two principals at one gateway: whatever one of them makes of what the other holds, nothing of it is heard or moved.

Ann holds one of each: a session, a stream with events, a connection of 2024-11-05, a parked question, sealed states,
tasks of both forms, a cursor. Bob knows them all, and tries them 10,000 times: as they are, changed, swapped, cut.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from inmemory import ENVELOPE, LATEST, META, MODERN, Exchange, Response, Visitor
from peers import LegacyServer, Rig, Scene, form, gateway
from task_peers import WITH_EXTENSION, LegacyTaskServer, ModernTaskServer
from virtualtime import settle

from toolgate.config import CatalogLimits, ParkingLimits

Json = dict[str, Any]
SECRET = "annsown"
TRIES = 2500  # for each of four seeds
ABLE = ENVELOPE | {META + "clientCapabilities": WITH_EXTENSION}
ANSWER: Json = {"action": "accept", "content": {"name": "Bob"}}
EVENTS = {"accept": "text/event-stream"}


class Work:
    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.answered: list[str] = []

    async def ask(self, scene: Scene) -> str:
        answer = await scene.ask(form(f"{SECRET}?"))
        self.answered.append(answer.get("content", {}).get("name", answer["action"]))
        return SECRET

    async def slow(self, scene: Scene) -> str:
        await self.may_end.wait()
        return SECRET

    async def reports(self, scene: Scene) -> str:
        scene.progress(1, message=SECRET)
        return await self.slow(scene)


class Ann:
    """What she holds, by what it is."""

    def __init__(self, rig: Rig, work: Work) -> None:
        self.rig = rig
        self.work = work
        self.modern = Visitor(rig.app, x_test_principal="ann")
        self.legacy = Visitor(rig.app, x_test_principal="ann")
        self.held: dict[str, str] = {}
        self.asked: dict[str, list[str]] = {}
        self.running: list[Exchange] = []

    async def ask_modern(self, method: str, **params: Any) -> Response:
        return await ask_modern(self.modern, method, **params)

    async def arrive(self) -> None:
        await self.legacy.initialize(LATEST, elicitation={"form": {}})
        self.held["session"] = self.legacy.headers["mcp-session-id"]
        self.begin("tools/call", name="asks__ask")
        self.begin("tools/call", name="asks__reports", _meta={"progressToken": "p"})
        await asyncio.sleep(1)
        self.held["event"] = "c1.0"
        sse = Visitor(self.rig.app, "/mcp/sse", x_test_principal="ann").begin("GET", headers=EVENTS)
        self.running.append(sse)
        await settle()
        self.held["pipe"] = sse.so_far.body.decode().partition("session_id=")[2].split("\n")[0].strip()
        for name in ("parked", "new"):
            asked = await self.ask_modern("tools/call", name=f"{name}__ask", arguments={})
            self.held[f"state of {name}"] = asked.result["requestState"]
            self.asked[name] = list(asked.result["inputRequests"])
        made = await self.ask_modern("tools/call", name="new__slow", arguments={})
        self.held["task"] = made.result["taskId"]
        made = await self.legacy.ask("tools/call", name="old__slow", task={"ttl": 3_600_000})
        self.held["old task"] = made.result["task"]["taskId"]
        self.held["cursor"] = (await self.ask_modern("tools/list")).result["nextCursor"]

    def begin(self, method: str, **params: Any) -> None:
        body = json.dumps(self.legacy.request(method, **params)).encode()
        self.running.append(self.legacy.begin("POST", body))

    async def ends_well(self) -> None:
        """All that she holds is good still, and nobody has answered for her."""
        assert self.work.answered == []
        assert (await self.legacy.ask("ping")).status == 200
        for name in ("parked", "new"):
            answers = dict.fromkeys(self.asked[name], ANSWER)
            retry: Json = {"requestState": self.held[f"state of {name}"], "inputResponses": answers}
            ended = await self.ask_modern("tools/call", name=f"{name}__ask", arguments={}, **retry)
            assert SECRET in json.dumps(ended.messages), ended.messages
        assert (await self.ask_modern("tools/list", cursor=self.held["cursor"])).result["tools"]
        self.work.may_end.set()
        await asyncio.sleep(1)
        assert (await self.ask_modern("tasks/get", taskId=self.held["task"])).result["status"] == "completed"
        result = await self.legacy.ask("tasks/result", taskId=self.held["old task"])
        assert SECRET in json.dumps(result.messages)
        assert (await self.legacy.send("DELETE")).status == 204
        for exchange in self.running:
            await exchange.gone()


async def ask_modern(visitor: Visitor, method: str, **params: Any) -> Response:
    told = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if named := params.get("name", params.get("taskId")):
        told["mcp-name"] = named
    return await visitor.post(visitor.modern_request(method, **{"_meta": ABLE, **params}), headers=told)


@asynccontextmanager
async def visited() -> AsyncGenerator[Ann]:
    work = Work()
    scripts = {"ask": work.ask, "slow": work.slow}
    servers: Json = {
        "asks": LegacyServer(scripts | {"reports": work.reports}, timeout=100_000.0),
        "parked": LegacyServer(scripts, timeout=100_000.0),
        "old": LegacyTaskServer(scripts, support={"slow": "optional"}, timeout=100_000.0),
        "new": ModernTaskServer(scripts, as_tasks=["slow"]),
    }
    async with gateway(catalog=CatalogLimits(page_size=1), parking=ParkingLimits(ttl=100_000.0), **servers) as rig:
        ann = Ann(rig, work)
        await ann.arrive()
        yield ann


# What Bob may try with something that looks like a handle.

Try = Callable[["Bob", str], Any]


class Bob:
    def __init__(self, rig: Rig, random: Random, principal: str = "bob") -> None:
        self.random = random
        self.visitor = Visitor(rig.app, x_test_principal=principal)
        self.pipe = Visitor(rig.app, "/mcp/sse", x_test_principal=principal)
        self.mine: list[str] = []

    async def arrive(self) -> None:
        await self.visitor.initialize(LATEST, elicitation={"form": {}})
        self.own = self.visitor.headers.pop("mcp-session-id")
        listed = await ask_modern(self.visitor, "tools/list")
        self.mine = [self.own, listed.result["nextCursor"]]

    def changed(self, handle: str) -> str:
        at = self.random.randrange(len(handle))
        other = self.random.choice([*self.mine, "x" * len(handle)])
        return self.random.choice(
            [
                handle,
                handle,
                handle[:at],
                handle[:at] + self.random.choice("Aa0_-.") + handle[at + 1 :],
                handle[:at] + other[at:],
                other[:at] + handle[at:],
                handle + self.random.choice("=\t A"),
                handle.swapcase(),
            ]
        )

    async def session(self, handle: str) -> Response:
        message = self.random.choice(
            [
                self.visitor.request("ping"),
                self.visitor.request("tools/list"),
                {"jsonrpc": "2.0", "id": 1, "result": ANSWER},
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}},
            ]
        )
        method = self.random.choice(["POST", "POST", "GET", "DELETE"])
        told = {"mcp-session-id": handle} | (EVENTS | {"last-event-id": "c1.0"} if method == "GET" else {})
        return await self.visitor.send(method, json.dumps(message).encode(), headers=told)

    async def event(self, handle: str) -> Response | None:
        told = {"mcp-session-id": self.own, "last-event-id": handle, **EVENTS}
        exchange = self.visitor.begin("GET", headers=told)
        await settle()
        found = exchange.so_far
        await exchange.gone()
        return found

    async def posted(self, handle: str) -> Response:
        body = json.dumps(self.visitor.request("tools/list")).encode()
        return await self.pipe.send("POST", body, query_string=f"session_id={handle}".encode("ascii", "replace"))

    async def state(self, handle: str) -> Response:
        tool = self.random.choice(["parked__ask", "new__ask"])
        more = {"requestState": handle, "inputResponses": dict.fromkeys(("1", "q1", "name"), ANSWER)}
        return await ask_modern(self.visitor, "tools/call", name=tool, arguments={}, **more)

    async def task(self, handle: str) -> Response:
        method = self.random.choice(["tasks/get", "tasks/cancel", "tasks/update"])
        return await ask_modern(self.visitor, method, taskId=handle.strip(), inputResponses={"1": ANSWER})

    async def old_task(self, handle: str) -> Response:
        method = self.random.choice(["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"])
        body = self.visitor.request(method, taskId=handle)
        return await self.visitor.post(body, headers={"mcp-session-id": self.own})

    async def cursor(self, handle: str) -> Response:
        if self.random.random() < 0.5:
            return await ask_modern(self.visitor, "tools/list", cursor=handle)
        body = self.visitor.request("tools/list", cursor=handle)
        return await self.visitor.post(body, headers={"mcp-session-id": self.own})

    async def watch(self, handle: str) -> Response:
        told = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
        wanted = {"taskIds": [handle]}
        message = self.visitor.modern_request("subscriptions/listen", _meta=ABLE, notifications=wanted)
        exchange = self.visitor.begin("POST", json.dumps(message).encode(), headers=told)
        await settle()
        found = exchange.so_far
        await exchange.gone()
        assert len(handle) < 20 or handle not in found.body.decode(), "what is not one's own is not acknowledged"
        return found


TRIED: tuple[Try, ...] = (
    Bob.session,
    Bob.event,
    Bob.posted,
    Bob.state,
    Bob.task,
    Bob.old_task,
    Bob.cursor,
    Bob.watch,
)


@pytest.mark.parametrize("seed", range(4))
async def test_what_another_holds_moves_nothing(seed: int) -> None:
    random = Random(seed)
    async with visited() as ann:
        bob = Bob(ann.rig, random)
        await bob.arrive()
        handles = list(ann.held.values())
        for _ in range(TRIES):
            attempt = random.choice(TRIED)
            handle = bob.changed(random.choice(handles))
            response = await attempt(bob, handle)
            assert SECRET not in response.body.decode(), (attempt.__name__, handle, response.body)
            if attempt in (Bob.session, Bob.posted) and handle not in bob.mine:
                assert response.status in (400, 404), (attempt.__name__, handle)
        await ann.ends_well()


DIRECTED: dict[str, Try] = {
    "session": Bob.session,
    "pipe": Bob.posted,
    "state of parked": Bob.state,
    "state of new": Bob.state,
    "task": Bob.task,
    "old task": Bob.old_task,
    "cursor": Bob.cursor,
}


@pytest.mark.parametrize("what", DIRECTED)
async def test_a_handle_of_another_is_as_one_that_never_was(what: str) -> None:
    """The very same bytes come back for Ann's as for nonsense of its kind."""
    async with visited() as ann:
        for seed in range(20):
            told: list[tuple[int, str]] = []
            for handle in (ann.held[what], _nonsense(what, ann.held[what])):
                bob = Bob(ann.rig, Random(seed))
                await bob.arrive()
                response = await DIRECTED[what](bob, handle)
                told.append((response.status, _without_ids(response, handle)))
            assert told[0] == told[1], what
        await ann.ends_well()


def _nonsense(what: str, handle: str) -> str:
    return handle[:-1] + ("A" if handle[-1] != "A" else "B")


def _without_ids(response: Response, handle: str) -> str:
    return response.body.decode().replace(handle, "HANDLE")


async def test_an_event_of_another_session_is_not_found_in_ones_own() -> None:
    async with visited() as ann:
        bob = Bob(ann.rig, Random(1))
        await bob.arrive()
        for number in range(50):
            response = await bob.event(f"c1.{number}")
            assert response and SECRET not in response.body.decode()
        await ann.ends_well()
