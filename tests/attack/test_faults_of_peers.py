"""Faults of other gateways and libraries that were exploited, each held against this gateway.

`FAULTS` is the table: what happened, where it is known from, and the tests that show that it does not happen here, the
ones below and others. A row without a test that exists fails.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from doors.issuers import AUTH, CONFIG, ISSUER, KEYS, Issuer, bearer, client, clients, encoded, issuer
from doors.pipes import WebSocket
from inmemory import LATEST, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.config import Config, Limits
from toolgate.config.access import Permissions, Rate, Rates

__all__ = ["issuer"]

Json = dict[str, Any]
TESTS = Path(__file__).parents[1]
HERE = "attack/test_faults_of_peers.py"
IN = "doors/test_who_comes_in.py"


class Fault(NamedTuple):
    happened: str
    known_as: str
    shown_by: tuple[str, ...]


FAULTS = (
    Fault(
        "an MCP endpoint of a gateway took any fabricated bearer token",
        "LiteLLM, CVE-2026-59822",
        (
            f"{HERE}::test_no_fabricated_bearer_is_taken_at_any_endpoint",
            f"{IN}::test_who_is_nobody_is_told_so",
            f"{IN}::test_other_requests_are_judged_as_well",
            f"{IN}::test_a_token_is_good_for_its_own_path_alone",
        ),
    ),
    Fault(
        "who knew the id of a session could go on with it as another principal",
        "Python SDK, CVE-2026-52869",
        (
            f"{IN}::test_a_session_of_another_does_not_exist",
            f"{IN}::test_a_session_alone_is_no_proof_of_anything",
            "doors/test_sessions.py::test_another_principals_session_does_not_exist",
            "doors/test_pipes.py::test_a_stream_is_its_principals_alone_and_belongs_to_its_path",
            "bridge/test_any_handle.py::test_what_another_holds_moves_nothing",
        ),
    ),
    Fault(
        "tasks could be read, and their results taken, by another principal",
        "Python SDK, CVE-2026-52870",
        (
            "bridge/test_tasks.py::test_another_principal_another_path_and_a_changed_byte_find_no_task",
            "bridge/test_tasks.py::"
            "test_on_a_shared_server_of_2025_another_principal_neither_gets_lists_cancels_nor_hears_of_a_task",
            "bridge/test_any_handle.py::test_a_handle_of_another_is_as_one_that_never_was",
        ),
    ),
    Fault(
        "WebSockets were opened whatever their Host and Origin",
        "Python SDK, CVE-2026-59950",
        (
            f"{HERE}::test_no_websocket_is_opened_from_a_foreign_page_or_to_a_foreign_host",
            "attack/test_pages_and_hosts.py::test_a_host_that_readers_take_for_different_ones_is_refused",
        ),
    ),
    Fault(
        "a request inside a batch went around authorization, which looked at single messages only",
        "ToolHive before 0.41",
        (
            f"{HERE}::test_what_is_denied_is_denied_in_a_batch",
            f"{HERE}::test_a_batch_of_a_stranger_reaches_nothing",
            f"{HERE}::test_each_call_of_a_batch_is_charged",
            "doors/test_batches.py::test_what_is_no_proper_batch_is_refused_as_a_whole",
        ),
    ),
    Fault(
        "the allow-list of a mode that runs code was walked around by computed attributes",
        "Bifrost before 2.2.5",
        (
            f"{HERE}::test_no_computed_name_reaches_a_tool_that_is_denied",
            f"{HERE}::test_no_code_of_a_caller_is_run",
            "properties/test_any_permissions.py",
            f"{IN}::test_no_control_tool_is_a_way_around_a_step_up",
        ),
    ),
    Fault(
        "an open registry of servers led the gateway inside the network",
        "Obot",
        (
            f"{HERE}::test_who_does_not_administer_adds_no_server",
            "processes/test_outside.py::test_a_server_that_a_tool_call_adds_is_not_reached_inside",
            "processes/test_outside.py::test_no_redirect_leads_inside",
            "processes/test_outside.py::"
            "test_a_name_that_changes_its_mind_is_connected_to_where_it_was_looked_at_or_not_at_all",
        ),
    ),
    Fault(
        "a server that anybody could register was given the tokens of users",
        "Obot",
        (
            "unit/auth/test_oauth.py::test_what_one_was_granted_is_no_one_elses",
            "unit/auth/test_oauth.py::test_after_a_server_has_moved_to_another_authority_nothing_of_the_first_is_shown_to_it",
            "processes/test_canaries.py::test_what_a_client_presents_is_at_no_upstream_and_in_no_log",
            "unit/config/test_edits.py::test_in_what_a_tool_call_has_added_nothing_is_put_in",
        ),
    ),
)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def names_of(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, _FUNCTIONS)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.happened)
def test_each_fault_has_tests_that_exist(fault: Fault) -> None:
    assert fault.shown_by
    for shown in fault.shown_by:
        file, _, name = shown.partition("::")
        assert (TESTS / file).is_file(), shown
        assert not name or name in names_of(TESTS / file), shown


def server() -> Scripted:
    return Scripted(tools_list=tools("echo", "delete"), tools_call=said("done"))


def calls(there: Scripted) -> list[Json]:
    return [each["params"] for each in there.requests if each.get("method") == "tools/call"]


# Fabricated tokens.

CLAIMS = {"iss": ISSUER, "sub": "dora", "aud": "https://gate.example/mcp", "scope": "mcp", "exp": 4_000_000_000}
FABRICATED = {
    "a word": "anything",
    "a key as others write them": "sk-1234",
    "null": "null",
    "undefined": "undefined",
    "nothing": "",
    "spaces": "   ",
    "the hash of a key": "sha256:" + "0" * 64,
    "the name of a client": "ada",
    "nearly a key": KEYS["ada"][:-1],
    "more than a key": KEYS["ada"] + "x",
    "a key in other letters": KEYS["ada"].upper(),
    "two keys": f"{KEYS['ada']},{KEYS['bob']}",
    "a JWT that nobody has signed": f"{encoded({'alg': 'none'})}.{encoded(CLAIMS)}.",
    "a JWT with a made-up signature": f"{encoded({'alg': 'ES256', 'kid': 'e1'})}.{encoded(CLAIMS)}.{'A' * 86}",
    "a JWT of three dots": "..",
    "claims without a token": encoded(CLAIMS),
}
OUT = {400, 401}  # 400: there is no telling which token is meant
KEYS_ONLY = Config(clients=tuple(clients()))
TOKENS_ONLY = Config(auth=AUTH)
ENDPOINTS = ("/mcp", "/mcp/all", "/mcp/meta", "/mcp/children", "/mcp/daemon", "/mcp/servers/there", "/sse")


@pytest.mark.promise("b.attacks.peers")
@pytest.mark.parametrize("config", [KEYS_ONLY, TOKENS_ONLY, CONFIG], ids=["keys", "tokens", "keys and tokens"])
@pytest.mark.parametrize("shown", FABRICATED.values(), ids=FABRICATED)
async def test_no_fabricated_bearer_is_taken_at_any_endpoint(shown: str, config: Config, issuer: Issuer) -> None:
    there = server()
    async with gateway(config=config, scripts={"there": there}) as app:
        for path in ENDPOINTS:
            stranger = Visitor(app, path, **bearer(shown))
            modern = await stranger.ask_modern("tools/call", name="there__echo", arguments={})
            legacy = await stranger.post(stranger.request("tools/list"))
            assert {modern.status, legacy.status} <= OUT, path
            assert "mcp-session-id" not in legacy.headers
            socket = await WebSocket(app.http, path, bearer(shown).items()).ended()
            assert not socket.accepted and socket.status in OUT, path
        for path in ("/admin/servers", "/admin/status"):
            assert (await Visitor(app, **bearer(shown)).send("GET", path=path)).status in OUT
    assert not there.requests


# WebSockets.

FOREIGN = {
    "a page": {"origin": "https://evil.example"},
    "a page of no origin": {"origin": "null"},
    "a page that has our name in its own": {"origin": "http://localhost.evil.example"},
    "a name that leads here": {"host": "evil.example:8765"},
    "a name with ours in it": {"host": "localhost.evil.example"},
    "two hosts": {"host": "localhost, evil.example"},
    "a host of ours, a page of theirs": {"host": "localhost:8765", "origin": "http://evil.example"},
}


@pytest.mark.promise("b.attacks.peers")
@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/all", "/mcp/servers/there"])
@pytest.mark.parametrize("key", [None, KEYS["ada"]], ids=["open", "with a key"])
async def test_no_websocket_is_opened_from_a_foreign_page_or_to_a_foreign_host(
    headers: Mapping[str, str], path: str, key: str | None
) -> None:
    there = server()
    config = Config(clients=tuple(clients())) if key else Config()
    async with gateway(config=config, scripts={"there": there}) as app:
        socket = _socket(app, path, {**headers, **(bearer(key) if key else {})})
        await socket.ended()
        assert not socket.accepted and socket.status == 403
        other = _socket(app, path, {"origin": "http://localhost:3000", **(bearer(key) if key else {})})
        await other.ended()
        assert other.status == 403, "another server of this machine is not ours"
        ours = _socket(app, path, {"origin": "http://localhost", **(bearer(key) if key else {})})
        await settle()
        assert ours.accepted, "what is ours is let in"
        await ours.leave()
    assert not there.requests


def _socket(app: Any, path: str, headers: Mapping[str, str]) -> WebSocket:
    """A `host` stands for the one that is sent otherwise."""

    async def asked(scope: Any, receive: Any, send: Any) -> None:
        told = [header for header in scope["headers"] if header != (b"host", b"localhost") or "host" not in headers]
        await app.http({**scope, "headers": told}, receive, send)

    return WebSocket(asked, path, headers.items())  # type: ignore[arg-type]


# Batches.


def batch(*messages: tuple[str, Json]) -> list[Json]:
    return [
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params} for id, (method, params) in enumerate(messages)
    ]


def call(name: str, **arguments: Any) -> tuple[str, Json]:
    return "tools/call", {"name": name, "arguments": arguments}


ONE = client("ann", key=KEYS["ada"], permissions=Permissions(tools={"there__delete": "off"}))


def ways_to(tool: str) -> tuple[tuple[str, Json], ...]:
    return (
        call(f"there__{tool}"),
        call(tool),
        call("mcp_call", server="there", tool=tool, arguments={}),
        call("call_tool", server_name="there", tool_name=tool, arguments={}),
        call("execute_child_tool", child_name="there", tool_name=tool, arguments={}),
    )


WAYS_TO_DELETE = ways_to("delete")


@pytest.mark.promise("b.attacks.peers")
@pytest.mark.parametrize("path", ["/mcp/all", "/mcp/meta", "/mcp/children", "/mcp/daemon"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "behind others"])
@pytest.mark.parametrize("version", ["2025-03-26", None], ids=["after a handshake", "without one"])
async def test_what_is_denied_is_denied_in_a_batch(path: str, first: bool, version: str | None) -> None:
    there = server()
    async with gateway(config=Config(clients=(ONE,)), scripts={"there": there}) as app:
        ann = Visitor(app, path, **bearer(KEYS["ada"]))
        if version:
            await ann.initialize(version)
        good: Sequence[tuple[str, Json]] = (("ping", {}), ("tools/list", {}), *ways_to("echo"))
        messages = (*WAYS_TO_DELETE, *good) if first else (*good, *WAYS_TO_DELETE)
        for sent in (batch(*messages), *(batch(one) for one in WAYS_TO_DELETE)):
            assert (await ann.post(sent)).status == 200
        await ann.post([batch(*WAYS_TO_DELETE)])  # in one another
        await ann.post(
            b'[{"jsonrpc":"2.0","id":1,"method":"ping"},%b' % json.dumps(batch(*WAYS_TO_DELETE)).encode()[1:]
        )
    assert {each["name"] for each in calls(there)} == {"echo"}


@pytest.mark.promise("b.attacks.peers")
async def test_a_batch_of_a_stranger_reaches_nothing() -> None:
    there = server()
    async with gateway(config=KEYS_ONLY, scripts={"there": there}) as app:
        for headers in ({}, bearer("anything")):
            response = await Visitor(app, **headers).post(batch(("ping", {}), call("there__echo")))
            assert response.status == 401 and "mcp-session-id" not in response.headers
    assert not there.requests


@pytest.mark.promise("b.attacks.peers")
async def test_each_call_of_a_batch_is_charged() -> None:
    there = server()
    limits = Limits(rates=Rates(principal=Rate(3, 60)))
    async with gateway(
        config=Config(clients=(client("ada", key=KEYS["ada"]),), limits=limits), scripts={"there": there}
    ) as app:
        ada = Visitor(app, **bearer(KEYS["ada"]))
        await ada.initialize("2025-03-26")
        await ada.post(batch(*[call("there__echo")] * 10))
    assert len(calls(there)) == 3


# Names that are computed.

COMPUTED: tuple[Any, ...] = (
    "delete ",
    " delete",
    "DELETE",
    "de\u200blete",
    "ｄｅｌｅｔｅ",
    "delete\x00",
    "there__delete",
    "there.delete",
    "there/delete",
    "there['delete']",
    "getattr(there, 'del' + 'ete')",
    "__getattribute__",
    "__class__.__base__.delete",
    "echo__delete",
    "../there/delete",
    "{name}",
    "${delete}",
    ["delete"],
    {"name": "delete"},
    ["de", "lete"],
    None,
    True,
)


def asked(name: Any) -> list[Json]:
    """The call as it is, by each control tool, and by a control tool that calls one."""
    meant: Json = {"server": "there", "tool": name, "arguments": {}}
    return [
        {"name": name, "arguments": {}},
        {"name": "mcp_call", "arguments": meant},
        {"name": "mcp_call", "arguments": {**meant, "server": ["there"]}},
        {"name": "call_tool", "arguments": {"server_name": "there", "tool_name": name, "arguments": {}}},
        {"name": "execute_child_tool", "arguments": {"child_name": "there", "tool_name": name, "arguments": {}}},
        {"name": "mcp_call", "arguments": {"server": "toolgate", "tool": "mcp_call", "arguments": meant}},
    ]


@pytest.mark.promise("b.attacks.peers")
@pytest.mark.parametrize("name", COMPUTED, ids=repr)
async def test_no_computed_name_reaches_a_tool_that_is_denied(name: Any) -> None:
    there = server()
    async with gateway(config=Config(clients=(ONE,)), scripts={"there": there}) as app:
        for path in ("/mcp/all", "/mcp/meta", "/mcp/children", "/mcp/daemon"):
            ann = Visitor(app, path, **bearer(KEYS["ada"]))
            await ann.initialize(LATEST)
            for ask in asked(name):
                await ann.post(ann.request("tools/call", **ask))
        assert not calls(there)
        own = Visitor(
            app, "/mcp/servers/there", **bearer(KEYS["ada"])
        )  # where what is unknown is the server's to judge
        await own.initialize(LATEST)
        await own.post(own.request("tools/call", name=name, arguments={}))
        assert [each["name"] for each in calls(there)] in ([], [name])


@pytest.mark.promise("b.attacks.peers")
async def test_no_code_of_a_caller_is_run() -> None:
    """There is no mode that runs code; where one comes, its allow-list has to stand here."""
    async with gateway(scripts={"there": server()}) as app:
        for path in ("/mcp/all", "/mcp/meta", "/mcp/daemon"):
            visitor = Visitor(app, path)
            for name in ("mcp_execute", "execute_code", "run_code"):
                error = (await visitor.ask("tools/call", name=name, arguments={"code": "1 + 1"})).last
                assert "error" in error or error["result"]["isError"], (path, name, error)


# Registries.


@pytest.mark.promise("b.attacks.peers")
@pytest.mark.parametrize("tool", ["add_mcp_server", "import_mcp_server"])
async def test_who_does_not_administer_adds_no_server(tool: str) -> None:
    async with gateway(config=KEYS_ONLY, scripts={"there": server()}) as app:
        before = set(app.gateway.snapshot.servers)
        for path in ("/mcp/all", "/mcp/daemon"):
            ada = Visitor(app, path, **bearer(KEYS["ada"]))
            arguments = {
                "name": "evil",
                "transport": "http",
                "url": "https://evil.example/mcp",
                "headers": {"a": "${HOME}"},
            }
            await ada.post(ada.request("tools/call", name=tool, arguments=arguments))
        posted = await Visitor(app, **bearer(KEYS["ada"])).post(
            {"name": "evil", "url": "https://evil.example/mcp"}, path="/admin/servers"
        )
        assert posted.status == 403
        assert set(app.gateway.snapshot.servers) == before
