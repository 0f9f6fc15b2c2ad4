"""What a server says instead of taking a message, over whatever carries it, and the `Fault` that is made of it."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from toolgate.config import Server, masking
from toolgate.core import jsonrpc, redaction
from toolgate.core.fault import Code, Fault, Reach, Words
from toolgate.core.large import Whole
from toolgate.upstreams import diagnosis

LONGEST_PLACE = 500  # characters of a URL that is written into a hint
HTTP_STATUS = "http_status"  # in the `extra` of a fault that is a server's own HTTP error


def fault(
    server: Server,
    message: str,
    reach: Reach,
    code: Code = "SERVER_FAILED",
    hint: str = "",
    words: Words | None = None,
) -> Fault:
    """A fault of this server's link. `words`: what the server said, which others than the call that it said it to
    are told only where they may use all of it."""
    return Fault(code, message, server=server.id, reach=reach, hint=hint, words=words)


def refused(server: Server, status: int, body: bytes, hint: str = "", is_own: bool = True) -> Fault:
    """What becomes of a message that was answered with an HTTP error. Whatever the status means, servers and what
    stands before them give it when a call has run, too. `is_own`: what the body says is for this call."""
    words = said(body, server.id, is_own)
    found = fault(server, f"{server.name} answered HTTP {status}", "sent_unknown", hint=hint, words=words)
    found.extra = {HTTP_STATUS: status}
    return found


def said(body: Whole, server: str, is_own: bool = True) -> Words:
    """What a server answered to a call; `is_own`: for that call."""
    return Words(shown(body, server), is_own=is_own)


def is_of_the_message(fault: Fault) -> bool:
    """Whether it is a refusal that may lie in the message alone: too large, forbidden by a firewall, not understood.
    401, 408 and 429 are about whoever sends, and when."""
    status = fault.extra.get(HTTP_STATUS, 0)
    return 400 <= status < 500 and status not in (401, 408, 429)


def unreachable(server: Server, error: object) -> Fault:
    """No connection came of it. Where that is for a lack of our own, it says nothing of the server."""
    code: Code = "RATE_LIMITED" if diagnosis.is_our_lack(error) else "SERVER_FAILED"
    return fault(server, _not_reached(server, error), "not_sent", code)


def _not_reached(server: Server, error: object) -> str:
    """What is told of it; a URL may hold secrets."""
    why, hint = diagnosis.of_system(error) if isinstance(error, OSError) else ("", "")
    said = f"{why} ({hint})" if hint else error or "no answer"
    return f"Cannot reach {masking.url(server.url)}: {said}"


def credentials_hint(status: int, server: Server | None = None) -> str:
    """What to look at where a server refuses whoever asks; empty where it does not."""
    if status not in (401, 403):
        return ""
    has_own = server is None or server.auth or any(name.lower() == "authorization" for name in server.headers)
    if has_own or status == 403:
        return "check the credentials in its headers" if not (server and server.auth) else "check its `auth`"
    return 'check the credentials in its headers, or set `auth = "oauth"` if users must sign in'


def moved_hint(status: int, url: str, location: str, server: str) -> str:
    """Where a server says that it is now; empty where it does not say so."""
    if status >= 400 or not location:
        return ""
    said = f"it says that it has moved to {redaction.excerpt(location, server=server)!r}"
    if len(location) > LONGEST_PLACE:
        return said
    try:
        there, here = urlsplit(place := urljoin(masking.url(url), location)), urlsplit(url)
    except ValueError:  # a place that is none
        return said
    # What it says is advice of ours only where it leads to the same host: anything else is its word alone.
    is_ours = there.scheme in ("http", "https") and there.hostname == here.hostname and len(place) <= LONGEST_PLACE
    return f"it has moved: set its url to {place}" if is_ours else said


def is_rpc_error(body: bytes, to: int | str | None = None) -> bool:
    """Whether the body of a refusal is the server's own answer: a JSON-RPC error; `to` this very request, where one is
    given."""
    try:
        message = jsonrpc.decode(body)
        id = jsonrpc.id_key(message.id) if message.id else None
        is_to_it = to is None or to in (id, jsonrpc.number_of(id))
    except (jsonrpc.Malformed, *jsonrpc.UNREADABLE):
        return False
    return bool(message.error) and is_to_it


def shown(body: Whole, server: str) -> str:
    """The beginning of a body, for a message to people."""
    return redaction.excerpt(body[: redaction.LONGEST_QUOTED + 1], server=server)
