"""What a component says of itself: one object for one tool, or an array for many. Sans-IO.

The rule this file keeps: a tool passes through as the bytes that the component wrote, or it is left out and its fault
named; what is no tool at all is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Raw

from toolgate.config import CatalogLimits
from toolgate.core import counting, jsonrpc, surrogates
from toolgate.core.redaction import excerpt
from toolgate.core.steps import InSteps
from toolgate.eras import calls, listed
from toolgate.eras.output_schemas import OutputSchemas

_NOT_IN_PATHS = (".", "..")  # who reads such a URL means another one by it
MOST_VALUES = 200_000  # a thousand large tools; some hundredths of a second
MOST_FAULTS = 20  # that are named, and after which no more items are looked at


class Tools(msgspec.Struct, frozen=True):
    """`is_array`: each has a path of its own. `faults` are what is wrong with those that were left out."""

    raw: tuple[Raw, ...]
    names: frozenset[str]
    is_array: bool
    faults: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        """What stands behind the component's URL where this one is posted to: nothing for an only tool."""
        return "/" + quote(surrogates.shown(name), safe="") if self.is_array else ""


class NoTools(Exception):
    """The text is not what a component says of itself; `str()` says why."""


class TooMany(Exception):
    """There are more of them than a list may have."""


class _Tool(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    inputSchema: dict[str, Raw]


_tool = jsonrpc.Decoder(_Tool)
_array = jsonrpc.Decoder(list[Raw])


def read(body: bytes, most: int = CatalogLimits().items, server: str = "") -> InSteps[Tools]:
    """What this server says of itself. Raises `NoTools`, and `TooMany` where there are more than so many items. One
    tool in each step."""
    if counting.has_more_values(body, MOST_VALUES):
        raise NoTools(f"it has more than {MOST_VALUES:,} JSON values")
    try:
        body.decode()  # the decoder skips over raw members without looking at their encoding
        is_array = body.lstrip()[:1] == b"["
        items = _array.decode(body) if is_array else [Raw(body)]
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE) as error:
        raise NoTools(f"it is not valid JSON: {error}") from None
    if len(items) > most:
        raise TooMany
    found = yield from _sorted_out(items, is_array, server)
    if items and not found.raw:
        raise NoTools(found.faults[0])
    return found


def _sorted_out(items: Iterable[Raw], is_array: bool, server: str) -> InSteps[Tools]:
    good: dict[str, Raw] = {}
    faults: list[str] = []
    schemas = OutputSchemas()
    for item in items:
        if len(faults) == MOST_FAULTS:
            faults.append("the items after it are ignored")
            break
        if counting.is_deeper(bytes(item), jsonrpc.DEEPEST_ITEM):
            faults.append(f"it is nested more than {jsonrpc.DEEPEST_ITEM} levels deep: {shown(bytes(item), server)}")
            continue
        try:
            name = _tool.decode(item).name
        except jsonrpc.UNREADABLE as error:
            faults.append(f"{error}: {shown(bytes(item), server)}")
            continue
        if len(name) > calls.LONGEST_NAME:
            faults.append(f"it has more than {calls.LONGEST_NAME:,} characters of a name: {shown(bytes(item), server)}")
        elif why := listed.why_unreadable("tools", item):
            faults.append(f"it has {why}: {shown(bytes(item), server)}")
        elif is_array and name in _NOT_IN_PATHS:
            faults.append(f"the name {shown(name.encode(), server)} cannot be part of a path")
        elif name in good:
            faults.append(f"a second tool with the name {shown(name.encode(), server)}")
        else:
            good[name], why = schemas.of(item)
            if why:
                faults.append(f"the output schema of {shown(name.encode(), server)} is ignored: {why}")
        yield
    return Tools(tuple(good.values()), frozenset(good), is_array, tuple(faults))


def shown(body: bytes, server: str, most: int = 200) -> str:
    """The beginning of a body of this server, for people."""
    text = excerpt(body, most + 1, server)
    return text if len(text) <= most else text[:most] + "…"
