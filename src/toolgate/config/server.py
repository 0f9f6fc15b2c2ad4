"""A server as configured, and its parts: the table of what a file may say of one server.

`change` of a key is what an edit does while the gateway runs. Whatever may change what a server lists is `relist`.
"""

# No annotation is deferred here: `fields.rows` reads them. A kind has another name than each field of its struct.

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import msgspec

from toolgate.config import access_shapes, allowing, boxes, fields, private, shapes, values
from toolgate.config import server_types as types
from toolgate.config.access_shapes import base_url
from toolgate.config.allowing import Allows
from toolgate.config.boxes import Confines
from toolgate.config.fields import Key, Row
from toolgate.config.masking import MASK
from toolgate.config.server_types import REACHED, SPOKEN_TO, STARTED
from toolgate.config.shapes import EVERY, Rate
from toolgate.config.values import Finding, Kind, Wrong, choice, filled, flag, text, wrong
from toolgate.core import jsonrpc

_pinning = choice("off", "warn", "quarantine")


class Root(msgspec.Struct, frozen=True):
    """A folder that a server is told of, as a `file:` URI."""

    uri: Annotated[str, Key(filled, "an absolute path, or a `file:///` URI", needed="set it")]
    name: Annotated[str, Key(text, "a name for the folder, sent to the server")] = ""

    @classmethod
    def at(cls, written: str, name: str) -> "Root":
        is_uri = written.startswith(("file:", "${"))
        return cls(written if is_uri else Path(written).as_uri(), name)


_root = fields.table(Root, brief=True)
_roots: Kind[Any] = Kind(
    values.many(shapes.read_root),
    lambda: {"type": "array", "items": values.either(filled.schema(), _root.schema())},
    values.many(_root).write,
    Root,
)


class Parameter(msgspec.Struct, frozen=True):
    """What is other about one parameter of a tool than its server has it. `fixed` is always sent and never shown;
    `default` is sent where the caller gives nothing; one that is `hidden` is neither shown nor taken from callers."""

    name: Annotated[str, Key(filled, "the name that clients see")] = ""
    description: Annotated[str | None, Key(text, "the description that clients see")] = None
    fixed: Annotated[Any, Key(values.plain, "a value that is always sent and never shown", secret=private.FIXED)] = (
        msgspec.UNSET
    )
    default: Annotated[Any, Key(values.plain, "a value that is sent if the caller gives none")] = msgspec.UNSET
    hidden: Annotated[bool, Key(flag, "`true`: not shown to callers, and not accepted from them")] = False


_parameter = fields.table(Parameter, brief=True)


def _read_parameter(value: object) -> dict[str, Any]:
    found = fields.read(Parameter, value)
    if {"fixed", "default"} <= found.keys():
        raise wrong("has both `fixed` and `default`", "a fixed value is always sent: remove one of the two")
    return found


def _read_parameters(value: object) -> dict[str, Any]:
    found = values.mapping(_read_parameter)(value)
    shapes.told_apart(found, "parameters")
    return found


_parameters = Kind(_read_parameters, values.mapping(_parameter).schema, values.mapping(_parameter).write, Parameter)


class Overlay(msgspec.Struct, frozen=True):
    """What is other about one tool than its server has it. What is `hidden` is not permitted either."""

    name: Annotated[str, Key(shapes.tool_name, "the name that clients see")] = ""
    title: Annotated[str | None, Key(text, "the title that clients see")] = None
    description: Annotated[str | None, Key(text, "the description that clients see")] = None
    hidden: Annotated[bool, Key(flag, "`true`: not listed, and calls are refused")] = False
    parameters: Annotated[
        Mapping[str, Parameter], Key(_parameters, "changes to its parameters, by the server's own names")
    ] = {}
    values: Annotated[
        int | None,
        Key(shapes.value_count, "the maximum number of JSON values in its arguments", default="`limits.values`"),
    ] = None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Overlay":
        """Of what `tools` has read."""
        below = {name: Parameter(**each) for name, each in found.get("parameters", {}).items()}
        fields: dict[str, Any] = {**found, "parameters": below}
        return cls(**fields)


_overlay = fields.table(Overlay, brief=True)


def _read_overlay(value: object) -> dict[str, Any]:
    return fields.read(Overlay, value)


def read_tools(value: object) -> dict[str, Any]:
    """A server's own names of its tools → what is other about them, as tables still: those of two keys
    may be joined."""
    found = values.mapping(_read_overlay)(value)
    if "name" in found.get(EVERY, {}):
        raise Wrong(Finding("would give all tools the same name", "remove it", (EVERY, "name")))
    shapes.told_apart(found, "tools")
    return found


_tools = Kind(read_tools, values.mapping(_overlay).schema, values.mapping(_overlay).write, Overlay)


class ServerAuth(msgspec.Struct, frozen=True, kw_only=True):
    """How the gateway itself shows who it is to a server, by OAuth. Each principal signs in for itself, unless
    `shared`, or where the gateway has credentials of its own (`client_credentials`). `issuer` binds what was
    registered beforehand to one authorization server."""

    grant: Annotated[
        Literal["authorization_code", "client_credentials"],
        Key(
            choice("authorization_code", "client_credentials"),
            '`"authorization_code"`: a person signs in; `"client_credentials"`: the gateway has its own credentials, '
            "and needs a `client_id`",
        ),
    ] = "authorization_code"
    client_id: Annotated[str, Key(filled, "the id of a client that you registered by hand")] = ""
    client_secret: Annotated[str, Key(filled, "the secret of this client", secret=private.TEXT)] = ""
    private_key: Annotated[
        str, Key(filled, "the private key of this client in PEM, for `private_key_jwt`", secret=private.TEXT)
    ] = ""
    algorithm: Annotated[
        str, Key(choice("ES256", "ES384", "RS256", "PS256", "EdDSA"), "the signature algorithm of `private_key`")
    ] = "ES256"
    scopes: Annotated[
        tuple[str, ...], Key(access_shapes.scopes, "scopes to request in addition to those that the server requires")
    ] = ()
    shared: Annotated[bool, Key(flag, "`true`: all users of the gateway share one sign-in", users_alone=True)] = False
    issuer: Annotated[str, Key(base_url, "the only authorization server that may be used")] = ""

    also: ClassVar[Mapping[str, Row]] = {"type": Key(choice("oauth"), 'the same as `auth = "oauth"`')}

    def __repr__(self) -> str:
        return f"<ServerAuth {self.grant}>"


_server_auth = fields.table(ServerAuth)


def _read_auth(value: object) -> ServerAuth:
    if isinstance(value, str):
        choice("oauth")(value)
        return ServerAuth()
    found = _server_auth(value)
    if found.grant == "client_credentials" and not found.client_id:
        raise wrong("uses the grant client_credentials and needs `client_id`")
    return found


_auth = Kind(
    _read_auth, lambda: values.either({"const": "oauth"}, _server_auth.schema()), _server_auth.write, ServerAuth
)


_port = values.whole(1, 65535)


@values.kind(values.either({"type": "boolean"}, {"type": "array", "items": _port.schema()}))
def _net(value: object) -> bool | tuple[int, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list):
        raise wrong("must be true, false or a list of ports such as [443]")
    return values.many(_port)(cast(object, value))


class ServerBox(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says. `memory`, `filesize` in bytes, `cpu` in seconds; None: as the level has it. A table without a
    level, which only reading sees, is strict."""

    level: Annotated[
        boxes.Level,
        Key(
            choice(*boxes.LEVELS),
            '`"off"`: no box; `"no-net"`: no network; `"no-write"`: it writes only into a folder of its own; '
            '`"strict"`: neither, and it reads only its program and what the system has for all; `"profile"`: what '
            "servers of its package need, else strict",
            default='`"strict"`',
        ),
    ] = "off"
    read: Annotated[
        tuple[str, ...], Key(values.many(filled), "files and folders that it may also read: absolute paths, or `~/…`")
    ] = ()
    run: Annotated[
        tuple[str, ...], Key(values.many(filled), "programs, and folders with programs, that it may also read and run")
    ] = ()
    write: Annotated[
        tuple[str, ...], Key(values.many(filled), "files and folders that it may also read, write, make and remove")
    ] = ()
    net: Annotated[
        bool | tuple[int, ...] | None,
        Key(
            _net,
            "whether it may use the network; or a list of TCP ports that it may connect to, at any address, without "
            "looking up names",
            default="as the level says",
        ),
    ] = None
    sockets: Annotated[
        bool | None,
        Key(
            flag,
            "`true`: it may use sockets with a name in the file system, its own and those of other programs (Docker, "
            "D-Bus), which may do things for it that the box does not allow",
            default="as the level says",
        ),
    ] = None
    memory: Annotated[
        int | None, Key(values.size, "the maximum memory of each of its processes", default='`"4GiB"`')
    ] = None
    cpu: Annotated[
        float | None,
        Key(values.duration, "the maximum processor time of each of its processes", default="no limit"),
    ] = None
    filesize: Annotated[
        int | None, Key(values.size, "the maximum size of a file that it writes", default='`"4GiB"`')
    ] = None
    processes: Annotated[
        int | None,
        Key(values.whole(1, 10_000), "how many processes it may have at once", default=f"`{boxes.PROCESSES}`"),
    ] = None
    files: Annotated[
        int | None,
        Key(
            values.whole(16, 100_000),
            "how many files, sockets and the like each of its processes may have open",
            default=f"`{boxes.OPEN_FILES}`",
        ),
    ] = None


NO_BOX = ServerBox()
_box_table = fields.table(ServerBox, brief=True)


def _read_box(value: object) -> ServerBox:
    if isinstance(value, str):
        return ServerBox(level=_level(value))
    found = _box_table(value)
    if "level" not in values.table(value):
        return msgspec.structs.replace(found, level="strict")
    if found.level == "off" and found != NO_BOX:
        raise Wrong(Finding("has a box that is off", "remove the other keys, or choose another level", ("level",)))
    return found


def _level(value: object) -> boxes.Level:
    return choice(*boxes.LEVELS)(value)  # type: ignore[return-value]


def _write_box(found: ServerBox, masked: bool) -> Any:
    if found == ServerBox(level=found.level):
        return found.level
    return {"level": found.level, **_box_table.write(found, masked)}


kind_of_box: Kind[ServerBox] = Kind(
    _read_box, lambda: values.either({"enum": list(boxes.LEVELS)}, _box_table.schema()), _write_box, ServerBox
)
kind_of_default_box: Kind[ServerBox] = Kind(
    lambda value: ServerBox(level=_level(value)), lambda: {"enum": list(boxes.LEVELS)}, lambda found, _: found.level
)


def _sound_box(value: Any) -> None:
    """Of paths with their variables in them."""
    for name in ("read", "run", "write"):
        for at, path in enumerate(getattr(value, name)):
            if not (os.path.isabs(path) or path.startswith("~/")):
                raise Wrong(Finding("must be an absolute path, or begin with `~/`", "", (name, at)))


def _url_to_show(server: "Server") -> str:
    """Where a variable was missing, its gap is masked."""
    scheme = "ws" if server.type == "ws" else "http"
    return server.url if server.url and (not server.problem or types.is_url(server.url)) else f"{scheme}://{MASK}"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream as configured. Times in seconds. Variables are in; where one was not set, `problem` says so,
    `missing` names it, and the server must not be started: its strings have a gap there."""

    id: Annotated[str, allowing.LABEL]
    name: Annotated[str, allowing.TOLD]
    type: Annotated[
        types.Type,
        Key(
            Kind(filled.read, choice(*types.TYPES).schema),
            f"[how the server is reached](configuration.md#servers): {types.told()}",
            "relist",
            default="from the other keys",
        ),
        allowing.LABEL,
    ]
    command: Annotated[
        str,
        Key(
            filled,
            "the program to start, without its arguments, which go into `args`; required for stdio",
            "relist",
            only=STARTED,
            sound=types.sound_command,
            of=lambda server: server.command or (MASK if server.problem and server.type == "stdio" else ""),
        ),
        allowing.TOLD,
    ] = ""
    args: Annotated[
        tuple[str, ...],
        Key(
            values.many(text),
            "the arguments of the program, as a list of strings",
            "relist",
            only=STARTED,
            sound=types.sound_texts,
            secret=private.ARGUMENTS,
        ),
        allowing.TOLD,
    ] = ()
    env: Annotated[
        Mapping[str, str],
        Key(
            values.environment,
            "environment variables of the program. Write numbers in quotes",
            "relist",
            only=STARTED,
            sound=types.sound_environment,
            secret=private.ENVIRONMENT,
        ),
        allowing.TOLD,
    ] = {}
    cwd: Annotated[
        str | None,
        Key(
            values.optional(filled),
            "the folder to start it in ([configuration.md](configuration.md#where-a-program-starts))",
            "relist",
            default="the gateway's folder; a folder of its own for what takes code from there",
            only=STARTED,
            sound=types.sound_command,
        ),
        allowing.TOLD,
    ] = None
    url: Annotated[
        str,
        Key(
            filled,
            "the URL of the server: `http://…`, `https://…`, `ws://…` or `wss://…`; required",
            "relist",
            only=REACHED,
            sound=types.sound_url,
            secret=private.URL,
            of=_url_to_show,
        ),
        allowing.TOLD,
    ] = ""
    headers: Annotated[
        Mapping[str, str],
        Key(
            values.headers,
            "HTTP headers for every request",
            "relist",
            only=REACHED,
            sound=types.sound_headers,
            secret=private.HEADERS,
        ),
        allowing.TOLD,
    ] = {}
    enabled: Annotated[
        bool, Key(flag, "`false`: the server is never started and never shown", "restart"), allowing.TOLD
    ] = True
    timeout: Annotated[
        float,
        Key(
            values.duration,
            "how long a call may take. Progress that the server reports starts that time again, for at most an hour "
            "more in all. `timeoutMs = 60000` is the same in milliseconds",
            "live",
        ),
        allowing.PACE,
    ] = 60.0
    start_timeout: Annotated[
        float,
        Key(values.duration, "how long the start may take, up to the end of the handshake", "live"),
        allowing.PACE,
    ] = 60.0
    fetch_timeout: Annotated[
        float,
        Key(
            values.duration,
            "how long `npx` or `uvx` may take to fetch its package for its [box](boxes.md#npx-and-uvx). Calls wait for "
            "that as long as for a start, and then fail; the fetch goes on",
            "live",
        ),
        allowing.PACE,
    ] = 300.0
    package_hash: Annotated[
        str,
        Key(
            values.text,
            "the hash of the package's file that `npx` or `uvx` starts, whatever its registry has by then. Set by "
            "[`mcp_provision`](provisioning.md), which keeps the file; without that file the server does not start",
            "restart",
        ),
        allowing.LESS,
    ] = ""
    start: Annotated[
        Literal["", "lazy", "eager"],
        Key(
            choice("lazy", "eager"),
            '`"lazy"`: started on first use; `"eager"`: started with the gateway',
            "restart",
            default=f'`"lazy"`; for a {", ".join(types.EAGER)} `"eager"`',
            users_alone=True,
        ),
        allowing.PACE,
    ] = ""  # empty: eager for a component, else lazy
    lifecycle: Annotated[
        Literal["lazy", "keep-alive", "ephemeral"],
        Key(
            shapes.lifecycle,
            '`"lazy"`: stopped after `pool.idle` without a call; `{ idleTimeoutMs = 60000 }`: stopped after this time '
            'without a call; `"keep-alive"`: never stopped; `"ephemeral"`: stopped after each call',
            "restart",
            spread=True,
            users_alone=True,
            of=lambda server: server.lifecycle if server.idle is None else {"idleTimeoutMs": server.idle * 1000},
        ),
        allowing.PACE,
    ] = "lazy"
    idle: Annotated[float | None, allowing.PACE] = None  # seconds after which it is stopped; None: as `pool.idle` says
    criticality: Annotated[
        Literal["vital", "optional"],
        Key(
            choice("vital", "optional"),
            '`"optional"`: a call by `mcp_call` that is lost in a crash is not sent again if the tool has no '
            "annotations ([lifecycle.md](lifecycle.md))",
            "live",
        ),
        allowing.SPOKEN_TO,
    ] = "vital"
    description: Annotated[str, Key(text, "what the server is for, in your words"), allowing.LABEL] = ""
    project: Annotated[
        str, Key(text, "the id of the project that it belongs to, shown by `list_mcp_servers`"), allowing.LABEL
    ] = ""
    validate_arguments: Annotated[
        bool,
        Key(
            shapes.word_or_flag,
            "`false`: the arguments of calls are checked by the server only",
            default="`validate_arguments` at the root",
            inherited=True,
            users_alone=True,
        ),
        Allows("check the arguments of calls of {server}: {}"),
    ] = True
    result_limit: Annotated[
        int | None,
        Key(values.size, "the maximum size of a result", default="`limits.result_limit`", users_alone=True),
        allowing.LESS,
    ] = None
    result_tokens: Annotated[
        int | None,
        Key(
            values.whole(1),
            "the maximum size of a result's text, in estimated tokens",
            default="`limits.result_tokens`",
            users_alone=True,
        ),
        allowing.LESS,
    ] = None
    tools: Annotated[
        Mapping[str, Overlay],
        Key(
            _tools,
            "changes to its tools ([configuration.md](configuration.md#tools-that-look-different)); "
            '`"*"` applies to those that are not named',
            put_in=lambda expansion, found: expansion.expand_overlays(found),
        ),
        Allows("change these tools of {server}: {}"),
    ] = {}  # by the server's own names; "*" is for those not named
    new_privileges: Annotated[
        bool,
        Key(
            flag,
            "`true`: the program may gain privileges, as `sudo`, snap programs, AppImages and rootless Podman do "
            "([security.md](security.md#what-a-program-may-do-as-your-user))",
            "restart",
            only=STARTED,
            users_alone=True,
        ),
        Allows("let {server} gain privileges (sudo, setuid)"),
    ] = False
    box: Annotated[
        ServerBox,
        Key(
            kind_of_box,
            'what the program may read, write and reach ([boxes.md](boxes.md)): `"off"`, `"no-net"`, '
            '`"no-write"`, `"strict"`, `"profile"`, or a table',
            "restart",
            default="`box` at the root",
            only=("stdio",),
            inherited=True,
            sound=_sound_box,
            put_in=lambda expansion, found: expansion.expand_struct(found),
        ),
        allowing.LESS,
    ] = NO_BOX
    auth: Annotated[
        ServerAuth | None,
        Key(
            _auth,
            '`"oauth"` or a table: how the gateway signs in to the server ([connecting.md](connecting.md))',
            "restart",
            default="none",
            only=("http", "sse"),
            sound=types.sound_server_auth,
            put_in=lambda expansion, found: expansion.expand_struct(found),
        ),
        allowing.TOLD,
    ] = None
    forward_headers: Annotated[
        tuple[str, ...],
        Key(
            access_shapes.forwarded,
            "client headers that are passed on to the server; never those with credentials "
            "([secrets.md](secrets.md#what-servers-get))",
            "restart",
            only=("http",),
            users_alone=True,
        ),
        Allows("pass these headers of clients on to {server}: {}"),
    ] = ()  # in small letters
    roots: Annotated[
        tuple[Root, ...],
        Key(
            _roots,
            "folders that the server is told about: absolute paths, `file:///` URIs, or `{ uri, name }`",
            "relist",
            sound=types.sound_roots,
        ),
        Allows("tell {server} about the folders {}"),
    ] = ()
    scope: Annotated[
        Literal["shared", "principal", "session"],
        Key(
            choice("shared", "principal", "session"),
            '`"shared"`: one connection for all; `"principal"`, `"session"`: one for each. Only with `"session"` is '
            "the server told the client's capabilities and roots",
            "relist",
        ),
        allowing.SPOKEN_TO,
    ] = "shared"
    era: Annotated[
        Literal["auto", "legacy", "modern"],
        Key(
            choice("auto", "legacy", "modern"),
            'the protocol for a server that supports both: `"legacy"`: with a handshake; `"modern"`: 2026-07-28; '
            '`"auto"`: that of the client over HTTP and where `scope` is not `"shared"`, otherwise `"legacy"`. Set '
            '`"modern"` for a server that has no handshake and does not answer `initialize`',
            "relist",
            only=SPOKEN_TO,
        ),
        allowing.SPOKEN_TO,
    ] = "auto"
    concurrency: Annotated[
        int | None,
        Key(
            values.optional(values.whole(1)),
            "the maximum number of calls at the same time; `1`: one after another",
            "restart",
            default="no limit",
        ),
        Allows("send {server} up to {} calls at once"),
    ] = None
    rate: Annotated[
        Rate | None,
        Key(
            shapes.rate,
            'the maximum rate of calls, such as `"60/m"` or `"5/10s"`',
            "live",
            default="no limit",
            users_alone=True,
        ),
        allowing.LESS,
    ] = None
    pinning: Annotated[
        Literal["", "off", "warn", "quarantine"],
        Key(
            _pinning,
            'what happens to tools that change: `"off"`, `"warn"`, `"quarantine"` ([pins.md](pins.md))',
            "restart",
            default="`guard.pinning`",
            users_alone=True,
        ),
        Allows("watch for tools of {server} that change: {}", stronger=("quarantine", "warn")),
    ] = ""
    by_operator: Annotated[
        bool,
        Key(
            flag,
            "`false`: the server was added by a tool call. It may reach public addresses only ([pins.md](pins.md)), "
            "and its variables are not replaced",
            "restart",
        ),
        allowing.MADE,
    ] = True
    private_args: Annotated[tuple[int, ...], allowing.MADE] = ()  # which of `args` hold what stood in a variable
    problem: Annotated[str, allowing.TOLD] = ""
    missing: Annotated[tuple[str, ...], allowing.MADE] = ()

    also: ClassVar[Mapping[str, Row]] = {
        "timeoutMs": Key(values.milliseconds, "the same as `timeout`, in milliseconds", "live", field="timeout"),
        "compat": Key(
            shapes.requirement,
            "`\"mcp<2\"` for a `uvx` server that needs an older SDK; adds `--with 'mcp<2'`",
            "restart",
            only=("stdio",),
        ),
    }

    @property
    def is_eager(self) -> bool:
        """Whether it is started with the gateway. Components are asked for their tools then (seed 003, "Performance
        Features")."""
        return self.start == "eager" or (not self.start and self.type in types.EAGER)

    @property
    def has_bare_names(self) -> bool:
        """Of its tools, on surface `components`."""
        return self.type in types.TYPES and types.TYPES[self.type].has_bare_names

    @property
    def passed_headers(self) -> list[str]:
        """The client's headers that it gets, in small letters; what its configuration sends itself is sent once."""
        own = {name.lower() for name in self.headers}
        return [name for name in self.forward_headers if name not in own]

    @property
    def confines(self) -> Confines | None:
        """What its program may do; None: what we may."""
        box = self.box
        if self.type != "stdio" or box.level == "off":
            return None
        found = boxes.of_level(box.level, self.command, self.args, self.env, self.cwd)
        limits = box.memory, box.cpu, box.processes, box.filesize, box.files
        return found.with_more(box.read, box.run, box.write, box.net, box.sockets, *limits)

    @property
    def print(self) -> str:
        """A hash of what program or address it is: whatever is configured by another is another server, though it has
        the name. Its environment and headers are not in it, where credentials change."""
        by = [self.type, self.command, self.args, self.url, self.cwd]
        return hashlib.sha256(jsonrpc.encode(by)).hexdigest()

    def runs_as(self, other: "Server") -> bool:
        """Whether nothing differs but what holds without a restart."""
        live = {name: default for name, default in fields.defaults(Server).items() if name in _LIVE}
        return msgspec.structs.replace(self, **live) == msgspec.structs.replace(other, **live)

    def take(self, other: "Server") -> None:
        """Have what holds without a restart as `other` has it, for who looks at this one."""
        for name in _LIVE:
            msgspec.structs.force_setattr(self, name, getattr(other, name))

    def lists_depend_on(self) -> list[Any]:
        """The values of the fields whose change may change what it lists."""
        return [getattr(self, name) for name in _RELIST]

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
            yield "env", dict.fromkeys(self.env, MASK)
        if self.url:
            yield "host", re.split(r"[/?#]", self.url.partition("://")[2])[0].rpartition("@")[2]
            yield "headers", dict.fromkeys(self.headers, MASK)
        if self.problem:
            yield "problem", self.problem


_LIVE = frozenset(fields.changing(Server, "live"))
_RELIST = fields.changing(Server, "relist")
