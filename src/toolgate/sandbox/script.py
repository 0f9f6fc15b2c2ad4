"""One run of Python code, in the process that a zygote has forked for it and locked: the worker's end of the bridge.

Standard library only. Nothing here keeps code from anything, the kernel does; so code that takes this file's objects
apart gets no more than what it may ask of the bridge anyhow. The rules this file keeps: what it writes is ASCII, a line
for each message; the last message says how the run ended; and nothing is said before the process is locked.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import difflib
import inspect
import io
import json
import linecache
import os
import platform
import selectors
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

FILE = "<script>"
AWAITED = "__awaited__"
VALUE = "__value__"
LONGEST_LOG = 512 * 1024  # characters of one line; a longer one is cut into several
LONGEST_MESSAGE = 10_000
LONGEST_STACK = 4_000
SPARE = 4 * 1024 * 1024  # bytes that are given back where code has used all memory, to say so
MEMORY = "memory limit exceeded"
DEEPEST = 100  # levels of a value that is taken apart since it is not JSON as it is
MOST_IN_FLIGHT = 64  # calls of a batch, where the host does not say
MOST_UNANSWERED = 1024 * 1024  # bytes of arguments; from then on the next call of a batch waits for an answer
CODE_IS_ASYNC = inspect.CO_COROUTINE
ENDS = (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)

# What reaches out of a process: of no use in a run, so that to import it says so. The kernel refuses it in any case.
HIDDEN = (
    "ctypes",
    "_ctypes",
    "socket",
    "_socket",
    "ssl",
    "_ssl",
    "subprocess",
    "_posixsubprocess",
    "locks",
    "resource",
)


class ToolError(Exception):
    """A tool failed, or was not called. `message` says why, `code` is the host's word for it, where it has one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Deadlock(BaseException):
    """Everything waits, and nothing is left that could come."""


class Bridge:
    """Messages to the host and back, one call or one batch at a time: code waits for what it calls."""

    def __init__(self, reading: int, writing: int) -> None:
        self._lines = open(reading, "rb", closefd=False)  # noqa: SIM115  for as long as the process lives
        self._writing = writing
        self._calls = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._unanswered: dict[int, int] = {}  # bytes of arguments, by the number of the call
        self.in_flight = MOST_IN_FLIGHT

    def say(self, message: dict[str, Any]) -> None:
        self.say_text(json.dumps(message, allow_nan=False))

    def say_text(self, message: str) -> None:
        left = memoryview(message.encode("ascii") + b"\n")
        while left:
            left = left[os.write(self._writing, left) :]

    def read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            os._exit(0)  # nobody is there any more
        return json.loads(line)

    def start(self, server: str, tool: str, arguments: Mapping[str, Any], raw: bool) -> int:
        """The number of the call. Raises `TypeError`, `ValueError` where the arguments are no JSON. Whatever it raises,
        the call is not made, and its number is still free: code that has no stack or memory left may catch that."""
        if not isinstance(tool, str):  # pyright: ignore  code gives what it likes
            raise TypeError(f"the name of a tool is text, not {type(tool).__name__}")
        try:
            written = json.dumps(arguments, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise type(error)(f"the arguments of {tool} cannot be sent as JSON: {error}") from None
        number = self._calls + 1
        target = f'"server": {json.dumps(server)}, "tool": {json.dumps(tool)}'
        self.say_text(f'{{"call": {number}, {target}, "arguments": {written}, "raw": {json.dumps(raw)}}}')
        self._calls = number
        self._unanswered[number] = len(written)
        return number

    @property
    def unanswered(self) -> int:
        """Bytes of the calls whose answers were not read yet."""
        return sum(self._unanswered.values())

    def answer(self, number: int) -> Any:
        """Raises `ToolError`."""
        while number not in self._answers:
            said = self.read()
            self._unanswered.pop(said["answer"], None)
            self._answers[said["answer"]] = said
        said = self._answers.pop(number)
        if "error" in said:
            raise ToolError(said["error"]["message"], said["error"].get("code"))
        return said.get("value")


class Tool:
    """A tool, to be called with its arguments by name, or with one dictionary of them."""

    def __init__(self, bridge: Bridge, server: str, name: str) -> None:
        self._bridge = bridge
        self._server = server
        self.__name__ = self._name = name

    def __call__(self, *given: Mapping[str, Any] | None, **arguments: Any) -> Any:
        return self._ask(given, arguments, raw=False)

    def raw(self, *given: Mapping[str, Any] | None, **arguments: Any) -> Any:
        """The whole result, as the protocol has it."""
        return self._ask(given, arguments, raw=True)

    def _ask(self, given: Sequence[Any], arguments: dict[str, Any], raw: bool) -> Any:
        if len(given) > 1 or not isinstance(given[0] or {} if given else {}, Mapping):
            raise TypeError(f"{self._name} takes its arguments by name, or one dictionary of them")
        for each in given:
            arguments = {**(each or {}), **arguments}
        return self._bridge.answer(self._bridge.start(self._server, self._name, arguments, raw))

    def __repr__(self) -> str:
        return f"<tool {self._name} of {self._server}>"


class Named(Mapping[str, Any]):
    """Things by name, as attributes too. A name that Python cannot write may be written with underscores."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __dir__(self) -> list[str]:
        return [*self._names]

    def _meant(self, name: str) -> str:
        if name in self._names:
            return name
        alike = [each for each in self._names if _identifier(each) == name]
        return alike[0] if len(alike) == 1 else name


class Server(Named):
    """A server's tools. Those that are not known here are asked for all the same: the host knows best."""

    def __init__(self, bridge: Bridge, name: str, tools: Sequence[str] | None) -> None:
        super().__init__(tools or ())
        self._bridge = bridge
        self._name = name

    def __getitem__(self, tool: str) -> Tool:
        return Tool(self._bridge, self._name, tool)

    def __getattr__(self, tool: str) -> Tool:
        if tool.startswith("__") and tool not in self:
            raise AttributeError(tool)
        return self[self._meant(tool)]

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Any:
        return self[tool](arguments, **more)

    def call_raw(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Any:
        return self[tool].raw(arguments, **more)

    callRaw = call_raw

    def __repr__(self) -> str:
        return f"<server {self._name} with {', '.join(self) or 'tools that are not known yet'}>"


class Servers(Named):
    def __init__(self, bridge: Bridge, servers: Mapping[str, Sequence[str] | None]) -> None:
        super().__init__(servers)
        self._bridge = bridge
        self._servers = {name: Server(bridge, name, tools) for name, tools in servers.items()}

    def __getitem__(self, name: str) -> Server:
        if name not in self._servers:
            raise KeyError(self._not_found(name))
        return self._servers[name]

    def __getattr__(self, name: str) -> Server:
        name = self._meant(name)
        if name not in self._servers:
            raise AttributeError(name if name.startswith("__") else self._not_found(name))
        return self._servers[name]

    def _not_found(self, name: object) -> str:
        near = difflib.get_close_matches(str(name), self, 3) or list(self)[:10]
        return f"there is no server {name!r}; " + (f"there is {', '.join(near)}" if near else "there is none at all")

    def batch(self, calls: Iterable[Any]) -> list[dict[str, Any]]:
        """Calls at once; what came of each, in their order: `{"ok": True, "value": ...}`, or `{"ok": False, "error":
        {"message": ..., "code": ...}}`. A call is `{"server": ..., "tool": ..., "arguments": {...}}`, or a list of the
        three. Nothing is called where one is not understood."""
        wanted = [_understood(call) for call in calls]
        came: list[dict[str, Any]] = []
        started: list[int] = []
        for number in range(len(wanted)):
            # Who writes does not read: while many large calls are written, answers come for which there is no room.
            while len(started) < min(len(wanted), number + self._bridge.in_flight) and (
                len(started) == number or self._bridge.unanswered < MOST_UNANSWERED
            ):
                started.append(self._bridge.start(*wanted[len(started)]))
            try:
                came.append({"ok": True, "value": self._bridge.answer(started[number])})
            except ToolError as error:
                why = {"message": error.message} | ({"code": error.code} if error.code else {})
                came.append({"ok": False, "error": why})
        return came

    def __repr__(self) -> str:
        return f"<servers {', '.join(self)}>"


def _understood(call: Any) -> tuple[str, str, Mapping[str, Any], bool]:
    by_name: Any = call if isinstance(call, Mapping) else dict(zip(("server", "tool", "arguments"), call, strict=False))  # pyright: ignore
    server, tool, arguments = by_name.get("server"), by_name.get("tool"), by_name.get("arguments", by_name.get("args"))
    if not (isinstance(server, str) and isinstance(tool, str) and isinstance(arguments or {}, Mapping)):
        raise TypeError('servers.batch takes a list of {"server": "name", "tool": "tool", "arguments": {}}')
    return server, tool, arguments or {}, by_name.get("raw") is True


def _identifier(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)


# What code writes.


class Console(io.TextIOBase):
    """Lines for the host, as they come."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._log(line)
        while len(self._begun) > LONGEST_LOG:
            self._log(self._begun[:LONGEST_LOG])
            self._begun = self._begun[LONGEST_LOG:]
        return len(text)

    def _log(self, line: str) -> None:
        for start in range(0, len(line) or 1, LONGEST_LOG):
            self._bridge.say({"log": line[start : start + LONGEST_LOG]})

    def end(self) -> None:
        if self._begun:
            self._log(self._begun)
            self._begun = ""


# Values for the host.


def as_json(value: Any) -> str:
    """What is no JSON is shown as Python shows it."""
    try:
        return json.dumps(value, allow_nan=False, default=shown)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(_taken_apart(value, 0), allow_nan=False)


def shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  the rescue: code's own `__repr__` may raise anything
        if isinstance(value, int):
            return f"<a number of {value.bit_length()} bits>"
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _taken_apart(value: Any, depth: int) -> Any:
    """The same with what JSON lacks as text: NaN, very long numbers, keys that are not text, what contains itself."""
    if value is None or isinstance(value, bool | str):
        return value
    if depth < DEEPEST and isinstance(value, dict):
        return {_key(key): _taken_apart(each, depth + 1) for key, each in value.items()}  # pyright: ignore
    if depth < DEEPEST and isinstance(value, list | tuple):
        return [_taken_apart(each, depth + 1) for each in value]  # pyright: ignore
    text = shown(value) if depth < DEEPEST else "..."
    try:
        return json.loads(text, parse_constant=str) if isinstance(value, int | float) else text
    except ValueError:
        return text


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    return json.dumps(key) if key is None or isinstance(key, bool) else shown(key)


# The code.


class Awaits(ast.NodeTransformer):
    """Has `await` take values that are there already, as those of tools are."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        called = ast.Call(ast.Name(AWAITED, ast.Load()), [node.value], [])
        return ast.copy_location(ast.Await(ast.copy_location(called, node)), node)


def compiled(code: str) -> types.CodeType:
    """Code that leaves the value of its last expression in `VALUE`. Raises `SyntaxError`, `ValueError`."""
    tree = Awaits().visit(ast.parse(code, FILE))
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        tree.body[-1] = ast.copy_location(ast.Assign([ast.Name(VALUE, ast.Store())], last.value), last)
    ast.fix_missing_locations(tree)
    return compile(tree, FILE, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def soon(value: Any) -> Any:
    return value if inspect.isawaitable(value) else awaited(value)


class Waiting(selectors.SelectSelector):
    """Of an event loop that waits for time alone: nothing else comes here."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise Deadlock
        return super().select(timeout)


def takes_values(function: Callable[..., Any], many: bool) -> Callable[..., Any]:
    """One of asyncio's functions, which takes values that are there already where it takes what is awaited."""

    def taking(first: Any, *rest: Any, **named: Any) -> Any:
        return function([soon(each) for each in first] if many else soon(first), *rest, **named)

    return taking


def prepare_asyncio() -> None:
    """Before the process is forked or locked, or after."""
    gather = asyncio.gather
    asyncio.gather = lambda *many, **named: gather(*map(soon, many), **named)  # pyright: ignore
    for name in ("wait_for", "create_task", "ensure_future", "shield", "run"):
        setattr(asyncio, name, takes_values(getattr(asyncio, name), many=False))
    asyncio.as_completed = takes_values(asyncio.as_completed, many=True)
    selectors.DefaultSelector = Waiting  # pyright: ignore


def execute(code: types.CodeType, module: types.ModuleType) -> Any:
    """What came of it, or None."""
    names = vars(module)
    run: Callable[[], Any] = types.FunctionType(code, names)
    if code.co_flags & CODE_IS_ASYNC:
        asyncio.run(run())
    else:
        run()
    value = names.get(VALUE)
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    return names.get("result") if value is None else value


class Importer:
    """Says why a module is not there, behind those that find what is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        why = "it is not there in this sandbox: it has most of the standard library, no files, no network, no processes"
        raise ModuleNotFoundError(f"No module named {name!r}: {why}", name=name)


def hide() -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in HIDDEN]:
        del sys.modules[name]
    sys.path[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[2:] = [Importer()]  # behind what is built in and frozen


def main(reading: int, writing: int) -> None:
    """Take one run, carry it out and say what came of it."""
    bridge = Bridge(reading, writing)
    hide()
    bridge.say({"ready": f"python {platform.python_version()}"})
    wanted = bridge.read()["run"]
    limits: dict[str, Any] = wanted.get("limits") or {}
    bridge.in_flight = limits.get("in_flight") or MOST_IN_FLIGHT
    module = types.ModuleType("__main__")
    given: dict[str, Any] = {
        "__builtins__": builtins,
        "servers": Servers(bridge, wanted.get("servers") or {}),
        "ToolError": ToolError,
        AWAITED: awaited,
    }
    vars(module).update(given, **{"data": wanted["data"]} if "data" in wanted else {})
    sys.modules["__main__"] = module
    console = Console(bridge)
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = console  # pyright: ignore
    sys.stdin = sys.__stdin__ = io.StringIO()  # pyright: ignore
    end = ended(str(wanted.get("code", "")), module)
    try:
        console.end()
    finally:
        bridge.say_text(end)


def ended(code: str, module: types.ModuleType) -> str:
    """The last message."""
    linecache.cache[FILE] = (len(code), None, code.splitlines(keepends=True), FILE)
    spare = bytearray(SPARE)
    try:
        value = execute(compiled(code), module)
    except Deadlock:
        return '{"deadlock": true}'
    except SystemExit as error:
        if error.code:
            return failure("SystemExit", str(error.code), "")
        value = vars(module).get("result")
    except ENDS as error:  # the rescue: whatever code raises is how its run ended
        del spare
        return failed(error)
    try:
        return '{"done": {"absent": true}}' if value is None else f'{{"done": {{"value": {as_json(value)}}}}}'
    except ENDS as error:  # the rescue: of values that cannot even be shown
        del spare
        return failed(error)


def failed(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  the rescue: code's own `__str__` may raise anything
        message = ""
    if isinstance(error, MemoryError):
        message = f"{MEMORY} ({message})" if message else MEMORY  # what zlib says is about itself
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == FILE]
    stack = "".join(traceback.format_list(frames[-20:]))
    if isinstance(error, SyntaxError):
        stack = "".join(traceback.format_exception_only(type(error), error))
    return failure(type(error).__name__, message, stack)


def failure(name: str, message: str, stack: str) -> str:
    said = {"name": name, "message": message[:LONGEST_MESSAGE]}
    return json.dumps({"failed": said | ({"stack": stack[:LONGEST_STACK]} if stack else {})})
