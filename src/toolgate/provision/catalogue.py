"""The list of servers that comes with toolgate, `catalogue.toml`: what is known without any network.

The rule this file keeps: each entry names one version of one package with its hash, as it was looked at; a newer one is
another version of toolgate.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from toolgate.provision.entries import Entry, Kind, Package, Remote, Variable, moment

FILE = Path(__file__).with_name("catalogue.toml")


class _Server(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the file. `published` is a date."""

    id: str
    description: str
    npm: str = ""
    pypi: str = ""
    url: str = ""
    transport: str = "http"
    headers: tuple[str, ...] = ()
    version: str = ""
    hash: str = ""
    published: str = ""
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    optional: Mapping[str, str] = {}
    needs: tuple[str, ...] = ()
    tools: Mapping[str, str] = {}
    title: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    server: list[_Server]


@cache
def bundled() -> tuple[Entry, ...]:
    """Its entries, in the order of the file."""
    read = msgspec.convert(tomllib.loads(FILE.read_text()), _File)
    return tuple(map(_entry, read.server))


def _entry(server: _Server) -> Entry:
    kind: Kind = "npm" if server.npm else "pypi"
    package = _package(server, kind) if server.npm or server.pypi else None
    remote = Remote(server.url, "sse" if server.transport == "sse" else "http", server.headers) if server.url else None
    return Entry(
        server.npm or server.pypi or server.url,
        server.description,
        id=server.id,
        version=server.version,
        title=server.title,
        package=package,
        remote=remote,
        asks_for=server.needs,
        tools=server.tools,
        published=moment(server.published),
    )


def _package(server: _Server, kind: Kind) -> Package:
    needed = (Variable(name, True, True, about) for name, about in server.variables.items())
    others = (Variable(name, False, False, about) for name, about in server.optional.items())
    return Package(
        kind,
        server.npm or server.pypi,
        server.version,
        server.arguments,
        (*needed, *others),
        server.hash,
        moment(server.published),
    )
