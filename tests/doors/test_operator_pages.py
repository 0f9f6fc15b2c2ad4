"""What stands on the operator's pages, and what their forms do. Read as browsers read it: see `reader`."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from doors.issuers import KEYS, client
from doors.test_pages_of_agents import record, task
from inmemory import GREETER, Refusal, Scripted, Visitor, gateway, said, tools
from reader import Reader, signed_in
from virtualtime import FakeClock

from toolgate.app import App
from toolgate.auth.access import THE_OPERATOR
from toolgate.auth.credential_states import CredentialState
from toolgate.config import Config, Server
from toolgate.config.access import Approvals, Permissions
from toolgate.config.settings import Telemetry
from toolgate.core.fault import Fault
from toolgate.core.redaction import Redactor
from toolgate.frontends.web import inspections, tool_fields
from toolgate.frontends.web.views import VIEWS
from toolgate.state import audit
from toolgate.state.audit import Trail

WEB = Path(__file__).parents[2] / "src" / "toolgate" / "frontends" / "web"
PATHS = [path for path, methods in VIEWS.items() if "GET" in methods]
NAMES = {  # what stands for the name in a path
    "/approvals/{name}": "WAITING",
    "/access/{name}": "ann",
    "/tasks/{name}": "TASK",
    "/sessions/{name}": "SESSION",
}
QUERIES = {"/registry": "?q=milk+the+goats", "/tools/tool": "?name=there__echo"}
PAGES = [path.replace("{name}", NAMES.get(path, "there")) + QUERIES.get(path, "") for path in PATHS]
HOSTILE = "</pre></textarea><script>alert(1)</script><img src=x onerror=alert(1)>'\" {{ 7 * 7 }} \u202eevil\x1b[31m"


def hostile(answer: Any) -> Any:
    """The same with texts that attack: as if everybody who is quoted there were a stranger."""
    if isinstance(answer, dict):
        return {key: hostile(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [hostile(each) for each in answer]
    return answer + HOSTILE if isinstance(answer, str) else answer


async def among_strangers(app: App) -> Reader:
    """A reader whose pages quote strangers in every place."""
    reader = await signed_in(app)
    pages = app.http.web._pages["/ui"]
    ask = pages._ask

    async def asked(*question: Any) -> tuple[int, bytes]:
        status, body = await ask(*question)
        told = hostile(json.loads(body))
        for each in told.get("listing", {}).get("tools", ()):  # by their names they are found
            each["name"] = each["name"].removesuffix(HOSTILE)
        return status, json.dumps(told).encode()

    pages._ask = asked
    return reader


@pytest.mark.parametrize("path", PAGES)
async def test_what_servers_and_clients_write_never_becomes_markup(path: str) -> None:
    scripted = Scripted(tools_list=tools("echo", description=HOSTILE, title=HOSTILE), tools_call=said(HOSTILE))
    failing = Fault("SERVER_FAILED", HOSTILE, hint=HOSTILE)
    async with gateway(GREETER, config=ASKS, scripts={"there": scripted, "failing": failing}) as app:
        await called(app, text=HOSTILE)
        (waiting,) = app._frontend_deps.deciding.approvals.requests()
        await record(app, "SESSION", THE_OPERATOR)
        path = path.replace("WAITING", waiting.id).replace("TASK", await task(app, "a task"))
        reader = await among_strangers(app)
        await reader.send("POST", "/ui/servers/failing/check", {"csrf": reader.page.hidden["csrf"]})
        await reader.open("/ui" + path)
        assert "{{ 7 * 7 }}" in reader.page.text and "\\u{202e}" in reader.page.text
        assert not re.search("[\u202e\x1b]", reader.page.text)


async def test_a_refusal_never_becomes_markup_either() -> None:
    async with gateway(GREETER) as app:
        reader = await among_strangers(app)
        await reader.open("/ui/servers/nobody", 404)
        assert "<script>alert(1)</script>" in reader.page.text


async def test_the_overview_says_what_needs_the_operator() -> None:
    async with gateway(
        GREETER, scripts={"broken": Fault("SERVER_FAILED", "no such program", hint="install it")}
    ) as app:
        reader = await signed_in(app)
        assert "Nothing." in (await reader.open("/ui")).text
        await reader.open("/ui/servers/broken")
        await reader.press("/ui/servers/broken/check", 502)
        assert "no such program" in reader.page.text and "install it" in reader.page.text
        page = await reader.open("/ui")
        assert "broken failed: no such program" in page.text and "Nothing." not in page.text


async def test_the_overview_has_the_slowest_tools_and_how_many_calls_failed() -> None:
    clock = FakeClock()

    async def slow(seconds: float) -> None:
        asking = asyncio.ensure_future(Visitor(app).ask_modern("tools/call", name="there__slow", arguments={}))
        await clock.advance(seconds)
        there.answer_last(said("done"))
        await asking

    there = Scripted(tools_list=tools("slow"), tools_call=...)
    async with gateway(
        GREETER, scripts={"there": there}, clock=clock, config=Config(telemetry=Telemetry(usage=True))
    ) as app:
        for seconds in (0.3, 0.7):
            await slow(seconds)
        await Visitor(app).ask_modern("tools/call", name="greeter__greet", arguments={"name": []})
        page = await (await signed_in(app)).open("/ui")
        assert "calls3 failed0 refused1" in page.text
        assert "slowthere20500.01000.0 greetgreeter11" in page.text.replace("0greet", "0 greet")
    async with gateway(GREETER) as app:
        assert "They are not counted." in (await signed_in(app)).page.text


async def test_the_overview_names_credentials_that_fail_or_end_soon() -> None:
    async with gateway(GREETER) as app:
        now = app.clock.wall()
        states = [
            CredentialState("sign-in", "there", "client:ann", failing_since=now - 120, problem=f"refused {HOSTILE}"),
            CredentialState("key:1", principal="client:bob", expires=now + 2 * 86400),
            CredentialState("key:2", principal="client:eve", expires=now + 30 * 86400),
            CredentialState("header:TOKEN", "other", expires=now - 1),
            CredentialState("client_credentials", "renewed", expires=now + 60, renews=True),
        ]
        app.gateway.gateway_info = msgspec.structs.replace(app.gateway.gateway_info, credentials=lambda: states)
        text = (await signed_in(app)).page.text
        assert "sign-in of client:ann for there has been failing for 2 min: refused </pre>" in text
        assert "key:1 of client:bob ends in 1 d" in text or "key:1 of client:bob ends in 2 d" in text
        assert "header:TOKEN for other has ended" in text
        assert "client:eve" not in text and "renewed" not in text and "Nothing." not in text


async def test_servers_are_shown_started_and_stopped() -> None:
    scripted = Scripted(tools_list=tools("echo", "other"))
    async with gateway(scripts={"there": scripted}) as app:
        reader = await signed_in(app)
        assert "there configured –" in (await reader.open("/ui/servers")).text
        await reader.open("/ui/servers/there")
        page = await reader.press("/ui/servers/there/check")
        assert "It is ready and lists 2 tools." in page.text and "2025-11-25" in page.text
        assert "It is ready" not in (await reader.open("/ui/servers/there")).text
        assert "Stopped." in (await reader.press("/ui/servers/there/stop")).text
        assert app.gateway.snapshot.upstreams["there"].status().state == "stopped"
        await reader.press("/ui/servers/there/check")
        before = len([each for each in scripted.requests if each["method"] == "initialize"])
        assert "It is ready and lists 2 tools." in (await reader.press("/ui/servers/there/restart")).text
        assert len([each for each in scripted.requests if each["method"] == "initialize"]) == before + 1


async def test_a_server_is_added_and_removed_and_its_secrets_are_not_shown() -> None:
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        await reader.open("/ui/servers")
        table = '{"command": "no_such_program", "env": {"TOKEN": "sk-very-secret"}}'
        page = await reader.press("/ui/servers", name="New one", config=table)
        assert "Added New one." in page.text and "no_such_program" in page.text
        assert "sk-very-secret" not in page.text
        assert "Removed new-one." in (await reader.press("/ui/servers/new-one/remove")).text
        assert "new-one" not in app.gateway.snapshot.upstreams


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"name": "x", "config": "["}, "must be a JSON object"),
        ({"name": "x", "config": "[]"}, "must be a JSON object"),
        ({"name": "x", "config": '{"comand": "x"}'}, "comand"),
        ({"name": "", "config": '{"command": "x"}'}, ""),
        ({}, ""),
    ],
)
async def test_a_form_that_is_wrong_says_so_and_changes_nothing(form: dict[str, str], says: str) -> None:
    async with gateway(GREETER) as app:
        before = app.gateway.snapshot
        reader = await signed_in(app)
        await reader.open("/ui/servers")
        page = await reader.press("/ui/servers", 400, **form)
        assert "Not done" in page.text and says in page.text and app.gateway.snapshot is before


async def test_a_thousand_servers_make_no_page_without_end() -> None:
    many = [Server(id=f"s{number}", name=f"s{number}", type="registry", enabled=False) for number in range(1000)]
    async with gateway(*many, config=Config()) as app:
        reader = await signed_in(app)
        page = await reader.open("/ui/servers")
        assert "1 to 500 of 1000. More" in page.text
        page = await reader.open("/ui/servers?at=500")
        assert "501 to 1000 of 1000. Earlier" in page.text and "s999" in page.text
        for at in ("x", "-1", "9" * 40):
            assert "1 to 500 of 1000. More" in (await reader.open(f"/ui/servers?at={at}")).text


def test_all_that_browsers_load_is_small_and_from_here() -> None:
    files = [path for folder in ("static", "templates") for path in (WEB / folder).iterdir()]
    assert (WEB / "static" / "ui.js").stat().st_size < 10_000
    assert sum(path.stat().st_size for path in files) < 150_000
    for path in files:
        text = path.read_text()
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|\|\s*safe\b|innerHTML|insertAdjacentHTML|eval\(", text
        ), path
        assert not re.search(r"\son\w+=|\sstyle=|<style", text), path


# Approvals.

ASKS = Config(
    clients=(client("ann", key=KEYS["ada"], permissions=Permissions(everything="ask")),),
    approvals=Approvals(by=("operator",), wait=0.0),
)


async def called(app: App, **arguments: Any) -> Any:
    """What a client is told whose calls an operator decides."""
    ann = Visitor(app, authorization=f"Bearer {KEYS['ada']}")
    return (await ann.ask_modern("tools/call", name="there__echo", arguments=arguments)).last


async def test_a_call_is_allowed_with_other_arguments_and_then_sent_so() -> None:
    there = Scripted(tools_list=tools("echo"), tools_call=said("done"))
    async with gateway(config=ASKS, scripts={"there": there}) as app:
        assert "APPROVAL_REQUIRED" in json.dumps(await called(app, path="/tmp/a", token="x"))
        reader = await signed_in(app)
        assert "echo of there waits for your decision (for client:ann)" in reader.page.text
        path = next(each["href"] for each in reader.page.all("a") if each["href"].startswith("/ui/approvals/"))
        page = await reader.open(path)
        assert "this tool, with any arguments, for an hour" in page.text
        page = await reader.press(path, decision="allow", lasts="once", arguments='{"path": "/tmp/b"}')
        assert "The call was allowed with other arguments." in page.text and "allowed, " in page.text
        assert "done" in json.dumps(await called(app, path="/tmp/a", token="x"))
        assert there.requests[-1]["params"]["arguments"] == {"path": "/tmp/b"}


async def test_a_tool_is_allowed_for_an_hour_and_revoked() -> None:
    there = Scripted(tools_list=tools("echo"), tools_call=said("done"))
    async with gateway(config=ASKS, scripts={"there": there}) as app:
        await called(app)
        reader = await signed_in(app)
        await reader.open("/ui/approvals")
        path = next(each["href"] for each in reader.page.all("a") if each["href"].startswith("/ui/approvals/"))
        await reader.open(path)
        page = await reader.press(path, decision="allow", lasts="hour", arguments=reader.page.hidden["shown"])
        assert "The call was allowed." in page.text
        assert "done" in json.dumps(await called(app, of="anything"))
        revoke = next(each["action"] for each in reader.page.all("form") if "/grants/" in each["action"])
        assert "Revoked" in (await reader.press(revoke)).text
        assert "APPROVAL_REQUIRED" in json.dumps(await called(app, of="anything else"))


@pytest.mark.parametrize(
    ("form", "status", "says"),
    [
        ({"decision": "allow", "lasts": "session"}, 409, "no session"),
        ({"decision": "allow", "lasts": "ever"}, 400, "Invalid body"),
        ({"decision": "maybe"}, 400, "Invalid body"),
        ({"decision": "allow", "arguments": "["}, 409, "cannot be sent"),
        ({"decision": "allow", "sha256": "0" * 64}, 409, "not the call that was looked at"),
    ],
)
async def test_a_decision_that_cannot_be_made_decides_nothing(form: dict[str, str], status: int, says: str) -> None:
    there = Scripted(tools_list=tools("echo"), tools_call=said("done"))
    async with gateway(config=ASKS, scripts={"there": there}) as app:
        await called(app)
        reader = await signed_in(app)
        await reader.open("/ui/approvals")
        path = next(each["href"] for each in reader.page.all("a") if each["href"].startswith("/ui/approvals/"))
        await reader.open(path)
        assert says in (await reader.press(path, status, **form)).text
        assert "APPROVAL_REQUIRED" in json.dumps(await called(app))


async def test_a_denied_call_is_refused_and_asked_for_no_more() -> None:
    there = Scripted(tools_list=tools("echo"), tools_call=said("done"))
    async with gateway(config=ASKS, scripts={"there": there}) as app:
        await called(app)
        reader = await signed_in(app)
        await reader.open("/ui/approvals")
        path = next(each["href"] for each in reader.page.all("a") if each["href"].startswith("/ui/approvals/"))
        await reader.open(path)
        assert "The call was denied." in (await reader.press(path, decision="deny")).text
        assert "APPROVAL_DENIED" in json.dumps(await called(app))
        await reader.open(path.replace(path[-8:], "nothing"), 404)


# Tools.

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "what to say"},
        "times": {"type": "integer", "default": 2},
        "loud": {"type": "boolean"},
        "mode": {"enum": ["plain", 7]},
        "more": {"type": "array"},
        "note": {"type": ["null", "string"]},
    },
    "required": ["text"],
}


def speaker() -> Scripted:
    listed = {"tools": [{"name": "echo", "description": "says a text again", "inputSchema": SCHEMA}]}
    return Scripted(tools_list=listed, tools_call=said("done"))


async def test_a_tool_is_found_and_tried_with_a_form_made_of_its_schema() -> None:
    there = speaker()
    async with gateway(GREETER, scripts={"there": there}) as app:
        reader = await signed_in(app)
        assert "there__echo says a text again" in (await reader.open("/ui/tools")).text
        assert "there__echo" in (await reader.open("/ui/tools?q=say+a+text")).text
        page = await reader.open("/ui/tools/tool?name=there__echo")
        assert "text (required)" in page.text and "what to say" in page.text
        assert [each["value"] for each in page.all("option")] == ["", "true", "false", "", '"plain"', "7"]
        given = {"a0": "hello\r\nyou", "a1": "3", "a2": "true", "a3": "7", "a4": "[1]", "a5": ""}
        page = await reader.press("/ui/tools/try", **given)
        expected = {"text": "hello\nyou", "times": 3, "loud": True, "mode": 7, "more": [1]}
        assert there.requests[-1]["params"]["arguments"] == expected
        assert "Result done" in page.text and '"method": "tools/call"' in page.text


async def test_all_arguments_can_be_written_as_json() -> None:
    there = speaker()
    async with gateway(GREETER, scripts={"there": there}) as app:
        reader = await signed_in(app)
        await reader.open("/ui/tools/tool?name=there__echo")
        await reader.press("/ui/tools/try", json='{"text": "x", "more": []}', a0="other")
        assert there.requests[-1]["params"]["arguments"] == {"text": "x", "more": []}


@pytest.mark.parametrize(
    ("form", "status", "says"),
    [
        ({"a0": "x", "a4": "["}, 400, "more: "),
        ({"json": "[]"}, 400, "The arguments: "),
        ({"a0": "x", "a1": '"three"'}, 200, "INVALID_ARGS"),
        ({"a0": "x", "json": "[" * 50_000}, 400, "The arguments: "),
    ],
)
async def test_arguments_that_are_wrong_are_said_to_be_and_kept_in_the_form(
    form: dict[str, str], status: int, says: str
) -> None:
    there = speaker()
    async with gateway(GREETER, scripts={"there": there}) as app:
        reader = await signed_in(app)
        await reader.open("/ui/tools/tool?name=there__echo")
        assert says in (await reader.press("/ui/tools/try", status, **form)).text
        assert not [each for each in there.requests if each["method"] == "tools/call"]


async def test_a_tool_that_fails_or_asks_says_so() -> None:
    def fails(_params: Any) -> Any:
        raise Refusal(-32000, "<b>no</b>")

    listed = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    async with gateway(GREETER, scripts={"there": Scripted(tools_list=listed, tools_call=fails)}) as app:
        reader = await signed_in(app)
        await reader.open("/ui/tools/tool?name=there__echo")
        page = await reader.press("/ui/tools/try")
        assert "Failed" in page.text and "<b>no</b>" in page.text and "How far it got: executed" in page.text
        assert "no tool nothing" in (await reader.open("/ui/tools/tool?name=nothing", 404)).text


async def test_a_result_that_is_too_large_for_a_page_is_not_decoded_for_it() -> None:
    listed = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    large = b'{"content":[],"structuredContent":[%b{}]}' % (b"{}," * 400_000)
    async with gateway(GREETER, scripts={"there": Scripted(tools_list=listed, tools_call=large)}) as app:
        reader = await signed_in(app)
        await reader.open("/ui/tools/tool?name=there__echo")
        page = await reader.press("/ui/tools/try")
        assert "1,200,0" in page.text and "a page shows 1,048,576 at most" in page.text
        assert "toolgate call there__echo prints it" in page.text and "How far it got: executed" in page.text


POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0}},
    "required": ["x"],
}
RICH = {
    "type": "object",
    "$defs": {"point": POINT, "color": {"enum": ["red", "blue"], "description": "of the line"}},
    "properties": {
        "from": {"$ref": "#/$defs/point"},
        "to": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["a", "b"]},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "color": {"allOf": [{"$ref": "#/$defs/color"}], "default": "blue"},
        "level": {"oneOf": [{"const": 1}, {"const": 2}]},
        "id": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "at": {"type": "object", "properties": {"in": POINT}, "default": {"in": {"x": 7}}},
    },
    "required": ["from"],
}


@pytest.mark.promise("b.operator.forms")
async def test_a_form_has_what_schemas_have_objects_arrays_choices_alternatives_and_defaults() -> None:
    listed = {"tools": [{"name": "draw", "inputSchema": RICH}]}
    there = Scripted(tools_list=listed, tools_call=said("drawn"))
    async with gateway(GREETER, scripts={"there": there}) as app:
        reader = await signed_in(app)
        page = await reader.open("/ui/tools/tool?name=there__draw")
        assert [each["name"] for each in page.all("select")] == ["a4", "a5"]
        assert len(page.all("fieldset")) == 4 and "id (text or number)" in page.text
        assert "tags (one text a line)" in page.text and "points (JSON)" in page.text and "of the line" in page.text
        form = {each["name"]: page.value(each["name"]) for each in page.all("textarea")}
        form |= {each["name"]: each["value"] for each in page.all("input") if "value" in each and "type" not in each}
        form |= {
            "a0.0": "1",
            "a0.1": "",
            "a2": "a\r\n5\r\n",
            "a3": "1\n2",
            "a4": '"blue"',
            "a5": "2",
            "a6": "n5",
            "a7": '[{"x": 1}]',
        }
        await reader.press("/ui/tools/try", **form)
        assert there.requests[-1]["params"]["arguments"] == {
            "from": {"x": 1},
            "tags": ["a", "5"],
            "sizes": [1, 2],
            "color": "blue",
            "level": 2,
            "id": "n5",
            "points": [{"x": 1}],
        }
        await reader.press("/ui/tools/try", **{**form, "a8.0.0": "8"})
        assert there.requests[-1]["params"]["arguments"]["at"] == {"in": {"x": 8, "y": 0}}


@pytest.mark.parametrize(("written", "value"), [("5", 5), ("n5", "n5"), ("[5]", "[5]"), ("true", "true"), ("", None)])
def test_what_may_be_a_text_is_one_where_it_is_nothing_else(written: str, value: Any) -> None:
    found = tool_fields.fields({"properties": {"id": {"type": ["string", "integer", "null"]}}})
    assert tool_fields.arguments(found, {"a0": written}) == ({"id": value} if written else {})


def test_what_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "string"}}}
    loop = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    schema = {"$defs": {"node": node, **loop}, "properties": {"node": {"$ref": "#/$defs/node"}, "a": loop["a"]}}
    first, second = tool_fields.fields(schema)
    for _ in range(tool_fields.DEEPEST - 1):
        first = first.fields[0]
    assert first.fields[0].kind == "json" and second.kind == "json"


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {"properties": {"a": {"anyOf": 7}, "b": {"oneOf": [7, {}]}, "c": {"$ref": 7}, "d": {"$ref": "#/x/y/z/u/v/w"}}},
        {"properties": {"a": {"allOf": [{"allOf": [{}]}]}, "b": {"type": "array", "items": []}, "c": {"type": {}}}},
        {"properties": {str(each): {"anyOf": [{"type": "string"}] * 5000} for each in range(200)}},
        {"properties": []},
        {"properties": {"a": None, "b": True, "c": {"type": [], "enum": 7}}},
        {"properties": {str(each): {} for each in range(5000)}, "required": {"a": 1}},
    ],
)
def test_no_schema_makes_a_form_fail_or_grow_without_end(schema: Any) -> None:
    assert len(tool_fields.fields(schema)) <= tool_fields.MOST_FIELDS
    assert tool_fields.arguments(tool_fields.fields(schema), {}) == {}


# Who may do what, the audit, the configuration.


async def test_the_matrix_says_what_each_client_may_do_by_the_function_that_decides_calls() -> None:
    ann = Permissions(everything="ask", tools={"there__delete": "off", "there__read": "allow"})
    config = Config(clients=(client("ann", key=KEYS["ada"], permissions=ann), client("bob", key=KEYS["bob"])))
    there = Scripted(tools_list=tools("read", "write", "delete"))
    async with gateway(config=config, scripts={"there": there}) as app:
        reader = await signed_in(app)
        assert "ann seen" in (await reader.open("/ui/access")).text
        await reader.open("/ui/servers/there")
        await reader.press("/ui/servers/there/check")
        assert "ann 1 / 1 / 1" in (page := await reader.open("/ui/access")).text and "bob 3 / 0 / 0" in page.text
        page = await reader.open("/ui/access/ann")
        assert "read there allow" in page.text and "write there ask" in page.text and "delete there off" in page.text
        assert KEYS["ada"] not in page.text and '"there__delete": "off"' in page.text
        assert "no client nobody" in (await reader.open("/ui/access/nobody", 404)).text


@pytest.mark.promise("b.operator.why")
async def test_prompts_and_resources_have_their_verdicts_and_why() -> None:
    ann = Permissions(resources={"there__notes://secret": "off"}, prompts={"there__*": "ask"})
    config = Config(clients=(client("ann", key=KEYS["ada"], permissions=ann), client("bob", key=KEYS["bob"])))
    there = Scripted(
        tools_list=tools("read"),
        resources_list={"resources": [{"uri": f"notes://{name}", "name": name} for name in ("open", "secret")]},
        resources_templates_list={"resourceTemplates": [{"uriTemplate": "notes://{id}", "name": "any"}]},
        prompts_list={"prompts": [{"name": "greet"}]},
    )
    async with gateway(config=config, scripts={"there": there}) as app:
        reader = await signed_in(app)
        await reader.open("/ui/servers/there")
        await reader.press("/ui/servers/there/check")
        page = await reader.open("/ui/access/ann")
        assert "notes://secret there off mcp_permissions.resources: there__notes://secret" in page.text
        assert "notes://open there allow mcp_server_access" in page.text
        assert "Templates of resources" in page.text and "notes://{id} there " in page.text
        assert "greet there ask mcp_permissions.prompts: there__*" in page.text
        assert len([each for each in page.all("button") if each.get("name") == "set"]) == 3  # of the tool alone


async def test_others_are_heard_while_very_many_verdicts_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspections, "PORTION", 0.0)
    clients = tuple(client(f"c{number}") for number in range(4))
    there = Scripted(tools_list=tools(*(f"tool{number}" for number in range(5_000))))
    async with gateway(config=Config(clients=clients), scripts={"there": there}) as app:
        reader = await signed_in(app)
        await reader.open("/ui/servers/there")
        await reader.press("/ui/servers/there/check")
        heard = 0

        async def others() -> None:
            nonlocal heard
            while True:
                heard += 1
                await asyncio.sleep(0)

        hearing = asyncio.ensure_future(others())
        found = await inspections.matrix(app.gateway)
        hearing.cancel()
        assert [each.servers["there"] for each in found.clients] == [{"allow": 5_000}] * 4
        assert heard >= inspections.MOST_JUDGED


async def test_an_open_gateway_says_so() -> None:
    async with gateway(GREETER) as app:
        page = await (await signed_in(app)).open("/ui/access")
        assert "The gateway is open" in page.text and "No clients are configured." in page.text


async def test_the_audit_is_read_searched_and_verified(tmp_path: Path) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    trail.note("keys.create", "cli:ann", client="<b>ci</b>")
    trail.note("pins.approve", "cli:ann", server="there", target="echo")
    async with gateway(GREETER, audit=trail, clock=clock) as app:
        reader = await signed_in(app)
        await until_written(clock, trail, 2)
        page = await reader.open("/ui/audit")
        assert "keys.create cli:ann" in page.text and "<b>ci</b>" in page.text
        page = await reader.open("/ui/audit?q=pins.approve")
        assert "there echo" in page.text and "keys.create" not in page.text
        page = await reader.press("/ui/audit/verify")
        assert "Every line is as it was written" in page.text
        file = tmp_path / "audit.jsonl"
        file.write_text(file.read_text().replace("echo", "ohce"))
        assert "Altered: " in (await reader.open("/ui/audit")).text
        page = await reader.press("/ui/audit/verify")
        assert "The audit is not as it was written" in page.text and "this line was altered" in page.text
    await trail.close()


async def test_lines_of_the_audit_are_turned_over_page_by_page_and_searched_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    for number in range(450):
        trail.note(f"event-{number}", "cli:ann")
    async with gateway(GREETER, audit=trail, clock=clock) as app:
        reader = await signed_in(app)
        await until_written(clock, trail, 450)
        page, seen = await reader.open("/ui/audit"), list[int]()
        while True:
            seen += [int(number) for number in re.findall(r"event-(\d+) cli:ann", page.text)]
            onward = [each["href"] for each in page.all("a") if each.get("rel") == "next"]
            if not onward:
                break
            page = await reader.open(onward[0])
        assert seen == [*range(449, -1, -1)]
        assert [each["href"] for each in page.all("a") if each.get("rel") == "first"] == ["/ui/audit"]
        monkeypatch.setattr(audit, "LONGEST_SEARCH", 10_000)
        page = await reader.open("/ui/audit?q=event-0")
        assert "None of the lines that were looked at." in page.text
        while "Look in older lines" in page.text:
            (onward,) = [each["href"] for each in page.all("a") if each.get("rel") == "next"]
            page = await reader.open(onward)
            assert "First page Look in older lines" in page.text or "event-0 cli:ann" in page.text
        assert "event-0 cli:ann" in page.text


@pytest.mark.parametrize("cursor", ["nonsense", "[]", "[1]", "[-1, 0]", "[1, 1]", '["ready", [9, "", ""]]', "1" * 3000])
async def test_a_cursor_that_was_not_given_is_refused(cursor: str, tmp_path: Path) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    trail.note("event", "cli:ann")
    async with gateway(GREETER, audit=trail, clock=clock) as app:
        reader = await signed_in(app)
        await until_written(clock, trail, 1)
        for path in ("/ui/audit", "/ui/tasks", "/ui/sessions"):
            await reader.open(f"{path}?{urlencode({'cursor': cursor})}", 400)


async def test_an_audit_that_cannot_be_read_is_no_fault_of_the_gateway(tmp_path: Path) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, None, Redactor())
    trail.note("event", "cli:ann")
    async with gateway(GREETER, audit=trail, clock=clock) as app:
        reader = await signed_in(app)
        await until_written(clock, trail, 1)
        (tmp_path / "audit.jsonl").rename(tmp_path / "aside")
        (tmp_path / "audit.jsonl").mkdir()
        assert "The audit cannot be read" in (await reader.open("/ui/audit", 409)).text


async def until_written(clock: FakeClock, trail: Trail, lines: int) -> None:
    for _ in range(500):
        if trail.file and trail.file.exists() and len(trail.lines(lines)[0]) == lines:
            return
        await clock.advance(0.2)
        await asyncio.to_thread(threading.Event().wait, 0.02)
    raise AssertionError("nothing was written")


@pytest.mark.parametrize(
    ("text", "format", "says"),
    [
        ('{"mcpServers": {"one": {"command": "x", "env": {"A": "${NOT_SET}"}}}}', "json", "It is valid. Servers: one."),
        ('{"mcpServers": {"one": {"comand": "x"}}}', "json", "comand"),
        ("[http]\nport = 'x'", "toml", "toolgate.toml"),
        ("[", "json", "It is not valid"),
        ("<script>", "yaml", "It is not valid"),
    ],
)
async def test_a_configuration_is_checked_before_it_is_saved(text: str, format: str, says: str) -> None:
    async with gateway(GREETER) as app:
        before = app.gateway.snapshot
        reader = await signed_in(app)
        await reader.open("/ui/configuration")
        page = await reader.press("/ui/configuration/check", text=text, format=format)
        assert says in page.text and text.split("\n")[0] in page.text
        assert app.gateway.snapshot is before


async def test_the_configuration_is_read_again() -> None:
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        await reader.open("/ui/configuration")
        assert "Served: greeter." in (await reader.press("/ui/configuration/reload")).text
