"""What is asked while code runs: by a server that it calls, or of a person who is to approve a call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, eventually, form, named, sampled, sampling
from scripted_engine import Process, Scripted
from test_approval import ApprovalRig, decide

from toolgate.config import Config
from toolgate.config.sandbox import Sandbox
from toolgate.sandbox.services import MakeEngine
from toolgate.sandbox.worker import Engine

TOOLS = {"javascript": "mcp_execute", "python": "execute_code"}
CONFIG = Config(sandbox=Sandbox(warm=0))
REVISIONS = pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
LANGUAGES = pytest.mark.parametrize("language", TOOLS)
SERVERS = pytest.mark.parametrize("kind", [LegacyServer, ModernServer])


def engine(*calls: str) -> tuple[Scripted, dict[str, MakeEngine]]:
    """An engine whose code makes these calls of `there`, one after the other, and returns what came of them."""

    def play(process: Process, told: dict[str, Any]) -> None:
        if "run" in told:
            process.got: list[Any] = []  # type: ignore[attr-defined]
        else:
            process.got.append(told.get("value", (told.get("error") or {}).get("code")))  # type: ignore[attr-defined]
        done = len(process.got)  # type: ignore[attr-defined]
        if done == len(calls):
            process.says({"done": {"value": process.got}})  # type: ignore[attr-defined]
        else:
            process.says({"call": done + 1, "server": "there", "tool": calls[done], "arguments": {"n": done}})

    scripted = Scripted(play)
    return scripted, {language: lambda *_: Engine("scripted", scripted.start) for language in TOOLS}


def code(language: str) -> dict[str, Any]:
    return {"name": TOOLS[language], "arguments": {"code": "…"}}


async def echo(scene: Scene) -> str:
    return f"echo {scene.arguments['n']}"


async def hello(scene: Scene) -> str:
    return f"hello {(await scene.ask(form()))['content']['name']}"


async def model(scene: Scene) -> str:
    return f"a model says {(await scene.ask(sampling()))['content']['text']}"


def returned(reply: Any) -> Any:
    told = json.loads(reply.result["content"][0]["text"])
    return json.loads(told["result"]) if isinstance(told, dict) else told


@REVISIONS
@SERVERS
@LANGUAGES
async def test_what_a_server_asks_reaches_the_client_and_the_code_goes_on_with_the_answer(
    revision: str, kind: Any, language: str
) -> None:
    approvals = ApprovalRig()
    approvals.verdict = "allow"
    _, engines = engine("echo", "hello", "model", "echo", "hello")
    there = kind({"echo": echo, "hello": hello, "model": model})
    async with approvals.gateway(config=CONFIG, engines=engines, there=there) as rig:
        ann = await rig.client(revision)
        answers = {"elicitation/create": named("Ann"), "sampling/createMessage": sampled("hello")}
        told = returned(await ann.converse("tools/call", answers, **code(language)))
        assert told == ["echo 0", "hello Ann", "a model says hello", "echo 3", "hello Ann"]


@REVISIONS
@SERVERS
@LANGUAGES
async def test_a_person_approves_a_call_of_code_and_it_goes_on(revision: str, kind: Any, language: str) -> None:
    _, engines = engine("echo", "echo")
    asked: list[Any] = []
    async with ApprovalRig().gateway(config=CONFIG, engines=engines, there=kind({"echo": echo})) as rig:
        ann = await rig.client(revision)
        told = await ann.converse("tools/call", decide("once", asked=asked), **code(language))
        assert returned(told) == ["echo 0", "echo 1"]
        assert len(asked) == 2
        assert all(TOOLS[language] in each["message"] for each in asked)


@REVISIONS
@LANGUAGES
async def test_a_denied_call_of_code_is_an_error_that_it_can_catch(revision: str, language: str) -> None:
    _, engines = engine("echo", "echo")
    there = LegacyServer({"echo": echo})
    async with ApprovalRig().gateway(config=CONFIG, engines=engines, there=there) as rig:
        ann = await rig.client(revision)
        assert returned(await ann.converse("tools/call", decide("deny"), **code(language))) == ["APPROVAL_DENIED"] * 2
        assert there.calls == []


@REVISIONS
@LANGUAGES
async def test_an_operator_approves_a_call_of_code_while_its_time_stands_still(revision: str, language: str) -> None:
    _, engines = engine("echo")
    approvals = ApprovalRig("operator", wait=500.0)
    async with approvals.gateway(config=CONFIG, engines=engines, there=LegacyServer({"echo": echo})) as rig:
        ann = await rig.client(revision)
        pending = ann.start("tools/call", **code(language))
        request = await approvals.request()
        await rig.clock.sleep(2 * CONFIG.sandbox.timeout)
        await approvals.book.allow(request, "once", 600.0)
        assert returned(await pending.reply()) == ["echo 0"]


@REVISIONS
@LANGUAGES
async def test_what_an_operator_denies_is_an_error_that_code_can_catch(revision: str, language: str) -> None:
    _, engines = engine("echo", "echo")
    approvals, there = ApprovalRig("operator", wait=500.0), LegacyServer({"echo": echo})
    async with approvals.gateway(config=CONFIG, engines=engines, there=there) as rig:
        ann = await rig.client(revision)
        pending = ann.start("tools/call", **code(language))
        await approvals.book.deny(await approvals.request(), 600.0)
        await approvals.book.deny(await approvals.request(), 600.0)
        assert returned(await pending.reply()) == ["APPROVAL_DENIED"] * 2
        assert there.calls == []


@REVISIONS
@LANGUAGES
async def test_who_cancels_a_call_that_runs_code_cancels_what_the_code_calls(revision: str, language: str) -> None:
    scripted, engines = engine("wait")

    async def wait(scene: Scene) -> str:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    approvals, there = ApprovalRig(), LegacyServer({"wait": wait})
    approvals.verdict = "allow"
    async with approvals.gateway(config=CONFIG, engines=engines, there=there) as rig:
        ann = await rig.client(revision)
        pending = ann.start("tools/call", **code(language))
        await eventually(lambda: there.calls)
        pending.leave() if revision == MODERN else ann.cancel(pending)
        await eventually(lambda: scripted.processes[0].is_killed)
        await eventually(lambda: there.cancelled)
