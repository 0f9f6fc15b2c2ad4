"""One whole list of a server, read page by page, and how long it holds.

The rules this file keeps: a list that has no end or is too long is given up, and so is a cursor that comes back; a page
is not taken apart before it is known to be within bounds. Spec: server/utilities/pagination; 2026-07-28
server/utilities/caching.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.core import counting, items, jsonrpc, mcp, templates
from toolgate.core.fault import Fault
from toolgate.core.model import Client
from toolgate.core.redaction import excerpt
from toolgate.core.steps import InSteps
from toolgate.eras import calls, header_arguments, listed, naming, output_schemas
from toolgate.eras.output_schemas import OutputSchemas
from toolgate.eras.repair import Repair
from toolgate.upstreams.base import Items
from toolgate.upstreams.bounds import FEW, Bounds, little_together, longest_of, too_long, too_many_bytes, too_many_items
from toolgate.upstreams.mcp.requests import Requests

log = logging.getLogger(__name__)

MOST_PAGES = 1000  # of one list
LONGEST_TTL = 24 * 3600.0  # seconds for which a server's list is kept, whatever it says
VALUES = 100  # JSON values that an item may have, taking all of a page together
MOST_TOLD = 10  # tools that are named to people
LARGEST_ITEM = 2 * 1024 * 1024  # bytes: many transports have no room for one that is larger, see `frontends.ways`
MOST_VALUES = 10_000  # of one item: that one is left out. Of 7,400 real tools the largest has 240


class Page(msgspec.Struct, frozen=True):
    items: list[Raw]
    cursor: str | None
    ttl: float | None  # seconds
    is_public: bool


async def read_list(requests: Requests, method: str, kind: str, client: Client, bounds: Bounds) -> Items:
    """Every page of a list; `kind` is the member that holds its items. Raises `Fault`."""
    server = requests.server.id
    pages: list[Page] = []
    seen: set[str | None] = set()
    cursor: str | None = None
    limits = bounds.limits
    count = size = 0
    while cursor not in seen:
        seen.add(cursor)
        if len(seen) > MOST_PAGES:
            raise Fault(
                "UPSTREAM_ERROR", f"The server's list of {kind} has more than {MOST_PAGES:,} pages", server=server
            )
        params, headers = requests.dialect.listing(method, cursor, client)
        try:
            raw = await requests.ask(method, params, headers)
        except Fault as fault:
            if cursor == "" and fault.upstream and fault.upstream.code == mcp.INVALID_PARAMS:
                break  # it says so where there is no more
            raise
        size += len(memoryview(raw))
        if size > limits.bytes:
            raise too_many_bytes(server, kind, limits.bytes)
        look = partial(_page_of, server, raw, kind, limits.items, naming.reader(method, requests.dialect.revision))
        page = await bounds.looked_at(server, len(memoryview(raw)), look, FEW)
        pages.append(page)
        count += len(page.items)
        if count > limits.items:
            raise too_many_items(server, kind, limits.items)
        cursor = page.cursor
        if cursor is None:
            break
    found = msgspec.structs.replace(_joined(pages), size=size)
    revision = requests.dialect.revision
    repeats_some = bool(revision and revision.has_header_arguments) and requests.server.type == "http"
    has_headers = repeats_some and method == "tools/list"
    in_ours = naming.reader(kind, revision)
    steps = _kept(found.raw, kind, has_headers, in_ours)
    kept = await bounds.looked_through(server, size, steps, longest_of(found.raw))
    for why, less in kept.left_out.items():
        if less and requests.complaints.takes(server):
            log.warning("%s: ignored %d of its items: %s in one", requests.server.name, less, why)
    for what, why, tool in kept.useless:
        if requests.complaints.takes(server):
            log.warning("%s: ignored %s: %s: %r", requests.server.name, what, why, excerpt(bytes(tool), server=server))
    if kept.is_all:
        return found
    return msgspec.structs.replace(found, raw=kept.items, ignored=tuple(_ignored(kept, server)))


def _ignored(kept: _Kept, server: str) -> Iterator[str]:
    for why, less in kept.left_out.items():
        yield f"ignored {less:,} of its items: {why} in one"
    for what, why, tool in kept.useless[:MOST_TOLD]:
        yield f"ignored {what}, {excerpt(items.read(tool).name, 100, server)}: {why}"
    if len(kept.useless) > MOST_TOLD:
        yield f"ignored {len(kept.useless) - MOST_TOLD:,} more"


def _page_of(server: str, raw: Raw, kind: str, most: int, in_ours: Repair | None) -> Page:
    """Raises `Fault`. `most` is how many items there may be."""
    if counting.has_more_values(bytes(raw), VALUES * most):
        raise too_long(server, kind, f"{VALUES * most:,} JSON values ({VALUES} times catalog.items)")
    return _read_page(in_ours(raw) if in_ours else raw, kind)


# A page as it is written: a list of one of the kinds, and what is said of it.
_MEMBERS = (*mcp.LIST_OF_KIND, "nextCursor", "ttlMs", "cacheScope")
_page: jsonrpc.Decoder[Any] = jsonrpc.Decoder(
    msgspec.defstruct("_Page", [(name, Raw, jsonrpc.NOTHING) for name in _MEMBERS])
)


def _read_page(page: Raw, kind: str) -> Page:
    try:
        found = _page.decode(page)
        ttl = jsonrpc.read(found.ttlMs or b"null", type=float | None)
        return Page(
            items=jsonrpc.read(getattr(found, kind) or b"[]", type=list[Raw]),
            cursor=jsonrpc.read(found.nextCursor or b"null", type=str | None),
            ttl=None if ttl is None else min(max(ttl / 1000, 0.0), LONGEST_TTL),
            is_public=found.cacheScope == Raw(b'"public"'),
        )
    except jsonrpc.UNREADABLE as error:
        raise Fault("UPSTREAM_ERROR", f"The server's list of {kind} is malformed: {error}") from None


def _joined(pages: Sequence[Page]) -> Items:
    """The whole list. It holds as long as the page that holds least, for everybody if each page does."""
    ttls = [page.ttl for page in pages if page.ttl is not None]
    return Items(
        tuple(item for page in pages for item in page.items),
        min(ttls, default=None),
        all(page.is_public for page in pages),
    )


_NAMED_BY = ("name", "uri", "uriTemplate")
_names: jsonrpc.Decoder[Any] = jsonrpc.Decoder(
    msgspec.defstruct("_Names", [(name, Raw, jsonrpc.NOTHING) for name in _NAMED_BY])
)
_VALUES, _LEVELS = f"more than {MOST_VALUES:,} JSON values", f"more than {jsonrpc.DEEPEST_ITEM} levels"
_BYTES = f"more than {LARGEST_ITEM:,} bytes"
_NAME = f"more than {calls.LONGEST_NAME:,} characters of a name or URI"
_EXPRESSIONS = f"more than {templates.MOST_EXPRESSIONS} expressions of a template"


class _Kept(msgspec.Struct, frozen=True):
    """Also how many are left out for what, and tools that cannot be called, or of which a part cannot be used: what is
    ignored, why, and the tool. `is_all`: nothing is left out."""

    items: tuple[Raw, ...]
    left_out: Counter[str]
    useless: list[tuple[str, str, Raw]]
    is_all: bool


def _kept(whole: Sequence[Raw], kind: str, has_headers: bool, in_ours: Repair | None = None) -> InSteps[_Kept]:
    """In our words; without items that have so many values or levels, or so long a name, that whoever reads them holds
    up everybody else or fails; without those that some client cannot read, and the whole list with them
    (`eras.listed`), and output schemas that are so (`eras.output_schemas`); and without tools whose annotations break
    the rules (streamable-http, "Schema Extension")."""
    kept: list[Raw] = []
    useless: list[tuple[str, str, Raw]] = []
    schemas = OutputSchemas()
    left_out = Counter[str]()
    for few in little_together(whole):
        said = b"\n".join(few)  # most have none of what is looked for in each where it may be in any
        are_annotated = has_headers and (in_ours is not None or header_arguments.may_be_in(said))
        have_schemas = kind == "tools" and (in_ours is not None or output_schemas.may_be_in(said))
        for each in few:
            why_left_out = _why_too_much(each)
            item = in_ours(each) if in_ours and not why_left_out else each
            if why_left_out or (why_left_out := _why_left_out(kind, item)):
                left_out[why_left_out] += 1
            elif are_annotated and (why := _why_useless(item)):
                useless.append(("a tool", why, item))
            else:
                usable, why = schemas.of(item) if have_schemas else (item, "")
                useless += [("the output schema of a tool", why, item)] if why else []
                kept.append(usable)
        yield
    is_all = len(kept) == len(whole) and all(map(operator.is_, kept, whole))
    return _Kept(tuple(kept), left_out, useless, is_all)


def _why_too_much(item: Raw) -> str:
    if len(item) > LARGEST_ITEM:
        return _BYTES
    if counting.has_more_values(bytes(item), MOST_VALUES):
        return _VALUES
    return _LEVELS if counting.is_deeper(bytes(item), jsonrpc.DEEPEST_ITEM) else ""


def _why_left_out(kind: str, item: Raw) -> str:
    if _has_long_name(item):
        return _NAME
    return _EXPRESSIONS if _has_many_expressions(kind, item) else listed.why_unreadable(kind, item)


def _has_long_name(item: Raw) -> bool:
    """Whether no request can have its name. What cannot be read has none, which is seen later."""
    if len(memoryview(item)) <= calls.LONGEST_NAME:
        return False
    try:
        found = _names.decode(item)
        written = [name for name in _NAMED_BY if len(memoryview(getattr(found, name))) > calls.LONGEST_NAME]
        return any(len(jsonrpc.read(getattr(found, name), type=str)) > calls.LONGEST_NAME for name in written)
    except jsonrpc.UNREADABLE:
        return False


def _has_many_expressions(kind: str, item: Raw) -> bool:
    """Whether a URI takes long to be held against this template."""
    said = bytes(item)
    if kind != "resourceTemplates" or said.count(b"{") + said.count(b"\\u") <= templates.MOST_EXPRESSIONS:
        return False
    try:
        template = jsonrpc.read(_names.decode(item).uriTemplate, type=str)
    except jsonrpc.UNREADABLE:
        return False  # as above
    return len(templates.EXPRESSION.findall(template)) > templates.MOST_EXPRESSIONS


def _why_useless(tool: Raw) -> str:
    try:
        header_arguments.of_tool(tool)
    except header_arguments.Invalid as why:
        return str(why)
    return ""
