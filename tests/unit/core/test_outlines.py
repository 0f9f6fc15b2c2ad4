"""Large JSON is read a piece at a time, and what is found is what the usual readers find in one go."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from toolgate.core import outline
from toolgate.core.outline import Outline, Wanted

WANTED = Wanted(frozenset(("id", "result", "ä")), "result", frozenset(("type", "b\n")))
NAMES = some.sampled_from(["id", "result", "type", "ä", "b\n", "x", 'q"', "\\", "", "n" * 90])
TEXTS = some.text('ab ,:"{}[]\\\u00e9\n\u6587', max_size=60) | some.sampled_from(
    [",", "{[", "]}", '"', "\\", '\\"', "\\\\" * 9, "\u00e9" * 40]
)
SCALARS = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | TEXTS


def nested(inner: some.SearchStrategy[Any]) -> some.SearchStrategy[Any]:
    return some.lists(inner, max_size=5) | some.dictionaries(NAMES, inner, max_size=5)


VALUES = some.recursive(SCALARS, nested, max_leaves=40)
OBJECTS = some.dictionaries(NAMES, VALUES, max_size=6)


def read(data: bytes, deepest: int = 100) -> Outline:
    reading = outline.reading(data, WANTED, deepest)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return end.value


def found(data: bytes, deepest: int = 100) -> tuple[Any, Any]:
    seen = read(data, deepest)
    return tuple(
        {name: json.loads(span.of(data)) for name, span in each.items()} for each in (seen.members, seen.of_inner)
    )  # type: ignore


def expected(data: bytes) -> tuple[Any, Any]:
    """Raises `ValueError` or `msgspec.DecodeError`."""
    msgspec.json.decode(data, type=msgspec.Raw)
    whole = json.loads(data)
    assert isinstance(whole, dict)
    inner: Any = whole.get("result")
    members = {name: each for name, each in whole.items() if name in WANTED.members}
    return members, {k: v for k, v in inner.items() if k in WANTED.of_inner} if isinstance(inner, dict) else {}


@pytest.fixture(autouse=True, params=[17, 61, 64 * 1024])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "PIECE", request.param)


@given(whole=OBJECTS, indent=some.sampled_from([None, 0, 3]), ascii=some.booleans())
def test_members_are_found_wherever_a_piece_ends(whole: Any, indent: int | None, ascii: bool) -> None:
    data = json.dumps(whole, indent=indent, ensure_ascii=ascii).encode(errors="surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            read(data)
        return
    assert found(data) == expected(data)


@given(
    whole=OBJECTS,
    place=some.integers(0, 10_000),
    other=some.sampled_from([b"", *(b"%c" % c for c in b'",:{}[]\\ 1nx\x00')]),
)
def test_what_is_no_json_is_refused_wherever_it_is_broken(whole: Any, place: int, other: bytes) -> None:
    data = json.dumps(whole).encode()
    place %= len(data)
    data = data[:place] + other + data[place + 1 :]
    try:
        wanted = expected(data)
    except (ValueError, AssertionError, msgspec.DecodeError):
        wanted = None
    try:
        seen = found(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        seen = None
    assert seen == wanted


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"a"',
        b"{",
        b'{"id":1',
        b'{"id":1}}',
        b'{"id":1},{"id":2}',
        b'{"id":1} x',
        b'{"id":[1,2}',
        b'{"id":[1,,2]}',
        b'{"id":[1,2,]}',
        b'{"id":[,1]}',
        b'{"id":[,260824096525],"result":1}',
        b'{"id":[ , 260824096525],"result":1}',
        b'{,"id":260824096525}',
        b'{"id":{,"result":260824096525}}',
        b'{"id":[1,%b]}' % (b" " * 200),
        b'{"id":[1,%b,2]}' % (b" " * 200),
        b'{"id":1,%b}' % (b" " * 200),
        b'{"id":1,}',
        b'{"id" 1}',
        b'{"id":"%b' % (b"x" * 200),
        b'{"id":"%b\\' % (b"x" * 200),
        b'{"%b"}' % (b"x" * 200),
        b'{"id":1 "%b":2}' % (b"x" * 200),
    ],
)
def test_what_is_no_object_has_no_outline(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(data)


@pytest.mark.parametrize(
    ("data", "members", "inner"),
    [
        (b'{"result":{"type":1},"result":{"x":2}}', {"result": {"x": 2}}, {}),
        (b'{"result":{"type":1},"res\\u0075lt":[{"type":3}]}', {"result": [{"type": 3}]}, {}),
        (b'{"result":{"type":1,"t\\u0079pe":{"type":2}}}', {"result": {"type": {"type": 2}}}, {"type": {"type": 2}}),
        (b'{"x":{"type":1},"result":null}', {"result": None}, {}),
        (b' {"result" : { "x" : [1,{"type":9}] , "type" : "a" } , "id" : 7 } ', {"id": 7}, {"type": "a"}),
        (b'{"%b":{"id":1},"id":"%b","y":2}' % (b"k" * 300, b'\\"' * 300), {"id": '"' * 300}, {}),
    ],
)
def test_of_names_that_are_there_twice_or_elsewhere_the_right_one_counts(data: bytes, members: Any, inner: Any) -> None:
    seen, of_inner = found(data)
    assert {**seen, **members} == seen and of_inner == inner


def test_no_piece_ends_between_the_halves_of_a_character() -> None:
    for more in range(14):
        data = b'{"id":"%b%b"}' % (b"x" * more, b"\\ud83d\\ude00" * 50)
        assert found(data) == expected(data)
        with pytest.raises(msgspec.DecodeError):
            read(data.replace(b"\\ude00", b""))


def test_what_is_nested_too_deep_is_refused_however_much_stands_beside_it() -> None:
    for beside in (b"", b"1," * 300):
        for depth, is_too_deep in ((90, False), (101, True)):
            data = b'{"id":[%b%b1%b]}' % (beside, b"[" * (depth - 2), b"]" * (depth - 2))
            if is_too_deep:
                with pytest.raises(outline.TooDeep):
                    read(data)
            else:
                assert read(data).members


def test_no_piece_is_much_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    is_json = outline._is_json
    monkeypatch.setattr(outline, "_is_json", lambda data: sizes.append(len(data)) or is_json(data))
    rows = [{"id": number, "name": "x" * (number % 50), "deep": [[{}]] * (number % 7)} for number in range(5000)]
    read(json.dumps({"result": {"rows": rows, "text": 'a\\"' * 100_000}}).encode())
    assert max(sizes) <= outline.PIECE + 1000
