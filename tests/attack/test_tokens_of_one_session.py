"""Tokens of one user that show less than others: what was begun with more is neither heard nor answered with them, and
permissions that were taken away hold for streams that go on, and for answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from doors.issuers import AUDIENCE, CONFIG, KEYS, Issuer, bearer, client, issuer
from doors.test_resumption import FORM, Talk, events, said_on
from inmemory import Exchange, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.config import Config
from toolgate.config.access import Permissions
from toolgate.core import jsonrpc
from toolgate.state.settings import Settings

__all__ = ["issuer"]

Json = dict[str, Any]
SUBJECTS = msgspec.structs.replace(
    CONFIG,
    clients=(client("guests", claims={"groups": "guests"}), client("staff", claims={"sub": "dora"})),
)


def enough(issuer: Issuer) -> dict[str, str]:
    return bearer(issuer.token(scope="mcp write"))


def renewed(issuer: Issuer) -> dict[str, str]:
    return bearer(issuer.token(scope="write more mcp", jti="another"))


def fewer(issuer: Issuer) -> dict[str, str]:
    return bearer(issuer.token())


def others(issuer: Issuer) -> dict[str, str]:
    return bearer(issuer.token(scope="mcp write", groups="guests"))


LESS: dict[str, Callable[[Issuer], dict[str, str]]] = {"fewer scopes": fewer, "another client": others}
less = pytest.mark.parametrize("less", LESS.values(), ids=LESS)


class Rig(Talk):
    configs: list[Config]

    async def call(self, id: int = 7) -> Exchange:
        params = {"name": "there__delete", "_meta": {"progressToken": "p"}}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        running = self.visitor.begin("POST", json.dumps(message).encode())
        await settle()
        return running

    async def edit(self, config: Config) -> None:
        self.configs[0] = msgspec.structs.replace(self.visitor.app.gateway.snapshot.config, clients=config.clients)
        await self.visitor.app.reload()


@asynccontextmanager
async def talking(shown: dict[str, str], config: Config = SUBJECTS) -> AsyncGenerator[Rig]:
    script = Scripted(tools_list=tools("delete"), tools_call=...)
    configs = [config]
    async with gateway(config=config, scripts={"there": script}, settings=Settings(lambda: configs[0], {})) as app:
        visitor = Visitor(app, **shown)
        await visitor.initialize(elicitation={})
        visitor.headers["mcp-protocol-version"] = "2025-11-25"
        await visitor.ask("tools/list")
        rig = Rig(visitor, script)
        rig.configs = configs
        yield rig


@less
async def test_a_stream_is_not_resumed_with_less_than_its_call_was_made_with(less: Any, issuer: Issuer) -> None:
    async with talking(enough(issuer)) as talk:
        running = await talk.call()
        await talk.progress(1)
        last = events(running)[0].id
        await running.gone()
        await talk.answer("a secret")
        talk.visitor.headers |= less(issuer)
        refused = await (await talk.listen(last)).response()
        unknown = await (await talk.listen("c99.0")).response()
        assert refused.status == unknown.status == 400
        assert refused.error["message"].replace(last, "c99.0") == unknown.error["message"]
        assert "a secret" not in str(refused.body)
        talk.visitor.headers |= renewed(issuer)
        assert said_on(await talk.listen(last)) == [1, "a secret"]


async def test_a_stream_under_way_is_not_taken_from_who_has_more(issuer: Issuer) -> None:
    async with talking(enough(issuer)) as talk:
        running = await talk.call()
        await talk.progress(1)
        talk.visitor.headers |= fewer(issuer)
        assert (await (await talk.listen(events(running)[0].id)).response()).status == 400
        await talk.answer("all of it")
        assert said_on(running)[-1] == "all of it"


@pytest.mark.parametrize("is_taken", [True, False])
async def test_a_stream_goes_on_only_by_the_permissions_that_it_was_begun_with(is_taken: bool) -> None:
    before = msgspec.structs.replace(CONFIG, clients=(client("ada", key=KEYS["ada"]),))
    off = client("ada", key=KEYS["ada"], permissions=Permissions(tools={"there__delete": "off"}))
    async with talking(bearer(KEYS["ada"]), before) as talk:
        running = await talk.call()
        await talk.progress(1)
        last = events(running)[0].id
        await running.gone()
        await talk.answer("a secret")
        same = (client("ada", key=KEYS["ada"]), client("eve", key=KEYS["bob"], servers="none"))
        await talk.edit(msgspec.structs.replace(CONFIG, clients=(off,) if is_taken else same))
        resumed = await talk.listen(last)
        if is_taken:
            assert (await resumed.response()).status == 400
        else:
            assert said_on(resumed) == [1, "a secret"]


@less
async def test_a_sessions_own_stream_tells_nothing_that_is_for_who_has_more(less: Any, issuer: Issuer) -> None:
    async with talking(less(issuer)) as talk:
        low = await talk.listen()
        talk.visitor.headers |= enough(issuer)
        await talk.visitor.ask("ping")
        await talk.told("notifications/tasks/status")
        assert "tasks/status" not in str(low.so_far.body)
        talk.visitor.headers |= less(issuer)
        again = await talk.listen()
        assert "tasks/status" not in str(again.so_far.body), "nor is it handed over later"
        talk.visitor.headers |= enough(issuer)
        high = await talk.listen()
        assert "tasks/status" in str(high.so_far.body)
        own = events(high)[0].id
        talk.visitor.headers |= less(issuer)
        anew = await talk.listen(own)
        assert "tasks/status" not in str(anew.so_far.body), "it begins anew"


async def test_changed_lists_are_told_on_the_stream_of_a_user_who_steps_up(issuer: Issuer) -> None:
    """A client does not open its stream again when it has got another token."""
    async with talking(fewer(issuer)) as talk:
        stream = await talk.listen()
        talk.visitor.headers |= enough(issuer)
        await talk.visitor.ask("ping")
        talk.script.change(tools("delete", "more"))
        await asyncio.sleep(1)
        assert "notifications/tools/list_changed" in str(stream.so_far.body)


async def asked(talk: Rig) -> tuple[Exchange, int]:
    running = await talk.call()
    params = {"_meta": {"progressToken": "q"}, **FORM}
    talk.script.say(jsonrpc.request(55, "elicitation/create", jsonrpc.encode(params)))
    await settle()
    return running, json.loads(events(running)[-1].data)["id"]


def answers(talk: Rig) -> list[Json]:
    return [each for each in talk.script.requests if each.get("id") == 55]


@less
@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_question_is_not_answered_with_less_than_its_call_was_made_with(
    is_broken: bool, less: Any, issuer: Issuer
) -> None:
    async with talking(enough(issuer)) as talk:
        _, id = await asked(talk)
        wrong: Any = {"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"name": "low"}}}
        if is_broken:
            wrong = b'{"jsonrpc":"2.0","id":%d,"result":{"a":1,"a":2' % id
        talk.visitor.headers |= less(issuer)
        await talk.visitor.post(wrong)
        await settle()
        assert not answers(talk)
        talk.visitor.headers |= renewed(issuer)
        right = {"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"name": "high"}}}
        assert (await talk.visitor.post(right)).status == 202
        await settle()
        assert [each["result"]["content"] for each in answers(talk)] == [{"name": "high"}]


@pytest.mark.parametrize("is_taken", [True, False])
async def test_an_answer_is_judged_by_the_permissions_of_now(is_taken: bool) -> None:
    before = msgspec.structs.replace(CONFIG, clients=(client("ada", key=KEYS["ada"]),))
    off = Permissions(tools={"there__delete" if is_taken else "there__other": "off"})
    async with talking(bearer(KEYS["ada"]), before) as talk:
        _, id = await asked(talk)
        await talk.edit(msgspec.structs.replace(CONFIG, clients=(client("ada", key=KEYS["ada"], permissions=off),)))
        right = {"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"name": "secret"}}}
        assert (await talk.visitor.post(right)).status == 202
        await settle()
        (answer,) = answers(talk)
        assert ("secret" in str(answer)) is not is_taken and ("error" in answer) is is_taken


@less
async def test_what_is_posted_with_more_is_not_answered_on_the_stream_of_who_has_less(
    less: Any, issuer: Issuer
) -> None:
    """The transport of 2024-11-05: answers go to whoever has opened the stream."""
    path = "/mcp/sse"
    claims = {fewer: {"scope": "mcp"}, others: {"scope": "mcp write", "groups": "guests"}}[less]
    low = bearer(issuer.token(aud=AUDIENCE + path, **claims))
    high = bearer(issuer.token(aud=AUDIENCE + path, scope="mcp write"))
    script = Scripted(tools_list=tools("delete"), tools_call=said("a secret"))
    async with gateway(config=SUBJECTS, scripts={"there": script}) as app:
        reader = Visitor(app, path, **low)
        stream = reader.begin("GET", headers={"accept": "text/event-stream"})
        await settle()
        query = events(stream)[0].data.decode().partition("?")[2].encode()
        message = Visitor(app).request("tools/call", name="there__delete")
        posted = Visitor(app, path, **high).begin("POST", json.dumps(message).encode(), query_string=query)
        assert (await posted.response()).status == 404
        await settle()
        assert "a secret" not in str(stream.so_far.body)


async def test_a_message_that_is_slow_to_come_has_the_rights_of_its_own_token(issuer: Issuer) -> None:
    path = "/mcp/sse"
    low, high = (bearer(issuer.token(aud=AUDIENCE + path, scope=scope)) for scope in ("mcp", "mcp write"))
    script = Scripted(tools_list=tools("delete"), tools_call=said("a secret"))
    async with gateway(config=SUBJECTS, scripts={"there": script}) as app:
        stream = Visitor(app, path, **high).begin("GET", headers={"accept": "text/event-stream"})
        await settle()
        query = events(stream)[0].data.decode().partition("?")[2].encode()
        message = json.dumps(Visitor(app).request("tools/call", name="there__delete")).encode()
        slow = Visitor(app, path, **low).begin("POST", message[:10], None, query_string=query)
        await settle()
        ping = json.dumps(Visitor(app).request("ping")).encode()
        await Visitor(app, path, **high).begin("POST", ping, query_string=query).response()
        slow.more(message[10:])
        assert (await slow.response()).status == 202
        await settle()
        assert "INSUFFICIENT_SCOPE" in str(stream.so_far.body) and "a secret" not in str(stream.so_far.body)


async def test_tasks_of_a_tool_that_needs_a_step_up_are_not_listed_without_it(issuer: Issuer) -> None:
    task = {"taskId": "own", "status": "working", "createdAt": "2026-01-01T00:00:00Z"}
    task |= {"lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None}
    there = Scripted(tools_list=tools("delete", execution={"taskSupport": "optional"}), tools_call={"task": task})
    requests: Json = {"tools": {"call": {}}}
    there.answers["initialize"]["capabilities"]["tasks"] = {"list": {}, "cancel": {}, "requests": requests}
    there.answers |= {"tasks/get": task}
    async with gateway(config=SUBJECTS, scripts={"there": there}) as app:
        visitor = Visitor(app, **enough(issuer))
        await visitor.initialize()
        await visitor.ask("tools/list")
        await visitor.ask("tools/call", name="there__delete", task={"ttl": 60000})
        for shown, count in ((enough, 1), (fewer, 0), (renewed, 1)):
            visitor.headers |= shown(issuer)
            assert len((await visitor.ask("tasks/list")).result["tasks"]) == count


async def test_a_request_has_the_rights_of_its_own_token_whoever_posts_in_the_same_moment(issuer: Issuer) -> None:
    """Over the transport of 2024-11-05 requests are answered in tasks, which begin when all of them were heard."""
    path = "/mcp/sse"
    low, high = (bearer(issuer.token(aud=AUDIENCE + path, scope=scope)) for scope in ("mcp", "mcp write"))
    script = Scripted(tools_list=tools("delete"), tools_call=said("a secret"))
    async with gateway(config=SUBJECTS, scripts={"there": script}) as app:
        stream = Visitor(app, path, **high).begin("GET", headers={"accept": "text/event-stream"})
        await settle()
        query = events(stream)[0].data.decode().partition("?")[2].encode()
        await Visitor(app, path, **low).begin("POST", b"[]", query_string=query).response()  # both tokens are known now
        message = json.dumps(Visitor(app).request("tools/call", name="there__delete")).encode()
        ping = json.dumps(Visitor(app).request("ping")).encode()
        posted = [
            Visitor(app, path, **each).begin("POST", data, query_string=query)
            for each, data in ((low, message), (high, ping))
        ]
        assert [(await each.response()).status for each in posted] == [202, 202]
        await settle()
        assert "INSUFFICIENT_SCOPE" in str(stream.so_far.body) and "a secret" not in str(stream.so_far.body)
