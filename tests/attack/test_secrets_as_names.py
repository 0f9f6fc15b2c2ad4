"""What stands in the clear by the name of a secret is taken out of names of members too, where it can hardly be the
name of any: a server's own schema keeps its names whatever words its configuration has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import Scripted, Visitor, tools
from inmemory import gateway as in_memory
from peers import LATEST, MODERN, LegacyServer, ModernServer, RpcError, Scene, form, gateway, words_of

from toolgate.config import Config, Server, learn_secrets
from toolgate.config.secrets import Secrets
from toolgate.core.redaction import GONE, MOST_GUESSED, Redactor

SECRETS = [
    *("correct horse battery staple 9", "correct horse battery staple", "Pa$$w0rd!Pa$$w0rd", "1234567890123456"),
    *('sk/Qx7+Zp9/Lm2"Vb8Kc4', "Grüße aus Köln an Eve", "pass-phrase;with\\signs", "Xk!mPq#LwZt%RvNy"),
]
WORDS = [
    *("inputSchema", "structuredContent", "clientCredentialsGrant", "client_credentials", "authorization-code"),
    *(
        "aws_secret_access_key",
        "data.credentials.token",
        "io.modelcontextprotocol/protocolVersion",
        "x-api-key-v2-prod",
    ),
    *("/run/secrets/production", "auth.production.example.org:8443", "$skiptoken", "user[password]", "OAuth2Token"),
    *("hunter2-hunter2", "abcdefghijklmnopqrstuvw", "192.168.100.200:8080", "2026-07-28", "123456789012"),
]
HELD = "correct horse battery staple 9"


def told(public: tuple[str, ...] = (), **env: str) -> Redactor:
    servers = tuple(Server(id=id, name=id, type="stdio", env=env if id == "own" else {}) for id in ("own", "other"))
    redactor = Redactor()
    learn_secrets(Config(servers=servers, secrets=Secrets(public=public)), redactor)
    return redactor


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04x}" for each in text)


@pytest.mark.parametrize("name", ["API_TOKEN", "DB_PASSWORD", "Cookie"])
@pytest.mark.parametrize("secret", SECRETS)
def test_such_a_secret_is_no_name_of_a_member(name: str, secret: str) -> None:
    own = told(**{name: secret}).of("own")
    for whole in ({secret: 1}, {"a": [{f"x {secret} y": {"b": secret}}]}):
        for written in (json.dumps(whole), json.dumps(whole, ensure_ascii=False), json.dumps(whole, indent=1)):
            shown = own.body(written.encode()).decode()
            assert secret not in str(json.loads(shown)) and GONE in shown
        assert secret not in str(own.value(whole))
    hidden = own.body(f'{{"{escaped(secret)}": 1, "b": "{escaped(secret)}"}}'.encode())
    assert json.loads(hidden) == {GONE: 1, "b": GONE}


@pytest.mark.parametrize("name", ["API_TOKEN", "AUTH_TYPE"])
@pytest.mark.parametrize("word", WORDS)
def test_what_may_be_the_name_of_a_member_stays_one(name: str, word: str) -> None:
    own, whole = told(**{name: word}).of("own"), {word: [1], "properties": {f"{word}_a": {}}}
    assert json.loads(own.body(json.dumps(whole).encode())) == own.value(whole) == whole


@pytest.mark.parametrize("name", ["INDEX", "MODEL", "GREETING"])
def test_what_does_not_go_by_the_name_of_a_secret_stays_one(name: str) -> None:
    for value in ("products-v2-2024-embeddings", "0197f6a2-5c1e-7a3b-9d2e-4f5061728394", "Total amount (EUR) of 2026"):
        own = told(**{name: value}).of("own")
        assert own.value({value: value}) == {value: GONE}


def test_only_its_own_server_loses_it_and_not_where_it_is_public() -> None:
    whole = {HELD: 1}
    redactor = told(DB_PASSWORD=HELD)
    assert redactor.of("own").value(whole) == redactor.listed("own").value(whole) == {GONE: 1}
    for others in (redactor.of("other"), redactor.listed("other"), redactor, redactor.certain, redactor.anywhere):
        assert others.value(whole) == whole
    assert told(("db_password",), DB_PASSWORD=HELD).of("own").value(whole) == whole


def test_it_stays_one_after_an_edit_and_is_forgotten_with_its_server() -> None:
    redactor = told(DB_PASSWORD=HELD)
    for env in ({"DB_PASSWORD": "other words for 2026"}, {"A": HELD}):
        learn_secrets(Config(servers=(Server(id="own", name="own", type="stdio", env=env),)), redactor)
        assert redactor.of("own").value({HELD: 1}) == {GONE: 1}
    redactor.keep(["other"])
    assert redactor.of("own").value({HELD: 1}) == {GONE: 1}, "it may still answer"
    redactor.keep(["other"])
    assert redactor.of("own").value({HELD: 1}) == {HELD: 1}


def test_a_thousand_edits_leave_no_more_than_there_are_secrets() -> None:
    redactor = Redactor()
    for number in range(3 * MOST_GUESSED):
        env = {"DB_PASSWORD": f"the words of edit {number}"}
        learn_secrets(Config(servers=(Server(id="own", name="own", type="stdio", env=env),)), redactor)
    assert len(redactor.of("own")._certain_cores) <= MOST_GUESSED


# What clients are shown.


async def tells(scene: Scene) -> Any:
    return {"content": [], "structuredContent": {HELD: [1], "a": {f"x{HELD}": 2}}, "_meta": {f"of {HELD}": {HELD: 1}}}


async def fails(scene: Scene) -> str:
    raise RpcError(-32000, "no", {"why": {HELD: 1}})


async def logs(scene: Scene) -> str:
    scene.log("error", {HELD: 1})
    return "logged"


async def asks(scene: Scene) -> str:
    method, params = form("One?")
    schema = {"type": "object", "properties": {HELD: {"type": "string"}}}
    one, two = await scene.ask_all((method, params | {"requestedSchema": schema}), form("Two?"))
    return " ".join((one["action"], two["content"]["name"]))


def server(kind: type[Any]) -> Any:
    found = kind(tools={each.__name__: each for each in (tells, fails, logs, asks)})
    found.settings["env"] = {"DB_PASSWORD": HELD}
    return found


@pytest.mark.promise("b.secrets.results")
@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", ["2025-03-26", LATEST, MODERN])
async def test_no_client_is_shown_it_in_what_a_server_says(kind: type[Any], revision: str) -> None:
    async with gateway(one=server(kind)) as rig:
        client = await rig.client(revision)
        meta: Any = {"io.modelcontextprotocol/logLevel": "debug"} if revision == MODERN else {}
        for tool in ("tells", "fails", "logs"):
            reply = await client.call(f"one__{tool}", meta=meta)
            said = json.dumps([reply.message, reply.notes("notifications/message")])
            assert GONE in said and HELD not in said, tool


async def test_keys_of_questions_and_fields_are_without_it_and_each_gets_its_own_answer() -> None:
    asker = server(ModernServer)
    asker.key_of_questions = f"{HELD}{{}}"
    async with gateway(one=asker) as rig:
        client = rig.modern(capabilities={"elicitation": {}})
        pending, asked = client.start("tools/call", name="one__asks"), list[str]()
        while (reply := await pending.reply()).result["resultType"] == "input_required":
            asked.append(json.dumps(reply.message))
            given = {
                name: {"action": "accept", "content": {"name": words_of(ask["params"])}}
                for name, ask in reply.asks.items()
            }
            pending = client.retry_later(pending, reply, given)
        assert reply.text == "accept Two?"
    assert len(asked) == 1 and HELD not in asked[0] and GONE in asked[0]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/one"])
async def test_a_list_is_without_it_and_keeps_all_other_names(path: str) -> None:
    properties = {HELD: {"type": "string"}, "client_credentials": {"type": "string"}}
    listed = tools("go", inputSchema={"type": "object", "properties": properties})
    env = {"DB_PASSWORD": HELD, "AUTH_TYPE": "client_credentials"}
    one = Server(id="one", name="one", type="stdio", command="memory", env=env)
    async with in_memory(one, scripts={"one": Scripted(tools_list=listed)}) as app:
        visitor = Visitor(app, path)
        await visitor.initialize(LATEST)
        (tool,) = [each for each in (await visitor.ask("tools/list")).result["tools"] if "go" in each["name"]]
        assert list(tool["inputSchema"]["properties"]) == [GONE, "client_credentials"]
