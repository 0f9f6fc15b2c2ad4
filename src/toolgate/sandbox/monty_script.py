"""What holds monty: one run of Python code in an interpreter without ways out, and the worker's end of the bridge.

A program of its own, standard library and monty only; `script` is to be found without toolgate (`monty.COMMAND`). The
interpreter is a process of its own beside this one. The rules this file keeps: the code has `_call` and `_batch` of
this process, and nothing else of it; values go through JSON on their way to the host.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

MOST_WAITS = 1_000_000  # calls, sleeps and names that are asked for: the bridge counts calls itself
LONGEST_SLEEP = 30.0  # seconds

# `servers` in the interpreter's own Python, which has no `__getattr__` and no classes below others.
PRELUDE = """
class _Tool:
    def __init__(self, server, name):
        self._server = server
        self._tool = name
    def __call__(self, given=None, **named):
        return _call(self._server, self._tool, {**(given or {}), **named}, False)
    def raw(self, given=None, **named):
        return _call(self._server, self._tool, {**(given or {}), **named}, True)
class _Server:
    def __init__(self, name, tools):
        self._server = name
        self._tools = tools
        for tool in tools:
            for word in (tool, _identifier(tool)):
                if word not in ('call', 'call_raw', 'callRaw'):
                    setattr(self, word, _Tool(name, tool))
    def __getitem__(self, tool):
        return _Tool(self._server, tool)
    def __iter__(self):
        return iter(self._tools)
    def __len__(self):
        return len(self._tools)
    def __contains__(self, tool):
        return tool in self._tools
    def call(self, tool, arguments=None, **named):
        return _Tool(self._server, tool)(arguments, **named)
    def call_raw(self, tool, arguments=None, **named):
        return _Tool(self._server, tool).raw(arguments, **named)
    def callRaw(self, tool, arguments=None, **named):
        return _Tool(self._server, tool).raw(arguments, **named)
class _Servers:
    def __init__(self, known):
        self._known = known
        for name in known:
            for word in (name, _identifier(name)):
                if word != 'batch':
                    setattr(self, word, _Server(name, known[name]))
    def __getitem__(self, name):
        if name not in self._known:
            raise KeyError(name)
        return _Server(name, self._known[name])
    def __iter__(self):
        return iter(self._known)
    def __len__(self):
        return len(self._known)
    def __contains__(self, name):
        return name in self._known
    def batch(self, calls):
        return _batch(calls)
def _identifier(name):
    return ''.join([each if each.isalnum() else '_' for each in name])
ToolError = RuntimeError
"""


class Interpreter:
    """A session of monty. `script` is that module, `monty` the package."""

    def __init__(self, script: Any, monty: Any, bridge: Any, session: Any) -> None:
        self._script = script
        self._monty = monty
        self._bridge = bridge
        self._session = session
        self._console = script.Console(bridge)
        self._all = script.Servers(bridge, {})

    def feed(self, code: str, **inputs: Any) -> Any:
        """The value of the last expression. Raises the package's errors."""
        reached = {"_call": self._call, "_batch": self._batch}

        def write(_stream: str, text: str) -> None:
            self._console.write(text)

        def refuse(**_: Any) -> Any:
            return self._monty.NOT_HANDLED

        return self._session.feed_run(
            code,
            inputs=inputs,
            external_lookup=reached,
            print_callback=write,
            os=refuse,
        )

    def _call(self, server: Any, tool: Any, arguments: Any, raw: Any) -> Any:
        if not (isinstance(server, str) and isinstance(tool, str) and isinstance(arguments, Mapping)):
            raise TypeError("a call is of a server's tool, by their names, with arguments by name")
        try:
            return self._bridge.answer(self._bridge.start(server, tool, arguments, raw is True))
        except self._script.ToolError as error:
            raise RuntimeError(error.message) from None

    def _batch(self, calls: Any) -> Any:
        return self._all.batch(calls)

    def ended(self, order: Mapping[str, Any]) -> str:
        """The last message of a run."""
        script = self._script
        servers: dict[str, list[str] | None] = order.get("servers") or {}
        known = {name: tools or [] for name, tools in servers.items()}
        try:
            self.feed(
                "servers = _Servers(_known)", _known=known, **({"data": order["data"]} if "data" in order else {})
            )
            value = self.feed(str(order.get("code", "")))
            if value is None:
                value = self._result()
            self._console.end()
            return (
                '{"done": {"absent": true}}' if value is None else f'{{"done": {{"value": {script.as_json(value)}}}}}'
            )
        except self._monty.MontyError as error:
            self._console.end()
            return self._failed(error)

    def _result(self) -> Any:
        """The variable `result`, or None."""
        try:
            return self.feed("result")
        except self._monty.MontyRuntimeError:
            return None

    def _failed(self, error: Any) -> str:
        reason = error.exception()
        name = type(reason).__name__ if reason else type(error).__name__
        frames: list[Any] = error.traceback()[-20:] if hasattr(error, "traceback") else []
        lines = [f'  File "{self._script.FILE}", line {each.line}\n    {each.source_line or ""}' for each in frames]
        return self._script.failure(name, str(reason or error), "\n".join(lines))


def main(memory: int, seconds: int) -> None:
    """Take one run, carry it out and say what came of it. `memory` in bytes, `seconds` of computing."""
    script, monty = importlib.import_module("script"), importlib.import_module("pydantic_monty")
    bridge = script.Bridge(0, 1)
    limits = {"max_memory": memory, "max_feed_duration_secs": float(seconds), "max_suspensions": MOST_WAITS}
    policy = {"sleep_system_max": LONGEST_SLEEP}
    with monty.Monty(max_processes=1) as pool, pool.checkout(limits=limits, os_policy=policy) as session:
        interpreter = Interpreter(script, monty, bridge, session)
        interpreter.feed(PRELUDE)
        bridge.say({"ready": f"monty {monty.__version__}"})
        order = bridge.read()["run"]
        asked: dict[str, Any] = order.get("limits") or {}
        bridge.in_flight = asked.get("in_flight") or script.MOST_IN_FLIGHT
        bridge.say_text(interpreter.ended(order))
