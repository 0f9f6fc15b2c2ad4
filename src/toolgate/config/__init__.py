"""The configuration: frozen values, read strictly from one TOML, YAML or JSON file.

The rule this file keeps: a file is understood as a whole or refused as a whole, with everything that is wrong with
it told at once, each with its place and its mend. The one exception is a variable that is not set: it fails only
its own server. Values of `env` and `headers` are never shown.

A text passes through `formats` (text → plain values) and `reading` (plain values → fields, by the
tables of `keys`, the kinds of `values` and the expansion of `variables`) to the structs here.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from toolgate.config.formats import LONGEST, SUFFIXES, Format, Malformed, parse
from toolgate.config.keys import FOREIGN_FILES
from toolgate.config.reading import Reading, dotted
from toolgate.config.values import Finding

NAMES = ("toolgate.toml", "toolgate.yaml", "toolgate.yml", "toolgate.json")


class Root(msgspec.Struct, frozen=True):
    """A folder that a server is told of, as a `file:` URI."""

    uri: str
    name: str = ""


class Parameter(msgspec.Struct, frozen=True):
    """What is other about one parameter of a tool than its server has it. `fixed` is always sent and never shown;
    `default` is sent where the caller gives nothing; one that is `hidden` is neither shown nor taken from callers."""

    name: str = ""
    description: str | None = None
    fixed: Any = msgspec.UNSET
    default: Any = msgspec.UNSET
    hidden: bool = False


class Overlay(msgspec.Struct, frozen=True):
    """What is other about one tool than its server has it. What is `hidden` is not permitted either."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    hidden: bool = False
    parameters: Mapping[str, Parameter] = {}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream as configured. Times in seconds. Variables are in; where one was not set, `problem` says so,
    `missing` names it, and the server must not be started: its strings have a gap there."""

    id: str
    name: str
    type: Literal["stdio", "http", "sse", "ws", "component", "registry"]
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    enabled: bool = True
    timeout: float = 60.0
    start_timeout: float = 60.0
    start: Literal["lazy", "eager"] = "lazy"
    lifecycle: Literal["lazy", "keep-alive", "ephemeral"] = "lazy"
    idle: float | None = None  # seconds after which it is stopped; None: as `pool.idle` says
    criticality: Literal["vital", "optional"] = "vital"
    description: str = ""
    validate_arguments: bool = True
    result_limit: int | None = None  # bytes; None: as `limits.result_limit` says
    tools: Mapping[str, Overlay] = {}  # by the server's own names; "*" is for those not named
    scope: Literal["shared", "principal", "session"] = "shared"
    concurrency: int | None = None
    roots: tuple[Root, ...] = ()
    problem: str = ""
    missing: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = " ".join(f"{name}={value}" if name else str(value) for name, value in self.__rich_repr__())
        return f"<Server {shown}>"

    def __rich_repr__(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]  # msgspec's would show everything
        """Without secrets: values of `env` and `headers`, arguments, the path of a URL."""
        yield "", self.id
        yield "", self.type
        if self.type == "stdio":
            yield "command", self.command
            yield "args", len(self.args)
            yield "env", dict.fromkeys(self.env, "***")
        if self.url:
            yield "host", re.sub(r".*[/@]", "", re.split(r"[/?#]", self.url.partition("://")[2])[0])
            yield "headers", dict.fromkeys(self.headers, "***")
        if self.problem:
            yield "problem", self.problem


class Http(msgspec.Struct, frozen=True):
    """Where the gateway listens. `body_limit` in bytes."""

    host: str = "127.0.0.1"
    port: int = 8765
    body_limit: int = 16 * 1024 * 1024
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()


class Sessions(msgspec.Struct, frozen=True):
    idle: float = 1800.0
    max: int = 10000
    implicit: bool = True


class ParkingLimits(msgspec.Struct, frozen=True):
    ttl: float = 300.0
    per_principal: int = 64
    max: int = 2048


class CatalogLimits(msgspec.Struct, frozen=True):
    ttl: float = 300.0
    list_timeout: float = 10.0
    page_size: int = 1000
    grace: float = 3600.0  # seconds for which a list that cannot be had anew is shown as it was


class PoolLimits(msgspec.Struct, frozen=True):
    """How many servers are up at once, those that are kept alive not counted, and for how long while nobody calls."""

    max_live: int = 20
    idle: float = 300.0


class VirtualSearch(msgspec.Struct, frozen=True):
    """Above either threshold, lists of tools show the search tool alone."""

    enabled: bool = False
    threshold: int = 40
    threshold_tokens: int = 10000
    mode: Literal["bm25", "regex", "semantic"] = "bm25"


class Limits(msgspec.Struct, frozen=True):
    """`result_limit` in bytes, `result_tokens` in estimated tokens of a result's text, None: no limit. `head` and
    `tail` are lines that are kept of a text that is over a limit."""

    result_limit: int | None = None
    result_tokens: int | None = None
    head: int | None = None
    tail: int | None = None


Surface = Literal["aggregate", "children", "meta", "components", "daemon", "all"]


class Config(msgspec.Struct, frozen=True):
    """`Config()` is what holds without any file. `source` is the path of the file, or empty."""

    servers: tuple[Server, ...] = ()
    http: Http = Http()
    sessions: Sessions = Sessions()
    parking: ParkingLimits = ParkingLimits()
    catalog: CatalogLimits = CatalogLimits()
    pool: PoolLimits = PoolLimits()
    virtual_search: VirtualSearch = VirtualSearch()
    limits: Limits = Limits()
    validate_arguments: bool = True
    surface: Surface = "aggregate"  # what `/mcp` shows
    bundles: Mapping[str, tuple[str, ...]] = {}  # names of tools, which may end in `*`, shown at /mcp/bundles/{name}
    state: str = ""  # the folder of the store; empty: the user's state folder
    source: str = ""
    warnings: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """`file` has line and column behind it where they are known; `path` is that of the key, empty for the file."""

    file: str
    path: str
    message: str
    mend: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.path, self.message, self.mend) if part)


class ConfigError(Exception):
    """All that is wrong with a file. `str()` has one line for each."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def find(explicit: str | None, cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the one that was named, the working directory's, the user's. None: there is none.

    A file that was named need not exist: `load` says so.
    """
    if explicit is not None:
        return cwd / explicit
    places = (folder / name for folder in _folders(cwd, environ) for name in NAMES)
    return next((path for path in places if os.path.isfile(path)), None)


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """Read a file. Its name says the format, and whether it is ours or another tool's. Raises `ConfigError`."""
    file = str(path)
    format = SUFFIXES.get(path.suffix.lower())
    if not format:
        raise _refused(file, "is neither TOML, YAML nor JSON by its name", f"end it in {', '.join(SUFFIXES)}")
    tree = _parse(_text(path), file, format)
    return _config(tree, file, environ, _is_native(path.name, format, tree))


def read(text: str, *, file: str, environ: Mapping[str, str], native: bool = True, format: Format) -> Config:
    """Read a text. `native=False`: another tool's, whose unknown keys are only warned of. Raises `ConfigError`."""
    return _config(_parse(text, file, format), file, environ, native)


def _config(tree: object, file: str, environ: Mapping[str, str], native: bool) -> Config:
    reading = Reading(environ, native)
    reading.read(tree)
    if reading.problems:
        raise ConfigError(_placed(reading.problems, file))
    part = reading.sections.get
    return Config(
        servers=tuple(_server(**fields) for fields in reading.servers),
        http=Http(**part("http", {})),
        sessions=Sessions(**part("sessions", {})),
        parking=ParkingLimits(**part("parking", {})),
        catalog=CatalogLimits(**part("catalog", {})),
        source=file,
        warnings=tuple(str(warning) for warning in _placed(reading.warnings, file)),
    )


def _server(roots: tuple[tuple[str, str], ...] = (), problem: str = "", **fields: Any) -> Server:
    told = () if problem else tuple(Root(_uri(uri), name) for uri, name in roots)  # a problem may be a gap in them
    return Server(roots=told, problem=problem, **fields)


def _uri(written: str) -> str:
    return written if written.startswith("file:") else Path(written).as_uri()


def _placed(findings: list[Finding], file: str) -> tuple[Problem, ...]:
    return tuple(Problem(file, dotted(each.path), each.message, each.mend) for each in findings)


def _folders(cwd: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield cwd
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if environ.get("XDG_CONFIG_HOME"):
        yield Path(environ["XDG_CONFIG_HOME"], "toolgate")
    elif home:
        yield Path(home, ".config", "toolgate")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4 * LONGEST + 1).decode()
    except UnicodeDecodeError:
        raise _refused(str(path), "is not UTF-8", "save it as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        said = (isinstance(error, OSError) and error.strerror) or "no such file"
        raise _refused(str(path), f"cannot be read ({said})") from None


def _parse(text: str, file: str, format: Format) -> object:
    try:
        return parse(text, format)
    except Malformed as error:
        place = f"{file}:{error.line}:{error.column}" if error.line else file
        raise _refused(place, error.message) from None


def _refused(file: str, message: str, mend: str = "") -> ConfigError:
    return ConfigError((Problem(file, "", message, mend),))


def _is_native(name: str, format: Format, tree: object) -> bool:
    if format != "json" or name.startswith("toolgate."):
        return True
    if name in FOREIGN_FILES or not isinstance(tree, dict):
        return False
    return set(cast("dict[str, object]", tree)) != {"mcpServers"}
