"""A program that takes itself for Codex says what is long and much: it is read no further than it is kept."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from codex_double import CodexDouble
from inmemory import Json, Visitor, gateway
from msgspec import Raw
from virtualtime import settle

from toolgate.app import App
from toolgate.config import Config, Server
from toolgate.config.settings import Codex
from toolgate.core import jsonrpc
from toolgate.core.clock import SystemClock
from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.stdio import StdioLink
from toolgate.workspace import codex, codex_said, codex_server, codex_turn

LONG = codex_server.LONGEST_LINE


class Hostile(CodexDouble):
    """It answers with `results` what they name, and then tells what is in `told`, each with its thread; in texts `NUL`
    stands for much."""

    def __init__(self, told: list[Json] | None = None, **results: Any) -> None:
        super().__init__()
        self._results = {name.replace("_", "/"): result for name, result in results.items()}
        self._told = told or []

    def received(self, line: bytes) -> None:
        message = json.loads(line)
        method = message.get("method", "")
        if method in self._results:
            self.say(json.dumps({"id": message["id"], **self._results[method]}).encode())
            return
        super().received(line)

    def _begin(self, thread: str, turn: str, text: str, params: Json) -> None:
        if not self._told:
            super()._begin(thread, turn, text, params)
        for each in self._told:
            self.say(json.dumps(each | {"params": {"threadId": thread, **each["params"]}}).encode())


@asynccontextmanager
async def running(double: CodexDouble) -> AsyncGenerator[App]:
    config = Config(codex=Codex(enabled=True, calls="allow"))
    async with gateway(config=config, links_of={codex.NAME: cast(Any, double)}) as app:
        yield app


async def call(app: App, tool: str = "codex", **arguments: Any) -> Json:
    answer = (await Visitor(app, "/mcp/daemon").ask("tools/call", name=tool, arguments=arguments)).last
    return json.loads(answer["result"]["content"][0]["text"])


def thread(**more: Any) -> Json:
    return {"id": "t", "cwd": "/", "createdAt": 1, "updatedAt": 1, **more}


def page(*threads: Json, **more: Any) -> Json:
    return {"result": {"data": threads, "nextCursor": None, **more}}


@pytest.mark.parametrize(
    "answer",
    [
        page(thread(preview="p\n" * LONG)),
        page(nextCursor="\u0301" * LONG),
        page(*[thread()] * (LONG // 40)),
        {"error": {"code": 1, "message": "e\n" * LONG}},
    ],
    ids=["preview", "cursor", "threads", "error"],
)
async def test_an_answer_that_is_too_long_is_not_read(answer: Json) -> None:
    async with running(Hostile(thread_list=answer)) as app:
        for _ in range(2):
            told = await call(app, "codex_list_threads")
            assert told["error"] == f"Codex answered with a message of more than {LONG:,} bytes"
        assert (await call(app, prompt="say hello"))["result"] == "hello"


async def test_of_a_page_so_many_threads_are_read_as_were_asked_for_and_of_each_what_is_told() -> None:
    nested = json.loads("[" * 100 + "]" * 100)
    much = thread(preview="\u0301" * 100_000, name='"\\' * 100_000, cwd="/" * 100_000, model="m" * 9999, source=nested)
    answer = page(much, *[thread()] * 10_000, {"id": 5}, nextCursor="c" * 100_000)
    async with running(Hostile(thread_list=answer)) as app:
        told = await call(app, "codex_list_threads", limit=7)
    assert len(told["threads"]) == 7 and told["next_cursor"] is None
    first = told["threads"][0]
    assert first["preview"] == "\u0301" * codex_turn.LONGEST_SHOWN
    assert (len(first["name"]), len(first["cwd"]), len(first["model"])) == (200, codex.LONGEST_FOLDER, 200)
    assert first["source"] is None


@pytest.mark.parametrize("id", ["t" * 257, "\u0301" * 10_000, 5, None, ["t"]])
@pytest.mark.parametrize("of", ["thread", "turn"])
async def test_an_id_that_is_too_long_or_none_is_malformed(id: Any, of: str) -> None:
    async with running(Hostile(**{f"{of}_start": {"result": {of: {"id": id}}}})) as app:
        told = await call(app, prompt="say hello")
    assert "Codex sent a malformed answer" in told["error"] and len(told["error"]) < 500


def ended(**turn: Any) -> Json:
    return {"method": "turn/completed", "params": {"turn": {"id": "u", "status": "completed", **turn}}}


def item(method: str = "item/completed", **item: Any) -> Json:
    return {"method": method, "params": {"item": {"id": "i", "type": "agentMessage", **item}}}


async def test_a_turn_whose_end_is_too_long_has_ended() -> None:
    error = {"message": "e\n" * LONG}
    async with running(Hostile([ended(status="failed", error=error)])) as app:
        told = await call(app, prompt="x")
    assert told["error"] == f"Codex ended the turn with a message of more than {LONG:,} bytes"


async def test_why_a_turn_has_failed_is_quoted_in_short() -> None:
    async with running(Hostile([ended(status="failed", error={"message": "e\n" * 1_000_000})])) as app:
        told = await call(app, prompt="x")
    assert told["error"].startswith("Codex did not finish: e\ne") and len(told["error"]) < 2100


async def test_of_what_a_turn_tells_the_beginnings_are_kept() -> None:
    changes = [{"path": "p" * 300, "diff": "d"}] * 10_000
    told = [
        item(text="x" * LONG),
        item("turn/diff/updated", text="x" * LONG),
        item(id="i" * 1000, type="fileChange", changes=[]),
        item(type="fileChange", changes=changes),
        item(type="t" * 100_000),
        item(type="commandExecution", command="\u0301\n" * 100_000, aggregatedOutput='"' * 100_000),
        item(text="\U0001f600" * 100_000),
        ended(),
    ]
    async with running(Hostile(told)) as app:
        said = await call(app, prompt="x")
    assert said["success"]
    assert len(said["items"]) == 4  # and neither what is too long, nor what has no id
    files, other, command, message = said["items"]
    assert len(files["files"]) == codex_turn.MOST_FILES and len(files["files"][0]) == codex_turn.LONGEST_SHOWN
    assert len(other["type"]) == 64
    assert len(command["command"]) == len(command["output"]) == codex_turn.LONGEST_TEXT
    assert message["text"] == "\U0001f600" * codex_turn.LONGEST_TEXT
    assert set(said["result"]) == {"\U0001f600"} and len(said["result"]) <= codex_turn.LONGEST_RESULT


@pytest.mark.parametrize("method", [codex_turn.COMMAND, codex_turn.FILES])
@pytest.mark.parametrize("part", ["command", "cwd", "reason"])
async def test_a_question_that_is_too_long_is_declined_unread(
    method: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = list[int]()
    monkeypatch.setattr(codex_turn.safe_text, "quoted", lambda text: quoted.append(len(text)) or text)  # pyright: ignore
    turn = codex_turn.Turn(lambda *_told: None, cast(Any, _nobody))
    change = {"path": "/a", "kind": {"type": "add"}, "diff": "+1"}
    started = item("item/started", type="fileChange", changes=[change])
    turn.told("item/started", Raw(jsonrpc.encode(started["params"])))
    about = {"itemId": "i", "command": "ls", "cwd": "/", "reason": "so", part: "x" * 1_000_000}
    answers = list[Any]()
    assert turn.asked(method, Raw(jsonrpc.encode(about)), answers.append)
    assert answers == [{"decision": "decline"}] and max(quoted, default=0) <= 100
    await turn.close()


async def _nobody(_form: Json) -> Any:
    raise AssertionError("nobody is asked")


async def test_of_what_may_be_asked_about_little_is_kept() -> None:
    turn = codex_turn.Turn(lambda *_told: None, None)
    change = {"path": "p" * 1_000_000, "diff": "d" * 1_000_000}
    for number in range(40):
        started = item("item/started", id=f"{number}", type="fileChange", changes=[change])
        turn.told("item/started", Raw(jsonrpc.encode(started["params"])))
    kept = turn._changes.values()  # pyright: ignore[reportPrivateUsage]
    assert sum(len(file.path) + len(file.diff) for each in kept for file in each.files) < 10_000


@pytest.mark.parametrize("text", ["a", '"\\', "\u0301", "\U0001f600", "\n", "\ud83d"])
@pytest.mark.parametrize("encode", [json.dumps, lambda text: jsonrpc.encode(text).decode()], ids=["escaped", "plain"])
@pytest.mark.parametrize("most", range(1, 14))
def test_a_text_is_cut_between_two_characters_however_it_is_written(
    text: str, encode: Callable[[str], str], most: int
) -> None:
    raw = Raw(encode(f"{text}b" * 100).encode("utf-8", "surrogatepass"))
    found = codex_said.text(raw, most)
    assert (f"{text}b" * 100).startswith(found) and most - 2 <= len(found) <= most


async def test_of_a_line_that_is_too_long_only_the_beginning_waits_for_its_end() -> None:
    taken = list[bytes]()
    receiver = Receiver("", lambda _: "codex", lambda line, _: taken.append(line), *[cast(Any, None)] * 4)
    server = Server(id="codex", name="codex", type="stdio", command=sys.executable)
    link = StdioLink(server, receiver, SystemClock(), IntakeQueue(), cut=5000)
    for _ in range(100):
        link._output(b'{"id":1,"result":"' + b"x" * 10_000)  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0)
    link._output(b'"}\n{"id":2}\n')  # pyright: ignore[reportPrivateUsage]
    await settle()
    assert [line[:8] for line in taken] == [b'{"id":1,', b'{"id":2}'] and 5000 < len(taken[0]) <= 7000
