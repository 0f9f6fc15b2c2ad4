"""What each revision does not know, row by row."""

from __future__ import annotations

import json
from typing import Any

import official
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.listing import Listing
from toolgate.core.model import Answer, Ask, Client
from toolgate.eras import legacy, modern, questions, revisions

LATEST, MODERN = mcp.LATEST["legacy"].date, "2026-07-28"
LEGACY = mcp.dates("legacy")
OBJECT = {"type": "object"}
TEXT = {"type": "text", "text": "said"}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def read(written: Raw | bytes) -> Any:
    return json.loads(bytes(written))


def item(kind: str, value: Any, revision: str) -> Any:
    return read(revisions.write_item(kind, raw(value), mcp.REVISIONS[revision]))


def tool(**members: Any) -> Any:
    return {"name": "t", "inputSchema": OBJECT, **members}


NOW = "2026-11-27T07:30:00+01:00"

# Items of lists.


@pytest.mark.promise("b.rulings.13-members")
@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
@pytest.mark.parametrize(
    "kind, value",
    [
        ("tools", tool(title="T", icons=[{"src": "x:y", "theme": "dark"}], outputSchema=OBJECT, vendor={"a": None})),
        ("tools", tool(annotations={"readOnlyHint": True}, execution={"taskSupport": "optional"}, _meta={"a": 1})),
        ("resources", {"name": "r", "uri": "x:y", "size": 5, "annotations": {"priority": 1, "lastModified": NOW}}),
        ("resourceTemplates", {"name": "r", "uriTemplate": "x:{y}", "icons": []}),
        ("prompts", {"name": "p", "arguments": [{"name": "a", "title": "A", "required": True}]}),
    ],
)
def test_what_a_schema_allows_passes_as_the_same_bytes(revision: str, kind: str, value: Any) -> None:
    same = raw(value)
    assert revisions.write_item(kind, same, mcp.REVISIONS[revision]) is same


@pytest.mark.parametrize(
    ("written", "size"), [("1e3", "1000"), ("10E2", "1000"), ("0e0", "0"), ("-0.0", "0"), ("7.0", "7")]
)
def test_a_whole_number_is_written_in_digits_as_readers_with_types_want_it(written: str, size: str) -> None:
    """`1e3` kept Go's and Rust's SDK from reading the resources of all servers."""
    listed = Raw(b'{"uri":"x:y","name":"r","size":%b}' % written.encode())
    found = revisions.write_item("resources", listed, mcp.REVISIONS[MODERN])
    assert found and bytes(found) == b'{"uri":"x:y","name":"r","size":%b}' % size.encode()


@pytest.mark.parametrize("schema", [{"type": "array"}, {"anyOf": [OBJECT]}, {}, True])
def test_an_output_schema_of_no_object_is_for_modern_clients_only(schema: Any) -> None:
    listed = tool(outputSchema=schema)
    for revision in LEGACY:
        assert item("tools", listed, revision) == tool()
    assert item("tools", listed, MODERN) == (tool() if schema is True else listed)


def test_a_schema_that_is_true_or_false_is_written_out_for_older_clients() -> None:
    new = tool(inputSchema={**OBJECT, "properties": {"any": True, "none": False, "deep": {"not": True}}})
    for revision in LEGACY:
        found = item("tools", new, revision)["inputSchema"]["properties"]
        assert found == {"any": {}, "none": {"not": {}}, "deep": {"not": True}}
    assert item("tools", new, MODERN) == new


def test_arguments_are_an_object_whether_their_schema_says_so_or_not() -> None:
    for revision in (*LEGACY, MODERN):
        found = item("tools", {"name": "t", "inputSchema": {"properties": {}}}, revision)
        assert found == tool(inputSchema={"properties": {}, "type": "object"})


@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
def test_a_member_that_is_not_what_its_name_means_is_left_out_alone(revision: str) -> None:
    icon = {"src": "https://a/b.png"}
    wrong = tool(
        title=None,
        icons=[{**icon, "sizes": "48x48"}, {"src": "no uri"}, 7],
        annotations={"title": None, "destructiveHint": False},
        execution=[],
        description="D",
    )
    right = tool(icons=[icon], annotations={"destructiveHint": False}, description="D")
    assert item("tools", wrong, revision) == right
    argument = {"name": "a", "required": "yes"}
    assert item("prompts", {"name": "p", "arguments": [argument]}, revision) == {
        "name": "p",
        "arguments": [{"name": "a"}],
    }


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("value", [7, [], tool(inputSchema=7), tool(inputSchema={"type": "string"})])
def test_an_item_that_is_valid_for_nobody_passes(value: Any, revision: str) -> None:
    assert item("tools", value, revision) == value


@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
def test_a_tool_without_a_schema_takes_an_object(revision: str) -> None:
    assert item("tools", {"name": "t"}, revision) == tool()


def test_an_item_is_looked_through_once() -> None:
    wrong = raw(tool(title=None))
    assert revisions.write_item("tools", wrong, mcp.REVISIONS[LATEST]) is revisions.write_item(
        "tools", wrong, mcp.REVISIONS[LATEST]
    )


def test_what_is_remembered_of_items_is_bounded() -> None:
    kept = [raw(tool(n=n)) for n in range(5000)]
    for each in kept:
        assert revisions.write_item("tools", each, mcp.REVISIONS[LATEST]) is each
    assert len(revisions._remembered) <= 4096  # pyright: ignore[reportPrivateUsage]


def test_lists_keep_what_they_say_about_themselves() -> None:
    listing = Listing("tools", (raw(tool(title=None)),), pending=("slow",))
    assert read(legacy.write_listing(mcp.REVISIONS[LATEST], listing)) == {
        "tools": [tool()],
        "_meta": {"pending": ["slow"]},
    }
    assert read(modern.write_listing(Client(revision=mcp.REVISIONS[MODERN]), listing, {}))["tools"] == [tool()]


# Results.


@pytest.mark.promise("b.rulings.13-members", "spec.legacy.messages.schema")
@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("structured", [[1, {"a": 2}], "said so", 5, False])
def test_structured_content_that_is_no_object_stands_in_the_text(revision: str, structured: Any) -> None:
    bare = {"content": [TEXT], "structuredContent": structured, "isError": True}
    found = read(legacy.write_done(mcp.REVISIONS[revision], raw(bare)))
    said = json.dumps(structured)
    assert found == {"content": [TEXT, {"type": "text", "text": said}], "isError": True}
    told = {**bare, "content": [{"type": "text", "text": json.dumps(structured, indent=3)}]}
    assert read(legacy.write_done(mcp.REVISIONS[revision], raw(told))) == {"content": told["content"], "isError": True}


def test_structured_content_that_is_null_says_nothing() -> None:
    body = raw({"content": [TEXT], "structuredContent": None})
    assert read(legacy.write_done(mcp.REVISIONS[LATEST], body)) == {"content": [TEXT]}


def test_a_structured_text_is_said_by_itself_too() -> None:
    body = raw({"content": [TEXT], "structuredContent": "said"})
    assert read(legacy.write_done(mcp.REVISIONS[LATEST], body)) == {"content": [TEXT]}


def test_a_structured_object_passes_byte_by_byte() -> None:
    body = Raw(b'{ "content" : [],"structuredContent":{"a":1.0} }')
    for revision in LEGACY:
        assert legacy.write_done(mcp.REVISIONS[revision], body) is body


def test_audio_and_links_become_text_that_keeps_who_it_is_for() -> None:
    annotations = {"audience": ["user"]}
    audio = {"type": "audio", "data": "AA==", "mimeType": "audio/wav", "annotations": annotations}
    link = {"type": "resource_link", "uri": "x:y", "name": "a file"}
    found = read(legacy.write_done(mcp.REVISIONS["2024-11-05"], raw({"content": [audio, link], "x": 1})))
    assert found == {
        "content": [
            {"type": "text", "text": "[audio] audio/wav", "annotations": annotations},
            {"type": "text", "text": "[a file] x:y"},
        ],
        "x": 1,
    }


def test_what_2026_defines_otherwise_is_not_taken_from_an_older_server() -> None:
    body = raw({"contents": [], "ttlMs": "long", "cacheScope": None})
    assert read(modern.write_done("resources/read", body)) == {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "contents": [],
    }


def test_more_than_a_hundred_completions_are_shown_as_a_hundred_and_more() -> None:
    many = {"completion": {"values": [str(n) for n in range(150)], "total": 150}}
    found = read(modern.write_done("completion/complete", raw(many)))["completion"]
    assert (len(found["values"]), found["hasMore"], found["total"]) == (100, True, 150)
    few = raw({"resultType": "complete", "completion": {"values": ["a"]}})
    assert modern.write_done("completion/complete", few) == bytes(few)


# Notes.


def test_a_note_loses_only_what_is_not_allowed() -> None:
    fine = raw({"progress": 1, "total": 2, "message": "m", "x": None})
    assert revisions.write_note("progress", fine) is fine
    wrong = raw({"progress": 1, "total": None, "message": {"a": 1}})
    assert read(revisions.write_note("progress", wrong)) == {"progress": 1}
    log = raw({"level": "info", "data": {"message": 5}, "logger": None, "message": 5})
    assert read(revisions.write_note("log", log)) == {"level": "info", "data": {"message": 5}, "message": 5}
    assert read(revisions.write_note("log", raw([1]))) == [1]


# What clients can be asked.


CAN: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}, "x": 1}


@pytest.mark.promise("spec.2026.mrtr.declared")
@pytest.mark.parametrize(
    "revision, known",
    [
        ("2024-11-05", {"sampling": {}, "roots": {}, "x": 1}),
        ("2025-03-26", {"sampling": {}, "roots": {}, "x": 1}),
        ("2025-06-18", {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}, "x": 1}),
        ("2025-11-25", CAN),
    ],
)
def test_a_client_can_do_what_its_revision_has(revision: str, known: dict[str, Any]) -> None:
    assert questions.known_capabilities(CAN, mcp.REVISIONS[revision]) == known
    assert questions.known_capabilities({"elicitation": None}, mcp.REVISIONS[LATEST]) == {"elicitation": None}
    assert questions.known_capabilities({"elicitation": {"form": {}}}, mcp.REVISIONS["2025-06-18"]) == {
        "elicitation": {}
    }


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_client_that_names_pages_is_sent_to_them_whatever_its_revision(revision: str) -> None:
    page = {"mode": "url", "message": "Sign in", "url": "https://example.com"}
    ask = Ask("1", "elicitation/create", Raw(json.dumps(page).encode()))
    written = {name: json.loads(bytes(raw)) for name, raw in legacy.write_ask(ask, mcp.REVISIONS[revision]).items()}
    assert written.pop("elicitationId")
    assert written == page


# Questions.


def asked(method: str, params: Any, revision: str) -> Any:
    return {
        name: read(member)
        for name, member in questions.write_question(Ask("a", method, raw(params)), mcp.REVISIONS[revision]).items()
    }


def field(shape: Any, revision: str) -> Any:
    form = {"message": "?", "requestedSchema": {**OBJECT, "properties": {"a": shape}}}
    params = asked("elicitation/create", form, revision)
    official.check({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params}, revision)
    return params["requestedSchema"]["properties"]["a"]


TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]


@pytest.mark.parametrize(
    "new, old",
    [
        ({"type": "string", "oneOf": TITLED}, {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}),
        (
            {"type": "array", "title": "T", "items": {"anyOf": TITLED}, "minItems": 1, "default": ["r"]},
            {"type": "string", "title": "T", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        ),
        ({"type": "array", "items": {"type": "string", "enum": ["r"]}}, {"type": "string", "enum": ["r"]}),
        ({"type": "string", "default": "x"}, {"type": "string", "default": "x"}),
        ({"type": "string", "enum": ["r"]}, {"type": "string", "enum": ["r"]}),
    ],
)
def test_a_field_is_asked_for_in_words_that_its_client_knows(new: Any, old: Any) -> None:
    assert field(new, LATEST) == new
    assert field(new, "2025-06-18") == old


def test_a_default_of_another_type_is_left_out() -> None:
    for kind, wrong in (("string", 5), ("integer", "5"), ("number", None)):
        assert field({"type": kind, "default": wrong}, LATEST) == {"type": kind}
        assert field({"type": kind, "default": wrong}, "2025-06-18") == {"type": kind}


def test_the_one_choice_of_an_older_client_is_a_list_for_the_server() -> None:
    several = {"type": "array", "items": {"type": "string", "enum": ["r"]}}
    form = {"requestedSchema": {**OBJECT, "properties": {"a": several, "b": {"type": "string"}}}}
    ask = Ask("a", "elicitation/create", raw(form))

    def answered(result: Any, revision: str = "2025-06-18") -> Any:
        return read(questions.read_choices(ask, Answer(raw(result)), mcp.REVISIONS[revision]).result)

    assert answered({"action": "accept", "content": {"a": "r", "b": "s"}})["content"] == {"a": ["r"], "b": "s"}
    for same in ({"action": "decline"}, {"action": "accept", "content": {"a": ["r"]}}, {"action": "accept"}):
        assert answered(same) == same
    assert answered({"action": "accept", "content": {"a": "r"}}, LATEST)["content"] == {"a": "r"}
    error = Answer(error=jsonrpc.RpcError(-1))
    assert questions.read_choices(ask, error, mcp.REVISIONS["2025-06-18"]) is error


def sampled(content: Any, revision: str, **more: Any) -> Any:
    params = {"maxTokens": 5, "messages": [{"role": "user", "content": content}], **more}
    found = asked("sampling/createMessage", params, revision)
    if revision != MODERN:
        official.check({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": found}, revision)
    return found


def test_a_message_of_several_blocks_is_several_messages_for_those_who_know_one_block() -> None:
    audio = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
    shown = {"type": "text", "text": "[audio] audio/wav"}
    assert [each["content"] for each in sampled([TEXT, audio], LATEST)["messages"]] == [[TEXT, audio]]
    assert [each["content"] for each in sampled([TEXT, audio], "2025-06-18")["messages"]] == [TEXT, audio]
    assert [each["content"] for each in sampled([TEXT, audio], "2024-11-05")["messages"]] == [TEXT, shown]
    assert sampled(TEXT, "2024-11-05")["messages"] == [{"role": "user", "content": TEXT}]


def test_the_use_of_tools_becomes_text_for_those_who_know_none() -> None:
    use = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "toolUseId": "1", "content": [TEXT, TEXT]}
    found = sampled([use, result], "2025-06-18", tools=[tool()], toolChoice={"mode": "auto"})
    assert [each["content"]["text"] for each in found["messages"]] == [
        '[tool_use] add {"a": 1}',
        "[tool_result] said said",
    ]
    assert not {"tools", "toolChoice"} & found.keys()


def test_a_tools_result_in_a_conversation_has_an_object_or_nothing() -> None:
    result = {"type": "tool_result", "toolUseId": "1", "content": [TEXT], "structuredContent": [1]}
    assert sampled(result, MODERN)["messages"][0]["content"] == result
    assert "structuredContent" not in sampled(result, LATEST)["messages"][0]["content"]


def test_tools_in_a_question_are_written_like_those_of_a_list() -> None:
    found = sampled(TEXT, LATEST, tools=[tool(outputSchema={"type": "array"})])
    assert found["tools"] == [tool()]


@pytest.mark.promise("spec.2026.meta.hop")
def test_how_a_question_was_addressed_on_its_own_hop_goes_to_nobody() -> None:
    params = {"_meta": {mcp.PROGRESS_KEY: 7, "trace": "x"}, "task": {"ttl": 5}}
    for revision in (LATEST, MODERN):
        assert asked("roots/list", params, revision) == {"_meta": {"trace": "x"}}
        assert asked("roots/list", {"_meta": {mcp.PROGRESS_KEY: 7}}, revision) == {}


@pytest.mark.parametrize("method", mcp.ASKS)
@pytest.mark.parametrize("params", [{"messages": 5, "requestedSchema": []}, {"messages": [7], "requestedSchema": 7}])
def test_a_question_out_of_shape_passes(method: str, params: Any) -> None:
    for revision in (*LEGACY, MODERN):
        assert asked(method, params, revision) == params


_names = st.text(st.sampled_from('ab"\\é:'), max_size=3)
_values = st.recursive(
    st.sampled_from(["1", '"a:{"', '""', "null"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda found: f"[{','.join(found)}]")
        | st.dictionaries(_names, inner, max_size=3).map(
            lambda found: f"{{{', '.join(f'{json.dumps(name)}: {value}' for name, value in found.items())}}}"
        )
    ),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(_names, _values, st.sampled_from([",", ", ", " , "]), st.sampled_from([":", ": "])), max_size=4)
)
def test_an_object_whose_members_are_written_once_is_the_same_bytes_and_of_another_the_last_ones_are_kept(
    found: list[tuple[str, str, str, str]],
) -> None:
    members = [json.dumps(name) + colon + value for name, value, _, colon in found]
    commas = ["", *(comma for *_, comma, _ in found[1:])]
    raw = Raw(f"{{{''.join(comma + member for comma, member in zip(commas, members, strict=False))}}}".encode())
    once = revisions._once(raw)
    assert (once is raw) == (len({name for name, *_ in found}) == len(found))
    assert json.loads(bytes(once)) == json.loads(bytes(raw))
