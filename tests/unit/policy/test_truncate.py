"""Results that are too large: what is shown of them, what is said, and where the rest is."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from virtualtime import FakeClock

from toolgate.core.excerpts import Ends
from toolgate.core.model import Accepted, Call, Client, Done, Principal, ToolInfo
from toolgate.policy.overflow import Bounds, OverflowStore
from toolgate.policy.truncate import META_KEY, Limit, Truncate
from toolgate.search.tokens import estimate

ANN = Client(Principal("ann"))
LOG = "".join(f"line {number}\n" for number in range(1, 1001))
CALL = Call("tools/call", "log", ANN, server="docs")


class Bench:
    """A policy, what it keeps, and a result that it has seen."""

    def __init__(self, bytes: int | None = 1000, tokens: int | None = None, **more: Any) -> None:
        ends = Ends(more.get("head"), more.get("tail"))
        self.overflow = OverflowStore(FakeClock(), bounds=more.get("bounds"))
        self.policy = Truncate(Limit(bytes, tokens, ends), more.get("limits", {}), self.overflow)

    def shown(self, *content: Any, call: Call = CALL, **members: Any) -> Any:
        body = json.dumps({"content": content, **members}).encode()
        outcome = self.policy.after(call, Done(body), None)
        assert isinstance(outcome, Done)
        return json.loads(bytes(outcome.body))

    def whole(self, uri: str) -> Any:
        self.overflow.at_once = 10**9
        (content,) = self.overflow.read(ANN, uri)["contents"]
        return content.get("text") or base64.b64decode(content["blob"])


def text(text: str) -> Any:
    return {"type": "text", "text": text}


def parts(result: Any) -> Any:
    return result["_meta"][META_KEY]["parts"]


async def test_a_result_within_its_limit_passes_as_the_very_bytes() -> None:
    body = b'{ "content" : [ {"type":"text","text":"short"} ] , "x":1e2}'
    for bench in (Bench(len(body)), Bench(None), Bench(None, len(body))):
        done = Done(body)
        assert bench.policy.after(CALL, done, None) is done


async def test_what_is_large_only_as_it_is_written_passes_too() -> None:
    body = ('{"content":[{"type":"text","text":"' + "\\u0061" * 900 + '"}]}').encode()
    outcome = Bench(1000).policy.after(CALL, Done(body), None)
    assert outcome == Done(body)


async def test_of_a_long_text_its_beginning_is_shown_with_where_the_rest_is() -> None:
    bench = Bench(100)
    result = bench.shown(text(LOG))
    (block,) = result["content"]
    (part,) = parts(result)
    assert block["text"].startswith("line 1\nline 2\n")
    shown, notice = block["text"].split("\n\n")
    assert shown == "\n".join(LOG.splitlines()[:13])
    assert notice == (
        f"[Cut by toolgate: the first 13 of 1,000 lines are shown. "
        f"The full content is the resource {part['uri']}, readable in ranges such as {part['uri']}?lines=14-213]"
    )
    assert part == {
        "kind": "text",
        "mimeType": "text/plain",
        "bytes": len(LOG),
        "uri": part["uri"],
        "shown": {"unit": "lines", "first": 13, "last": 0, "total": 1000},
    }
    assert bench.whole(part["uri"]) == LOG


async def test_the_configuration_says_which_ends_are_shown() -> None:
    block = Bench(100, head=2, tail=1).shown(text(LOG))["content"][0]
    assert block["text"].startswith(
        "line 1\nline 2\n...\nline 1000\n\n\n[Cut by toolgate: the first 2 and the last 1 of"
    )
    block = Bench(100, tail=2).shown(text(LOG))["content"][0]
    assert block["text"].startswith("line 999\nline 1000\n\n\n[Cut")


async def test_members_of_a_cut_text_stay() -> None:
    block = text(LOG) | {"annotations": {"priority": 1}, "_meta": {"x": 1}}
    result = Bench(100).shown(block, isError=True, other=[1], _meta={"y": 2})
    assert result["content"][0]["annotations"] == {"priority": 1}
    assert result["content"][0]["_meta"] == {"x": 1}
    assert (result["isError"], result["other"], result["_meta"]["y"]) == (True, [1], 2)


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (json.dumps({"rows": ["x" * 50] * 100, "next": None}), "JSON object of 2 members (rows, next)"),
        (json.dumps([{"a": 1}] * 1000, indent=2), "JSON array of 1,000 items"),
        (json.dumps("x" * 2000), "JSON value"),
        (json.dumps({f"key {n}": "x" * 100 for n in range(20)}), "JSON object of 20 members (key 0, key 1, "),
        (base64.b64encode(b"x" * 3000).decode(), "base64"),
        (base64.encodebytes(b"xyz" * 3000).decode(), "base64"),
        ("data:image/png;base64," + base64.b64encode(b"x" * 3000).decode(), "base64"),
        (json.dumps(["x" * 10] * 500) + "\nlast", "text of 2 lines"),
    ],
)
async def test_json_and_base64_are_never_parted(whole: str, said: str) -> None:
    bench = Bench(500)
    result = bench.shown(text(whole))
    notice, link = result["content"]
    (part,) = parts(result)
    assert notice["text"].startswith(f"[Left out by toolgate: {said}")
    assert link["uri"] == part["uri"] and link["uri"] in notice["text"]
    assert link["size"] == len(whole.encode())
    assert bench.whole(part["uri"]) == whole


async def test_a_line_of_json_among_others_is_shown_whole_or_not() -> None:
    row = json.dumps({"value": "x" * 30})
    (block,) = Bench(100).shown(text(f"{row}\n" * 50))["content"]
    assert block["text"].startswith(f"{row}\n{row}\n\n[Cut")


@pytest.mark.parametrize("kind", ["image", "audio"])
async def test_images_and_sounds_are_left_out_whole(kind: str) -> None:
    bench, data = Bench(500), bytes(range(256)) * 10
    result = bench.shown(
        text("before"), {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": "a/b"}, text("after")
    )
    before, notice, link, after = result["content"]
    assert (before, after) == (text("before"), text("after"))
    assert f"{kind} (a/b), 2,560 bytes" in notice["text"]
    assert (link["type"], link["mimeType"], link["size"]) == ("resource_link", "a/b", 2560)
    assert bench.whole(link["uri"]) == data


async def test_embedded_resources_are_left_out_whole() -> None:
    bench = Bench(500)
    resource = {"uri": "file:///a", "mimeType": "text/x", "text": LOG}
    notice, link = bench.shown({"type": "resource", "resource": resource})["content"]
    assert "resource file:///a" in notice["text"]
    assert bench.whole(link["uri"]) == LOG
    blob = {"uri": "file:///a", "blob": base64.b64encode(b"x" * 900).decode()}
    _, link = bench.shown({"type": "resource", "resource": blob})["content"]
    assert bench.whole(link["uri"]) == b"x" * 900


async def test_blocks_of_an_unknown_kind_are_kept_as_they_are() -> None:
    bench, odd = Bench(500), {"type": "odd", "payload": ["x" * 100] * 20}
    _, link = bench.shown(odd)["content"]
    assert json.loads(bench.whole(link["uri"])) == odd


async def test_many_small_blocks_are_left_out_together() -> None:
    bench = Bench(500)
    blocks = [text(f"block {number}") for number in range(1000)]
    *shown, notice, link = bench.shown(*blocks)["content"]
    assert shown == blocks[: len(shown)] and len(shown) > 40
    assert f"{1000 - len(shown)} blocks of content" in notice["text"]
    assert json.loads(bench.whole(link["uri"])) == blocks[len(shown) :]


async def test_many_large_blocks_do_not_make_many_notices() -> None:
    image = {"type": "image", "data": base64.b64encode(b"x" * 2000).decode(), "mimeType": "image/png"}
    content = Bench(500).shown(*[image] * 200)["content"]
    assert len(content) == 2 * 9


async def test_structured_content_that_nobody_promised_is_left_out_with_the_text_of_it() -> None:
    bench, value = Bench(500), {"rows": list(range(300))}
    result = bench.shown(text(json.dumps(value, indent=1)), structuredContent=value)
    notice, link = result["content"]
    assert "structuredContent" not in result and "isError" not in result
    assert [part["kind"] for part in parts(result)] == ["json", "structuredContent"]
    assert {part["uri"] for part in parts(result)} == {link["uri"]}
    assert json.loads(bench.whole(link["uri"])) == value
    assert "JSON object" in notice["text"]


async def test_structured_content_that_was_promised_has_the_first_claim() -> None:
    bench, value = Bench(2000), {"rows": list(range(300))}
    call = msgspec.structs.replace(CALL, tool_info=ToolInfo(has_output=True))
    result = bench.shown(text(json.dumps(value)), structuredContent=value, call=call)
    assert result["structuredContent"] == value
    assert "isError" not in result
    assert result["content"][1]["type"] == "resource_link"


async def test_promised_structured_content_that_cannot_be_shown_makes_an_error_that_says_it_was_executed() -> None:
    bench, value = Bench(500), {"rows": list(range(300))}
    call = msgspec.structs.replace(CALL, tool_info=ToolInfo(has_output=True))
    result = bench.shown(text(json.dumps(value)), structuredContent=value, call=call)
    notice, link = result["content"]
    assert result["isError"] is True
    assert notice["text"].startswith("[The call was executed. Left out by toolgate: structured content, JSON object")
    assert json.loads(bench.whole(link["uri"])) == value


async def test_a_limit_in_tokens_holds_by_the_estimate() -> None:
    bench = Bench(None, 50)
    (block,) = bench.shown(text(LOG))["content"]
    shown = block["text"].split("\n\n")[0]
    assert 30 < estimate(shown) <= 50
    assert len(bench.shown(text("x" * 200))["content"]) == 1
    image = {"type": "image", "data": base64.b64encode(b"x" * 2000).decode(), "mimeType": "image/png"}
    assert bench.shown(image)["content"] == [image]


async def test_a_server_has_its_own_limit() -> None:
    bench = Bench(100, limits={"docs": Limit()})
    assert bench.shown(text(LOG))["content"] == [text(LOG)]
    other = msgspec.structs.replace(CALL, server="other")
    assert bench.shown(text(LOG), call=other)["content"] != [text(LOG)]


async def test_what_is_too_large_to_be_kept_says_so() -> None:
    result = Bench(100, bounds=Bounds(bytes_of_one=50)).shown(text(LOG))
    (block,) = result["content"]
    assert block["text"].endswith("It is too large to be stored]")
    assert "uri" not in parts(result)[0]
    (notice,) = Bench(100, bounds=Bounds(bytes_of_one=50)).shown(text(json.dumps([1] * 500)))["content"]
    assert notice["text"].endswith("It is too large to be stored]")


@pytest.mark.parametrize("body", [b"{}", b'{"content":[1]}', b'{"content":[{"text":"x"}]}'])
async def test_what_is_out_of_shape_and_little_passes(body: bytes) -> None:
    padded = body + b" " * 2000
    assert Bench(100).policy.after(CALL, Done(padded), None) == Done(padded)


async def test_only_results_of_tools_are_limited() -> None:
    policy = Bench(10).policy
    body = json.dumps({"contents": [{"uri": "a:b", "text": LOG}], "content": [text(LOG)]}).encode()
    for method in ("resources/read", "prompts/get", "completion/complete", "tasks/get"):
        done = Done(body)
        assert policy.after(msgspec.structs.replace(CALL, method=method), done, None) is done
    accepted = Accepted(body)
    assert policy.after(CALL, accepted, None) is accepted
    assert policy.after(msgspec.structs.replace(CALL, method="tasks/result"), Done(body), None) != Done(body)


MALFORMED = [None, 5, "x", [], {}, {"type": 5}, {"type": "text", "text": 5}, {"type": "resource", "resource": None}]


@pytest.mark.parametrize("bad", MALFORMED, ids=str)
async def test_a_part_that_is_out_of_shape_lifts_no_limit(bad: Any) -> None:
    for content in ([text(LOG), bad], [bad, text(LOG)]):
        bench = Bench()
        found = bench.shown(*content)
        assert len(json.dumps(found)) < 3000 and bench.whole(parts(found)[0]["uri"]) == LOG
    assert bad in found["content"]
    assert len(json.dumps(Bench().shown(bad, structuredContent={"a": LOG}))) < 3000


@pytest.mark.parametrize(
    "large", [LOG, [LOG] * 2, {"type": "text", "text": [LOG]}, {"text": LOG}, {"type": [LOG]}], ids=len
)
async def test_a_large_part_that_is_out_of_shape_is_left_out(large: Any) -> None:
    bench = Bench()
    found = bench.shown(large, text("b"))
    assert len(json.dumps(found)) < 3000 and text("b") in found["content"]
    assert json.loads(bench.whole(parts(found)[0]["uri"])) == large


@pytest.mark.parametrize(
    "members",
    [{"content": LOG}, {"content": {"a": LOG}}, {"structuredContent": {"a": LOG}}],
    ids=["text", "object", "none"],
)
@pytest.mark.parametrize("failed", [{}, {"isError": True}, {"isError": "no"}], ids=str)
async def test_a_result_whose_content_is_no_list_is_limited_too(members: Any, failed: Any) -> None:
    bench = Bench()
    body = json.dumps(members | failed).encode()
    outcome = bench.policy.after(CALL, Done(body), None)
    assert isinstance(outcome, Done) and len(bytes(outcome.body)) < 3000
    found = json.loads(bytes(outcome.body))
    assert "line 999" in bench.whole(parts(found)[0]["uri"])


BESIDE = [
    {"content": [text("a") | {"TEXT": LOG}]},
    {"content": [text("a") | {"annotations": {"a": LOG}}]},
    {"content": [text("a") | {"_meta": {"a": LOG}}]},
    {"content": [{"type": "resource_link", "uri": "a:" + "b" * 6000, "name": "a"}]},
    {"content": [{"type": "resource", "resource": {"uri": "a:b", "mimeType": "a" * 6000, "text": LOG}}]},
    {"content": [{"type": "image", "mimeType": "a" * 6000, "data": "AAAA"}]},
    {"content": [text("a")], "_meta": {"a": LOG}},
    {"content": [text("a")], "toolResult": LOG},
    {"content": [text("a")], LOG: 1},
]


@pytest.mark.parametrize("result", BESIDE, ids=range(len(BESIDE)))
@pytest.mark.parametrize("limits", [(1000, None), (None, 300)], ids=["bytes", "tokens"])
async def test_what_stands_beside_the_content_counts_too(result: Any, limits: tuple[int | None, int | None]) -> None:
    bench = Bench(*limits)
    found = bench.shown(*result["content"], **{name: each for name, each in result.items() if name != "content"})
    is_no_text = result["content"][0]["type"] in ("image", "resource_link")
    if limits[0] or not is_no_text:  # what is no text has no tokens
        assert len(json.dumps(found)) < 3000 and bench.whole(parts(found)[0]["uri"])


ODD = ["many words " * 900, "image or nothing", "<b> bold", "has been deleted"]


@pytest.mark.parametrize("odd", ODD, ids=range(4))
async def test_what_a_server_calls_its_blocks_stands_in_no_notice_unless_it_is_one_word(odd: str) -> None:
    bench = Bench()
    uri = {"type": "resource", "resource": {"uri": odd, "text": LOG}}
    for block in ({"type": odd, "data": LOG}, {"type": "image", "mimeType": odd, "data": "AAAA" * 900}, uri):
        found = bench.shown(block)
        assert len(json.dumps(found)) < 3000 and odd not in json.dumps(found)
        assert parts(found)[0]["kind"] in ("block", "image", "resource")


SMALL = [
    text("") | {"_meta": {"x": "z" * 990}},
    text("a") | {"TEXT": "z" * 990},
    text(""),
    {"type": "text", "text": "", "note": "z"},
]


@pytest.mark.parametrize("block", SMALL, ids=range(4))
async def test_many_blocks_with_little_text_and_much_beside_it_are_limited_together(block: Any) -> None:
    bench = Bench()
    found = bench.shown(*[block] * 2000)
    assert len(json.dumps(found)) < 3000 and bench.whole(parts(found)[0]["uri"])
