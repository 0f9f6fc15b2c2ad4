"""What others have written down: requests of a real client, and the examples of seed 003, as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import official
import pytest
from inmemory import GREETER, Scripted, Visitor, gateway, said, tools

CAPTURED = Path(__file__).parents[1] / "fixtures" / "client_requests_2026-07-28.jsonl"


def captured() -> list[dict[str, Any]]:
    lines = [line for line in CAPTURED.read_text().splitlines() if line.startswith("{")]
    return [found for found in map(json.loads, lines) if "m" in found]


@pytest.mark.promise("001.endpoint.one")
@pytest.mark.parametrize("request_", captured(), ids=lambda request: request["h"]["mcp-method"])
async def test_a_request_of_a_real_client_is_answered(request_: dict[str, Any]) -> None:
    async with gateway(GREETER) as app:
        response = await Visitor(app, request_["p"]).send(request_["m"], request_["b"].encode(), headers=request_["h"])
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
        asked = json.loads(request_["b"])
        assert response.last["id"] == asked["id"]
        official.check(response.last, "2026-07-28", asked["method"])


def test_there_are_captured_requests() -> None:
    assert len(captured()) == 4


CURL: dict[str, str | None] = {"host": "localhost:3000", "accept": "*/*", "user-agent": "curl/8.5.0"}

INITIALIZE = b"""{
    "jsonrpc": "2.0",
    "method": "initialize",
    "params": {
      "protocolVersion": "2025-06-18",
      "capabilities": {},
      "clientInfo": {
        "name": "example-client",
        "version": "1.0.0"
      }
    },
    "id": 1
  }"""
LIST = b'{"jsonrpc":"2.0","method":"tools/list","id":2}'
CALL = b"""{
    "jsonrpc": "2.0",
    "method": "tools/call",
    "params": {
      "name": "echo",
      "arguments": {"message": "Hello"}
    },
    "id": 3
  }"""


@pytest.mark.promise("003.methods.served", "b.names.bare-unique")
async def test_the_examples_of_seed_003_run_as_they_are_written() -> None:
    def echo(params: dict[str, Any]) -> dict[str, Any]:
        return said(params["arguments"]["message"])

    async with gateway(scripts={"components": Scripted(tools_list=tools("echo"), tools_call=echo)}) as app:
        visitor = Visitor(app)
        opened, listed, called = [await visitor.post(body, headers=CURL) for body in (INITIALIZE, LIST, CALL)]
        assert opened.result["protocolVersion"] == "2025-06-18"
        assert opened.headers["mcp-session-id"]
        assert [tool["name"] for tool in listed.result["tools"]] == ["components__echo"]
        assert called.result == said("Hello")
        assert [response.last["id"] for response in (opened, listed, called)] == [1, 2, 3]
        assert {response.headers["content-type"] for response in (opened, listed, called)} == {"application/json"}


@pytest.mark.promise("001.errors.codes", "003.errors.served")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (INITIALIZE.replace(b"2025-06-18", b"one"), -32602),
        (b'{"jsonrpc":"2.0","method":"tools/burn","id":1}', -32601),
        (CALL.replace(b"echo", b"ecco"), -32602),
        (b"{", -32700),
        (b'{"method":"tools/list","id":1}', -32600),
    ],
    ids=["protocol version", "method", "tool", "parse", "request"],
)
async def test_the_errors_of_seed_003_are_json_rpc_errors(body: bytes, code: int) -> None:
    async with gateway(scripts={"components": Scripted(tools_list=tools("echo"))}) as app:
        assert (await Visitor(app).post(body, headers=CURL)).error["code"] == code
