"""What a worker writes becomes events, whatever it is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolgate.core import counting
from toolgate.sandbox import bridge
from toolgate.sandbox.bridge import Bridge, Broken, Call, Deadlock, Done, Failed, LargeCall, Log, Ready, Refused
from toolgate.sandbox.limits import Limits

SMALL = Limits(output=1000, calls=3)
EVENTS = (Ready, Log, Call, Refused, Done, Failed, Deadlock, Broken)
ENDS = (Done, Failed, Deadlock, Broken)


def events_of(*lines: Any, limits: Limits = SMALL) -> list[Any]:
    written = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    heard = Bridge(limits).feed(written)
    return [
        bridge.read_call(event.number, event.line, limits) if isinstance(event, LargeCall) else event for event in heard
    ]


def call(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"call": number, "server": "shop", "tool": "buy", "arguments": {"n": 1}} | more


def test_a_run_that_goes_well_is_heard() -> None:
    heard = events_of({"ready": "deno 2"}, {"log": "é\n\ud83d"}, call(), call(2, raw=True), {"done": {"value": [1]}})
    assert heard == [
        Ready("deno 2"),
        Log("é\n\ufffd"),
        Call(1, "shop", "buy", b'{"n": 1}', False),
        Call(2, "shop", "buy", b'{"n": 1}', True),
        Done(b"[1]"),
    ]


def test_ends_are_told_apart() -> None:
    assert events_of({"done": {"absent": True}}) == [Done(None)]
    assert events_of({"done": {"value": None}}) == [Done(b"null")]
    assert events_of({"deadlock": True}) == [Deadlock()]
    assert events_of({"failed": {"name": "TypeError", "message": "x\udc00"}}) == [Failed("TypeError", "x\ufffd")]


def test_nothing_counts_after_the_end() -> None:
    assert events_of({"done": {"value": 1}}, call(), {"log": "late"}) == [Done(b"1")]
    said = Bridge(SMALL)
    said.feed(b'{"deadlock":true}\n')
    assert said.feed(b'{"log":"late"}\n') == []


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"log": 1}',
        b'{"log": "\xff"}',
        b'{"call": 2, "server": "s", "tool": "t"}',
        b'{"call": 0, "server": "s", "tool": "t"}',
        b'{"call": 1e3, "server": "s", "tool": "t"}',
        b'{"call": %s, "server": "s", "tool": "t"}' % (b"9" * 6000),
        b'{"call": 1, "server": {}, "tool": "t"}',
        b'{"call": 1, "server": "s", "tool": "t", "arguments": {"a": "\xff"}}',
        b'{"done": 1}',
        b"[" * 3000 + b"]" * 3000,
        b'{"log": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b"\x00" * 100,
    ],
)
def test_what_cannot_be_read_ends_the_run(line: bytes) -> None:
    (event,) = events_of(line, limits=Limits(output=100_000))
    assert isinstance(event, Broken) and "cannot be read" in event.message


def test_a_worker_is_ready_once() -> None:
    assert isinstance(events_of({"ready": "a"}, {"ready": "b"})[1], Broken)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"arguments": []}, "must be an object"),
        ({"arguments": "x"}, "must be an object"),
        ({"server": "s" * 2000}, "a name may have"),
        ({"tool": "t" * 2000}, "a name may have"),
    ],
)
def test_a_call_out_of_shape_is_refused_and_the_run_goes_on(made: dict[str, Any], said: str) -> None:
    refused, next = events_of(call(**made), call(2), limits=Limits())
    assert isinstance(refused, Refused) and said in refused.message and refused.number == 1
    assert isinstance(next, Call)


@pytest.mark.parametrize("depth", [256, 3000, 100_000])
def test_arguments_nested_without_end_are_refused(depth: int) -> None:
    nested = b'{"call":1,"server":"s","tool":"t","arguments":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    refused, next = events_of(nested, call(2), limits=Limits())
    assert refused == Refused(1, "the arguments are nested more than 256 levels deep") and isinstance(next, Call)


@pytest.mark.parametrize("value", [b"[]", b"1", b'{"a":{}}', b"[[]]", b"1e-300"])
@pytest.mark.parametrize(
    "line",
    [
        b'{"call":1,"server":"s","tool":"t","arguments":{"o":[%b]}}',
        b'{"call": 1, "raw": true, "server":"s","tool":"t","arguments":{"o":[%b]}}',
        b'{"server":"s","tool":"t","arguments":{"o":[%b]},"call":1}',
    ],
)
def test_arguments_of_very_many_values_are_refused(line: bytes, value: bytes) -> None:
    many = line % b",".join([value] * 120_000)
    refused, next = events_of(many, call(2), limits=Limits())
    assert refused == Refused(1, "the arguments have more than 100,000 JSON values (limits.values)")
    assert isinstance(next, Call)


def test_as_many_as_are_permitted_are_not() -> None:
    most = b'{"call":1,"server":"s","tool":"t","arguments":{"o":[%b]}}' % b",".join([b"[]"] * 99_998)
    (made,) = events_of(most, limits=Limits())
    assert isinstance(made, Call)


def test_what_is_large_of_calls_is_left_to_be_read_elsewhere_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def has_more_values(data: bytes, most: int) -> bool:
        counted.append(most)
        return False

    monkeypatch.setattr("toolgate.core.counting.has_more_values", has_more_values)
    line = json.dumps(call(arguments={"a": "x" * bridge.LARGE})).encode()
    (event, next) = Bridge(Limits()).feed(line + b"\n" + json.dumps(call(2)).encode() + b"\n")
    assert event == LargeCall(1, line) and isinstance(next, Call) and len(counted) == 1
    assert bridge.read_call(1, line, Limits()) == Call(
        1, "shop", "buy", line[len(b'{"call": 1, "server": "shop", "tool": "buy", "arguments": ') : -1], False
    )
    assert len(counted) == 2


@pytest.mark.parametrize(
    "line",
    [
        b'{"call": 1, "server": "shop", "tool": "%b"',
        b'{"call": 1, "server": "shop", "tool": "\xff%b"}',
        b'{"call": 1, "server": {}, "tool": "%b"}',
        b'{"call": 1, "server": "shop", "tool": "%b", "call": 2}',
    ],
)
def test_a_large_call_that_cannot_be_read_ends_the_run(line: bytes) -> None:
    (event,) = events_of(line % (b"x" * bridge.LARGE), limits=Limits())
    assert isinstance(event, Broken) and "cannot be read" in event.message


def test_a_result_may_have_more_values() -> None:
    (done,) = events_of(b'{"done":{"value":[%b]}}' % b",".join([b"1"] * 120_000), limits=Limits())
    assert isinstance(done, Done)


@pytest.mark.parametrize("depth", [256, 3000, 100_000])
def test_a_result_nested_without_end_is_a_failure(depth: int) -> None:
    nested = b'{"done":{"value":' + b"[" * depth + b"]" * depth + b"}}"
    (failed,) = events_of(nested, limits=Limits())
    assert failed == Failed("RangeError", "the result is nested more than 256 levels deep")


def test_numbers_without_end_travel_as_they_are() -> None:
    digits = b"9" * 600
    (event,) = events_of(b'{"done":{"value":' + digits + b"}}")
    assert event == Done(digits)


def test_calls_beyond_the_limit_are_refused_and_then_end_the_run() -> None:
    heard = events_of(*(call(number) for number in range(1, 5 + bridge.OVER)))
    assert [type(event) for event in heard[:4]] == [Call, Call, Call, Refused]
    assert heard[-1] == Broken("call limit exceeded") and len(heard) == 4 + bridge.OVER


def test_console_and_result_share_one_limit() -> None:
    assert isinstance(events_of({"log": "x" * 999})[0], Log)
    assert events_of({"log": "x" * 1000}) == [Broken("output limit exceeded")]
    assert events_of({"log": "x" * 600}, {"done": {"value": "y" * 600}})[1] == Broken("output limit exceeded")
    assert events_of({"log": "é" * 600}) == [Broken("output limit exceeded")]


def test_what_takes_more_than_twice_as_much_in_the_answer_counts_as_half_of_that() -> None:
    assert isinstance(events_of({"log": '["a", "b", 12345]' * 55})[0], Log)
    assert isinstance(events_of({"log": '"' * 499})[0], Log)
    for character in '"\\\x01':
        assert events_of({"log": character * 510}) == [Broken("output limit exceeded")]
    assert isinstance(events_of({"done": {"value": '"' * 490}})[0], Done)
    assert events_of({"done": {"value": ['"' * 490]}}) == [Broken("output limit exceeded")]


def test_a_line_without_end_is_not_kept() -> None:
    said = Bridge(SMALL)
    heard = [event for _ in range(200) for event in said.feed(b"x" * 1000)]
    assert heard == [Broken("output limit exceeded")] and said._lines.pending == 0


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_become_events(chunks: list[bytes]) -> None:
    _hold(chunks)


_words = st.sampled_from(["ready", "log", "call", "server", "tool", "arguments", "raw", "done", "failed", "deadlock"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.dictionaries(_words, _values, max_size=4), max_size=6), st.integers(1, 40))
def test_any_lines_become_events(lines: list[dict[str, Any]], size: int) -> None:
    written = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    _hold([written[start : start + size] for start in range(0, len(written), size)])


def _hold(chunks: list[bytes]) -> None:
    said = Bridge(SMALL)
    heard = [event for chunk in chunks for event in said.feed(chunk)]
    assert all(isinstance(event, EVENTS) for event in heard)
    assert not any(isinstance(event, ENDS) for event in heard[:-1])
    for event in heard:
        if isinstance(event, Call):
            assert isinstance(msgspec.json.decode(event.arguments), dict)
        if isinstance(event, Log | Failed):
            (event.text if isinstance(event, Log) else event.message).encode()


# What the host says.


def test_an_order_says_what_the_run_may_do() -> None:
    servers = {"shop": ["buy", "sell", "buy"], "far": None}
    line = bridge.order("return '\ud83d'", servers, Limits(), b'{"a":\n1}', True)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    run = json.loads(line)["run"]
    assert run["code"] == "return '\ud83d'" and run["data"] == {"a": 1} and run["strict"] is True
    assert run["servers"] == {"shop": ["buy", "sell"], "far": None}
    assert run["limits"] == {"sleep": 30_000, "output": 10_485_760, "calls": 1000}
    assert "data" not in json.loads(bridge.order("", {}, Limits(), None, False))["run"]


@pytest.mark.parametrize("piece", [1, 2, 3, 65_536])
def test_its_data_is_one_line_in_pieces_of_any_size(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PIECE", piece)
    data = ["\u2028", "é\u0085", "\u2029"]
    line = bridge.order("", {}, Limits(), json.dumps(data, ensure_ascii=False, indent=1).encode(), False)
    assert len(line.decode().splitlines()) == 1 and json.loads(line)["run"]["data"] == data


def test_names_beyond_the_limit_are_not_told() -> None:
    servers = {"a": ["x" * 90], "b": ["y" * 90], "c": ["z"]}
    run = json.loads(bridge.order("", servers, Limits(names=150), None, False))["run"]
    assert run["servers"] == {"a": ["x" * 90], "b": None, "c": None}


def test_answers_are_one_line_each() -> None:
    assert bridge.answer(7, b'{\n"a": 1\r\n}') == b'{"answer":7,"value":{ "a": 1  }}\n'
    assert json.loads(bridge.refusal(7, "a\nb", "X")) == {"answer": 7, "error": {"message": "a\nb", "code": "X"}}
    assert json.loads(bridge.refusal(7, "a")) == {"answer": 7, "error": {"message": "a"}}


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("return 1", "return 1"),
        ("```js\nreturn 1\n```", "return 1"),
        ("\n```\nreturn 1\n```\n", "return 1"),
        ("~~~~typescript title=x\na\n\nb\n~~~~", "a\n\nb"),
        ("```js\n```", ""),
        ("```js\nreturn `a`", "```js\nreturn `a`"),
        ("const a = 1\n```js\n```", "const a = 1\n```js\n```"),
        ("```js\r\nreturn 1\r\n```", "return 1\r"),
        ("``` ` ```", "``` ` ```"),
    ],
)
def test_a_fence_around_code_is_taken_off(written: str, code: str) -> None:
    assert bridge.unfenced(written) == code


def test_fences_cost_no_more_than_they_are_long() -> None:
    for hostile in (" ", "`", "```\n", "``` ", "~", "~~~ "):
        bridge.unfenced(hostile * 1_000_000)  # each would take hours if it were looked through again and again
