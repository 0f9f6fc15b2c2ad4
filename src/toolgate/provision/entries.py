"""What can be installed: an entry of a list of servers, read from `server.json` as registries have it, of any era.

The rules this file keeps: names are ASCII and of their registry's own alphabet, so that none passes for another; what
is said in free text is one line of bounded length, in plain view; and what an entry leaves out or gets wrong makes it
less, never something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from toolgate.auth import safe_text

Kind: TypeAlias = Literal["npm", "pypi"]
Status: TypeAlias = Literal["active", "deprecated", "deleted"]

LONGEST_TEXT = 300  # characters of a description or a message
MOST_VARIABLES = 50
OFFICIAL: Final = "io.modelcontextprotocol.registry/official"

_name = re.compile(r"(?=.{3,200}\Z)[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_hump = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_PACKAGES: Mapping[Kind, re.Pattern[str]] = {
    "npm": re.compile(r"(?=.{1,214}\Z)(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*"),
    "pypi": re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"),
}
_VERSIONS: Mapping[Kind, re.Pattern[str]] = {
    "npm": re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}(?:-[0-9A-Za-z.-]{1,60})?(?:\+[0-9A-Za-z.-]{1,60})?"),
    "pypi": re.compile(r"\d{1,9}(?:\.\d{1,9}){0,5}(?:(?:a|b|rc)\d{1,4})?(?:\.post\d{1,4})?"),
}


class Variable(msgspec.Struct, frozen=True):
    """A variable of the environment that a server reads."""

    name: str
    required: bool = False
    secret: bool = False
    description: str = ""


class Package(msgspec.Struct, frozen=True):
    """`arguments` are those that its program gets. `hash` is that of its file, where the list states one; `published`
    in seconds since 1970. `version` is empty where it is none that can be pinned."""

    kind: Kind
    name: str
    version: str
    arguments: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    hash: str = ""
    published: float = 0.0

    @property
    def command(self) -> tuple[str, ...]:
        """What starts it: no shell reads it."""
        if self.kind == "npm":
            return ("npx", "-y", f"{self.name}@{self.version}" if self.version else self.name, *self.arguments)
        return ("uvx", f"{self.name}=={self.version}" if self.version else self.name, *self.arguments)


def package_of(command: Sequence[str]) -> Package | None:
    """What such a `Package.command` starts, where it says which version; None where it is none."""
    for kind, pattern in _COMMANDS.items():
        if found := pattern.match("\0".join(command)):
            return Package(kind, found["name"], found["version"])
    return None


_COMMANDS: Mapping[Kind, re.Pattern[str]] = {
    "npm": re.compile(r"npx\0-y\0(?P<name>(?:@[\w.~-]+/)?[\w.~-]+)@(?P<version>\d[\w.+-]*)(?:\0|$)", re.ASCII),
    "pypi": re.compile(r"uvx\0(?P<name>\w[\w.-]*)==(?P<version>\d[\w.+!-]*)(?:\0|$)", re.ASCII),
}


class Remote(msgspec.Struct, frozen=True):
    """A server that somebody else runs. `headers` are names of those that it wants."""

    url: str
    type: Literal["http", "sse"] = "http"
    headers: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True):
    """`source` is the URL of its registry, or empty for the list that comes with toolgate. `asks_for` says what it
    wants beside its package: arguments, variables with values of its own, a runtime's options. `tools` are names and
    descriptions. `id` is what its server is called here."""

    name: str
    description: str
    id: str
    version: str = ""
    title: str = ""
    status: Status = "active"
    message: str = ""
    source: str = ""
    package: Package | None = None
    remote: Remote | None = None
    asks_for: tuple[str, ...] = ()
    tools: Mapping[str, str] = {}
    published: float = 0.0

    @property
    def namespace(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def is_bundled(self) -> bool:
        return not self.source


# One item of a page of `/v0.1/servers`.


def read(item: object, source: str) -> Entry | None:
    """None for what is no server, or has a name that none can have."""
    whole = _table(_snaked(item))
    server = _table(whole.get("server")) or whole
    name = _text(server, "name")
    if not _name.fullmatch(name):
        return None
    of_list = _of_list(whole, server)
    packages = [each for each in _tables(server, "packages") if _kind(each)]
    found = next(filter(None, map(_package, packages)), None)
    package, asks_for = found or (None, ())
    remote = next(filter(None, map(_remote, _tables(server, "remotes"))), None)
    version = _text(server, "version") or _text(_table(server.get("version_detail")), "version")
    status = _text(of_list, "status") or _text(server, "status") or "active"
    return Entry(
        name,
        shown(_text(server, "description")),
        id=_id(name),
        version=version[:255],
        title=shown(_text(server, "title"), 100),
        status=status if status in ("active", "deprecated", "deleted") else "deprecated",
        message=shown(_text(of_list, "status_message")),
        source=source,
        package=package,
        remote=remote,
        asks_for=asks_for,
        published=moment(_text(of_list, "published_at")),
    )


def is_latest(item: object) -> bool:
    """Whether an item is the version of its server that counts; where nothing is said, it is."""
    whole = _table(_snaked(item))
    server = _table(whole.get("server")) or whole
    return _of_list(whole, server).get("is_latest") is not False


def _of_list(whole: Mapping[str, Any], server: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the registry says of it, wherever that stood in its time."""
    for meta in (_table(whole.get("_meta")), _table(server.get("_meta"))):
        for key in (OFFICIAL, "io.modelcontextprotocol.registry"):
            if found := _table(meta.get(key)):
                return found
    return {}


def _kind(package: Mapping[str, Any]) -> Kind | None:
    named = _text(package, "registry_type") or _text(package, "registry_name")
    return cast(Kind, named) if named in _PACKAGES else None


def _package(package: Mapping[str, Any]) -> tuple[Package, tuple[str, ...]] | None:
    kind = _kind(package)
    assert kind
    name = _text(package, "identifier") or _text(package, "name")
    transport = _table(package.get("transport"))
    if not is_package(kind, name) or (transport and _text(transport, "type") != "stdio"):
        return None
    version = _text(package, "version")
    variables, asks_for = _variables(_tables(package, "environment_variables"))
    for key, what in (("runtime_arguments", "options of its runtime"), ("package_arguments", "arguments")):
        asks_for += [what] if _tables(package, key) else []
    file_hash = _text(package, "file_sha256")
    found = Package(
        kind,
        name,
        version if is_version(kind, version) else "",
        variables=tuple(variables),
        hash=f"sha256:{file_hash}" if re.fullmatch("[0-9a-f]{64}", file_hash) else "",
    )
    return found, tuple(asks_for)


def is_package(kind: Kind, name: str) -> bool:
    return bool(_PACKAGES[kind].fullmatch(name))


def is_version(kind: Kind, version: str) -> bool:
    """Whether it is exactly one."""
    return bool(_VERSIONS[kind].fullmatch(version))


def _variables(described: list[Mapping[str, Any]]) -> tuple[list[Variable], list[str]]:
    found: list[Variable] = []
    asks_for: list[str] = []
    for each in described[:MOST_VARIABLES]:
        name = _text(each, "name")
        is_required = each.get("is_required", each.get("required")) is True
        if not _variable.fullmatch(name) or each.get("value") is not None:
            asks_for.append("variables with values of its own")
        else:
            found.append(
                Variable(name, is_required, each.get("is_secret") is True, shown(_text(each, "description"), 200))
            )
    if len(described) > MOST_VARIABLES:
        asks_for.append("more variables than are read")
    return found, list(dict.fromkeys(asks_for))


def _remote(remote: Mapping[str, Any]) -> Remote | None:
    url, type = _text(remote, "url"), _text(remote, "type") or _text(remote, "transport_type")
    if not re.fullmatch(r"https://[!-~]{1,2000}", url) or "{" in url:
        return None
    headers = (_text(each, "name") for each in _tables(remote, "headers"))
    return Remote(url, "sse" if type == "sse" else "http", tuple(each for each in headers if each.isascii())[:10])


def _id(name: str) -> str:
    return name.rpartition("/")[2]


# Texts and times.


def shown(text: str, most: int = LONGEST_TEXT) -> str:
    """As one line, in which nothing is hidden."""
    line = " ".join(text[: 4 * most].split())
    return safe_text.plain(line if len(line) <= most else line[: most - 1] + "…")


def moment(written: str) -> float:
    """In seconds since 1970; 0 where it is no time."""
    try:
        found = datetime.fromisoformat(written.strip().replace("Z", "+00:00"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# Trees of strangers.


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _tables(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = table.get(key)
    items = cast("Iterable[object]", found) if isinstance(found, list) else ()
    return [_table(cast(object, each)) for each in items if isinstance(each, dict)]


def _text(table: Mapping[str, Any], key: str) -> str:
    found = table.get(key)
    return found if isinstance(found, str) else ""


def _snaked(value: object, depth: int = 8) -> object:
    """With keys as registries wrote them until September 2025. What is nested more deeply than an entry is left out."""
    if not depth:
        return None
    if isinstance(value, list):
        return [_snaked(each, depth - 1) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {key if "/" in key else _hump.sub("_", key).lower(): _snaked(each, depth - 1) for key, each in pairs}
    return value
