"""The section `provision` of the configuration: which servers toolgate may find and install by itself.

The rule this file keeps: a pattern of trusted publishers names a namespace that somebody has to own. `*` alone would
trust everybody, and part of a name anybody who registers one like it.
"""

# No annotation is deferred here: `fields.rows` reads them. A kind has another name than each field of its struct.

import re
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from toolgate.config import access_shapes, values
from toolgate.config.allowing import Allows
from toolgate.config.fields import Key
from toolgate.config.values import duration_or_none, flag, kind, many, wrong
from toolgate.core.addresses import LOOPBACK, counted

OFFICIAL = "https://registry.modelcontextprotocol.io"
WEEK = 7 * 24 * 3600.0

_publisher = re.compile(
    r"(?:@[a-z0-9][a-z0-9._-]{0,100}|[A-Za-z0-9][A-Za-z0-9.-]{0,200})/(?:\*|[A-Za-z0-9][A-Za-z0-9._-]{0,200})"
    r"|(?:npm|pypi):[A-Za-z0-9@][A-Za-z0-9@/._-]{0,213}"
)


@kind({"type": "string", "pattern": f"^(?:{_publisher.pattern})$"})
def _trusted(value: object) -> str:
    if not _publisher.fullmatch(values.filled(value)):
        fix = 'write a namespace, such as "@scope/*" or "io.github.owner/*"; or one name: "npm:NAME", "pypi:NAME"'
        raise wrong("is not a publisher's namespace", fix)
    return values.text(value)


@kind({"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})
def _base_of_list(value: object) -> str:
    base = access_shapes.base_url(value)
    parts = urlsplit(base)
    host = parts.hostname or ""
    if parts.scheme.lower() != "https" and host != "localhost" and counted(host) != LOOPBACK:
        raise wrong("is plain http to another machine", "use https: who is on the way could offer any server")
    if "@" in parts.netloc:
        raise wrong("contains a user name", "remove it")
    return base


class Provision(msgspec.Struct, frozen=True):
    """`minimum_age` in seconds."""

    auto: Annotated[
        bool,
        Key(flag, "`true`: `mcp_provision` installs a server that passes every gate, and nobody is asked"),
        Allows("install and start servers that pass every gate, without asking: {}"),
    ] = False
    trusted: Annotated[
        tuple[str, ...],
        Key(
            many(_trusted),
            'publishers whose servers may be installed: `"@scope/*"` (npm), `"io.github.owner/*"` (a namespace of a '
            'registry), or one package: `"npm:NAME"`, `"pypi:NAME"`',
        ),
        Allows("trust the servers of these publishers: {}", stronger=((),)),
    ] = ("@modelcontextprotocol/*",)
    registries: Annotated[
        tuple[str, ...],
        Key(
            many(_base_of_list),
            "base URLs of MCP registries, in the order in which they are believed; `[]`: only the list that comes with "
            "toolgate is used",
        ),
        Allows("look for servers in the lists at {}", stronger=((),)),
    ] = (OFFICIAL,)
    minimum_age: Annotated[
        float,
        Key(duration_or_none, "how old a version must be before it is installed"),
        Allows("install versions that were published only {} s ago"),
    ] = WEEK
