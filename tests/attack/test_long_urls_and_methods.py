"""URLs of megabytes are taken apart by nobody, since the library keeps what it has read, and methods of megabytes are
repeated nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib import parse

import pytest
from inmemory import Scripted, Visitor, gateway, tools
from msgspec import Raw
from virtualtime import settle
from wires import Wire

from toolgate.auth.safe_net import LONGEST_URL, SafeNet
from toolgate.core import asks, jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.steps import at_once
from toolgate.eras import calls
from toolgate.frontends.server import LONGEST_PATH
from toolgate.upstreams.component import metadata
from toolgate.upstreams.links import refusals

LONG = "https://a.example/" + "x" * 1_000_000


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of all that is taken apart."""
    found: list[int] = []
    whole: Callable[..., Any] = parse.urlsplit

    def noted(url: Any, *more: Any, **named: Any) -> Any:
        found.append(len(url))
        return whole(url, *more, **named)

    for module in (asks, refusals):
        monkeypatch.setattr(module, "urlsplit", noted)
    return found


def test_a_page_that_is_too_long_is_refused_before_it_is_taken_apart(lengths: list[int]) -> None:
    with pytest.raises(Fault, match="whose URL is refused"):
        asks.check_page(Raw(json.dumps({"message": "", "elicitationId": "1", "url": LONG, "mode": "url"}).encode()))
    assert max(lengths, default=0) == 0


def test_a_place_that_a_server_has_moved_to_is_too_long(lengths: list[int]) -> None:
    assert len(refusals.moved_hint(301, "https://a.example/mcp", LONG, "there")) < 1000
    assert lengths == []


async def test_no_document_is_fetched_from_a_url_that_is_too_long() -> None:
    outside = SafeNet()
    with pytest.raises(Fault, match=f"more than {LONGEST_URL:,} characters") as caught:
        await outside.fetch(LONG, asker="there")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("length", [jsonrpc.LONGEST_METHOD + 1, 1_000_000])
async def test_a_method_of_a_client_that_is_too_long_is_not_repeated(length: int) -> None:
    async with gateway(scripts={"there": Scripted(tools_list=tools("take"))}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        response = await visitor.post(visitor.request("x" * length))
        assert response.last["error"]["code"] == jsonrpc.INVALID_REQUEST
        assert "a method must have at most 256 characters" in response.last["error"]["message"]
        assert len(json.dumps(response.last)) < 1000


def test_a_component_s_names_are_logged_by_their_beginning() -> None:
    long, longest = ({"name": "n" * length, "inputSchema": {}} for length in (1_000_000, calls.LONGEST_NAME))
    found = at_once(metadata.read(json.dumps([longest, longest, long]).encode()))
    assert len(found.faults) == 2 and all(len(each) < 500 for each in found.faults)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/" + "%" * 60_000, 414),
        ("/mcp/servers/" + "%41" * 1000, 414),
        ("/mcp?" + "a" * 9000, 414),
        ("/mcp/" + "%" * 1000, 400),
        ("/ui/oidc/callback?code=%zz", 400),
        ("/mcp/%4", 400),
        ("/%2e%2E/x?y=%20", 404),
    ],
)
async def test_what_a_request_is_for_is_decoded_only_where_that_is_short_and_well_formed(
    target: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes a thousandth of a millisecond for each percent sign that begins nothing, before anybody is asked
    who they are."""
    decoded: list[int] = []
    whole = parse.unquote

    def unquote(path: str, *more: str) -> str:
        decoded.append(len(path))
        return whole(path, *more)

    monkeypatch.setattr(parse, "unquote", unquote)
    async with gateway(scripts={"there": Scripted(tools_list=tools("take"))}) as app:
        wire = Wire(app)
        ping = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        wire.send(f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi".encode() + ping)
        await settle()
        assert wire.unread.startswith(b"HTTP/1.1 %d " % status)
        if status != 404:
            assert wire.is_over and wire.unread.count(b"HTTP/1.1 ") == 1 and not decoded
        assert max(decoded, default=0) <= LONGEST_PATH
