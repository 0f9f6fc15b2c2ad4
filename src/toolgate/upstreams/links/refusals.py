"""What a server says instead of taking a message, over whatever carries it, and the `Fault` that is made of it."""

from __future__ import annotations

from urllib.parse import urljoin

from toolgate import redaction
from toolgate.config import Server, showing
from toolgate.model import Fault, Reach
from toolgate.wire import jsonrpc


def fault(server: Server, message: str, reach: Reach, code: str = "SERVER_FAILED", hint: str = "") -> Fault:
    """A fault of this server's link."""
    return Fault(code, message, server=server.id, reach=reach, hint=hint)


def not_reached(server: Server, error: object) -> str:
    """What is told of it; a URL may hold secrets."""
    return f"Cannot reach {showing.url(server.url)}: {error or 'no answer'}"


def reach_of(status: int) -> Reach:
    """How far a message got that was answered with this HTTP error: a server that fails may have run it before."""
    return "sent_unknown" if status >= 500 else "not_sent"


def credentials_hint(status: int, server: Server | None = None) -> str:
    """What to look at where a server refuses whoever asks; empty where it does not."""
    if status not in (401, 403):
        return ""
    has_own = server is None or server.auth or any(name.lower() == "authorization" for name in server.headers)
    if has_own or status == 403:
        return "check the credentials in its headers" if not (server and server.auth) else "check its `auth`"
    return 'check the credentials in its headers, or write `auth = "oauth"` where users are to sign in'


def moved_hint(status: int, url: str, location: str) -> str:
    """Where a server says that it is now; empty where it does not say so."""
    if status >= 400 or not location:
        return ""
    try:
        return f"it has moved: write {urljoin(showing.url(url), location)} into its configuration"
    except ValueError:  # a place that is none
        return f"it has moved, it says, to {redaction.excerpt(location)!r}"


def is_rpc_error(body: bytes) -> bool:
    """Whether the body of a refusal is the server's own answer: a JSON-RPC error."""
    try:
        return bool(jsonrpc.decode(body).error)
    except jsonrpc.Malformed:
        return False


def shown(body: bytes) -> str:
    """The beginning of a body, for a message to people."""
    return redaction.excerpt(body)
