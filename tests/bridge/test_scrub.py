"""Secrets of the configuration in what servers say, in front of clients and servers of both eras."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from peers import (
    ACCEPTED,
    LATEST,
    MODERN,
    LegacyServer,
    ModernClient,
    ModernServer,
    RpcError,
    Scene,
    form,
    gateway,
    words_of,
)
from virtualtime import VirtualTimeLoop

from toolgate.config import Config, Guard, Limits
from toolgate.core.notes import Note
from toolgate.core.redaction import GONE, Redactor, Secrets
from toolgate.policy import scrub
from toolgate.policy.truncate import META_KEY

SECRET = "canary-7f3a9c21bb"
TOKEN = "ghp_" + "a1" * 18  # nobody has told us of it
SERVERS = [LegacyServer, ModernServer]
REVISIONS = ["2025-03-26", LATEST, MODERN]


async def tells(scene: Scene) -> Any:
    told = {"type": "text", "text": f"it is {SECRET} and {TOKEN}"}
    return {"content": [told], "structuredContent": {"key": SECRET, SECRET: [1]}, "_meta": {"x": SECRET}}


async def notes(scene: Scene) -> str:
    scene.progress(1, message=f"at {SECRET}")
    scene.log("error", {"said": [SECRET]})
    return "noted"


async def fails(scene: Scene) -> str:
    raise RpcError(-32000, f"no: {SECRET}", {"why": [SECRET]})


async def crashes(scene: Scene) -> str:
    scene.crash(f"died of {SECRET}")
    return "too late"


async def asks(scene: Scene) -> str:
    answer = await scene.ask(form(f"Use {SECRET}?"))
    return f"it was {answer['action']} for {SECRET}"


async def asks_much(scene: Scene) -> str:
    one, two = await scene.ask_all(form("One?"), form("Two?"))
    last = await scene.ask(form("Three?"))
    return ", ".join(each["content"]["name"] for each in (one, two, last))


async def long(scene: Scene) -> str:
    return "".join(f"{number} {SECRET}\n" for number in range(2000))


async def plain(scene: Scene) -> str:
    return "nothing of the kind"


TOOLS = {each.__name__: each for each in (tells, notes, fails, crashes, asks, asks_much, long, plain)}


def server(kind: type[Any], **more: Any) -> Any:
    found = kind(tools=TOOLS, **more)
    found.settings["env"] = {"API_KEY": SECRET}
    return found


def guarded(scrub: Any = "known", **more: Any) -> Config:
    return Config(guard=Guard(scrub=scrub), **more)


@pytest.mark.promise("b.secrets.results")
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_result_is_without_the_secrets_that_are_known(kind: type[Any], revision: str) -> None:
    async with gateway(one=server(kind)) as rig:
        client = await rig.client(revision)
        reply = await client.call("one__tells")
        assert SECRET not in json.dumps(reply.message)
        assert reply.text == f"it is {GONE} and {TOKEN}"


@pytest.mark.parametrize("kind", SERVERS)
async def test_with_patterns_whatever_looks_like_a_token_is_gone_too(kind: type[Any]) -> None:
    async with gateway(config=guarded("patterns"), one=server(kind)) as rig:
        assert (await rig.modern().call("one__tells")).text == f"it is {GONE} and {GONE}"


@pytest.mark.parametrize("kind", SERVERS)
async def test_without_scrubbing_a_result_is_as_its_server_wrote_it(kind: type[Any]) -> None:
    async with gateway(config=guarded("off"), one=server(kind)) as rig:
        assert (await rig.modern().call("one__tells")).text == f"it is {SECRET} and {TOKEN}"


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("scrub", ["off", "known"])
@pytest.mark.parametrize("tool", ["fails", "crashes"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_error_is_never_with_a_secret(kind: type[Any], scrub: str, tool: str, revision: str) -> None:
    async with gateway(config=guarded(scrub), one=server(kind)) as rig:
        client = await rig.client(revision)
        error = (await client.call(f"one__{tool}")).error
        assert SECRET not in json.dumps(error) and GONE in json.dumps(error)
        status = rig.app.gateway.snapshot.upstreams["one"].status()
        asked = await rig.modern().request("resources/read", uri="mcp://servers")
        assert SECRET not in json.dumps(asked.message), status


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_notes_of_a_call_are_without_secrets(kind: type[Any], revision: str) -> None:
    async with gateway(one=server(kind)) as rig:
        client = await rig.client(revision)
        meta: Any = {"progressToken": 1} | ({"io.modelcontextprotocol/logLevel": "debug"} if revision == MODERN else {})
        reply = await client.call("one__notes", meta=meta)
        progress, log = (reply.notes(f"notifications/{kind}") for kind in ("progress", "message"))
        assert [each["message"] for each in progress] == [f"at {GONE}"]
        assert [each["data"] for each in log] == [{"said": [GONE]}]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_questions_are_without_secrets_and_answered_as_ever(kind: type[Any], revision: str) -> None:
    asked: list[str] = []

    def accept(params: Any) -> Any:
        asked.append(words_of(params))
        return ACCEPTED

    async with gateway(one=server(kind)) as rig:
        client = await rig.client(revision, capabilities={"elicitation": {}})
        reply = await client.converse("tools/call", {"elicitation/create": accept}, name="one__asks")
        assert reply.text == f"it was accept for {GONE}"
    assert asked == [f"Use {GONE}?"]


@pytest.mark.parametrize(("mode", "key", "shown"), [
    ("known", f"q{{}}: {SECRET}", "q{}: " + GONE),
    ("known", f"{SECRET}{{}}", GONE),  # they are alike then, and still two
    ("known", f"/a%20b?key={SECRET}&q={{}}", None),
    ("known", f"q{{}} {TOKEN}", f"q{{}} {TOKEN}"),
    ("patterns", f"q{{}} {TOKEN}", "q{} " + GONE),
    ("off", f"q{{}}: {SECRET}", f"q{{}}: {SECRET}"),
])  # fmt: skip
async def test_keys_of_questions_are_without_secrets_and_each_gets_its_own_answer(
    mode: Any, key: str, shown: str | None
) -> None:
    asker = server(ModernServer)
    asker.key_of_questions = key
    async with gateway(config=guarded(mode), one=asker) as rig:
        client = rig.modern(capabilities={"elicitation": {}})
        pending, keys = client.start("tools/call", name="one__asks_much"), list[str]()
        while (reply := await pending.reply()).result["resultType"] == "input_required":
            keys += reply.asks
            assert mode == "off" or SECRET not in json.dumps(reply.message)
            given = {
                name: {"action": "accept", "content": {"name": words_of(ask["params"])}}
                for name, ask in reply.asks.items()
            }
            pending = client.retry_later(pending, reply, given)
        assert reply.text == "One?, Two?, Three?"
    assert len(keys) == 3
    assert shown is None or keys[0] == shown.format(1)


async def test_a_session_is_asked_whatever_the_keys_of_questions_hold() -> None:
    asker = server(ModernServer)
    asker.key_of_questions = f"{SECRET}{{}}"

    def accept(params: Any) -> Any:
        return {"action": "accept", "content": {"name": words_of(params)}}

    async with gateway(one=asker) as rig:
        client = await rig.client(LATEST, capabilities={"elicitation": {}})
        reply = await client.converse("tools/call", {"elicitation/create": accept}, name="one__asks_much")
        assert reply.text == "One?, Two?, Three?"


async def test_pages_that_an_older_server_wants_visited_are_asked_for_without_what_looks_like_a_token() -> None:
    async def wants_visits(scene: Scene) -> str:
        page = {"mode": "url", "message": f"Show {TOKEN}", "url": "https://a.example/", "elicitationId": "e1"}
        raise RpcError(-32042, "Sign in first", {"elicitations": [page]})

    async with gateway(config=guarded("patterns"), one=LegacyServer(tools={"visits": wants_visits})) as rig:
        client = rig.modern(capabilities={"elicitation": {"url": {}}})
        (question,) = (await client.call("one__visits")).result["inputRequests"].values()
        assert words_of(question["params"]) == f"Show {GONE}"


@pytest.mark.parametrize("kind", SERVERS)
async def test_what_is_cut_and_kept_is_without_secrets(kind: type[Any]) -> None:
    async with gateway(config=guarded(limits=Limits(result_limit=2000)), one=server(kind)) as rig:
        client = rig.modern()
        cut = await client.call("one__long")
        kept = cut.result["_meta"][META_KEY]["parts"][0]["uri"]
        read = await client.request("resources/read", uri=f"{kept}?lines=900-1000")
        for reply in (cut, read):
            assert SECRET not in json.dumps(reply.message) and GONE in json.dumps(reply.message)


@pytest.mark.parametrize("kind", SERVERS)
async def test_lists_and_instructions_are_without_secrets(kind: type[Any]) -> None:
    leaky = server(kind, instructions=f"Say {SECRET}")
    leaky.offer("tools", {"name": "t", "description": f"Uses {SECRET}", "inputSchema": {"type": "object"}})
    async with gateway(one=leaky) as rig:
        client = rig.modern()
        for method in ("tools/list", "server/discover"):
            reply = await client.request(method)
            assert SECRET not in json.dumps(reply.message) and GONE in json.dumps(reply.message), method


async def test_a_secret_that_was_replaced_is_still_one() -> None:
    def edited(config: Config) -> Config:
        other = (msgspec.structs.replace(each, env={"API_KEY": "another-one-1234"}) for each in config.servers)
        return msgspec.structs.replace(config, servers=tuple(other))

    async with gateway(one=server(LegacyServer), edited=edited) as rig:
        await rig.app.reload()
        assert (await rig.modern().call("one__tells")).text == f"it is {GONE} and {TOKEN}"


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_result_without_secrets_passes_as_it_is(kind: type[Any]) -> None:
    async with gateway(config=guarded("patterns"), one=server(kind)) as rig:
        assert (await rig.modern().call("one__plain")).text == "nothing of the kind"


@pytest.mark.parametrize("mode", ["known", "patterns"])
async def test_a_large_result_is_scrubbed_beside_the_loop(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "LARGE", 100)
    aside, in_steps = list[bytes](), Secrets.body_in_steps

    def noting(secrets: Secrets, shown: bytes) -> Any:
        if VirtualTimeLoop.is_aside:
            aside.append(shown)
        return in_steps(secrets, shown)

    monkeypatch.setattr(Secrets, "body_in_steps", noting)
    async with gateway(config=Config((), guard=Guard(scrub=mode)), there=server(ModernServer)) as rig:
        result = (await rig.modern().request("tools/call", name="there__tells")).message
        assert SECRET not in json.dumps(result)
        assert (TOKEN in json.dumps(result)) is (mode == "known")
    assert len(aside) == 1 and SECRET.encode() in aside[0]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/one"])
async def test_what_a_server_says_that_it_can_do_is_without_secrets(kind: type[Any], revision: str, path: str) -> None:
    can = {"tools": {}, "experimental": {"x": {"a": SECRET}}, "extensions": {"com.example/x": {"a": SECRET}}}
    async with gateway(one=server(kind, declares=can)) as rig:
        client = rig.modern(path=path) if revision == MODERN else rig.legacy_stranger(revision, path=path)
        asked = client.request("server/discover") if isinstance(client, ModernClient) else client.initialize()
        said = (await asked).result
        assert SECRET not in json.dumps(said)
        assert path == "/mcp" or GONE in json.dumps(said["capabilities"])


def test_the_name_of_a_note_that_mcp_does_not_define_is_without_secrets() -> None:
    known = Redactor([SECRET])
    note = scrub.Scrubber(known.of("one"), "known").note(Note("other", Raw(b"{}"), f"notifications/{SECRET}"))
    assert note.method == GONE
