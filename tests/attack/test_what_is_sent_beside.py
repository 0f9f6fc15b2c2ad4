"""An approval is for all that goes to the server: arguments, what stands beside them, and answers to no question."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw
from peers import LATEST, MODERN, ModernServer, Rig, Scene, gateway
from virtualtime import FakeClock

from toolgate.cli.approvals import described
from toolgate.config import access
from toolgate.core.model import Call, Client, Principal
from toolgate.core.redaction import Redactor
from toolgate.policy import approval_requests
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import Approvals, Place
from toolgate.state.memory import MemoryStore

REVISIONS = pytest.mark.parametrize("revision", [LATEST, MODERN])
FORCED = {"com.example/force": True}
ANSWERS = {"confirm": {"action": "accept", "content": {"sure": True}}}


async def danger(scene: Scene) -> str:
    return "done"


class Asking:
    """A server each of whose calls asks first."""

    def __init__(self, *by: access.Who) -> None:
        self.there = ModernServer({"danger": danger})
        clock = FakeClock()
        self.book = Approvals(MemoryStore(clock), clock)
        settings = access.Approvals(by=by, wait=0.0)
        self._policy = Approval(lambda _call: "ask", self.book, settings, Redactor(["canary-0123456789"]), clock, {})

    @asynccontextmanager
    async def gateway(self) -> AsyncGenerator[Rig]:
        async with gateway(policies=[self._policy], there=self.there) as rig:
            yield rig

    async def call(self, client: Any, **more: Any) -> Any:
        return (await client.request("tools/call", name="there__danger", arguments={"x": 1}, **more)).message


@pytest.mark.parametrize(
    ("revision", "more"),
    [
        *[(revision, more) for revision in (LATEST, MODERN) for more in ({"meta": FORCED}, {"force": True})],
        (MODERN, {"inputResponses": ANSWERS}),  # a word of no other revision
    ],
    ids=json.dumps,
)
async def test_what_an_operator_allowed_is_not_sent_with_more_than_was_shown(revision: str, more: Any) -> None:
    asking = Asking("operator")
    async with asking.gateway() as rig:
        ann = await rig.client(revision)
        await asking.call(ann)
        (request,) = asking.book.requests()
        await asking.book.allow(request, "once", 600)
        assert (await asking.call(ann, **more))["error"]["data"]["code"] == "APPROVAL_REQUIRED"
        assert not asking.there.calls
        (other,) = [each for each in asking.book.requests() if each.state == "undecided"]
        assert "Sent with the arguments" in described(other) and '"x": 1' in described(other)
        assert any(word in described(other) for word in ("force", "sure"))
        assert "beside" not in described(request)


@REVISIONS
async def test_what_only_numbers_a_call_makes_no_other_call_of_it(revision: str) -> None:
    asking = Asking("operator")
    async with asking.gateway() as rig:
        ann = await rig.client(revision)
        await asking.call(ann, meta={"claudecode/toolUseId": "toolu_1", "vscode.requestId": "1"})
        (request,) = asking.book.requests()
        assert "beside" not in described(request)
        await asking.book.allow(request, "once", 600)
        assert "result" in await asking.call(ann, meta={"claudecode/toolUseId": "toolu_2"})


@REVISIONS
async def test_a_form_shows_what_is_sent_beside_the_arguments_without_secrets(revision: str) -> None:
    asking = Asking("client")
    asked: list[str] = []

    def decide(question: Any) -> Any:
        asked.append(question["message"])
        return {"action": "accept", "content": {"decision": "once"}}

    async with asking.gateway() as rig:
        ann = await rig.client(revision)
        meta = {**FORCED, "com.example/token": "canary-0123456789"}
        reply = await ann.converse(
            "tools/call", {"elicitation/create": decide}, name="there__danger", arguments={}, meta=meta
        )
        assert "result" in reply.message
    (message,) = asked
    assert "Sent with the arguments" in message and '"com.example/force": true' in message
    assert "canary" not in message
    assert asking.there.calls[0]["params"]["_meta"]["com.example/token"] == "canary-0123456789"


def asked(headers: dict[str, str], **extra: Any) -> approval_requests.ApprovalRequest:
    params = {name: Raw(json.dumps(value).encode()) for name, value in extra.items()}
    ann = Client(Principal("ann"))
    call = Call("tools/call", "danger", ann, Raw(b"{}"), server="there", extra=params, passed_on=headers)
    return approval_requests.of(call, Place("ann", "there", "", "tools", "danger"), Redactor([]), headers)


def test_headers_that_go_to_the_server_are_shown_and_allowed_with_the_call() -> None:
    plain, one, other = asked({}), asked({"x-tenant": "a"}), asked({"x-tenant": "b"})
    assert len({each.digest for each in (plain, one, other)}) == 3
    assert one.beside == {"HTTP headers": {"x-tenant": "a"}}


# Some of them are other ones in each request; a server may go by what they say all the same.
@pytest.mark.parametrize(
    "name",
    ["baggage", "tracestate", "date", "user-agent", "x-amzn-trace-id", "x-b3-sampled", "x-request-start"],
)
def test_headers_that_have_a_place_for_data_are_shown_and_allowed_with_the_call(name: str) -> None:
    one, other = asked({name: "tenant=test"}), asked({name: "tenant=prod"})
    assert len({each.digest for each in (one, other, asked({}))}) == 3
    assert other.beside == {"HTTP headers": {name: "tenant=prod"}}


@pytest.mark.parametrize("name", ["x-request-id", "traceparent", "x-correlation-id", "cf-ray", "x-datadog-trace-id"])
def test_headers_that_only_name_a_request_make_no_other_call_of_it(name: str) -> None:
    assert asked({name: "1"}).digest == asked({name: "2"}).digest == asked({}).digest


@pytest.mark.parametrize("name", sorted(approval_requests._IDS))
@pytest.mark.parametrize("value", ["amount=1000000; to=eve", "1" * 129, "r\u00e9sum\u00e9", "1\n"])
def test_a_header_that_says_more_than_an_id_does_is_shown_and_allowed_with_the_call(name: str, value: str) -> None:
    usual, other = asked({name: "0af7651916cd43dd8448eb211c80319c/1;o=1"}), asked({name: value})
    assert usual.digest != other.digest
    assert other.beside == {"HTTP headers": {name: value}}


def test_headers_that_only_other_servers_get_make_no_other_call_of_it() -> None:
    ann = Client(Principal("ann"))
    call = Call("tools/call", "danger", ann, Raw(b"{}"), server="there", passed_on={"x-tenant": "a", "x-team": "b"})
    place = Place("ann", "there", "", "tools", "danger")
    assert approval_requests.of(call, place, Redactor([]), ["x-team"]).beside == {"HTTP headers": {"x-team": "b"}}


def test_no_member_of_a_call_hides_a_header_of_it() -> None:
    hidden = asked({"x-tenant": "b"}, **{"HTTP headers": {"x-tenant": "a"}})
    assert hidden.beside == {"HTTP headers": {"x-tenant": "a"}, "HTTP headers'": {"x-tenant": "b"}}
    assert hidden.digest != asked({"x-tenant": "a"}).digest


def test_a_header_that_is_a_secret_is_allowed_and_not_shown() -> None:
    one, other = asked({"x-api-key": "a"}), asked({"x-api-key": "b"})
    assert one.beside == other.beside == {"HTTP headers": {"x-api-key": "(not shown)"}}
    assert one.digest != other.digest
