"""Files of other tools, as people have them, and what toolgate understands of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolgate.config import Config, ConfigError, Overlay, Server, load, read, recognised, tables
from toolgate.config.dialects import DIALECTS
from toolgate.config.formats import parse

GITHUB = ["-y", "@modelcontextprotocol/server-github"]


def file(folder: Path, name: str, content: str | dict[str, Any] | list[Any]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def loaded(folder: Path, name: str, content: str | dict[str, Any] | list[Any], dialect: str, **environ: str) -> Config:
    """The file's configuration, once it is known as that of `dialect`."""
    path = file(folder, name, content)
    config = load(path, environ)
    assert config.dialect == dialect == recognised(path, environ).name
    return config


def started(one: Server) -> tuple[str, tuple[str, ...], Mapping[str, str]]:
    assert (one.type, one.problem) == ("stdio", "")
    return one.command, one.args, one.env


def reached(one: Server) -> tuple[str, str, Mapping[str, str]]:
    assert one.problem == ""
    return one.type, one.url, one.headers


HIDDEN = Overlay(hidden=True)


# Claude.


@pytest.mark.promise("b.002.config")
def test_claude_code(tmp_path: Path) -> None:
    content = {
        "mcpServers": {
            "github": {
                "type": "stdio", "command": "npx", "args": GITHUB, "env": {"T": "${TOKEN}", "R": "${REGION:-eu}"},
                "timeout": 30000,
            },
            "api": {"type": "http", "url": "${BASE:-https://api.example.com}/mcp", "headers": {"A": "Bearer ${KEY}"}},
            "events": {"type": "sse", "url": "https://events.example.com/sse", "timeout": 500, "alwaysLoad": True},
            "live": {"type": "ws", "url": "wss://live.example.com"},
            "seed": {
                "url": "https://h/mcp", "transportType": "streamable-http", "timeoutMs": 5000,
                "criticality": "optional",
                "lifecycle": {"idleTimeoutMs": 90000},
            },
        }
    }  # fmt: skip
    config = loaded(tmp_path, ".mcp.json", content, "claude-code", TOKEN="t")
    github, api, events, live, seed = config.servers
    assert started(github) == ("npx", tuple(GITHUB), {"T": "t", "R": "eu"})
    assert github.timeout == 30.0
    assert api.missing == ("KEY",) and "KEY is not set" in api.problem
    assert (reached(events), events.timeout) == (("sse", "https://events.example.com/sse", {}), 60.0)
    assert live.type == "ws"
    assert (seed.type, seed.timeout, seed.criticality, seed.lifecycle, seed.idle) == (
        "http",
        5.0,
        "optional",
        "lazy",
        90.0,
    )
    assert config.warnings == ()


def test_claude_codes_own_file_has_the_users_servers_and_those_of_the_project_that_this_runs_in(tmp_path: Path) -> None:
    content = {
        "numStartups": 7,
        "mcpServers": {"a": {"type": "http", "url": "https://user.example/mcp"}, "b": {"command": "b"}},
        "projects": {
            "/home/me/one": {"mcpServers": {"a": {"command": "local"}}, "history": []},
            "/home/me/two": {"mcpServers": {"c": {"command": "c"}}},
        },
    }
    config = loaded(tmp_path, ".claude.json", content, "claude-user", PWD="/home/me/one")
    assert {one.name: one.command for one in config.servers} == {"a": "local", "b": "b"}
    elsewhere = load(tmp_path / ".claude.json", {})
    assert [one.type for one in elsewhere.servers] == ["http", "stdio"]
    assert config.warnings == ()


def test_claude_desktop_puts_nothing_in(tmp_path: Path) -> None:
    content = {"mcpServers": {"files": {"command": "sh", "args": ["-c", "exec files ${HOME}"]}}}
    config = loaded(tmp_path, "claude_desktop_config.json", content, "claude-desktop", HOME="/home/me")
    assert started(config.servers[0]) == ("sh", ("-c", "exec files ${HOME}"), {})
    assert "passed on unchanged" in config.warnings[0]


# Editors.


def test_cursor(tmp_path: Path) -> None:
    file(tmp_path, "project/.env", "# mine\nexport KEY='of the file'\nT=of the file # not this\nEMPTY=\n")
    content = {
        "mcpServers": {
            "local": {
                "command": "${workspaceFolder}/run",
                "args": ["${env:REGION}", "${userHome}", "${workspaceFolderBasename}"],
                "env": {"T": "own"}, "envFile": "${workspaceFolder}/.env",
            },
            "far": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
        }
    }  # fmt: skip
    config = loaded(tmp_path, "project/.cursor/mcp.json", content, "cursor", REGION="eu", HOME="/home/me")
    local, far = config.servers
    project = str(tmp_path / "project")
    assert started(local) == (
        f"{project}/run",
        ("eu", "/home/me", "project"),
        {"KEY": "of the file", "T": "own", "EMPTY": ""},
    )
    assert (far.missing, far.headers) == (("TOKEN",), {"Authorization": "Bearer "})


def test_an_env_file_that_is_not_there_fails_its_server_only(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "envFile": "/nowhere/.env"}, "b": {"command": "y"}}
    config = loaded(tmp_path, "any.json", {"mcpServers": servers}, "cursor")
    assert ["envFile" in one.problem for one in config.servers] == [True, False]


def test_vs_code(tmp_path: Path) -> None:
    content = """{
        // what people are asked for
        "inputs": [
            {"type": "promptString", "id": "github-token", "description": "Token", "password": true},
            {"type": "pickString", "id": "region", "description": "Where", "options": ["eu", "us"], "default": "eu"},
        ],
        "servers": {
            "github": {"type": "http", "url": "https://h/mcp", "headers": {"A": "Bearer ${input:github-token}"}},
            "local": {
                "type": "stdio", "command": "npx", "args": ["${input:region}", "${workspaceFolder}"],
                "env": {"PORT": 8080, "GONE": null, "K": "${env:K}"}, "dev": {"watch": "src/**"}, /* that's all */
            },
        },
    }"""
    config = loaded(tmp_path, ".vscode/mcp.json", content, "vscode", K="k")
    github, local = config.servers
    assert (github.missing, config.warnings) == (("GITHUB_TOKEN",), ())
    assert started(local) == ("npx", ("eu", str(tmp_path)), {"PORT": "8080", "K": "k"})
    known = load(tmp_path / ".vscode/mcp.json", {"GITHUB_TOKEN": "t", "K": "k"}).servers[0]
    assert reached(known) == ("http", "https://h/mcp", {"A": "Bearer t"})


def test_the_settings_of_vs_code_have_servers_too(tmp_path: Path) -> None:
    content = {"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"a": {"command": "x"}}}}
    assert loaded(tmp_path, "settings.json", content, "vscode").servers[0].command == "x"


def test_windsurf(tmp_path: Path) -> None:
    content = {
        "mcpServers": {
            "far": {"serverUrl": "https://h/mcp", "headers": {"K": "${env:K}"}, "disabledTools": ["drop"]},
            "off": {"command": "x", "disabled": True},
        }
    }
    for name in ("mcp_config.json", "some.json"):
        far, off = loaded(tmp_path, name, content, "windsurf", K="k").servers
        assert reached(far) == ("http", "https://h/mcp", {"K": "k"})
        assert (far.tools, off.enabled) == ({"drop": HIDDEN}, False)


def test_zed_has_comments_and_two_ways_to_name_a_program(tmp_path: Path) -> None:
    content = """{
        // a theme, and other things of an editor
        "theme": "One Dark", "vim_mode": true,
        "context_servers": {
            "new": {"source": "custom", "enabled": true, "command": "run", "args": ["a // b"], "env": {"A": "${B}"}},
            "old": {"command": {"path": "old", "args": ["x"], "env": null}, "settings": {"any": 1}},
            "far": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer x"}},
            "extension": {"source": "extension", "settings": {}},
        },
    }"""
    config = loaded(tmp_path, "settings.json", content, "zed")
    new, old, far = config.servers
    assert started(new) == ("run", ("a // b",), {"A": "${B}"})
    assert started(old) == ("old", ("x",), {})
    assert reached(far)[0] == "http"
    assert any("Zed extension: ignored" in warning for warning in config.warnings)


def test_cline(tmp_path: Path) -> None:
    content = {
        "mcpServers": {
            "far": {"type": "streamableHttp", "url": "https://h/mcp", "autoApprove": ["read"], "disabled": False},
            "near": {"command": "x", "timeout": 90, "alwaysAllow": []},
        }
    }
    for name in ("cline_mcp_settings.json", "some.json"):
        config = loaded(tmp_path, name, content, "cline")
        far, near = config.servers
        assert (far.type, far.enabled, near.timeout, config.warnings) == ("http", True, 90.0, ())


def test_lm_studio(tmp_path: Path) -> None:
    content = {"mcpServers": {"hf": {"url": "https://hf.example/mcp", "headers": {"A": "b"}, "timeout": 20000}}}
    [one] = loaded(tmp_path, ".lmstudio/mcp.json", content, "lm-studio").servers
    assert (reached(one), one.timeout) == (("http", "https://hf.example/mcp", {"A": "b"}), 20.0)


# Agents.


def test_codex_names_variables_and_puts_none_in(tmp_path: Path) -> None:
    content = """
    model = "some"
    [mcp_servers.local]
    command = "npx"
    args = ["-y", "${HOME}"]
    env = { A = "a" }
    env_vars = ["PASSED", "NOT_SET"]
    startup_timeout_sec = 20
    tool_timeout_sec = 45.5
    enabled_tools = ["read", "write"]
    disabled_tools = ["write"]
    required = true
    [mcp_servers.far]
    url = "https://h/mcp"
    bearer_token_env_var = "TOKEN"
    http_headers = { "X-Region" = "eu" }
    env_http_headers = { "X-Key" = "KEY" }
    [mcp_servers.off]
    command = "x"
    enabled = false
    [mcp_servers.off.tools.read]
    approval_mode = "approve"
    """
    config = loaded(tmp_path, "config.toml", content, "codex", PASSED="p", TOKEN="t", KEY="k", HOME="/h")
    local, far, off = config.servers
    assert started(local) == ("npx", ("-y", "${HOME}"), {"A": "a", "PASSED": "p"})
    assert (local.start_timeout, local.timeout) == (20.0, 45.5)
    assert local.tools == {"*": HIDDEN, "read": Overlay(), "write": HIDDEN}
    assert reached(far) == ("http", "https://h/mcp", {"X-Region": "eu", "X-Key": "k", "Authorization": "Bearer t"})
    assert not off.enabled and off.tools == {}
    assert load(tmp_path / "config.toml", {}).servers[1].missing == ("TOKEN", "KEY")


def test_gemini(tmp_path: Path) -> None:
    content = {
        "theme": "dark",
        "mcp": {"excluded": ["off"]},
        "mcpServers": {
            "stream": {"httpUrl": "https://h/mcp", "timeout": 5000, "trust": True, "includeTools": ["a", "b(x)"]},
            "events": {"url": "https://h/sse", "excludeTools": ["c"]},
            "both": {"httpUrl": "https://h/mcp", "url": "https://h/sse"},
            "typed": {"url": "https://h/mcp", "type": "http"},
            "local": {"command": "node", "args": ["$A", "${B}", "${C:-c}"], "env": {"T": "$TOKEN"}},
            "off": {"command": "x"},
        },
    }
    config = loaded(tmp_path, "settings.json", content, "gemini", A="a", B="b", TOKEN="t")
    stream, events, both, typed, local, off = config.servers
    assert (reached(stream)[0], stream.timeout) == ("http", 5.0)
    assert stream.tools == {"*": HIDDEN, "a": Overlay(), "b": Overlay()}
    assert (reached(events)[0], events.tools) == ("sse", {"c": HIDDEN})
    assert reached(both)[:2] == ("http", "https://h/mcp")
    assert typed.type == "http"
    assert started(local) == ("node", ("a", "b", "c"), {"T": "t"})
    assert not off.enabled
    assert load(tmp_path / "settings.json", {}).servers[4].missing == ("A", "B", "TOKEN")


def test_goose(tmp_path: Path) -> None:
    content = """
GOOSE_PROVIDER: some
extensions:
  developer: {type: builtin, name: developer, enabled: true, bundled: true, timeout: 300}
  github:
    type: stdio
    name: GitHub
    description: Issues
    enabled: true
    cmd: npx
    args: [-y, server]
    envs: {A: a}
    env_keys: [TOKEN]
    timeout: 30
    available_tools: []
  far:
    type: streamable_http
    uri: https://h/mcp
    headers: {Authorization: "Bearer ${TOKEN}"}
    enabled: false
    available_tools: [read]
"""
    config = loaded(tmp_path, "config.yaml", content, "goose", TOKEN="t")
    github, far = config.servers
    assert started(github) == ("npx", ("-y", "server"), {"A": "a", "TOKEN": "t"})
    assert (github.timeout, github.tools) == (30.0, {})
    assert (reached(far), far.enabled) == (("http", "https://h/mcp", {"Authorization": "Bearer t"}), False)
    assert far.tools["*"].hidden
    assert len(config.warnings) == 1


def test_opencode(tmp_path: Path) -> None:
    content = """{
        "$schema": "https://opencode.ai/config.json",
        "mcp": {
            "local": {
                "type": "local", "command": ["bun", "x", "{env:WHAT}"], "environment": {"A": "{env:A}"},
                "enabled": true, "timeout": 10000, // ms
            },
            "far": {"type": "remote", "url": "https://h/mcp", "headers": {"K": "Bearer {env:K}"}, "oauth": false},
            "signed": {"type": "remote", "url": "https://h/mcp", "oauth": {}},
            "read": {"type": "local", "command": ["x", "{file:/etc/secret}"]},
            "elsewhere": {"enabled": false},
        },
    }"""
    config = loaded(tmp_path, "opencode.json", content, "opencode", WHAT="w", A="a")
    local, far, signed, reads = config.servers
    assert (started(local), local.timeout) == (("bun", ("x", "w"), {"A": "a"}), 10.0)
    assert far.missing == ("K",)
    assert "oauth" in signed.problem
    assert "{file:" in reads.problem and "secret" not in reads.problem


def test_fastmcp(tmp_path: Path) -> None:
    content = {
        "mcpServers": {
            "near": {
                "transport": "stdio", "command": "python", "args": ["s.py"], "timeout": 30000, "keep_alive": True,
                "tools": {
                    "a": {"name": "b", "arguments": {"q": {"hide": True, "default": 1}}}, "c": {"enabled": False},
                },
            },
            "far": {"url": "https://h/mcp", "transport": "streamable-http", "auth": "s3cret-token"},
            "asks": {"url": "https://h/mcp", "auth": "oauth"},
        }
    }  # fmt: skip
    config = loaded(tmp_path, "fast.json", content, "fastmcp")
    near, far, asks = config.servers
    assert near.timeout == 30.0
    assert (near.tools["a"].name, near.tools["a"].parameters["q"].fixed, near.tools["c"]) == ("b", 1, HIDDEN)
    assert reached(far) == ("http", "https://h/mcp", {"Authorization": "Bearer s3cret-token"})
    assert "`auth`" in asks.problem and "s3cret" not in str(config)


@pytest.mark.parametrize("name", ["servers.toml", "mcp.yaml", "gateway.toml"])
def test_what_fastmcp_does_not_read_is_our_own_whatever_it_says_of_auth(name: str, tmp_path: Path) -> None:
    content = {
        "servers.toml": '[mcpServers.far]\nurl = "https://h/mcp"\nauth = "oauth"\n',
        "mcp.yaml": "mcpServers:\n  far:\n    url: https://h/mcp\n    auth: oauth\n",
        "gateway.toml": '[mcpServers.far]\nurl = "https://h/mcp"\nauth = "oauth"\n[mcpServers.near]\ncommand = "x"\n',
    }[name]
    (tmp_path / name).write_text(content)
    config = load(tmp_path / name, {})
    assert (config.dialect, config.servers[0].problem) == ("native", "")
    assert config.servers[0].auth


def test_so_is_json_with_a_key_of_ours_beside_the_servers(tmp_path: Path) -> None:
    content = {"mcpServers": {"far": {"url": "https://h/mcp", "auth": "oauth"}}, "catalog": {}}
    assert loaded(tmp_path, "mine.json", content, "native").servers[0].problem == ""


# What is to be installed.


def test_a_bundle(tmp_path: Path) -> None:
    content = {
        "manifest_version": "0.3", "name": "files", "version": "1.0.0", "description": "Files",
        "server": {
            "type": "node", "entry_point": "server/index.js",
            "mcp_config": {
                "command": "node",
                "args": ["${__dirname}/server/index.js", "${user_config.folders}", "${user_config.quiet}"],
                "env": {"KEY": "${user_config.api_key}", "SIZE": "${user_config.size}"},
                "platform_overrides": {"plan9": {"command": "rc"}, "linux": {"env": {"KEY": "${user_config.api_key}"}}},
            },
        },
        "user_config": {
            "folders": {"type": "directory", "multiple": True, "default": ["${HOME}/a", "${DESKTOP}"]},
            "api_key": {"type": "string", "sensitive": True, "required": True},
            "quiet": {"type": "boolean", "default": False},
        },
    }  # fmt: skip
    config = loaded(tmp_path, "manifest.json", content, "mcpb", HOME="/home/me")
    [one] = config.servers
    assert (one.name, one.description, one.missing) == ("files", "Files", ("API_KEY",))
    [known] = load(tmp_path / "manifest.json", {"HOME": "/home/me", "API_KEY": "k"}).servers
    inside = f"{tmp_path}/server/index.js"
    assert started(known) == ("node", (inside, "/home/me/a", "/home/me/Desktop", "false"), {"KEY": "k"})


def test_a_packed_bundle_is_to_be_unpacked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unpack it"):
        load(file(tmp_path, "a.mcpb", "PK"), {})


REGISTRY: dict[str, Any] = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.someone/weather",
    "description": "The weather",
    "version": "1.2.3",
    "packages": [
        {
            "registryType": "npm",
            "identifier": "@someone/weather",
            "version": "1.2.3",
            "transport": {"type": "stdio"},
            "runtimeArguments": [{"type": "named", "name": "--loglevel", "value": "error"}],
            "packageArguments": [
                {"type": "positional", "valueHint": "city", "default": "Bern"},
                {"type": "named", "name": "--unit", "value": "{unit}", "variables": {"unit": {"default": "C"}}},
                {"type": "named", "name": "--more", "description": "If you like", "format": "string"},
            ],
            "environmentVariables": [
                {"name": "WEATHER_KEY", "isRequired": True, "isSecret": True},
                {"name": "LOG", "value": "off"},
                {"name": "PROXY"},
            ],
        }
    ],
}


def in_snake_case(value: Any) -> Any:
    if isinstance(value, list):
        return [in_snake_case(each) for each in value]
    if isinstance(value, dict):
        return {
            "".join(f"_{c.lower()}" if c.isupper() else c for c in key): in_snake_case(v) for key, v in value.items()
        }
    return value


@pytest.mark.parametrize("spelling", [dict, in_snake_case, lambda tree: {"server": tree, "_meta": {}}])
def test_server_json_in_every_spelling(tmp_path: Path, spelling: Any) -> None:
    config = loaded(tmp_path, "server.json", spelling(REGISTRY), "server-json", WEATHER_KEY="k")
    [one] = config.servers
    assert (one.name, one.description) == ("weather", "The weather")
    args = ("--loglevel", "error", "-y", "@someone/weather@1.2.3", "Bern", "--unit", "C")
    assert started(one) == ("npx", args, {"WEATHER_KEY": "k", "LOG": "off"})
    assert load(tmp_path / "server.json", {}).servers[0].missing == ("WEATHER_KEY",)


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ({"registryType": "pypi", "identifier": "weather-mcp", "version": "0.5.0"}, "uvx weather-mcp==0.5.0"),
        ({"registryType": "oci", "identifier": "ghcr.io/me/w:1.0"}, "docker run -i --rm ghcr.io/me/w:1.0"),
        ({"registryType": "nuget", "identifier": "Me.W", "version": "1.0"}, "dnx Me.W@1.0 --yes --"),
        ({"registry_name": "npm", "name": "w", "version": "2.0.0"}, "npx -y w@2.0.0"),
    ],
)
def test_how_each_kind_of_package_is_started(tmp_path: Path, package: dict[str, Any], line: str) -> None:
    content = {"name": "a/w", "packages": [{"registryType": "mcpb", "identifier": "https://h/x.mcpb"}, package]}
    [one] = loaded(tmp_path, "server.json", content, "server-json").servers
    assert " ".join([one.command, *one.args]) == line


def test_variables_of_a_container_are_passed_on_by_name(tmp_path: Path) -> None:
    package = {"registryType": "oci", "identifier": "w", "environmentVariables": [{"name": "K", "isRequired": True}]}
    [one] = loaded(tmp_path, "server.json", {"name": "a/w", "packages": [package]}, "server-json", K="s3cret").servers
    assert started(one) == ("docker", ("run", "-i", "--rm", "-e", "K", "w"), {"K": "s3cret"})


@pytest.mark.parametrize("identifier", ["--yes", "", "a b", "-c"])
def test_a_package_cannot_be_an_option(tmp_path: Path, identifier: str) -> None:
    content = {"name": "a/w", "packages": [{"registryType": "npm", "identifier": identifier}]}
    with pytest.raises(ConfigError, match="invalid `identifier`"):
        load(file(tmp_path, "server.json", content), {})


def test_a_remote_needs_no_install(tmp_path: Path) -> None:
    remote = {
        "type": "streamable-http", "url": "https://{region}.h/mcp", "variables": {"region": {"default": "eu"}},
        "headers": [{"name": "X-Key", "isRequired": True, "isSecret": True}, {"name": "X-More"}],
    }  # fmt: skip
    config = loaded(tmp_path, "server.json", {"name": "a/w", "remotes": [remote]}, "server-json", X_KEY="k")
    assert reached(config.servers[0]) == ("http", "https://eu.h/mcp", {"X-Key": "k"})


# The seeds.

CHILDREN: list[tuple[str, str | dict[str, Any] | list[Any]]] = [
    ("children_config.json", {"mcpServers": {"serena": {"command": "uvx", "args": ["serena"], "env": {"A": "${A}"}}}}),
    ("children_config.json", [{"name": "serena", "command": "uvx", "args": ["serena"], "env": {"A": "${A}"}}]),
    ("any.json", [{"name": "serena", "command": "uvx", "args": ["serena"], "env": {"A": "${A}"}}]),
    ("any.json", {"serena": {"command": "uvx", "args": ["serena"], "env": {"A": "${A}"}}}),
    ("children_config.toml", '[mcp_servers.serena]\ncommand = "uvx"\nargs = ["serena"]\nenv = {A = "${A}"}'),
    ("any.toml", '[mcp-servers.serena]\ncommand = "uvx"\nargs = ["serena"]\nenv = {A = "${A}"}'),
    ("any.toml", '[[mcp_servers]]\nname = "serena"\ncommand = "uvx"\nargs = ["serena"]\nenv = {A = "${A}"}'),
    ("any.toml", '[[children]]\nname = "serena"\ncommand = "uvx"\nargs = ["serena"]\n[children.env]\nA = "${A}"'),
    ("children_config.toml", '[mcpServers.serena]\ncommand = "uvx"\nargs = ["serena"]\nenv = {A = "${A}"}'),
]


@pytest.mark.promise("b.000.dialects")
@pytest.mark.parametrize(("name", "content"), CHILDREN)
def test_a_children_config_in_all_its_shapes(
    tmp_path: Path, name: str, content: str | dict[str, Any] | list[Any]
) -> None:
    config = loaded(tmp_path, name, content, "children", A="a")
    [one] = config.servers
    assert (one.name, *started(one)) == ("serena", "uvx", ("serena",), {"A": "a"})
    assert (one.start, one.lifecycle, one.concurrency, config.surface) == ("eager", "keep-alive", 1, "children")
    assert config.warnings == ()


def test_any_file_can_be_said_to_be_a_children_config(tmp_path: Path) -> None:
    path = file(tmp_path, "toolgate.json", {"mcpServers": {"a": {"command": "x", "concurrency": 4}}})
    config = load(path, {}, dialect="children")
    assert (config.surface, config.servers[0].start, config.servers[0].concurrency) == ("children", "eager", 4)
    assert load(path, {}).surface == "aggregate"


def test_a_child_without_a_name_is_told_by_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"children\[1\]: needs a `name`"):
        load(file(tmp_path, "a.json", {"children": [{"name": "a", "command": "x"}, {"command": "y"}]}), {})


SPIN = """
spin_manifest_version = 2
[application]
name = "tools"
[component.ftl-mcp-gateway]
source = "gateway.wasm"
[component.ftl-mcp-gateway.variables]
tool_components = "echo,calculator, weather_now"
validate_arguments = "{validates}"
"""


@pytest.mark.promise("003.config.components")
@pytest.mark.parametrize("text", [SPIN, SPIN[SPIN.index("[component.ftl-mcp-gateway.variables]") :], SPIN[-90:]])
def test_tool_components_as_seed_003_writes_them(tmp_path: Path, text: str) -> None:
    text = text[text.index("tool_") :] if "[component" not in text else text
    for written, validates in (("true", True), ("false", False)):
        config = load(file(tmp_path, "toolgate.toml", text.replace("{validates}", written)), {})
        assert [(one.name, one.id, one.type, one.url, one.is_eager) for one in config.servers] == [
            ("echo", "echo", "component", "http://echo.spin.internal/", True),
            ("calculator", "calculator", "component", "http://calculator.spin.internal/", True),
            ("weather_now", "weather-now", "component", "http://weather-now.spin.internal/", True),
        ]
        assert (config.surface, config.validate_arguments) == ("components", validates)
        assert {one.validate_arguments for one in config.servers} == {validates}


def test_components_may_stand_elsewhere_and_beside_servers(tmp_path: Path) -> None:
    text = 'tool_components = ["echo"]\ncomponent_url = "http://127.0.0.1:9000/{name}"\n[mcpServers.a]\ncommand = "x"'
    config = load(file(tmp_path, "toolgate.toml", text), {})
    assert (config.servers[1].url, config.surface) == ("http://127.0.0.1:9000/echo", "aggregate")


# Whose words are whose.


def test_each_dialect_has_a_name_of_its_own_and_a_title() -> None:
    titles = {dialect.name: dialect.title for dialect in DIALECTS}
    assert all(titles.values()) and len(set(titles.values())) == len(titles)


def test_a_file_with_mcp_servers_and_nothing_more_is_read_with_the_words_of_all(tmp_path: Path) -> None:
    content = {"mcpServers": {"a": {"command": "x", "args": ["${A}", "${env:A}"]}, "toolgate": {"command": "toolgate"}}}
    config = loaded(tmp_path, "some.json", content, "mcp-servers", A="a")
    assert started(config.servers[0]) == ("x", ("a", "a"), {})
    assert len(config.servers) == 1 and "this gateway itself" in config.warnings[0]


def test_problems_are_told_by_their_place_in_the_file_that_was_written(tmp_path: Path) -> None:
    for name, content, place in [
        ("opencode.json", {"mcp": {"a": {"type": "local", "command": "x"}}}, "mcp.a.command: must be a list"),
        ("config.toml", "[mcp_servers.a]\ncommand = 'x'\nenv_vars = [1]", "mcp_servers.a.env_vars[0]: must be text"),
        ("settings.json", {"context_servers": {"a": {"command": 1}}}, "context_servers.a.command: must be a table"),
        ("mcp.json", {"servers": {"a": {"type": "what", "command": "x"}}}, "servers.a.type: must be"),
        ("a.json", [{"name": "a", "command": 1}], "[0].command: must be text"),
        ("config.yaml", "extensions: {a: {type: stdio, cmd: x, timeout: soon}}", "extensions.a.timeout: must be"),
        ("server.json", {"name": "a", "packages": [{"registryType": "npm", "identifier": 1}]}, "packages[0]: must be"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(file(tmp_path, name, content), {})
        assert re.search(rf"{re.escape(name)}:\d+: {re.escape(place)}", str(caught.value)), str(caught.value)


# As native tables.


def test_servers_of_other_tools_become_native_tables_without_their_secrets(tmp_path: Path) -> None:
    far = {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer VARIABLE"}}

    def with_variable(written: str) -> dict[str, Any]:
        return json.loads(json.dumps({"a": far}).replace("VARIABLE", written))

    written: list[tuple[str, Any]] = [
        ("config.toml", '[mcp_servers.a]\nurl = "https://h/mcp"\nbearer_token_env_var = "TOKEN"'),
        ("mcp.json", {"servers": with_variable("${input:token}")}),
        ("opencode.json", {"mcp": with_variable("{env:TOKEN}")}),
        ("some.json", {"mcpServers": with_variable("${env:TOKEN}")}),
    ]  # fmt: skip
    for name, content in written:
        found = tables(file(tmp_path, name, content), {"TOKEN": "s3cret"})
        assert found == with_variable("${TOKEN}"), name
    again = read(json.dumps({"mcpServers": found}), file="toolgate.json", environ={"TOKEN": "t"}, format="json")
    assert again.servers[0].headers == {"Authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("name", "content", "has_defaults"),
    [
        ("toolgate.toml", '[mcpServers.a]\nurl = "https://h/mcp"\nheaders = { A = "${TOKEN}" }', True),
        ("config.toml", '[mcp_servers.a]\nurl = "https://h/mcp"\nbearer_token_env_var = "TOKEN"', False),
        ("opencode.json", {"mcp": {"a": {"type": "remote", "url": "https://h/mcp?{env:TOKEN}"}}}, False),
    ],
)
def test_a_default_is_named_as_a_way_out_only_where_the_tool_has_them(
    tmp_path: Path, name: str, content: Any, has_defaults: bool
) -> None:
    (server,) = load(file(tmp_path, name, content), {}).servers
    assert "TOKEN is not set: set it in toolgate's environment" in server.problem
    assert ("${TOKEN:-default}" in server.problem) == has_defaults


def test_the_tables_of_a_server_json_name_what_is_needed(tmp_path: Path) -> None:
    found = tables(file(tmp_path, "server.json", REGISTRY), {})["weather"]
    assert found["env"] == {"WEATHER_KEY": "${WEATHER_KEY}", "LOG": "off", "PROXY": "${PROXY:-}"}


# Comments.


def test_json_may_have_comments_and_trailing_commas() -> None:
    text = '// a\n{"a": "// no /* no */ ,]", /* b\n*/ "b": [1, 2,], }// c'
    assert parse(text, "json") == {"a": "// no /* no */ ,]", "b": [1, 2]}


def test_what_is_wrong_in_a_file_with_comments_is_told_by_its_place_and_not_quoted(tmp_path: Path) -> None:
    path = file(tmp_path, "a.json", '{ // s3cret\n  "a": 1,\n  "b" s3cret\n}')
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert ":3:7: " in str(caught.value) and "s3cret" not in str(caught.value)


def test_every_configuration_can_be_compared(tmp_path: Path) -> None:
    for name, content in CHILDREN:
        config = load(file(tmp_path, name, content), {})
        assert msgspec.json.decode(msgspec.json.encode(config), type=Config) == config
