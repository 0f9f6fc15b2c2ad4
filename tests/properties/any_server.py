"""Servers that say anything: what they are asked waits until a step of the conversation does something with it.

What a server says on behalf of a call carries the call's mark; what it says out of shape carries the word `chaos`.
`Ledger` holds what went wrong: a mark at a stranger's, a message that no schema knows, a second answer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import official
from official import LEGACY, MODERN

from toolgate.config import Server as Configured
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.memory import MemoryLink
from toolgate.upstreams.mcp.requests import GIVEN_UP

Json = dict[str, Any]

CHAOS = "chaos"
MARK = re.compile(r"mark\.(\w+?)\.(\w+?)\.(\d+)\.end")
META = mcp.PREFIX
LISTS = {
    "tools/list": ("tools", [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(4)]),
    "prompts/list": ("prompts", [{"name": "p0"}, {"name": "p1"}]),
    "resources/list": ("resources", [{"uri": "note:///a", "name": "a"}, {"uri": "note:///b", "name": "b"}]),
    "resources/templates/list": ("resourceTemplates", [{"uriTemplate": "note:///of/{whom}", "name": "of"}]),
}
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}
CALLS = ("tools/call", "prompts/get", "resources/read", "completion/complete")
ODD: list[Any] = [None, 5, "x", [], [1], {}, True, 1.5, {"content": 5}, {"resultType": "input_required"}, ""]
GARBAGE = [
    b"",
    b"\xff\xfe",
    b"{",
    b"[]",
    b"[1,2]",
    b"null",
    b"{}",
    b'{"jsonrpc":"1.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"2.0","id":1e999,"result":{}}',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
    b'[{"jsonrpc":"2.0","id":1,"result":{"chaos":1}}]',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":5}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[],"progress":"x"}}',
    b'{"jsonrpc":"2.0","method":"notifications/message"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated"}',
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":5}}',
    b'{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":5}}',
    b'{"jsonrpc":"2.0","id":"x","method":"nope/nope","params":{}}',
    b'{"jsonrpc":"2.0","id":"x","method":"ping"}',
    b'{"jsonrpc":"2.0","id":1e400,"method":"roots/list"}',
]


class Ledger:
    """What may not be, and was seen."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.told: list[str] = []  # what was said, for whoever replays

    def tell(self, text: str) -> None:
        self.told.append(text)

    def complain(self, text: str) -> None:
        self.wrong.append(text)

    def check(self, who: str, message: Json, raw: str, revision: str, answers: str) -> None:
        if CHAOS in raw:
            return
        try:
            official.check(message, revision, answers)
        except (AssertionError, KeyError) as error:
            self.complain(f"{who} got what is out of shape: {error!r} {raw[:600]}")


def owners(raw: str) -> set[tuple[str, str]]:
    """Whose marks stand in a text: principal and client."""
    return {(found[1], found[2]) for found in MARK.finditer(raw)}


class Asked:
    """A request that waits for its answer."""

    def __init__(self, message: Json, raw: str) -> None:
        self.id = message["id"]
        self.method: str = message["method"]
        self.params: Json = message.get("params", {})
        found = MARK.search(raw)
        self.mark = found[0] if found else ""
        self.owner = (found[1], found[2]) if found else None
        self.token = self.params.get("_meta", {}).get("progressToken")
        self.progress = 0
        self.capabilities: Json = self.params.get("_meta", {}).get(META + "clientCapabilities", {})


class Line:
    """One connection of the gateway to a server."""

    def __init__(self, server: AnyServer, number: int) -> None:
        self.server = server
        self.name = f"{server.name}#{number}"
        self.is_open = False
        self.waiting: dict[int, Asked] = {}
        self.questions: dict[Any, tuple[str, Asked | None]] = {}
        self.over: list[Asked] = []  # answered, or cancelled
        self.withdrawn: set[Any] = set()
        self.cancelled: list[tuple[float, Asked]] = []
        self.marks: set[tuple[str, str]] = set()
        self.watched: list[str] = []
        self.states: set[str] = set()  # that came back
        self.pages: list[tuple[str, str]] = []  # of URL elicitations, with their marks
        self.capabilities: Json = {}
        self.ids: set[Any] = set()
        self._numbers = itertools.count(1)

    def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
        self.is_open = True
        self._say, self._hang_up = say, hang_up

    def disconnected(self) -> None:
        self.is_open = False
        self.waiting.clear()

    def hang_up(self) -> None:
        self._hang_up("it crashed")
        self.disconnected()

    def say(self, message: Json | bytes) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.server.ledger.tell(f"{self.name} says {data[:300]!r}")
        if self.is_open:
            self._say(data)

    # What the gateway says.

    def received(self, data: bytes) -> None:
        raw = data.decode()
        self.server.ledger.tell(f"{self.name} hears {raw[:300]}")
        message = json.loads(data)
        self._check(message, raw)
        if "method" not in message:
            self._answered(message, raw)
        elif "id" in message:
            self._requested(Asked(message, raw))
        elif message["method"] == "notifications/cancelled":
            asked = self.waiting.pop(message["params"]["requestId"], None)
            if asked:
                self.over.append(asked)
                self.cancelled.append((asyncio.get_running_loop().time(), asked))

    def _check(self, message: Json, raw: str) -> None:
        opening = {"server/discover": MODERN, "initialize": LEGACY[-1]}
        revision = opening.get(message.get("method", ""), self.server.revision)
        answers = "" if "method" in message else self.questions.get(message.get("id"), ("", None))[0]
        is_known = (
            message.get("id") != "odd"
            and revision < MODERN
            and (answers != "elicitation/create" or revision >= "2025-06-18")
        )
        if "method" in message or (answers and is_known):
            self.server.ledger.check(self.name, message, raw, revision, answers)
        if "method" in message and "id" in message:
            if message["id"] in self.ids:
                self.server.ledger.complain(f"{self.name} was sent an id twice: {raw[:200]}")
            self.ids.add(message["id"])
        if self.server.is_of_session:
            self.marks |= owners(raw)
            if len({principal for principal, _ in self.marks}) > 1:
                self.server.ledger.complain(f"{self.name} serves {self.marks}, and is one client's own")

    def _answered(self, message: Json, raw: str) -> None:
        id = message["id"]
        if id not in self.questions:
            if id not in ("x", "ping", "odd"):
                self.server.ledger.complain(f"{self.name} got an answer to no open question: {raw[:300]}")
            return
        _, asked = self.questions.pop(id)
        strangers = {principal for principal, _ in owners(raw)} - ({asked.owner[0]} if asked and asked.owner else set())
        if asked and asked.owner and strangers:
            self.server.ledger.complain(f"{self.name} asked {asked.owner} and was answered by {strangers}: {raw[:300]}")

    def _requested(self, asked: Asked) -> None:
        server = self.server
        if asked.method == "server/discover":
            if server.is_modern:
                self.answer(asked, {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}, kept=True)
            else:
                self.refuse(asked, -32601, "What?")
        elif asked.method == "initialize":
            self.capabilities = asked.params["capabilities"]
            if server.is_modern:
                self.refuse(asked, -32601, "No handshake here")
            else:
                info = {"name": "any", "version": "1"}
                shook = {"protocolVersion": server.revision, "capabilities": CAPABILITIES, "serverInfo": info}
                self.answer(asked, shook)
        else:
            self.waiting[asked.id] = asked
            self._check_state(asked, asked.params.get("requestState"))
            if server.mood == "ready" and asked.method not in CALLS:
                self.serve(asked)

    def _check_state(self, asked: Asked, state: Any) -> None:
        """A state comes back with the very call that it was given to, and once: unless its line broke over that."""
        if not isinstance(state, str) or asked.mark in self.server.mismatched:
            return
        if state.split(" ")[1:2] != [asked.mark] or state in self.states:
            self.server.ledger.complain(f"{self.name} got the state {state!r} with {asked.mark}, or twice")
        self.states.add(state)

    def serve(self, asked: Asked) -> None:
        """Answer as a server should."""
        if asked.method in LISTS:
            key, items = LISTS[asked.method]
            shown = [{**item, "description": self._owned()} for item in items] if self.marks else items
            self.answer(asked, {key: shown[: self.server.offers]}, kept=True)
        elif asked.method == "resources/subscribe":
            self.watched.append(asked.params["uri"])
            self.answer(asked, {})
        elif asked.method == "subscriptions/listen":
            wanted = asked.params["notifications"]
            self.watched += wanted.get("resourceSubscriptions", [])
            told = {"_meta": {META + "subscriptionId": asked.id}, "notifications": wanted}
            self.tell("notifications/subscriptions/acknowledged", told)
        elif asked.method in CALLS:
            self.answer(asked, result_for(asked), kept=asked.method == "resources/read")
        else:
            self.answer(asked, {})

    def _owned(self) -> str:
        """What a connection that serves one client says in its lists: whose it is."""
        principal, client = min(self.marks)
        return f"mark.{principal}.{client}.0.end" if self.server.is_of_session else "for all"

    def answer(self, asked: Asked, result: Any, kept: bool = False) -> None:
        if self.server.is_modern and isinstance(result, dict):
            result = {"resultType": "complete", **({"ttlMs": 0, "cacheScope": "private"} if kept else {}), **result}
        self._ended(asked)
        self.say({"jsonrpc": "2.0", "id": asked.id, "result": result})

    def refuse(self, asked: Asked, code: Any, message: str, **data: Any) -> None:
        self._ended(asked)
        error = {"code": code, "message": message, **({"data": data} if data else {})}
        self.say({"jsonrpc": "2.0", "id": asked.id, "error": error})

    def _ended(self, asked: Asked) -> None:
        self.waiting.pop(asked.id, None)
        self.cancelled = [(at, each) for at, each in self.cancelled if each.id != asked.id]
        self.over.append(asked)

    def tell(self, method: str, params: Any = None) -> None:
        self.say({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def ask(self, asked: Asked | None, question: tuple[str, Json], id: Any = None) -> None:
        method, params = question
        id = f"question-{next(self._numbers)}" if id is None else id
        if params.get("mode") == "url":
            params = {**params, "elicitationId": f"{self.name}-{id}"}
            if asked:
                self.pages.append((params["elicitationId"], asked.mark))
        self.questions[id] = (method, asked)
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


class AnyServer:
    """One server as configured, and all its connections."""

    def __init__(self, ledger: Ledger, name: str, revision: str, **settings: Any) -> None:
        self.ledger = ledger
        self.name = name
        self.revision = revision
        self.is_modern = revision == MODERN
        self.settings = settings
        self.is_of_session = settings.get("scope", "shared") != "shared"
        self.lines: list[Line] = []
        self.mood = "ready"
        self.offers = 4
        self.is_away = False
        self.states = itertools.count(1)
        self.mismatched: set[str] = set()  # marks of calls that may come twice

    async def make_link(self, server: Configured, receiver: Receiver, ground: LinkDeps) -> MemoryLink:
        if self.is_away:
            raise Fault("SERVER_FAILED", "it is away", server=server.id, reach="not_sent")
        line = Line(self, len(self.lines) + 1)
        self.lines.append(line)
        return MemoryLink(server.name, line, receiver)

    @property
    def open_lines(self) -> list[Line]:
        return [line for line in self.lines if line.is_open]


def result_for(asked: Asked) -> Json:
    text = f"this is for {asked.mark}"
    block = {"type": "text", "text": text}
    if asked.method == "tools/call":
        return {"content": [block]}
    if asked.method == "prompts/get":
        return {"messages": [{"role": "user", "content": block}]}
    if asked.method == "resources/read":
        return {"contents": [{"uri": asked.params["uri"], "text": text}]}
    return {"completion": {"values": [text]}}


def question_for(asked: Asked | None, random: Random) -> tuple[str, Json]:
    mark = asked.mark if asked else CHAOS
    kind = random.choice(["form", "form", "sampling", "roots", "url", "odd"])
    if kind == "form":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return "elicitation/create", {"message": f"name of {mark}?", "requestedSchema": schema}
    if kind == "sampling":
        said = {"role": "user", "content": {"type": "text", "text": f"say {mark}"}}
        return "sampling/createMessage", {"messages": [said], "maxTokens": 10}
    if kind == "url":
        return "elicitation/create", {"mode": "url", "message": f"go {mark}", "url": "https://example.com/"}
    if kind == "roots":
        return "roots/list", {}
    method = random.choice(["elicitation/create", "sampling/createMessage", "roots/list"])
    odd: list[Json] = [{}, {"message": 5}, {"messages": "x"}, {"requestedSchema": []}, {"mode": "url"}, {"_meta": 5}]
    return method, {CHAOS: mark, **random.choice(odd)}


# The steps. Each gets the line and a source of chance.


def _any_of(random: Random, found: Any) -> Any:
    found = list(found)
    return random.choice(found) if found else None


def _serves(line: Line, random: Random) -> None:
    if asked := _any_of(random, line.waiting.values()):
        line.serve(asked)


def _serves_all(line: Line, random: Random) -> None:
    for asked in list(line.waiting.values()):
        line.serve(asked)


def _answers_oddly(line: Line, random: Random) -> None:
    if asked := _any_of(random, line.waiting.values()):
        odd = random.choice(ODD)
        line.answer(asked, {**odd, CHAOS: asked.mark} if isinstance(odd, dict) else odd)


def _answers_twice(line: Line, random: Random) -> None:
    if asked := _any_of(random, line.over):
        line.answer(asked, result_for(asked))


def _answers_nobody(line: Line, random: Random) -> None:
    line.say({"jsonrpc": "2.0", "id": random.choice([0, -1, 10**9, "x", 1.5]), "result": {CHAOS: 1}})


def _fails(line: Line, random: Random) -> None:
    if not (asked := _any_of(random, line.waiting.values())):
        return
    code = random.choice([-32601, -32602, -32603, -32002, -32000, -32042, -32020, -32021, -32022, 1, "odd", 1.5])
    data: Json = {}
    if code == -32042:
        page = {"mode": "url", "message": asked.mark, "url": "https://example.com/", "elicitationId": f"e{asked.id}"}
        data = {"elicitations": [page]}
        line.pages.append((page["elicitationId"], asked.mark))
    is_odd = code in ("odd", 1.5) or code in (-32020, -32021, -32022, -32042, -32002)
    if code == -32020:
        line.server.mismatched.add(asked.mark)
    line.refuse(asked, code, f"no {asked.mark}" + (f" {CHAOS}" if is_odd else ""), **data)


def _asks(line: Line, random: Random) -> None:
    asked = _any_of(random, [each for each in line.waiting.values() if each.method in CALLS])
    if not asked:
        return
    if not line.server.is_modern:
        line.ask(asked, question_for(asked, random))
        return
    questions = [question_for(asked, random) for _ in range(random.choice([0, 1, 1, 2]))]
    needed = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
    asks = {
        f"k{number}": {"method": method, "params": params}
        for number, (method, params) in enumerate(questions)
        if needed[method] in asked.capabilities
    }
    state = f"state {asked.mark} {next(line.server.states)}"
    line.answer(asked, {"resultType": "input_required", "inputRequests": asks, "requestState": state})


def _is_late(line: Line, random: Random) -> None:
    """It had not heard yet that a call was cancelled when it said this of it."""
    now = asyncio.get_running_loop().time()
    asked = _any_of(random, [each for at, each in line.cancelled if now - at < GIVEN_UP - 1 and each.method in CALLS])
    if asked and not line.server.is_modern and random.random() < 0.6:
        line.ask(asked, question_for(asked, random))
    elif asked:
        line.tell("notifications/message", {"level": "error", "data": f"late log of {asked.mark}"})


def _asks_nobody(line: Line, random: Random) -> None:
    if not line.server.is_modern or random.random() < 0.2:
        line.ask(None, question_for(None, random), id=random.choice([None, "odd", "odd"]))


def _withdraws(line: Line, random: Random) -> None:
    id = _any_of(random, line.questions)
    if id is not None:
        line.withdrawn.add(id)
        line.tell("notifications/cancelled", {"requestId": id})


def _withdraws_nothing(line: Line, random: Random) -> None:
    id = random.choice([1, "nope", 2.5, "odd"])
    if id in line.questions:  # one of those that it asked out of turn
        line.withdrawn.add(id)
    line.tell("notifications/cancelled", {"requestId": id})


def _progresses(line: Line, random: Random) -> None:
    asked = _any_of(random, [each for each in line.waiting.values() if each.token is not None])
    if asked:
        asked.progress += random.choice([1, 1, 2, 0, -1])
        told = {"progressToken": asked.token, "progress": asked.progress, "message": f"so far {asked.mark}"}
        line.tell("notifications/progress", told)


def _logs(line: Line, random: Random) -> None:
    level = random.choice(["debug", "info", "error"])
    asked = _any_of(random, [each for each in line.waiting.values() if each.method in CALLS])
    if asked:
        line.tell("notifications/message", {"level": level, "data": f"log of {asked.mark}"})
    elif line.server.is_of_session and line.marks:
        line.tell("notifications/message", {"level": level, "data": line._owned()})


def _changes(line: Line, random: Random) -> None:
    line.server.offers = random.choice([0, 3, 4, 4, 4])
    line.tell(random.choice(sorted(mcp.LIST_CHANGED)))


def _updates(line: Line, random: Random) -> None:
    uri = _any_of(random, line.watched) or "note:///of/nobody"
    line.tell(mcp.UPDATED, {"uri": uri})


def _completes_a_page(line: Line, random: Random) -> None:
    if line.pages:
        id, mark = random.choice(line.pages)
        line.tell(mcp.ELICITED, {"elicitationId": id, "_meta": {"whose": mark}})


def _says_garbage(line: Line, random: Random) -> None:
    line.say(random.choice(GARBAGE))


def _hangs_up(line: Line, random: Random) -> None:
    line.hang_up()


def _changes_mood(line: Line, random: Random) -> None:
    line.server.mood = random.choice(["ready", "ready", "slow"])


def _goes_or_comes(line: Line, random: Random) -> None:
    line.server.is_away = not line.server.is_away
    if line.server.is_away and random.random() < 0.5:
        line.hang_up()


STEPS: dict[Callable[[Line, Random], None], int] = {
    _serves: 10,
    _serves_all: 3,
    _answers_oddly: 3,
    _answers_twice: 2,
    _answers_nobody: 1,
    _fails: 4,
    _asks: 12,
    _is_late: 8,
    _asks_nobody: 2,
    _withdraws: 3,
    _withdraws_nothing: 1,
    _progresses: 5,
    _logs: 5,
    _changes: 3,
    _updates: 4,
    _completes_a_page: 2,
    _says_garbage: 3,
    _hangs_up: 2,
    _changes_mood: 2,
    _goes_or_comes: 1,
}


def act(servers: Sequence[AnyServer], random: Random) -> str:
    """One step of one server, mostly of one that has something to do. Returns what it was."""
    lines = [line for server in servers for line in server.open_lines]
    busy = [line for line in lines if any(asked.method in CALLS for asked in line.waiting.values())]
    line = _any_of(random, busy if busy and random.random() < 0.8 else lines)
    if not line or random.random() < 0.1:
        for server in servers:
            server.is_away = False
        return "servers come back"
    step = random.choices(list(STEPS), list(STEPS.values()))[0]
    step(line, random)
    return f"{line.name}{step.__name__.replace('_', ' ')}"
