"""The decision on who may do what, by itself: what is said of a thing, of its server, of everything."""

from __future__ import annotations

from typing import Any

import pytest

from toolgate.auth.access import Access, Rules
from toolgate.auth.uri_readings import forms
from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions, Verdict
from toolgate.core import names
from toolgate.core.model import Call, Client, Hints, Principal

READS, WRITES = Hints(readOnlyHint=True), Hints(readOnlyHint=False)


def rules(reach: Any = "all", admin: bool = False, **permissions: Any) -> Rules:
    return Rules(KnownClient(id="ci", name="ci", servers=reach, admin=admin, permissions=Permissions(**permissions)))


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
    # Control tools are the server `toolgate`.
    ({"tools": {"toolgate__mcp_call": "off"}}, "toolgate", "tools", "mcp_call", "off"),
    ({"servers": {"toolgate": "off"}}, "toolgate", "tools", "status", "off"),
    ({"servers": {"toolgate": "off"}, "tools": {"toolgate__status": "allow"}}, "toolgate", "tools", "status", "allow"),
    ({"everything": "off"}, "toolgate", "tools", "status", "off"),
    ({"everything": "ask"}, "toolgate", "tools", "status", "allow"),  # it shows what is permitted anyhow
    ({"tools": {"*": "ask"}, "servers": {"*": "off"}}, "toolgate", "tools", "status", "allow"),
    ({"everything": "off"}, "toolgate", "resources", "mcp://server_summary", "off"),
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
    assert rules(reach="none", tools={"github__x": "allow"}).verdict("github", "tools", "x") == "off"


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


def test_a_server_is_not_seen_where_all_of_it_is_off() -> None:
    off = {"tools": {"a__*": "off"}, "prompts": {"*": "off"}}
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


def test_what_was_an_administrator_may_be_none_any_more() -> None:
    access = Access(Config(clients=(KnownClient(id="a", name="a", admin=True),)))
    ann = Principal(client="a", is_admin=True)
    assert access.may_administer(ann)
    access.prepared(Config(clients=(KnownClient(id="a", name="a"),)))()
    assert not access.may_administer(ann)


def test_many_names_are_not_remembered_for_ever() -> None:
    found = rules(tools={"a__x": "off"})
    for number in range(20_000):
        found.verdict("a", "tools", str(number))
    assert len(found._known) <= 8192


def test_long_names_are_not_remembered() -> None:
    found = rules(resources={"a+file:///p": "off"})
    for number in range(100):
        found.verdict("a", "resources", "file:///" + "x" * 10_000 + str(number))
        found.verdict("a", "tools", "x" * 10_000 + str(number))
    assert sum(len(name) for _, _, name in found._known) < 10_000


@pytest.mark.parametrize("uri", ["", "/", "a", "..", "file:", "file:///", "%", "%zz", "a" * 10_000, "../" * 1000])
def test_any_uri_has_forms(uri: str) -> None:
    assert forms(uri)[0] == uri
