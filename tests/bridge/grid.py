"""The grid: what works between a client and a server of which revisions, as a table that is played and written down.

`FEATURES` says since when there is what; `CONVERSATIONS` prove it, each with its content. `make grid` plays every cell
and writes what it saw into `docs/revisions.md`. The rule this file keeps: a cell is undefined only where the revision
of one side has no such thing (`test_grid.py` holds that against the official schemas).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from official import LEGACY, MODERN, Json
from peers import (
    ACCEPTED,
    FILTERS,
    META,
    ROOTS,
    Client,
    LegacyClient,
    LegacyServer,
    ModernServer,
    Pending,
    Rig,
    Scene,
    form,
    gateway,
    link,
    named,
    rooted,
    sampled,
    sampling,
)
from virtualtime import play, settle

REVISIONS = (*LEGACY, MODERN)
PAGE = Path(__file__).parents[2] / "docs" / "revisions.md"
BEGIN, END = "<!-- grid: written by `make grid` -->", "<!-- end of the grid -->"

Server = LegacyServer | ModernServer


class Feature(NamedTuple):
    """`client`, `server`: the first revision of each side that has it. `legacy`, `modern`: the names by which the
    official schemas of either era know it, methods or definitions."""

    shown: str
    client: str
    server: str
    legacy: str
    modern: str

    def undefined(self, client: str, server: str) -> str:
        """Whose revision has no such thing: the client's (c), the server's (s), or both; empty where it is defined."""
        return ("c" if client < self.client else "") + ("s" if server < self.server else "")


def _always(shown: str, legacy: str, modern: str = "") -> Feature:
    return Feature(shown, LEGACY[0], LEGACY[0], legacy, modern or legacy)


def _since(revision: str, shown: str, name: str) -> Feature:
    return Feature(shown, revision, revision, name, name)


FEATURES: Mapping[str, Feature] = {
    "list": _always("tools, prompts, resources and templates are listed, in the client's names", "tools/list"),
    "call": _always("a tool is called with its arguments, and its result comes back", "tools/call"),
    "read": _always("a resource is read, and one that a template makes", "resources/read"),
    "prompt": _always("a prompt is filled in", "prompts/get"),
    "progress": _always("a call tells how far it is, under the client's own token", "notifications/progress"),
    "log": _always("a call logs, from the level up that the client wants", "logging/setLevel", "notifications/message"),
    "cancel": _always("a call that its client gives up is cancelled at its server", "notifications/cancelled"),
    "complete": _always("an argument is completed by the server that owns the prompt", "completion/complete"),
    "subscribe": _always("a client hears that a resource has changed", "resources/subscribe", "subscriptions/listen"),
    "list_changed": _always("a client hears that a list has changed, and reads it", "notifications/tools/list_changed"),
    "sampling": _always("a server asks the client's model in the middle of a call", "sampling/createMessage"),
    "roots": _always("a server asks for the client's roots in the middle of a call", "roots/list"),
    "elicitation": _since(LEGACY[2], "a server asks the client's user in the middle of a call", "elicitation/create"),
    "url": _since(LEGACY[3], "a server sends the client's user to a page", "ElicitRequestURLParams"),
}
Cell = tuple[str, str, str]  # feature, the client's revision, the server's
CELLS: tuple[Cell, ...] = tuple(
    (name, client, server) for client in REVISIONS for server in REVISIONS for name in FEATURES
)
DEFINED = tuple(cell for cell in CELLS if not FEATURES[cell[0]].undefined(*cell[1:]))


# What the server plays.


async def greet(scene: Scene) -> str:
    return f"Hello {scene.arguments['who']}"


async def works(scene: Scene) -> str:
    for step in (1, 2):
        scene.progress(step, total=2)
    return "worked"


async def talks(scene: Scene) -> str:
    for level in ("debug", "warning", "error"):
        scene.log(level, f"{level}: é")
    return "talked"


async def hold(scene: Scene) -> str:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def ask_model(scene: Scene) -> str:
    return (await scene.ask(sampling("Say hello")))["content"]["text"]


async def ask_roots(scene: Scene) -> str:
    return " ".join(root["uri"] for root in (await scene.ask(ROOTS))["roots"])


async def ask_user(scene: Scene) -> str:
    answer = await scene.ask(form("Your name?"))
    return f"{answer['action']} {answer['content']['name']}" if "content" in answer else answer["action"]


async def ask_visit(scene: Scene) -> str:
    return (await scene.ask(link("https://example.com/in")))["action"]


async def read(scene: Scene) -> str:
    return f"the text of {scene.target}"


def complete(params: Json) -> Json:
    values = [
        f"{params['ref']['name']} {params['argument']['name']} {params['argument']['value']}{end}" for end in "xy"
    ]
    return {"values": values, "total": 3, "hasMore": True}


TOOLS = {
    "greet": greet,
    "works": works,
    "talks": talks,
    "hold": hold,
    "model": ask_model,
    "roots": ask_roots,
    "user": ask_user,
    "visit": ask_visit,
}


def server(revision: str) -> Server:
    """A server that offers all of it. It is its client's own, so that it may ask for roots in either era."""
    settings: Json = {"announces": True, "tells": True, "completes": complete, "scope": "session"}
    offered = (TOOLS, {"greet": greet}, {"mem://a": read})
    templates = {"mem://made/{id}": read}
    if revision == MODERN:
        return ModernServer(*offered, templates=templates, **settings)
    return LegacyServer(*offered, templates=templates, revision=revision, **settings)


# What the client does, and sees.

ANSWERS: Json = {
    "elicitation/create": lambda params: ACCEPTED if params.get("mode") == "url" else named("Ann"),
    "sampling/createMessage": sampled("hello"),
    "roots/list": rooted("file:///ann", "file:///shared"),
}
Conversation = Callable[[Rig, Client, Server], Awaitable[None]]


async def listed(rig: Rig, client: Client, there: Server) -> None:
    names = {
        "tools/list": ("tools", "name", [f"there__{name}" for name in TOOLS]),
        "prompts/list": ("prompts", "name", ["there__greet"]),
        "resources/list": ("resources", "uri", ["there+mem://a"]),
        "resources/templates/list": ("resourceTemplates", "uriTemplate", ["there+mem://made/{id}"]),
    }
    for method, (kind, key, expected) in names.items():
        result = (await client.request(method)).result
        assert [item[key] for item in result[kind]] == expected
        assert ("ttlMs" in result) == (client.revision == MODERN)


async def called(rig: Rig, client: Client, there: Server) -> None:
    reply = await client.call("there__greet", arguments={"who": "Ann é"})
    assert reply.text == "Hello Ann é"
    assert (there.calls[0]["params"]["name"], there.calls[0]["params"]["arguments"]) == ("greet", {"who": "Ann é"})


async def was_read(rig: Rig, client: Client, there: Server) -> None:
    for own in ("mem://a", "mem://made/7"):
        reply = await client.request("resources/read", uri=f"there+{own}")
        assert reply.result["contents"] == [{"uri": f"there+{own}", "text": f"the text of {own}"}]


async def prompted(rig: Rig, client: Client, there: Server) -> None:
    reply = await client.request("prompts/get", name="there__greet", arguments={"who": "Ann"})
    assert reply.result["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hello Ann"}}]


async def told_of_progress(rig: Rig, client: Client, there: Server) -> None:
    reply = await client.call("there__works", meta={"progressToken": "mine"})
    steps = [{"progressToken": "mine", "progress": step, "total": 2} for step in (1, 2)]
    assert (reply.text, reply.notes("notifications/progress")) == ("worked", steps)


async def logged(rig: Rig, client: Client, there: Server) -> None:
    meta = {}
    if client.revision == MODERN:
        meta = {META + "logLevel": "warning"}
    else:
        assert (await client.request("logging/setLevel", level="warning")).result == {}
    reply = await client.call("there__talks", meta=meta)
    heard = [{"level": level, "data": f"{level}: é"} for level in ("warning", "error")]
    assert (reply.text, reply.notes("notifications/message")) == ("talked", heard)


async def cancelled(rig: Rig, client: Client, there: Server) -> None:
    call: Pending = client.start("tools/call", name="there__hold")
    held = await there.got("tools/call")
    if isinstance(client, LegacyClient):
        client.cancel(call)
    else:
        await call.gone()
    await there.got("notifications/cancelled")
    assert there.cancelled == [held["id"]]


async def completed(rig: Rig, client: Client, there: Server) -> None:
    ref, argument = {"type": "ref/prompt", "name": "there__greet"}, {"name": "who", "value": "A"}
    reply = await client.request("completion/complete", ref=ref, argument=argument)
    assert reply.result["completion"] == {"values": ["greet who Ax", "greet who Ay"], "total": 3, "hasMore": True}


async def subscribed(rig: Rig, client: Client, there: Server) -> None:
    ear = await client.listen("there+mem://a")
    there.update("mem://a")
    await settle()
    assert ear.updated == ["there+mem://a"]
    await ear.stop()
    await settle()
    assert there.watched == []


async def changed(rig: Rig, client: Client, there: Server) -> None:
    await client.request("tools/list")
    ear = await client.listen(lists=[key.removesuffix("ListChanged") for key in FILTERS])
    there.offer("tools", {"name": "new", "inputSchema": {"type": "object"}})
    await rig.clock.advance(1)
    assert ear.changed == ["tools"]
    assert [tool["name"] for tool in (await client.request("tools/list")).result["tools"]] == ["there__new"]


def asked(tool: str, said: str) -> Conversation:
    async def converse(rig: Rig, client: Client, there: Server) -> None:
        assert (await client.converse("tools/call", ANSWERS, name=f"there__{tool}")).text == said

    return converse


CONVERSATIONS: Mapping[str, Conversation] = {
    "list": listed,
    "call": called,
    "read": was_read,
    "prompt": prompted,
    "progress": told_of_progress,
    "log": logged,
    "cancel": cancelled,
    "complete": completed,
    "subscribe": subscribed,
    "list_changed": changed,
    "sampling": asked("model", "hello"),
    "roots": asked("roots", "file:///ann file:///shared"),
    "elicitation": asked("user", "accept Ann"),
    "url": asked("visit", "accept"),
}


async def cell(name: str, client_speaks: str, server_speaks: str) -> None:
    """One cell, end to end through a gateway. Raises where it does not work."""
    there = server(server_speaks)
    async with gateway(there=there) as rig:
        client: Any = await rig.client(client_speaks)
        await CONVERSATIONS[name](rig, client, there)


# The page.


def table(works: Mapping[Cell, bool]) -> str:
    """The generated part of the page: what was seen of each cell that is defined."""
    return "\n".join((BEGIN, "", *_rows(works), "", *_legend(), "", END))


def _rows(works: Mapping[Cell, bool]) -> Iterator[str]:
    yield f"| client | server | {' | '.join(FEATURES)} |"
    yield "|---|---|" + ":-:|" * len(FEATURES)
    for client in REVISIONS:
        for server in REVISIONS:
            marks = (_mark((name, client, server), works) for name in FEATURES)
            yield f"| {client} | {server} | {' | '.join(marks)} |"


def _mark(cell: Cell, works: Mapping[Cell, bool]) -> str:
    undefined = FEATURES[cell[0]].undefined(*cell[1:])
    return f"– {undefined}" if undefined else "✓" if works[cell] else "✗"


def _legend() -> Iterator[str]:
    yield "| what | is proven by | client since | server since |"
    yield "|---|---|---|---|"
    for name, feature in FEATURES.items():
        yield f"| {name} | {feature.shown} | {feature.client} | {feature.server} |"


def with_table(page: str, written: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return before + written + rest.partition(END)[2]


def _is_seen(each: Cell) -> bool:
    try:
        play(cell(*each))
    except Exception as error:
        print(f"{each}: {error!r}", *getattr(error, "__notes__", ()), sep="\n  ", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    seen = {each: _is_seen(each) for each in DEFINED}
    PAGE.write_text(with_table(PAGE.read_text(), table(seen)))
    print(f"{sum(seen.values())} of {len(DEFINED)} cells work; {len(CELLS) - len(DEFINED)} are undefined")
    sys.exit(not all(seen.values()))
