"""What a server begins to say and does not end, or says to nobody: what is kept of it is bounded in bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from inmemory import LATEST, Scripted, Visitor, gateway, said, tools
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import asks, jsonrpc, mcp, sse
from toolgate.core.exchange import Exchange
from toolgate.core.inflow import IntakeQueue
from toolgate.core.model import Ask, Asker, Call, Outcome, Principal
from toolgate.core.notes import Note, Notes
from toolgate.eras import legacy
from toolgate.state import parking
from toolgate.state.parking import Parking
from toolgate.upstreams.links import http
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.places import Places
from toolgate.upstreams.mcp.questions import Questions
from toolgate.upstreams.mcp.requests import LARGE_ANSWER, MOST_UNSENT, Requests

MIB = 1024 * 1024
PROMPT = b'{"systemPrompt":"%b","messages":[],"maxTokens":1%b}'


@contextmanager
def keeps_at_most(most: int) -> Iterator[None]:
    """Bytes that are there at the end, and were not at the beginning."""
    tracemalloc.start()
    try:
        yield
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < most


# Events.


@pytest.mark.parametrize("name", [b"event", b"id", b"retry", b"colour", b""])
def test_of_a_field_of_an_unfinished_event_little_is_kept(name: bytes) -> None:
    reader = sse.Reader(4 * MIB)
    with keeps_at_most(100_000):
        for _ in range(3):
            reader.feed(name + b": " + "\U0001f600".encode() + b"x" * 3 * MIB + b"\n")


def test_the_fields_of_an_event_count_together() -> None:
    reader = sse.Reader(1000)
    with pytest.raises(sse.TooLong):
        reader.feed(b"event: " + b"e" * 400 + b"\nid: " + b"i" * 400 + b"\ndata: " + b"d" * 300)


def test_nothing_of_an_event_that_was_too_long_is_kept_or_read() -> None:
    reader = sse.Reader(1000)
    with pytest.raises(sse.TooLong):
        reader.feed(b"data: " + b"x" * 2000)
    with keeps_at_most(10_000):
        for _ in range(100):
            assert reader.feed(b"y" * 1000 + b"\n\ndata: {}\n\n") == []
    assert reader.kept < 10


def test_names_and_ids_as_servers_have_them_are_read_whole() -> None:
    [event] = sse.Reader(10_000).feed(b"event: endpoint\nid: " + b"i" * 4096 + b"\ndata: /messages\n\n")
    assert (event.event, event.id) == ("endpoint", "i" * 4096)
    [event] = sse.Reader(10_000).feed(b"event: message" + b"x" * 5000 + b"\nid: " + b"i" * 4097 + b"\ndata: a\n\n")
    assert event.event != "message" and event.id is None


class Link:
    """Whoever owns the answers to messages."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()

    def awaits(self, origin: int) -> bool:
        return origin in self.waiting

    def received(self, data: bytes, origin: int) -> None:
        self.waiting.discard(origin)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def reply(link: Link, origin: int | None, kind: bytes = b"text/event-stream") -> http._Reply:
    made = http._Reply(cast(Any, link), origin)
    if origin is not None:
        link.waiting.add(origin)
    made.head(200, {b"content-type": kind})
    return made


def is_cut_off(reply: http._Reply, start: bytes = b"data: ", size: int = 8 * MIB) -> bool:
    """Whether so much more is refused."""
    try:
        reply.body(start)
        for _ in range(size // 65536):
            reply.body(b"x" * 65536)
    except sse.TooLong:
        return True
    return False


def test_behind_its_answer_a_stream_keeps_no_more_than_a_note() -> None:
    link = Link()
    with keeps_at_most(3 * MIB):
        streams = [reply(link, origin) for origin in range(8)]
        for stream in streams:
            stream.body(b"data: {}\n\n")
            assert is_cut_off(stream)


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_the_answer_to_what_wants_none_keeps_no_more_than_a_note(kind: bytes) -> None:
    with keeps_at_most(3 * MIB):
        assert is_cut_off(reply(Link(), None, kind))


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_an_answer_that_is_awaited_may_be_as_large_as_ever(kind: bytes) -> None:
    link = Link()
    stream = reply(link, 1, kind)
    assert not is_cut_off(stream)
    assert stream.kept > 8 * MIB


class Transport:
    """Of a connection on which much comes."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
async def test_what_is_answered_by_another_stream_keeps_no_more_than_a_note(kind: bytes) -> None:
    waiting = {1, 2, 3}

    def answered(data: bytes, origin: int | None) -> None:
        waiting.discard(int(data))

    told = Receiver("", lambda id: "", answered, waiting.__contains__, *(cast(Any, lambda *_: None),) * 3)
    server = Server(id="there", name="there", type="http", url="http://there.test/mcp")
    clock = FakeClock()
    link = http.HttpLink(server, told, clock, cast(Any, None), IntakeQueue(), Places(FakeClock()))
    transports: dict[int, Transport] = {}
    for origin in (1, 2, 3):
        link._streams[origin] = wire = http.Wire(link._pool)
        wire.connection_made(cast(Any, transports.setdefault(origin, Transport())))
        stream = http._Reply(link, origin)
        wire.send(b"", b"", stream)
        stream.head(200, {b"content-type": kind})
        assert not is_cut_off(stream, size=MIB // 2 if origin == 3 else 2 * MIB)
    for id in (b"1", b"3"):
        link.received(id, None)
    await clock.advance(http.SOON)
    assert [transports[origin].is_aborted for origin in (1, 2, 3)] == [True, False, False]
    assert link._streams.keys() == {2, 3}, "one is awaited, and one keeps little"


# Questions.


def opened(sole_owner: bool = False) -> tuple[Requests, list[bytes]]:
    async def again(call: Call) -> Outcome:
        raise AssertionError("no call is made anew")

    server = Server(id="there", name="there", type="stdio")
    requests = Requests(server, FakeClock(), again, lambda why, is_dead: None, lambda: None)
    requests.dialect = legacy.ToServer(mcp.LATEST["legacy"], legacy.Initialized("2025-11-25"))
    sent: list[bytes] = []
    requests.answer = sent.append  # type: ignore[method-assign]
    Questions(requests, server, sole_owner, lambda event: None)
    return requests, sent


def question(number: int, message: bytes, more: bytes = b"", junk: bytes = b"") -> bytes:
    params = PROMPT % (message, more)
    return b'{"jsonrpc":"2.0","junk":"%b","id":"q%d","method":"sampling/createMessage","params":%b}' % (
        junk,
        number,
        params,
    )


@pytest.mark.parametrize("sole_owner", [False, True])
@pytest.mark.parametrize("place", ["message", "beside"])
async def test_questions_that_nobody_waits_for_are_bounded_in_bytes(sole_owner: bool, place: str) -> None:
    requests, sent = opened(sole_owner)
    big, large = b"x" * (asks.MOST_BYTES * 7 // 16), place == "message"
    with keeps_at_most(asks.MOST_BYTES + MIB):
        for number in range(12):
            of_task = b',"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t%d"}}' % number
            more = b"" if sole_owner else of_task
            read = requests.received(question(number, big if large else b"?", more, b"" if large else big), None)
            if read:  # aside; of its connection no more is read meanwhile
                await read
            del read
    assert len(sent) == (10 if large else 0), "the oldest give way"


async def test_a_question_without_end_is_refused() -> None:
    requests, sent = opened(True)
    reading = requests.received(question(1, b"x" * (asks.MOST_BYTES + 1)), None)
    assert reading
    await reading
    assert b"at most 4,194,304 bytes" in sent[0] and len(sent[0]) < 1000


async def test_the_name_of_an_unknown_method_is_not_repeated_at_length() -> None:
    requests, sent = opened()
    reading = requests.received(b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % (b"x" * MIB), None)
    assert reading
    await reading
    assert len(b"".join(sent)) < 1000


async def test_the_open_questions_of_a_call_are_bounded_in_bytes() -> None:
    script = Scripted(LATEST, tools_list=tools("ask"), tools_call=...)
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(sampling={})
        asking = visitor.begin("POST", jsonrpc.encode(visitor.request("tools/call", name="there__ask", arguments={})))
        await settle()
        for number in range(4):
            script.say(question(number, b"x" * (asks.MOST_BYTES * 6 // 16)))
        await settle()
        refused = [each["id"] for each in script.requests if "error" in each]
        assert refused == ["q2", "q3"]
        call = next(each for each in script.requests if each.get("method") == "tools/call")
        script.say(jsonrpc.encode({"jsonrpc": "2.0", "id": call["id"], "result": said("done")}))
        assert (await asking.response()).last["result"]["content"] == said("done")["content"]


async def test_the_questions_of_parked_calls_count_as_what_is_kept_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MOST_BYTES", 10_000)
    parked, exchanges = Parking(FakeClock()), [Exchange(Asker("upstream", "a"), FakeClock()) for _ in range(4)]
    for exchange in exchanges:
        exchange.ask("elicitation/create", Raw(b'"%b"' % (b"x" * 4000)))
        parked.hold(exchange, None, Principal("ann"))
    assert [exchange.ended for exchange in exchanges] == [True, True, False, False]
    exchanges[3].ask("elicitation/create", Raw(b'"%b"' % (b"x" * 5000)))
    parked.hold(Exchange(Asker("upstream", "a"), FakeClock()), None, Principal("ann"))
    assert exchanges[2].ended and not exchanges[3].ended, "what came later counts, too"


def test_a_modern_question_without_end_is_too_large() -> None:
    assert asks.is_too_large(Ask("a", "sampling/createMessage", Raw(b'"%b"' % (b"x" * asks.MOST_BYTES))))


# What else is kept of messages.


async def test_a_note_with_much_beside_its_parameters_is_not_heard() -> None:
    requests, _ = opened()
    requests.on_other = lambda message, origin: pytest.fail("it was heard")
    requests.received(b'{"junk":"%b","jsonrpc":"2.0","method":"notifications/x","params":{}}' % (b"x" * MIB), None)


def test_of_a_parked_call_large_notes_are_not_kept() -> None:
    notes = Notes()
    with keeps_at_most(2 * MIB):
        for _ in range(100):
            notes.put(Note("log", Raw(b'{"data":"%b"}' % (b"x" * MIB))))
        data = b'{"junk":"%b","a":{}}' % (b"x" * MIB)
        notes.put(Note("log", jsonrpc.members(data)["a"]))
        del data
    heard: list[Note] = []
    notes.attach(heard.append)
    assert [bytes(note.params) for note in heard] == [b"{}"]


@pytest.mark.parametrize("size", [100, 5_000, 15_000])
def test_what_a_parked_call_was_told_is_bounded_and_the_last_of_it_is_there(size: int) -> None:
    notes = Notes()
    with keeps_at_most(200_000):
        for number in range(150):
            notes.put(Note("log", Raw(b'{"data":"%d","more":"%b"}' % (number, b"x" * size))))
            notes.put(Note("other", Raw(b'{"number":%d,"more":"%b"}' % (number, b"x" * size)), "notifications/x"))
    heard: list[Note] = []
    notes.attach(heard.append)
    assert len(heard) == min(Notes.KEPT_LOGS, Notes.KEPT_BYTES // len(bytes(heard[-1].params)))
    assert heard[-1].kind == "other" and b'"number":149' in bytes(heard[-1].params)


def test_the_progress_of_a_parked_call_is_not_kept_at_any_length() -> None:
    notes = Notes()
    with keeps_at_most(100_000):
        for number in range(3):
            notes.put(Note("progress", Raw(b'{"progress":%d}' % number)))
            notes.put(Note("progress", Raw(b'{"progress":%d.5,"message":"%b"}' % (number, b"x" * MIB))))
    heard: list[Note] = []
    notes.attach(heard.append)
    assert [bytes(note.params) for note in heard] == [b'{"progress":2}']


def test_of_a_response_only_its_error_is_kept() -> None:
    with keeps_at_most(MIB):
        data = b'{"jsonrpc":"2.0","id":1,"junk":"%b","error":{"code":1,"message":"no","data":[1]}}' % (b"x" * 4 * MIB)
        kept = jsonrpc.read_error(jsonrpc.decode(data).error)
        del data
    assert bytes(kept.data) == b"[1]"


async def test_answers_that_a_server_does_not_take_are_bounded_in_bytes() -> None:
    async def again(call: Call) -> Outcome:
        raise AssertionError("no call is made anew")

    requests = Requests(Server(id="a", name="a", type="stdio"), FakeClock(), again, lambda *_: None, lambda: None)
    large = b"x" * 8 * MIB
    for _ in range(10):
        requests.answer(large)
    assert sum(map(len, requests._answers)) == MOST_UNSENT
    requests.answer(b"x" * LARGE_ANSWER)
    assert len(requests._answers[-1]) == LARGE_ANSWER, "small ones are another's, maybe"
    await requests.close()
    await settle()
