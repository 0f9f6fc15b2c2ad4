"""Attempts of JavaScript to get out of its sandbox, as data.

Each attempt is a name, code, and what would count as an escape. Those of `escapes.js` are written one by one, the
others follow from the tables below. The code has what `helpers.js` has: `look(value, path)` follows all that can be
reached from a value (members, getters, prototypes, constructors) and logs ESCAPED where an object of another realm is
among it, or where a constructor makes code out of text; `escaped(why)` and `never(…found)` are for all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SECRET = "canary-8d1f"  # in the environment of the gateway
FORGED = '"FORGED"'  # the result, where the host takes a forged line for a true one

HERE = Path(__file__).parent
HELPERS = (HERE / "helpers.js").read_text()

ESCAPES = {
    "realm": "an object of Deno's realm is reached, or code is made out of text",
    "name": "a name is there that is not on the list",
    "file": "a module, a file or a host is reached",
    "bridge": "the bridge hands out what it has, or does as it should not",
    "host": "the host takes a forged line for a true one, or fails",
    "path": "a path of this machine is told",
    "late": "a tool is called after the end",
    "secret": "a secret of the gateway's environment is told",
}

WALKED = {
    "this": "this",
    "the object that functions have": "(function () { return this })()",
    "servers": "servers",
    "a server": "servers.shop",
    "a server that is not there": "servers.nowhere",
    "a tool": "servers.shop.echo",
    "call": "servers.shop.call",
    "callRaw": "servers.shop.callRaw",
    "batch": "servers.batch",
    "the promise of a call": "servers.shop.echo({})",
    "the result of a call": "await servers.shop.echo({ a: [1] })",
    "the result of a batch": "await servers.batch([['shop', 'echo', {}], ['shop', 'fail', {}]])",
    "the error of a call": "await servers.shop.fail({}).catch((e) => e)",
    "the error of arguments": "await servers.shop.echo(1).catch((e) => e)",
    "the error of hostile arguments": "await servers.shop.echo({ get a() { throw null } }).catch((e) => e)",
    "the error of a batch": "(() => { try { servers.batch(1) } catch (e) { return e } })()",
    "the iterator of servers": "servers[Symbol.iterator]()",
    "an entry of servers": "[...servers][0]",
    "an entry of a server": "[...servers.shop][0]",
    "descriptors of servers": "Object.getOwnPropertyDescriptors(servers)",
    "descriptors of a server": "Object.getOwnPropertyDescriptors(servers.shop)",
    "keys of servers": "Object.keys(servers)",
    "entries of a server": "Object.entries(servers.shop)",
    "console": "console",
    "console.log": "console.log",
    "what console.log returns": "console.log('x')",
    "sleep": "sleep",
    "the promise of sleep": "sleep(1)",
    "setTimeout": "setTimeout",
    "a timer": "setTimeout(() => 1, 1)",
    "the error of setTimeout": "(() => { try { setTimeout('1') } catch (e) { return e } })()",
    "the error of hostile milliseconds": "(() => { try { sleep(Symbol()) } catch (e) { return e } })()",
    "clearTimeout": "clearTimeout",
    "an async function": "(async () => 1)",
    "its constructor": "(async () => 1).constructor",
    "a generator": "(function* () {})",
    "an async generator": "(async function* () {})",
    "arguments": "arguments",
    "a syntax error of JSON": "(() => { try { JSON.parse('{') } catch (e) { return e } })()",
    "a full stack": "(() => { const f = () => f(); try { f() } catch (e) { return e } })()",
    "the error of import": "await import('node:fs').catch((e) => e)",
    "the error of eval": "(() => { try { eval('1') } catch (e) { return e } })()",
    "the error of an indirect eval": "(() => { try { (0, eval)('1') } catch (e) { return e } })()",
    "a template of strings": "((s) => s)`a${1}`",
    "a regular expression": "/a/g[Symbol.matchAll]('a')",
    "a date": "new Date()",
    "prepareStackTrace": "Error.prepareStackTrace",
    "captureStackTrace": "(() => { const o = {}; Error.captureStackTrace(o); return [o, o.stack] })()",
    "an aggregate error": "await Promise.any([Promise.reject(1)]).catch((e) => e)",
    "a tagged iterator": "[1].values().map((x) => x)",
    "all globals": "[JSON, Math, Date, Array, Map, Set, Promise, Object, String, Number, Boolean, RegExp, Error]",
    "all errors": "[AggregateError, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError]",
    "the rest": "[Symbol, BigInt, WeakMap, WeakSet, parseInt, parseFloat, isNaN, isFinite, encodeURI, decodeURI, eval]",
}

FUNCTIONS = {
    "console.log": "console.log('x')",
    "console.log of an object": "console.log({ a: 1 })",
    "a call": "servers.shop.echo({}).catch(look)",
    "callRaw": "servers.shop.callRaw('echo', {}).catch(look)",
    "batch": "servers.batch([['shop', 'echo', {}]]).catch(look)",
    "sleep": "sleep(1).catch(look)",
    "setTimeout": "setTimeout(() => 1, 1)",
    "clearTimeout": "clearTimeout(1)",
    "import": "import('x').catch(look)",
    "eval": "eval('1')",
    "a stack trace": "look(new Error('x').stack)",
    "a captured stack trace": "Error.captureStackTrace({})",
    "JSON": "JSON.parse('{')",
    "a rejected promise": "Promise.reject(new Error('x'))",
    "a member of servers": "servers['x' + Math.random()]",
    "the keys of servers": "Object.keys(servers)",
    "a regular expression": "/(a+)+$/.test('aaaa!')",
}


NAMES = (
    *(
        "process",
        "require",
        "module",
        "exports",
        "Buffer",
        "__dirname",
        "__filename",
        "SharedArrayBuffer",
        "WebAssembly",
    ),
    *("fetch", "globalThis", "Deno", "ArrayBuffer", "Uint8Array", "Atomics", "Reflect", "Proxy"),
    *(
        "queueMicrotask",
        "FinalizationRegistry",
        "WeakRef",
        "Intl",
        "Temporal",
        "Iterator",
        "Function",
        "Worker",
        "window",
        "self",
    ),
    *("ShadowRealm", "escape", "unescape", "DisposableStack", "Float16Array", "DataView", "navigator", "location"),
    *("global", "structuredClone", "performance", "setInterval", "setImmediate", "WebSocket"),
)
SPECIFIERS = (
    *("node:fs", "fs", "file:///etc/passwd", "/etc/passwd", "./worker.js", "prelude.js", "script.js"),
    *("data:text/javascript,export default 1", "data:application/json,{}", "https://127.0.0.1/a.js"),
    *("http://127.0.0.1/a.js", "npm:left-pad", "jsr:@std/fs", "blob:null/1", "ext:core/mod.js", "deno:x", ""),
)

# What the bridge touches: a script has its own instead, and then uses all that it is given.
REPLACED = (
    *("JSON.stringify", "JSON.parse", "Object.prototype.toJSON", "String.prototype.toJSON", "BigInt.prototype.toJSON"),
    *("Promise.prototype.then", "Promise.resolve", "Array.prototype.push", "Array.prototype[Symbol.iterator]"),
    *("String.prototype.slice", "Map.prototype.forEach", "Object.defineProperty", "Object.getPrototypeOf"),
    *("RegExp.prototype[Symbol.replace]", "RegExp.prototype.exec", "Error.captureStackTrace", "Error.isError"),
    *("Object.prototype.toString", "Array.isArray", "Date.now", "Math.min", "(() => 1).__proto__.call"),
    *("(() => 1).__proto__.bind", "(() => 1).__proto__.apply"),
)
ACCESSORS = ("0", "1", "value", "get", "set", "then", "resolve", "reject", "code", "message", "length", "callRaw")
USED = """
console.log('a', {}, 1n, new Map());
try { look(await servers.shop.echo({ a: 1 }), 'r') } catch (e) { look(e, 'e') }
try { await servers.batch([['shop', 'fail', {}]]) } catch (e) { look(e) }
setTimeout(() => 1, 1);
await sleep(3);
"""


class Attempt(NamedTuple):
    name: str
    code: str
    escape: str  # what would count as one

    @property
    def whole(self) -> str:
        """With what it has at hand, also outside of the function that it closes."""
        before, closing, behind = self.code.partition("});")
        if closing and before in ("", "return 1\n"):
            return before + closing + HELPERS + behind
        return self.code if self.code.startswith("#!") else HELPERS + self.code


def _written() -> Iterator[Attempt]:
    _, *parts = (HERE / "escapes.js").read_text().split("\n//// ")
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        escape, _, code = part.partition("\n")
        yield Attempt(name, code.strip("\n"), ESCAPES[escape])


def _made() -> Iterator[Attempt]:
    realm = ESCAPES["realm"]
    for name, code in WALKED.items():
        yield Attempt(f"what is reached from {name}", f"look({code}, 'x')", realm)
    for name, code in FUNCTIONS.items():
        full = f"for (let n = 0; n < 3; n++) deep(() => {code});\nawait sleep(5)"
        yield Attempt(f"a full stack in {name}", full, realm)
    for name in NAMES:
        yield Attempt(f"the name {name}", f"if (typeof {name} !== 'undefined') escaped('{name}')", ESCAPES["name"])
    for specifier in SPECIFIERS:
        code = f"never(...Object.keys(await import({specifier!r}).catch((e) => (look(e), {{}}))))"
        yield Attempt(f"import of {specifier!r}", code, ESCAPES["file"])
    for what in REPLACED:
        code = f"{what} = function (...all) {{ look(this, 'this'); look(all, 'arguments'); return 'x' }};"
        yield Attempt(f"{what} replaced", code + USED, realm)
    for key in ACCESSORS:
        hooks = "get() { look(this, 'get'); return undefined }, set(v) { look(this, 'set'); look(v, 'v') }"
        code = f"Object.defineProperty(Object.prototype, {key!r}, {{ configurable: true, {hooks} }});"
        yield Attempt(f"an accessor for {key} above all objects", code + USED, realm)


ATTEMPTS = (*_made(), *_written())
