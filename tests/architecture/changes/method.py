"""What holds of skills as of every list, in conversations between both eras where there is a list of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import official
import peers
import pytest
import virtualtime
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, gateway
from virtualtime import FakeClock

import toolgate
from toolgate import config as configs
from toolgate.auth.access import Rules
from toolgate.catalog.base import ServerList
from toolgate.config import Config, permission_names
from toolgate.config.access import Approvals, Audit, KnownClient, Permissions
from toolgate.config.settings import Log
from toolgate.core import mcp
from toolgate.core.model import Call, Client, Principal
from toolgate.core.redaction import Redactor
from toolgate.frontends.web import inspections, views
from toolgate.policy import tracing
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore
from toolgate.telemetry.access_log import LOGGER, Access
from toolgate.telemetry.recorder import Recorder

REVISIONS = ["2024-11-05", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]
LIST, GET, CHANGED = "skills/list", "skills/get", "notifications/skills/list_changed"


@pytest.fixture(autouse=True)
def peers_know_skills(monkeypatch: pytest.MonkeyPatch) -> None:
    """No official schema has them: what is said of them is held against none."""
    check = official.check

    def checked(message: Any, revision: str, answers: str = "") -> None:
        if "skills/" not in message.get("method", answers):
            check(message, revision, answers)

    monkeypatch.setattr(official, "check", checked)
    monkeypatch.setitem(peers.KIND, GET, "skills")
    monkeypatch.setitem(peers.LIST_OF, "skills", LIST)
    monkeypatch.setitem(peers.FILTERS, "skillsListChanged", CHANGED)
    monkeypatch.setitem(peers.TARGET, GET, "name")


async def text(scene: Scene) -> Any:
    return {"contents": [{"uri": f"file:///{scene.target}", "text": str(scene.arguments)}]}


def skilled(kind: Any, *names: str, **more: Any) -> Any:
    server = kind(announces=True, **more)
    server.scripts["skills"] = dict.fromkeys(names, text)
    server.lists[LIST] = ("skills", [skill(name) for name in names])
    return server


def skill(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"How to {name}", "version": "1", **more}


def client(id: str, **permissions: Any) -> KnownClient:
    return KnownClient(id=id, name=id, servers="all", permissions=Permissions(**permissions))


def sent(server: Any) -> list[str]:
    return [each["params"]["name"] for each in server.requests(GET)]


async def listed(visitor: Any) -> list[str]:
    return [each["name"] for each in (await visitor.request(LIST)).result["skills"]]


def test_it_is_the_copy_that_is_tested() -> None:
    assert "skills" in mcp.KINDS, toolgate.__file__


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_skills_of_all_servers_are_listed_and_had_by_their_names(revision: str, kind: Any) -> None:
    docs, kitchen = skilled(kind, "write"), skilled(kind, "cook", "write")
    docs.lists[LIST][1][:] = [skill("write", version=1, extra=[1.5])]
    async with gateway(docs=docs, kitchen=kitchen) as rig:
        visitor = await rig.client(revision)
        found = (await visitor.request(LIST)).result["skills"]
        assert [each["name"] for each in found] == ["docs__write", "kitchen__cook", "kitchen__write"]
        assert found[0]["extra"] == [1.5] and "version" not in found[0] and found[1]["version"] == "1"
        for name in ("kitchen__cook", "cook"):
            reply = await visitor.request(GET, name=name)
            assert reply.result["contents"] == [{"uri": "kitchen+file:///cook", "text": "{}"}]
        assert sent(kitchen) == ["cook", "cook"] and sent(docs) == []
        if revision == MODERN:
            assert (reply.result["ttlMs"], reply.result["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_skill_that_is_not_there_is_refused_by_its_own_code(revision: str) -> None:
    async with gateway(docs=skilled(ModernServer, "write"), kitchen=skilled(LegacyServer, "write")) as rig:
        visitor = await rig.client(revision)
        nowhere = (await visitor.request(GET, name="sing")).error
        assert (nowhere["code"], nowhere["data"]["code"]) == (-32602, "SKILL_NOT_FOUND")
        assert nowhere["data"]["hint"] == "see skills/list"
        several = (await visitor.request(GET, name="write")).error["data"]
        assert several["candidates"] == ["docs__write", "kitchen__write"]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_who_listens_hears_that_skills_are_others(revision: str, kind: Any) -> None:
    there = skilled(kind, "write")
    async with gateway(there=there) as rig:
        visitor = await rig.client(revision)
        assert await listed(visitor) == ["there__write"]
        ear = await visitor.listen(lists=["skills"])
        there.offer("skills", skill("sing"))
        await rig.clock.advance(1)
        assert ear.changed == ["skills"]
        assert await listed(visitor) == ["there__sing"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_one_server_alone_and_pages(revision: str) -> None:
    there, more = skilled(LegacyServer, "a", "b", "c", page=2), skilled(ModernServer, "d")
    async with gateway(there=there, more=more) as rig:
        visitor = await rig.client(revision, path="/mcp/servers/there")
        assert await listed(visitor) == ["a", "b", "c"]
        assert (await visitor.request(GET, name="a")).result["contents"][0]["uri"] == "file:///a"


CLIENTS = (
    client("open"),
    client("closed", skills={"there__cook": "off", "*__secret*": "off"}),
    client("careful", skills={"there__cook": "ask"}, read_only="off"),
    client("only", everything="off", skills={"there__write": "allow"}),
)


def configured(**more: Any) -> Config:
    return Config(clients=CLIENTS, **more)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_permissions_close_is_neither_listed_nor_had(revision: str, kind: Any) -> None:
    there = skilled(kind, "cook", "write", "secret-sauce")
    async with gateway(config=configured(), there=there) as rig:
        assert await listed(await rig.client(revision, principal="open")) == [
            "there__cook",
            "there__write",
            "there__secret-sauce",
        ]
        for who in ("closed", "only"):
            visitor = await rig.client(revision, principal=who)
            assert await listed(visitor) == ["there__write"]
            for name in ("there__cook", "cook", "COOK"):
                reply = await visitor.request(GET, name=name)
                assert reply.error["data"]["code"] in ("ACCESS_DENIED", "SKILL_NOT_FOUND"), name
            assert (await visitor.request(GET, name="there__write")).result
        assert sent(there) == ["write", "write"]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_person_is_asked_for_a_skill(revision: str, kind: Any) -> None:
    there, questions = skilled(kind, "cook"), list[Any]()

    def decided(params: Any) -> Any:
        questions.append(params["message"])
        return {"action": "accept", "content": {"decision": "once"}}

    async with gateway(config=configured(approvals=Approvals(by=("client",))), there=there) as rig:
        visitor = await rig.client(revision, principal="careful")
        reply = await visitor.converse(GET, {"elicitation/create": decided}, name="there__cook")
        assert reply.result["contents"][0]["uri"] == "there+file:///cook"
        assert len(questions) == 1 and "- Skill: `cook`" in questions[0].replace('"', "`")


async def test_an_operator_is_asked_for_a_skill_and_is_shown_it() -> None:
    there = skilled(LegacyServer, "cook")
    config = configured(approvals=Approvals(by=("operator",), wait=0.0))
    async with gateway(config=config, there=there) as rig:
        visitor = rig.modern("careful")
        refused = (await visitor.request(GET, name="there__cook")).error["data"]
        assert refused["code"] == "APPROVAL_REQUIRED"
        (request,) = rig.app._frontend_deps.deciding.approvals.requests()
        assert (request.place.kind, request.place.target) == ("skills", "cook")


async def test_a_page_says_which_rule_decides() -> None:
    async with gateway(config=configured(), there=skilled(LegacyServer, "cook", "write")) as rig:
        await listed(rig.modern("open"))
        found = await inspections.of_client(rig.app.gateway, "closed")
        verdicts = {name: (each.verdict, each.rule) for name, each in found.verdicts["skills"]["there"].items()}
        assert verdicts["cook"] == ("off", "mcp_permissions.skills: there__cook")
        assert verdicts["write"][0] == "allow"

        class Request:
            name = "closed"

            async def ask(self, *_: Any) -> Any:
                of = {"there": {"cook": {"verdict": "off", "rule": "so"}}}
                return {"id": "closed", "verdicts": {"skills": of}}

        request: Any = Request()
        shown: Any = await views.access_of(request)
        assert shown.values["verdicts"] == {"Skills": [("there", "cook", "off", "so")]}


async def test_skills_are_searched_for() -> None:
    async with gateway(there=skilled(LegacyServer, "cook", "write")) as rig:
        visitor = rig.modern()
        for wanted in ("skills", "all"):
            reply = await visitor.call("search_tools", arguments={"query": "how to cook", "type": wanted})
            (found, *_) = reply.result["structuredContent"]["matches"]
            assert (found["type"], found["name"]) == ("skill", "there__cook")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[Access]]:
    caplog.set_level(logging.INFO, LOGGER)
    found: list[Any] = []
    kept = logging.Handler()
    kept.emit = lambda record: found.append(record.msg)  # type: ignore[method-assign]
    logging.getLogger(LOGGER).addHandler(kept)
    yield found
    logging.getLogger(LOGGER).removeHandler(kept)


async def test_calls_of_skills_are_in_the_audit_and_the_access_log(lines: list[Access]) -> None:
    noted: list[Any] = []

    class Noted(Trail):
        def put(self, entry: Any) -> None:
            noted.append(entry)

    trail = Noted(None, FakeClock(), None, Redactor())
    config = configured(audit=Audit(enabled=True), log=Log(access=True))
    async with gateway(config=config, audit=trail, there=skilled(LegacyServer, "cook")) as rig:
        await rig.modern("open").request(GET, name="there__cook")
        await rig.modern("closed").request(GET, name="there__cook")
    assert [(each.server, each.target, each.outcome) for each in lines] == [
        ("there", "cook", "done"),
        ("there", "cook", "error"),
    ]
    assert len(noted) == 2


class Tracer:
    def __init__(self) -> None:
        self.begun: list[tuple[str, Any]] = []

    def begin(self, name: str, kind: str, attributes: Any, *_: Any) -> Any:
        self.begun.append((name, attributes))
        raise ZeroDivisionError  # so much is enough


def test_a_span_and_who_watches_name_the_skill() -> None:
    recorder, tracer = Recorder(), Tracer()
    recorder.tracer = tracer  # type: ignore[assignment]
    call = Call(GET, "cook", Client(Principal("ann")), server="there")
    with pytest.raises(ZeroDivisionError):
        tracing.ServerSpan(recorder, Redactor()).before(call, False)
    [(name, attributes)] = tracer.begun
    assert name == GET and attributes["example.skill.name"] == "cook"
    assert "skills" in views.KINDS


async def test_what_is_kept_of_skills_is_known_at_the_next_start() -> None:
    store = MemoryStore(FakeClock())
    for names in (("cook",), ()):
        async with gateway(store=store, there=skilled(LegacyServer, *names)) as rig:
            if names:
                assert await listed(rig.modern()) == ["there__cook"]
            known: ServerList | None = rig.app.gateway.snapshot.catalog.known("there", "skills", Client())
            assert known and list(known.items) == ["cook"]


def test_what_permissions_say_of_skills_is_read_and_slips_are_told() -> None:
    text = """
        [mcpServers.there]
        command = "there"
        [[clients]]
        id = "ann"
        key = "a-key-that-is-long-enough"
        [clients.mcp_permissions.skills]
        "there__cook" = "ask"
        "cook" = "off"
        "other__x" = "off"
        "nobody*__x" = "off"
    """
    config = configs.read(text, file="toolgate.toml", environ={}, format="toml")
    assert config.clients[0].permissions.skills["there__cook"] == "ask"
    key = "clients.ann.mcp_permissions.skills"
    strangers = list(permission_names.strangers(config.clients, (), ["there"]))
    assert [(at, said.partition(" ")[0]) for at, said, _ in strangers] == [(key, "`cook`"), (key, "`other__x`")]
    assert [at for at, *_ in permission_names.vain(config.clients, (), ["there"])] == [key]
    assert not list(permission_names.idle(config.clients))


def test_a_method_that_nobody_knows_is_off_where_less_is_said_of_a_skill() -> None:
    assert not Rules(CLIENTS[1]).has_whole("there")
    assert Rules(CLIENTS[0]).has_whole("there")
    assert Rules(CLIENTS[3]).sees("there") and not Rules(CLIENTS[3]).sees("other")


if __name__ == "__main__":
    paths = f"pythonpath={sys.argv[1]} {Path(virtualtime.__file__).parent}"
    sys.exit(pytest.main([__file__, "-x", "-n", "0", "-o", paths], plugins=[virtualtime]))
