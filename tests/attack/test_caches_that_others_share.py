"""A server says that its answers are the same for everybody (`cacheScope: "public"`), so that a cache between
clients and gateway gives what one principal was told to another: what depends on who asks says that it is private."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bridge.test_permissions import client, clients
from inmemory import MODERN, THE_SOCKET, Scripted, Visitor, tools
from inmemory import gateway as in_memory
from peers import ModernServer, Scene, gateway

from toolgate.config import Config
from toolgate.core.model import Principal

LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
PUBLIC = {"ttlMs": 60_000, "cacheScope": "public"}
PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])


async def plain(scene: Scene) -> str:
    return "of one principal"


def there(**settings: Any) -> ModernServer:
    return ModernServer({"get": plain}, {"ask": plain}, {"mem://a": plain}, keeps=PUBLIC, **settings)


def uri(path: str) -> str:
    return "there+mem://a" if path == "/mcp" else "mem://a"


@PATHS
@pytest.mark.parametrize("permissions", [{}, {"tools": {"*": "allow"}}, {"resources": {"there+mem://b": "off"}}])
async def test_what_is_read_by_permission_is_for_nobody_else(path: str, permissions: Any) -> None:
    async with gateway(config=clients(client(**permissions), client("bob", servers=())), there=there()) as rig:
        result = (await rig.modern(path=path).request("resources/read", uri=uri(path))).result
        assert (result["ttlMs"], result["cacheScope"]) == (60_000, "private")


@PATHS
@pytest.mark.parametrize("method", LISTS)
async def test_lists_are_for_nobody_else_where_clients_are_known(path: str, method: str) -> None:
    async with gateway(config=clients(client(), client("bob", servers=())), there=there()) as rig:
        assert (await rig.modern(path=path).request(method)).result["cacheScope"] == "private"


@PATHS
async def test_where_nobody_has_to_show_who_they_are_what_servers_say_holds(path: str) -> None:
    async with gateway(there=there()) as rig:
        for method in ["resources/read", *LISTS]:
            params = {"uri": uri(path)} if method == "resources/read" else {}
            assert (await rig.modern(path=path).request(method, **params)).result["cacheScope"] == "public"


@PATHS
@pytest.mark.parametrize("settings", [{"scope": "principal"}, {"scope": "session"}, {"forward_headers": ("x-user",)}])
@pytest.mark.parametrize("method", ["resources/read", "tools/list"])
async def test_a_server_that_knows_who_asks_answers_nobody_else(path: str, settings: Any, method: str) -> None:
    async with gateway(there=there(**settings)) as rig:
        params = {"uri": uri(path)} if method == "resources/read" else {}
        assert (await rig.modern(path=path).request(method, **params)).result["cacheScope"] == "private"


# In every spelling, and in answers that nobody looks into.

MANY = "[" + "1," * 600_000 + "1]"
BODIES = {
    "escaped": r'{"contents":[],"ttlMs":5,"cache\u0053cope":"public"}',
    "escaped value": r'{"contents":[],"ttlMs":5,"cacheScope":"publi\u0063"}',
    "twice": '{"cacheScope":"private","contents":[],"ttlMs":5,"cacheScope":"public"}',
    "twice, the other way": '{"cacheScope":"public","contents":[],"ttlMs":5,"cacheScope":"private"}',
    "too much to be looked into": f'{{"contents":[],"ttlMs":5,"more":{MANY},"cacheScope":"public"}}',
    "of another type": '{"contents":[],"ttlMs":5,"cacheScope":"public","resultType":"other"}',
}


def scripted(body: str) -> Scripted:
    body = body if '"resultType"' in body else '{"resultType":"complete",' + body[1:]
    listed = tools("t") | {"resultType": "complete"} | PUBLIC
    return Scripted(MODERN, tools_list=listed, resources_read=body.encode())


KNOWN = Config(clients=(client("ann"),))


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_no_spelling_of_public_gets_through(body: str) -> None:
    async def ann(*_: object) -> Any:
        return Principal("ann", client="ann")

    async with in_memory(scripts={"there": scripted(body)}, config=KNOWN, identify=ann) as app:
        visitor = Visitor(app)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "resources/read", "mcp-name": "there+mem://a"}
        request = visitor.modern_request("resources/read", uri="there+mem://a")
        response = await visitor.post(request, headers=headers)
        found = json.loads(response.body, object_pairs_hook=lambda pairs: pairs)
        [result] = [value for name, value in found if name in ("result", "error")]
        assert [value for name, value in result if name == "cacheScope"] in (["private"], [])


async def test_what_the_operator_sees_is_for_nobody_else() -> None:
    async with in_memory(scripts={"there": scripted('{"contents":[]}')}, config=KNOWN) as app:
        operator = Visitor(app)
        operator.client = THE_SOCKET
        listed = (await operator.ask_modern("tools/list")).result
        assert [tool["name"] for tool in listed["tools"]] == ["there__t"]
        assert listed["cacheScope"] == "private"
