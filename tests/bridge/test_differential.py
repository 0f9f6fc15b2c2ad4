"""The same requests to a server directly and through its own view: what comes back differs in what is declared here.

Client and server are of one era; what they say is spelled as awkwardly as JSON allows. `REWRITES` is the whole list of
what the gateway changes, each with its reason: applied to what the server says, it gives what the client hears, member
by member as the same bytes; where no rewrite applies, the whole result is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pytest
from msgspec import Raw
from peers import LATEST, META, MODERN, Json, LegacyServer, ModernServer, gateway
from virtualtime import soon

Members: TypeAlias = dict[str, Any]

DEEP = b'{"deep":' * 50 + b"[ ]" + b"}" * 50  # an item of a list may have `jsonrpc.DEEPEST_ITEM` levels
ODD = (
    b'"x-odd" :\t[ 1E5 ,0.50,-0,12345678901234567890123, 1e-7, true,null , ""'
    b',"\\u00e9\xc3\xa9\\/\\u2028\\ud83d\\ude00"]'
    b' , "x-deep" : ' + DEEP + b',"x-\\u00e9" : {  "z":1,  "a":2 }  '
)
META_ODD = b'"_meta" : {"example.com/\xc3\xa9" : [1.0, 2e0] }'
TEXT = b'{ "type" : "text","text":"\\u0041\xe2\x80\xa8\\n", ' + ODD + b"}"
PICTURE = b'{"mimeType":"image/png","data":"AAAA","type":"image", "annotations":{"priority":0.50, "x-odd":1}}'
LINK = b'{"type":"resource_link","uri":"file:///%C3%A9?a=b+c#d", "name" : "n", ' + ODD + b"}"
EMBEDDED = b'{"type":"resource","resource":{"uri":"ui://a/b","text":"<a href=\\"ui://a/b\\">", ' + ODD + b"} }"

BLOCKS = b" , ".join((TEXT, PICTURE, LINK, EMBEDDED))
RESULTS: Mapping[str, bytes] = {
    "tools/call": b'"content" : [ ' + BLOCKS + b' ],"structuredContent":{ ' + ODD + b'},"isError" : false',
    "prompts/get": b'"messages":[ {"role":"user", "content": '
    + EMBEDDED
    + b", "
    + ODD
    + b' } ] , "description":"\\u00e9"',
    "resources/read": b'"contents" : [{"uri":"file:///a", "text":"\\u0000 ",' + ODD + b'},{"uri":"x:y","blob":"AA=="}]',
    "completion/complete": b'"completion": { "values" : ["\\u00e9", "\xc3\xa9"] ,"total" : 2, ' + ODD + b"}",
    "tools/list": b'"tools" : [ {"name":"t" , "inputSchema" : { "type":"object", '
    + b'"properties" : {"\\u00e9":{"$ref":"x:y"}}, '
    + ODD
    + b'}, "outputSchema":{"type":"object"  },"annotations" : {"readOnlyHint":true, "x-odd":1.0}, '
    + ODD
    + b'} , {  "inputSchema":{"type":"object"},"name":"u\\u00e9"} ]',
    "prompts/list": b'"prompts": [ {"arguments":[ {"name":"a", ' + ODD + b'}],"name" : "p",' + ODD + b"} ]",
    "resources/list": b'"resources":[{"uri" : "file:///a","name":"a","size":1000, ' + ODD + b"}]",
    "resources/templates/list": b'"resourceTemplates":[{"uriTemplate":"mem://{+x}/{?y*}","name":"a",' + ODD + b"}]",
}
PARAMS: Mapping[str, bytes] = {
    "tools/call": b'"name" : "t", "arguments" : { "\\u00e9" : 1.0 ,' + ODD + b"}",
    "prompts/get": b'"name":"p" ,"arguments":{"a" : "\\u00e9\xc3\xa9"  }',
    "resources/read": b'"uri":"file:///%C3%A9?a=b+c#d"',
    "completion/complete": b'"ref" : {"type":"ref/prompt","name":"p",  "x-odd":1.0},'
    + b'"argument":{"name":"a" ,"value":""}',
}
LISTS = {method: body.split(b'"')[1].decode() for method, body in RESULTS.items() if method.endswith("/list")}
CALLS = tuple(PARAMS)
KINDS = (LegacyServer, ModernServer)


class Rewrite(NamedTuple):
    methods: tuple[str, ...]
    kinds: tuple[Any, ...]
    reason: str
    change: Callable[[Members], Members]


def only(*names: str) -> Callable[[Members], Members]:
    return lambda found: {name: member for name, member in found.items() if name in names}


def setting(**members: Any) -> Callable[[Members], Members]:
    return lambda found: found | {name: Raw(json.dumps(member).encode()) for name, member in members.items()}


OURS = {"name": "toolgate", "version": __import__("toolgate").__version__}
HANDSHAKE: Json = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": OURS}
DECLARED: Json = {"tools": {}, "prompts": {}, "resources": {"x-odd": 1}, "completions": {}, "logging": {}}
RELAYED: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"x-odd": 1, "listChanged": True},
    "completions": {},
    "logging": {},
    "x-odd": {"a": 1},
}

REWRITES = (
    Rewrite(
        tuple(LISTS),
        KINDS,
        "a list is put together of pages and kept: what stands beside the items is not of the list",
        only(*LISTS.values(), "resultType", "ttlMs", "cacheScope"),
    ),
    Rewrite(
        (*LISTS, "server/discover"),
        (ModernServer,),
        "whoever answers says who it is",
        setting(_meta={META + "serverInfo": OURS}),
    ),
    Rewrite(("initialize",), KINDS, "whoever answers says who it is", setting(serverInfo=OURS)),
    Rewrite(
        ("initialize", "server/discover"),
        KINDS,
        "of changed lists the gateway tells in any case",
        setting(capabilities=RELAYED),
    ),
    Rewrite(
        ("initialize", "server/discover"),
        KINDS,
        "the gateway greets for itself, and passes on what it knows the meaning of",
        only("protocolVersion", "supportedVersions", "capabilities", "serverInfo", "instructions", "_meta"),
    ),
    Rewrite(
        ("server/discover",),
        (ModernServer,),
        "what the gateway offers may change with its configuration, and for each client",
        setting(resultType="complete", ttlMs=0, cacheScope="private"),
    ),
)


def body_of(kind: Any, method: str) -> bytes:
    parts = [RESULTS[method], ODD, META_ODD]
    if kind is ModernServer:
        parts.append(b'"resultType" : "complete"')
        if method not in ("tools/call", "prompts/get", "completion/complete"):
            parts.append(b'"ttlMs" : 5000, "cacheScope":"public"')
    return b" { " + b" , ".join(parts) + b"}"


def a_server(kind: Any, answers: Mapping[str, bytes] = {}) -> Any:
    """A server that answers each method with these bytes."""
    server = kind(declares={**DECLARED, "x-odd": {"a": 1}}, instructions="\u2028 é\t")
    told = {method: body_of(kind, method) for method in RESULTS} | dict(answers)

    class Spelled(server.connection):  # type: ignore[name-defined]
        def requested(self, message: Json) -> None:
            if message["method"] in told:
                self.said = told[message["method"]]
                head = b'{"jsonrpc":"2.0", "id":' + json.dumps(message["id"]).encode()
                answer = b',"error":' if b'"code"' in self.said[:20] else b',"result":'
                self.say(head + answer + self.said + b"}")
            else:
                super().requested(message)

    server.connection = Spelled
    return server


def request(client: Any, method: str, more: bytes = b"") -> bytes:
    """A request as bytes, in the words of this client's era."""
    params = [PARAMS[method]] if method in PARAMS else []
    params += [json.dumps(HANDSHAKE).encode()[1:-1]] if method == "initialize" else []
    meta = b'"example.com/\xc3\xa9" : [1.0, 2e0]'
    if client.revision == MODERN:
        envelope = {
            META + "protocolVersion": MODERN,
            META + "clientCapabilities": {},
            META + "clientInfo": {"name": "scripted", "version": "1"},
        }
        meta += b", " + json.dumps(envelope).encode()[1:-1]
    params += [ODD, b'"_meta" : { ' + meta + more + b"}"]
    return b'{"jsonrpc":"2.0","id":"a","method":"' + method.encode() + b'","params":{ ' + b" , ".join(params) + b" } }"


class Direct:
    """A client that stands before the server itself."""

    def __init__(self, server: Any) -> None:
        self.revision = MODERN if isinstance(server, ModernServer) else LATEST
        self.messages: list[bytes] = []
        self.connection = server.connection(server)
        self.connection.connected(self.messages.append, lambda _why: None)

    async def ask(self, method: str, more: bytes = b"") -> bytes:
        self.connection.received(request(self, method, more))
        while not self.messages:
            await soon(asyncio.sleep(0))
        return self.messages.pop()


async def through(rig: Any, server: Any, method: str, more: bytes = b"") -> bytes:
    """The same by way of the gateway, in the view of this server alone."""
    kind = MODERN if isinstance(server, ModernServer) else LATEST
    client = await rig.client(kind, path="/mcp/servers/there", capabilities={})
    return (await client.raw(request(client, method, more))).raw


def members(raw: bytes | Raw) -> dict[str, Raw]:
    return msgspec.json.decode(raw, type=dict[str, Raw])


def result(message: bytes) -> bytes:
    found = members(message)
    assert "result" in found, message
    return bytes(found["result"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", CALLS)
async def test_the_result_of_a_call_is_the_same_bytes(kind: Any, method: str) -> None:
    there = a_server(kind)
    async with gateway(there=there) as rig:
        direct = await Direct(there).ask(method)
        assert result(await through(rig, there, method)) == result(direct) == body_of(kind, method).strip()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [*LISTS, "hello"])
async def test_any_other_result_differs_in_what_is_declared(kind: Any, method: str) -> None:
    there = a_server(kind)
    if method == "hello":
        method = "initialize" if kind is LegacyServer else "server/discover"
    async with gateway(there=there) as rig:
        expected: Members = members(result(await Direct(there).ask(method)))
        if method in LISTS:
            heard = members(result(await through(rig, there, method)))
        else:
            heard = members(await hello(rig, kind))
        for rewrite in REWRITES:
            if method in rewrite.methods and kind in rewrite.kinds:
                expected = rewrite.change(expected)
        assert heard.keys() == expected.keys()
        for name, member in heard.items():
            if name == LISTS.get(method):
                assert items(member) == items(expected[name])
            elif method in LISTS and name != "_meta":
                assert bytes(member) == bytes(expected[name])
            else:
                assert json.loads(bytes(member)) == json.loads(bytes(expected[name]))


async def hello(rig: Any, kind: Any) -> bytes:
    if kind is LegacyServer:
        client = rig.legacy_stranger(LATEST, path="/mcp/servers/there")
        return json.dumps((await client.initialize()).result).encode()
    client = rig.modern(path="/mcp/servers/there")
    return json.dumps((await client.request("server/discover")).result).encode()


def items(raw: Raw) -> list[bytes]:
    return [bytes(item) for item in msgspec.json.decode(raw, type=list[Raw])]


ERRORS = (
    b'{"code":-32602, "message" : "\\u00e9\xc3\xa9 no","data" : { ' + ODD + b"} }",
    b'{"code":-32603,"message":"" }',
    b'{"code":-31999,"message":"own","data":[ 1.0 ]}',
    b'{"code":1,"message":"own","data": null}',
    b'{"code":-1,"message":"own","data":"\\u00e9"}',
    b'{"code":2147483648,"message":"own","data":0}',
)


@pytest.mark.promise("001.errors.upstream")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("error", ERRORS, ids=[str(number) for number in range(len(ERRORS))])
async def test_an_error_is_the_same(kind: Any, method: str, error: bytes) -> None:
    """Its code, its message and, as bytes, its data."""
    there = a_server(kind, {method: error})
    async with gateway(there=there) as rig:
        direct = members(members(await Direct(there).ask(method))["error"])
        heard = members(members(await through(rig, there, method))["error"])
        assert json.loads(bytes(heard["code"])) == json.loads(bytes(direct["code"]))
        assert json.loads(bytes(heard["message"])) == json.loads(bytes(direct["message"]))
        assert heard.get("data") == direct.get("data")


# What the gateway changes in a request: who speaks, what it can, and where progress is to go.
OF_THE_HOP = tuple(META + name for name in ("protocolVersion", "clientInfo", "clientCapabilities", "logLevel"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", CALLS)
async def test_what_a_server_is_asked_is_the_same(kind: Any, method: str) -> None:
    """Every parameter as the same bytes, save what belongs to the hop."""
    there = a_server(kind)
    async with gateway(there=there) as rig:
        direct = Direct(there)
        await direct.ask(method, b' , "progressToken" : "mine"')
        await through(rig, there, method, b' , "progressToken" : "mine"')
        said = members(members(direct.connection.raw[-1])["params"])
        heard = members(members(there.connections[0].raw[-1])["params"])
        said_meta, heard_meta = members(said.pop("_meta")), members(heard.pop("_meta"))
        assert {name: bytes(raw) for name, raw in heard.items()} == {
            name: _spelled(name, raw) for name, raw in said.items()
        }
        assert said_meta.pop("progressToken") != heard_meta.pop("progressToken")
        for name in OF_THE_HOP:
            assert (name in heard_meta) == (name in said_meta)
            said_meta.pop(name, None), heard_meta.pop(name, None)
        assert heard_meta == said_meta


def _spelled(name: str, raw: Raw) -> bytes:
    """What names the target is written anew, as the server's own name for it."""
    if name in ("name", "uri"):
        return json.dumps(json.loads(bytes(raw)), ensure_ascii=False).encode()
    if name == "ref":
        return msgspec.json.encode(members(raw))
    return bytes(raw)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_log_line_is_the_same_bytes_and_progress_has_the_clients_own_token(kind: Any) -> None:
    there = a_server(kind)
    params = b'{"level" : "error" , "data":{ ' + ODD + b'},"logger":"\\u00e9", "x-odd":1.0}'
    spelled = there.connection.requested

    class Telling(there.connection):  # type: ignore[name-defined]
        def requested(self, message: Json) -> None:
            if message["method"] == "tools/call":
                token = json.dumps(message["params"]["_meta"]["progressToken"]).encode()
                self.say(b'{"jsonrpc":"2.0","method":"notifications/message","params":' + params + b"}")
                told = b'{"progressToken":' + token + b',"progress" : 0.50,"total":1e3, ' + ODD + b"}"
                self.say(b'{"jsonrpc":"2.0","method":"notifications/progress","params":' + told + b"}")
            spelled(self, message)

    there.connection = Telling
    async with gateway(there=there) as rig:
        revision = MODERN if kind is ModernServer else LATEST
        client = await rig.client(revision, path="/mcp/servers/there", capabilities={})
        more = b' , "progressToken" : "mine", "%b" : "debug"' % (META + "logLevel").encode()
        reply = await client.raw(request(client, "tools/call", more))
        logged, progress = (members(members(raw)["params"]) for raw in reply.raw_before)
        assert logged == members(params)
        assert progress.pop("progressToken") == Raw(b'"mine"')
        assert progress == members(b'{"progress" : 0.50,"total":1e3, ' + ODD + b"}")
