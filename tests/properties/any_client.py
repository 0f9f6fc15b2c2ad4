"""Clients that say anything, of every revision and at every door, and hold what they hear against what they said.

Each request carries a mark of its client. What a client says out of shape carries the word `chaos`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from asgi import HttpRequest
from doors.pipes import SseClient, WebSocket
from official import LEGACY, MODERN
from properties.any_server import CALLS, CHAOS, META, Json, Ledger, owners
from virtualtime import soon

from toolgate.app import App
from toolgate.core import mcp
from toolgate.frontends.streams import QUIET

SERVERS = ("old", "new", "own")
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
IMPLICIT = "2025-03-26"
GARBAGE = [
    b"",
    b" ",
    b"{",
    b"\xff",
    b"[]",
    b"[1]",
    b"5",
    b"{}",
    b'{"jsonrpc":"2.0","id":"odd"}',
    b'{"jsonrpc":"1.0","id":"odd","method":"ping"}',
    b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    b'{"jsonrpc":"2.0","id":"odd","method":"tools/call","params":[]}',
    b'{"jsonrpc":"2.0","id":"odd","method":"tools/call","params":{"name":5,"chaos":1}}',
    b'{"jsonrpc":"2.0","id":"odd","method":"tools/call","params":{"name":"old__t0","arguments":[],"chaos":1}}',
    b'{"jsonrpc":"2.0","id":"odd","method":"resources/subscribe","params":{}}',
    b'{"jsonrpc":"2.0","id":"odd","method":"logging/setLevel","params":{"level":"chaos"}}',
    b'{"jsonrpc":"2.0","id":"odd","method":"completion/complete","params":{"ref":5}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
    b'{"jsonrpc":"2.0","id":null,"result":{}}',
    b'{"jsonrpc":"2.0","id":"odd","method":"nope"}',
]


class Stream(HttpRequest):
    """A request whose events keep their ids."""

    on_event: Callable[[str, bytes], None]

    def _events(self, chunk: bytes) -> None:
        *whole, self._rest = (self._rest + chunk).split(b"\n\n")
        for event in whole:
            lines = event.split(b"\n")
            data = b"\n".join(line[6:] for line in lines if line.startswith(b"data: "))
            ids = [line[4:].decode() for line in lines if line.startswith(b"id: ")]
            self.on_event(ids[-1] if ids else "", data)


class Books:
    """What was asked on one connection, or by one POST, and what was answered."""

    def __init__(self, who: str, ledger: Ledger) -> None:
        self.who = who
        self.ledger = ledger
        self.asked: defaultdict[str, list[Json]] = defaultdict(list)
        self.answered: Counter[str] = Counter()
        self.may_stay: set[str] = set()  # without a response: cancelled, or a subscription
        self.odd = 0  # messages that may be answered in any way
        self.is_over = False  # its connection has ended
        self.request: Stream | None = None
        self.session = ""  # whose events these are
        self.last_event = ""
        self.events: set[str] = set()

    def expect(self, message: Json) -> None:
        if "method" in message and "id" in message:
            self.asked[json.dumps(message["id"])].append(message)
            if message["method"] in ("subscriptions/listen", "close"):
                self.may_stay.add(json.dumps(message["id"]))

    def answer(self, message: Json) -> list[Json]:
        """The requests that a response may be for."""
        key = json.dumps(message.get("id"))
        self.answered[key] += 1
        asked = self.asked.get(key, [])
        if self.answered[key] > len(asked) + self.odd:
            self.ledger.complain(f"{self.who} got a response too many: {json.dumps(message)[:300]}")
        return asked

    @property
    def is_refused(self) -> bool:
        return self.request is not None and (self.request.status or 0) >= 400

    def check_end(self) -> None:
        """Everything has had its time."""
        if self.is_over or self.is_refused:
            return
        for key, asked in self.asked.items():
            if self.answered[key] < len(asked) and key not in self.may_stay:
                self.ledger.complain(f"{self.who} got no response: {json.dumps(asked)[:300]}")


class Client:
    """One client, its door, and what it knows."""

    def __init__(self, app: App, ledger: Ledger, random: Random, number: int, others: list[Client]) -> None:
        self.app = app
        self.ledger = ledger
        self.door = random.choice(["http", "http", "stdio", "websocket", "sse"])
        self.principal = "local" if self.door == "stdio" else random.choice(["ann", "bob"])
        self.name = f"c{number}"
        self.who = f"{self.name} ({self.principal} at {self.door})"
        self.revision = random.choice([*LEGACY, MODERN, MODERN, MODERN, MODERN])
        self.is_modern = self.revision == MODERN
        self.others = others
        self.capabilities = self._some_capabilities(random)
        self.has_shaken = False
        self.is_settled = self.is_modern
        self.books: list[Books] = []
        self.requests: list[tuple[Stream, Books | None]] = []
        self.session = ""
        self.questions: list[Json] = []
        self.answered: list[Json] = []
        self.asked: set[tuple[str, Any]] = set()  # session, id
        self.cursors: list[tuple[str, str]] = []  # a method's
        self.states: list[tuple[Json, Json]] = []  # a request's message, and the result that asks
        self.tokens: list[Any] = []
        self._numbers = itertools.count(1)
        self._pipe: Any = None

    def _some_capabilities(self, random: Random) -> Json:
        has_parts = self.revision >= LEGACY[-1]
        every: Json = {
            "elicitation": random.choice([{}, {"form": {}, "url": {}}]) if has_parts else {},
            "sampling": {},
            "roots": {},
        }
        return {name: value for name, value in every.items() if random.random() < 0.85}

    def mark(self, number: int | None = None) -> str:
        return f"mark.{self.principal}.{self.name}.{next(self._numbers) if number is None else number}.end"

    # What carries it.

    def connect(self) -> None:
        """The pipe, where this door has one."""
        if self.door == "http" or self._pipe:
            return
        books = Books(self.who, self.ledger)
        self.books.append(books)
        headers = [("x-test-principal", self.principal)]

        def heard(data: bytes) -> None:
            if books.is_over:
                self.ledger.complain(f"{self.who} has gone, and hears {data[:200]!r}")
            self.hear(data, books)

        if self.door == "stdio":
            self._pipe = self.app.stdio(heard)
        elif self.door == "websocket":
            self._pipe = WebSocket(self.app.http, "/mcp", headers, heard)
        else:
            self._pipe = SseClient(self.app.http, "/mcp/sse", headers, heard)

    async def disconnect(self) -> None:
        if not self._pipe:
            return
        pipe, self._pipe = self._pipe, None
        if self.door == "stdio":
            await pipe.close()
        else:
            pipe.stream.leave() if self.door == "sse" else pipe._incoming.put_nowait({"type": "websocket.disconnect"})
            await _gone(pipe.stream.task if self.door == "sse" else pipe.task)
        self.books[-1].is_over = True
        self._forget()

    def _forget(self) -> None:
        self.has_shaken = self.is_settled = False
        self.is_settled = self.is_modern
        self.session = ""
        self.questions.clear()
        self.answered.clear()

    def say(self, message: Json | list[Json] | bytes, session: str | None = None) -> Books:
        """Send a message, a batch, or what is neither."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.ledger.tell(f"{self.who} says {data[:300]!r}")
        self.connect()
        if self.door == "http":
            books = Books(self.who, self.ledger)
            self.books.append(books)
        else:
            books = self.books[-1]
        if isinstance(message, bytes):
            books.odd += 1
        for each in message if isinstance(message, list) else [] if isinstance(message, bytes) else [message]:
            books.expect(each)
        if self.door == "stdio":
            self._pipe.data_received(data + b"\n")
        elif self.door == "http":
            self._post(data, message, books, self.session if session is None else session)
        elif self.door == "sse":
            self._pipe._unsaid.append(data)
            if self._pipe.path:
                self._pipe._say_all()
        elif self._pipe.task.done():
            books.is_over = True
        else:
            self._pipe.say(data.decode(errors="replace"))
        return books

    def _post(self, data: bytes, message: Any, books: Books, session: str) -> None:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        one: Json = message if isinstance(message, dict) else {}
        if self.is_modern:
            headers["mcp-protocol-version"] = MODERN
            if "method" in one:
                headers["mcp-method"] = one["method"]
                key = NAMED.get(one["method"])
                if key and isinstance(one.get("params", {}).get(key), str):
                    headers["mcp-name"] = one["params"][key]
        elif session and one.get("method") != "initialize":
            headers |= {"mcp-session-id": session, "mcp-protocol-version": self.revision}
        elif one.get("method") != "initialize":
            headers["mcp-protocol-version"] = self.revision
        books.request = self._begin("POST", headers, data, books)
        if one.get("method") == "initialize":
            request = books.request

            def shook(_done: object) -> None:
                self.session = request.headers.get("mcp-session-id", "") or self.session

            request.task.add_done_callback(shook)

    def _begin(self, method: str, headers: Mapping[str, str], body: bytes, books: Books) -> Stream:
        told = {"x-test-principal": self.principal, **headers}

        def on_body(data: bytes) -> None:
            self.hear(data, books, is_refusal=(request.status or 0) >= 400)

        request = Stream(self.app.http, method, "/mcp", told.items(), body, on_body)

        def on_event(id: str, data: bytes) -> None:
            if id and id in books.events:
                return  # it was told again
            books.events.add(id)
            books.session = request.headers.get("mcp-session-id", books.session)
            books.last_event = id or books.last_event
            if data:
                self.hear(data, books)

        request.on_event = on_event
        self.requests.append((request, books))
        return request

    def listen(self, last: str = "", books: Books | None = None) -> None:
        """A GET stream, or the rest of one that broke."""
        if self.door != "http" or self.is_modern or not self.session:
            return
        headers = {"accept": "text/event-stream", "mcp-session-id": self.session, "mcp-protocol-version": self.revision}
        if last:
            headers["last-event-id"] = last
        books = books or Books(self.who, self.ledger)
        if not last:
            books.is_over = True  # nothing is expected on it
        self._begin("GET", headers, b"", books)

    # What it hears.

    def hear(self, data: bytes, books: Books, is_refusal: bool = False) -> None:
        raw = data.decode()
        self.ledger.tell(f"{self.who} hears {raw[:300]}")
        strangers = {principal for principal, _ in owners(raw)} - {self.principal}
        if strangers:
            self.ledger.complain(f"{self.who} hears of {strangers}: {raw[:400]}")
        message = json.loads(data)
        if is_refusal and message["id"] is None:
            return
        for each in message if isinstance(message, list) else [message]:
            self._hear(each, json.dumps(each), books)

    def _hear(self, message: Json, raw: str, books: Books) -> None:
        if "method" not in message:
            self._answered(message, raw, books)
        elif "id" in message:
            self._asked(message, raw, books)
        else:
            self._check(message, raw, "")
            token = message.get("params", {}).get("progressToken")
            if message["method"] == "notifications/progress" and token not in self.tokens:
                self.ledger.complain(f"{self.who} hears of a progress that is not its own: {raw[:300]}")

    def _answered(self, message: Json, raw: str, books: Books) -> None:
        asked = books.answer(message)
        if len(asked) == 1:
            self._check(message, raw, asked[0]["method"])
            self._learn(asked[0], message)
        elif "error" in message and message.get("id") is not None:
            self._check(message, raw, "")

    def _learn(self, asked: Json, message: Json) -> None:
        result = message.get("result")
        if not isinstance(result, dict):
            return
        if asked["method"] == "initialize":
            self.has_shaken = True
        if isinstance(result.get("nextCursor"), str):
            self.cursors.append((asked["method"], result["nextCursor"]))
        if self.is_modern and result.get("resultType") == "input_required":
            self.states.append((asked, result))

    def _asked(self, message: Json, raw: str, books: Books) -> None:
        if self.is_modern:
            self.ledger.complain(f"{self.who} is modern, and is asked: {raw[:300]}")
            return
        self._check(message, raw, "")
        needed = mcp.ASKS[message["method"]].capability
        if needed not in self.capabilities:
            self.ledger.complain(f"{self.who} did not declare {needed}, and is asked: {raw[:300]}")
        session = books.request.headers.get("mcp-session-id", "") if books.request else str(id(books))
        if (session, message["id"]) in self.asked:
            self.ledger.complain(f"{self.who} is asked twice by one id: {raw[:300]}")
        self.asked.add((session, message["id"]))
        self.questions.append(message)

    def _check(self, message: Json, raw: str, answers: str) -> None:
        if self.is_settled and not isinstance(message.get("id"), float):
            self.ledger.check(self.who, message, raw, self.revision, answers)

    # What it says.

    def request(self, random: Random, method: str = "") -> Json:
        """A request as it should be, of one method or any."""
        every = [*CALLS, *CALLS[:3], *CALLS[:3], *mcp.LISTS]
        every += ["server/discover", *["subscriptions/listen"] * 3] if self.is_modern else ["ping", "logging/setLevel"]
        every += [] if self.is_modern else [*[mcp.SUBSCRIBE] * 4, mcp.UNSUBSCRIBE]
        method = method or random.choice(every)
        params = self._params(method, random)
        meta: Json = {}
        if method in CALLS and random.random() < 0.6:
            token = random.choice([self.mark(), next(self._numbers)])
            self.tokens.append(token)
            meta["progressToken"] = token
        if self.is_modern:
            meta[META + "protocolVersion"] = MODERN
            meta[META + "clientCapabilities"] = self.capabilities if random.random() < 0.8 else {}
            meta[META + "clientInfo"] = {"name": self.name, "version": "1"}
            if method in CALLS and random.random() < 0.5:
                meta[META + "logLevel"] = random.choice(mcp.LOG_LEVELS)
        if meta:
            params["_meta"] = meta
        id = f"{self.name}-{next(self._numbers)}"
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def _params(self, method: str, random: Random) -> Json:
        server, mark = random.choice(SERVERS), self.mark()
        if method == "tools/call":
            name = random.choice([f"{server}__t{random.randrange(4)}"] * 9 + ["t0", "nope"])
            return {"name": name, "arguments": {"mark": mark}}
        if method == "prompts/get":
            return {"name": f"{server}__p{random.randrange(2)}", "arguments": {"mark": mark}}
        if method == "resources/read":
            return {"uri": f"{server}+note:///of/{mark}"}
        if method == "completion/complete":
            ref = {"type": "ref/prompt", "name": f"{server}__p0"}
            return {"ref": ref, "argument": {"name": "mark", "value": mark}}
        if method in mcp.LISTS:
            return self._cursor(method, random)
        if method in (mcp.SUBSCRIBE, mcp.UNSUBSCRIBE):
            return {"uri": self._watchable(server, random)}
        if method == "logging/setLevel":
            return {"level": random.choice(mcp.LOG_LEVELS)}
        if method == "subscriptions/listen":
            wanted: Json = {key: True for key in mcp.LIST_FILTERS if random.random() < 0.5}
            uris = [self._watchable(random.choice(SERVERS), random) for _ in range(random.randrange(3))]
            return {"notifications": wanted | ({"resourceSubscriptions": uris} if uris else {})}
        return {}

    def _watchable(self, server: str, random: Random) -> str:
        own = f"note:///of/{self.mark(0)}"
        return f"{server}+{random.choice([own, own, 'note:///a'])}"

    def _cursor(self, method: str, random: Random) -> Json:
        own = [cursor for kind, cursor in self.cursors if kind == method]
        others = [cursor for other in self.others for _, cursor in other.cursors]
        choice = random.choice(["none", "own", "own", "other", "forged"])
        if choice == "own" and own:
            return {"cursor": random.choice(own)}
        if choice == "other" and others:
            return {"cursor": random.choice(others)}
        return {"cursor": "forged"} if choice == "forged" else {}

    def answer_to(self, method: str, random: Random) -> Json:
        """The result or error member of an answer."""
        kind = random.choice(["right", "right", "right", "declined", "error", "odd"])
        if kind == "error":
            return {"error": {"code": -1, "message": f"not by {self.mark()}"}}
        if kind == "odd":
            odd: list[Any] = [{CHAOS: 1}, {"action": CHAOS}, {"roots": CHAOS}, {"action": "accept", "content": [CHAOS]}]
            return {"result": random.choice(odd)}
        if method == "elicitation/create":
            accepted = {"action": "accept", "content": {"name": self.mark()}}
            return {"result": accepted if kind == "right" else {"action": "decline"}}
        if method == "sampling/createMessage":
            content = {"type": "text", "text": f"by {self.mark()}"}
            return {"result": {"role": "assistant", "content": content, "model": "any"}}
        return {"result": {"roots": [{"uri": f"file:///{self.mark()}"}]}}

    async def leave(self) -> None:
        for request, books in self.requests:
            if not request.task.done():
                request.leave()
                await _gone(request.task)
            if books and not request.is_whole:
                books.is_over = True
        await self.disconnect()

    def check_requests(self) -> None:
        """What became of the HTTP requests."""
        for request, _ in self.requests:
            if request.task.done() and not request.task.cancelled() and (error := request.task.exception()):
                self.ledger.complain(f"{self.who}: a request failed: {error!r}")
            elif request.status is not None and request.status >= 500:
                self.ledger.complain(f"{self.who}: HTTP {request.status} {request.body[:200]!r}")


async def _gone(task: asyncio.Task[None]) -> None:
    """Until the gateway has seen that a client left: where it does not look for that, when it says that it lives.
    It takes no longer where a server is silent that is told so."""
    async with asyncio.timeout(2 * QUIET):
        await asyncio.shield(task)


# The steps.


async def _shakes_hands(client: Client, random: Random) -> None:
    if client.is_modern:
        client.say(client.request(random, "server/discover"))
        return
    is_first = not any(books.asked for books in client.books[-1:] if client.door != "http")
    client.is_settled = client.is_settled or is_first
    info = {"name": client.name, "version": "1"}
    params = {"protocolVersion": client.revision, "capabilities": client.capabilities, "clientInfo": info}
    id = f"{client.name}-{next(client._numbers)}"
    client.say({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params})
    if client.door != "http":
        client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})


async def _asks(client: Client, random: Random) -> None:
    client.say(client.request(random))


async def _asks_much(client: Client, random: Random) -> None:
    for _ in range(random.randrange(2, 5)):
        client.say(client.request(random))


async def _asks_by_a_used_id(client: Client, random: Random) -> None:
    used = [key for books in client.books for key in books.asked]
    if used:
        client.say(client.request(random) | {"id": json.loads(random.choice(used))})


async def _asks_of_many_kinds_of_id(client: Client, random: Random) -> None:
    client.say(
        client.request(random)
        | {"id": random.choice([0, -1, "" if client.is_modern else 1.5, "", "é", 2**53, "x" * 200])}
    )


async def _answers(client: Client, random: Random) -> None:
    if client.questions:
        question = client.questions.pop(random.randrange(len(client.questions)))
        client.answered.append(question)
        answer = client.answer_to(question["method"], random)
        client.say({"jsonrpc": "2.0", "id": question["id"], **answer})


async def _answers_again(client: Client, random: Random) -> None:
    if client.answered:
        question = random.choice(client.answered)
        client.say({"jsonrpc": "2.0", "id": question["id"], **client.answer_to(question["method"], random)})


async def _answers_nothing(client: Client, random: Random) -> None:
    """An id that nobody gave, or one that another client was asked by; it may be one of its own as well."""
    others = [each["id"] for other in client.others for each in other.questions]
    id = random.choice([*others, 0, 1, 2, "1", 1.0, -5, "nope"])
    client.say({"jsonrpc": "2.0", "id": id, "result": {CHAOS: client.mark()}})


async def _retries(client: Client, random: Random) -> None:
    if not client.states:
        return
    asked, result = random.choice(client.states[-3:])
    retry = _retry_of(client, asked, result, random)
    client.say(retry)
    if random.random() < 0.2:
        client.say(_retry_of(client, asked, result, random))  # the same at once


def _retry_of(client: Client, asked: Json, result: Json, random: Random) -> Json:
    asks = result.get("inputRequests", {})
    given = {
        key: answer["result"]
        for key, ask in asks.items()
        if "result" in (answer := client.answer_to(ask["method"], random)) and random.random() < 0.9
    }
    params = {name: value for name, value in asked["params"].items() if name not in ("requestState", "inputResponses")}
    if "requestState" in result:
        params["requestState"] = result["requestState"]
    if random.random() < 0.9:
        params["inputResponses"] = given
    return {**asked, "id": f"{client.name}-{next(client._numbers)}", "params": params}


async def _retries_what_is_altered(client: Client, random: Random) -> None:
    if not client.states:
        return
    asked, result = random.choice(client.states)
    retry = _retry_of(client, asked, result, random)
    state = retry["params"].get("requestState", "")
    at = random.randrange(max(1, len(state)))
    retry["params"]["requestState"] = random.choice([state[:at], state[:at] + "A" + state[at + 1 :], "", "forged"])
    client.say(retry)


async def _retries_what_is_another_clients(client: Client, random: Random) -> None:
    """Errors of tools do not repeat arguments, so that whatever mark comes back was somebody's result."""
    others = [each for other in client.others if other.principal != client.principal for each in other.states[-2:]]
    stolen = [(asked, result) for asked, result in others if asked["method"] == "tools/call"]
    if client.is_modern and stolen:
        asked, result = random.choice(stolen)
        client.tokens.append(asked["params"]["_meta"].get("progressToken"))
        retry = _retry_of(client, asked, result, random)
        retry["params"]["_meta"] = {key: value for key, value in retry["params"]["_meta"].items() if "/" in key}
        client.say(retry)


async def _cancels(client: Client, random: Random) -> None:
    open_keys = [
        (books, key) for books in client.books for key in books.asked if books.answered[key] < len(books.asked[key])
    ]
    used = [(books, key) for books in client.books[-5:] for key in books.asked]
    found = random.choice([open_keys, open_keys, used])
    id: Any = random.choice([1, "nope", 0.5])
    if found:
        _, key = random.choice(found)
        for books in client.books:  # the id may have been used on several connections
            books.may_stay.add(key)
        id = json.loads(key)
    client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})


async def _says_a_batch(client: Client, random: Random) -> None:
    """Only one revision has them; where they are refused, it is once and for all of them."""
    if client.is_modern:
        return
    messages = [client.request(random) for _ in range(random.randrange(1, 4))]
    messages.append({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
    if client.revision == IMPLICIT and client.is_settled:
        client.say(messages)
    else:
        client.say(json.dumps([{**each, CHAOS: 1} for each in messages[-1:]]).encode())


async def _says_garbage(client: Client, random: Random) -> None:
    client.say(random.choice(GARBAGE))


async def _leaves_a_request(client: Client, random: Random) -> None:
    running = [(request, books) for request, books in client.requests if not request.task.done()]
    if running:
        request, books = random.choice(running)
        request.leave()
        if books:
            books.is_over = True
        if random.random() < 0.7:
            await _gone(request.task)


async def _resumes(client: Client, random: Random) -> None:
    told = [books for _, books in client.requests if books and books.last_event and books.session == client.session]
    if told:
        books = random.choice(told)
        events = sorted(event for event in books.events if event)
        client.listen(random.choice([books.last_event, books.last_event, *events]), books)
    else:
        client.listen(random.choice(["", "s9.9", "c99.0", "nope", "."]))


async def _listens(client: Client, random: Random) -> None:
    client.listen()


async def _leaves(client: Client, random: Random) -> None:
    if client.door != "http":
        await client.disconnect()
    elif client.session and not client.is_modern and random.random() < 0.3:
        client._begin("DELETE", {"mcp-session-id": client.session}, b"", Books(client.who, client.ledger))
        client._forget()


async def _uses_anothers_session(client: Client, random: Random) -> None:
    others = [o.session for o in client.others if o.session and o.principal != client.principal]
    if client.door == "http" and not client.is_modern and others:
        books = client.say(client.request(random), session=random.choice(others))
        request = books.request
        assert request
        await soon(asyncio.shield(request.task))
        if request.status != 404:
            client.ledger.complain(f"{client.who} used another's session: {request.status}")


async def _tells_of_roots(client: Client, random: Random) -> None:
    client.say({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})


STEPS: dict[Any, int] = {
    _shakes_hands: 2,
    _asks: 14,
    _asks_much: 4,
    _asks_by_a_used_id: 2,
    _asks_of_many_kinds_of_id: 1,
    _answers: 10,
    _answers_again: 1,
    _answers_nothing: 2,
    _retries: 10,
    _retries_what_is_altered: 2,
    _retries_what_is_another_clients: 3,
    _cancels: 4,
    _says_a_batch: 2,
    _says_garbage: 3,
    _leaves_a_request: 3,
    _resumes: 3,
    _listens: 2,
    _leaves: 1,
    _uses_anothers_session: 1,
    _tells_of_roots: 1,
}


async def act(client: Client, random: Random) -> str:
    """One step of one client. Returns what it was."""
    client.connect()
    needs_hands = not client.is_modern and not (client.session if client.door == "http" else client.has_shaken)
    step = random.choices(list(STEPS), list(STEPS.values()))[0]
    if needs_hands and random.random() < 0.8:
        step = _shakes_hands
    elif client.questions and random.random() < 0.4:
        step = _answers
    elif client.states and random.random() < 0.3:
        step = random.choice([_retries, _retries, _retries_what_is_altered])
    elif random.random() < 0.1:
        step = _retries_what_is_another_clients
    await step(client, random)
    return f"{client.who}{step.__name__.replace('_', ' ')}"
