"""Python code in its own process: what it may do, what comes of it, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.ground import WAIT, alive, offspring, real, until
from processes.python_snippets import DO_NOT_RUN, SNIPPETS
from processes.sandbox_stage import staged
from sandboxing import python_engine, run, supervising

from toolgate.core.fault import Fault
from toolgate.sandbox import python
from toolgate.sandbox.python import PythonEngine
from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]


@real
async def test_what_models_write_runs() -> None:
    assert len(SNIPPETS) == 43
    async with python_engine() as engine:
        ran = {name: await run(engine, code) for name, code, _ in SNIPPETS}
    wrong = {name: ran[name].last for name, _, value in SNIPPETS if ran[name].last != {"done": {"value": value}}}
    assert wrong.keys() == DO_NOT_RUN, wrong


# What comes of it.

RESULTS: list[tuple[str, Any]] = [
    ("1 + 1", {"done": {"value": 2}}),
    ("x = 5", {"done": {"absent": True}}),
    ("result = [1]\nprint('x')", {"done": {"value": [1]}}),
    ("result = 1\nresult + 1", {"done": {"value": 2}}),
    ("print('only this')", {"done": {"absent": True}}),
    ("None", {"done": {"absent": True}}),
    ("False", {"done": {"value": False}}),
    ("{1, }", {"done": {"value": "{1}"}}),
    ("{(1, 2): {3}, None: 1, True: 2, 1.5: 3}", {"done": {"value": {"(1, 2)": "{3}", "null": 1, "true": 2, "1.5": 3}}}),
    ("[float('nan'), float('inf'), 1e300, object]", {"done": {"value": ["nan", "inf", 1e300, "<class 'object'>"]}}),
    ("10 ** 5000", {"done": {"value": "<a number of 16610 bits>"}}),
    ("'\\ud800 \\u2028 \\0 \\x7f é'", {"done": {"value": "\ud800 \u2028 \0 \x7f é"}}),
    ("async def main(): return 7\nmain()", {"done": {"value": 7}}),
    ("import sys\nresult = 3\nsys.exit()", {"done": {"value": 3}}),
    ("import sys\nsys.exit('no')", {"failed": {"name": "SystemExit", "message": "no"}}),
    ("import asyncio\nawait asyncio.Event().wait()", {"deadlock": True}),
    ("import asyncio\nasyncio.run(asyncio.Future())", None),
]


@real
async def test_the_value_is_the_last_expressions_else_that_of_result() -> None:
    async with python_engine() as engine:
        for code, last in RESULTS:
            ran = await run(engine, code)
            assert last is None or ran.last == last, code
            assert ran.end == "the sandbox exited with status 0", code


@real
async def test_a_value_that_contains_itself_or_fails_when_it_is_shown_ends_the_run_and_nothing_else() -> None:
    async with python_engine() as engine:
        assert "..." in str((await run(engine, "a = []\na.append(a)\na")).value)
        shown = await run(engine, "class A:\n    def __repr__(self): raise KeyError\nA()")
        assert shown.value == "<A, whose repr raises KeyError>"
        bad = await run(engine, "class E(Exception):\n    def __str__(self): raise KeyError\nraise E")
        assert bad.last["failed"]["name"] == "E"


@real
async def test_a_failure_says_what_and_where() -> None:
    async with python_engine() as engine:
        failed = (await run(engine, "def f(x):\n    return 1 / x\nprint('a')\nf(0)")).last["failed"]
        assert (failed["name"], failed["message"]) == ("ZeroDivisionError", "division by zero")
        assert "line 4, in <module>" in failed["stack"]
        assert "return 1 / x" in failed["stack"]
        wrong = (await run(engine, "x = = 1")).last["failed"]
        assert wrong["name"] == "SyntaxError"
        missing = (await run(engine, "import numpy")).last["failed"]
        assert missing["name"] == "ModuleNotFoundError"
        assert "standard library" in missing["message"]


@real
async def test_what_it_prints_comes_line_by_line_and_before_it_ends() -> None:
    async with python_engine() as engine:
        ran = await run(
            engine, "import sys\nprint('a', end='')\nprint('b\\nc')\nprint('é', file=sys.stderr)\nprint('last', end='')"
        )
        assert ran.logs == "ab\nc\né\nlast\n"
        assert (await run(engine, "print('x' * 1_000_000)", most=1 << 22)).logs.replace("\n", "") == "x" * 1_000_000
        seen: list[str] = []
        ran = await run(
            engine, "print('soon')\nwhile True: pass", seconds=3, watch=lambda m: seen.append(m.get("log", ""))
        )
        assert "soon" in seen
        assert ran.end == "the sandbox took too long"


@real
async def test_data_is_there_where_it_was_given_and_there_is_nothing_to_read() -> None:
    async with python_engine() as engine:
        assert (await run(engine, "sum(data['x'])", data={"x": [1, 2]})).value == 3
        assert (await run(engine, "data")).last["failed"]["name"] == "NameError"
        assert (await run(engine, "input()")).last["failed"]["name"] == "EOFError"


# Calls.

SERVERS = {"git-hub": ["list-issues", "create_issue", "call"], "db": None, "a": [], "batch": ["x"]}

WAYS: list[tuple[str, tuple[str, str, dict[str, Any], bool]]] = [
    ("servers.git_hub.create_issue(title='x')", ("git-hub", "create_issue", {"title": "x"}, False)),
    ("servers['git-hub']['list-issues'](page=2)", ("git-hub", "list-issues", {"page": 2}, False)),
    ("servers.git_hub.list_issues({'page': 2}, per=3)", ("git-hub", "list-issues", {"page": 2, "per": 3}, False)),
    ("servers.db.call('query', {'sql': 'x'})", ("db", "query", {"sql": "x"}, False)),
    ("servers.db.call_raw('query', {'sql': 'x'})", ("db", "query", {"sql": "x"}, True)),
    ("servers.db.callRaw('query')", ("db", "query", {}, True)),
    ("getattr(servers.db, 'qu' + 'ery')()", ("db", "query", {}, False)),
    ("f = servers.db.query\nf(a=1)", ("db", "query", {"a": 1}, False)),
    ("servers['git-hub']['call'](a=1)", ("git-hub", "call", {"a": 1}, False)),
    ("[t for n, t in servers['git-hub'].items()][0]()", ("git-hub", "list-issues", {}, False)),
    ("[s for s in servers.values()][1].anything()", ("db", "anything", {}, False)),
    ("await servers.db.query()", ("db", "query", {}, False)),
    ("servers['batch'].x()", ("batch", "x", {}, False)),
]


@real
async def test_a_tool_is_reached_in_every_way_and_by_its_true_name() -> None:
    async with python_engine() as engine:
        for code, (server, tool, arguments, raw) in WAYS:
            ran = await run(engine, code, servers=SERVERS)
            (call,) = [each for each in ran.messages if "call" in each]
            assert call == {"call": 1, "server": server, "tool": tool, "arguments": arguments, "raw": raw}, code
            assert ran.value == arguments, code


@real
async def test_calls_block_and_count_up_and_fail_as_exceptions() -> None:
    def answer(call: dict[str, Any]) -> dict[str, Any]:
        if call["tool"] == "bad":
            return {"error": {"message": "no such tool", "code": "TOOL_NOT_FOUND"}}
        return {"value": call["call"] * 10}

    async with python_engine() as engine:
        code = (
            "import asyncio\na = servers.db.x()\nb, c = await asyncio.gather(servers.db.x(), servers.db.x())\n[a, b, c]"
        )
        assert (await run(engine, code, answer, servers=SERVERS)).value == [10, 20, 30]
        code = "try: servers.db.bad()\nexcept ToolError as e: result = [e.code, e.message, str(e)]"
        assert (await run(engine, code, answer, servers=SERVERS)).value == ["TOOL_NOT_FOUND", *["no such tool"] * 2]
        failed = (await run(engine, "servers.db.bad()", answer, servers=SERVERS)).last["failed"]
        assert (failed["name"], failed["message"]) == ("ToolError", "no such tool")
        failed = (await run(engine, "servers.git_hup.x()", servers=SERVERS)).last["failed"]
        assert "git-hub" in failed["message"]
        failed = (await run(engine, "servers.db.x(a={1})", servers=SERVERS)).last["failed"]
        assert (failed["name"], "JSON" in failed["message"]) == ("TypeError", True)
        failed = (await run(engine, "servers.db.x(1)", servers=SERVERS)).last["failed"]
        assert failed["name"] == "TypeError"


@real
async def test_a_batch_is_in_flight_at_once_and_its_results_stand_in_order() -> None:
    def answer(call: dict[str, Any]) -> dict[str, Any]:
        return {"error": {"message": "odd"}} if call["arguments"]["n"] % 2 else {"value": call["arguments"]["n"]}

    each = "{'server': 'db', 'tool': 'x', 'arguments': {'n': n}} if n % 3 else ('db', 'x', {'n': n})"
    code = f"servers.batch([{each} for n in range(200)])"
    async with python_engine() as engine:
        ran = await run(engine, code, answer, servers=SERVERS)
        assert ran.value == [
            {"ok": False, "error": {"message": "odd"}} if n % 2 else {"ok": True, "value": n} for n in range(200)
        ]
        failed = (await run(engine, "servers.batch([{'server': 'db', 'tool': 'x'}, 'y'])", servers=SERVERS)).last[
            "failed"
        ]
        assert failed["name"] == "TypeError"


@real
async def test_of_large_calls_of_a_batch_no_result_is_lost() -> None:
    async with staged(language="python") as stage:
        code = "came = servers.batch([('shop', 'echo', {'a': 'x' * 1_000_000, 'n': n}) for n in range(40)])"
        ran = await stage.pool.run(f"{code}\n[each['ok'] and each['value']['n'] for each in came]", stage.host())
        assert json.loads(ran.value or b"") == [*range(40)] and len(stage.called) == 40


@real
async def test_a_batch_may_follow_one_that_could_not_be_sent_whole() -> None:
    code = """
large = [('db', 'x', {'n': n, 'a': 'x' * 10_000}) for n in range(100)]
try:
    servers.batch([*large, ('db', 'x', {'n': {1}})])
except TypeError:
    pass
[each['value'] for each in servers.batch([('db', 'x', {'n': n}) for n in range(200)])]
"""
    async with python_engine() as engine:
        ran = await run(engine, code, lambda call: {"value": call["arguments"]["n"]}, most=1 << 24, servers=SERVERS)
        assert ran.value == [*range(200)]


@real
@pytest.mark.parametrize("call", ["servers.shop[b'x']()", "servers.shop[1]()", "servers.shop.call(None)", "deep()"])
async def test_code_that_catches_why_a_call_was_not_made_can_call_again(call: str) -> None:
    code = f"""
def deep(depth=0):
    try:
        deep(depth + 1)
    finally:
        if depth > 900:
            servers.shop.echo({{}})
try:
    {call}
except (TypeError, RecursionError):
    print("caught")
servers.shop.echo(last=1)
"""
    async with staged(language="python") as stage:
        assert await stage.told(code) == 'caught\n{"last": 1}'


@real
async def test_names_are_looked_at_like_those_of_a_mapping() -> None:
    code = "[list(servers), 'db' in servers, len(servers), dir(servers.git_hub), hasattr(servers, 'no'), repr(servers)]"
    async with python_engine() as engine:
        names, has, size, tools, no, shown = (await run(engine, code, servers=SERVERS)).value
        assert (names, has, size, no) == (list(SERVERS), True, 4, False)
        assert tools == sorted(SERVERS["git-hub"] or ())
        assert shown == "<servers git-hub, db, a, batch>"


# How it lives and ends.


@real
async def test_runs_do_not_see_each_other() -> None:
    async with python_engine() as engine:
        assert (await run(engine, "import json\njson.mark = 1\nresult = 1")).value == 1
        assert (await run(engine, "import json\nhasattr(json, 'mark')")).value is False


@real
async def test_a_run_that_is_ended_is_gone_and_the_zygote_goes_on() -> None:
    async with python_engine() as engine:
        ran = await run(engine, "while True: pass", seconds=0.5)
        assert ran.end == "the sandbox took too long"
        assert engine._zygote
        zygote = engine._zygote.pid
        await until(lambda: not offspring(zygote))
        assert (await run(engine, "1")).value == 1
        assert engine._zygote.pid == zygote


@real
async def test_a_zygote_that_is_killed_ends_its_runs_and_the_next_run_has_another() -> None:
    async with python_engine() as engine:
        assert (await run(engine, "1")).value == 1
        assert engine._zygote
        first = engine._zygote
        started: list[Any] = []

        def kill(message: dict[str, Any]) -> None:
            if "log" in message:
                started.append(message)
                os.kill(first.pid, signal.SIGKILL)

        ran = await run(engine, "print('here')\nwhile True: pass", watch=kill)
        assert started
        assert "zygote" in ran.end
        await first.ended()
        assert not alive(first.pid)
        assert (await run(engine, "2")).value == 2
        assert engine._zygote.pid != first.pid


@real
async def test_many_workers_wait_warm_and_each_takes_one_run() -> None:
    async with python_engine() as engine:
        ready: list[bytes] = []
        over: list[str] = []
        workers = [await engine.start(ready.append, over.append) for _ in range(8)]
        await until(lambda: b"".join(ready).count(b"ready") == 8, WAIT)
        assert not over
        for worker in workers:
            worker.end()
            await worker.ended()
        assert over == ["the sandbox was stopped"] * 8


@real
async def test_a_worker_has_no_variables_no_rights_and_its_limits() -> None:
    async with python_engine() as engine:
        ready: list[bytes] = []
        worker = await engine.start(ready.append, lambda _: None)
        await until(lambda: ready)
        assert engine._zygote
        (pid,) = offspring(engine._zygote.pid)
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert len(os.listdir(f"/proc/{pid}/fd")) == 3
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert f"{python.MEMORY}" in limits
        assert b"PATH" not in Path(f"/proc/{pid}/environ").read_bytes()
        worker.end()
        await worker.ended()


FULL = {
    "of large parts": "a = []\nwhile True: a.append(bytearray(1 << 22))",
    "of small parts": "a = []\nwhile True: a = [a, 1.5]",
    "of texts": "a = {}\nwhile True: a[len(a)] = str(len(a)) * 9",
    "of nothing else": "held = []\nfor size in (1 << 26, 1 << 20, 1 << 12, 64):\n    try:\n"
    "        while True: held.append(bytes(size))\n    except MemoryError: pass\nbytearray(1 << 20)",
    "in C": "import zlib\nb = zlib.compress(bytes(1 << 26))\n[zlib.decompress(b) for _ in range(64)]",
    "in its value": "held = []\ntry:\n    while True: held.append(bytes(1 << 20))\nexcept MemoryError: del held[:20]\n"
    "'x' * (15 << 20)",
}


@real
@pytest.mark.parametrize("code", FULL.values(), ids=FULL)
async def test_who_takes_more_memory_than_there_is_is_told_so(code: str) -> None:
    async with staged(language="python", warm=0, address_space=128 << 20) as stage:
        assert (await stage.told(code)).startswith("\nSandbox error: MemoryError: memory limit exceeded")
        assert await stage.told("print('on')\n6 * 7") == "on\n42"


@real
async def test_the_host_knows_each_process_by_its_number() -> None:
    async with staged(language="python", warm=2) as stage:
        stage.pool.prepare()
        await until(lambda: stage.pool.ready == 2)
        assert len(set(stage.pool.pids)) == 2 and all(map(alive, stage.pool.pids))


@real
async def test_where_the_kernel_cannot_lock_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = confinement.Layers("Linux", "x86_64", 0, False)
    monkeypatch.setattr(confinement, "layers", lambda: poor)
    async with supervising() as supervisor:
        engine = PythonEngine(supervisor)
        with pytest.raises(Fault) as refused:
            await engine.start(lambda _: None, lambda _: None)
        assert "seccomp" in refused.value.message
        assert "landlock" in refused.value.message
        assert "Linux" in (refused.value.hint or "")
        assert engine.layers().endswith("none")
