"""A failure as a value that is raised: whose it is, how far the call got, and what to do about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp, redaction

Reach: TypeAlias = Literal["not_sent", "sent_unknown", "executed"]


class Reached(msgspec.Struct):
    """How far a round of a call has got: whether all policies have let it go on, or by which it still waits; and
    whether anything of it was, or may have been, sent to its server. `recheck` is asked for the call as it may be sent
    now, where it has waited since it was let go on; each of `rests` is told when it waits for a person (True) and when
    it goes on, so that it holds nothing meanwhile that others need. Raises `Fault` where that is not to be had then.
    `goes_on`: it has become a task, at which its server is at work; each of `over` is told when that ends. `read` is
    what large arguments say to the control tool that is called with them."""

    waits_for: str = ""
    is_let: bool = False
    is_sent: bool = False
    recheck: Callable[[Any], Awaitable[Any]] | None = None
    rests: tuple[Callable[[bool], None], ...] = ()
    goes_on: bool = False
    over: tuple[Callable[[], None], ...] = ()
    read: tuple[str, Any, Any] | None = None


# String code → JSON-RPC code (behaviour.md section 5).
Code: TypeAlias = Literal[
    mcp.Missing,
    "SERVER_NOT_FOUND",
    "INVALID_ARGS",
    "INVALID_STATE",
    "INVALID_REQUEST",
    "PARSE_ERROR",
    "METHOD_NOT_FOUND",
    "ACCESS_DENIED",
    "APPROVAL_DENIED",
    "APPROVAL_REQUIRED",
    "INSUFFICIENT_SCOPE",
    "SIGN_IN_REQUIRED",
    "RATE_LIMITED",
    "SERVER_FAILED",
    "TIMEOUT",
    "SESSION_ERROR",
    "SHUTTING_DOWN",
    "CIRCUIT_OPEN",
    "UPSTREAM_ERROR",
    "INTERNAL",
    "HEADER_MISMATCH",
    "MISSING_CAPABILITY",
    "UNSUPPORTED_VERSION",
]
RPC_CODES: Mapping[Code, int] = {
    "SERVER_NOT_FOUND": jsonrpc.INVALID_PARAMS,
    **dict[Code, int].fromkeys(mcp.MISSING, jsonrpc.INVALID_PARAMS),
    "INVALID_ARGS": jsonrpc.INVALID_PARAMS,
    "INVALID_STATE": jsonrpc.INVALID_PARAMS,
    "INVALID_REQUEST": jsonrpc.INVALID_REQUEST,
    "PARSE_ERROR": jsonrpc.PARSE_ERROR,
    "METHOD_NOT_FOUND": jsonrpc.METHOD_NOT_FOUND,
    "ACCESS_DENIED": jsonrpc.INVALID_REQUEST,
    "APPROVAL_DENIED": jsonrpc.INVALID_REQUEST,
    "APPROVAL_REQUIRED": jsonrpc.INVALID_REQUEST,
    "INSUFFICIENT_SCOPE": jsonrpc.INVALID_REQUEST,
    "SIGN_IN_REQUIRED": jsonrpc.INVALID_REQUEST,
    "RATE_LIMITED": jsonrpc.INTERNAL_ERROR,
    "SERVER_FAILED": jsonrpc.INTERNAL_ERROR,
    "TIMEOUT": jsonrpc.INTERNAL_ERROR,
    "SESSION_ERROR": jsonrpc.INTERNAL_ERROR,
    "SHUTTING_DOWN": jsonrpc.INTERNAL_ERROR,
    "CIRCUIT_OPEN": jsonrpc.INTERNAL_ERROR,
    "UPSTREAM_ERROR": jsonrpc.INTERNAL_ERROR,
    "INTERNAL": jsonrpc.INTERNAL_ERROR,
    "HEADER_MISMATCH": mcp.HEADER_MISMATCH,
    "MISSING_CAPABILITY": mcp.MISSING_CAPABILITY,
    "UNSUPPORTED_VERSION": mcp.UNSUPPORTED_VERSION,
}
RETRYABLE = frozenset(
    {
        "SERVER_FAILED",
        "TIMEOUT",
        "CIRCUIT_OPEN",
        "SESSION_ERROR",
        "SHUTTING_DOWN",
        "RATE_LIMITED",
        "APPROVAL_REQUIRED",
        "SIGN_IN_REQUIRED",
    }
)


LONGEST = 16 * 1024  # characters of a message or a hint, which may quote a server: it is kept, logged and listed


def _bounded(said: str, is_scrubbed: bool = False) -> str:
    """Without secrets before it is cut, so that no part of one is left at the cut."""
    if len(said) <= LONGEST:
        return said
    return (said[:LONGEST] if is_scrubbed else redaction.excerpt(said, LONGEST)) + " [cut by toolgate]"


class Words(msgspec.Struct, frozen=True):
    """What a server said: the last line that it wrote to stderr, what it answered a request that failed, or why it
    closed a connection; and what to do about that. `is_own`: it said so to the very call that is told of it."""

    last: str = ""
    hint: str = ""
    is_own: bool = False

    def added(self, message: str, hint: str) -> tuple[str, str]:
        """A message and a hint with them."""
        return (f"{message}: {self.last}" if self.last else message), self.hint or hint


class Fault(Exception):
    """A failure that says whose it is and how far the call got.

    `code` is a key of `RPC_CODES`. `upstream` is the error that a server sent itself: it is relayed as it stands.
    `reach` is how far the call got, None where the question does not arise. `words` may be about another client's call:
    the message and the hint have nothing of them before `told` (see there). `is_scrubbed`: what it says of others was
    scrubbed where it came in, and the rest is its caller's own: whatever is taken out of that answers a guess.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        server: str = "",
        tool: str = "",
        reach: Reach | None = None,
        hint: str = "",
        upstream: jsonrpc.RpcError | None = None,
        extra: Mapping[str, Any] | None = None,
        words: Words | None = None,
        is_scrubbed: bool = False,
    ) -> None:
        super().__init__(message := _bounded(message, is_scrubbed))
        self.code: Code = code
        self.message = message
        self.server = server
        self.tool = tool
        self.reach: Reach | None = reach
        self.hint = _bounded(hint, is_scrubbed)
        self.upstream = upstream
        self.extra = extra or {}
        self.words = words
        self.is_scrubbed = is_scrubbed

    def __repr__(self) -> str:
        return f"Fault({self.code}, {self.message!r}, server={self.server!r}, reach={self.reach})"

    def at(self, server: str, tool: str) -> Fault:
        """The same fault with its place named, where it is not yet. Always a new one: an exception is raised once."""
        return Fault(
            self.code,
            self.message,
            server=self.server or server,
            tool=self.tool or tool,
            reach=self.reach,
            hint=self.hint,
            upstream=self.upstream,
            extra=self.extra,
            words=self.words,
            is_scrubbed=self.is_scrubbed,
        )

    def told(self) -> Fault:
        """The same fault for who may read what its server writes to stderr."""
        if not self.words:
            return self
        found = self.at("", "")
        found.message, found.hint, found.words = *self.words.added(self.message, self.hint), None
        found.__cause__, found.__suppress_context__ = self.__cause__, True
        return found

    def shown(self, text: Callable[[str], str], body: Callable[[bytes], bytes], value: Callable[[Any], Any]) -> Fault:
        """The same fault with all that it says as these have it."""
        upstream = self.upstream
        if upstream:
            data = Raw(body(bytes(upstream.data))) if upstream.data else upstream.data
            upstream = msgspec.structs.replace(upstream, message=text(upstream.message), data=data)
        found = Fault(
            self.code,
            text(self.message),
            server=self.server,
            tool=text(self.tool),
            reach=self.reach,
            hint=text(self.hint),
            upstream=upstream,
            extra=value(self.extra),
            words=self.words and Words(text(self.words.last), text(self.words.hint), self.words.is_own),
        )
        found.__cause__, found.__suppress_context__ = self.__cause__, True
        return found

    @property
    def rpc(self) -> int:
        return self.upstream.code if self.upstream else RPC_CODES[self.code]

    def data(self) -> Mapping[str, Any] | Raw | None:
        """The `data` member of the JSON-RPC error: the server's own where the error is a server's."""
        if self.upstream:
            return self.upstream.data or None
        shown = {"code": self.code, "retryable": self.code in RETRYABLE}
        named = {"server": self.server, "tool": self.tool, "hint": self.hint, "outcome": self.reach}
        return shown | {name: value for name, value in named.items() if value} | dict(self.extra)


def let_go(error: BaseException) -> None:
    """Forget what an error that was answered still holds: its traceback holds the frames that it came through, and
    these hold the request. Where one of them holds the error too, only the garbage collector would end that, and it
    counts objects, not bytes."""
    found: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if found is None:
            return
        found.__traceback__ = None
        before, found.__context__, found.__cause__ = found.__context__ or found.__cause__, None, None
        found = before


MOST_CAUSES = 100  # errors behind one
