"""Whatever a client is permitted: that it can list, find and use, on every surface and in every way of naming it, and
nothing else ever reaches a server or is named."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest
from asgi import HttpRequest
from peers import LATEST, MODERN, Client, LegacyServer, ModernServer, Reply, Rig, Scene, _Server, gateway
from virtualtime import play, soon

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.core import names

CLIENTS = 4  # of each gateway
IDS = ("git", "git-hub", "docs")
TOOLS = {
    "git": ("get", "alpha_delete", "beta"),
    "git-hub": ("get", "gamma_delete", "delta"),
    "docs": ("epsilon", "hub__get"),
}
READ_ONLY = ("get", "beta", "epsilon")
PROMPTS = {"git": ("zeta",), "git-hub": ("zeta", "eta"), "docs": ()}
RESOURCES = {"git": ("file:///a",), "git-hub": ("file:///a", "note://b"), "docs": ("file:///a", "file:///p/theta")}
TEMPLATES = {"git": (), "git-hub": ("x://{iota}",), "docs": ("file:///p/{kappa}",)}
SNEAKY = ("file:///q/../p/theta", "file:///%70/theta", "file:////p/theta", "file:///p/./theta", "FILE:///p/theta")
OF = {"tools": TOOLS, "prompts": PROMPTS, "resources": RESOURCES, "resourceTemplates": TEMPLATES}
BUNDLE = "/mcp/bundles/some"
BUNDLES = {"some": ("docs__*", "git__get", "git-hub__*")}
PROBES = {
    "tools": ("new", "new_delete", "new__get"),
    "prompts": ("new", "new_delete", "new__get"),
    "resources": ("new:x", "file:///p/new", "file:///b/file:///a"),
    "resourceTemplates": (),
}
DENIED = "ACCESS_DENIED"


# What is permitted, decided again in the plainest way.


class Oracle:
    def __init__(self, client: KnownClient) -> None:
        self._client = client
        self._permissions = client.permissions

    def permits(self, server: str, kind: str, name: str) -> bool:
        if kind == "tools" and self._permissions.read_only and name not in READ_ONLY:
            return False
        return self._permits(server, kind, name)

    def _permits(self, server: str, kind: str, name: str) -> bool:
        found = self._client.servers
        if found == "none" or (isinstance(found, tuple) and server not in found):
            return False
        said = self._said(server, kind, name) or self._permissions.servers.get(server) or self._permissions.everything
        return (said or ("off" if found is None else "allow")) != "off"

    def permits_controls(self) -> bool:
        said = self._permissions.servers.get("toolgate") or self._permissions.everything
        return said != "off"

    def sees(self, server: str) -> bool:
        """Whether it might have something that is permitted."""
        probes = {kind: [*own[server], *PROBES[kind]] for kind, own in OF.items()}
        return any(self._permits(server, kind, name) for kind, known in probes.items() for name in known)

    def _said(self, server: str, kind: str, name: str) -> str | None:
        rules = getattr(self._permissions, "resources" if kind == "resourceTemplates" else kind)
        whole = names.join_uri(server, name) if kind.startswith("resource") else f"{server}__{name}"
        if whole in rules:
            return str(rules[whole])
        fitting = [rule for rule in rules if "*" in rule and re.fullmatch(re.escape(rule).replace(r"\*", ".*"), whole)]
        longest = max((len(rule.replace("*", "")) for rule in fitting), default=0)
        verdicts = [rules[rule] for rule in fitting if len(rule.replace("*", "")) == longest]
        return "off" if "off" in verdicts else str(verdicts[0]) if verdicts else None


def any_client(random: Random, id: str) -> KnownClient:
    def some(known: list[str], most: int) -> dict[str, Any]:
        return {each: random.choice(["allow", "off"]) for each in random.sample(known, random.randrange(most))}

    tools = [f"{server}__{name}" for server, own in TOOLS.items() for name in own]
    prompts = [f"{server}__{name}" for server, own in PROMPTS.items() for name in own]
    uris = [names.join_uri(server, uri) for server, own in RESOURCES.items() for uri in own]
    patterns = ["*", "git__*", "git-hub__*", "*__get", "*_delete", "docs*", "g*"]
    permissions = Permissions(
        everything=random.choice([None, None, "allow", "off"]),
        servers=some([*IDS, "toolgate"], 3),
        tools=some([*tools, *patterns], 4),
        prompts=some([*prompts, *patterns], 2),
        resources=some([*uris, "docs+file:///p/*", "*file:///a", "git-hub+*", "docs+*"], 3),
        read_only=random.choice(["", "", "", "off"]),
    )
    reach = random.choice(
        ["all", "all", "none", None, None, tuple(random.sample(IDS, 2)), tuple(random.sample(IDS, 1))]
    )
    return KnownClient(id=id, name=id, servers=reach, permissions=permissions)


async def plain(scene: Scene) -> str:
    return "done"


def a_server(kind: type[_Server], id: str) -> _Server:
    def completes(params: Any) -> Any:
        return {"values": ["one"]}

    server = kind(
        dict.fromkeys(TOOLS[id], plain),
        dict.fromkeys(PROMPTS[id], plain),
        dict.fromkeys(RESOURCES[id], plain),
        templates=dict.fromkeys(TEMPLATES[id], plain),
        completes=completes,
        tells=True,
    )
    for tool in server.lists["tools/list"][1]:
        tool["annotations"] = {"readOnlyHint": tool["name"] in READ_ONLY}
        tool["description"] = "a thing"
    return server


class Visit:
    """One client, one era: everything that it may try."""

    def __init__(self, rig: Rig, known: KnownClient, revision: str) -> None:
        self.rig = rig
        self.id = known.id
        self.oracle = Oracle(known)
        self.revision = revision
        self.clients: dict[str, Client] = {}

    async def at(self, path: str) -> Client:
        if path not in self.clients:
            self.clients[path] = await self.rig.client(self.revision, principal=self.id, path=path)
        return self.clients[path]

    def things(self, kind: str) -> Iterator[tuple[str, str]]:
        return ((server, name) for server in IDS for name in OF[kind][server])

    def permitted(self, kind: str, server: str = "") -> list[tuple[str, str]]:
        return [each for each in self.things(kind) if self.oracle.permits(each[0], kind, each[1])
                and server in ("", each[0])]  # fmt: skip

    def is_discreet(self, reply: Reply, *written: str) -> None:
        """Nothing is named that the client may not see, but what it has written itself."""
        text = json.dumps(reply.message)
        for each in written:
            text = text.replace(each, "")
        for kind in OF:
            shown = {name for _, name in self.permitted(kind)}
            for _, name in self.things(kind):
                for word in re.findall("alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa", name):
                    is_shown = any(word in other for each in OF for _, other in self.permitted(each))
                    assert is_shown or name in shown or not re.search(rf"\b{word}", text), (name, text)
        for server in IDS:
            if not self.oracle.sees(server):
                assert not re.search(rf"(?<![-\w]){server}(?![-\w]*hub)", text), (server, text)

    async def reaches(self, server: str, attempt: Awaitable[Reply]) -> bool:
        """Whether an attempt gets to this server; if to no server, it must have been refused."""
        before = {id: self._received(id) for id in IDS}
        reply = await attempt
        reached = [id for id in IDS if self._received(id) > before[id]]
        assert reached in ([], [server]), (server, reached)
        assert bool(reached) == (not _is_refused(reply)), reply.message
        return bool(reached)

    def _received(self, id: str) -> int:
        key = id.replace("-", "_")
        return len(self.rig.servers[key].calls) + len(self.rig.servers[key].requests("completion/complete"))

    # Lists and searches.

    async def lists(self) -> None:
        client = await self.at("/mcp/aggregate")
        for kind, method in (("tools", "tools/list"), ("prompts", "prompts/list"), ("resources", "resources/list")):
            reply = await client.request(method)
            self.is_discreet(reply)
            key = "uri" if kind == "resources" else "name"
            join = names.join_uri if kind == "resources" else names.join_name
            assert [item[key] for item in reply.result[kind]] == [join(*each) for each in self.permitted(kind)]
        reply = await client.request("resources/templates/list")
        listed = [item["uriTemplate"] for item in reply.result["resourceTemplates"]]
        assert listed == [names.join_uri(*each) for each in self.permitted("resourceTemplates")]
        if not self.sees_bundle:
            assert await self._refusal(BUNDLE) == (404, -32600)
            return
        reply = await (await self.at(BUNDLE)).request("tools/list")
        self.is_discreet(reply)
        shown = {names.join_name(*each) for each in self.permitted("tools")}
        assert {item["name"] for item in reply.result["tools"]} <= shown

    @property
    def sees_bundle(self) -> bool:
        return any(map(self.oracle.sees, ("docs", "git", "git-hub")))

    async def _refusal(self, path: str) -> tuple[int | None, int]:
        refused = HttpRequest(self.rig.app.http, "POST", path, {"x-test-principal": self.id}.items(), b"{}")
        await soon(refused.task)
        return refused.status, json.loads(refused.body)["error"]["code"]

    async def lists_of_one(self, server: str) -> None:
        path = f"/mcp/servers/{server}"
        if not self.oracle.sees(server):
            assert await self._refusal(path) == (403, -32600)
            return
        reply = await (await self.at(path)).request("tools/list")
        assert [(server, item["name"]) for item in reply.result["tools"]] == self.permitted("tools", server)

    async def finds(self) -> None:
        client = await self.at("/mcp")
        shown = self.permitted("tools")
        found = await self._said(client, "list_tools")
        if not self.oracle.permits_controls():
            assert found is None
            return
        found["servers"] = [each for each in found["servers"] if each["name"] not in names.INTERNAL]
        seen = [id for id in IDS if self.oracle.sees(id)]
        assert [each["name"] for each in found["servers"]] == [id.replace("-", "_") for id in seen]
        listed = [(names.slug(each["name"]), tool["name"]) for each in found["servers"] for tool in each["tools"]]
        assert listed == shown
        for server in IDS:
            schema = await self._said(client, "get_schema", server_id=server)
            told = [] if "tools" not in schema else [(server, tool["name"]) for tool in schema["tools"]]
            assert told == self.permitted("tools", server)
        hits = await self._said(client, "search_tools", query=".", mode="regex", limit=50, type="all")
        by_name = {names.join_name(*each) for kind in ("tools", "prompts") for each in self.permitted(kind)}
        by_uri = {names.join_uri(*each) for kind in ("resources", "resourceTemplates") for each in self.permitted(kind)}
        own = tuple(names.join_name(id, "") for id in names.INTERNAL)
        assert {hit["name"] for hit in hits["matches"] if not hit["name"].startswith(own)} == by_name | by_uri
        discovered = await self._said(client, "mcp_discover", query="thing get delete alpha beta gamma delta epsilon")
        hits = [hit for hit in discovered if hit["server"] not in names.INTERNAL]
        assert {(names.slug(hit["server"]), hit["tool"]) for hit in hits} <= set(shown)
        for server, tool in self.things("tools"):
            told = await self._said(client, "get_tool_schema", server_name=server, tool_name=tool, careful=False)
            assert ("tool" in told) == self.oracle.permits(server, "tools", tool)

    async def _said(self, client: Client, control: str, careful: bool = True, **arguments: Any) -> Any:
        """What a control tool says; None where it is denied."""
        reply = await client.call(control, arguments=arguments)
        if "error" in reply.message:
            assert reply.error["data"]["code"] == DENIED
            return None
        if careful and "server_id" not in arguments:
            self.is_discreet(reply)
        text = reply.text
        return None if DENIED in text or "Access denied" in text else json.loads(text)

    async def errs(self) -> None:
        """Names that are nearly right."""
        client = await self.at("/mcp")
        for name in ("git__ge", "alph_delete", "doc__epsilo", "git-hub__gamma_delet", "x"):
            self.is_discreet(await client.call(name, arguments={}), name)
            arguments = {"server": "gi", "tool": name}
            self.is_discreet(await client.call("mcp_call", arguments=arguments), name)
            arguments = {"server_name": "git", "tool_name": name}
            self.is_discreet(await client.call("call_tool", arguments=arguments), name, "git")
            self.is_discreet(await client.request("prompts/get", name=name), name)
            self.is_discreet(await client.request("resources/read", uri=f"doc+{name}://"), f"doc+{name}")

    # Calls.

    async def calls(self) -> None:
        client = await self.at("/mcp")
        for server, tool in self.things("tools"):
            may = self.oracle.permits(server, "tools", tool)
            for path in ("/mcp", "/mcp/all", "/mcp/meta", *((BUNDLE,) if self.sees_bundle else ())):
                attempt = (await self.at(path)).call(f"{server}__{tool}", arguments={})
                assert await self.reaches(server, attempt) == may, (path, server, tool)
            controls = may and self.oracle.permits_controls()
            for control, spelled in (
                ("mcp_call", {"server": server, "tool": tool}),
                ("execute_child_tool", {"server_id": server.replace("-", "_"), "tool_name": tool, "arguments": {}}),
                ("call_tool", {"server_name": server.upper(), "tool_name": tool}),
            ):
                assert await self.reaches(server, client.call(control, arguments=spelled)) == controls, (
                    control,
                    spelled,
                )
            if self.oracle.sees(server):
                own = await self.at(f"/mcp/servers/{server}")
                assert await self.reaches(server, own.call(tool, arguments={})) == may
            owners = [id for id, each in self.things("tools") if each == tool]  # whoever may use them
            if owners == [server]:
                assert await self.reaches(server, client.call(tool, arguments={})) == may

    async def prompts(self) -> None:
        client = await self.at("/mcp")
        for server, name in self.things("prompts"):
            may = self.oracle.permits(server, "prompts", name)
            got = client.request("prompts/get", name=f"{server}__{name}")
            assert await self.reaches(server, got) == may
            ref = {"type": "ref/prompt", "name": f"{server}__{name}"}
            assert await self.reaches(server, _complete(client, ref)) == may

    async def reads(self) -> None:
        client = await self.at("/mcp")
        for server, uri in self.things("resources"):
            may = self.oracle.permits(server, "resources", uri)
            for spelled in (names.join_uri(server, uri), f"{server}__{uri}"):
                assert await self.reaches(server, client.request("resources/read", uri=spelled)) == may, spelled
            through = client.call("read_mcp_resource", arguments={"server_name": server, "resource_uri": uri})
            assert await self.reaches(server, through) == (may and self.oracle.permits_controls())
            assert await self._is_told(client, names.join_uri(server, uri)) == may
        for server, template in self.things("resourceTemplates"):
            ref = {"type": "ref/resource", "uri": names.join_uri(server, template)}
            may = self.oracle.permits(server, "resourceTemplates", template)
            assert await self.reaches(server, _complete(client, ref)) == may
        for uri in SNEAKY if not self.oracle.permits("docs", "resources", "file:///p/theta") else ():
            before = self._received("docs")
            for spelled in (f"docs+{uri}", f"docs__{uri}", uri):
                await client.request("resources/read", uri=spelled)
                assert not await self._is_told(client, spelled)
            assert self._received("docs") == before, uri

    async def _is_told(self, client: Client, uri: str) -> bool:
        if self.revision == MODERN:
            ear = await client.listen(uri)  # type: ignore[union-attr]
            acknowledged = ear.pending.messages[0]["params"]["notifications"]  # type: ignore[union-attr]
            await ear.stop()
            return "resourceSubscriptions" in acknowledged
        reply = await client.request("resources/subscribe", uri=uri)
        if "error" in reply.message:
            return False
        await client.request("resources/unsubscribe", uri=uri)
        return True


def _complete(client: Client, ref: Any) -> Awaitable[Reply]:
    return client.request("completion/complete", ref=ref, argument={"name": "a", "value": "o"})


def _is_refused(reply: Reply) -> bool:
    return "error" in reply.message or bool(reply.result.get("isError"))


ATTEMPTS: tuple[Callable[[Visit], Awaitable[None]], ...] = (
    Visit.lists,
    Visit.finds,
    Visit.errs,
    Visit.calls,
    Visit.prompts,
    Visit.reads,
)


@pytest.mark.promise("001.auth.access", "001.auth.denied", "b.surfaces.one-decision")
@pytest.mark.parametrize("seed", range(10))
def test_what_is_permitted_is_listed_found_and_used_and_nothing_else(seed: int) -> None:
    play(_visits(seed))


async def _visits(seed: int) -> None:
    random = Random(seed)
    clients = tuple(any_client(random, f"client-{number}") for number in range(CLIENTS))
    kinds = {id.replace("-", "_"): random.choice([LegacyServer, ModernServer]) for id in IDS}
    servers = {key: a_server(kind, names.slug(key)) for key, kind in kinds.items()}
    async with gateway(config=Config(clients=clients), bundles=BUNDLES, **servers) as rig:
        for known in clients:
            visit = Visit(rig, known, random.choice([MODERN, LATEST]))
            try:
                for attempt in ATTEMPTS:
                    await attempt(visit)
                for server in IDS:
                    await visit.lists_of_one(server)
            except BaseException as error:
                error.add_note(f"{visit.revision} {msgspec_shown(known)}")
                raise


def msgspec_shown(known: KnownClient) -> str:
    return f"{known.servers} {known.permissions}"
