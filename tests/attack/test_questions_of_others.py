"""Where one client has its users sent leaves room for what others were asked."""

from __future__ import annotations

import pytest
from attack.test_what_is_remembered_of_others import client
from peers import LegacyServer, RpcError, Scene, gateway
from virtualtime import settle

from toolgate.core import mcp
from toolgate.core.model import Principal
from toolgate.upstreams.mcp import sent_pages
from toolgate.upstreams.mcp.sent_pages import MOST_PAGES, SentPages


async def test_whoever_was_sent_to_a_page_hears_that_it_is_done_with_however_many_others_were_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sent_pages, "MOST_PAGES", 4)

    async def sign_in(scene: Scene) -> str:
        page = {
            "mode": "url",
            "elicitationId": scene.arguments["id"],
            "url": "https://example.com/",
            "message": "Sign in",
        }
        raise RpcError(mcp.URL_ELICITATION_REQUIRED, "Sign in first", {"elicitations": [page]})

    there = LegacyServer({"sign-in": sign_in})
    async with gateway(there=there) as rig:
        bob, mallory = await rig.legacy(principal="bob"), await rig.legacy(principal="mallory")
        heard = await bob.listen()
        await bob.call("there__sign-in", arguments={"id": "bobs"})
        for number in range(9):
            await mallory.call("there__sign-in", arguments={"id": f"hers/{number}"})
        done = {"elicitationId": "bobs"}
        there.open_connections[-1].say({"jsonrpc": "2.0", "method": mcp.ELICITED, "params": done})
        await settle()
        assert [message["method"] for message in heard.messages] == [mcp.ELICITED]


@pytest.mark.parametrize(
    ("bob", "mallory"),
    [(Principal("bob"), Principal("mallory")), (Principal(address="192.0.2.1"), Principal(address="192.0.2.2"))],
    ids=["keys", "addresses"],
)
def test_of_pages_whoever_was_sent_to_most_loses_the_first(bob: Principal, mallory: Principal) -> None:
    pages = SentPages()
    pages.add("shared", client(mallory))
    pages.add("shared", client(bob))
    for number in range(2 * MOST_PAGES):
        pages.add(f"hers/{number}", client(mallory))
    assert len(pages) == MOST_PAGES
    assert pages.take("hers/0") is None and pages.take("shared") == (bob.id, "s")
    assert pages.take("shared") is None
