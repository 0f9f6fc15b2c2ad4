r"""Lone surrogates in JSON (`"\ud83d"`): valid by its grammar, written by JavaScript when it cuts a text, and refused
by msgspec (ruling 17 of behaviour.md).

The rules this file keeps: the strict reader and writer go first, so that all other JSON costs nothing more; what is
read is exactly what stood there, in texts as in the bytes of raw members, up to `EXACT`. What is larger would be looked
through again at each step of a call: U+FFFD is read in place of each, once. A message with more of them than `MOST` is
refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Raw

T = TypeVar("T")

MOST = 20_000  # in one message
LARGEST = 4 * 1024 * 1024  # bytes of one: to look through it takes about 100 ms
EXACT = 256 * 1024  # bytes of one that keeps them, where each counts as so many: each step of a call takes about 5 ms
_WEIGHT = 40
_PIECE = 128 * 1024  # bytes that are looked through in one go: about 2 ms
_MOST_ESCAPES = 300_000  # of surrogates, lone and in pairs, that are looked at: about 100 ms

# Whatever is looked for begins with bytes that are always the same: all else is then passed over ten times as fast.
_HIGH, _LOW = rb"[89abAB][0-9a-fA-F]{2}", rb"[c-fC-F][0-9a-fA-F]{2}"
_LONE = rb"(\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b)))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
_lone = re.compile(_LONE)  # where no backslash is escaped
_pair = re.compile(rb"\\u[dD][bB][89a-fA-F][0-9a-fA-F]\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # of a private code point
_high = re.compile(rb"\\u[dD]" + _HIGH)
_in_text = re.compile("[\ud800-\udfff]")
_private = re.compile(rb"(\xf3[\xb0-\xbf][\x80-\xbf]{2})")
_private_in_text = re.compile("[\U000f0000-\U000fffff]")
_PRIVATE = range(0xF0000, 0xFFFFE)  # code points to which nobody gives a meaning


class _Marks(NamedTuple):
    """The stand-ins of one message: what each stands for, as it is written and as a character."""

    written: Mapping[bytes, bytes]
    characters: Mapping[str, str]


def is_in(text: str) -> bool:
    return not text.isascii() and _in_text.search(text) is not None


def utf8(text: str) -> bytes:
    """The bytes of any text, for hashing and counting."""
    return text.encode("utf-8", "surrogatepass")


def shown(text: str) -> str:
    """A text that can be written anywhere: U+FFFD stands in place of each lone surrogate."""
    return _in_text.sub("\ufffd", text) if is_in(text) else text


def replaced(data: bytes) -> bytes:
    r"""JSON for readers that refuse lone surrogates: `\ufffd` in place of each; else the same object, as where it is
    larger than `LARGEST`."""
    if b"\\u" not in data:
        return data
    found = b"".join(replacing(data))
    return data if not found or found == data else found


def replacing(data: bytes) -> Iterator[bytes]:
    """The same in pieces, for who lets others do something in between; none where nothing is to be looked at."""
    if not _may_be_in(data):
        return
    yield b""
    hidden = data.replace(b"\\\\", _HIDDEN)
    yield b""
    start = 0
    while start < len(hidden):
        end = start + _PIECE
        if end < len(hidden):  # what is escaped stays in one piece, and so does a pair
            begun = hidden.rfind(b"\\", end - 5, end)
            end = begun if begun >= 0 else end
            end -= 6 if _high.fullmatch(hidden, end - 6, end) else 0
        yield _without(_lone.split(hidden[start:end]))
        start = end


def decode(data: bytes, strict: Callable[[bytes], T], refusal: Exception, exact: int = EXACT) -> T:
    """What `strict` refused, where that is for the lone surrogates in it. Raises the `refusal`, or another one."""
    parts = _split(data)
    found = parts[1::2]  # none where there are too many to look at
    if not 0 < len(found) <= MOST:
        try:
            raise refusal
        finally:
            del refusal  # or this frame and it would hold each other, and what was refused with them
    is_exact = len(data) + _WEIGHT * len(found) <= exact and data.count(b"\xf3") <= MOST  # others' stand-ins
    stand_ins = dict(zip(dict.fromkeys(found), map(chr, _free(data)), strict=False)) if is_exact else {}
    if len(stand_ins) < len(set(found)):
        return strict(_without(parts))
    as_bytes = {written: stand_in.encode() for written, stand_in in stand_ins.items()}
    marks = _Marks(
        {stand_in: written for written, stand_in in as_bytes.items()},
        {stand_in: chr(int(written[2:], 16)) for written, stand_in in stand_ins.items()},
    )
    return cast("T", _restored(strict(_joined(parts, list(map(as_bytes.__getitem__, found)))), marks))


_HIDDEN = b"\xff"  # which no text has, in place of an escaped backslash, which begins no escape


def _split(data: bytes) -> list[bytes]:
    """What stands between lone surrogates, and these at the odd places; all in one part where they may be too many."""
    return _lone.split(data.replace(b"\\\\", _HIDDEN)) if _may_be_in(data) else [data]


def _may_be_in(data: bytes) -> bool:
    """Not where they are too many to be looked at: megabytes of them, in pairs or not, would take seconds."""
    if len(data) > LARGEST or b"\xff" in data:
        return False
    return 0 < data.count(b"\\ud") + data.count(b"\\uD") <= _MOST_ESCAPES


def _without(parts: list[bytes]) -> bytes:
    return _joined(parts, [rb"\ufffd"] * (len(parts) // 2))


def _joined(parts: list[bytes], others: list[bytes]) -> bytes:
    parts[1::2] = others
    return b"".join(parts).replace(_HIDDEN, b"\\\\")


def _free(data: bytes) -> Iterator[int]:
    """Code points that do not occur in it, neither as they are nor escaped."""
    written = b"".join(_private.findall(data) + _pair.findall(data))
    taken = frozenset(map(ord, cast("str", json.loads(b'"%b"' % written))))
    return (code for code in _PRIVATE if code not in taken)


def _restored(value: Any, marks: _Marks) -> Any:
    if isinstance(value, str):
        if value.isascii():
            return value
        return _private_in_text.sub(lambda found: marks.characters.get(found[0], found[0]), value)
    if isinstance(value, Raw):
        return Raw(_as_written(bytes(value), marks))
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {_restored(key, marks): _restored(each, marks) for key, each in members.items()}
    if isinstance(value, list | tuple):
        each = (_restored(part, marks) for part in cast("list[Any]", value))
        return list(each) if isinstance(value, list) else tuple(each)
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: _restored(getattr(value, name), marks) for name in value.__struct_fields__})
    return value


def _as_written(data: bytes, marks: _Marks) -> bytes:
    parts = _private.split(data)
    if len(parts) == 1:
        return data
    parts[1::2] = map(marks.written.get, parts[1::2], parts[1::2])
    return b"".join(parts)


def encode(value: Any, strict: Callable[[Any], bytes]) -> bytes:
    """What `strict` cannot write for the lone surrogates in it."""
    if isinstance(value, str):
        return json.dumps(value).encode() if is_in(value) else strict(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value).items()
        return b"{%b}" % b",".join(encode(key, strict) + b":" + encode(each, strict) for key, each in members)
    if isinstance(value, list | tuple):
        return b"[%b]" % b",".join(encode(each, strict) for each in cast("list[Any]", value))
    if isinstance(value, msgspec.Struct):
        return encode(_members(value), strict)
    return strict(value)


def _members(value: msgspec.Struct) -> Any:
    """A struct as JSON has it."""
    if value.__struct_config__.array_like:
        return list(msgspec.structs.astuple(value))
    return {
        field.encode_name: found
        for field in msgspec.structs.fields(value)
        if (found := getattr(value, field.name)) is not field.default or not value.__struct_config__.omit_defaults
    }


def pack(value: Any) -> bytes:
    """What is kept of texts of others: MessagePack, or JSON where that has no word for a text."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        return encode(value, msgspec.json.encode)


def unpack(data: bytes, type: type[T]) -> T:
    """Raises `msgspec.DecodeError`. What begins like JSON would be a mere number in MessagePack."""
    if data[:1] not in (b"[", b"{"):
        return msgspec.msgpack.decode(data, type=type)
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.DecodeError as refusal:
        return decode(data, lambda data: msgspec.json.decode(data, type=type), refusal, exact=2 * LARGEST)


def escaped(text: str) -> bytes:
    """A text that is JSON, as bytes: what stands there as it is stands there as an escape."""
    return (_in_text.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if is_in(text) else text).encode()
