"""The configuration as a whole: the table of what a file may say at its root, and in each section.

Frozen values, with their defaults: `Config()` is what holds without any file.
"""

# No annotation is deferred here: `fields.rows` reads them. A kind has another name than each field of its struct.

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from toolgate.config import access_shapes, allowing, fields, shapes, values
from toolgate.config.access import Approvals, Audit, Auth, Guard, KnownClient, Limits, Verdict
from toolgate.config.access import clients as kind_of_clients
from toolgate.config.access_shapes import base_url, verdict
from toolgate.config.allowing import Allows, Harmless
from toolgate.config.fields import Key, Later, Row, Section
from toolgate.config.providers import Provider
from toolgate.config.providers import providers as kind_of_providers
from toolgate.config.provision import Provision
from toolgate.config.sandbox import Sandbox
from toolgate.config.secrets import Secrets
from toolgate.config.server import NO_BOX, Server, ServerBox, kind_of_default_box
from toolgate.config.shapes import Surface
from toolgate.config.values import (
    Kind,
    choice,
    duration,
    duration_or_none,
    filled,
    flag,
    host_port,
    many,
    origin,
    size,
    whole,
)

_A_FILE = "name a file"


class Tls(msgspec.Struct, frozen=True):
    """Paths are written as `state` is."""

    certificate: Annotated[
        str,
        Key(
            filled,
            "the file with the certificate and the chain of those that issued it, in PEM form. `~/` is expanded; a "
            "relative path starts at the folder of the file",
            "gateway",
            needed=_A_FILE,
        ),
    ]
    key: Annotated[
        str,
        Key(
            filled,
            "the file with its private key, in PEM form, without a passphrase; named in the same way",
            "gateway",
            needed=_A_FILE,
        ),
    ]


class Http(msgspec.Struct, frozen=True):
    """Where the gateway listens. `body_limit` in bytes."""

    host: Annotated[str, Key(values.host, "the address to listen on"), allowing.TOLD] = "127.0.0.1"
    port: Annotated[int, Key(whole(0, 65535), "the port"), Harmless("a port gives no rights")] = 8765
    body_limit: Annotated[
        int, Key(size, "the maximum size of a request body"), Allows("take messages of up to {} bytes")
    ] = 16 * 1024 * 1024
    allowed_origins: Annotated[
        tuple[str, ...],
        Key(
            many(origin),
            'origins of web pages that may call the gateway, such as `"https://app.example"`, without a path',
        ),
        Allows("let web pages of other sites use it in your browser: {}"),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Key(many(host_port), 'other names of the gateway, such as `"gateway.example"` or `"gateway.example:8765"`'),
        Allows("answer under other host names: {}"),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        Key(
            many(access_shapes.network),
            "addresses and networks of your own proxies, which say whose a request is by `Forwarded` or "
            "`X-Forwarded-For` ([proxy.md](proxy.md#who-came-to-the-proxy))",
        ),
        Allows("believe who connects from there that its requests are another's: {}"),
    ] = ()
    tls: Annotated[
        Tls | None,
        Key(
            fields.table(Tls),
            "serve HTTPS with this certificate ([proxy.md](proxy.md#without-a-proxy))",
            default="none: plain HTTP",
        ),
        allowing.TOLD,
    ] = None

    def url(self, host: str, port: int) -> str:
        """Where it listens, without a path."""
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def url_here(self, host: str, port: int) -> str:
        """How a client on this machine reaches what listens there. All addresses are none to connect to."""
        return self.url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


class Sessions(msgspec.Struct, frozen=True):
    idle: Annotated[float, Key(duration, "how long an unused session is kept")] = 1800.0
    max: Annotated[int, Key(whole(1), "the maximum number of sessions")] = 10000
    implicit: Annotated[bool, Key(flag, "`true`: on `/mcp`, a first request without `initialize` gets a session")] = (
        True
    )


class ParkingLimits(msgspec.Struct, frozen=True):
    ttl: Annotated[float, Key(duration, "how long a call waits")] = 300.0
    per_principal: Annotated[int, Key(whole(1), "the maximum number of waiting calls of one principal")] = 64
    max: Annotated[int, Key(whole(1), "the maximum number of waiting calls in all")] = 2048


class CatalogLimits(msgspec.Struct, frozen=True):
    ttl: Annotated[
        float,
        Key(duration, "how long a server's lists are used before they are fetched again, if it reports no change"),
    ] = 300.0
    list_timeout: Annotated[float, Key(duration, "how long to wait for the lists of one server")] = 10.0
    first_wait: Annotated[
        float,
        Key(
            duration,
            "the same for servers that were never listed, if the client is told by `list_changed` when they are",
        ),
    ] = 1.2
    page_size: Annotated[int, Key(whole(1), "the maximum number of items on one page of a list")] = 1000
    grace: Annotated[
        float, Key(duration_or_none, "how long an old list is shown when it cannot be fetched again; `0`: not at all")
    ] = 3600.0
    items: Annotated[
        int, Key(whole(1), "the maximum number of items in one list of a server; a longer list is not read")
    ] = 10_000
    bytes: Annotated[int, Key(size, "the maximum size of one list of a server; a larger list is not read")] = (
        8 * 1024 * 1024
    )


class PoolLimits(msgspec.Struct, frozen=True):
    """How many servers are up at once, those that are kept alive not counted, and for how long while nobody calls."""

    max_live: Annotated[
        int,
        Key(whole(1), 'the maximum number of running servers, not counting those with lifecycle `"keep-alive"`'),
    ] = 20
    idle: Annotated[float, Key(duration, "how long a server without calls keeps running")] = 300.0


class VirtualSearch(msgspec.Struct, frozen=True):
    """Above either threshold, lists of tools show the search tool alone."""

    enabled: Annotated[bool, Key(flag, "`true`: use the thresholds below"), allowing.LOOKS] = False
    threshold: Annotated[int, Key(whole(1), "the number of tools"), allowing.LOOKS] = 40
    threshold_tokens: Annotated[
        int, Key(whole(1), "the size of their descriptions and schemas, in estimated tokens"), allowing.LOOKS
    ] = 10000
    mode: Annotated[
        Literal["bm25", "regex", "semantic"],
        Key(
            choice("bm25", "regex", "semantic"),
            'how `search_tools` searches: `"bm25"`, `"regex"`, or `"semantic"`, which needs `model` or a provider for '
            '`"embeddings"`, and which all searches for tools use then',
        ),
        allowing.LOOKS,
    ] = "bm25"
    model: Annotated[
        str,
        Key(
            filled,
            "the folder of a model of embeddings on this machine, for `semantic`: `model.onnx` and `tokenizer.json` "
            "([providers.md](providers.md#a-model-on-this-machine)); it is loaded with the first search",
            default="none: a provider is asked",
        ),
        Allows("load a model of embeddings from {}"),
    ] = ""


class Log(msgspec.Struct, frozen=True):
    """What a gateway that serves writes to stderr."""

    format: Annotated[
        Literal["text", "json"],
        Key(
            choice("text", "json"),
            '`"text"`, or `"json"`: an object in each line, with `time`, `level`, `logger`, `message`',
        ),
    ] = "text"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Key(
            choice("debug", "info", "warning", "error"),
            'what is written: `"error"`, `"warning"` and worse, `"info"`: also what toolgate does, `"debug"`: all that '
            "it would say",
        ),
    ] = "info"
    access: Annotated[
        bool, Key(flag, "`true`: each call is a line, too ([monitoring.md](monitoring.md#the-access-log))")
    ] = False


class Telemetry(msgspec.Struct, frozen=True):
    """What toolgate tells programs that watch it."""

    usage: Annotated[
        bool,
        Key(flag, "`true`: calls are counted by principal, server and tool, for [`/metrics`](monitoring.md#metrics)"),
        Harmless("only administrators read what is counted"),
    ] = False
    endpoint: Annotated[
        str,
        Key(
            base_url,
            "where traces, metrics and logs are sent by OTLP/HTTP, such as `http://127.0.0.1:4318` "
            "([monitoring.md](monitoring.md#opentelemetry))",
            "gateway",
            default="nothing is sent",
        ),
        Allows("send traces, metrics and logs of calls to {}"),
    ] = ""
    traces: Annotated[bool, Key(flag, "whether traces are sent there", "gateway"), allowing.TOLD_BY_ENDPOINT] = True
    metrics: Annotated[bool, Key(flag, "whether metrics are sent there", "gateway"), allowing.TOLD_BY_ENDPOINT] = True
    logs: Annotated[bool, Key(flag, "whether the log is sent there", "gateway"), allowing.TOLD_BY_ENDPOINT] = True
    sample: Annotated[
        int,
        Key(whole(0, 100), "how many of a hundred traces are sent, where a client does not say", "gateway"),
        allowing.TOLD_BY_ENDPOINT,
    ] = 100
    interval: Annotated[float, Key(duration, "how often metrics are sent", "gateway"), allowing.PACE] = 60.0
    service: Annotated[
        str, Key(filled, "the `service.name` of all that is sent", "gateway"), allowing.TOLD_BY_ENDPOINT
    ] = "toolgate"

    @property
    def counts(self) -> bool:
        """Whether calls are counted, for whoever."""
        return self.usage or (bool(self.endpoint) and self.metrics)

    @property
    def is_traced(self) -> bool:
        return bool(self.endpoint) and self.traces


class Tasks(msgspec.Struct, frozen=True):
    """The registry `gobby-tasks`. `jsonl` is a path within the folder of a project."""

    show: Annotated[
        bool,
        Key(flag, "`true`: its tools are in the lists of all tools too; they can always be called", "relist"),
        allowing.LOOKS,
    ] = False
    require_session_id: Annotated[
        bool, Key(flag, "`true`: a task is created and closed with a `session_id` only"), allowing.LESS
    ] = False
    sync: Annotated[
        bool, Key(flag, "`false`: the file of a project is written and read by `sync_tasks` only"), allowing.LESS
    ] = True
    jsonl: Annotated[
        str,
        Key(shapes.within, "the file in the folder of a project"),
        Allows("write tasks to the file {} in your projects"),
    ] = ".gobby/tasks.jsonl"


SANDBOXES = ("read-only", "workspace-write", "danger-full-access")
APPROVAL_POLICIES = ("untrusted", "on-request", "never")
"""What Codex may do by itself, each in order: the narrowest first."""


class MostOfCodex(msgspec.Struct, frozen=True):
    """The widest that a call of `codex` may name."""

    sandbox: Annotated[
        Literal["read-only", "workspace-write", "danger-full-access"],
        Key(
            choice(*SANDBOXES),
            'what its commands may do: `"read-only"`, `"workspace-write"` (change files in its folder) or '
            '`"danger-full-access"` (anything)',
        ),
        Allows("let Codex run commands in the sandbox {}", stronger=("read-only",)),
    ] = "workspace-write"
    approval_policy: Annotated[
        Literal["untrusted", "on-request", "never"],
        Key(
            choice(*APPROVAL_POLICIES),
            'when it asks before a command: `"untrusted"` (always, save for a few that only read), `"on-request"` '
            '(when it wants to leave its sandbox) or `"never"`',
        ),
        Allows("let Codex run commands with the approval policy {}", stronger=("untrusted",)),
    ] = "on-request"


class Codex(msgspec.Struct, frozen=True):
    """The agent behind the tools `codex`, `codex_list_threads` and `codex_archive_thread`. `timeout` in seconds."""

    enabled: Annotated[
        bool,
        Key(flag, "`true`: clients have the tools, if the program is found"),
        Allows("let clients run Codex, which runs commands as you: {}"),
    ] = False
    calls: Annotated[
        Verdict,
        Key(verdict, 'whether clients may call them: `"allow"`, `"ask"` (a person decides first) or `"off"`'),
        Allows("let clients run Codex: codex.calls = {}", stronger=("off",)),
    ] = "ask"
    most: Annotated[
        MostOfCodex, Key(fields.table(MostOfCodex), "the widest `sandbox` and `approval_policy` that a call may name")
    ] = MostOfCodex()
    command: Annotated[
        str, Key(filled, "the program: a name that is found in `PATH`, or a path"), Allows("run {} as Codex")
    ] = "codex"
    timeout: Annotated[
        float, Key(duration, "how long one prompt may take, with the time that people take to decide"), allowing.PACE
    ] = 3600.0


class Known(msgspec.Struct, frozen=True):
    """Values that are secrets, never to be shown."""

    values: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<{len(self.values)} secrets>"


class Text(msgspec.Struct, frozen=True):
    """The bytes of the file, with whatever secrets are in them. Files that say the same make equal configurations."""

    written: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<{len(self.written)} bytes>"


_server = fields.table(Server)


def _written_servers(found: tuple[Server, ...], masked: bool) -> dict[str, Any]:
    return {each.name: _server.write(each, masked) for each in found}


def _schema_of_servers() -> Mapping[str, Any]:
    """What says which type it is must be there."""
    needed = [{"required": ["command"]}, {"required": ["url"]}, {"required": ["type"]}]
    return {"type": ["object", "null"], "additionalProperties": {**_server.schema(), "anyOf": needed}}


_no_servers = values.table.read  # servers are read one by one: `server_reading`
_servers: Kind[Any] = Kind(_no_servers, _schema_of_servers, _written_servers, Server)


class Config(msgspec.Struct, frozen=True):
    """`Config()` is what holds without any file. `source` is the path of the file, or empty, and `text` what it
    held; `dialect` whose words it is in; `component_url` where a component is that names no URL."""

    servers: Annotated[
        tuple[Server, ...], Key(_servers, "the [servers](configuration.md#servers), by name", name="mcpServers")
    ] = ()
    http: Annotated[Http, Section(Http, "Where the gateway listens.", "gateway")] = Http()
    sessions: Annotated[Sessions, Section(Sessions, "Sessions of legacy clients.", "gateway"), allowing.MEMORY] = (
        Sessions()
    )
    parking: Annotated[
        ParkingLimits, Section(ParkingLimits, "Calls that wait for a person's answer.", "gateway"), allowing.MEMORY
    ] = ParkingLimits()
    catalog: Annotated[
        CatalogLimits, Section(CatalogLimits, "Lists of tools, resources and prompts."), allowing.MEMORY
    ] = CatalogLimits()
    pool: Annotated[PoolLimits, Section(PoolLimits, "Running servers."), allowing.MEMORY] = PoolLimits()
    virtual_search: Annotated[
        VirtualSearch,
        Section(VirtualSearch, "Above a threshold, lists of tools show only the search tool.", "relist"),
    ] = VirtualSearch()
    log: Annotated[Log, Section(Log, "The log, on stderr.", "gateway"), allowing.WRITTEN] = Log()
    telemetry: Annotated[
        Telemetry, Section(Telemetry, "What is counted of calls ([monitoring.md](monitoring.md)).")
    ] = Telemetry()
    limits: Annotated[
        Limits, Section(Limits, "Sizes and rates ([limits.md](limits.md), [results.md](results.md)).", noted=True)
    ] = Limits()
    clients: Annotated[
        tuple[KnownClient, ...],
        Key(
            kind_of_clients,
            "the clients that may connect, with a key or a token ([clients.md](clients.md)): a list, or a table by id",
            default="none; if there is no `auth` either, the gateway is open, on loopback only",
        ),
    ] = ()
    add_servers: Annotated[
        Verdict,
        Key(
            verdict,
            'whether `add_mcp_server` and `remove_mcp_server` may change the servers: `"allow"`, `"ask"` (a person '
            'decides first, [approvals.md](approvals.md#a-server-that-a-tool-call-adds)) or `"off"`',
            noted=True,
        ),
        Allows("let clients add servers, which are commands that run as you: add_servers = {}", stronger=("off",)),
    ] = "ask"
    auth: Annotated[Auth, Section(Auth, "Tokens of clients ([clients.md](clients.md)).", noted=True)] = Auth()
    approvals: Annotated[
        Approvals,
        Section(Approvals, "Calls that need the approval of a person ([approvals.md](approvals.md)).", noted=True),
    ] = Approvals()
    guard: Annotated[
        Guard, Section(Guard, "Protection against untrusted servers ([pins.md](pins.md)).", noted=True)
    ] = Guard()
    audit: Annotated[Audit, Section(Audit, "The record of who did what ([audit.md](audit.md)).", noted=True)] = Audit()
    secrets: Annotated[
        Secrets, Section(Secrets, "Where `${secret:NAME}` is looked up ([secrets.md](secrets.md)).", noted=True)
    ] = Secrets()
    known: Annotated[Known, allowing.MADE] = Known()  # what is to be taken out of all that is shown
    validate_arguments: Annotated[
        bool,
        Key(shapes.word_or_flag, "`false`: the arguments of calls are checked by the servers only", noted=True),
        Allows("check the arguments of calls: {}"),
    ] = True
    box: Annotated[
        ServerBox,
        Key(
            kind_of_default_box,
            "what the programs of stdio servers may do that have no `box` of their own ([boxes.md](boxes.md)): "
            '`"off"`, `"no-net"`, `"no-write"`, `"strict"` or `"profile"`',
            noted=True,
        ),
        allowing.LESS,
    ] = NO_BOX
    surface: Annotated[
        Surface,
        Key(
            choice(*shapes.SURFACES),
            "what `/mcp` shows: `aggregate`, `children`, `meta`, `components`, `daemon` or `all` "
            "([surfaces.md](surfaces.md)). The default for a children config is `children`, and for a file with only "
            "`tool_components` it is `components`",
            "relist",
        ),
        allowing.LOOKS,
    ] = "aggregate"
    bundles: Annotated[
        Mapping[str, tuple[str, ...]],
        Key(
            shapes.bundles,
            "names of [groups of tools](overlays.md#bundles), shown at `/mcp/bundles/NAME`. A pattern may end in `*`",
            "relist",
        ),
        allowing.LOOKS,
    ] = {}
    drain: Annotated[
        float,
        Key(
            duration_or_none,
            "how long calls in progress may take when the gateway shuts down "
            "([lifecycle.md](lifecycle.md#when-toolgate-ends)); `0`: they end at once",
        ),
        allowing.PACE,
    ] = 10.0
    state: Annotated[
        str,
        Key(
            filled,
            "the folder for data that the gateway keeps for its next start. `~/` is expanded; a relative path starts "
            "at the folder of the file. Not allowed in a file that was found in the working directory",
            "gateway",
            default="`$XDG_STATE_HOME/toolgate`, else `~/.local/state/toolgate`",
        ),
        allowing.REFUSED,
    ] = ""
    tasks: Annotated[Tasks, Section(Tasks, "Tasks that outlive a session ([tasks.md](tasks.md)).", noted=True)] = (
        Tasks()
    )
    sandbox: Annotated[
        Sandbox, Section(Sandbox, "Code of models that calls tools ([scripts.md](scripts.md)).", noted=True)
    ] = Sandbox()
    providers: Annotated[
        Mapping[str, Provider],
        Key(
            kind_of_providers,
            "models that toolgate may ask, by name ([providers.md](providers.md))",
            noted=True,
            default="none: nothing is sent to a model",
        ),
        allowing.TOLD,
    ] = {}
    provision: Annotated[
        Provision,
        Section(Provision, "Finding and installing servers ([provisioning.md](provisioning.md)).", noted=True),
    ] = Provision()
    codex: Annotated[Codex, Section(Codex, "Codex as tools ([codex.md](codex.md)).", "relist", noted=True)] = Codex()
    component_url: Annotated[
        str, Key(shapes.template, "the URL of a component that has no `url`"), Allows("contact components at {}")
    ] = "http://{name}.spin.internal/"
    source: Annotated[str, allowing.MADE] = ""
    text: Annotated[Text, allowing.MADE] = Text()
    dialect: Annotated[str, allowing.MADE] = "native"
    warnings: Annotated[tuple[str, ...], allowing.MADE] = ()
    # else each `${secret:NAME}` stands as it is written, and nothing can be started
    has_secrets: Annotated[bool, allowing.MADE] = True

    also: ClassVar[Mapping[str, Row]] = {
        "tool_components": Key(
            shapes.components,
            "names of [components](configuration.md#tool-components), separated by commas or as a list",
        ),
        "cluster": Later(),
    }

    @property
    def most_values(self) -> int:
        """How many JSON values a request may have, whichever tool it is for."""
        own = (tool.values or 0 for server in self.servers for tool in server.tools.values())
        return max(self.limits.values, *own, 0)

    @property
    def is_open(self) -> bool:
        """Whether nobody has to show who they are."""
        return not self.clients and not self.auth.issuer

    def lists_as(self, other: "Config") -> bool:
        """Whether the same of all that servers offer is listed."""
        return all(getattr(self, name) == getattr(other, name) for name in fields.changing(Config, "relist"))

    def waits_for_restart(self) -> Iterator[tuple[str, Any]]:
        """(key, value) of all whose change waits until toolgate is started again."""
        for name in fields.changing(Config, "gateway"):
            yield name, getattr(self, name)
        for name in fields.sections(Config):
            section: msgspec.Struct = getattr(self, name)
            for below in fields.changing(type(section), "gateway"):
                yield f"{name}.{below}", getattr(section, below)


NOTED = fields.noted(Config)  # changes of these stand in the audit log, beside those of servers and clients
