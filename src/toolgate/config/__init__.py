"""The configuration: frozen values, read strictly from one TOML, YAML or JSON file.

May import `core` and nothing else of toolgate.

The rule of this room: a file is understood as a whole or refused as a whole. A refusal reports every problem at once,
each with its place and how to fix it. There is one exception: a variable that is not set fails only its own server.
Values of `env` and `headers` are never shown.

From text to values, in this order
    formats           text → plain values, for each of the three formats
    dialects          whose file it is and where its servers are; `DIALECTS` is the table of other tools' files
    manifests         files that describe one server: `server.json`, MCPB bundles, Spin manifests
    reading           plain values → fields, with everything that is wrong on the way
    keys              the tables of our own keys; which keys are accepted but have no effect yet
    values            kinds of one value: durations, sizes, texts, lists
    shapes            kinds of tables: lifecycles, overlays, limits, bundles
    access_shapes     kinds of tables about access: clients, permissions, rates, OAuth
    variables         `${VAR}` and other tools' ways to write it
    secrets           `${secret:NAME}` and the places where it is looked up
    env_file          `.env` files that other tools' servers name
The structs
    __init__          `Config`, `Server` and their parts; `read` and `load`
    access            the structs about access: clients, permissions, tokens, approval, limits, guard, audit
    permission_names  names as permissions write them
Back to text
    render            a configuration → native tables
    access_render     the part of `render` about access
    private           what in a configuration is secret
    masking           what looks like a secret, masked
Files on disk
    edits             servers that were added while the gateway runs
    ownership         whether other users can write to a file
    trust             which files that were found in a folder the user has trusted

A new key is a field of a struct, a row in `keys` and a row in `render`. If it changes how a server runs, see
`gateway.snapshot._as_it_runs`; if it changes what a server lists, see `upstreams.known_eras.LISTS_DEPEND_ON`. Another
tool's file is a row in `dialects.DIALECTS`.
"""

from __future__ import annotations

import contextlib
import os.path
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from toolgate.config import dialects, ownership, render
from toolgate.config.access import (
    Approvals,
    Audit,
    Auth,
    Bounds,
    Concurrency,
    Guard,
    KnownClient,
    Permissions,
    Rate,
    Rates,
    ServerAuth,
    Verdict,
)
from toolgate.config.dialects import Dialect, File
from toolgate.config.formats import LONGEST, SUFFIXES, Format, Malformed, line_of, parse
from toolgate.config.permission_names import idle, strangers, vain
from toolgate.config.private import Private
from toolgate.config.reading import COMPONENT_URL, Reading, dotted, of_environment
from toolgate.config.secrets import Secrets, Sources, file_of, folder
from toolgate.config.values import Finding

NAMES = ("toolgate.toml", "toolgate.yaml", "toolgate.yml", "toolgate.json")
VARIABLE = "TOOLGATE_CONFIG"  # names a file as --config does


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
    values: int | None = None  # that its arguments may have; None: as `limits.values` says


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
    start: Literal["", "lazy", "eager"] = ""  # empty: eager for a component, else lazy
    lifecycle: Literal["lazy", "keep-alive", "ephemeral"] = "lazy"
    idle: float | None = None  # seconds after which it is stopped; None: as `pool.idle` says
    criticality: Literal["vital", "optional"] = "vital"
    description: str = ""
    validate_arguments: bool = True
    result_limit: int | None = None  # bytes; None: as `limits.result_limit` says
    result_tokens: int | None = None  # the same in estimated tokens
    tools: Mapping[str, Overlay] = {}  # by the server's own names; "*" is for those not named
    scope: Literal["shared", "principal", "session"] = "shared"
    era: Literal["auto", "legacy", "modern"] = "auto"  # in which it is spoken to, where it speaks both
    concurrency: int | None = None
    roots: tuple[Root, ...] = ()
    private_args: tuple[int, ...] = ()  # which of `args` hold what stood in a variable
    auth: ServerAuth | None = None
    forward_headers: tuple[str, ...] = ()  # of clients' requests, in small letters
    rate: Rate | None = None
    pinning: Literal["", "off", "warn", "quarantine"] = ""  # empty: as `guard.pinning` says
    new_privileges: bool = False  # whether what it starts may become another user, as sudo does
    by_operator: bool = True  # written by who runs the gateway; else a tool call or a registry has named it
    problem: str = ""
    missing: tuple[str, ...] = ()

    @property
    def is_eager(self) -> bool:
        """Whether it is started with the gateway. Components are asked for their tools then (seed 003, "Performance
        Features")."""
        return self.start == "eager" or (not self.start and self.type == "component")

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
    first_wait: float = 1.2  # seconds that a first list waits for servers nobody knows, where its client hears of them
    page_size: int = 1000
    grace: float = 3600.0  # seconds for which a list that cannot be had anew is shown as it was
    items: int = 10_000  # of one list of one server
    bytes: int = 8 * 1024 * 1024  # the same


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
    `tail` are lines that are kept of a text that is over a limit. `argument_limit` in bytes, of a call's arguments.
    `values`: how many JSON values a request may have; a tool may be given more."""

    result_limit: int | None = None
    result_tokens: int | None = None
    head: int | None = None
    tail: int | None = None
    argument_limit: int | None = None
    values: int = 100_000
    rates: Rates = Rates()
    concurrency: Concurrency = Concurrency()


Surface = Literal["aggregate", "children", "meta", "components", "daemon", "all"]
SURFACES = get_args(Surface)


class Known(msgspec.Struct, frozen=True):
    """Values that are secrets, never to be shown."""

    values: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<{len(self.values)} secrets>"


class Config(msgspec.Struct, frozen=True):
    """`Config()` is what holds without any file. `source` is the path of the file, or empty; `dialect` whose words it
    is in; `component_url` where a component is that names no URL."""

    servers: tuple[Server, ...] = ()
    http: Http = Http()
    sessions: Sessions = Sessions()
    parking: ParkingLimits = ParkingLimits()
    catalog: CatalogLimits = CatalogLimits()
    pool: PoolLimits = PoolLimits()
    virtual_search: VirtualSearch = VirtualSearch()
    limits: Limits = Limits()
    clients: tuple[KnownClient, ...] = ()  # none, and no `auth`: the gateway is open, on loopback
    add_servers: Verdict = "ask"  # whether tool calls may add servers, and remove them
    auth: Auth = Auth()
    approvals: Approvals = Approvals()
    guard: Guard = Guard()
    audit: Audit = Audit()
    secrets: Secrets = Secrets()
    known: Known = Known()  # what is to be taken out of all that is shown
    validate_arguments: bool = True
    surface: Surface = "aggregate"  # what `/mcp` shows
    bundles: Mapping[str, tuple[str, ...]] = {}  # names of tools, which may end in `*`, shown at /mcp/bundles/{name}
    drain: float = 10.0  # seconds for calls under way when the gateway is told to end
    state: str = ""  # the folder of the store; empty: the user's state folder
    component_url: str = COMPONENT_URL
    source: str = ""
    dialect: str = "native"
    warnings: tuple[str, ...] = ()
    has_secrets: bool = True  # else each `${secret:NAME}` stands as it is written, and nothing can be started

    @property
    def most_values(self) -> int:
        """How many JSON values a request may have, whichever tool it is for."""
        own = (tool.values or 0 for server in self.servers for tool in server.tools.values())
        return max(self.limits.values, *own, 0)

    @property
    def is_open(self) -> bool:
        """Whether nobody has to show who they are."""
        return not self.clients and not self.auth.issuer


MOST_LINES = 20  # problems of a file whose lines are looked up: each look reads the text again


class Problem(msgspec.Struct, frozen=True):
    """`file` has line and column behind it where they are known; `path` is that of the key, empty for the file."""

    file: str
    path: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.path, self.message, self.fix) if part)


class ConfigError(Exception):
    """All that is wrong with a file. `str()` has one line for each."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def find(explicit: str | None, cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the one that was named, here or by `TOOLGATE_CONFIG`, the working directory's, the user's.
    None: there is none.

    A file that was named need not exist: `load` says so.
    """
    named = explicit if explicit is not None else environ.get(VARIABLE)
    if named:
        return cwd / named
    places = (folder / name for folder in (cwd, *_own_folder(environ)) for name in NAMES)
    return next((path for path in places if os.path.isfile(path)), None)


def is_strangers(path: Path, explicit: str | None, environ: Mapping[str, str]) -> bool:
    """Whether what `find` has found may be anybody's: nobody has named it, and it is not the user's own."""
    if explicit is not None or environ.get(VARIABLE):
        return False
    return os.path.realpath(path.parent) not in map(os.path.realpath, _own_folder(environ))


def load(
    path: Path,
    environ: Mapping[str, str],
    dialect: str = "",
    references: bool = False,
    looks_up: bool = True,
    accept: Callable[[bytes], None] | None = None,
) -> Config:
    """Read a file. Its suffix says the format; what it holds, and where that is not enough its name, whose words it is
    in, unless `dialect` says so. With `references`, variables and secrets stay as they are written; without `looks_up`,
    secrets only. `accept` is for a file that nobody has named: it is given the bytes before they are understood, and
    may raise. Raises `ConfigError`."""
    tree = _tree(path, accept or (lambda _: None))
    file = File(str(path), environ, is_named=accept is None)
    words = dialects.named(dialect) if dialect else dialects.recognised(file, tree)
    config = _config(tree, file, words, references, looks_up)
    return msgspec.structs.replace(config, warnings=(*config.warnings, *ownership.risks(path)))


def read(
    text: str, *, file: str, environ: Mapping[str, str], native: bool = True, format: Format, dialect: str = ""
) -> Config:
    """Read a text as ours, as one of `dialect`, or (`native=False`) as that of another tool, whose unknown keys are
    only warned of. Raises `ConfigError`."""
    tree, place = _parse(text, file, format), File(file, environ)
    if dialect:
        return _config(tree, place, dialects.named(dialect))
    return _config(tree, place, dialects.native(place, tree) if native else dialects.foreign(place, tree))


def tables(path: Path, environ: Mapping[str, str], dialect: str = "") -> dict[str, dict[str, Any]]:
    """The servers of a file as native tables whose variables are still references: what `edits` can write. What is
    wrong with one server is no matter here. Raises `ConfigError`."""
    tree, file = _tree(path), File(str(path), environ)
    config = _config(tree, file, dialects.named(dialect) if dialect else dialects.recognised(file, tree), True)
    return {server.name: render.server(server) for server in config.servers}


def recognised(path: Path, environ: Mapping[str, str]) -> Dialect:
    """Whose words a file is in. Raises `ConfigError` for what is no file of a format."""
    return dialects.recognised(File(str(path), environ), _tree(path))


def with_own(
    config: Config, own: Mapping[str, object], environ: Mapping[str, str], file: str = "servers.json"
) -> Config:
    """`config`, and the servers that were added at run time: native tables by name, read from `file`. Raises
    `ConfigError` for what is wrong with them, and for a name that both have."""
    reading = Reading(File(file, environ), dialects.NATIVE, sources=sources(config, environ))
    reading.root["component_url"] = config.component_url
    reading.read({"mcpServers": dict(own)})
    owners = {server.id: server.name for server in config.servers}
    for server in reading.servers:
        if owner := owners.get(server["id"]):
            where = ("mcpServers", server["name"])
            reading.wrong(
                where, f"has the same id as server `{owner}` in {config.source or 'the configuration'}", _rename
            )
    if reading.problems:
        raise ConfigError(_placed(reading.problems, file))
    servers = tuple(_server(config.validate_arguments, **fields) for fields in reading.servers)
    known = Known(config.known.values | _private(reading, servers))
    whole = msgspec.structs.replace(config, servers=(*config.servers, *servers), known=known)
    before = set(_strangers(config))
    kept = (warning for warning in config.warnings if warning not in before)
    return msgspec.structs.replace(whole, warnings=(*kept, *_strangers(whole)))


def sources(config: Config, environ: Mapping[str, str]) -> Sources:
    """Where the secrets of a configuration are looked for."""
    path = file_of(config.secrets, config.state, config.source, environ)
    return Sources(config.secrets, environ, path, of_environment(environ), config.has_secrets)


_rename = "rename or remove one of the two"


def state_folder(config: Config, environ: Mapping[str, str]) -> Path:
    """Where the gateway keeps what it must know again. It is not made here."""
    return folder(config.state, config.source, environ)


def _config(tree: object, file: File, dialect: Dialect, references: bool = False, looks_up: bool = True) -> Config:
    reading = Reading(file, dialect, references, looks_up=looks_up)
    reading.read(tree)
    reading.put_in_keys()
    reading.put_in_notify()
    reading.check_places()
    if reading.problems:
        raise ConfigError(_placed(reading.problems, file.path))
    part, root = reading.sections.get, reading.root
    root.setdefault("surface", dialect.surface or "aggregate")
    limits = part("limits", {})
    servers = tuple(_server(root.get("validate_arguments", True), **fields) for fields in reading.servers)
    clients = _clients(reading)
    config = Config(
        servers=servers,
        http=Http(**part("http", {})),
        sessions=Sessions(**part("sessions", {})),
        parking=ParkingLimits(**part("parking", {})),
        catalog=CatalogLimits(**part("catalog", {})),
        pool=PoolLimits(**part("pool", {})),
        virtual_search=VirtualSearch(**part("virtual_search", {})),
        limits=_limits(**limits),
        clients=clients,
        auth=Auth(**part("auth", {})),
        approvals=Approvals(**part("approvals", {})),
        guard=Guard(**part("guard", {})),
        audit=Audit(**part("audit", {})),
        secrets=reading.sources.settings,
        known=Known(_private(reading, servers, clients)),
        source=file.path,
        dialect=dialect.name,
        warnings=tuple(str(warning) for warning in _placed(reading.warnings, file.path)),
        has_secrets=looks_up,
        **root,
    )
    return msgspec.structs.replace(config, warnings=(*config.warnings, *_strangers(config)))


def _strangers(config: Config) -> tuple[str, ...]:
    """What clients' permissions say of servers that are not there."""
    ids = {server.id for server in config.servers}
    clients = config.clients
    found = (*strangers(clients, ids), *vain(clients, config.auth.step_up, ids), *idle(clients)) if ids else ()
    return tuple(str(Problem(config.source, key, message, fix)) for key, message, fix in found)


def secrets_of(config: Config) -> frozenset[str]:
    """Values that are never to be shown: those that reading found, and those that stand in the structs."""
    return config.known.values | _in_structs(config.secrets.public, config.servers, config.clients)


def _in_structs(
    public: tuple[str, ...], servers: tuple[Server, ...], clients: tuple[KnownClient, ...]
) -> frozenset[str]:
    private = Private(public)
    for client in clients:
        private.certain("" if client.key.startswith("sha256:") else client.key)
    for server in servers:
        private.server(server)
    return frozenset(private.values)


def _private(reading: Reading, servers: tuple[Server, ...], clients: tuple[KnownClient, ...] = ()) -> frozenset[str]:
    """All secrets of a file that was read: those that it names, and those of the environment beside it."""
    places = reading.sources
    private = Private(places.settings.public)
    for value in places.found:
        private.header(value)
    for value in places.credentials:
        private.certain(value)
    if isinstance(notify := reading.sections.get("approvals", {}).get("notify"), str):
        private.url(notify)
    private.variables(reading.put_in)
    private.environment(reading.file.environ)
    return _in_structs(places.settings.public, servers, clients) | private.values


def _limits(
    truncate: Mapping[str, Any] | None = None,
    rates: Mapping[str, tuple[int, float]] | None = None,
    concurrency: Mapping[str, int] | None = None,
    **fields: Any,
) -> Limits:
    return Limits(
        rates=Rates(**{name: Rate(*rate) for name, rate in (rates or {}).items()}),
        concurrency=Concurrency(**(concurrency or {})),
        **(truncate or {}),
        **fields,
    )


def _clients(reading: Reading) -> tuple[KnownClient, ...]:
    return tuple(_client(**fields) for fields in reading.root.pop("clients", ()))


def _client(
    id: str,
    name: str = "",
    mcp_server_access: str | tuple[str, ...] | None = None,
    mcp_permissions: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    **fields: Any,
) -> KnownClient:
    """Permissions without a word on servers stand for themselves; neither of them opens nothing."""
    otherwise = "none" if mcp_permissions is None else None
    servers: Any = otherwise if mcp_server_access is None else mcp_server_access
    permissions = Permissions(**(mcp_permissions or {}))
    return KnownClient(
        id=id, name=name or id, servers=servers, permissions=permissions, limits=_bounds(**(limits or {})), **fields
    )


def _bounds(rate: tuple[int, float] | None = None, concurrency: int | None = None) -> Bounds:
    return Bounds(Rate(*rate) if rate else None, concurrency)


def _tree(path: Path, accept: Callable[[bytes], None] = lambda _: None) -> object:
    """The plain values of a file."""
    file = str(path)
    format = SUFFIXES.get(path.suffix.lower())
    if path.suffix.lower() in (".mcpb", ".dxt"):
        raise _refused(file, "is a packed bundle", "unpack it and give the manifest.json inside")
    if not format:
        raise _refused(file, "has no suffix of TOML, YAML or JSON", f"use {', '.join(SUFFIXES)}")
    return _parse(_text(path, accept), file, format)


def _server(
    validates: bool,
    roots: tuple[tuple[str, str], ...] = (),
    problem: str = "",
    tools: Mapping[str, Mapping[str, Any]] | None = None,
    auth: Mapping[str, Any] | None = None,
    rate: tuple[int, float] | None = None,
    forward_headers: tuple[str, ...] = (),
    **fields: Any,
) -> Server:
    told = () if problem else tuple(Root(_uri(uri), name) for uri, name in roots)  # a problem may be a gap in them
    overlays = {name: _overlay(**overlay) for name, overlay in (tools or {}).items()}
    given: dict[str, Any] = {"validate_arguments": validates, **fields}
    return Server(
        roots=told,
        problem=problem,
        tools=overlays,
        auth=None if auth is None else ServerAuth(**auth),
        rate=Rate(*rate) if rate else None,
        forward_headers=tuple(name.lower() for name in forward_headers),
        **given,
    )


def _overlay(parameters: Mapping[str, Mapping[str, Any]] | None = None, **fields: Any) -> Overlay:
    return Overlay(parameters={name: Parameter(**each) for name, each in (parameters or {}).items()}, **fields)


def _uri(written: str) -> str:
    return written if written.startswith(("file:", "${")) else Path(written).as_uri()


def _placed(findings: list[Finding], file: str) -> tuple[Problem, ...]:
    """The findings with the lines that their keys stand in, as far as the file still says so."""
    format = SUFFIXES.get(Path(file).suffix.lower())
    text = ""
    if findings and format:
        with contextlib.suppress(ConfigError):
            text = _text(Path(file))
    problems: list[Problem] = []
    for each in findings:
        line = line_of(text, format, each.path) if format and text and len(problems) < MOST_LINES else 0
        place = f"{file}:{line}" if line else file
        problems.append(Problem(place, dotted(each.path), each.message, each.fix))
    return tuple(problems)


def _own_folder(environ: Mapping[str, str]) -> Iterator[Path]:
    """The user's own, if there is one."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if environ.get("XDG_CONFIG_HOME"):
        yield Path(environ["XDG_CONFIG_HOME"], "toolgate")
    elif home:
        yield Path(home, ".config", "toolgate")


def _text(path: Path, accept: Callable[[bytes], None] = lambda _: None) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(4 * LONGEST + 1)
        accept(data)
        return data.decode()
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


def _refused(file: str, message: str, fix: str = "") -> ConfigError:
    return ConfigError((Problem(file, "", message, fix),))
