"""JavaScript in real processes: what a script finds, and what comes of it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from processes.ground import offspring, real, started, until
from processes.sandbox_stage import Stage, staged

from toolgate.core.fault import Fault
from toolgate.sandbox.run import Host, Rests, SandboxError

# What seed 002 says is there, and what is not.
THERE = (
    *(
        "JSON",
        "Math",
        "Date",
        "Array",
        "Map",
        "Set",
        "Promise",
        "Object",
        "String",
        "Number",
        "Boolean",
        "RegExp",
        "Error",
    ),
    *("parseInt", "parseFloat", "isNaN", "isFinite", "encodeURIComponent", "decodeURIComponent", "encodeURI"),
    *("decodeURI", "setTimeout", "clearTimeout", "console", "sleep", "servers"),
)
NOT_THERE = (
    *("process", "require", "module", "exports", "Buffer", "__dirname", "__filename", "SharedArrayBuffer"),
    *("WebAssembly", "fetch", "globalThis", "Function"),
)
EXTRAS = ("Symbol", "BigInt", "WeakMap", "WeakSet", "TypeError", "RangeError", "SyntaxError", "AggregateError")


async def value(stage: Stage, code: str, **more: Any) -> Any:
    ran = await stage.pool.run(code, stage.host(), **more)
    return None if ran.value is None else json.loads(ran.value)


def of_the_seed() -> tuple[Host, list[tuple[str, str, Any]]]:
    called: list[tuple[str, str, Any]] = []

    async def call(server: str, tool: str, arguments: bytes, raw: bool, rests: Rests) -> bytes:
        called.append((server, tool, json.loads(arguments)))
        return json.dumps({"did": tool}).encode()

    return Host({"sqlite": ["query"], "playwright": ["browser_navigate", "browser_screenshot"]}, call), called


@real
async def test_the_examples_of_the_seed_run() -> None:
    host, called = of_the_seed()
    async with staged() as stage:
        first = (
            "const result = await servers.sqlite.call('query', { sql: 'SELECT count(*) FROM users' }); return result;"
        )
        assert (await stage.pool.run(first, host)).value == b'{"did":"query"}'
        second = (
            "await servers.playwright.call('browser_navigate', { url: 'https://example.com' });"
            " const screenshot = await servers.playwright.call('browser_screenshot', {});"
            " const dbStatus = await servers.sqlite.call('query', { sql: 'SELECT 1' });"
            " return { screenshot, dbStatus };"
        )
        both = json.loads((await stage.pool.run(second, host)).value or b"")
        assert both == {"screenshot": {"did": "browser_screenshot"}, "dbStatus": {"did": "query"}}
        third = (
            "console.log('Navigating...');"
            " await servers.playwright.call('browser_navigate', { url: 'https://example.com' });"
            " await sleep(20); console.log('Taking screenshot...');"
            " const result = await servers.playwright.call('browser_screenshot', {}); return result;"
        )
        ran = await stage.pool.run(third, host)
        assert (ran.logs, ran.value) == ("Navigating...\nTaking screenshot...", b'{"did":"browser_screenshot"}')
    assert called[0] == ("sqlite", "query", {"sql": "SELECT count(*) FROM users"})
    assert called[-1] == ("playwright", "browser_screenshot", {})


@real
async def test_what_the_seed_names_is_there_and_the_rest_is_not() -> None:
    async with staged() as stage:
        listed = ", ".join(f"typeof {name}" for name in THERE + EXTRAS)
        assert "undefined" not in await value(stage, f"return [{listed}]")
        listed = ", ".join(f"typeof {name}" for name in NOT_THERE)
        assert set(await value(stage, f"return [{listed}]")) == {"undefined"}
        eval_ = "try { eval('1') } catch (e) { return [e.name, e instanceof EvalError] }"
        assert await value(stage, eval_) == ["EvalError", True]
        made = "try { return (() => 1).constructor('return 1')() } catch (e) { return e.name }"
        assert await value(stage, made) == "EvalError"
        listed = ", ".join(f"typeof {name}" for name in EXTRAS)
        assert set(await value(stage, f"return [{listed}]", strict=True)) == {"undefined"}
        listed = ", ".join(f"typeof {name}" for name in THERE)
        assert "undefined" not in await value(stage, f"return [{listed}]", strict=True)


WAYS = {
    "an attribute": "await servers.shop.echo({ n: 1 })",
    "an index": "await servers['shop']['echo']({ n: 1 })",
    "call": "await servers.shop.call('echo', { n: 1 })",
    "callRaw": "await servers.shop.callRaw('echo', { n: 1 })",
    "computed names": "await servers['sh' + 'op']['ec' + 'ho']({ n: 1 })",
    "aliases": "await (() => { const { shop } = servers; const { echo } = shop; return echo({ n: 1 }) })()",
    "an alias of call": "await (() => { const c = servers.shop.call; return c('echo', { n: 1 }) })()",
    "apply": "await servers.shop.call.apply(null, ['echo', { n: 1 }])",
    "entries": "await Object.fromEntries(Object.entries(servers)).shop.echo({ n: 1 })",
    "iteration over servers": "await [...servers].find(([name]) => name === 'shop')[1].echo({ n: 1 })",
    "iteration over a server": "await [...servers.shop].find(([name]) => name === 'echo')[1]({ n: 1 })",
    "for in": "await (() => { for (const n in servers) if (n === 'shop') return servers[n].echo({ n: 1 }) })()",
    "a batch": "(await servers.batch([{ server: 'shop', tool: 'echo', arguments: { n: 1 } }]))[0].value",
    "a batch of lists": "(await servers.batch([['shop', 'echo', { n: 1 }]]))[0].value",
}


@real
async def test_all_ways_reach_the_same_tool() -> None:
    async with staged(warm=1) as stage:
        for way, code in WAYS.items():
            stage.called.clear()
            assert (way, await value(stage, f"return {code}")) == (way, {"n": 1})
            assert stage.called == [("shop", "echo")]


@real
async def test_names_are_told_as_they_are() -> None:
    async with staged() as stage:
        names = "Object.keys(servers), Object.keys(servers.shop)"
        code = f"return [{names}, 'shop' in servers, 'x' in servers, typeof servers.x]"
        found = await value(stage, code)
        assert found == [["shop", "batch", "__proto__", 'a"b\n\u2028'], ["echo", "fail", "much"], True, False, "object"]
        assert await value(stage, "return await servers.batch.echo({ n: 2 })") == {"n": 2}
        assert await value(stage, "return (await servers.batch([['batch', 'echo', { n: 2 }]]))[0].value") == {"n": 2}
        assert await value(stage, "return await servers['__proto__'].echo({ n: 3 })") == {"n": 3}
        assert await value(stage, "return servers.then === undefined && (await servers) === servers") is True


@real
async def test_errors_can_be_caught_and_say_what_the_host_says() -> None:
    async with staged() as stage:
        code = "try { await servers.shop.ecko() } catch (e) { return [e.name, e.message, e.code, e instanceof Error] }"
        said = ["ToolError", "no tool ecko on shop: did you mean echo?", "TOOL_NOT_FOUND", True]
        assert await value(stage, code) == said
        with pytest.raises(SandboxError) as raised:
            await value(stage, "console.log('before');\nawait servers.shop.ecko({});")
        assert raised.value.message.startswith("ToolError: no tool ecko on shop") and raised.value.logs == "before"
        with pytest.raises(SandboxError, match=r"TypeError: bad\n    at f \(script.js:1:22\)\n    at script.js:2:1$"):
            await value(stage, "function f() { throw new TypeError('bad') }\nf()")
        with pytest.raises(SandboxError, match="the arguments of echo on shop must be an object"):
            await value(stage, "await servers.shop.echo([1])")


@real
async def test_a_batch_has_results_in_order_and_failures_as_values() -> None:
    async with staged() as stage:
        code = "return servers.batch([['shop', 'echo', { n: 1 }], ['shop', 'fail'], { server: 'shop', tool: 'echo' }])"
        assert await value(stage, code) == [
            {"ok": True, "value": {"n": 1}},
            {"ok": False, "error": {"code": "TOOL_NOT_FOUND", "message": "no tool fail on shop: did you mean echo?"}},
            {"ok": True, "value": {}},
        ]


LARGE_CALLS = {
    "a batch": "servers.batch(Array.from({ length: 40 }, (_, n) => ['shop', 'echo', { a, n }]))",
    "all": "Promise.all(Array.from({ length: 40 }, async (_, n) => ({ ok: true, value: await shop.echo({ a, n }) })))",
}


@real
@pytest.mark.parametrize("calls", LARGE_CALLS.values(), ids=LARGE_CALLS)
async def test_of_large_calls_that_are_made_at_once_no_result_is_lost(calls: str) -> None:
    async with staged() as stage:
        code = f"const a = 'x'.repeat(1e6), {{ shop }} = servers;\nconst came = await {calls};"
        assert await value(stage, f"{code}\nreturn came.map((each) => each.ok && each.value.n)") == [*range(40)]
        code += "\nconst more = await servers.batch(Array.from({ length: 70 }, (_, n) => ['shop', 'echo', { n }]))"
        assert await value(stage, f"{code}\nreturn more.map((each) => each.ok && each.value.n)") == [*range(70)]
        assert len(stage.called) == 40 + 110


VALUES = {
    "return 'text'": '"text"',
    "return": None,
    "": None,
    "// nothing": None,
    "return undefined": None,
    "return null": "null",
    "return 1.5": "1.5",
    "return NaN": "null",
    "return 10n": '"10"',
    "return { a: [1n, undefined, () => 1], b: undefined }": '{"a":["1",null,null]}',
    "const a = { b: 1 }; a.a = a; return [a, a]": '[{"b":1,"a":"[Circular]"},{"b":1,"a":"[Circular]"}]',
    "return new Map([['a', new Set([1])]])": '{"a":[1]}',
    "return new Map([[1, 2]])": "[[1,2]]",
    "return new Date(0)": '"1970-01-01T00:00:00.000Z"',
    "return [new TypeError('x'), /a/g]": '[{"name":"TypeError","message":"x"},"/a/g"]',
    "return { then(f) { f(5) } }": "5",
    "return { toJSON: () => ({ a: 1 }) }": '{"a":1}',
    "return Promise.resolve(Promise.resolve(6))": "6",
    "return '\\ud83d\\u2028é'": '"\\ud83d\\u2028\\u00e9"',
    "return () => 1": None,
    "return { get a() { return 7 } }": '{"a":7}',
    "const n: number = 1; interface A { b: string }\nreturn n as any": "1",
    "```ts\nreturn 1 satisfies number\n```": "1",
    "function f(a: number): number { if (a) { return 1 } else { return 2 } }\nreturn f(0)": "2",
    "x = 5; return x": "5",
    "return await Promise.all([1, 2].map(async (n) => (await sleep(1), n)))": "[1,2]",
    "return 1 // last": "1",
    "'use strict'; return this === undefined": "true",
}


@real
async def test_values_come_as_they_can_be_read_best() -> None:
    async with staged(warm=1) as stage:
        for code, written in VALUES.items():
            ran = await stage.pool.run(code, stage.host())
            assert (code, ran.value and ran.value.decode()) == (code, written)


LINES = {
    "console.log('a', 1, null, undefined, true, { b: [1] }, [2])": 'a 1 null undefined true {"b":[1]} [2]',
    "console.log('%s: %d, %i, %j, 100%%', 'x', 1.5, 1.5, { a: 1 }, 'more')": 'x: 1.5, 1, {"a":1}, 100% more',
    "console.log('100%', 5)": "100% 5",
    "console.error(new TypeError('x').message, 5n, Symbol('s'), () => 1, function f() {})": (
        "x 5n Symbol(s) [Function] [Function: f]"
    ),
    "console.log({ get a() { throw new Error('no') } })": "[cannot be shown: no]",
    "console.log()": "",
    "console.dir({ a: 1 })": '{\n  "a": 1\n}',
    "console.assert(false, 'x'); console.assert(true)": "Assertion failed: x",
    "setTimeout(() => { throw new TypeError('late') }, 1); await sleep(20)": (
        "Uncaught TypeError: late\n    at script.js:1:26"
    ),
    "Promise.reject(new Error('unseen')); servers.shop.fail({}); await sleep(20); console.log('on')": "on",
    "setTimeout(console.log, 1, 'x'); clearTimeout(setTimeout(console.log, 5, 'y')); await sleep(20)": "x",
    "for (let n = 0; n < 300; n++) console.log(n)": "\n".join(map(str, range(300))),
}


@real
async def test_the_console_says_what_it_is_told() -> None:
    async with staged(warm=1) as stage:
        for code, lines in LINES.items():
            assert (code, (await stage.pool.run(code, stage.host())).logs) == (code, lines)


@real
async def test_sleep_is_shortened_with_a_warning() -> None:
    async with staged(sleep=20) as stage:
        ran = await stage.pool.run("await sleep(1e9); setTimeout(() => 1, 21); await sleep(-1); return 1", stage.host())
        assert ran.logs == (
            "warning: sleep waits at most 20 ms, not 1000000000\nwarning: setTimeout waits at most 20 ms, not 21"
        )


@real
async def test_a_wait_in_vain_is_told_at_once() -> None:
    async with staged(warm=1) as stage:
        for code in (
            "await new Promise(() => {})",
            "await sleep(5); await servers.shop.echo({}); await new Promise(() => {})",
            "setTimeout(() => console.log('timer'), 10); await { then() {} }",
        ):
            with pytest.raises(SandboxError, match="the code waits for something that can never happen"):
                await stage.pool.run(code, stage.host())


@real
async def test_code_that_cannot_be_read_says_why() -> None:
    async with staged(warm=1) as stage:
        for code in (
            "return (",
            "let a = ;",
            "import fs from 'fs'",
            "enum A { B }",
            "await = 1",
            "const a = 1; const a = 2",
        ):
            with pytest.raises(SandboxError, match="SyntaxError: "):
                await stage.pool.run(code, stage.host())


@real
async def test_data_is_there_where_it_is_given() -> None:
    async with staged() as stage:
        assert await value(stage, "return data.a + 1", data=b'{"a": 41}') == 42
        assert await value(stage, "return typeof data") == "undefined"


@real
async def test_a_long_line_is_put_together_again_wherever_it_was_cut() -> None:
    async with staged(warm=1) as stage:
        for length in (65_000, 65_536, 300_001):
            data = json.dumps("a" + "\u20ac\U0001d11e" * length, ensure_ascii=False).encode()
            code = f"return [data.length, data === 'a' + '\u20ac\U0001d11e'.repeat({length})]"
            assert await value(stage, code, data=data) == [1 + 3 * length, True]


@real
async def test_many_calls_are_under_way_at_once() -> None:
    async with staged() as stage:
        code = (
            "const calls = Array.from({ length: 1000 }, (_, n) => servers.shop.echo({ n }));"
            " return (await Promise.all(calls)).map((result) => result.n)"
        )
        assert await value(stage, code) == list(range(1000))


@real
async def test_runs_at_once_know_nothing_of_each_other() -> None:
    async with staged(warm=2) as stage:
        code = (
            "const mine = %d; Object.prototype.x = mine; await sleep(20);"
            " return [({}).x, mine, (await servers.shop.echo({ mine })).mine]"
        )
        found = await asyncio.gather(*(value(stage, code % number) for number in range(32)))
        assert found == [[number] * 3 for number in range(32)]


AT_EVERY_DEPTH = """
const asked = [];
const act = (n) => {
  const given = { n, text: 'é'.repeat(n % 3 ? 10 : 3000) };
  const came = servers.shop.callRaw('echo', given);
  asked.push(came.then((value) => value.n === n ? 'answered' : 'mixed up', (e) => e.message));
  console.log(n);
};
let said = 0, depth = 0;
(function down() { try { down() } catch {} depth += 1; if (said < 40) try { act(depth); said += 1 } catch {} })();
const told = await Promise.all(asked);
return { answered: told.filter((each) => each === 'answered').length, others: [...new Set(told)].sort(), said }
"""


@real
async def test_calls_where_the_stack_is_full_are_made_whole_or_fail_in_the_code() -> None:
    async with staged() as stage:
        for _ in range(3):
            stage.called.clear()
            ran = await stage.pool.run(AT_EVERY_DEPTH, stage.host())
            told = json.loads(ran.value or b"")
            assert {*told["others"]} <= {"answered", "Maximum call stack size exceeded"}
            assert told["answered"] == len(stage.called) > 0, "no call is made that the code takes for failed"
            assert len(ran.logs.splitlines()) >= told["said"] == 40, "no line is lost"


@real
async def test_a_cancelled_run_leaves_no_process() -> None:
    async with staged() as stage:
        run = asyncio.ensure_future(stage.pool.run("await servers.shop.echo({}); for (;;);", stage.host()))
        await until(lambda: stage.called)
        (process,) = [pid for pid in started() if pid]
        run.cancel()
        await asyncio.wait([run])
        await until(lambda: process not in started())
        assert run.cancelled()


@real
async def test_runs_leave_no_process() -> None:
    async with staged(warm=2) as stage:
        for number in range(20):
            assert await value(stage, f"return {number}") == number
        await until(lambda: len(started()) <= 2)
    assert not offspring()


@real
async def test_without_its_engine_an_error_says_what_to_install() -> None:
    before = sys.modules.get("deno")
    sys.modules["deno"] = None  # type: ignore[assignment]
    try:
        async with staged() as stage:
            with pytest.raises(Fault) as raised:
                await stage.pool.run("return 1", stage.host())
    finally:
        del sys.modules["deno"]
        if before:
            sys.modules["deno"] = before
    assert raised.value.hint == "pip install 'toolgate[sandbox]'"
