"""Pages that a server would have its user open: a client is given the URL of a page of the web, and no other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from peers import ACCEPTED, LATEST, LegacyServer, ModernServer, RpcError, Scene, gateway, link

from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.eras import modern

REFUSED = [
    "javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java\nscript:alert(1)", "data:text/html,a",
    "file:///etc/passwd", "vscode://a/b", "ms-msdt:/id", "blob:https://a.example/1", "//a.example/", "a.example", "",
    "http://a.example/", "http://10.0.0.1/", "http://localhost.a.example/", "https:a.example", "https:///a", "https://",
    "https://bank.example@a.example/", "https://bank.example\\@a.example/", "https://a.example/ b", "https://a.example\t/",
    "https://[", "https://a.example/" + "x" * 2048, "https://b\u0430nk.example/", "ftp://localhost/",
]  # fmt: skip
PASSED = [
    "https://a.example/sign-in?state=%20a#b", "HTTPS://a.example", "http://localhost:8080/a", "http://127.0.0.1/a",
    "http://[::1]:9/a",
]  # fmt: skip
REASON = "only https URLs are passed on"


def _page(url: str) -> dict[str, Any]:
    return {"mode": "url", "message": "Please sign in", "url": url, "elicitationId": "1"}


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_no_page_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(Fault, match=REASON):
        asks.check_page(Raw(jsonrpc.encode(_page(url))))


@pytest.mark.parametrize("url", PASSED)
def test_pages_of_the_web_pass(url: str) -> None:
    asks.check_page(Raw(jsonrpc.encode(_page(url))))


@pytest.mark.parametrize("more", [{"URL": "javascript:alert(1)"}, {"url": ["https://a.example"]}, {"url": None}])
def test_a_second_url_that_some_readers_take_for_the_first_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(Fault, match=REASON):
        asks.check_page(Raw(jsonrpc.encode(_page("https://a.example") | more)))


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, "2026-07-28"])
@pytest.mark.parametrize("url", [REFUSED[0], PASSED[0]])
async def test_a_question_leads_its_client_to_the_web_alone(server: Any, revision: str, url: str) -> None:
    told: list[str] = []

    async def visit(scene: Scene) -> str:
        try:
            return (await scene.ask(link(url)))["action"]
        except RpcError as error:
            told.append(error.message)
            return "refused"

    async with gateway(there=server({"visit": visit})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": ACCEPTED}, name="there__visit")
    if url in PASSED:
        assert reply.text == "accept"
    elif told:
        assert (reply.text, REASON in told[0]) == ("refused", True)
    else:
        assert REASON in str(reply.error)


@pytest.mark.parametrize("revision", [LATEST, "2026-07-28"])
@pytest.mark.parametrize(
    "pages",
    [
        [_page("javascript:alert(1)")],
        [_page("https://a.example"), _page("file:///etc/passwd")],
        [_page("javascript:alert(1)"), *[{}] * 100_001],  # too many to be read
        [_page("javascript:alert(1)"), 7],
    ],
    ids=["one", "the second", "too many", "misshapen"],
)
async def test_an_error_that_asks_for_pages_holds_no_other(revision: str, pages: list[Any]) -> None:
    async def fails(scene: Scene) -> Any:
        raise RpcError(mcp.URL_ELICITATION_REQUIRED, "Sign in first", {"elicitations": pages})

    async with gateway(there=LegacyServer({"fails": fails})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": ACCEPTED}, name="there__fails")
    assert reply.error and "javascript:" not in str(reply.error) and "passwd" not in str(reply.error)


@pytest.mark.parametrize("padding", [0, 200_001])
def test_nor_do_the_questions_of_a_task(padding: int) -> None:
    ask = {"method": "elicitation/create", "params": _page("javascript:alert(1)")}
    result = {"taskId": "1", "status": "input_required", "inputRequests": {"a": ask}, "more": [0] * padding}
    call = Call("tasks/get", "1", Client())
    with pytest.raises(Fault, match="asked for"):
        modern.read_result(call, Raw(jsonrpc.encode(result)))
