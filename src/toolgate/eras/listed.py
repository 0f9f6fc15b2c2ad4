"""Which items of lists every client can read. Clients read a list as a whole: one item that they cannot read costs them
the items of all servers.

The rules this file keeps: named here is what no writer for a revision repairs (`revisions`), so that what passes
here and is written for a client can be read by it; and an item is looked at as bytes first, since lists are long.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, mcp

LONE = "text with half of a character (a lone surrogate)"
NUMBER = "a number that is out of range, or has more than 1,000 digits"
NAME = "a member whose name has more than 50,000 characters"
SHAPE = "a member that MCP requires missing or of another type"
URI = "a URI that is none"
NUL = "U+0000 in its name, by which it cannot be called"


class _Schema(msgspec.Struct):
    type: Literal["object"] = "object"


class _Tool(msgspec.Struct):
    inputSchema: _Schema | None = None  # one that is missing, the writers add


class _Resource(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]  # without a character Java's SDK cannot read the whole list
    uri: str = ""


class _Task(msgspec.Struct):
    taskId: str
    status: Literal["cancelled", "completed", "failed", "input_required", "working"]
    createdAt: str


class _Named(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct):
    """Of all other kinds a reader needs nothing but the name that they are listed by, which the catalog reads."""


_READERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    "tools": msgspec.json.Decoder(_Tool),
    **dict.fromkeys(mcp.BY_URI, msgspec.json.Decoder(_Resource)),
    "tasks": msgspec.json.Decoder(_Task),
}
_OTHERS = msgspec.json.Decoder(_Object)
_CALLED = ("tools", "prompts")
_HAVE_URIS = frozenset(name for name, kind in mcp.KINDS.items() if kind.key == "uri")


def why_unreadable(kind: str, item: Raw) -> str:
    """What an item has that some client cannot read; empty where all can. `kind` is that of its list. It is read once:
    the reader looks at the escapes of what it passes over, too. Official schemas, `Tool`, `Resource`,
    `ResourceTemplate`, `Prompt`; RFC 7493, sections 2.1 and 2.2."""
    try:
        found = _READERS.get(kind, _OTHERS).decode(item)
    except msgspec.ValidationError:
        return SHAPE
    except jsonrpc.UNREADABLE:
        return LONE
    if kind in _HAVE_URIS and not is_uri(found.uri):
        return URI
    data = bytes(item)
    if kind in _CALLED and b"\\u0000" in data and "\0" in jsonrpc.read(item, type=_Named).name:
        return NUL
    return NAME if _has_long_name(data) else NUMBER if has_number_out_of_range(data) else ""


def why_unparsable(data: bytes) -> str:
    """What some readers of JSON end at, in a message or a part of it; empty where there is nothing."""
    return NAME if _has_long_name(data) else NUMBER if _has_many_digits(data) and _has_long_number(data) else ""


def _has_long_name(data: bytes) -> bool:
    """Without escapes each quotation mark begins or ends a text: few are looked at where texts are short or long."""
    half = LONGEST_NAME // 2
    if len(data) <= LONGEST_NAME:
        return False
    if b"\\" in data:
        data = data.replace(rb"\\", b"__").replace(rb"\"", b"__")
    at = 0
    while at + half <= len(data):
        if data.find(b'"', at, at + half) >= 0:
            at += half
            continue
        begin, end = data.rfind(b'"', 0, at), data.find(b'"', at + half)
        is_long = begin >= 0 and end - begin > LONGEST_NAME + 1
        if is_long and _colon.match(data, end + 1) and data.count(b'"', 0, begin) % 2 == 0:
            return True
        at = end + 1 if end >= 0 else len(data)
    return False


LONGEST_CAPABILITIES = 64 * 1024  # bytes of what a server declares, as JSON; those of real ones have some hundreds


def capabilities(said: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a server declares, as all clients can read it: each capability is an object, without `null` in it. One for
    which there is no room any more is left out."""
    found: dict[str, Any] = {}
    left = LONGEST_CAPABILITIES
    for name, told in (said or {}).items():
        written = jsonrpc.encode(told)
        if (size := len(name) + len(written)) > left:
            continue
        left -= size
        if counting.is_deeper(written, jsonrpc.DEEPEST_ITEM) or why_unparsable(written):
            continue
        if told is True:
            found[name] = {}
        elif isinstance(told, dict):
            parts = {part: each for part, each in cast("dict[str, Any]", told).items() if each is not None}
            is_objects = name == "extensions"
            found[name] = {part: each for part, each in parts.items() if not is_objects or isinstance(each, dict)}
    return found


LONGEST_NAME, LONGEST_NUMBER = 50_000, 1_000  # bytes; some readers (Jackson) refuse what has more
_without_long_numbers = re.compile(
    rb'(?:[^"0-9-]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?=[0-9-])[0-9.eE+-]{1,1000}+(?![0-9.eE+-]))*+', re.DOTALL
)
_colon = re.compile(rb"\s*+:")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://(?P<authority>[^/?#]*))?")
_AUTHORITY = re.compile(
    r"(?:.*@)?(?:(?P<host>[^\x00-\x20#/<>?@\[\\\]^|:]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]*))?",
    re.DOTALL,
)
_PORTS = 65_536
_DIGITS = 20  # of a port that are read: `int` takes only some thousands
_PASSED_OVER = dict.fromkeys(map(ord, "\t\n\r"))  # by these readers, wherever they stand


def is_uri(text: str) -> bool:
    """Whether readers of URLs (WHATWG's rules, by which pydantic goes, too) can read it behind the name of a server,
    which stands in front of the host of a `ui://` URI: there, no address in brackets can be one."""
    written = text.translate(_PASSED_OVER)
    if written.startswith("ui://["):
        return False
    found = _URI.match(written)
    if not found or not found["authority"]:
        return bool(found)
    authority = _AUTHORITY.fullmatch(found["authority"])
    if not authority or int((authority["port"] or "").lstrip("0")[:_DIGITS] or 0) >= _PORTS:
        return False
    return authority["address"] is None or _is_address(authority["address"])


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


_FOLDED = bytes.maketrans(b"123456789E", b"000000000e")
_DIGITS_BEGIN = {bytes((each,)) for each in b"-0123456789"}
_APART = 97  # bytes; a prime, so that it is no multiple of what stands in rows
_AS_DIGITS = bytes(0x30 if each in b"0123456789+-.eE" else 0x5F for each in range(256))
_MANY_DIGITS = b"0" * 200  # fewer, with an exponent of two digits, are within the range


def has_number_out_of_range(data: bytes) -> bool:
    """Whether JSON has a number that is too large for a double, which some readers refuse and others take for infinity,
    or one of more than `LONGEST_NUMBER`. Only what has many digits or a long exponent anywhere is read for that."""
    folded = data.translate(_FOLDED, b"+")
    if b"000" not in folded or (b"e000" not in folded and _MANY_DIGITS not in folded):
        return False
    if len(data) > LONGEST_NUMBER and _has_long_number(data):
        return True
    try:
        return any(abs(number) > sys.float_info.max for number in _integers(jsonrpc.value(data)))
    except jsonrpc.UNREADABLE:
        return True


def _has_many_digits(data: bytes) -> bool:
    """In a number of more than `LONGEST_NUMBER` bytes, so many that are apart are its own."""
    return b"0" * (LONGEST_NUMBER // _APART - 1) in data[::_APART].translate(_AS_DIGITS)


def _has_long_number(data: bytes) -> bool:
    found = _without_long_numbers.match(data)
    return found is not None and data[found.end() : found.end() + 1] in _DIGITS_BEGIN


def _integers(value: Any) -> Iterator[int]:
    """Without calling itself for each level: it may be deep."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, int):
            yield found
        elif isinstance(found, dict):
            left.extend(cast("dict[str, Any]", found).values())
        elif isinstance(found, list):
            left.extend(cast("list[Any]", found))
