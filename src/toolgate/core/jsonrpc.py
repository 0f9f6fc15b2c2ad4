"""The JSON-RPC 2.0 envelope, read and written without looking inside.

The rule this file keeps: `params`, `result` and `error.data` travel as the bytes they came in.
Only the envelope is decoded (one pass, about 1 µs), and an id is echoed exactly as it was written.
"""

from __future__ import annotations

import itertools
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Mapping, Sized
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Raw

from toolgate.core import counting, large, outline, plain, redaction, surrogates
from toolgate.core.large import Joined, Whole

T = TypeVar("T")
Many = TypeVar("Many", bound=Sized)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

UNREADABLE = (msgspec.DecodeError, RecursionError)  # what a decoder may raise for bytes from outside
NOTHING = Raw()  # an absent member
EMPTY_OBJECT = Raw(b"{}")

Members: TypeAlias = dict[str, Raw]
Params: TypeAlias = dict[str, Any]
"""Parameters that are to be written, in values that `encode` takes."""


class Decoder(Generic[T]):
    """A reader of JSON from outside, as msgspec's, which refuses lone surrogates; this one does not."""

    def __init__(self, type: type[T] | Any = Any) -> None:
        self._strict: Callable[[Raw | bytes], T] = msgspec.json.Decoder(type, float_hook=plain.number).decode

    def decode(self, data: Raw | bytes) -> T:
        """Raises `UNREADABLE`."""
        try:
            return self._strict(data)
        except msgspec.DecodeError as refusal:
            return surrogates.decode(bytes(data), self._strict, refusal)


@overload
def read(data: Raw | bytes, type: type[T]) -> T: ...
@overload
def read(data: Raw | bytes, type: Any) -> Any: ...


def read(data: Raw | bytes, type: Any) -> Any:
    """The same for a type that is read seldom."""
    return _decoder(type).decode(data)


_decoder = lru_cache(maxsize=256)(Decoder[Any])


class Malformed(Exception):
    """Bytes that are no JSON-RPC message: `rpc` is the error code that says so, `id` what could be read of it;
    `is_answer`: they were to answer a request of that id; `only`: of `method`, `result` and `error` the one that they
    have, empty where they have none or several."""

    def __init__(self, rpc: int, message: str, id: bytes = b"null", is_answer: bool = False, only: str = "") -> None:
        super().__init__(message)
        self.rpc = rpc
        self.message = message
        self.id = id
        self.is_answer = is_answer
        self.only = only


class Message(msgspec.Struct, frozen=True, gc=False):
    """One JSON-RPC message. Absent members are `NOTHING` (falsy); `method` is empty in a response."""

    jsonrpc: str = ""
    id: Raw = NOTHING
    method: str = ""
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: Raw = NOTHING

    @property
    def is_request(self) -> bool:
        return bool(self.method) and bool(self.id)

    @property
    def is_notification(self) -> bool:
        return bool(self.method) and not self.id

    @property
    def is_response(self) -> bool:
        return not self.method


class RpcError(msgspec.Struct, frozen=True):
    """The `error` member of a response, as its sender wrote it. A code of more than 64 bits is none: for one Go's
    SDK ends its session."""

    code: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    message: str = ""
    data: Raw = NOTHING


class PlainAnswer(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A result as most are: with an id as most are."""

    jsonrpc: Literal["2.0"]
    id: int
    result: Raw


_plain_answer = msgspec.json.Decoder(PlainAnswer).decode


def read_plain_answer(data: bytes) -> PlainAnswer | None:
    """None for what may be none: whoever gets that reads it as any other message."""
    if data.count(b"[") + data.count(b"{") >= DEEPEST:
        return None
    try:
        if not data.isascii():
            data.decode()  # msgspec skips over raw members without looking at their encoding
        return _plain_answer(data)
    except (UnicodeDecodeError, *UNREADABLE):
        return None


_error: Decoder[RpcError] = Decoder(RpcError)


class _MisshapenError(msgspec.Struct):
    code: Raw = NOTHING
    message: Raw = NOTHING
    data: Raw = NOTHING


_misshapen_error: Decoder[_MisshapenError] = Decoder(_MisshapenError)
_strict_message = msgspec.json.Decoder(Message).decode
_strict_members = msgspec.json.Decoder(Members).decode
_value: Decoder[Any] = Decoder()
LONGEST_BATCH = 100  # messages
LARGEST_BATCH = 1024 * 1024  # bytes: its messages are read at once, with no turn of anybody else between them
DEEPEST = 256  # levels of a message: half of what readers that call themselves can follow, and no program's needs
DEEPEST_ITEM = 58  # of a list: what .NET's reader refuses, with what stands around it, has 65
SHALLOW = 2 * DEEPEST  # bytes, in which there are no more levels
MOST_TOKENS = 10_000  # of what is no message, in which its id is looked for: about 10 ms
# An array of so many places: what is behind them is passed over. A list would take many times the room of its bytes.
_places = [(f"at_{place}", Raw, NOTHING) for place in range(LONGEST_BATCH + 1)]
_batch: Decoder[Any] = Decoder(msgspec.defstruct("_Batch", _places, array_like=True))
_encode = msgspec.json.Encoder().encode
_EMPTY = re.compile(rb"\s*}")


def encode(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return surrogates.encode(value, _encode)


def as_text(written: bytes) -> Raw:
    """UTF-8, such as JSON, as a text of JSON. It is taken in pieces: others have their turns meanwhile, and all of it
    as a text of Python would take four times as much memory where one character is an emoji."""
    decoder = getincrementaldecoder("utf-8")()
    pieces = (decoder.decode(written[at : at + counting.PIECE]) for at in range(0, len(written), counting.PIECE))
    return Raw(b"".join([b'"', *(encode(piece)[1:-1] for piece in pieces), b'"']))


def decode(data: bytes, tokens: int = MOST_TOKENS, is_shallow: bool = False) -> Message:
    """Read one message. Raises `Malformed`: -32700 for bytes that are no JSON, -32600 for JSON that is no message, with
    its id where that stands in so many tokens. `is_shallow`: it is known that it is not nested too deep."""
    try:
        if not data.isascii():
            data.decode()  # msgspec skips over raw members without looking at their encoding
        try:
            message = _strict_message(data)  # not by `Decoder`: two of these are read in a call
        except msgspec.DecodeError as refusal:
            message = surrogates.decode(data, _strict_message, refusal)
    except (RecursionError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(error, data, tokens) from None
    if message.method:  # most are plain, and are looked at no further
        id, params = bytes(message.id), message.params
        is_plain = (
            len(message.method) < 64 and len(id) < 16 and id.isdigit() and params and memoryview(params)[0] == 0x7B
        )
    else:
        is_plain = bool(message.result) != bool(message.error)
    if not (is_plain and message.jsonrpc == "2.0") and _fault_of(message):
        message = _without_nulls(message)
        if fault := _fault_of(message):
            raise _malformed(INVALID_REQUEST, f"Invalid request: {fault}", data, tokens)
    if len(data) > SHALLOW and not is_shallow and _is_deep(message):
        raise _malformed(INVALID_REQUEST, _TOO_DEEP, _without_depth(message), tokens)
    return message


def _without_nulls(message: Message) -> Message:
    """Without members that say `null` where they may be left out, as many programs write them."""
    result = message.result
    error = given(message.error) if result else message.error
    result = given(result) if error else result
    return msgspec.structs.replace(message, params=given(message.params), result=result, error=error)


def given(raw: Raw) -> Raw:
    """A member: `NOTHING` where it says `null`."""
    return NOTHING if bytes(raw) == b"null" else raw


def _refusal(error: Exception, data: Whole, tokens: int) -> Malformed:
    if isinstance(error, RecursionError | outline.TooDeep):
        return _malformed(INVALID_REQUEST, _TOO_DEEP, data, tokens)
    if isinstance(error, msgspec.ValidationError):
        return _malformed(INVALID_REQUEST, f"Invalid request: {error}", data, tokens)
    return _malformed(PARSE_ERROR, f"Parse error: {error}", data, tokens)


_BODIES = ("params", "result", "error")
LONGEST_MEMBER = 64 * 1024  # bytes of one that is looked at by itself


def decoding(
    data: Whole, of_result: frozenset[str], tokens: int = MOST_TOKENS, server: str = ""
) -> Generator[None, None, tuple[Message, Raw]]:
    """The same as `decode` in pieces, for a large message; and those of the members of its result that are asked for,
    as an object: false stands for what is long. An error is bounded already."""
    wanted = outline.Wanted(frozenset(Message.__struct_fields__), "result", of_result)
    try:
        try:
            found = yield from outline.reading(data, wanted, DEEPEST)
        except msgspec.DecodeError as refusal:
            data = yield from _without_surrogates(data, refusal)
            found = yield from outline.reading(data, wanted, DEEPEST)
        spans = found.members.items()
        head = {name: Raw(b"0" if name in _BODIES else _short(span.of(data))) for name, span in spans}
        # A result is no `Raw`: what has it as one copies it each time that somebody looks at all of it.
        bodies: Any = {name: Raw(span.of(data)) for name, span in spans if name in _BODIES and name != "result"}
        if "result" in found.members:
            span = found.members["result"]
            bodies["result"] = large.part(data, span.start, span.end)
        message = msgspec.structs.replace(_strict_message(encode(head)), **bodies)
    except (outline.TooDeep, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(error, data, tokens) from None
    message = _without_nulls(message) if message.error or not message.result else message
    is_plain_response = message.jsonrpc == "2.0" and not message.method and bool(message.result) != bool(message.error)
    if not is_plain_response and (fault := _fault_of(message)):
        raise _malformed(INVALID_REQUEST, f"Invalid request: {fault}", data, tokens)
    if message.error:
        message = msgspec.structs.replace(message, error=_rewritten(read_error(message.error, server)))
    elif found.inside > MOST_MEMBERS:
        raise Malformed(INVALID_REQUEST, MANY_MEMBERS, bytes(message.id), is_answer=True, only="result")
    return message, Raw(encode({name: Raw(_short(span.of(data), b"false")) for name, span in found.of_inner.items()}))


def _without_surrogates(data: Whole, refusal: Exception) -> Generator[None, None, bytes]:
    """Raises the `refusal` where that was not for lone ones."""
    may_be_for_them = not isinstance(refusal, outline.TooDeep) and len(data) <= surrogates.LARGEST
    whole = bytes(data) if may_be_for_them else b""
    parts: list[bytes] = []
    for part in surrogates.replacing(whole):
        parts.append(part)
        yield
    replaced = b"".join(parts)
    try:
        if replaced in (b"", whole):
            raise refusal
    finally:
        del refusal  # or this frame and it would hold each other
    return replaced


def _rewritten(error: RpcError) -> Raw:
    return Raw(encode({"code": error.code, "message": error.message, **({"data": error.data} if error.data else {})}))


def _short(written: bytes, instead: bytes = b"null") -> bytes:
    return written if len(written) <= LONGEST_MEMBER else instead


_TOO_DEEP = f"Invalid request: it is nested more than {DEEPEST} levels deep"


def _is_deep(message: Message) -> bool:
    """Of an answer that is too much to be looked into, nobody knows."""
    body = message.params if message.method else message.result or message.error
    return counting.is_deeper(bytes(body), DEEPEST - 1, is_left=not message.method)


def _without_depth(message: Message) -> bytes:
    """What of it says who has asked what, or been answered."""
    told = {name: 0 for name in ("method", "result", "error") if getattr(message, name)}
    return encode({"id": message.id or None, **told})


def _malformed(rpc: int, message: str, data: Whole, tokens: int) -> Malformed:
    found = _envelope(data, tokens)  # once: it is what takes longest
    id, is_answer = _salvaged(found)
    told = found.keys() & {b'"method"', b'"result"', b'"error"'}
    return Malformed(rpc, message, id, is_answer, told.pop().decode().strip('"') if len(told) == 1 else "")


def read_batch(data: bytes) -> list[bytes] | None:
    """The members of an array, each as its own bytes, and one more than `LONGEST_BATCH` where there are too many; None
    where the bytes are none."""
    try:
        return [bytes(raw) for raw in msgspec.structs.astuple(_batch.decode(data)) if raw]
    except UNREADABLE:
        return None


def _fault_of(message: Message) -> str:
    """Empty where there is none."""
    if message.jsonrpc != "2.0":
        return '"jsonrpc" must be "2.0"'
    if not message.method:
        return "" if bool(message.result) != bool(message.error) else "it must have a method, a result or an error"
    if len(message.method) > LONGEST_METHOD:  # it is repeated where nobody knows it
        return f"a method must have at most {LONGEST_METHOD} characters"
    if message.id and len(memoryview(message.id)) > LONGEST_ID:
        return f"an id must have at most {LONGEST_ID:,} bytes"
    if message.id and not (bytes(message.id).isdigit() and len(message.id) < 16) and not _is_id(message.id):
        return "an id must be a string or a number"
    if message.params and memoryview(message.params)[0] != 0x7B:
        return "params must be an object"
    return ""


def _is_id(raw: Raw) -> bool:
    """Numbers that nobody can hold (1e999) are none: an id must be matched by its value."""
    written = bytes(raw)
    if written[0] == 0x22 or (len(written) < 16 and written.isdigit()):
        return True
    if written[0] not in b"-0123456789":
        return False
    try:
        return _value.decode(raw) is not None
    except UNREADABLE:
        return False


def salvaged(data: bytes, tokens: int = MOST_TOKENS) -> tuple[bytes, bool]:
    """The id of bytes that are no JSON-RPC message, `null` where they have none, and whether they answer a request."""
    return _salvaged(_envelope(data, tokens))


def _salvaged(found: Mapping[bytes, bytes]) -> tuple[bytes, bool]:
    is_answer = b'"method"' not in found and (b'"result"' in found or b'"error"' in found)
    id = found.get(b'"id"', b"null")
    return (id if len(id) <= LONGEST_ID and _is_readable_id(id) else b"null"), is_answer


def beginning(data: bytes, tokens: int) -> Mapping[bytes, bytes]:
    """The members that stand in the first bytes of a message, as they are written, each with its first token."""
    return _envelope(data, tokens)


def _envelope(data: Whole, tokens: int) -> dict[bytes, bytes]:
    """The members of the outermost object with their first token, as far as they stand in the beginning: brackets,
    strings and colons are enough for that."""
    found: dict[bytes, bytes] = {}
    depth, key, last = 0, b"", b""
    beginning = data[:SALVAGED]
    for match in itertools.islice(_token.finditer(beginning), tokens):
        token = match[0]
        if token.isspace() or (match.end() == SALVAGED < len(data)):  # what is cut off is another token
            continue
        if depth == 1 and last == b":":
            found.setdefault(key, token)
        elif token == b":":
            key = last
        depth += (token in _OPENING) - (token in _CLOSING)
        last = token
    return found


def _is_readable_id(id: bytes) -> bool:
    try:
        return isinstance(_value.decode(id), str | int | float) and _is_id(Raw(id))
    except (UnicodeDecodeError, *UNREADABLE):
        return False


LONGEST_METHOD = 256
LONGEST_ID = 4096  # bytes, of a progress token too
SALVAGED = 256 * 1024  # bytes that are looked at: one token may be a text of millions of escapes
# White space is a token too: else each byte of it would be tried as the beginning of one.
_token = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[{}\[\]:,]|[^\s"{}\[\]:,]++|\s++', re.DOTALL)
_OPENING, _CLOSING = (b"{", b"["), (b"}", b"]")


def id_key(raw: Raw | bytes) -> str | int | float:
    """An id as a value to match by, however it was written (`"a"` and `"\\u0061"` are one id)."""
    written = bytes(raw)
    is_counted = len(written) < 16 and written.isdigit() and written[0] != 0x30  # as most write their ids: 1, 2, 3
    return int(written) if is_counted else _value.decode(raw)


def named_id(raw: Raw) -> str | int | float | None:
    """The same of what another message names, as a progress token or a request to be cancelled. None for what is no id,
    or longer than any."""
    try:
        return _id.decode(raw) if len(memoryview(raw)) <= LONGEST_ID else None
    except UNREADABLE:
        return None


_id: Decoder[str | int | float] = Decoder(str | int | float)
_whole = re.compile("0|[1-9][0-9]{0,14}")


def number_of(id: object) -> int | None:
    """The number that was given as an id or a progress token, where it comes back as text (`"7"`) or as `7.0`, as some
    programs write whatever id they are given; None for anything else."""
    if isinstance(id, str):
        return int(id) if _whole.fullmatch(id) else None
    if isinstance(id, float):
        return int(id) if id.is_integer() else None
    return id if isinstance(id, int) and not isinstance(id, bool) else None


LONGEST_ERROR = 8 * 1024  # bytes of an error's message, which is logged, kept and shown wherever its server is
LARGEST_ERROR_DATA = 1024 * 1024  # bytes


def read_error(raw: Raw, server: str = "") -> RpcError:
    """The error of a response; one that is out of shape becomes an internal error. What is longer than a client can use
    is cut, or left out, and says so. Nothing else of the response is kept with it. `server`: whose words these are."""
    try:
        found = _error.decode(raw)
    except UNREADABLE:
        found = _salvaged_error(raw)
    size = len(memoryview(found.data))
    if len(found.message) > LONGEST_ERROR // 4 or size > LARGEST_ERROR_DATA:  # a character has 4 bytes at most
        data = found.data if size <= LARGEST_ERROR_DATA else Raw(encode({"leftOut": _LEFT_OUT % size}))
        return RpcError(found.code, _bounded(found.message, server), data.copy())
    return RpcError(found.code, found.message, found.data.copy())


def _salvaged_error(raw: Raw) -> RpcError:
    """What can be read of one that is out of shape."""
    code, message, data = None, "The server sent a malformed error", NOTHING
    with suppress(*UNREADABLE):
        found = _misshapen_error.decode(raw)
        data = found.data
        with suppress(*UNREADABLE):
            code = number_of(read(found.code, type=int | float | str))
        message = read(found.message, type=str)
    return RpcError(INTERNAL_ERROR if code is None or code.bit_length() > 63 else code, message, data)


_LEFT_OUT = "%d bytes of data are left out by toolgate: the limit is 1 MiB"


def _bounded(message: str, server: str) -> str:
    """Without secrets before it is cut, so that no part of one is left at the cut."""
    whole = surrogates.utf8(message)
    end = LONGEST_ERROR
    if len(whole) <= end:
        return message
    known = surrogates.utf8(redaction.excerpt(message, LONGEST_ERROR, server))
    while len(known) > end and known[end] & 0xC0 == 0x80:  # within a character
        end -= 1
    return f"{known[:end].decode(errors='surrogatepass')} [cut by toolgate: it had {len(whole)} bytes]"


def members(raw: Raw | bytes) -> Members:
    """The members of a JSON object, each as its own bytes. Raises `msgspec.DecodeError` for anything else."""
    if not raw:
        return {}
    try:
        return _strict_members(raw)  # not by `Decoder`: this is read a dozen times in a call
    except msgspec.DecodeError as refusal:
        return surrogates.decode(bytes(raw), _strict_members, refusal)


def read_given(data: Raw | bytes, type: type[T]) -> T:
    """An object of others than MCP's, whose members that say `null` are left out. Raises `UNREADABLE`."""
    found = read(data, type=Members)
    return read(encode({name: raw for name, raw in found.items() if given(raw)}), type=type)


MOST_MEMBERS = 1_000  # of a result, or of the parameters of a request: no honest program has as many
LEAST_OF_MANY = 5 * MOST_MEMBERS  # bytes that more than these take, at least
MANY_MEMBERS = f"its result has more than {MOST_MEMBERS:,} members"


def has_many_members(raw: Raw | bytes) -> bool:
    """Whether an object has more members than are looked at one by one. They are counted where no step of Python is
    taken for each. What is no object has none."""
    if len(memoryview(raw)) < LEAST_OF_MANY or bytes(raw).count(b":") <= MOST_MEMBERS:
        return False
    try:
        return len(members(raw)) > MOST_MEMBERS
    except UNREADABLE:
        return False


MOST_ITEMS = 10_000  # of one array, or members of one object, that are looked at one by one: about 30 ms
_items: Decoder[list[Raw]] = Decoder(list[Raw])


class TooMany(msgspec.ValidationError):
    """What is to be looked at one by one is more than that."""


def items(raw: Raw | bytes) -> list[Raw]:
    """The items of a JSON array, each as its own bytes, to be looked at one by one. Raises `TooMany`, which is one of
    `UNREADABLE`, and `msgspec.DecodeError` for anything else than an array."""
    if counting.has_more_values(bytes(raw), 5 * MOST_ITEMS):  # they are not even parted
        raise TooMany(f"more than {5 * MOST_ITEMS:,} values")
    return few(_items.decode(raw))


def few(found: Many) -> Many:
    """The same items, or members. Raises `TooMany`."""
    if len(found) > MOST_ITEMS:
        raise TooMany(f"more than {MOST_ITEMS:,} items")
    return found


value = _value.decode
"""Any JSON value, decoded. For what a decision needs, never for passing on."""


_in_order = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Any) -> bytes:
    """JSON with its members in one order, so that equal values are equal bytes."""
    try:
        return _in_order(value)
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def spelled(text: str) -> bytes | None:
    """A text that is JSON, in that order; None for any other."""
    try:
        return canonical(value(surrogates.escaped(text)))
    except (ValueError, RecursionError):
        return None


def with_members(raw: Raw | bytes, new: Mapping[str, Raw | bytes]) -> bytes:
    """The object with members set; equal to decode, insert, encode, but no other member is looked into."""
    found = members(raw)
    found.update((name, Raw(member)) for name, member in new.items())
    return encode(found)


def object_of(members: Members, body: Raw | bytes) -> bytes | Joined:
    """An object of members of another one, and not joined where that is large."""
    if not large.is_view(body):
        return encode(members)
    parts: list[bytes | Raw] = [b"{"]
    for name, member in members.items():
        parts += [b"," if len(parts) > 1 else b"", encode(name), b":", member]
    large.let_go(body)
    return Joined(*parts, b"}", of=body)


def with_first_member(raw: Raw | bytes, member: bytes) -> bytes | Joined:
    """The object with `member` (`"name":value`) put first. The caller knows that it is not there yet."""
    if large.is_view(raw):  # it begins with its bracket
        return Joined(b"{", member, b"" if _EMPTY.match(raw, 1) else b",", large.part(raw, 1, len(memoryview(raw))))
    body = bytes(raw)
    start = body.index(b"{") + 1
    joint = b"" if _EMPTY.match(body, start) else b","
    return b"".join((body[:start], member, joint, body[start:]))


_written = lru_cache(256)(encode)  # of methods


def request(id: int, method: str, params: Raw | bytes) -> bytes:
    written = _written(method) if len(method) <= 64 else encode(method)
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (id, written, params)


def notification(method: str, params: Raw | bytes = EMPTY_OBJECT) -> bytes:
    return b'{"jsonrpc":"2.0","method":%s,"params":%b}' % (encode(method), params)


def result(id: Raw | bytes, body: Raw | bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, body)


def result_of(id: bytes, body: Raw | bytes | Joined) -> bytes | Joined:
    """The same of what is not joined where it is large."""
    if isinstance(body, Joined):
        return Joined(b'{"jsonrpc":"2.0","id":%b,"result":' % id, body, b"}")
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, body)


def error(id: Raw | bytes, code: int, message: str, data: Mapping[str, Any] | Raw | None = None) -> bytes:
    """An error response; `id` is `b"null"` where the request's could not be read."""
    tail = b',"data":' + encode(data) if data else b""
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%s%b}}' % (id, code, encode(message), tail)


def one_line(message: bytes) -> bytes:
    """The message without what anybody reads as a line break. Those of ASCII are white space outside strings; inside
    strings JSON forbids them. Those of Unicode stand in strings only, where they become escapes: readers that end a
    line at them (Python's `splitlines`, Node's `readline`) would take what follows for another message."""
    if b"\n" in message or b"\r" in message:
        message = message.replace(b"\n", b" ").replace(b"\r", b" ")
    return message if message.isascii() else _without_separators(message)


class OneLine:
    """The same of a message that is taken piece by piece: each comes without what may be the beginning of a line break,
    which goes with the next one, or is the `rest`."""

    rest = b""

    def piece(self, taken: bytes) -> bytes:
        taken = self.rest + taken
        self.rest = found[0] if (found := _begun.search(taken)) else b""
        return one_line(taken[: len(taken) - len(self.rest)])


_begun = re.compile(rb"(?:\xc2|\xe2\x80?)\Z")


def _without_separators(message: bytes) -> bytes:
    for written, escape in _SEPARATORS:
        message = message.replace(written, escape)
    return message


_SEPARATORS = tuple((each.encode(), b"\\u%04x" % ord(each)) for each in "\x85\u2028\u2029")
