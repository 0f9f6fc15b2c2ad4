"""What is asked, of whom, in which shape: several questions, several rounds, and clients that cannot be asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import (
    ACCEPTED,
    DECLINED,
    EVERYTHING,
    LATEST,
    ROOTS,
    LegacyServer,
    ModernServer,
    RpcError,
    Scene,
    form,
    gateway,
    link,
    named,
    rooted,
    sampled,
    sampling,
)
from virtualtime import settle

from toolgate.config import Root
from toolgate.core.fault import Fault
from toolgate.eras import legacy


async def hello(scene: Scene) -> str:
    answer = await scene.ask(form())
    return f"hello {answer['content']['name']}" if answer["action"] == "accept" else answer["action"]


async def visit(scene: Scene) -> str:
    return (await scene.ask(link()))["action"]


async def model(scene: Scene) -> str:
    try:
        return (await scene.ask(sampling()))["content"]["text"]
    except RpcError as error:
        return f"error: {error.message}"


async def both(scene: Scene) -> str:
    name, said = await scene.ask_all(form(), sampling())
    return f"{name['content']['name']} {said['content']['text']}"


async def two_rounds(scene: Scene) -> str:
    first = await scene.ask(form("First?"))
    second = await scene.ask(form("Second?"))
    return f"{first['content']['name']} {second['content']['name']}"


# Shapes.


async def test_a_question_goes_to_a_modern_client_as_the_legacy_server_put_it() -> None:
    async with gateway(old=LegacyServer({"hello": hello})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__hello")
        reply = await call.reply()
        method, params = form()
        assert list(reply.asks.values()) == [{"method": method, "params": params}]
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).text == "hello Ann"


async def test_a_question_goes_to_a_legacy_client_as_the_modern_server_put_it() -> None:
    async with gateway(new=ModernServer({"hello": hello})) as rig:
        client = await rig.legacy("2025-06-18", answers={"elicitation/create": named("Ann")})
        assert (await client.call("new__hello")).text == "hello Ann"
        assert [(question["method"], question["params"]) for question in client.asked] == [form()]


@pytest.mark.promise("spec.legacy.elicitation.form")
async def test_the_mode_form_is_said_to_those_who_know_it() -> None:
    async def hello_in_a_form(scene: Scene) -> str:
        return (await scene.ask(form(mode="form")))["content"]["name"]

    for server in (LegacyServer({"hello": hello_in_a_form}), ModernServer({"hello": hello_in_a_form})):
        async with gateway(there=server) as rig:
            for revision, knows_modes in (("2025-06-18", False), ("2025-11-25", True)):
                client = await rig.legacy(revision, answers={"elicitation/create": named("Ann")})
                assert (await client.call("there__hello")).text == "Ann"
                assert ("mode" in client.asked[0]["params"]) == knows_modes


@pytest.mark.promise("spec.legacy.elicitation.url")
async def test_a_url_to_visit_has_an_id_for_a_legacy_client_even_if_its_server_gave_none() -> None:
    async with gateway(new=ModernServer({"visit": visit})) as rig:
        client = await rig.legacy(LATEST, answers={"elicitation/create": ACCEPTED})
        assert (await client.call("new__visit")).text == "accept"
        assert (await client.call("new__visit")).text == "accept"
        first, second = (question["params"] for question in client.asked)
        assert first["url"] == "https://example.com/sign-in"
        assert first["elicitationId"] != second["elicitationId"]


@pytest.mark.promise("spec.legacy.elicitation.url")
async def test_a_url_to_visit_keeps_the_id_that_its_legacy_server_gave_it() -> None:
    async with gateway(old=LegacyServer({"visit": visit})) as rig:
        client = await rig.legacy(LATEST, answers={"elicitation/create": ACCEPTED})
        assert (await client.call("old__visit")).text == "accept"
        assert client.asked[0]["params"]["elicitationId"] == "elicitation-1"


async def test_a_url_to_visit_has_no_id_for_a_modern_client() -> None:
    async with gateway(old=LegacyServer({"visit": visit})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__visit")
        reply = await call.reply()
        assert reply.asks[reply.key]["params"] == link()[1]
        assert (await client.retry(call, reply, {reply.key: ACCEPTED})).text == "accept"


@pytest.mark.promise("spec.2026.elicitation.actions")
@pytest.mark.parametrize("answer", [DECLINED, {"action": "cancel"}])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_a_refusal_reaches_the_server(answer: Any, server: Any, revision: str) -> None:
    async with gateway(there=server({"hello": hello})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": answer}, name="there__hello")
        assert reply.text == answer["action"]


async def test_an_error_of_a_legacy_client_reaches_a_legacy_server_as_it_is() -> None:
    async def told(scene: Scene) -> str:
        try:
            return str(await scene.ask(sampling()))
        except RpcError as error:
            return f"{error.code} {error.message} {error.data}"

    def refuse(_params: Any) -> None:
        raise RpcError(-1, "User rejected sampling request", {"why": "no"})

    async with gateway(old=LegacyServer({"told": told})) as rig:
        client = await rig.legacy(answers={"sampling/createMessage": refuse})
        assert (await client.call("old__told")).text == "-1 User rejected sampling request {'why': 'no'}"


async def test_an_error_of_a_legacy_client_ends_the_call_of_a_modern_server_which_has_no_word_for_it() -> None:
    def refuse(_params: Any) -> None:
        raise RpcError(-1, "User rejected sampling request")

    new = ModernServer({"model": model})
    async with gateway(new=new) as rig:
        client = await rig.legacy(answers={"sampling/createMessage": refuse})
        error = (await client.call("new__model")).error
        assert error["code"] == -32603
        assert "User rejected sampling request" in error["message"]
        assert len(new.calls) == 1


# Several at once.


async def test_two_questions_at_once_are_one_round_for_a_modern_client() -> None:
    old = LegacyServer({"both": both})
    async with gateway(old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__both")
        reply = await call.reply()
        keys = {ask["method"]: key for key, ask in reply.asks.items()}
        assert keys.keys() == {"elicitation/create", "sampling/createMessage"}
        answers = {keys["elicitation/create"]: named("Ann"), keys["sampling/createMessage"]: sampled("hi")}
        assert (await client.retry(call, reply, answers)).text == "Ann hi"
        assert len(old.calls) == 1


async def test_a_question_that_follows_within_the_window_is_merged_too() -> None:
    async def one_after_the_other(scene: Scene) -> str:
        later = asyncio.get_running_loop().create_task(asyncio.sleep(0.03))
        first = asyncio.ensure_future(scene.ask(form("First?")))
        await later
        second = await scene.ask(form("Second?"))
        return f"{(await first)['content']['name']} {second['content']['name']}"

    async with gateway(old=LegacyServer({"both": one_after_the_other})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__both")
        reply = await call.reply()
        names = {key: named(ask["params"]["message"]) for key, ask in reply.asks.items()}
        assert len(names) == 2
        assert (await client.retry(call, reply, names)).text == "First? Second?"


async def test_a_question_after_the_window_is_asked_in_the_next_round() -> None:
    async def one_after_the_other(scene: Scene) -> str:
        first = asyncio.ensure_future(scene.ask(form("First?")))
        await asyncio.sleep(0.2)
        second = await scene.ask(form("Second?"))
        return f"{(await first)['content']['name']} {second['content']['name']}"

    async with gateway(old=LegacyServer({"both": one_after_the_other})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__both")
        first = await call.reply()
        assert len(first.asks) == 1
        await rig.clock.advance(1)
        second_call = client.retry_later(call, first, {first.key: named("A")})
        second = await second_call.reply()
        assert [ask["params"]["message"] for ask in second.asks.values()] == ["Second?"]
        assert (await client.retry(second_call, second, {second.key: named("B")})).text == "A B"


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_two_questions_at_once_are_with_a_legacy_client_at_the_same_time(server: Any) -> None:
    async with gateway(there=server({"both": both})) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="there__both")
        second, first = await client.question(2), await client.question(1)
        assert first["id"] != second["id"]
        by_method = {question["method"]: question for question in (first, second)}
        client.answer(by_method["sampling/createMessage"], sampled("hi"))
        await settle()
        assert not call.is_answered
        client.answer(by_method["elicitation/create"], named("Ann"))
        assert (await call.reply()).text == "Ann hi"


@pytest.mark.promise("b.rulings.14-stream")
async def test_questions_come_on_the_stream_of_the_call_that_they_belong_to() -> None:
    async with gateway(new=ModernServer({"hello": hello})) as rig:
        client = await rig.legacy()
        listening = client.open_stream()
        calls = [client.start("tools/call", name="new__hello") for _ in "ab"]
        await client.question(2)
        for call, name in zip(calls, ("A", "B"), strict=True):
            (question,) = call.messages
            client.answer(question, named(name))
        assert [(await call.reply()).text for call in calls] == ["hello A", "hello B"]
        assert listening == []


# Several rounds.


@pytest.mark.promise("spec.2026.mrtr.rounds")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_the_state_is_another_one_in_each_round(server: Any) -> None:
    there = server({"two": two_rounds})
    async with gateway(there=there) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__two", arguments={"a": 1})
        first = await call.reply()
        second_call = client.retry_later(call, first, {first.key: named("A")})
        second = await second_call.reply()
        assert second.state != first.state
        assert (await client.retry(second_call, second, {second.key: named("B")})).text == "A B"


async def test_a_legacy_client_is_led_through_ten_rounds_of_a_modern_server_and_no_more() -> None:
    async def many(scene: Scene) -> str:
        for number in range(scene.arguments["rounds"]):
            await scene.ask(form(f"Number {number}?"))
        return "at last"

    new = ModernServer({"many": many})
    async with gateway(new=new) as rig:
        client = await rig.legacy(answers={"elicitation/create": named("Ann")})
        assert (await client.call("new__many", arguments={"rounds": 10})).text == "at last"
        error = (await client.call("new__many", arguments={"rounds": 11})).error
        assert error["code"] == -32603
        assert len(new.calls) == 11 + 11


async def test_a_legacy_server_may_ask_a_legacy_client_as_often_as_it_likes() -> None:
    async def many(scene: Scene) -> str:
        for number in range(50):
            await scene.ask(form(f"Number {number}?"))
        return "at last"

    async with gateway(old=LegacyServer({"many": many})) as rig:
        client = await rig.legacy(answers={"elicitation/create": named("Ann")})
        assert (await client.call("old__many")).text == "at last"


async def test_a_modern_server_that_wants_only_its_state_back_gets_it_without_any_client() -> None:
    async def in_two_goes(scene: Scene) -> str:
        scene.back()  # type: ignore[attr-defined]
        return "done"

    new = ModernServer({"slow": in_two_goes})
    async with gateway(new=new) as rig:
        client = await rig.legacy()
        assert (await client.call("new__slow")).text == "done"
        assert client.asked == []
        second = new.calls[1]
        assert second["params"]["requestState"] == new.states[0]
        assert "inputResponses" not in second["params"]


@pytest.mark.promise("spec.2026.mrtr.something")
async def test_a_modern_client_itself_brings_a_bare_state_back() -> None:
    async def in_two_goes(scene: Scene) -> str:
        scene.back()  # type: ignore[attr-defined]
        return "done"

    async with gateway(new=ModernServer({"slow": in_two_goes})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="new__slow")
        reply = await call.reply()
        assert reply.asks == {}
        assert (await client.retry(call, reply, None)).text == "done"


# What a modern server sees of a retry.


@pytest.mark.promise("spec.2026.mrtr.echo")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_a_modern_server_gets_its_own_state_back_byte_for_byte_under_a_new_id(revision: str) -> None:
    new = ModernServer({"hello": hello})
    async with gateway(new=new) as rig:
        client = await rig.client(revision)
        arguments = {"deep": [1, 2.50, None], "text": "ü"}
        reply = await client.converse(
            "tools/call", {"elicitation/create": named("Ann")}, name="new__hello", arguments=arguments
        )
        assert reply.text == "hello Ann"
        first, retry = new.calls
        assert retry["params"]["requestState"] == new.states[0]
        assert retry["params"]["inputResponses"] == {"q1": named("Ann")}
        assert retry["params"]["arguments"] == first["params"]["arguments"] == arguments
        assert retry["id"] != first["id"]


@pytest.mark.promise("spec.2026.mrtr.echo")
async def test_a_modern_client_never_sees_the_state_of_a_modern_server() -> None:
    new = ModernServer({"hello": hello})
    async with gateway(new=new) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="new__hello")
        reply = await call.reply()
        assert new.states[0] not in reply.raw.decode()
        await client.retry(call, reply, {reply.key: named("Ann")})


# Answers that are missing, or too many.


@pytest.mark.promise("spec.2026.mrtr.missing")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("forgotten", ["one", "all", "the member itself"])
async def test_a_missing_answer_is_asked_for_again(server: Any, forgotten: str) -> None:
    there = server({"both": both})
    async with gateway(there=there) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__both")
        first = await call.reply()
        keys = {ask["method"]: key for key, ask in first.asks.items()}
        answers = {keys["elicitation/create"]: named("Ann"), keys["sampling/createMessage"]: sampled("hi")}
        given: dict[str, dict[str, Any] | None] = {
            "one": {keys["elicitation/create"]: answers[keys["elicitation/create"]]},
            "all": {},
            "the member itself": None,
        }
        second_call = client.retry_later(call, first, given[forgotten])
        second = await second_call.reply()
        missing = answers.keys() - (given[forgotten] or {}).keys()
        assert second.asks.keys() == missing
        assert second.state != first.state
        rest = {key: answers[key] for key in missing}
        assert (await client.retry(second_call, second, rest)).text == "Ann hi"


@pytest.mark.promise("spec.2026.mrtr.extra")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_an_answer_that_nobody_asked_for_is_ignored(server: Any) -> None:
    async with gateway(there=server({"hello": hello})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__hello")
        reply = await call.reply()
        answers = {"nobody-asked": named("Eve"), reply.key: named("Ann"), "ask-99": sampled("hm")}
        assert (await client.retry(call, reply, answers)).text == "hello Ann"


async def test_a_response_to_no_question_of_this_session_counts_for_nothing() -> None:
    async with gateway(new=ModernServer({"hello": hello})) as rig:
        ann, eve = await rig.legacy(principal="ann"), await rig.legacy(principal="eve")
        call = ann.start("tools/call", name="new__hello")
        question = await ann.question()
        eve.answer(question, named("Eve"))
        ann.answer({"id": 99}, named("Nobody"))
        ann.answer({"id": f"q{question['id']}"}, named("Text"))
        await settle()
        assert not call.is_answered
        ann.answer(question, named("Ann"))
        ann.answer(question, named("Late"))
        assert (await call.reply()).text == "hello Ann"


# Clients that cannot be asked.


@pytest.mark.promise("spec.2026.mrtr.declared", "spec.legacy.elicitation.decline")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_an_elicitation_is_refused_for_a_client_without_the_capability_by_its_name(revision: str) -> None:
    """Nobody has declined: that is for a user to say."""
    old = LegacyServer({"hello": hello, "visit": visit})
    async with gateway(old=old) as rig:
        client = await rig.client(revision, capabilities={"sampling": {}})
        for tool, mode in (("hello", "form"), ("visit", "url")):
            assert f"did not declare the capability elicitation.{mode}" in (await client.call(tool)).error["message"]
            told = old.answers[-1]["error"]
            assert told["code"] == -32601 and told["data"] == {"requiredCapabilities": {"elicitation": {mode: {}}}}


@pytest.mark.promise("spec.2026.mrtr.declared", "spec.legacy.sampling")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_sampling_is_refused_with_an_error_for_a_client_without_the_capability(revision: str) -> None:
    async with gateway(old=LegacyServer({"model": model})) as rig:
        client = await rig.client(revision, capabilities={"elicitation": {}})
        reply = await client.call("old__model")
        assert reply.text.startswith("error: ") and "ampling" in reply.text


@pytest.mark.promise("spec.2026.mrtr.declared")
@pytest.mark.parametrize(
    ("declared", "answers"),
    [
        ({"elicitation": {}}, {"hello": "hello Ann", "visit": ""}),
        ({"elicitation": {"form": {}}}, {"hello": "hello Ann", "visit": ""}),
        ({"elicitation": {"url": {}}}, {"hello": "", "visit": "accept"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"hello": "hello Ann", "visit": "accept"}),
    ],
)
@pytest.mark.parametrize("revision", [LATEST, "2026-07-28"])
async def test_only_the_declared_modes_of_elicitation_are_used(
    revision: str, declared: Any, answers: dict[str, str]
) -> None:
    def consent(params: Any) -> Any:
        return ACCEPTED if params.get("mode") == "url" else named("Ann")

    async with gateway(old=LegacyServer({"hello": hello, "visit": visit})) as rig:
        client = await rig.client(revision, capabilities=declared)
        for tool, said in answers.items():
            reply = await client.converse("tools/call", {"elicitation/create": consent}, name=f"old__{tool}")
            assert "did not declare" in reply.error["message"] if not said else reply.text == said


@pytest.mark.promise("spec.2026.mrtr.declared")
@pytest.mark.parametrize("revision", [LATEST, "2026-07-28"])
async def test_sampling_with_tools_needs_a_client_that_declared_them(revision: str) -> None:
    async def with_tools(scene: Scene) -> str:
        tool = {"name": "look", "inputSchema": {"type": "object"}}
        try:
            return (await scene.ask(sampling(tools=[tool])))["content"]["text"]
        except RpcError as error:
            return f"error: {error.message}"

    async with gateway(old=LegacyServer({"with-tools": with_tools})) as rig:
        for declared, said in (({"sampling": {}}, "error: "), ({"sampling": {"tools": {}}}, "hi")):
            client = await rig.client(revision, capabilities=declared)
            reply = await client.converse(
                "tools/call", {"sampling/createMessage": sampled("hi")}, name="old__with-tools"
            )
            assert reply.text.startswith(said)


@pytest.mark.promise("spec.2026.mrtr.declared")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
@pytest.mark.parametrize(
    "capabilities",
    [{}, {"elicitation": {}}, {"sampling": {}, "roots": {}}, EVERYTHING],
    ids=lambda each: ",".join(each),
)
async def test_a_modern_server_is_told_each_callers_own_capabilities(revision: str, capabilities: Any) -> None:
    async def plain(scene: Scene) -> str:
        return ",".join(sorted(scene.meta["io.modelcontextprotocol/clientCapabilities"]))

    async with gateway(new=ModernServer({"plain": plain})) as rig:
        client = await rig.client(revision, capabilities=capabilities)
        assert (await client.call("new__plain")).text == ",".join(sorted(capabilities))


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_a_modern_server_that_asks_for_what_was_not_declared_fails_its_call(revision: str) -> None:
    async with gateway(new=ModernServer({"hello": hello})) as rig:
        client = await rig.client(revision, capabilities={"sampling": {}})
        error = (await client.call("new__hello")).error
        assert error["code"] == -32603
        assert "elicitation/create" in error["message"]


@pytest.mark.promise("b.rulings.14-stream")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize(
    ("tool", "capability"), [("hello", "elicitation"), ("model", "sampling"), ("both", "elicitation")]
)
async def test_a_legacy_client_that_accepts_only_json_gets_an_error_that_names_the_capability(
    server: Any, tool: str, capability: str
) -> None:
    there = server({"hello": hello, "model": model, "both": both})
    async with gateway(there=there) as rig:
        client = await rig.legacy(accept="application/json")
        error = (await client.call(f"there__{tool}")).error
        assert error["code"] == -32603
        assert capability in error["message"]
        assert error["data"]["requiredCapabilities"] == {capability: {}}
        assert client.asked == []
        if server is LegacyServer:
            assert there.cancelled == [there.calls[0]["id"]]


async def test_a_modern_client_that_accepts_only_json_can_be_asked_all_the_same() -> None:
    async with gateway(old=LegacyServer({"hello": hello})) as rig:
        client = rig.modern(accept="application/json")
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, name="old__hello")
        assert reply.text == "hello Ann"


@pytest.mark.promise("spec.legacy.cancel.question")
async def test_a_question_that_the_server_takes_back_is_taken_back_from_its_client() -> None:
    async def changes_its_mind(scene: Scene) -> str:
        id, _answer = scene.connection.put(form())  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        scene.connection.withdraw(id)  # type: ignore[attr-defined]
        return "never mind"

    async with gateway(old=LegacyServer({"hm": changes_its_mind})) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="old__hm")
        question = await client.question()
        assert (await call.reply()).text == "never mind"
        assert client.withdrawn == [question["id"]]

        modern = rig.modern()
        call = modern.start("tools/call", name="old__hm")
        reply = await call.reply()
        await rig.clock.advance(1)
        assert (await modern.retry(call, reply, {reply.key: named("Ann")})).text == "never mind"


@pytest.mark.promise("spec.legacy.cancel.question")
async def test_a_question_is_taken_back_at_once_though_its_call_goes_on() -> None:
    going_on = asyncio.Event()

    async def changes_its_mind(scene: Scene) -> str:
        id, _answer = scene.connection.put(form())  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        scene.connection.withdraw(id)  # type: ignore[attr-defined]
        await going_on.wait()
        return (await scene.ask(form("And now?")))["action"]

    async with gateway(old=LegacyServer({"hm": changes_its_mind})) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="old__hm")
        question = await client.question()
        await rig.clock.advance(1)
        assert client.withdrawn == [question["id"]]
        going_on.set()
        client.answer(await client.question(2), DECLINED)
        assert (await call.reply()).text == "decline"
        assert client.withdrawn == [question["id"]]


# Roots.


async def list_roots(scene: Scene) -> str:
    return " ".join(root["uri"] for root in (await scene.ask(ROOTS))["roots"]) or "none"


@pytest.mark.promise("spec.legacy.roots")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_a_server_of_ones_own_session_gets_ones_own_roots(revision: str) -> None:
    old = LegacyServer({"roots": list_roots}, scope="session")
    async with gateway(old=old) as rig:
        ann = await rig.client(revision, principal="ann")
        bob = await rig.client(revision, principal="bob")
        for client, uri in ((ann, "file:///ann"), (bob, "file:///bob"), (ann, "file:///ann/new")):
            reply = await client.converse("tools/call", {"roots/list": rooted(uri)}, name="old__roots")
            assert reply.text == uri
        assert len(old.connections) == 2
        assert all("roots" in connection.client_capabilities for connection in old.connections)


@pytest.mark.promise("spec.legacy.roots")
@pytest.mark.parametrize("scope", ["shared", "principal"])
async def test_a_server_of_several_clients_gets_the_roots_of_the_configuration(scope: str) -> None:
    old = LegacyServer({"roots": list_roots}, roots=(Root("file:///srv", "shared"),), scope=scope)
    bare = LegacyServer({"roots": list_roots}, scope=scope)
    async with gateway(old=old, bare=bare) as rig:
        for revision in ("2025-06-18", "2026-07-28"):
            client = await rig.client(revision)
            assert (await client.call("old__roots")).text == "file:///srv"
            assert (await client.call("bare__roots")).text == "none"
        assert "roots" in old.connections[0].client_capabilities
        assert "roots" not in bare.connections[0].client_capabilities


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_roots_that_a_server_asks_for_as_soon_as_it_is_open_are_asked_with_the_first_call(revision: str) -> None:
    known: list[str] = []

    async def at_once(connection: Any) -> None:
        known.extend(root["uri"] for root in (await connection.ask(ROOTS))["roots"])

    async def what_it_knows(scene: Scene) -> str:
        while not known:
            await asyncio.sleep(0.01)
        return known[0]

    old = LegacyServer({"roots": what_it_knows}, on_initialized=at_once, scope="session")
    async with gateway(old=old) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"roots/list": rooted("file:///ann")}, name="old__roots")
        assert reply.text == "file:///ann"


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
async def test_a_question_that_is_still_open_after_a_quick_call_is_asked_again_with_the_next(revision: str) -> None:
    """It cannot have been that call's own, since it ended without the answer."""
    known: list[str] = []

    async def at_once(connection: Any) -> None:
        known.append((await connection.ask(form()))["action"])

    async def quick(scene: Scene) -> str:
        return "quick"

    async def what_it_knows(scene: Scene) -> str:
        while not known:
            await asyncio.sleep(0.01)
        return known[0]

    old = LegacyServer({"quick": quick, "known": what_it_knows}, on_initialized=at_once, scope="session")
    async with gateway(old=old) as rig:
        client = await rig.client(revision)
        assert (await client.call("old__quick")).text == "quick"
        assert old.answers == []
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, name="old__known")
        assert reply.text == "accept"


async def test_a_question_with_an_id_for_its_page_that_is_none_is_answered_all_the_same() -> None:
    async def ask(scene: Scene) -> str:
        return (await scene.ask(form(elicitationId=7)))["action"]

    async with gateway(there=LegacyServer({"ask": ask})) as rig:
        reply = await rig.modern().converse("tools/call", {"elicitation/create": named("Ann")}, name="ask")
        assert reply.text == "accept"


@pytest.mark.parametrize("items", [{"items": {"type": "string"}}, {}])
async def test_a_form_with_a_list_of_any_texts_is_put_to_older_clients_as_a_text(items: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"names": {"type": "array", **items}}}

    async def asks_for_names(scene: Scene) -> str:
        answer = await scene.ask(("elicitation/create", {"message": "who?", "requestedSchema": schema}))
        return str(answer["content"]["names"])

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        assert params["requestedSchema"]["properties"]["names"]["type"] == "string"
        return {"action": "accept", "content": {"names": "Ann"}}

    async with gateway(old=LegacyServer({"ask": asks_for_names})) as rig:
        client = await rig.legacy("2025-06-18", answers={"elicitation/create": answer})
        assert (await client.call("old__ask")).text == "['Ann']"


async def test_a_question_that_cannot_be_written_for_its_client_is_answered_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_any: Any) -> Any:
        raise Fault("UPSTREAM_ERROR", "cannot be written")

    async with gateway(old=LegacyServer({"hello": hello})) as rig:
        client = await rig.legacy(LATEST, answers={"elicitation/create": named("Ann")})
        monkeypatch.setattr(legacy, "write_ask", fails)
        assert "cannot be written" in str((await client.call("old__hello")).message)
