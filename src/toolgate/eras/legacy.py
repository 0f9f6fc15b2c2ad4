"""The handshake revisions, 2024-11-05 to 2025-11-25, as a translation: sessions, and requests in both directions.

First what we say to legacy clients, then what we say to legacy servers, then what both ends do alike. The state of
an end lives with its owner: `frontends.session` towards clients, `upstreams.mcp.requests` towards servers.
Spec: revision 2025-11-25, basic/lifecycle, basic/transports, client/*.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.core import asks, counting, jsonrpc, large, mcp, redaction
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members, Message, Params
from toolgate.core.large import Joined
from toolgate.core.listing import Listing
from toolgate.core.mcp import Revision
from toolgate.core.model import Accepted, Answer, Ask, Call, Client, Done, Required
from toolgate.eras import calls, listed, naming, questions, revisions, tasks
from toolgate.eras.calls import Headers

LONGEST_INITIALIZE = 256 * 1024  # bytes
LONGEST_VERSION = 100  # characters of one that we do not know
_date = re.compile(r"\d{4}-\d{2}-\d{2}")


class Initialize(msgspec.Struct):
    """Of the parameters of `initialize` what is kept: nothing goes by who a client says that it is."""

    protocolVersion: str
    capabilities: Mapping[str, Any] = {}


class _Info(msgspec.Struct, frozen=True):
    """An object."""


class _Initialize(msgspec.Struct):
    protocolVersion: str
    capabilities: Raw = jsonrpc.EMPTY_OBJECT
    clientInfo: _Info = _Info()


def read_initialize(params: Raw) -> Initialize:
    """Raises `Fault` INVALID_ARGS. A version that is no date is an error, an unknown one is not (behaviour.md 6.9)."""
    if len(memoryview(params)) > LONGEST_INITIALIZE:
        message = f"initialize is too large: the limit is {LONGEST_INITIALIZE} bytes"
        raise Fault("INVALID_ARGS", message, hint="omit the icons, or give them by URL")
    try:
        read = jsonrpc.read(params or b"{}", type=_Initialize)
        asked = Initialize(read.protocolVersion, asks.declared(read.capabilities))
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid params of initialize: {error}") from None
    if not _date.fullmatch(asked.protocolVersion):
        raise Fault(
            "INVALID_ARGS",
            f"Unsupported protocol version: {asked.protocolVersion!r} is not a revision date",
            extra={"supported": list(mcp.dates("legacy")), "requested": asked.protocolVersion},
        )
    return asked


def negotiate(asked: str) -> Revision:
    """The revision to speak: the client's own where we know it, else our latest."""
    return mcp.revision("legacy", asked) or mcp.LATEST["legacy"]


def write_initialized(
    revision: Revision, capabilities: Mapping[str, Any], server_info: Mapping[str, Any], instructions: str
) -> bytes:
    """The result of `initialize`; capabilities that are not of this revision are left out."""
    known = tasks.known_to(revision, capabilities)
    result: dict[str, Any] = {"protocolVersion": revision.date, "capabilities": known, "serverInfo": server_info}
    if instructions:
        result["instructions"] = instructions
    return jsonrpc.encode(result)


def write_done(revision: Revision, body: Raw | bytes, method: str = "") -> Raw | bytes | Joined:
    """A result of a method for a client of this revision, in its words: see `revisions.write_result`. What a modern
    server says of results, and of itself in each, is not for it."""
    if large.is_view(body) and not revision.names and (done := _large_done(revision, body)):
        return done
    whole = bytes(body)
    if len(whole) <= counting.LARGE or not counting.is_too_much(body):
        if whole.find(b'"resultType"') >= 0 or whole.find(_SERVER_INFO) >= 0:
            body = bytes(_without_envelope(whole))
        body = revisions.write_result(body, revision)
    return naming.write(method, body, revision) if revision.names else body


def _large_done(revision: Revision, body: Raw | bytes) -> Raw | bytes | Joined | None:
    """The same of a large one, without a copy of it; None where more of it is to be written in other words."""
    if counting.is_too_much(body):
        return body
    if revisions.write_result(body, revision) is not body:
        return None
    return _without_envelope(body) if large.holds_any(body, b'"resultType"', _SERVER_INFO) else body


def _without_envelope(body: Raw | bytes) -> Raw | bytes | Joined:
    try:
        found = jsonrpc.members(body)
        meta = jsonrpc.members(found["_meta"]) if "_meta" in found else {}
    except jsonrpc.UNREADABLE:
        return body
    rest = {name: raw for name, raw in found.items() if name != "resultType" or bytes(raw) != b'"complete"'}
    if mcp.SERVER_INFO_KEY in meta:
        del meta[mcp.SERVER_INFO_KEY]
        rest["_meta"] = Raw(jsonrpc.encode(meta))
        if not meta:
            del rest["_meta"]
    return jsonrpc.object_of(rest, body) if rest != found else body


_SERVER_INFO = mcp.SERVER_INFO_KEY.partition("/")[2].encode()  # the slash in front may be escaped


def write_listing(revision: Revision, listing: Listing) -> bytes:
    """The result of a list, each item as this revision allows it."""
    written = jsonrpc.encode(listing.members() | {listing.kind: revisions.write_items(listing, revision)})
    return bytes(naming.write(mcp.LIST_OF_KIND.get(listing.kind, ""), written, revision))


def knows(revision: Revision, notification: str) -> bool:
    """Whether clients of this revision know such a notification."""
    return notification in revision.notifications or notification not in _NOT_IN_ALL


_NOT_IN_ALL = frozenset[str]().union(*(revision.notifications for revision in mcp.REVISIONS.values()))


def error_code(fault: Fault, method: str) -> int:
    """Not found is -32002 here for resources; codes of the newer era are not known here."""
    if mcp.METHODS.get(method, mcp.UNDEFINED).target == "uri" and fault.code == "RESOURCE_NOT_FOUND":
        return mcp.RESOURCE_NOT_FOUND
    return jsonrpc.INTERNAL_ERROR if fault.rpc in mcp.MODERN_ONLY_ERRORS else fault.rpc


def write_ask(ask: Ask, revision: Revision) -> Members:
    """The parameters of a question to a legacy client. A URL elicitation needs an id here."""
    params = questions.write_question(ask, revision)
    if ask.method == "elicitation/create" and bytes(params.get("mode", b"")) == b'"url"':
        params.setdefault("elicitationId", Raw(jsonrpc.encode(str(uuid.uuid4()))))
    return params


# To servers.


class Initialized(msgspec.Struct):
    """A server's answer to `initialize`."""

    protocolVersion: str
    capabilities: dict[str, Any] | None = None
    serverInfo: dict[str, Any] | None = None
    instructions: str | None = ""


def initialize_params(revision: Revision, capabilities: Mapping[str, Any], info: Raw) -> bytes:
    """The parameters of `initialize` in this revision; `info` is who we are. Capabilities have no member that it does
    not know: there are servers that refuse what they do not know."""
    if not revision.has_parts_of_asks:  # then all that can be asked of a person are forms
        known = revision.asks if "form" in capabilities.get("elicitation", {}) else revision.asks - {"elicitation"}
        parts: dict[str, Any] = {name: {} for name in capabilities if name in known}
        capabilities = parts | {name: told for name, told in capabilities.items() if name == "roots"}
    return jsonrpc.encode({"protocolVersion": revision.date, "capabilities": capabilities, "clientInfo": info})


def read_initialized(body: Raw, server: str = "") -> tuple[Revision, Initialized]:
    """The revision that this server speaks, and all that it says. Raises `Fault` where the answer is none, or its
    version is not one of ours."""
    try:
        answer = jsonrpc.read(body, type=Initialized)
    except jsonrpc.UNREADABLE as error:
        raise Fault("SERVER_FAILED", f"The answer to initialize is malformed: {error}") from None
    revision = mcp.revision("legacy", _SAME.get(answer.protocolVersion, answer.protocolVersion))
    if not revision:
        spoken = redaction.excerpt(answer.protocolVersion, LONGEST_VERSION, server)
        raise Fault("SERVER_FAILED", f"The server speaks only {spoken!r}, which toolgate does not know")
    return revision, answer


_SAME = {"2024-10-07": "2024-11-05"}  # its draft, which old servers name


def shared_capabilities(has_roots: bool) -> dict[str, Any]:
    """What a server of more than one client is told: questions are bridged, and refused for clients that cannot."""
    told: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}
    return told | {"roots": {}} if has_roots else told


def tells_of_roots(client: Client) -> bool:
    """Whether the server of this client alone is told that its roots may have changed. Clients of 2026-07-28 have no
    word for that: for them the gateway says it, where the server has to ask once more."""
    roots = client.capabilities.get("roots")
    return roots is not None and (client.era == "modern" or bool(roots.get("listChanged")))


def write_answer(id: Raw, answer: Answer) -> bytes:
    """The message that answers the other side's request."""
    if answer.error:
        return jsonrpc.error(id, answer.error.code, answer.error.message, answer.error.data or None)
    return jsonrpc.result(id, answer.result)


class _Pages(msgspec.Struct):
    elicitations: list[Raw] = []


def read_pages(fault: Fault) -> tuple[Ask, ...]:
    """The pages that a server wants its user to visit before it takes a call (-32042), as questions. None for any
    other fault. Spec 2025-11-25: client/elicitation, "URL Elicitation Required Error"."""
    if not fault.upstream or fault.upstream.code != mcp.URL_ELICITATION_REQUIRED:
        return ()
    found = enumerate(pages(fault.upstream), 1)
    return tuple(Ask(f"page-{number}", "elicitation/create", page) for number, page in found)


MOST_BESIDE_PAGES = 10_000  # JSON values of such an error, which is read a few times: some milliseconds


def pages(error: jsonrpc.RpcError) -> list[Raw]:
    """Those of such an error, where they can be read and are no more, nor longer, than a user may be asked for."""
    try:
        found = [] if _is_too_much(error) else jsonrpc.read(error.data or b"{}", type=_Pages).elicitations
    except jsonrpc.UNREADABLE:
        return []
    is_long = sum(len(memoryview(page)) for page in found) > asks.MOST_TO_READ
    return [] if is_long or len(found) > asks.MOST_OPEN else found


def with_web_pages(error: jsonrpc.RpcError) -> jsonrpc.RpcError:
    """Such an error with no pages in it but those that its user may be sent to. Raises `Fault`."""
    found = pages(error)
    for page in found:
        asks.check_page(page)
    if not found:
        return jsonrpc.RpcError(error.code, error.message) if may_name_pages(error) else error
    said = jsonrpc.members(error.data)
    left, unsigned = calls.without_lookalikes(said, _OF_PAGES), list(map(_unsigned, found))
    if left is said and unsigned == found:
        return error
    return jsonrpc.RpcError(error.code, error.message, Raw(jsonrpc.encode({**left, "elicitations": unsigned})))


def _unsigned(page: Raw) -> Raw:
    """A page without what the gateway alone says in a `_meta`: which server asks, for example."""
    said = jsonrpc.members(page)
    members = calls.without_lookalikes(said, _OF_A_PAGE)
    meta = jsonrpc.members(found) if bytes(found := members.get("_meta", jsonrpc.NOTHING)).startswith(b"{") else {}
    left = {name: raw for name, raw in meta.items() if not name[: len(_OURS)].casefold().startswith(_OURS)}
    if members is said and len(left) == len(meta):
        return page
    return Raw(jsonrpc.encode({**members, "_meta": left} if meta else members))


_OURS = "toolgate/"
_OF_A_PAGE = calls.by_folded(("_meta",))
_OF_PAGES = calls.by_folded(("elicitations",))


def may_name_pages(error: jsonrpc.RpcError) -> bool:
    """Whether any reader may find pages in such an error, where we find none: one that does not mind case, or takes
    more than we do."""
    try:
        return _is_too_much(error) or any(calls.folded(name) in _OF_PAGES for name in jsonrpc.members(error.data))
    except jsonrpc.UNREADABLE:
        return True


def _is_too_much(error: jsonrpc.RpcError) -> bool:
    return counting.has_more_values(bytes(error.data), MOST_BESIDE_PAGES)


def cancelled(id: int | Raw, reason: str) -> bytes:
    """The notification that the request of this id is over, for its receiver."""
    return jsonrpc.notification(mcp.CANCELLED, jsonrpc.encode({"requestId": id, "reason": reason}))


def read_answer(message: Message) -> Answer:
    """What the other side answered."""
    if message.error:
        return Answer(error=jsonrpc.read_error(message.error))
    return Answer(result=message.result)


class ToServer:
    """How a handshake revision is spoken to one server: the handshake said what can be said; questions come as requests
    of the server."""

    closing_cancels = False
    hears_of_roots = True

    def __init__(self, revision: Revision, found: Initialized) -> None:
        self.revision = revision
        self.resource_missing = revision.resource_missing
        self.capabilities = listed.capabilities(found.capabilities)
        self.instructions = found.instructions or ""
        self.runs_tasks = revision.tasks == "experimental" and tasks.offers_tasks(self.capabilities)
        self._headers: Headers = (
            ((b"MCP-Protocol-Version", revision.date.encode()),) if revision.has_version_header else ()
        )

    def call(self, call: Call, id: int) -> tuple[Params, Headers]:
        meta = {mcp.PROGRESS_KEY: Raw(b"%d" % id)} if call.wants_progress else {}
        return tasks.write_wish(call, calls.write_params(call, meta)), self._headers

    def listing(self, method: str, cursor: str | None, client: Client) -> tuple[Members, Headers]:
        return calls.write_cursor(cursor), self._headers

    def ping(self) -> tuple[str, Members, Headers]:
        return "ping", {}, self._headers

    def other(self) -> Headers:
        return self._headers

    def read(self, call: Call, body: Raw) -> Done | Accepted | Required:
        if call.task and tasks.is_made(body):
            return Accepted(body)
        return Done(naming.read(call.method, body, self.revision) if self.revision.names else body)
