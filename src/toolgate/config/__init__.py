"""The configuration: frozen values, read strictly from one TOML, YAML or JSON file.

May import `core` and nothing else of toolgate.

The rule of this room: a key is known in one place, the field that it fills. There stands what it may hold, what holds
without it, whether it is shown, what a change of it does, what the user who is to trust a file is told of it, and its
line of documentation. Reading, showing, reloading, docs/configuration-keys.md and the JSON Schema come from it.

A file is understood as a whole or refused as a whole. A refusal reports every problem at once, each with its place and
how to fix it. There is one exception: a variable that is not set fails only its own server. Values of `env` and
`headers` are never shown.

The table of fields
    fields            what is said of a field (`Key`), and what is made of that
    allowing          what is said of a field to the user who is to trust a file
    settings          `Config`: the root of a file, and its sections
    server            `Server` and its parts
    boxes             `Confines`: what comes out of a server's `box`
    profiles          what known servers need, by package: `PROFILES`
    sandbox           the section of code that calls tools
    providers         `Provider`: a model behind an API
    provision         the section of servers that may be found and installed
    access            the structs about access: clients, permissions, tokens, approval, rates, guard, audit
    secrets           `Secrets`, and `${secret:NAME}` looked up in the places that it names
The kinds of values that fields have
    values            one value: durations, sizes, texts; lists and tables of them
    shapes            lifecycles, tools, rates, bundles, components
    access_shapes     names, keys, scopes, URLs, headers
    server_types      the types of servers, and what must hold of a server's strings once variables are in
    masking           what looks like a secret, masked
    private           what in a configuration is secret
From text to values
    files             which file it is; its text, and the lines of problems
    formats           text → plain values, for each of the three formats
    reading           plain values → a `Config`; `read` and `load`
    server_reading    the same for one server
    findings          all that is wrong with a file
    problems          the same in lines for people
    variables         `${VAR}` and other tools' ways to write it
    env_file          `.env` files that other tools' servers name
    permission_names  names as permissions write them
Other tools' files
    dialects          `DIALECTS`, the table of them: how each is recognised, and its keys
    dialect           what is known of one of them
    containers        where their servers stand
    foreign_kinds     kinds of values that only they have
    foreign_writers   servers in their words
    manifests         files that describe one server: `server.json`, MCPB bundles, Spin manifests
Back to text, and to disk
    render            a configuration → native tables
    telling           what a server would make toolgate do, in lines for people
    edits             servers that were added while the gateway runs
    masked_text       the text of a file without its secrets, and with them again
    spans             edits of a file's text that touch only what changes
    replacing         a file that other programs write as well, replaced as a whole
    secret_references  what looks like a secret, and the reference in its place
    ownership         whether other users can write to a file
    trust             which files that were found in a folder the user has trusted

A new key is a field of a struct with its `Key` and what it `Allows`; `make keys` writes the page and the schema.
Another tool's file is a row in `dialects.DIALECTS`, which reads it, and writes it by a row of `foreign_writers`.
"""

from toolgate.config.access import (
    Audit,
    Auth,
    Guard,
    KnownClient,
)
from toolgate.config.files import NAMES, find, is_strangers, own_folders
from toolgate.config.problems import ConfigError, Problem
from toolgate.config.reading import (
    checked,
    foreign,
    learn_secrets,
    load,
    read,
    recognised,
    secrets_of,
    sources,
    state_folder,
    tables,
    tables_in,
    tls_files,
    with_own,
)
from toolgate.config.server import Overlay, Parameter, Root, Server, ServerAuth
from toolgate.config.settings import (
    CatalogLimits,
    Config,
    Http,
    Limits,
    ParkingLimits,
    PoolLimits,
    Sessions,
    Tasks,
    VirtualSearch,
)
from toolgate.config.shapes import SURFACES, Surface

__all__ = [
    "NAMES",
    "SURFACES",
    "Audit",
    "Auth",
    "CatalogLimits",
    "Config",
    "ConfigError",
    "Guard",
    "Http",
    "KnownClient",
    "Limits",
    "Overlay",
    "Parameter",
    "ParkingLimits",
    "PoolLimits",
    "Problem",
    "Root",
    "Server",
    "ServerAuth",
    "Sessions",
    "Surface",
    "Tasks",
    "VirtualSearch",
    "checked",
    "find",
    "foreign",
    "is_strangers",
    "learn_secrets",
    "load",
    "own_folders",
    "read",
    "recognised",
    "secrets_of",
    "sources",
    "state_folder",
    "tables",
    "tables_in",
    "tls_files",
    "with_own",
]
