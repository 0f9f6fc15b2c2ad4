"""Configuration files, and what toolgate says to them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.config import (
    Config,
    ConfigError,
    Http,
    Limits,
    Overlay,
    Parameter,
    PoolLimits,
    Problem,
    Root,
    Server,
    ServerAuth,
    VirtualSearch,
    dialects,
    fields,
    find,
    formats,
    load,
    read,
    values,
)
from toolgate.config import (
    render as showing,
)
from toolgate.config.access import Bounds, Rate
from toolgate.config.fields import Key, Later, Row, Section
from toolgate.config.formats import Format, parse

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
SCHEMA = jsonschema_rs.validator_for(showing.schema())
SERVER = fields.rows(Server)
SECTIONS: Mapping[str, Mapping[str, Row]] = {
    key: row.rows for key, row in fields.rows(Config).items() if isinstance(row, Section)
}
ROOT = {key: row for key, row in fields.rows(Config).items() if key not in (*SECTIONS, "mcpServers")}
FORMATS: tuple[Format, ...] = ("toml", "yaml", "json")


def said(
    text: str, format: Format = "toml", environ: Mapping[str, str] | None = None, native: bool = True
) -> Config | list[str]:
    """The configuration, or the lines that are said instead."""
    try:
        return read(text, file=f"toolgate.{format}", environ=environ or {}, native=native, format=format)
    except ConfigError as error:
        return str(error).split("\n")


def understood(text: str, format: Format = "toml", **more: Any) -> Config:
    """What is read as a file of ours is valid by the schema for editors."""
    config = said(text, format, **more)
    assert isinstance(config, Config), config
    wrong = list(SCHEMA.iter_errors(parse(text, format) or {})) if config.dialect == "native" else []
    assert [error.message for error in wrong] == []
    return config


def refused(text: str, format: Format = "toml", **more: Any) -> list[str]:
    lines = said(text, format, **more)
    assert isinstance(lines, list), lines
    return [line.removeprefix(f"toolgate.{format}: ") for line in lines]


def server(body: str, **environ: str) -> Server:
    return understood(f"[mcpServers.one]\n{body}", environ=environ).servers[0]


def plain(*servers: dict[str, Any], **environ: str) -> Config:
    """A file of another tool with servers named a, b, …"""
    named = dict(zip("abcdef", servers, strict=False))
    return understood(json.dumps({"mcpServers": named}), "json", environ=environ, native=False)


# What a file says.


def test_an_empty_file_says_the_defaults() -> None:
    for format, text in (("toml", ""), ("yaml", ""), ("yaml", "mcpServers:\n  # none yet"), ("json", "{}")):
        assert msgspec.structs.replace(understood(text, format), source="") == Config()  # type: ignore[arg-type]


def test_the_three_formats_say_the_same() -> None:
    tree = {"http": {"port": 9000}, "mcpServers": {"time": {"command": "uvx", "args": ["x"], "timeout": "5m"}}}
    texts = {
        "toml": '[http]\nport = 9000\n[mcpServers.time]\ncommand = "uvx"\nargs = ["x"]\ntimeout = "5m"',
        "yaml": "http: {port: 9000}\nmcpServers:\n  time: {command: uvx, args: [x], timeout: 5m}",
        "json": json.dumps(tree),
    }
    configs = {format: understood(texts[format], format) for format in FORMATS}
    expected = Server(id="time", name="time", type="stdio", command="uvx", args=("x",), timeout=300.0)
    for format, config in configs.items():
        assert config == Config(servers=(expected,), http=Http(port=9000), source=f"toolgate.{format}")


def test_the_type_of_a_server_follows_from_its_keys() -> None:
    assert server('command = "npx"').type == "stdio"
    assert server('url = "https://example.com/mcp"').type == "http"
    assert server('url = "wss://example.com/mcp"').type == server('url = "${U}"', U="WS://h").type == "ws"
    assert server('url = "https://example.com/sse"\ntype = "sse"\nheaders = {A = "b"}').type == "sse"
    assert server('url = "wss://example.com/"\ntype = "ws"\nheaders = {A = "b"}').type == "ws"


@pytest.mark.promise("b.names.slug")
def test_the_id_is_the_slug_of_the_name() -> None:
    [one] = understood('[mcpServers."My MCP Server"]\ncommand = "x"').servers
    assert (one.id, one.name) == ("my-mcp-server", "My MCP Server")


def test_a_timeout_in_milliseconds_is_kept_in_seconds() -> None:
    assert server('command = "x"\ntimeoutMs = 1500').timeout == 1.5


def test_a_root_is_a_path_or_a_uri_and_may_have_a_name() -> None:
    told = server('command = "x"\nroots = ["/a b", "file:///c", {uri = "${D}", name = "d"}]', D="/d").roots
    assert told == (Root("file:///a%20b"), Root("file:///c"), Root("file:///d", "d"))


@pytest.mark.parametrize(
    ("written", "seconds"), [(30, 30), (0.5, 0.5), ("500ms", 0.5), ("30s", 30), ("5m", 300), ("1.5 h", 5400)]
)
def test_a_duration_is_a_number_of_seconds_or_has_a_unit(written: object, seconds: float) -> None:
    assert values.duration(written) == seconds


@pytest.mark.parametrize("written", [0, -1, True, "30", "30 parsecs", "", "-1s", math.nan, math.inf, 10**400, None, []])
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(values.Wrong):
        values.duration(written)


@pytest.mark.parametrize(("written", "count"), [(1024, 1024), ("512KB", 512_000), ("4MiB", 4 << 20), ("1.5KiB", 1536)])
def test_a_size_is_a_number_of_bytes_or_has_a_unit(written: object, count: int) -> None:
    assert values.size(written) == count


@given(st.integers(1, 10**8))
def test_durations_round_trip(number: int) -> None:
    assert values.duration(f"{number}ms") == pytest.approx(number / 1000)
    assert values.milliseconds(number) == number / 1000
    assert values.duration(number / 1000) == number / 1000


@given(st.integers(1, 1000), st.sampled_from([("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30)]))
def test_sizes_round_trip(number: int, unit: tuple[str, int]) -> None:
    assert values.size(f"{number}{unit[0]}") == values.size(number << unit[1]) == number << unit[1]


# Lifecycles, limits, surfaces.


@pytest.mark.parametrize(
    ("written", "lifecycle", "idle"),
    [
        ('"lazy"', "lazy", None),
        ('"keep-alive"', "keep-alive", None),
        ('"ephemeral"', "ephemeral", None),
        ("{idleTimeoutMs = 1500}", "lazy", 1.5),
    ],
)
def test_a_lifecycle_is_a_word_or_a_time_without_calls(written: str, lifecycle: str, idle: float | None) -> None:
    one = server(f'command = "x"\nlifecycle = {written}')
    assert (one.lifecycle, one.idle) == (lifecycle, idle)


def test_what_a_server_may_say_of_itself_is_kept() -> None:
    one = server(
        'command = "x"\ncriticality = "optional"\ndescription = "d"\nvalidate_arguments = false\nresult_limit = "1KiB"'
    )
    assert (one.criticality, one.description, one.validate_arguments, one.result_limit) == (
        "optional",
        "d",
        False,
        1024,
    )


def test_what_the_gateway_may_say_is_kept() -> None:
    config = understood(
        """
        surface = "meta"
        state = "/var/lib/toolgate"
        validate_arguments = "false"
        [bundles]
        daily = ["time__*", "github__create_issue"]
        [pool]
        max_live = 3
        idle = "1m"
        [catalog]
        grace = 0
        [virtual_search]
        enabled = true
        threshold = 5
        mode = "regex"
        [limits]
        result_limit = "1MiB"
        result_tokens = 10000
        truncate = { head = 100, tail = 0 }
        [mcpServers.a]
        command = "x"
        [mcpServers.b]
        command = "x"
        validate_arguments = true
        """
    )
    assert (config.surface, config.state, config.catalog.grace) == ("meta", "/var/lib/toolgate", 0)
    assert config.bundles == {"daily": ("time__*", "github__create_issue")}
    assert config.pool == PoolLimits(max_live=3, idle=60.0)
    assert config.virtual_search == VirtualSearch(enabled=True, threshold=5, mode="regex")
    assert config.limits == Limits(result_limit=1 << 20, result_tokens=10000, head=100, tail=0)
    assert [one.validate_arguments for one in config.servers] == [False, True]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("surface = 'metta'", 'surface: must be "aggregate" or '),
        ("[bundles]\n'A b' = []", 'bundles."A b": is not a valid bundle name'),
        ("[bundles]\na = ['x*y']", "bundles.a[0]: may have `*` only at the end"),
        ("[limits.truncate]\nhaed = 1", "limits.truncate.haed: unknown key: did you mean `head`?"),
        ("[limits.truncate]\nhead = -1", "limits.truncate.head: must be at least 0"),
        ("[pool]\nmax_live = 0", "pool.max_live: must be at least 1"),
        ("validate_arguments = 'maybe'", "validate_arguments: must be true or false"),
        ("tool_components = 'a b'", "tool_components[0]: is not a valid component name"),
        ("tool_components = 'a,A'", "tool_components: has two components with the id `a`"),
        ("component_url = 'http://h/'", "component_url: must contain `{name}`"),
        ("tool_components = 'a'\n[mcpServers.A]\ncommand = 'x'", "tool_components: has a component with the id of"),
    ],
)
def test_what_contradicts_itself_or_is_misspelt_is_told(text: str, line: str) -> None:
    assert refused(text)[0].startswith(line)


def test_an_sdk_that_is_too_new_is_held_back_for_uvx() -> None:
    assert server('command = "uvx"\nargs = ["a"]\ncompat = "mcp<2"').args == ("--with", "mcp<2", "a")
    assert server('command = "${UVX}"\ncompat = "mcp>=1.2,<2"', UVX="/usr/bin/uvx").args == ("--with", "mcp>=1.2,<2")
    [line] = refused('[mcpServers.a]\ncommand = "npx"\ncompat = "mcp<2"')
    assert line.startswith('mcpServers.a.compat: is only for servers with `command` "uvx": ')
    assert refused('[mcpServers.a]\ncommand = "uvx"\ncompat = "other<2"')
    assert refused('[mcpServers.a]\nurl = "http://h"\ncompat = "mcp<2"')


# Components.


def test_a_component_is_reached_by_its_url_and_may_be_started_here() -> None:
    local = server('type = "component"\nurl = "http://127.0.0.1:{port}/{name}"\ncommand = "run"\nargs = ["{port}"]')
    assert (local.type, local.url, local.args) == ("component", "http://127.0.0.1:{port}/one", ("{port}",))
    assert server('type = "component"\nurl = "http://h/"\nheaders = {A = "b"}').headers == {"A": "b"}
    named = understood('component_url = "http://h/{name}/"\n[mcpServers.echo_tool]\ntype = "component"')
    assert (named.servers[0].url, named.component_url) == ("http://h/echo-tool/", "http://h/{name}/")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("type = 'component'", "mcpServers.a: is of type component and needs `url`"),
        ("type = 'component'\nurl = 'http://h:{port}/'", "mcpServers.a.url: contains `{port}`, which only components"),
        ("type = 'component'\nurl = 'ws://h'", "mcpServers.a.url: must be a URL"),
        ("type = 'component'\nurl = 'http://h'\ncompat = 'mcp<2'", "mcpServers.a.compat: is for stdio servers"),
    ],
)
def test_a_component_that_cannot_be_reached_is_told(body: str, line: str) -> None:
    assert refused(f"[mcpServers.a]\n{body}")[0].startswith(line)


# Overlays.


def overlaid(tools: object, **environ: str) -> Server:
    tree = {"mcpServers": {"a": {"command": "x", "tools": tools}}}
    return understood(json.dumps(tree), "json", environ=environ).servers[0]


def test_an_overlay_is_kept_as_written() -> None:
    query = {"name": "query", "description": "d", "default": {"a": [1, None]}, "hidden": True}
    search = {
        "name": "find",
        "title": "t",
        "description": "d",
        "parameters": {"q": query, "k": {"fixed": "${K}${N:-n}"}},
    }
    one = overlaid({"search": search, "*": {"hidden": True}}, K="k")
    assert one.tools["*"] == Overlay(hidden=True)
    assert one.tools["search"].parameters["q"] == Parameter("query", "d", default={"a": [1, None]}, hidden=True)
    assert one.tools["search"].parameters["k"] == Parameter(fixed="kn")
    assert (one.tools["search"].name, one.tools["search"].title) == ("find", "t")


def test_a_variable_that_an_overlay_lacks_fails_its_server_and_only_what_is_sent_is_looked_at() -> None:
    one = overlaid({"a": {"description": "costs ${X", "parameters": {"p": {"fixed": ["${KEY}"], "description": "${"}}}})
    assert (one.missing, one.tools["a"].description) == (("KEY",), "costs ${X")


def test_two_tools_may_change_their_names_with_one_another() -> None:
    assert overlaid({"a": {"name": "b"}, "b": {"name": "a"}}).tools["a"].name == "b"


@pytest.mark.parametrize(
    ("tools", "line"),
    [
        (
            {"a": {"name": "c"}, "b": {"name": "c"}},
            "tools.b.name: gives two tools the same name: `a` already has this name: choose another one",
        ),
        ({"a": {"name": "b"}, "b": {}}, "tools.b.name: gives two tools the same name"),
        ({"a": {"name": "no name"}}, "tools.a.name: is not a valid tool name"),
        ({"*": {"name": "a"}}, 'tools."*".name: would give all tools the same name'),
        (
            {"a": {"parameters": {"p": {"fixed": 1, "default": 2}}}},
            "tools.a.parameters.p: has both `fixed` and `default`",
        ),
        (
            {"a": {"parameters": {"p": {"name": "q"}, "q": {}}}},
            "tools.a.parameters.q.name: gives two parameters the same name",
        ),
        ({"a": {"hiden": True}}, "tools.a.hiden: unknown key: did you mean `hidden`?"),
        ({"a": {"hidden": "yes"}}, "tools.a.hidden: must be true or false"),
        ([], "tools: must be a table"),
        ({"a": {"parameters": {"p": {"default": 1 << 70}}}}, "tools.a.parameters.p.default: must be a JSON value"),
    ],
)
def test_an_overlay_that_contradicts_itself_is_told(tools: object, line: str) -> None:
    lines = refused(json.dumps({"mcpServers": {"a": {"command": "x", "tools": tools}}}), "json")
    assert lines[0].startswith(f"mcpServers.a.{line}"), lines


# Variables.


def test_variables_are_put_into_all_strings_of_a_server() -> None:
    one = server(
        'command = "${P}"\nargs = ["--x=${A}", "${NONE:-d}"]\nenv = {T = "a${A}${A}"}\ncwd = "/${A}"', P="p", A="1"
    )
    assert (one.command, one.args, one.env, one.cwd) == ("p", ("--x=1", "d"), {"T": "a11"}, "/1")
    other = server('url = "https://${H}/mcp"\nheaders = {X = "Bearer ${T}"}', H="h", T="t")
    assert (other.url, other.headers, other.problem) == ("https://h/mcp", {"X": "Bearer t"}, "")


def test_an_unset_variable_fails_only_its_own_server() -> None:
    config = understood(
        '[mcpServers.a]\ncommand = "x"\nenv = {T = "${TOKEN}", U = "${TOKEN}${OTHER}"}\n[mcpServers.b]\ncommand = "y"'
    )
    a, b = config.servers
    assert a.missing == ("TOKEN", "OTHER")
    assert "TOKEN, OTHER are not set" in a.problem
    assert "${TOKEN:-default}" in a.problem
    assert (b.problem, b.missing) == ("", ())


def test_a_default_also_holds_for_an_empty_variable_as_in_a_shell() -> None:
    assert server('command = "x"\nargs = ["${A:-d}", "<${A}>", "<${B:-}>"]', A="").args == ("d", "<>", "<>")


def test_what_stands_in_a_variable_is_not_read_as_a_pattern() -> None:
    assert server('command = "x"\nargs = ["${A}"]', A="${B}", B="b").args == ("${B}",)


@pytest.mark.parametrize(
    "text", ["${cmd:X}", "${}", "${A", "${A:-${B}}", "$${A}{B}", "${A:-$}{B}", "$${A:-{B}}", "${a b}", "a ${in-put} b"]
)
def test_a_pattern_that_is_no_variable_is_never_sent(text: str) -> None:
    lines = refused(f'[mcpServers.one]\ncommand = "x"\nargs = ["{text}"]', environ={"A": ""})
    assert lines == ["mcpServers.one.args[0]: contains `${` that is not a variable: write ${NAME} or ${NAME:-default}"]
    [one] = plain({"command": "x", "args": [text], "env": {}}, A="").servers
    assert "`args[0]` contains `${` that is not a variable" in one.problem
    assert one.args == ()


def test_a_variable_that_makes_no_url_fails_its_server_and_a_written_one_the_file() -> None:
    assert "`url` must be a URL" in server('url = "${U}"', U="not one").problem
    assert refused('[mcpServers.one]\nurl = "not one"') == [
        "mcpServers.one.url: must be a URL that starts with http://, https://, ws:// or wss://"
    ]


def test_a_header_cannot_smuggle_another_one() -> None:
    one = server('url = "http://h"\nheaders = {A = "${T}"}', T="x\r\nB: y")
    assert "`headers.A` contains a line break" in one.problem
    assert one.headers == {}


@given(st.lists(st.sampled_from(["$", "{", "}", "A", "${A}", "${B}", "${A:-", "${N:-", ":-", "x"]), max_size=8))
def test_no_pattern_of_a_file_gets_through(pieces: list[str]) -> None:
    for one in plain({"command": "x", "args": ["".join(pieces)]}, A="", B="b").servers:
        assert not any("${" in argument for argument in one.args)


# What is wrong with a file.


def test_everything_that_is_wrong_is_told_at_once() -> None:
    text = """
    [http]
    prot = 1
    host = "0.0.0.0:80"
    [sessions]
    idle = "30"
    [mcpServers.github]
    comand = "npx"
    env = {T = 1}
    timeout = false
    [mcpServers.other]
    command = "x"
    args = ["a", 1, true]
    start = "eagre"
    """
    assert [line.partition(": ")[0] for line in refused(text)] == [
        "http.prot",
        "http.host",
        "sessions.idle",
        "mcpServers.github.comand",
        "mcpServers.github.env.T",
        "mcpServers.github.timeout",
        "mcpServers.github",
        "mcpServers.other.args[1]",
        "mcpServers.other.args[2]",
        "mcpServers.other.start",
    ]


def test_a_problem_has_its_parts() -> None:
    with pytest.raises(ConfigError) as caught:
        read("[http]\nprot = 1", file="f.toml", environ={}, format="toml")
    assert caught.value.problems == (Problem("f.toml", "http.prot", "unknown key", "did you mean `port`?"),)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("mcp_servers = {}", "did you mean `mcpServers`?"),
        ("mcpservers = {}", "did you mean `mcpServers`?"),
        ("[sessions]\nidel = 3", "did you mean `idle`?"),
        ("[mcpServers.a]\ncommand = 'x'\nenvironment = {}", "did you mean `env`?"),
        ("[mcpServers.a]\ncommand = 'x'\nstartTimeout = 3", "did you mean `start_timeout`?"),
        ("[mcpServers.a]\ncommand = 'x'\nscope = 'sesion'", "did you mean `session`?"),
        ("[mcpServers.a]\nurl = 'http://h'\ntype = 'htpp'", "did you mean `http`?"),
        ("[mcpServers.a]\nurl = 'http://h'\ntype = 'streamable-http'", 'write "http"'),
        ("[http]\nbody_limit = '4mib'", "did you mean `MiB`?"),
        ("whatever = 1", "remove it"),
    ],
)
def test_a_slip_of_the_pen_is_told_with_its_fix(text: str, fix: str) -> None:
    [line] = refused(text)
    assert line.endswith(f": {fix}")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("", "mcpServers.a: needs `command` (a program to start) or `url` (a server to reach)"),
        ("type = 'stdio'\nurl = 'http://h'", "mcpServers.a: is of type stdio and needs `command`"),
        ("type = 'http'\ncommand = 'x'", "mcpServers.a: is of type http and needs `url`"),
        ("command = ' '", "mcpServers.a.command: must not be empty"),
        ("command = 'x'\nconcurrency = 0", "mcpServers.a.concurrency: must be at least 1"),
        ("command = 'x'\nheaders = {A = 'b'}", "mcpServers.a.headers: is for http/sse/ws/component servers, and this"),
        ("command = 'x'\ntimeout = 1\ntimeoutMs = 1", "mcpServers.a.timeoutMs: cannot be combined with `timeout`: "),
        ("command = 'x'\nroots = ['relative']", "mcpServers.a.roots[0]: must be an absolute path or a file:/// URI"),
        ("command = 'x'\nargs = 'y'", "mcpServers.a.args: must be a list, not text: put it in [ ]"),
        ("command = 'x'\nurl = 'http://h'", "mcpServers.a: has both `command` and `url`: "),
        ("url = 'ftp://h'", "mcpServers.a.url: must be a URL that starts with http://, https://, ws:// or wss://"),
        ("type = 'http'\nurl = 'ws://h'", "mcpServers.a.url: must be a URL that starts with http:// or https://"),
        ("type = 'sse'\nurl = 'ws://h'", "mcpServers.a.url: must be a URL that starts with http:// or https://"),
        ("type = 'ws'\nurl = 'http://h'", "mcpServers.a.url: must be a URL that starts with ws:// or wss://"),
        ("type = 'ws'\ncommand = 'x'", "mcpServers.a: is of type ws and needs `url`"),
        ("command = 'x'\ntype = 'registry'", 'mcpServers.a.type: must be "stdio" or "http" or "sse" or "ws"'),
    ],
)
def test_a_server_is_started_or_reached_and_nothing_in_between(body: str, line: str) -> None:
    assert refused(f"[mcpServers.a]\n{body}")[0].startswith(line)


@pytest.mark.promise("b.names.slug")
def test_two_names_with_one_id_are_both_named() -> None:
    [line] = refused('[mcpServers."My Server"]\ncommand = "x"\n[mcpServers.my_server]\ncommand = "y"')
    assert line.startswith('mcpServers.my_server: has the same id `my-server` as the server "My Server": ')


@pytest.mark.promise("b.names.slug")
@pytest.mark.parametrize("name", ["toolgate", "ToolGate", "gobby-tasks", "Gobby Tasks", "…", ""])
def test_some_names_are_not_to_be_had(name: str) -> None:
    [line] = refused(json.dumps({"mcpServers": {name: {"command": "x"}}}), "json")
    assert line.endswith(": rename it")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "fe80::1%eth0", "localhost", "a-b.example.com"])
def test_what_may_be_a_host(host: str) -> None:
    assert understood(f"[http]\nhost = '{host}'").http.host == host


@pytest.mark.parametrize("host", ["", "[::1]", "localhost:80", "1.2.3", "256.1.1.1", "http://h", "a b", "::g", "h/x"])
def test_what_may_not_be_a_host(host: str) -> None:
    [line] = refused(f"[http]\nhost = '{host}'")
    assert line.startswith("http.host: must ")


def test_origins_and_hosts_that_could_never_match_are_refused() -> None:
    config = understood(
        '[http]\nallowed_origins = ["https://a.example", "app://x"]\nallowed_hosts = ["a:80", "b", "[::1]:80"]'
    )
    assert config.http.allowed_hosts == ("a:80", "b", "[::1]:80")
    lines = refused('[http]\nallowed_origins = ["*", "https://a/", "a.b"]\nallowed_hosts = ["http://a", "*", "::1"]')
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("format", "text", "place"),
    [
        ("toml", "a = 1\nb = [1,\n", "toolgate.toml:3:1: Invalid value"),
        ("toml", "a = 1\na = 2", "toolgate.toml:2:6: Cannot overwrite a value"),
        ("yaml", "a:\n  - [b\n", "toolgate.yaml:3:1: "),
        ("yaml", "a: 1\na: 2", "toolgate.yaml:2:1: this key appears twice"),
        ("json", '{"a":\n 1 2}', "toolgate.json:2:4: "),
        ("json", '{"a": 1, "a": 2}', 'toolgate.json: the key "a" appears twice in one object'),
        ("json", '{"a": NaN}', "toolgate.json: NaN is not JSON"),
        ("json", "[]", "toolgate.json: must be a table, not a list"),
        ("json", "9" * 5000, "toolgate.json: a number is too long"),
        ("toml", "a = " + "9" * 5000, "toolgate.toml: a number is too long"),
        ("yaml", "a: !!timestamp x", "toolgate.yaml: contains a value that does not fit its tag"),
        ("yaml", "1: x", "toolgate.yaml: has a key that is not text"),
    ],
)
def test_a_file_that_is_none_is_named_with_line_and_column(format: Format, text: str, place: str) -> None:
    lines = said(text, format)
    assert isinstance(lines, list)
    assert len(lines) == 1
    assert lines[0].startswith(place)


@pytest.mark.parametrize("format", FORMATS)
def test_deep_nesting_and_great_length_are_refused(format: Format) -> None:
    deep = "[" * 100_000
    assert refused(f"a = {deep}" if format == "toml" else deep, format) == ["is nested too deeply"]
    assert refused("#" * (2 << 20), format) == ["has more than 1 MiB, which is too large for a configuration"]


def test_yaml_that_unfolds_without_end_is_refused() -> None:
    level = "\n".join(f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n  k{n}: 1" for n in range(1, 30))
    [line] = said("a0: &a0 {k: 1}\n" + level, "yaml")  # type: ignore[misc]
    assert "more than 100,000 values with its aliases expanded" in line
    assert refused("&a [" + "*a," * 200 + "]", "yaml") != []
    assert understood("mcpServers:\n  a: &a {command: x}\n  b: {<<: *a, args: [y]}", "yaml").servers[1].command == "x"


# What this version does not have.


def test_a_slip_in_clients_opens_nothing() -> None:
    long = "k" * 24
    for value in (
        [],
        {},
        None,
        [{"name": "x"}],
        [{"id": "x", "key": "short"}],
        [{"id": "x", "mcp_server_access": "al"}],
        [{"id": "x", "mcp_server_access": 1}],
    ):
        assert refused(json.dumps({"clients": value}), "json", native=True)
        assert refused(json.dumps({"clients": value}), "json", native=False)
    access = refused(json.dumps({"clients": [{"id": "x", "mcp_server_access": "docs"}]}), "json")
    assert 'for one server write ["docs"]' in str(access)
    assert refused(json.dumps({"clients": [{"id": "x", "key": "${NOBODY_SET_IT}"}]}), "json")
    assert refused(json.dumps({"clients": [{"id": "x", "mcp_permissions": {"tools": {"a__b": "yes"}}}]}), "json")
    assert refused(json.dumps({"clients": [{"id": "x"}, {"id": "x"}]}), "json")
    [ci] = understood(json.dumps({"clients": [{"id": "ci", "key": "${KEY}"}]}), "json", environ={"KEY": long}).clients
    assert (ci.key, ci.servers, ci.admin, repr(ci)) == (long, "none", False, "<KnownClient ci>")


def test_clients_say_what_they_may() -> None:
    text = """
        [[clients]]
        id = "ci"
        claims = { sub = "ci@example.com" }
        mcp_permissions = { global = "off", servers = { docs = "allow" }, read_only = true }
        limits = { rate = "60/m", concurrency = 4 }
        [[clients]]
        id = "ops"
        admin = true
        mcp_server_access = { specific = ["docs"] }
        [auth]
        issuer = "https://login.example.com"
        scopes = "mcp tools"
        [limits]
        rates = { tool = "5/10s" }
    """
    config = understood(text)
    ci, ops = config.clients
    assert (ci.servers, ci.permissions.everything, ci.permissions.servers) == (None, "off", {"docs": "allow"})
    assert ci.permissions.read_only == "off"
    assert ci.limits == Bounds(Rate(60, 60.0), 4)
    assert (ops.servers, ops.admin) == (("docs",), True)
    assert config.auth.scopes == ("mcp", "tools") and not config.is_open
    assert config.limits.rates.tool == Rate(5, 10.0)


def laters() -> list[tuple[dict[str, Any], Later]]:
    """Each key of a later version, as the tree of a file that gives it the value `...`."""
    found: list[tuple[dict[str, Any], Later]] = []
    found += [({key: ...}, row) for key, row in ROOT.items() if isinstance(row, Later)]
    for section, rows in SECTIONS.items():
        found += [({section: {key: ...}}, row) for key, row in rows.items() if isinstance(row, Later)]
    for key, row in SERVER.items():
        if isinstance(row, Later):
            found.append(({"mcpServers": {"a": {"command": "x", key: ...}}}, row))
    return found


def filled_in(tree: Any, value: object) -> Any:
    if isinstance(tree, dict):
        return {key: filled_in(below, value) for key, below in tree.items()}
    return value if tree is ... else tree


@pytest.mark.parametrize(("tree", "row"), laters(), ids=lambda value: json.dumps(value, default=str)[:40])
def test_a_key_of_a_later_version_may_only_say_its_default(tree: dict[str, Any], row: Later) -> None:
    [line] = refused(json.dumps(filled_in(tree, {"some": "thing"})), "json")
    assert "is not available in this version of toolgate" in line
    if row.accepted is not msgspec.UNSET:
        config = understood(json.dumps(filled_in(tree, row.accepted)), "json")
        assert config.warnings == ()


# Other tools' files.


def test_unknown_keys_of_another_tool_are_warnings() -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "x", "autoStart": ["y"]}}, "globalShortcut": ""})
    config = understood(text, "json", native=False)
    assert config.servers[0].command == "x"
    assert config.warnings == (
        "toolgate.json: globalShortcut: is unknown and ignored",
        "toolgate.json: mcpServers.a.autoStart: is unknown and ignored",
    )


def test_words_of_other_tools_are_understood_in_their_files() -> None:
    a, b, c, d, e, f = plain(
        {"type": "streamable-http", "url": "http://h"},
        {"transportType": "streamableHttp", "serverUrl": "http://h"},
        {"command": "x", "disabled": True, "headers": {}},
        {"transport": "stdio", "command": "x", "timeoutMs": 500},
        {"transport": "sse", "url": "http://h", "headers": {"A": "b"}},
        {"type": "websocket", "url": "ws://h"},
    ).servers
    assert (a.type, a.url, b.type, b.url) == ("http", "http://h", "http", "http://h")
    assert (c.enabled, d.type, d.timeout) == (False, "stdio", 0.5)
    assert (e.type, e.headers, f.type) == ("sse", {"A": "b"}, "ws")


def test_what_another_tool_can_and_we_cannot_fails_one_server() -> None:
    config = plain(
        {"url": "http://h", "oauth": {"clientId": "x"}},
        {"url": "http://h", "auth": "oauth"},
        {"command": "x", "lifecycle": "keep-alive"},
    )
    failed, signs_in, works = config.servers
    assert "is not available in this version of toolgate" in failed.problem
    assert (signs_in.auth, signs_in.problem) == (ServerAuth(), "")
    assert works.problem == ""


# Files.


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_working_directory_comes_before_the_users_folder(tmp_path: Path) -> None:
    home, cwd, xdg = tmp_path / "home", tmp_path / "cwd", tmp_path / "xdg"
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": str(xdg)}
    assert find(None, cwd, environ) is None
    theirs = write(home / ".config/toolgate/toolgate.yaml")
    assert find(None, cwd, {"HOME": str(home)}) == theirs
    assert find(None, cwd, environ) is None
    assert find(None, cwd, environ | {"XDG_CONFIG_HOME": ""}) == theirs
    moved = write(xdg / "toolgate/toolgate.json")
    assert find(None, cwd, environ) == moved
    here = write(cwd / "toolgate.yml")
    assert find(None, cwd, environ) == here
    assert find(None, cwd, {}) == here
    assert find("other.toml", cwd, environ) == cwd / "other.toml"
    assert find(str(theirs), cwd, environ) == theirs


@pytest.mark.parametrize(
    ("name", "tree", "native"),
    [
        (".mcp.json", {"mcpServers": {}, "odd": 1}, False),
        ("mcp.json", {"odd": 1}, False),
        ("claude_desktop_config.json", {"odd": 1}, False),
        ("mine.json", {"mcpServers": {"a": {"command": "x", "odd": 1}}}, False),
        ("mine.json", {"mcpServers": {}, "odd": 1}, True),
        ("toolgate.json", {"mcpServers": {"a": {"command": "x", "odd": 1}}}, True),
    ],
)
def test_whose_file_it_is_follows_from_its_name_and_content(
    tmp_path: Path, name: str, tree: object, native: bool
) -> None:
    path = write(tmp_path / name, json.dumps(tree))
    if native:
        with pytest.raises(ConfigError, match="unknown key"):
            load(path, {})
    else:
        config = load(path, {})
        assert (config.source, len(config.warnings)) == (str(path), 1)


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    for name, words in [
        ("none.toml", "cannot be read"),
        ("folder.toml", "cannot be read"),
        ("latin.toml", "is not UTF-8"),
        ("what.ini", "is not a TOML, YAML or JSON file"),
        ("nul\0.toml", "cannot be read"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, {})
        assert words in str(caught.value)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    for name, text in [("a.toml", ""), ("a.json", "{}"), ("a.yaml", "{}")]:
        assert load(write(tmp_path / name, "\ufeff" + text), {}).servers == ()


# Secrets.


def test_a_repr_shows_no_secret() -> None:
    one = server('command = "x"\nargs = ["--key=s3cret"]\nenv = {KEY = "s3cret"}')
    other = server('url = "https://me:s3cret@host/s3cret?key=s3cret"\nheaders = {Auth = "s3cret"}')
    shown = f"{one} {other!r} {Config(servers=(one, other))} {list(one.__rich_repr__())}"
    assert "s3cret" not in shown
    assert "KEY" in shown
    assert "Auth" in shown
    assert "host=host" in shown


@pytest.mark.parametrize(
    "text",
    [
        '{"env": "s3cret"}',
        '{"env": ["KEY=s3cret"]}',
        '{"env": {"KEY=s3cret": "x"}}',
        '{"env": {"KEY": ["s3cret"]}}',
        '{"env": {"KEY": "${s3cret-"}}',
        '{"env": {"KEY": "s3cret\\u0000"}}',
        '{"headers": {"Authorization: s3cret": ""}}',
        '{"headers": {"A": {"s3cret": 1}}}',
        '{"headers": {"A": "s3cret\\n"}}',
        '{"headers": {"A": s3cret}}',
        '{"env": {KEY: *s3cret}}',
        '{"env": {KEY: !s3cret x}}',
        '{"env": {KEY: !s3cret! x}}',
        '{"env": {KEY: @s3cret}}',
        '{"url": "s3cret"}',
        '{"args": ["${s3cret-"]}',
    ],
)
def test_no_error_quotes_a_secret(text: str) -> None:
    for format in ("json", "yaml"):
        lines = said(f'{{"mcpServers": {{"a": {text}}}}}', format)
        assert isinstance(lines, list)
        assert not any("s3cret" in line for line in lines), lines


# Anything at all.

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["5m", "${A}", "/"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
SECRET = "s3cret"
SERVER_KEYS = sorted({key for dialect in dialects.DIALECTS for key in dialect.rows})
VALUES = JUNK | st.sampled_from(
    [
        SECRET,
        f"${{{SECRET}",
        "${env:A}",
        "{env:A}",
        "$A",
        "keep-alive",
        "stdio",
        "local",
        "http://h/mcp",
        "uvx",
        ["x", "y"],
    ]
)
SERVER_TREE = st.dictionaries(
    st.sampled_from([*SERVER_KEYS, "name"]),
    VALUES | st.dictionaries(st.text(max_size=5), VALUES, max_size=2),
    max_size=5,
)
SERVER_TREE |= SERVER_TREE.map(lambda tree: {"command": "x", **tree})
SERVERS = st.dictionaries(st.text(max_size=5), SERVER_TREE | JUNK, max_size=3) | st.lists(SERVER_TREE, max_size=2)
KNOWN = ["mcpServers", *SECTIONS, *ROOT]
THEIRS = [
    "mcp_servers", "mcp-servers", "children", "servers", "inputs", "mcp", "context_servers", "extensions", "packages",
    "remotes", "server", "component", "projects", "user_config", "name",
]  # fmt: skip
INSIDE = st.dictionaries(
    st.sampled_from(
        ["mcp_config", "servers", "platform_overrides", "variables", "tool_components", "identifier", "registryType",
         "packageArguments", "environmentVariables", "url", "headers", "version", "default", "id", "excluded"]
    ),
    JUNK
    | SERVERS
    | st.lists(st.dictionaries(st.sampled_from(["name", "value", "type", "default"]), VALUES), max_size=2),
    max_size=4,
)  # fmt: skip
TREE = st.dictionaries(
    st.sampled_from([*KNOWN, *THEIRS]),
    JUNK
    | SERVERS
    | INSIDE
    | st.lists(INSIDE, max_size=2)
    | st.dictionaries(st.sampled_from([key for rows in SECTIONS.values() for key in rows]), JUNK, max_size=4),
    max_size=4,
)


@given(st.text(), st.sampled_from(FORMATS), st.booleans())
@example("!!int x", "yaml", True)
@example("!!bool x", "yaml", True)
@example("2020-99-99", "yaml", True)
@example("? [a]\n: b", "yaml", True)
@example("&a {*a: 1}", "yaml", True)
@example("&a [*a]", "yaml", True)
@example("a = 2020-01-01", "toml", True)
@example('{"\\ud800": 1}', "json", True)
@example('{"mcpServers": {"\\ud800a": {"command": "\\ud800"}}}', "json", False)
def test_any_text_is_understood_or_refused(text: str, format: Format, native: bool) -> None:
    result = said(text, format, native=native)
    assert result or isinstance(result, Config)
    if isinstance(result, list):
        "\n".join(result).encode()


@given(st.text("[]{}!&*<>:-?|#%@`'\"\n \tab1=.,", max_size=30), st.sampled_from(FORMATS))
def test_any_heap_of_signs_is_understood_or_refused(text: str, format: Format) -> None:
    said(text, format)


NAMES = ["toolgate", ".mcp", "mcp", "settings", "opencode", "children_config", "claude_desktop_config", "x"]


@given(
    TREE | SERVERS, st.sampled_from([None, *(dialect.name for dialect in dialects.DIALECTS)]), st.sampled_from(NAMES)
)
def test_any_tree_is_understood_or_refused(tree: dict[str, Any], dialect: str | None, name: str) -> None:
    """In any dialect; with nothing of it in what is said; and what is shown of it can be read again."""
    file = dialects.File(f"/nowhere/{name}.json", {"A": "a"})
    found = dialects.recognised(file, tree) if dialect is None else dialects.named(dialect)
    try:
        config = read(json.dumps(tree), file=file.path, environ=file.environ, format="json", dialect=found.name)
    except ConfigError as error:
        assert SECRET not in "".join(problem.message + problem.fix for problem in error.problems)
        assert "NaN" in str(error) or "Inf" in str(error) or str(error).startswith(file.path)
        return
    assert msgspec.json.decode(msgspec.json.encode(config), type=Config) == config
    assert SECRET not in "".join(one.problem for one in config.servers)
    repr(config)
    shown = json.dumps(showing.config(config))
    read(shown, file="toolgate.json", environ={}, format="json")


# The page for users.


def named_blocks() -> list[tuple[Format, str, str]]:
    """The examples: (format, the name of the file where it matters, text)."""
    return re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("format", "name", "text"), named_blocks())
def test_every_example_of_the_page_loads(format: Format, name: str, text: str) -> None:
    environ = dict.fromkeys(("DOCS_TOKEN", "GITHUB_TOKEN", "SEARCH_KEY", "TENANT", "VAULT_TOKEN"), "x") | {
        "CI_KEY": "k" * 24
    }
    config = read(text, file=name or f"toolgate.{format}", environ=environ, format=format, native=not name)
    assert config.servers or not name
    assert not config.warnings
    assert not any(one.problem for one in config.servers)


def test_the_page_names_every_tool_and_every_key_of_theirs_that_says_something() -> None:
    page = PAGE.read_text(encoding="utf-8")
    tools = {dialect.title.partition(" (")[0] for dialect in dialects.DIALECTS} - {"toolgate", "a file with mcpServers"}
    assert {title for title in tools if title.split()[0] not in page} == set()
    theirs = {key for dialect in dialects.DIALECTS for key, row in dialect.rows.items() if isinstance(row, Key)}
    unnamed = {key for key in theirs - SERVER.keys() if f"`{key}" not in page}
    assert unnamed <= {"transportType", "oauth", "startup_timeout_ms"}


def test_the_page_shows_errors_as_they_are() -> None:
    shown = re.findall(r"^    (toolgate\.toml: .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert said('[http]\nprot = 1\n[mcpServers.github]\ncommand = "x"\ntimeout = "30"') == shown


def test_where_much_is_wrong_each_line_is_looked_at_once_and_not_at_all_in_a_long_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty problems in a file of 60,000 keys took 18 s."""
    taken: list[str] = []
    keys = formats._toml_keys  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(formats, "_toml_keys", lambda written: taken.append(written) or keys(written))
    text = "".join(f"a{number}.b = 1\n" for number in range(1000))
    places = [formats.line_of(text, "toml", (f"a{number}", "b")) for number in (5, 700, 999)]
    assert places == [6, 701, 1000] and len(taken) == 1000
    assert formats.line_of(text + "#" * formats.LONGEST_PLACED, "toml", ("a5", "b")) == 0 and len(taken) == 1000
