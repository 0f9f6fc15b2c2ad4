"""The decision on who may do what, by itself: what is said of a thing, of its server, of everything."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from toolgate.auth.access import OPERATOR, Access, Rules
from toolgate.auth.uri_readings import forms
from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions, Verdict
from toolgate.config.settings import Codex
from toolgate.core import jsonrpc, mcp, names
from toolgate.core.model import Call, Client, Hints, Principal, ToolInfo

READS, WRITES = Hints(readOnlyHint=True), Hints(readOnlyHint=False)


def rules(reach: Any = "all", admin: bool = False, **permissions: Any) -> Rules:
    return Rules(KnownClient(id="ci", name="ci", servers=reach, admin=admin, permissions=Permissions(**permissions)))


ANN = Client(Principal(client="ann"))


def of(at_the_root: Verdict = "ask", **client: Any) -> Access:
    """A gateway whose one client is ann."""
    return Access(
        Config(clients=(KnownClient(id="ann", name="ann", servers="all", **client),), add_servers=at_the_root)
    )


# (permissions, server, kind, name, what is decided)
DECIDED: list[tuple[dict[str, Any], str, str, str, Verdict]] = [
    ({}, "github", "tools", "delete_repo", "allow"),
    ({"everything": "off"}, "github", "tools", "delete_repo", "off"),
    ({"everything": "off", "servers": {"github": "ask"}}, "github", "tools", "delete_repo", "ask"),
    ({"servers": {"github": "off"}, "tools": {"github__get": "allow"}}, "github", "tools", "get", "allow"),
    ({"servers": {"github": "off"}, "tools": {"github__get": "allow"}}, "github", "tools", "set", "off"),
    ({"tools": {"github__get": "off"}}, "github", "prompts", "get", "allow"),
    ({"prompts": {"github__get": "off"}}, "github", "prompts", "get", "off"),
    # Any spelling of a server.
    ({"servers": {"My Server": "off"}}, "my-server", "tools", "x", "off"),
    ({"servers": {"my_server": "off"}}, "my-server", "tools", "x", "off"),
    ({"tools": {"my_server__x_y": "off"}}, "my-server", "tools", "x_y", "off"),
    ({"tools": {"My Server__x": "off"}}, "my-server", "tools", "x", "off"),
    # A name in full before patterns, the longest of them, and of two as long the stricter.
    ({"tools": {"*__delete_*": "off", "github__delete_note": "allow"}}, "github", "tools", "delete_note", "allow"),
    ({"tools": {"*__delete_*": "off", "github__*": "allow"}}, "github", "tools", "delete_note", "off"),
    ({"tools": {"*": "ask", "github__d*": "allow"}}, "github", "tools", "do", "allow"),
    ({"tools": {"a__b*": "allow", "a__*b": "off"}}, "a", "tools", "bb", "off"),
    ({"tools": {"a__*b*c": "off"}}, "a", "tools", "xbyc", "off"),
    ({"tools": {"a__*b*c": "off"}}, "a", "tools", "xcyb", "allow"),
    ({"servers": {"git*": "off"}}, "github", "tools", "x", "off"),
    ({"servers": {"git*": "off", "github": "allow"}}, "github", "tools", "x", "allow"),
    # Nothing is another thing's.
    ({"tools": {"git__hub__x": "off"}}, "git", "tools", "hub__x", "off"),
    ({"tools": {"git__x": "off"}}, "git-hub", "tools", "x", "allow"),
    ({"tools": {"github_delete": "off"}}, "github", "tools", "delete", "allow"),
    # Resources, in whatever way they are named.
    ({"resources": {"docs+file:///a": "off"}}, "docs", "resources", "file:///a", "off"),
    ({"resources": {"docs__file:///a": "off"}}, "docs", "resources", "file:///a", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "file:///q/../p/x", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "file:///%70/x", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "file:///%2570/x", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "FILE:///p/x", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "file:////p//x", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "file:///./p/x", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "file:\\\\\\p\\x", "off"),
    ({"resources": {"docs+file:///p": "off"}}, "docs", "resources", "file:///p#here", "off"),
    ({"resources": {"docs+file:///p": "off"}}, "docs", "resources", "file:///p/", "off"),
    ({"resources": {"docs+file:///p": "off"}}, "docs", "resources", "file:///p?v=1", "off"),
    ({"resources": {"docs+db://p/*": "off"}}, "docs", "resources", "db://q/../p/x", "off"),
    ({"resources": {"docs+file:///p/{name}": "off"}}, "docs", "resources", "file:///p/x", "off"),
    ({"resources": {"docs+file:///p/{name}": "off"}}, "docs", "resourceTemplates", "file:///p/{name}", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resourceTemplates", "file:///p/{name}", "off"),
    ({"resources": {"docs+*": "off"}}, "docs", "resources", "ui://page", "off"),
    ({"resources": {"ui://docs+page": "off"}}, "docs", "resources", "ui://page", "off"),
    ({"resources": {"docs+ui://page": "off"}}, "docs", "resources", "ui://page", "off"),
    ({"resources": {"s1x+file:///a": "off"}}, "1x", "resources", "file:///a", "off"),
    ({"resources": {"1x+file:///a": "off"}}, "1x", "resources", "file:///a", "off"),
    ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", "file:///q/x", "allow"),
    ({"resources": {"*+ui://page": "off"}}, "docs", "resources", "ui://page", "off"),
    ({"resources": {"d+file:///p/../q": "allow", "d+file:///q": "off"}}, "d", "resources", "file:///p/../q", "allow"),
    # A name that some take for another, who mind neither case nor width.
    ({"prompts": {"github__get": "off"}}, "github", "prompts", "GET", "off"),
    *(({"tools": {"github__get": "ask"}}, "github", "tools", name, "ask") for name in ("ｇet", " g et", "ge\u200bt")),
    ({"tools": {"github__get": "ask"}, "servers": {"github": "off"}}, "github", "tools", "GET", "off"),
    ({"resources": {"docs+file:///private": "off"}}, "docs", "resources", "file:///PRIVATE", "off"),
    ({"resources": {"docs+file:///private": "off"}, "servers": {"docs": "ask"}}, "docs", "resources", "x:y", "ask"),
    ({"everything": "off", "resources": {"d+file:///p/*": "allow"}}, "d", "resources", "file:///P/x", "off"),
    ({"tools": {"github__GET": "off", "github__Get": "ask"}}, "github", "tools", "get", "off"),
    ({"resources": {"docs+f:{a}": "off", "docs+f:*": "allow"}}, "docs", "resources", "f:x", "off"),
    # A URI that URL parsers take for another.
    *(
        ({"resources": {"docs+file:///p/*": "off"}}, "docs", "resources", uri, "off")
        for uri in (
            "file:/p/x",
            "file:p/x",
            "file:////p/x",
            "file://localhost/p/x",
            "file://LOCALHOST/p/x",
            "file://127.0.0.1/p/x",
            " file:///p/x",
            "\x00file:///p/x",
            "fi\tle:///p/x",
            "file:///\np/x",
            "file:///p\r/x",
            "file:///q/.\t./p/x",
            "file:///q/%2e%0a./p/x",
            "file:///%70%00/x",
            "file:/q/../p/x",
        )
    ),
    *(
        ({"resources": {"docs+https://h/p*": "off"}}, "docs", "resources", uri, "off")
        for uri in (
            "https://H/p",
            "https://h:443/p",
            "https://h:/p",
            "https://me@h/p",
            "https://me:x%2f@h/p",
            "https:h/p",
            "https:/h/p",
            "https:///h/p",
            "https:\\\\h\\p",
            "https://h./p",
            "https://h\t/p",
            "HTTPS://H:443//p",
        )
    ),
    ({"resources": {"docs+file:///p/key": "off"}}, "docs", "resources", "file:///p/key%00.txt", "off"),
    ({"resources": {"docs+file:///p/key": "off"}}, "docs", "resources", "file:///p/key ", "off"),
    ({"resources": {"docs+db://Host/*": "off"}}, "docs", "resources", "db://host/x", "off"),
    ({"resources": {"docs+file:///p": "off"}}, "docs", "resources", "file:///" + "q" * 10_000, "off"),
    ({"resources": {"docs+file:///p": "off"}}, "docs", "resources", "file:///" + "%" + "25" * 9 + "70", "off"),
    ({"resources": {"docs+https://h:8443/p*": "off"}}, "docs", "resources", "https://h/p", "allow"),
    (
        {"resources": {"docs+file://share/p*": "off"}},
        "docs",
        "resources",
        "file:///p",
        "off",
    ),  # to a server that looks at no host
    # What is allowed is that alone, not what it may be taken for.
    ({"everything": "off", "resources": {"d+file:///p/*": "allow"}}, "d", "resources", "file:///p/.\t./q", "off"),
    ({"everything": "off", "resources": {"d+file:///p/*": "allow"}}, "d", "resources", "file:///p/%2e%09./q", "off"),
    ({"everything": "off", "resources": {"d+file:*": "allow"}}, "d", "resources", "file://share/x", "allow"),
    ({"everything": "off", "resources": {"d+https://H/*": "allow"}}, "d", "resources", "https://H:443/x", "off"),
    ({"everything": "off", "resources": {"d+https://H/*": "allow"}}, "d", "resources", "https://H/x", "allow"),
    ({"everything": "off", "resources": {"d+mail:*": "allow"}}, "d", "resources", "mail:Ann@h/x", "allow"),
    ({"everything": "off", "resources": {"d+file:///p/*": "allow"}}, "d", "resources", "file:///p/x%20y", "allow"),
    ({"everything": "off", "resources": {"d+file:///p/*": "allow"}}, "d", "resources", "file:///p/../q", "off"),
    ({"everything": "off", "resources": {"d+file:///p/*": "allow"}}, "d", "resources", "file:///p/%2e%2e/q", "off"),
    ({"everything": "off", "resources": {"d+file:///p/*": "allow"}}, "d", "resources", "file://p/x", "off"),
    ({"everything": "off", "resources": {"d+file:///p/{x}": "allow"}}, "d", "resources", "file:///p/x", "allow"),
    # Methods that MCP does not define are for those who may use all of their server.
    ({}, "a", "methods", "x/y", "allow"),
    ({"servers": {"a": "ask"}}, "a", "methods", "x/y", "ask"),
    ({"everything": "off"}, "a", "methods", "x/y", "off"),
    ({"tools": {"a__x": "allow", "b__x": "off"}}, "a", "methods", "x/y", "allow"),
    ({"tools": {"a__x": "ask"}}, "a", "methods", "x/y", "off"),
    ({"tools": {"a__x*": "off"}}, "a", "methods", "x/y", "off"),
    ({"tools": {"*x": "off"}}, "a", "methods", "x/y", "off"),
    ({"prompts": {"a__x": "off"}}, "a", "methods", "x/y", "off"),
    ({"resources": {"a__x": "off"}}, "a", "methods", "x/y", "off"),
    ({"resources": {"a+file:///x": "off"}}, "a", "methods", "x/y", "off"),
    ({"resources": {"ui://a+x": "off"}}, "a", "methods", "x/y", "off"),
    ({"read_only": "ask"}, "a", "methods", "x/y", "off"),
    # A task is judged by what made it, and is there for whoever sees its server.
    ({"servers": {"a": "ask"}}, "a", "tasks", "1", "allow"),
    ({"servers": {"a": "off"}}, "a", "tasks", "1", "off"),
    ({"servers": {"a": "off"}, "tools": {"a__x": "ask"}}, "a", "tasks", "1", "allow"),
    # Control tools are the server `toolgate`.
    ({"tools": {"toolgate__mcp_call": "off"}}, "toolgate", "tools", "mcp_call", "off"),
    ({"servers": {"toolgate": "off"}}, "toolgate", "tools", "status", "off"),
    ({"servers": {"toolgate": "off"}, "tools": {"toolgate__status": "allow"}}, "toolgate", "tools", "status", "allow"),
    ({"everything": "off"}, "toolgate", "tools", "status", "off"),
    ({"everything": "ask"}, "toolgate", "tools", "status", "allow"),  # it shows what is permitted anyhow
    ({"tools": {"*": "ask"}, "servers": {"*": "off"}}, "toolgate", "tools", "status", "allow"),
    ({"everything": "off"}, "toolgate", "resources", "mcp://server_summary", "off"),
    ({"tools": {"*__longer_than_that": "allow", "toolgate__m*": "off"}}, "toolgate", "tools", "mcp_call", "off"),
    ({"resources": {"*": "off"}}, "toolgate", "resources", "mcp://server_summary", "allow"),
    ({"resources": {"toolgate+mcp:*": "off"}}, "toolgate", "resources", "mcp://server_summary", "off"),
    ({"everything": "off"}, "toolgate", "resources", "mcp://results/abc", "allow"),  # only its owner has it
]


@pytest.mark.parametrize(("permissions", "server", "kind", "name", "verdict"), DECIDED)
def test_the_finest_that_is_said_of_a_thing_holds(
    permissions: dict[str, Any], server: str, kind: str, name: str, verdict: Verdict
) -> None:
    own = server == names.OWN
    found = rules(**permissions)
    assert found.verdict(server, kind, name, READS if own else Hints()) == verdict
    assert found.verdict(server, kind, name, READS if own else Hints()) == verdict  # and when it is remembered
    assert verdict == "off" or found.sees(server)


def test_a_long_name_is_known_by_its_short_form_as_well() -> None:
    tool = "x" * 80
    short = names.join_name("github", tool)
    assert rules(tools={short: "off"}).verdict("github", "tools", tool) == "off"
    assert rules(tools={f"github__{tool}": "off"}).verdict("github", "tools", tool) == "off"
    assert rules(tools={"github__xx*": "off"}).verdict("github", "tools", tool) == "off"


# Which servers.


@pytest.mark.parametrize("spelling", ["My Server", "my_server", "my-server"])
def test_servers_that_a_client_may_reach_are_named_by_any_spelling(spelling: str) -> None:
    found = rules(reach=(spelling,))
    assert (found.verdict("my-server", "tools", "x"), found.verdict("other", "tools", "x")) == ("allow", "off")
    assert (found.sees("my-server"), found.sees("other")) == (True, False)


def test_no_permission_opens_a_server_that_is_not_reached() -> None:
    found = rules(reach=("docs",), tools={"*": "allow"})
    assert found.verdict("github", "tools", "x") == "off"
    assert not found.sees("github")
    none = rules(reach="none", tools={"github__x": "allow", "n__x": "allow"})
    assert none.verdict("github", "tools", "x") == none.verdict("n", "tools", "x") == "off"


def test_of_the_gateways_own_tools_those_that_do_something_are_as_all_else_is() -> None:
    own = ("toolgate", "tools", "close_child_session", WRITES)
    assert [rules(reach=reach).verdict(*own) for reach in ("all", "none", ("docs",))] == ["allow"] * 3
    assert rules(reach=None).verdict(*own) == "off"
    assert [rules(reach, everything="ask").verdict(*own) for reach in ("all", ("docs",), None)] == ["ask"] * 3
    assert rules().verdict("toolgate", "tools", "add_mcp_server", WRITES) == "ask"  # whatever else is allowed


def test_permissions_alone_allow_what_they_name_and_nothing_else() -> None:
    found = rules(reach=None, tools={"github__get": "allow"})
    assert (found.verdict("github", "tools", "get"), found.verdict("github", "tools", "set")) == ("allow", "off")
    assert found.verdict("github", "prompts", "get") == "off"
    assert (found.sees("github"), found.sees("docs")) == (True, False)
    assert found.verdict("toolgate", "tools", "status", READS) == "allow"
    assert found.verdict("toolgate", "tools", "close_child_session", WRITES) == "off"


def test_a_server_is_seen_where_anything_of_it_may_be_permitted() -> None:
    found = rules(everything="off", tools={"git*__x": "allow"}, resources={"docs+file:///a": "ask", "no+x:": "off"})
    assert [id for id in ("github", "docs", "no", "other") if found.sees(id)] == ["github", "docs"]


def test_no_name_of_a_tool_or_a_prompt_is_written_like_that_of_a_resource() -> None:
    found = rules(everything="off", tools={"a+x": "allow", "ui://a+x": "allow"}, prompts={"b+x": "ask"})
    assert not found.sees("a") and not found.sees("b")


def test_a_server_is_not_seen_where_all_of_it_is_off() -> None:
    off = {key: {"*": "off"} for key in mcp.SECTIONS if key != "resources"} | {"tools": {"a__*": "off"}}
    assert not rules(**off, resources={"a+*": "off"}).sees("a")
    assert not rules(**off, resources={"a__*": "off", "*x": "off"}).sees("a")
    assert rules(**off, resources={"ui://a+*": "off"}).sees("a")
    assert rules(**off, resources={"a+*": "off", "a+file:///x/*": "allow"}).sees("a")
    assert not rules(everything="off", tools={"a*": "allow", "a__*": "off"}).sees("a")


# Read-only, and what is silent about it.


def test_read_only_leaves_the_tools_that_say_so() -> None:
    found = rules(read_only="off", tools={"a__x": "allow"})
    assert found.verdict("a", "tools", "x", READS) == "allow"
    assert found.verdict("a", "tools", "x", WRITES) == found.verdict("a", "tools", "x") == "off"
    assert found.verdict("a", "resources", "x:y") == found.verdict("a", "prompts", "p") == "allow"
    asking = rules(read_only="ask", tools={"a__x": "off"})
    assert (asking.verdict("a", "tools", "y"), asking.verdict("a", "tools", "x")) == ("ask", "off")


# Whose.


def test_nobody_in_particular_may_do_nothing_once_clients_are_configured() -> None:
    clients = (
        KnownClient(id="a", name="a", servers="all"),
        KnownClient(id="b", name="b", servers="all", enabled=False),
    )
    access = Access(Config(clients=clients))
    verdicts = [access.verdict(Principal(client=id), "s", "tools", "t") for id in ("a", "b", "c", "", "*")]
    assert verdicts == ["allow", "off", "off", "off", "allow"]
    access.prepared(Config())()
    assert access.verdict(Principal(), "s", "tools", "t") == "allow"


def test_a_call_through_a_control_tool_needs_that_one_too() -> None:
    client = KnownClient(id="a", name="a", servers="all", permissions=Permissions(tools={"toolgate__mcp_call": "ask"}))
    access = Access(Config(clients=(client,)))
    caller = Client(Principal(client="a"))
    asked = Call("tools/call", "mcp_call", caller)
    assert access.judge(Call("tools/call", "x", caller, server="s")) == "allow"
    assert access.judge(Call("tools/call", "x", caller, server="s", asked=asked)) == "ask"


def test_a_control_tool_that_only_calls_needs_no_approval_of_its_own() -> None:
    access = of(permissions=Permissions(everything="ask", tools={"s__x": "allow"}))
    asked = Call("tools/call", "mcp_call", ANN)
    assert access.judge(Call("tools/call", "x", ANN, server="s", asked=asked)) == "allow"
    assert access.judge(Call("tools/call", "y", ANN, server="s", asked=asked)) == "ask"


@pytest.mark.parametrize("inner", ["allow", "ask", "off"])
@pytest.mark.parametrize("script", ["allow", "ask", "off"])
@pytest.mark.parametrize("by_script", [True, False])
def test_whether_a_stored_script_may_run_is_asked_before_it_runs_and_not_for_each_of_its_calls(
    inner: Verdict, script: Verdict, by_script: bool
) -> None:
    stored = f"{names.SCRIPTS}__buy"
    access = of(permissions=Permissions(tools={"s__x": inner, stored: script}))
    call = Call("tools/call", "x", ANN, server="s", asked=Call("tools/call", stored, ANN), by_script=by_script)
    strictest = max(inner, script, key=["allow", "ask", "off"].index)
    assert access.judge(call) == (inner if by_script and script == "ask" else strictest)


def test_a_tool_is_judged_by_what_it_says_of_itself() -> None:
    access = of(permissions=Permissions(read_only="off"))
    assert access.judge(Call("tools/call", "x", ANN, server="s", tool_info=ToolInfo(hints=READS))) == "allow"
    assert access.judge(Call("tools/call", "x", ANN, server="s", tool_info=ToolInfo(hints=WRITES))) == "off"
    assert access.judge(Call("tools/call", "x", ANN, server="s")) == "off"
    assert access.verdict(ANN.principal, "s", "tools", "x", READS) == "allow"
    assert access.verdict(ANN.principal, "s", "tools", "x") == "off"
    assert not rules(read_only="off").is_off("s", "tools", "x")  # what it says of itself does not count there


@pytest.mark.parametrize(("said", "found"), [("off", "off"), ("ask", "allow"), ("allow", "allow")])
def test_a_task_that_was_approved_when_it_was_made_needs_no_second_approval(said: Verdict, found: Verdict) -> None:
    access = of(permissions=Permissions(tools={"s__x": said}))
    made = Call("tools/call", "x", ANN, server="s")
    assert access.judge(Call("tasks/get", "1", ANN, server="s", about=made)) == found
    assert access.judge(Call("tasks/cancel", "1", ANN, server="s", about=made)) == "allow"
    assert access.judge(Call("tasks/get", "1", ANN, server="s")) == "allow"
    about_a_result = Call("resources/read", "x:y", ANN, server="s", about=made)
    closed = of(permissions=Permissions(resources={"s+x:y": "off"}))
    assert (access.judge(about_a_result), closed.judge(about_a_result)) == ("allow", "off")


# Completions.


def completion(**params: Any) -> Call:
    extra = {name: Raw(json.dumps(value).encode()) for name, value in params.items()}
    return Call("completion/complete", "f:///{dir}/{name}", ANN, server="s", reference="ref/resource", extra=extra)


DIR = {"arguments": {"dir": "a"}}


def test_a_completion_is_judged_by_its_template_and_by_what_its_arguments_make_of_it() -> None:
    key = {"name": "name", "value": "key"}
    asks = of(permissions=Permissions(resources={"s+f:///{dir}/{name}": "ask"}))
    assert asks.judge(completion(argument=key, context=DIR)) == "ask"
    closed = of(permissions=Permissions(resources={"s+f:///a/key": "off"}))
    assert closed.judge(completion(argument=key, context=DIR)) == "off"
    assert closed.judge(completion(argument=key)) == "allow"
    made = {"s+f:///a/{name}": "allow", "s+f:///a/key": "allow"}
    assert of(permissions=Permissions("ask", resources=made)).judge(completion(argument=key, context=DIR)) == "ask"
    of_a_prompt = msgspec.structs.replace(completion(argument=key, context=DIR), reference="ref/prompt", target="p")
    assert closed.judge(of_a_prompt) == "allow"


def test_a_completion_without_an_argument_cannot_be_read() -> None:
    for call in (completion(), completion(context=DIR), completion(argument={"name": "name"})):
        with pytest.raises(jsonrpc.UNREADABLE):
            of().judge(call)


def test_values_are_left_out_that_make_something_closed_and_those_behind_what_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = completion(argument={"name": "name", "value": ""}, context=DIR)
    found = rules(resources={"s+f:///a/key": "off"})
    values = ["b", "key", "c", "d"]
    assert found.completed(call, values) == ["b", "c", "d"]
    each_costs = len("f:///{dir}/{name}") + len("dir") + 1 + len("f:///a/b")
    monkeypatch.setattr("toolgate.auth.access._MOST_COMPLETED", 3 * each_costs + 4)  # as much as three of them
    assert found.completed(call, values) == ["b", "c"]
    monkeypatch.setattr("toolgate.auth.access._MOST_COMPLETED", 3 * each_costs + 3)
    assert found.completed(call, values) == ["b"]
    assert found.completed(call, ["x" * 1000, "b"]) == []


def test_values_of_a_prompts_argument_are_no_part_of_a_uri() -> None:
    call = msgspec.structs.replace(completion(), reference="ref/prompt", target="p")
    assert rules(resources={"s+*": "off"}).completed(call, ["a"]) == ["a"]


# Who changes which servers there are, and who sees what they say.


@pytest.mark.parametrize("tool", ["add_mcp_server", "remove_mcp_server"])
@pytest.mark.parametrize(
    ("at_the_root", "of_client", "said", "found"),
    [
        ("allow", None, None, "allow"),
        ("off", None, None, "off"),
        ("ask", None, None, "ask"),
        ("off", "allow", None, "allow"),
        ("allow", "off", None, "off"),
        ("allow", None, "ask", "ask"),
        ("ask", None, "off", "off"),
        ("off", None, "allow", "off"),
    ],
)
def test_of_all_that_is_said_of_changing_servers_the_strictest_holds(
    tool: str, at_the_root: Verdict, of_client: Verdict | None, said: Verdict | None, found: Verdict
) -> None:
    permissions = Permissions(tools={f"toolgate__{tool}": said} if said else {})
    access = of(add_servers=of_client, permissions=permissions, at_the_root=at_the_root)
    change = Call("tools/call", tool, ANN, server=names.OWN)
    assert access.judge(change) == found
    by_admin = msgspec.structs.replace(change, is_by_admin=True)
    assert access.judge(by_admin) == ("allow" if found == "ask" else found)


def test_on_an_open_gateway_what_is_said_of_changing_servers_holds_for_all() -> None:
    access = Access(Config(add_servers="off"))
    assert access.judge(Call("tools/call", "add_mcp_server", ANN, server=names.OWN)) == "off"
    assert access.judge(Call("prompts/get", "add_mcp_server", ANN, server=names.OWN)) == "allow"
    assert access.judge(Call("tools/call", "add_mcp_server", ANN, server="s")) == "allow"
    assert access.judge(Call("tools/call", "status", ANN, server=names.OWN)) == "allow"


@pytest.mark.parametrize("calls", ["allow", "ask", "off"])
def test_what_is_said_of_codex_holds_for_its_tools_and_for_no_change_of_servers(calls: Verdict) -> None:
    client = KnownClient(id="ann", name="ann", servers="all")
    run = Call("tools/call", "codex", ANN, server=names.OWN)
    for config in (Config(clients=(client,)), Config()):
        access = Access(msgspec.structs.replace(config, codex=Codex(calls=calls), add_servers="ask"))
        assert access.judge(run) == calls
        assert access.judge(msgspec.structs.replace(run, target="add_mcp_server")) == "ask"


def test_where_nothing_is_said_of_codex_a_person_is_asked() -> None:
    assert rules().verdict(names.OWN, "tools", "codex") == "ask"


def test_a_tool_that_asks_first_is_not_allowed_for_saying_that_it_only_reads() -> None:
    judge = of(at_the_root="allow", permissions=Permissions(everything="ask"))
    change = Call("tools/call", "add_mcp_server", ANN, server=names.OWN, tool_info=ToolInfo(hints=READS))
    assert judge.judge(change) == "ask"


def test_who_may_only_read_may_call_what_asks_first_only_where_that_says_that_it_reads() -> None:
    judge = of(at_the_root="allow", permissions=Permissions(read_only="off"))
    listed = Call("tools/call", "codex_list_threads", ANN, server=names.OWN)
    assert judge.judge(msgspec.structs.replace(listed, tool_info=ToolInfo(hints=READS))) == "ask"
    assert judge.judge(msgspec.structs.replace(listed, tool_info=ToolInfo(hints=WRITES))) == "off"


def test_folders_of_this_machine_are_named_by_its_programs_the_operator_and_administrators() -> None:
    access = of(admin=True)
    assert access.is_here(Principal(is_here=True, client="bob"))
    assert access.is_here(Principal(client=OPERATOR))
    assert access.is_here(Principal(client="ann", is_admin=True))
    assert not access.is_here(Principal(client="bob")) and not access.is_here(Principal(client="bob", is_admin=True))


@pytest.mark.parametrize("kind", ["tools", "prompts"])
def test_of_a_name_that_is_too_long_to_be_read_leniently_the_server_is_closed_where_anything_of_it_is(
    kind: str,
) -> None:
    loud, longer = "X" * 2048, "X" * 2049
    judge = rules(**{kind: {f"a__{loud.lower()}": "off", "b__*": "allow"}})
    assert judge.verdict("a", kind, loud) == "off"  # read leniently
    assert judge.verdict("a", kind, "Y" * 2048) == "allow"
    assert judge.verdict("a", kind, "Y" * 2049) == "off"  # what else of the server is closed may be this one
    assert judge.verdict("b", kind, longer) == "allow"
    assert judge.verdict("c", kind, longer) == "allow"


def test_a_server_that_has_a_tool_of_that_name_is_judged_as_any_other() -> None:
    access = of(add_servers="off")
    assert access.judge(Call("tools/call", "add_mcp_server", ANN, server="s")) == "allow"
    assert access.judge(Call("tools/call", "status", ANN, server=names.OWN, is_by_admin=True)) == "allow"


def test_a_server_is_wholly_theirs_who_may_use_all_of_it_unasked_or_administer() -> None:
    admin = Principal(client="ann", is_admin=True)
    narrowed = of(permissions=Permissions(tools={"s__x": "ask"}))
    assert not narrowed.has_whole(ANN.principal, "s") and narrowed.has_whole(ANN.principal, "other")
    assert not narrowed.has_whole(admin, "s")
    assert of(permissions=Permissions(tools={"s__x": "ask"}), admin=True).has_whole(admin, "s")
    assert Access(Config()).has_whole(Principal(), "s")


def test_servers_are_changed_by_administrators_and_on_an_open_gateway_by_programs_of_this_machine() -> None:
    here, admin = Principal(is_here=True), Principal(client="ann", is_admin=True)
    assert Access(Config()).may_request_change(here) and not Access(Config()).may_request_change(Principal())
    assert of(admin=True).may_request_change(admin)
    assert not of().may_request_change(admin)
    assert not of().may_request_change(Principal(is_here=True, client="ann"))


def test_what_was_an_administrator_may_be_none_any_more() -> None:
    access = Access(Config(clients=(KnownClient(id="a", name="a", admin=True),)))
    ann = Principal(client="a", is_admin=True)
    assert access.may_administer(ann)
    access.prepared(Config(clients=(KnownClient(id="a", name="a"),)))()
    assert not access.may_administer(ann)


def test_many_names_are_not_remembered_for_ever() -> None:
    found = rules(tools={"a__x": "off"})
    for number in range(8192):
        found.verdict("a", "tools", str(number))
    assert len(found._known) == 8192
    found.verdict("a", "tools", "one more")
    assert len(found._known) == 1


def hashed(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def test_clients_with_the_same_rules_have_one_print_and_every_difference_is_another() -> None:
    def made(id: str, add_servers: Verdict = "ask", **more: Any) -> Rules:
        return Rules(KnownClient(id=id, name=id, **more), add_servers)

    assert made("a", servers=("x", "y")).print == made("b", servers=("y", "x")).print
    off = Permissions(everything="off")
    several = [made("a", servers=servers) for servers in (None, "all", "none", ("x",))]
    several += [made("a", permissions=off), made("a", "off"), made("a", add_servers="allow")]
    assert len({each.print for each in several}) == len(several)
    assert repr(several[0]) == f"<Rules {several[0].print}>"


def test_rules_say_what_their_client_is_shown() -> None:
    assert Rules(KnownClient(id="a", name="a", surface="meta")).surface == "meta"


def test_long_names_are_not_remembered() -> None:
    found = rules(resources={"a+file:///p": "off"})
    for number in range(100):
        found.verdict("a", "resources", "file:///" + "x" * 10_000 + str(number))
        found.verdict("a", "tools", "x" * 10_000 + str(number))
    assert sum(len(name) for _, _, name in found._known) < 10_000
    for name in ("x" * 512, "x" * 513):
        found.verdict("b", "tools", name)
    assert [name for server, _, name in found._known if server == "b"] == ["x" * 512, hashed("x" * 513)]


def test_what_is_remembered_of_servers_has_an_end() -> None:
    found = rules()
    for number in range(9000):
        assert found.sees(str(number))
    assert len(found._seen) == 8192
    routes = [{str(number): ""} for number in range(8193)]
    for route in routes:
        assert found.servers(route) is route
    assert len(found._routes) == 1


def test_a_server_is_looked_at_once_unless_its_name_is_very_long(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    sees = Rules._sees

    def counted(rules: Rules, server: str) -> bool:
        looked.append(server)
        return sees(rules, server)

    monkeypatch.setattr(Rules, "_sees", counted)
    found = rules(reach=("a",))
    for server in ("a", "b", "x" * 512, "x" * 513):
        for _ in range(2):
            assert found.sees(server) is (server == "a")
    assert looked == ["a", "b", "x" * 512, "x" * 513, "x" * 513]
    some, all_of_it = {"a": "A", "b": "B"}, {"a": "A"}
    assert found.servers(some) == {"a": "A"} and found.servers(some) is found.servers(some)
    assert found.servers(all_of_it) is all_of_it


def test_a_long_name_may_hold_anything() -> None:
    found = rules(tools={"a__x": "off"})
    assert found.verdict("a", "tools", "\ud800" * 600) == "allow"
    assert found.verdict("a", "tools", "\ud800" * 600) == "allow"


@pytest.mark.parametrize("uri", ["", "/", "a", "..", "file:", "file:///", "%", "%zz", "a" * 10_000, "../" * 1000])
def test_any_uri_has_forms(uri: str) -> None:
    assert forms(uri)[0] == uri


# Why.


@pytest.mark.parametrize(
    ("reach", "permissions", "rule"),
    [
        ("all", {}, "mcp_server_access, and no permission that says less"),
        (None, {"tools": {"x__y": "allow"}}, "defaults: without mcp_server_access, what no permission names is off"),
        (("docs",), {}, "mcp_server_access, which does not name the server"),
        ("all", {"everything": "off"}, "mcp_permissions.global"),
        ("all", {"everything": "off", "servers": {"github": "ask"}}, "mcp_permissions.servers: github"),
        ("all", {"tools": {"github__get": "ask", "github__*": "off"}}, "mcp_permissions.tools: github__get"),
        ("all", {"tools": {"github__g*": "off", "github__*": "ask"}}, "mcp_permissions.tools: github__g*"),
        ("all", {"tools": {"GitHub__GET": "off"}}, "mcp_permissions.tools: github__get, as a server may read the name"),
        ("all", {"read_only": "ask"}, "mcp_permissions.read_only: the tool does not say that it only reads"),
    ],
)
def test_the_rule_that_decides_is_named(reach: Any, permissions: dict[str, Any], rule: str) -> None:
    found = rules(reach, **permissions)
    assert found.why("github", "tools", "get").rule == rule
    assert found.why("github", "tools", "get").verdict == found.verdict("github", "tools", "get")


@pytest.mark.promise("b.operator.why")
@pytest.mark.parametrize(
    ("kind", "name", "permissions", "rule"),
    [
        ("prompts", "get", {"prompts": {"github__get": "off"}}, "mcp_permissions.prompts: github__get"),
        ("prompts", "get", {"tools": {"github__get": "off"}}, "mcp_server_access, and no permission that says less"),
        ("prompts", "get", {"read_only": "off"}, "mcp_server_access, and no permission that says less"),
        (
            "prompts",
            "get",
            {"prompts": {"GitHub__GET": "off"}},
            "mcp_permissions.prompts: github__get, as a server may read the name",
        ),
        (
            "resources",
            "file:///a",
            {"resources": {"github__file:///a": "ask"}},
            "mcp_permissions.resources: github__file:///a",
        ),
        ("resources", "file:///a", {"everything": "off"}, "mcp_permissions.global"),
        (
            "resourceTemplates",
            "file:///{name}",
            {"resources": {"github__file:///*": "off"}},
            "mcp_permissions.resources: github__file:///*",
        ),
    ],
)
def test_of_prompts_and_resources_too(kind: str, name: str, permissions: dict[str, Any], rule: str) -> None:
    found = rules("all", **permissions)
    assert found.why("github", kind, name).rule == rule
    assert found.why("github", kind, name).verdict == found.verdict("github", kind, name)


LONG = "x" * 3000


@pytest.mark.parametrize(
    ("kind", "name", "permissions"),
    [
        ("tools", LONG, {"tools": {"github__get": "off"}}),
        ("prompts", LONG, {"prompts": {"github__get": "off"}}),
        ("resources", f"file:///{LONG}", {"resources": {"github__file:///get": "off"}}),
        ("resources", f"file:///%70{LONG}", {"resources": {"github__file:///p*": "off"}}),
        ("resources", f"file:///{LONG}", {"resources": {"github__file:///get": "off"}, "read_only": "off"}),
        ("resourceTemplates", "file:///%2525252525252570/{x}", {"resources": {"github__file:///get": "off"}}),
    ],
)
def test_what_may_be_read_as_anything_is_said_to_be(kind: str, name: str, permissions: dict[str, Any]) -> None:
    why = rules("all", **permissions).why("github", kind, name)
    assert why.verdict == "off"
    section = "resources" if kind == "resourceTemplates" else kind
    rule = f"mcp_permissions.{section}: a server may read this as another name, of which something is said"
    assert why.rule == rule


def test_a_tool_that_says_that_it_only_reads_is_let_go_on_by_another_rule() -> None:
    why = rules("all", read_only="off").why("github", "tools", "get", READS)
    assert (why.verdict, why.rule) == ("allow", "mcp_server_access, and no permission that says less")


def test_a_rule_is_named_that_is_said_of_another_spelling_of_a_host() -> None:
    why = rules("all", resources={"github__https://h/p*": "off"}).why("github", "resources", "https://H/p")
    assert (why.verdict, why.rule) == (
        "off",
        "mcp_permissions.resources: github__https://h/p*, as a server may read the name",
    )


@pytest.mark.parametrize(
    ("closed", "read"),
    [
        *(("note:2", f"note:{value}") for value in (" 2", "%202", "2%20", "\u00a02", "%C2%A02", "%0A2")),
        *(("note:2", f"note:{value}") for value in ("+2", "%2B2", "02", "0002", "2.0", "2.", "0x2", "0b10", "\uff12")),
        ("note:02", "note:2"),
        ("note:1000", "note:1_000"),
        ("users://2/*", "users://+2/profile"),
        ("users://2/*", "users://%C2%A02/profile"),
        ("db://{x}/2", "db://t/02"),
        ("db://t?limit=2", "db://t?limit=2.0"),
        ("report-2.json", "report-02.json"),
        ("db://t?a=true&b=2", "db://t?a=yes&b=02"),
        *(("x://r/0", f"x://r/{value}") for value in ("-0", "-0.0", "00")),
        *(("x://item_2/a", f"x://item_{value}/a") for value in ("02", "0_2", "2.0")),
        ("page2", "page02"),
        ("note:2", f"note:{'0' * 1900}2"),
        *(("flag://x/true", f"flag://x/{value}") for value in ("1", "yes", "on", "t", "Y", "TRUE", "01")),
        ("flag://x/off", "flag://x/0"),
    ],
)
def test_a_closed_uri_is_closed_in_each_way_in_which_a_server_may_write_its_values(closed: str, read: str) -> None:
    found = rules("all", resources={f"s+{closed}": "off"})
    assert found.verdict("s", "resources", read) == "off"
    assert "as a server may read the name" in found.why("s", "resources", read).rule


@pytest.mark.parametrize(
    ("closed", "read"),
    [
        ("docs://1.1", "docs://1.10"),
        ("note:2", "note:3"),
        ("note:2", "note:20"),
        ("note:2", "note:a2"),
        ("note:2", "note:2a"),
        ("note:2", "note:1.2"),
        ("flag:true", "flag:trueish"),
        ("flag:true", "flag:off"),
        ("v:1.0", "v:1.01"),
        ("v:a/1.0.5", "v:a/1.5"),
        ("v:1.*", "v:12"),
        ("report:2024-01*", "report:2024-10-01"),
        ("x:1_*", "x:15"),
        ("x:{a}02", "x:12"),
        ("x: *", "x:a"),
        ("x:my file", "x:myfile"),
        ("file:///f:/*", "file:///n:/a"),
        ("notes://n/*", "notes://f/a"),
        ("x:-2", "x:2"),
    ],
)
def test_other_values_stay_open(closed: str, read: str) -> None:
    assert rules("all", resources={f"s+{closed}": "off"}).verdict("s", "resources", read) == "allow"


def test_a_number_may_have_any_length_in_a_configuration() -> None:
    rules("all", resources={f"s+note:{'7' * 5000}": "off", f"s+note:0x{'7' * 5000}": "off"})


def test_what_a_value_may_be_read_as_opens_nothing() -> None:
    found = rules("all", everything="off", resources={"s+note:2": "allow"})
    assert found.verdict("s", "resources", "note:2") == "allow"
    assert found.verdict("s", "resources", "note:02") == "off"


def test_a_permission_that_fits_what_may_be_read_as_anything_does_not_decide_on_it() -> None:
    found = rules("all", everything="ask", resources={"github__file:///*": "allow"})
    why = found.why("github", "resources", f"file:///{LONG}")
    assert (why.verdict, why.rule) == ("ask", "mcp_permissions.global")


NAMES = st.sampled_from(
    ["github__get", "github__g*", "*get", "*", "GITHUB__Get", "docs__get", "github__set", "github*"]
)
VERDICTS_OF = ["allow", "ask", "off"]
VERDICTS = st.sampled_from(VERDICTS_OF)
SAID = st.fixed_dictionaries(
    {},
    optional={
        "everything": VERDICTS,
        "servers": st.dictionaries(st.sampled_from(["github", "git*", "docs", "*"]), VERDICTS, max_size=3),
        "tools": st.dictionaries(NAMES, VERDICTS, max_size=4),
        "prompts": st.dictionaries(NAMES, VERDICTS, max_size=4),
        "read_only": st.sampled_from(["", "ask", "off"]),
    },
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["all", "none", None, ("github",), ("docs",)]),
    SAID,
    st.sampled_from(["get", "GET", "set", "x" * 3000, "g\u200bet"]),
    st.sampled_from([READS, WRITES, Hints()]),
    st.sampled_from(["tools", "prompts"]),
)
def test_a_rule_of_the_configuration_is_named_for_every_verdict(
    reach: Any, permissions: dict[str, Any], name: str, hints: Hints, kind: str
) -> None:
    found = rules(reach, **permissions)
    why = found.why("github", kind, name, hints)
    assert why.verdict == found.verdict("github", kind, name, hints)
    assert why.rule != "defaults"


URIS = [
    "file:///a/b",
    "file:///a/../b",
    "FILE:///A/b",
    "file:///a/%62",
    "file://localhost/a/b",
    "x:%00",
    "file:///" + "a" * 3000,
    "file:///%2525252525252562",
    "{+path}",
    "b",
]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from([f"github__{each}" for each in (*URIS, "file:///*", "*b")]), VERDICTS, max_size=4),
    st.sampled_from(["", *VERDICTS_OF]),
    st.sampled_from(URIS),
    st.sampled_from(["resources", "resourceTemplates"]),
)
def test_a_rule_is_named_for_every_verdict_on_a_resource(
    said: dict[str, Any], everything: str, uri: str, kind: str
) -> None:
    found = rules("all", resources=said, **({"everything": everything} if everything else {}))
    why = found.why("github", kind, uri)
    assert why.verdict == found.verdict("github", kind, uri) and why.rule != "defaults"
