"""A conversation between both eras where there is a revision 2027-01-01, which has other names for some members."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from inmemory import LATEST, META, MODERN, Json, Refusal, Scripted, Visitor, gateway

from toolgate.app import App
from toolgate.config import Server

NEXT = "2027-01-01"
WORDS = {"inputSchema": "parameters", "structuredContent": "value", "mimeType": "mediaType"}
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}}
LONG = "x" * 100_000  # an answer so long is read in pieces


def said_by(revision: str, **members: Any) -> Json:
    """These members, as they are called in a revision."""
    return {WORDS.get(name, name) if revision == NEXT else name: value for name, value in members.items()}


class Peer(Scripted):
    """A server with one tool, in the words of its revision. A modern one refuses whatever is said in another, and names
    its own, unless it is `curt`."""

    def __init__(self, revision: str, curt: bool = False) -> None:
        self.curt = curt
        is_modern = revision >= MODERN
        super().__init__(MODERN if is_modern else revision)
        page = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if is_modern else {}
        tool = said_by(revision, name="say", inputSchema=SCHEMA)
        self.answers |= {"tools/list": page | {"tools": [tool]}, "tools/call": self._called}
        self.spoken = revision
        if is_modern:
            self.answers["server/discover"] |= {"supportedVersions": [revision]}
            self.answers = {method: self._in_its_own(answer) for method, answer in self.answers.items()}

    def _called(self, params: Json) -> Json:
        link = said_by(self.spoken, type="resource_link", uri="a:b", name="b", mimeType="text/plain")
        is_modern = {"resultType": "complete"} if self.spoken >= MODERN else {}
        return is_modern | said_by(self.spoken, content=[link], structuredContent=params["arguments"])

    def _in_its_own(self, answer: Any) -> Any:
        def answered(params: Json) -> Any:
            if (asked := params["_meta"][META + "protocolVersion"]) != self.spoken:
                data = None if self.curt else {"supported": [self.spoken], "requested": asked}
                raise Refusal(-32022, "Unsupported", data)
            return answer(params) if callable(answer) else answer

        return answered

    def was_asked(self) -> list[str]:
        return [each["method"] for each in self.requests]


class Caller(Visitor):
    """A client of one revision."""

    def __init__(self, app: App, revision: str) -> None:
        super().__init__(app)
        self.spoken = revision

    async def says(self, method: str, **params: Any) -> Json:
        if self.spoken < MODERN:
            return (await self.post(self.request(method, **params))).last
        meta = {META + "protocolVersion": self.spoken, META + "clientCapabilities": {}}
        headers = {"mcp-protocol-version": self.spoken, "mcp-method": method}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
        return (await self.post(self.request(method, _meta=meta, **params), headers=headers)).last


def is_said_by(revision: str, found: Mapping[str, Any], ours: str, value: Any) -> None:
    [(theirs, _)] = said_by(revision, **{ours: value}).items()
    others = {ours, WORDS[ours]} - {theirs}
    assert found.get(theirs) == value and not others & found.keys(), (revision, found)


async def talk() -> None:
    """Each of the servers is called twice by each client. Those that are known to be modern are not asked to initialize
    first."""
    peers = {"old": Peer(LATEST), "now": Peer(MODERN), "next": Peer(NEXT), "sure": Peer(MODERN), "new": Peer(NEXT)}
    peers["curt"] = Peer(MODERN, curt=True)
    told = {name: {"era": "modern"} if name in ("sure", "new") else {} for name in peers}
    servers = [Server(id=name, name=name, type="stdio", command="memory", **told[name]) for name in peers]
    async with gateway(*servers, scripts=peers) as app:
        for revision in (LATEST, MODERN, NEXT):
            caller = Caller(app, revision)
            if revision < MODERN:
                await caller.initialize(revision)
            else:
                discovered = await caller.says("server/discover")
                assert discovered["result"]["supportedVersions"] == [MODERN, NEXT], discovered
            for tool in (listed := (await caller.says("tools/list"))["result"]["tools"]):
                is_said_by(revision, tool, "inputSchema", SCHEMA)
                for word in ("short", LONG):
                    called = await caller.says("tools/call", name=tool["name"], arguments={"word": word})
                    is_said_by(revision, called["result"], "structuredContent", {"word": word})
                    is_said_by(revision, called["result"]["content"][0], "mimeType", "text/plain")
            assert [tool["name"] for tool in listed] == [f"{name}__say" for name in peers]
        refused = (await Caller(app, "2028-01-01").says("tools/list"))["error"]
        assert (refused["code"], refused["data"]["supported"]) == (-32022, [MODERN, NEXT]), refused
        await comes_back(caller, peers["sure"])


async def comes_back(caller: Caller, peer: Peer) -> None:
    """Of a server that has refused the newest revision, the one that it speaks is known from then on."""
    assert peer.was_asked()[:3] == ["server/discover", "server/discover", "tools/list"]
    before = len(peer.requests)
    peer.hang_up("gone")
    await caller.says("tools/call", name="sure__say", arguments={"word": "again"})
    assert peer.was_asked()[before:].count("server/discover") == 1, peer.was_asked()[before:]


asyncio.run(talk())
