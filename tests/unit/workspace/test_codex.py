"""Codex as tools, in front of a double of its app-server: what a call may do, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from codex_double import CodexDouble
from inmemory import LATEST, THE_SOCKET, Json, Visitor, gateway
from virtualtime import FakeClock, settle

from toolgate.app import App
from toolgate.config import Config
from toolgate.config.access import Approvals as ApprovalSettings
from toolgate.config.settings import Codex, MostOfCodex, PoolLimits
from toolgate.core.fault import Fault
from toolgate.policy.approvals import Approvals
from toolgate.state.memory import MemoryStore
from toolgate.workspace import codex, codex_turn

HERE = str(Path.cwd())
FREE = Codex(enabled=True, calls="allow")
FORMS = {"elicitation": {"form": {}}}


@asynccontextmanager
async def running(double: CodexDouble, settings: Codex = FREE, **more: Any) -> AsyncGenerator[App]:
    config = Config(codex=settings, **more.pop("config", {}))
    async with gateway(config=config, links_of={codex.NAME: cast(Any, double)}, **more) as app:
        yield app
    assert not double.wrong


def visitor(app: App, operator: bool = False) -> Visitor:
    found = Visitor(app, "/mcp/daemon")
    if operator:
        found.client = THE_SOCKET
    return found


async def call(who: App | Visitor, tool: str = "codex", **arguments: Any) -> Json:
    asker = who if isinstance(who, Visitor) else visitor(who)
    answer = (await asker.ask("tools/call", name=tool, arguments=arguments)).last
    return json.loads(answer["result"]["content"][0]["text"]) if "result" in answer else answer["error"]


async def test_of_codexes_that_a_configuration_has_replaced_those_are_kept_that_have_not_ended() -> None:
    double = CodexDouble()
    async with running(double) as app:
        for number in range(5):
            await call(app, prompt="run ls -l")
            config = app.gateway.snapshot.config
            settings = msgspec.structs.replace(config.codex, command=f"codex-{number}")
            app._prepared(msgspec.structs.replace(config, codex=settings))()
            await settle()
        assert len(app.workspace.codex._retired) <= 1


# A prompt.


async def test_a_prompt_is_answered_with_the_agents_last_message_and_what_it_did() -> None:
    double = CodexDouble()
    async with running(double) as app:
        told = await call(app, prompt="run ls -l")
        assert (told["success"], told["result"], told["status"]) == (True, "ran it", "completed")
        assert told["items"] == [
            {"type": "command", "command": "ls -l", "output": "the output", "status": "completed", "exit_code": 0},
            {"type": "message", "text": "ran it"},
        ]
        assert (told["cwd"], told["sandbox"], told["approval_policy"]) == (HERE, "workspace-write", "on-request")


async def test_a_thread_goes_on_where_it_was_and_says_again_what_it_may_do() -> None:
    double = CodexDouble()
    async with running(double) as app:
        thread = (await call(app, prompt="say a", sandbox="read-only"))["thread_id"]
        again = await call(app, prompt="echo", thread_id=thread, model="gpt-x")
        assert again["thread_id"] == thread
        sent = json.loads(again["result"])
        assert sent["sandboxPolicy"] == {"type": "workspaceWrite", "networkAccess": False, "writableRoots": []}
        assert (sent["approvalPolicy"], sent["approvalsReviewer"], sent["cwd"]) == ("on-request", "user", HERE)
        assert sent["model"] == "gpt-x"
        assert [each["method"] for each in double.requests if "/unsub" not in each["method"]] == [
            *("initialize", "initialized", "thread/start", "turn/start", "thread/resume", "turn/start")
        ]


async def test_threads_are_listed_by_pages_and_archived() -> None:
    double = CodexDouble()
    async with running(double) as app:
        threads = [(await call(app, prompt=f"say {word}"))["thread_id"] for word in ("a", "b", "c")]
        page = await call(app, "codex_list_threads", limit=2)
        assert [each["thread_id"] for each in page["threads"]] == [threads[2], threads[1]]
        assert page["threads"][0]["preview"] == "say c"
        rest = await call(app, "codex_list_threads", limit=2, cursor=page["next_cursor"])
        assert [each["thread_id"] for each in rest["threads"]] == [threads[0]] and rest["next_cursor"] is None
        gone = await call(app, "codex_archive_thread", thread_id=threads[1])
        assert gone == {"success": True, "thread_id": threads[1], "archived": True}
        left = await call(app, "codex_list_threads")
        assert [each["thread_id"] for each in left["threads"]] == [threads[2], threads[0]]
        for tool in ("codex_archive_thread", "codex"):
            missing = await call(app, tool, thread_id=threads[1], **({"prompt": "say x"} if tool == "codex" else {}))
            assert (missing["error_type"], missing["error"]) == ("KeyError", f"Thread not found: {threads[1]}")


async def test_a_thread_is_linked_to_a_session_record() -> None:
    async with running(CodexDouble()) as app:
        told = await call(app, prompt="say done")
        await call(app, prompt="say more", thread_id=told["thread_id"])
        rows = await app.workspace.workspace.query(
            lambda tables: tables.execute(
                "SELECT external_id, source, status, cwd, first_prompt, last_prompt, last_reply, prompts FROM "
                "session_record"
            ).fetchall()
        )
        assert told["session_id"] == told["thread_id"]
        assert rows == [(told["thread_id"], "codex", "paused", HERE, "say done", "say more", "more", 2)]


async def test_progress_is_told_on_the_way() -> None:
    async with running(CodexDouble()) as app:
        who = visitor(app)
        await who.initialize(LATEST)
        params = {"name": "codex", "arguments": {"prompt": "run ls"}, "_meta": {"progressToken": "p"}}
        response = await who.post(who.request("tools/call", **params))
        steps = [each["params"] for each in response.messages if each.get("method") == "notifications/progress"]
        assert [each["progress"] for each in steps] == sorted({each["progress"] for each in steps})
        assert "command started: ls" in [each["message"] for each in steps]


# What it may do.


@pytest.mark.parametrize(
    ("arguments", "type", "says"),
    [
        ({"prompt": ""}, "ValueError", "`prompt`"),
        ({"prompt": " \n"}, "ValueError", "`prompt`"),
        ({"prompt": "x" * (codex.LONGEST_PROMPT + 1)}, "ValueError", "`prompt`"),
        ({}, "ValueError", "`prompt` is missing"),
        ({"prompt": "x", "sandbox": "danger-full-access"}, "PermissionError", "at most workspace-write"),
        ({"prompt": "x", "approval_policy": "never"}, "PermissionError", "at most on-request"),
        ({"prompt": "x", "sandbox": "none"}, "ValueError", "`sandbox`"),
        ({"prompt": "x", "sandbox": "Danger-full-access"}, "ValueError", "`sandbox`"),
        ({"prompt": "x", "cwd": "relative"}, "ValueError", "absolute"),
        ({"prompt": "x", "cwd": "/nowhere/at/all"}, "ValueError", "exists"),
        ({"prompt": "x", "cwd": "/etc/passwd"}, "ValueError", "exists"),
        ({"prompt": "x", "cwd": "/tmp\0/x"}, "ValueError", "absolute"),
        ({"prompt": "x", "model": "--config=x"}, "ValueError", "`model`"),
        ({"prompt": "x", "model": "m" * 201}, "ValueError", "`model`"),
        ({"prompt": "x", "thread_id": "../../x"}, "ValueError", "`thread_id`"),
        ({"prompt": "x", "config": {}}, "ValueError", "unknown parameter"),
    ],
)
async def test_what_a_call_may_not_say_is_refused_before_anything_is_started(
    arguments: Json, type: str, says: str
) -> None:
    double = CodexDouble()
    for settings in (FREE, Codex(enabled=True)):
        async with running(double, settings) as app:
            told = await call(app, **arguments)
            assert (told["success"], told["error_type"]) == (False, type)
            assert says in told["error"]
            assert not double.requests


@pytest.mark.parametrize(
    ("most", "named", "sent"),
    [
        (MostOfCodex("read-only", "untrusted"), {}, ("readOnly", "untrusted")),
        (MostOfCodex("danger-full-access", "never"), {}, ("workspaceWrite", "on-request")),
        (
            MostOfCodex("danger-full-access", "never"),
            {"sandbox": "danger-full-access", "approval_policy": "never"},
            ("dangerFullAccess", "never"),
        ),
        (MostOfCodex(), {"sandbox": "read-only", "approval_policy": "untrusted"}, ("readOnly", "untrusted")),
    ],
)
async def test_what_is_left_out_is_never_more_than_the_operator_allows(
    most: MostOfCodex, named: Json, sent: tuple[str, str]
) -> None:
    async with running(CodexDouble(), Codex(enabled=True, calls="allow", most=most)) as app:
        echo = json.loads((await call(app, prompt="echo", **named))["result"])
        assert (echo["sandboxPolicy"]["type"], echo["approvalPolicy"]) == sent


async def test_a_folder_is_named_by_programs_on_this_machine_only(tmp_path: Path) -> None:
    async with running(CodexDouble()) as app:
        link = tmp_path / "link"
        (tmp_path / "real").mkdir()
        link.symlink_to(tmp_path / "real")
        told = await call(app, prompt="echo", cwd=str(link))
        assert told["cwd"] == json.loads(told["result"])["cwd"] == str((tmp_path / "real").resolve())
        elsewhere = visitor(app)
        elsewhere.client = ("192.0.2.7", 5)
        refused = await call(elsewhere, prompt="say x", cwd=str(tmp_path))
        assert refused["error_type"] == "PermissionError" and "folder" in refused["error"]
        again = await call(elsewhere, prompt="say x", thread_id=told["thread_id"])
        assert again["cwd"] == HERE  # nor by way of a thread
        assert (await call(app, prompt="say x", thread_id=told["thread_id"]))["cwd"] == HERE


# Who is asked.


async def test_a_person_is_asked_first_and_sees_all_that_it_may_do() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    book = Approvals(store, clock)
    double = CodexDouble()
    async with running(double, Codex(enabled=True), clock=clock, store=store) as app:
        for tool, arguments in (
            ("codex", {"prompt": "say yes"}),
            ("codex_list_threads", {}),
        ):
            told = asyncio.ensure_future(call(app, tool, **arguments))
            await settle()
            (request,) = book.requests()
            assert (request.place.server, request.place.target) == ("toolgate", tool)
            if tool == "codex":
                shown = {
                    "approval_policy": "on-request",
                    "cwd": HERE,
                    "prompt": "say yes",
                    "sandbox": "workspace-write",
                }
                assert json.loads(request.shown) == shown
            await book.allow(request, "once", 60)
            assert (await told)["success"] is True
        (waiting := asyncio.ensure_future(call(app, prompt="say no")))
        await settle()
        await book.deny(book.requests()[0], 60)
        assert (await waiting)["error_type"] == "PermissionError"
        assert [each["method"] for each in double.requests].count("turn/start") == 1


async def test_an_open_gateways_client_does_not_answer_for_its_user() -> None:
    """Neither for the call, nor for what Codex asks in it."""
    double = CodexDouble()
    async with running(double, Codex(enabled=True, calls="ask"), config={"approvals": ApprovalSettings(wait=0)}) as app:
        who = visitor(app)
        await who.initialize(LATEST, **FORMS)
        told = await call(who, prompt="say x")
        assert "nobody has decided yet" in told["error"] and not double.requests
    async with running(double) as app:
        who = visitor(app)
        await who.initialize(LATEST, **FORMS)
        told = await call(who, prompt="ask rm -rf x")
        assert json.loads(told["result"]) == {"decision": "decline"}
        assert told["declined"] == ["command: rm -rf x"]


@pytest.mark.parametrize(
    ("content", "decision"),
    [
        ({"action": "accept", "content": {"decision": "once"}}, "accept"),
        ({"action": "accept", "content": {"decision": "deny"}}, "decline"),
        ({"action": "accept", "content": {"decision": "always"}}, "decline"),
        ({"action": "accept"}, "decline"),
        ({"action": "accept", "content": []}, "decline"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "decline"),
    ],
)
@pytest.mark.parametrize("prompt", ["ask rm x", "change"])
async def test_what_codex_asks_is_put_to_the_user_of_the_call(prompt: str, content: Json, decision: str) -> None:
    double = CodexDouble()
    async with running(double) as app:
        who = visitor(app, operator=True)
        await who.initialize(LATEST, **FORMS)
        asking = who.begin(
            "POST", json.dumps(who.request("tools/call", name="codex", arguments={"prompt": prompt})).encode()
        )
        await app.clock.sleep(1)
        (asked,) = [each for each in asking.so_far.messages if each.get("method") == "elicitation/create"]
        said = asked["params"]["message"]
        assert ('"rm x"' if prompt.startswith("ask") else '"/w/a.py"') in said and said.startswith("Codex asks to")
        await who.post({"jsonrpc": "2.0", "id": asked["id"], "result": content})
        told = json.loads((await asking.response()).last["result"]["content"][0]["text"])
        assert json.loads(told["result"]) == {"decision": decision}


async def test_wider_permissions_and_unknown_questions_are_refused_without_asking() -> None:
    async with running(CodexDouble()) as app:
        who = visitor(app, operator=True)
        await who.initialize(LATEST, **FORMS)
        wider = await call(who, prompt="widen")
        assert json.loads(wider["result"]) == {"permissions": {}} and wider["declined"] == ["wider permissions"]
        strange = await call(who, prompt="strange")
        assert json.loads(strange["result"])["code"] == -32601
        long = await call(who, prompt="ask " + "x" * codex_turn.MOST_SHOWN)
        assert json.loads(long["result"]) == {"decision": "decline"}  # nobody could read it
        many = await call(visitor(app), prompt="askall 50")
        assert many["result"] == "all answered" and len(many["declined"]) == codex_turn.MOST_DECLINED


# How it ends.


async def test_a_call_that_is_cancelled_interrupts_its_turn() -> None:
    double = CodexDouble()
    async with running(double) as app:
        who = visitor(app)
        await who.initialize(LATEST)
        message = who.request("tools/call", name="codex", arguments={"prompt": "silence"})
        working = who.begin("POST", json.dumps(message).encode())
        await app.clock.sleep(1)
        thread = next(iter(double.threads))
        busy = await call(app, prompt="say x", thread_id=thread)
        assert "working on another prompt" in busy["error"]
        cancelled = {"requestId": message["id"], "reason": "enough"}
        await who.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        await working.work
        await settle()
        assert "turn/interrupt" in [each["method"] for each in double.requests]
        assert (await call(app, prompt="say x", thread_id=thread))["result"] == "x"
        assert double.starts == 1


@pytest.mark.parametrize("deaf", ["turn/interrupt", "turn/start", "thread/start"])
async def test_a_turn_that_cannot_be_interrupted_ends_with_its_process(deaf: str) -> None:
    double = CodexDouble(deaf)
    async with running(double, Codex(enabled=True, calls="allow", timeout=60)) as app:
        told = await call(app, prompt="silence")
        assert (told["error_type"], "codex.timeout" in told["error"]) == ("TimeoutError", True)
        await app.clock.sleep(codex.PATIENCE + 1)
        double.deaf.clear()
        assert (await call(app, prompt="say again"))["result"] == "again"
        assert double.starts == (1 if deaf == "thread/start" else 2)


async def test_a_crash_in_the_middle_fails_its_call_and_the_next_starts_another() -> None:
    double = CodexDouble()
    async with running(double) as app:
        other = asyncio.ensure_future(call(app, prompt="silence"))
        await app.clock.sleep(1)
        told = await call(app, prompt="crash")
        assert told["error_type"] == "ConnectionError" and "crashed" in told["error"]
        assert (await other)["error_type"] == "ConnectionError"
        assert (await call(app, prompt="say again"))["result"] == "again"
        assert double.starts == 2


async def test_a_turn_that_fails_says_why_and_how_to_go_on() -> None:
    double = CodexDouble()
    async with running(double) as app:
        told = await call(app, prompt="fail the model is overloaded")
        assert told["error"] == "Codex did not finish: the model is overloaded"
        assert next(iter(double.threads)) in told["hint"]


@pytest.mark.parametrize("deaf", ["initialize", "thread/list"])
async def test_one_that_does_not_answer_is_not_waited_for_without_end(deaf: str) -> None:
    double = CodexDouble(deaf)
    async with running(double) as app:
        told = await call(app, "codex_list_threads")
        assert told["error_type"] in ("TimeoutError", "ConnectionError")


async def test_it_is_started_when_it_is_used_and_stopped_when_it_is_not() -> None:
    double = CodexDouble()
    async with running(double, config={"pool": PoolLimits(idle=60)}) as app:
        await settle()
        assert double.starts == 0
        for _ in range(3):
            await call(app, prompt="say x")
            await app.clock.sleep(50)
        assert double.starts == 1
        await app.clock.sleep(61)
        await call(app, prompt="say x")
        assert double.starts == 2


async def test_only_so_many_prompts_run_at_once() -> None:
    async with running(CodexDouble()) as app:
        running_ones = [asyncio.ensure_future(call(app, prompt="silence")) for _ in range(codex.MOST_TURNS)]
        await app.clock.sleep(1)
        told = await call(app, prompt="say x")
        assert "Codex is busy" in told["error"]
        for each in running_ones:
            each.cancel()
        await asyncio.gather(*running_ones, return_exceptions=True)


async def test_of_a_flood_the_end_is_kept() -> None:
    async with running(CodexDouble()) as app:
        told = await call(app, prompt="flood 500")
        assert len(told["items"]) == codex_turn.MOST_ITEMS and told["items_left_out"] == 401
        assert all(len(each.get("output", "")) <= codex_turn.LONGEST_TEXT for each in told["items"])
        assert len(told["result"]) <= codex_turn.LONGEST_RESULT


async def test_what_is_no_message_harms_nobody() -> None:
    async with running(CodexDouble()) as app:
        assert (await call(app, prompt="garbage"))["result"] == "still here"


# Where it is.


@pytest.mark.parametrize("path", ["/mcp", "/mcp/daemon", "/mcp/all", "/mcp/children", "/mcp/meta", "/mcp/components"])
@pytest.mark.parametrize(
    "settings", [Codex(enabled=False, calls="allow"), Codex(enabled=True, command="no-such-codex")]
)
async def test_where_it_is_not_there_it_is_neither_listed_nor_called(path: str, settings: Codex) -> None:
    links: Any = {codex.NAME: cast(Any, CodexDouble())} if not settings.enabled else {}
    async with gateway(config=Config(codex=settings), links_of=links) as app:
        who = Visitor(app, path)
        listed = [each["name"] for each in (await who.ask("tools/list")).result["tools"]]
        assert not [name for name in listed if name.startswith("codex")]
        for tool in ("codex", "codex_list_threads", "codex_archive_thread"):
            answer = (await who.ask("tools/call", name=tool, arguments={"prompt": "say x"})).last
            assert "not found" in json.dumps(answer), answer


async def test_what_is_turned_off_meanwhile_is_not_done() -> None:
    double = CodexDouble()
    async with running(double) as app:
        app.workspace.codex.settings = Codex()
        assert "Tool not found" in (await call(app, prompt="say x"))["error"]


async def test_a_program_that_cannot_be_started_is_a_clear_error() -> None:
    fault = Fault("SERVER_FAILED", "Command not found: codex", reach="not_sent", hint="install it")
    async with gateway(config=Config(codex=FREE), links_of={codex.NAME: fault}) as app:
        told = await call(app, prompt="say x")
        assert (told["error_type"], told["error"]) == ("ConnectionError", "Command not found: codex")
