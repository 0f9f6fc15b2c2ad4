"""The HTTP door by the rules of 2026-07-28: the envelope, the ladder of headers, and what is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import ENVELOPE, META, MODERN, Refusal, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.core import mcp

CALL: dict[str, Any] = {"name": "greeter__greet", "arguments": {"name": "Ada"}}


@pytest.mark.promise("spec.2026.envelope.required", "spec.2026.results.type", "spec.2026.stateless")
async def test_a_request_that_carries_its_envelope_needs_nothing_else() -> None:
    async with gateway() as app:
        response = await Visitor(app).ask_modern("tools/call", **CALL)
        assert (response.status, response.result["resultType"]) == (200, "complete")
        assert response.result["content"][0]["text"] == "Hello, Ada!"
        assert "mcp-session-id" not in response.headers
        assert not app.sessions.all()


@pytest.mark.promise("spec.2026.discover.answer", "spec.2026.discover.relayed")
async def test_discover_says_what_is_served() -> None:
    async with gateway() as app:
        result = (await Visitor(app).ask_modern("server/discover")).result
        assert result["supportedVersions"] == list(mcp.dates("modern"))
        assert {"tools", "resources", "prompts", "completions"} <= set(result["capabilities"])
        assert result["_meta"][META + "serverInfo"]["name"] == "toolgate"


@pytest.mark.promise("spec.2026.caching.hints")
@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"])
async def test_lists_say_how_long_they_hold(method: str) -> None:
    async with gateway() as app:
        result = (await Visitor(app).ask_modern(method)).result
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")


# The ladder of headers.


@pytest.mark.promise("spec.2026.headers.mismatch")
@pytest.mark.parametrize("header", ["mcp-protocol-version", "mcp-method", "mcp-name"])
@pytest.mark.parametrize("value", [None, "", "other", "=?base64?*?=", "2025-11-25"])
async def test_a_header_that_is_missing_or_differs_from_the_body_is_a_mismatch(header: str, value: str | None) -> None:
    async with gateway() as app:
        response = await Visitor(app).ask_modern("tools/call", headers={header: value}, **CALL)
        assert (response.status, response.error["code"]) == (400, -32020)
        assert header in response.error["message"]


@pytest.mark.promise("spec.2026.headers.mismatch")
@pytest.mark.parametrize("header", ["mcp-protocol-version", "mcp-method", "mcp-name"])
async def test_a_header_that_stands_there_twice_is_a_mismatch(header: str) -> None:
    async with gateway() as app:
        response = await Visitor(app).ask_modern("tools/call", twice=header, **CALL)
        assert (response.status, response.error["code"]) == (400, -32020)


@pytest.mark.promise("spec.2026.headers.encoding")
async def test_a_name_may_be_written_in_base64() -> None:
    async with gateway() as app:
        headers = {"mcp-name": "=?base64?Z3JlZXRlcl9fZ3JlZXQ=?="}
        assert (await Visitor(app).ask_modern("tools/call", headers=headers, **CALL)).status == 200


@pytest.mark.promise("spec.2026.headers.encoding")
async def test_a_name_that_is_no_ascii_is_written_so() -> None:
    async with gateway(scripts={"docs": Scripted(tools_list=tools("größe"), tools_call=said("ok"))}) as app:
        visitor = Visitor(app)
        encoded = {"mcp-name": "=?base64?ZG9jc19fZ3LDtsOfZQ==?="}
        assert (await visitor.ask_modern("tools/call", headers=encoded, name="docs__größe")).status == 200


@pytest.mark.promise("spec.2026.caching.hints", "spec.2026.headers.encoding")
async def test_a_uri_is_a_name_too() -> None:
    async with gateway() as app:
        visitor, uri = Visitor(app), "greeter+greeter://about"
        response = await visitor.ask_modern("resources/read", uri=uri)
        assert response.result["contents"][0]["uri"] == uri
        assert (response.result["ttlMs"], response.result["cacheScope"]) == (0, "private")
        wrong = await visitor.ask_modern("resources/read", headers={"mcp-name": "greeter://about"}, uri=uri)
        assert wrong.error["code"] == -32020


# The envelope.


@pytest.mark.promise("spec.2026.envelope.required")
@pytest.mark.parametrize("key", ENVELOPE)
async def test_an_envelope_that_lacks_a_key_is_refused_by_its_name(key: str) -> None:
    async with gateway() as app:
        meta = {name: value for name, value in ENVELOPE.items() if name != key}
        response = await Visitor(app).ask_modern("tools/list", _meta=meta)
        assert (response.status, response.error["code"]) == (400, -32602)
        assert key in response.error["message"]


@pytest.mark.promise("spec.2026.envelope.required")
async def test_a_request_that_is_modern_by_its_header_alone_lacks_its_envelope() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        for message in (visitor.request("tools/list"), {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}):
            response = await visitor.post(message, headers={"mcp-protocol-version": MODERN, "mcp-method": "tools/list"})
            assert (response.status, response.error["code"]) == (400, -32602)


@pytest.mark.promise("spec.2026.versions.unsupported")
async def test_a_version_that_is_not_served_is_answered_with_those_that_are() -> None:
    async with gateway() as app:
        meta = ENVELOPE | {META + "protocolVersion": "2030-01-01"}
        headers = {"mcp-protocol-version": "2030-01-01"}
        response = await Visitor(app).ask_modern("tools/list", headers=headers, _meta=meta)
        assert (response.status, response.error["code"]) == (400, -32022)
        assert response.error["data"]["supported"] == list(mcp.dates("modern"))
        assert response.error["data"]["requested"] == "2030-01-01"


@pytest.mark.promise("spec.2026.http.invalid-status", "spec.2026.logging.level")
async def test_a_log_level_that_there_is_not_is_refused() -> None:
    async with gateway() as app:
        response = await Visitor(app).ask_modern("tools/list", _meta=ENVELOPE | {META + "logLevel": "loud"})
        assert (response.status, response.error["code"]) == (400, -32602)


@pytest.mark.promise("spec.2026.http.invalid-status", "spec.2026.pagination.cursor")
async def test_a_cursor_that_is_not_ours_is_refused() -> None:
    async with gateway() as app:
        response = await Visitor(app).ask_modern("tools/list", cursor="x")
        assert (response.status, response.error["code"]) == (400, -32602)


# What is gone.


@pytest.mark.promise("spec.2026.http.unknown-method")
@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "nope"]
)
async def test_a_method_that_this_revision_does_not_know_is_not_found(method: str) -> None:
    async with gateway() as app:
        response = await Visitor(app).ask_modern(method)
        assert (response.status, response.error["code"]) == (404, -32601)


@pytest.mark.promise("spec.2026.http.get-delete")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_stream_or_an_end_of_a_session_is_not_allowed(method: str) -> None:
    async with gateway() as app:
        visitor = Visitor(app, mcp_protocol_version=MODERN, mcp_session_id="x")
        response = await visitor.send(method)
        assert (response.status, response.headers["allow"]) == (405, "POST")


@pytest.mark.promise("spec.2026.http.session-ignored")
async def test_a_session_id_is_ignored_and_never_echoed() -> None:
    async with gateway() as app:
        visitor = Visitor(app, mcp_session_id="bogus", last_event_id="7")
        response = await visitor.ask_modern("tools/list")
        assert response.status == 200 and "mcp-session-id" not in response.headers


@pytest.mark.promise("spec.2026.http.notification", "spec.2026.http.response")
async def test_a_notification_is_accepted_and_a_response_is_not() -> None:
    async with gateway() as app:
        visitor = Visitor(app, mcp_protocol_version=MODERN)
        accepted = await visitor.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}})
        assert (accepted.status, accepted.body) == (202, b"")
        refused = await visitor.post({"jsonrpc": "2.0", "id": 1, "result": {}})
        assert (refused.status, refused.error["code"]) == (400, -32600)


@pytest.mark.promise("spec.2026.http.batch")
async def test_a_batch_is_refused() -> None:
    async with gateway() as app:
        response = await Visitor(app, mcp_protocol_version=MODERN).post([])
        assert (response.status, response.error["code"]) == (400, -32600)


# Errors and their HTTP status.


@pytest.mark.promise("spec.2026.http.invalid-status")
async def test_what_a_client_asks_wrongly_is_a_400() -> None:
    async with gateway() as app:
        response = await Visitor(app).ask_modern("tools/call", name="greeter__gret")
        assert (response.status, response.error["code"]) == (400, -32602)
        assert response.error["data"]["code"] == "TOOL_NOT_FOUND"


@pytest.mark.promise("b.001.relayed-mapped")
@pytest.mark.parametrize(("code", "shown", "status"), [(-32603, -32603, 200), (-32002, -32602, 400), (-7, -7, 200)])
async def test_a_servers_own_error_is_relayed_in_this_revisions_words(code: int, shown: int, status: int) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=Refusal(code, "no", {"why": [1.0]}))
    async with gateway(scripts={"docs": script}) as app:
        response = await Visitor(app).ask_modern("tools/call", name="docs__t")
        assert (response.status, response.error["code"]) == (status, shown)
        assert (response.error["message"], response.error["data"]) == ("no", {"why": [1.0]})


@pytest.mark.promise("spec.2026.cancel.own-id", "spec.2026.sse.disconnect")
async def test_a_client_that_goes_away_cancels_its_call() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        request = visitor.modern_request("tools/call", name="docs__t")
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "docs__t"}
        exchange = visitor.begin("POST", json.dumps(request).encode(), headers=headers)
        await settle()
        await exchange.gone()
        await settle()
        call, cancelled = script.requests[-2:]
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == call["id"]
        assert len(app.parking) == 0
