"""Whatever clients send, they are answered alike: by the parser and the guards, with heads that are known, and where
more heads come than are kept; in one piece or torn, one by one or one behind the other."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inmemory import Refusal, Scripted, gateway, said, tools
from virtualtime import FakeClock, VirtualTimeLoop
from wires import LEGACY, Wire, hello, legacy, modern, post

from toolgate.config import Config
from toolgate.config.access import KnownClient
from toolgate.frontends import known_heads
from toolgate.state.settings import Settings

KEYS = {"ada": "key-of-ada-that-is-long", "bob": "key-of-bob-that-is-long", "nobody": "no-key-of-anybody"}
CLIENTS = (
    KnownClient(id="ada", name="ada", key=KEYS["ada"], servers="all"),
    KnownClient(id="bob", name="bob", key=KEYS["bob"], servers="none"),
)
BEFORE, AFTER = Config(clients=CLIENTS), Config(clients=(msgspec.structs.replace(CLIENTS[1], servers="all"),))
WAYS = ("parsed", "known", "few are kept")


def there() -> Scripted:
    def answer(asked: dict[str, Any]) -> Any:
        if asked["name"] == "fails":
            raise Refusal(-32000, "no")
        return said(str(asked.get("arguments")))

    return Scripted(tools_list=tools("echo", "fails"), tools_call=answer)


who = st.sampled_from(sorted(KEYS))
tool = st.sampled_from(["echo", "fails", "missing"])
odd = st.sampled_from(
    [
        "",
        "",
        "",
        "other name",
        "doubled name",
        "doubled key",
        "no key",
        "bad json",
        "batch",
        "close",
        "origin",
        "absolute",
    ]
)
asks = st.tuples(st.sampled_from(["modern", "legacy", "ping", "told"]), who, tool, odd, st.integers(0, 9))
steps = st.lists(
    st.tuples(st.lists(asks, min_size=1, max_size=3), st.lists(st.integers(1, 900), max_size=2), st.booleans())
    | st.just("reload"),
    min_size=2,
    max_size=10,
)


def written(ask: tuple[str, str, str, str, int], id: int, sessions: dict[str, str]) -> bytes:
    kind, client, name, oddity, value = ask
    key = f"Authorization: Bearer {KEYS[client]}"
    lines = {"no key": (), "doubled key": (key, key), "origin": (key, "Origin: https://evil.example")}.get(
        oddity, (key,)
    )
    params = {"name": f"there__{name}", "arguments": {"value": "x" * value}}
    if kind == "modern":
        shown = f"Mcp-Name: there__{name}"
        if oddity == "doubled name":
            lines = (*lines, shown)
        data = modern(id, "tools/call", params, *lines)
        if oddity == "other name":
            data = data.replace(shown.encode(), b"Mcp-Name: there__other", 1)
    elif kind == "told":
        session = sessions.get(client, "none")
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
        data = post(told, f"MCP-Protocol-Version: {LEGACY}", f"Mcp-Session-Id: {session}", *lines)
    else:
        method, given = ("ping", {}) if kind == "ping" else ("tools/call", params)
        data = legacy(id, method, given, *lines, session=sessions.get(client, "none"))
    if oddity == "bad json":
        data = data[:-1] + b"]"
    if oddity == "batch":
        head, end, body = data.partition(b"\r\n\r\n")
        size = len(body) + 2
        data = re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % size, head) + end + b"[" + body + b"]"
    if oddity == "close":
        data = data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    if oddity == "absolute":
        data = data.replace(b"POST /mcp", b"POST http://localhost/mcp", 1)
    return data


async def answers(way: str, plan: Any) -> list[Any]:
    configs = [BEFORE]
    clock = FakeClock()
    seen: list[Any] = []
    settings = Settings(lambda: configs[0], {})
    async with gateway(config=BEFORE, scripts={"there": there()}, clock=clock, settings=settings) as app:
        configs[0] = app.gateway.snapshot.config
        if way == "parsed":
            app.http.known_heads.learn = lambda *_: None  # type: ignore[method-assign]
        sessions: dict[str, str] = {}
        for client in ("ada", "bob"):
            opened = await Wire(app).ask(hello(f"Authorization: Bearer {KEYS[client]}"))
            sessions[client] = opened.headers["mcp-session-id"]
        wire, id = Wire(app), 0
        for step in plan:
            if step == "reload":
                now, then = AFTER.clients, BEFORE.clients
                clients = then if configs[0].clients == now else now
                configs[0] = msgspec.structs.replace(configs[0], clients=clients)
                await app.reload()
                continue
            group, cuts, is_again = step
            for _ in range(1 + is_again):
                requests: list[bytes] = []
                for ask in group:
                    id += 1
                    requests.append(written(ask, id, sessions))
                data, at = b"".join(requests), 0
                for cut in sorted(cuts):
                    if at < cut < len(data):
                        wire.send(data[at:cut])
                        at = cut
                wire.send(data[at:])
                for _request in requests:
                    response = await wire.answer()
                    seen.append((response.status, named(response.headers, sessions), response.body))
                    if response.headers.get("connection") == "close" or wire.is_over:
                        break
                if wire.is_over:
                    await wire.leave()
                    wire = Wire(app)
        await wire.leave()
    return seen


def named(headers: dict[str, str], sessions: dict[str, str]) -> dict[str, str]:
    """With the names of sessions, which are other ones each time."""
    known = {session: client for client, session in sessions.items()}
    return {name: known.get(value, value) for name, value in headers.items() if name != "date"}


@given(steps)
def test_each_way_in_gives_the_same_answers(plan: Any) -> None:
    found: dict[str, list[Any]] = {}
    for way in WAYS:
        with pytest.MonkeyPatch.context() as patched:
            if way == "few are kept":
                patched.setattr(known_heads, "MOST", 1)
            loop = VirtualTimeLoop()
            try:
                found[way] = loop.run_until_complete(answers(way, plan))
            finally:
                loop.close()
    assert found["known"] == found["parsed"]
    assert found["few are kept"] == found["parsed"]
