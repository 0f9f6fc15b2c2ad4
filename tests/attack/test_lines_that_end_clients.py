"""The official TypeScript SDK ends its session at a line of more than 10 MiB, and all servers are lost with it. Whatever
one server lists or answers, no line of stdio is as long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Scripted, gateway, said, tools
from virtualtime import settle

TYPESCRIPT = 10 * 1024 * 1024


class Pipe:
    """A client over stdio that has one session for all servers."""

    def __init__(self, app: Any, revision: str) -> None:
        self.lines: list[bytes] = []
        self.frontend = app.stdio(self.lines.append)
        self._revision = revision
        self._id = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        if self._revision == MODERN:
            info = {"name": "c", "version": "1"}
            keys = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": info}
            params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in keys.items()}
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.frontend.data_received(json.dumps(message).encode() + b"\n")
        while not self.lines:
            await settle()
        line = self.lines.pop()
        assert len(line) < TYPESCRIPT
        return json.loads(line)

    async def begin(self) -> None:
        if self._revision == MODERN:
            return
        await self.ask("initialize", protocolVersion=LATEST, capabilities={}, clientInfo={"name": "c", "version": "1"})
        self.frontend.data_received(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


def long(text: str, size: int) -> str:
    return text * (size // len(text.encode()))


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("text", ["a", "\u2028", "\u0085"])
async def test_a_list_of_any_length_comes_in_pages_that_every_client_takes(text: str, revision: str) -> None:
    listed = [
        {"name": f"t{number}", "description": long(text, 350_000), "inputSchema": {"type": "object"}}
        for number in range(20)
    ]
    body = json.dumps({"tools": listed}, ensure_ascii=False).encode()
    async with gateway(scripts={"evil": Scripted(tools_list=body), "good": Scripted(tools_list=tools("g"))}) as app:
        pipe = Pipe(app, revision)
        await pipe.begin()
        names, cursor = list[str](), {}
        while cursor is not None:
            result = (await pipe.ask("tools/list", **cursor))["result"]
            names += [tool["name"] for tool in result["tools"]]
            cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else None
        assert len(names) == len({*names}) and {"evil__t0", "evil__t19", "good__g"} <= {*names}
        await pipe.frontend.close()


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_an_item_that_is_too_long_for_a_line_is_left_out(revision: str) -> None:
    listed = [{"name": "t", "description": long("\u0085", 3_000_000), "inputSchema": {"type": "object"}}]
    body = json.dumps({"tools": listed}, ensure_ascii=False).encode()
    async with gateway(scripts={"evil": Scripted(tools_list=body), "good": Scripted(tools_list=tools("g"))}) as app:
        pipe = Pipe(app, revision)
        await pipe.begin()
        result = (await pipe.ask("tools/list"))["result"]
        assert [tool["name"] for tool in result["tools"]] == ["good__g"]
        await pipe.frontend.close()


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(("text", "size"), [("a", 10_450_000), ("a", 30_000_000), ("\u0085", 4_000_000)])
async def test_a_result_that_is_too_long_for_a_line_is_an_error_of_its_own_call(
    text: str, size: int, revision: str
) -> None:
    evil = Scripted(tools_list=tools("t"), tools_call=said(long(text, size)))
    good = Scripted(tools_list=tools("g"), tools_call=said("here"))
    async with gateway(scripts={"evil": evil, "good": good}) as app:
        pipe = Pipe(app, revision)
        await pipe.begin()
        refused = await pipe.ask("tools/call", name="evil__t", arguments={})
        assert "over stdio it may have" in refused["error"]["message"]
        assert (
            refused["error"]["data"]["code"] == "UPSTREAM_ERROR" and "result_limit" in refused["error"]["data"]["hint"]
        )
        answered = await pipe.ask("tools/call", name="good__g", arguments={})
        assert answered["result"]["content"] == said("here")["content"]
        await pipe.frontend.close()
