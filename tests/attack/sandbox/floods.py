"""Scripts that want more than their share, as data: a name, code, what they are told in the end, and the seconds that
they may have. Those of `QUICK` are tried by `make test`."""

from __future__ import annotations

from typing import NamedTuple

EITHER = "Sandbox error: "
TIME = "Sandbox error: execution timed out after"
MEMORY = "Sandbox error: memory limit exceeded"
OUTPUT = "Sandbox error: output limit exceeded"
LENGTH = "Sandbox error: RangeError: Invalid string length"
TIMERS = "RangeError: at most 10000 timers may wait"
CALLS = "Sandbox error: Error: a run may make 1000 calls"
STACK = "Sandbox error: RangeError: Maximum call stack size exceeded"
FAILED = "Sandbox error: the sandbox failed: its process was killed"
SHORT, LONG = 2.0, 90.0  # seconds; V8 looks for room again and again before it gives up


class Flood(NamedTuple):
    name: str
    code: str
    told: str
    wall: float = LONG


FLOODS = (
    Flood("an empty loop", "for (;;);", TIME, SHORT),
    Flood("a loop behind a line", "console.log('before'); for (;;);", f"before\n{TIME}", SHORT),
    Flood("a loop of jobs", "for (;;) await null", TIME, SHORT),
    Flood("a loop of thenables", "for (;;) await { then(f) { f() } }", TIME, SHORT),
    # Which limit it meets first, time or memory, is a matter of the machine.
    Flood("jobs that make jobs", "const f = () => Promise.resolve().then(f); f(); await sleep(1e9)", EITHER, SHORT),
    Flood("a loop in a timer", "setTimeout(() => { for (;;); }, 1); await sleep(100)", TIME, SHORT),
    Flood("a loop in a getter of the result", "return { get a() { for (;;); } }", TIME, SHORT),
    Flood("a loop in toJSON of arguments", "await servers.shop.echo({ toJSON() { for (;;); } })", TIME, SHORT),
    Flood("a loop in the milliseconds", "await sleep({ valueOf() { for (;;); } })", TIME, SHORT),
    Flood("a loop in an error", "throw { get message() { for (;;); }, toJSON() { for (;;); } }", TIME, SHORT),
    Flood("a loop before the function", "}); for (;;); (async () => {", TIME, SHORT),
    Flood("a loop that catches all", "for (;;) { try { for (;;); } finally { continue } }", TIME, SHORT),
    Flood("a generator without end", "for (const x of (function* () { for (;;) yield 1 })());", TIME, SHORT),
    Flood("a pattern that goes back", "/^(a+)+$/.test('a'.repeat(40) + '!')", TIME, SHORT),
    Flood("a pattern over a long text", "for (;;) /(x+x+)+y/.test('x'.repeat(1e5))", TIME, SHORT),
    Flood("a sort that goes on", "for (;;) Array.from({ length: 1e6 }, Math.random).sort(() => 1)", TIME, SHORT),
    Flood("sums of large numbers", "let a = 3n; for (;;) { a = a * a; if (a > 10n ** 100000n) a = 3n }", TIME, SHORT),
    Flood("a power of large numbers", "return String(2n ** (2n ** 25n)).length", TIME, SHORT),
    Flood("sleep without end", "await sleep(1e12)", TIME, SHORT),
    Flood(
        "timers that make timers",
        "const f = () => { setTimeout(f); setTimeout(f) }; f(); await sleep(1e4)",
        TIMERS,
        SHORT,
    ),
    Flood("timers without end", "for (;;) setTimeout(() => 1, 1e4)", TIMERS),
    Flood("a full stack", "const f = () => f(); f()", STACK),
    Flood("a large array", "return new Array(1e9).fill(0)", MEMORY),
    Flood("arrays without end", "const a = []; for (;;) a.push(new Array(1000).fill(1.5))", MEMORY),
    Flood("objects without end", "let a; for (;;) a = { a, b: [1, 2, 3] }", MEMORY),
    Flood("a map without end", "const m = new Map(); for (let n = 0; ; n++) m.set(n, { n })", MEMORY),
    Flood("strings without end", "const a = []; for (let n = 0; ; n++) a.push(('x' + n).repeat(1000))", MEMORY),
    Flood("a text that is made one", "let s = 'x'; for (;;) { s += s; s.split('') }", MEMORY),
    Flood("a text that is too long", "let s = 'x'; for (;;) s += s", LENGTH),
    Flood("a repeated text", "return 'x'.repeat(2 ** 29)", LENGTH),
    Flood("promises without end", "const a = []; for (;;) a.push(new Promise(() => 1))", MEMORY),
    Flood("jobs without end", "for (;;) Promise.resolve([]).then((x) => x)", MEMORY),
    Flood("functions without end", "const a = []; for (let n = 0; ; n++) a.push(() => [n, a])", MEMORY),
    Flood("a text of JSON", "const a = '[' + '[1],'.repeat(1e7) + '1]'; return JSON.parse(a).length", MEMORY),
    Flood("a joined array", "return new Array(2 ** 25).join('abcdefghijklmnop')", MEMORY),
    Flood(
        "errors with long stacks",
        "const a = []; Error.stackTraceLimit = 1e9; for (;;) a.push(new Error('x'))",
        MEMORY,
    ),
    Flood("lines without end", "for (;;) console.log('x'.repeat(1000))", OUTPUT),
    Flood("short lines without end", "for (;;) console.log('')", TIME, SHORT),
    Flood("lines of escapes", "for (;;) console.log('\\0'.repeat(1e5))", OUTPUT),
    Flood("one long line", "console.log('x'.repeat(2e7))", OUTPUT),
    Flood("one long line of escapes", "console.log('\\0'.repeat(2e7))", MEMORY),
    Flood("a long result", "return 'x'.repeat(2e7)", OUTPUT),
    Flood("a result of many parts", "return new Array(3e6).fill('abc')", OUTPUT),
    Flood("a long error", "throw new Error('x'.repeat(2e7))", "Sandbox error: Error: xxx"),
    Flood("a long name", "await servers.shop['x'.repeat(1e6)]({})", "Sandbox error: ToolError: a name may have 1024"),
    Flood("long arguments", "await servers.shop.echo({ a: 'x'.repeat(2e7) })", OUTPUT),
    Flood("large arguments at once", "for (;;) servers.shop.echo({ a: 'x'.repeat(9e6) })", TIME, 5.0),
    Flood("calls without end", "for (;;) await servers.shop.echo({})", CALLS),
    Flood("calls at once", "for (;;) servers.shop.echo({})", MEMORY),
    Flood("calls that are not awaited", "for (;;) servers.shop.echo({}).catch(() => 1)", MEMORY),
    Flood(
        "results that nobody takes",
        "for (let n = 0; n < 900; n++) servers.shop.much(); await null; for (;;);",
        TIME,
        SHORT,
    ),
    Flood("results that are kept", "const a = []; for (;;) a.push(await servers.shop.much({}))", MEMORY),
    Flood("a batch without end", "await servers.batch(Array.from({ length: 1e6 }, () => ['shop', 'echo']))", MEMORY),
    Flood("code that is too long", "/*" + "x" * 51_200 + "*/", "mcp_execute error: code exceeds 51200 bytes"),
    Flood(
        "code that is nested",
        "return " + "[" * 20_000 + "]" * 20_000,
        STACK,
    ),
    Flood(
        "code of TypeScript that is nested",
        "const a: any = " + "(" * 20_000 + "1" + ")" * 20_000,
        FAILED,
    ),
)
QUICK = ("a loop behind a line", "arrays without end", "short lines without end", "calls at once", "timers without end")
