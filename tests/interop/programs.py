"""Whole programs that use a gateway: coding agents, and the MCP Inspector. How each is configured, and what it is like.

Every agent runs without a person: it gets one prompt, talks with the model that `fake_model.py` plays, and ends. Its
home and its folders are temporary ones, its updates and its telemetry are off, and it runs in a room without a way out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import installed

PROMPT = "Use the tools."
SERVER = "toolgate"
MILLISECONDS = 60_000  # that a program waits for the gateway: more than it would of itself, since machines are busy
SECONDS = str(MILLISECONDS // 1000)


@dataclass(frozen=True)
class Setting:
    """What a program is started with."""

    home: Path
    executable: list[str]
    model: str
    """The URL of the model's endpoint."""
    url: str | None
    """The gateway's, or None: then the program starts a gateway of its own."""
    command: list[str]
    patient: bool = True
    """It waits for the gateway as long as it can be told to; else it has no setting for that, as a newcomer's."""

    def write(self, path: Path, content: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
        return path


Start = tuple[list[str], dict[str, str]]
"""A command and its environment."""


@dataclass(frozen=True)
class Program:
    name: str
    """That of its pins."""
    executable: str
    """Where it is; of several the last, which asks least of the processor."""
    start: Callable[[Setting], Start]
    speaks: str
    declares: frozenset[str]
    """The tools of server-everything that are shown because of what it declares and its revision knows."""
    client: str
    """The name it gives itself."""
    alarm: str
    """What comes of a legacy server's question in mid-call, with nobody there to answer."""
    deletion: str
    """What comes of a modern server's question."""
    script: bool = False
    """It is run by Node."""

    def found(self) -> list[str] | None:
        files = sorted(installed.program(self.name).glob(self.executable))
        node = [shutil.which("node") or "node"] if self.script else []
        return [*node, str(files[-1])] if files else None

    def missing(self) -> str | None:
        absent = installed.missing_program(self.name)
        return absent or (None if self.found() else f"{self.name} has no program for this kind of machine")


# -- how each is started -------------------------------------------------------------------------------------------


def claude(setting: Setting) -> Start:
    entry: dict[str, Any] = {"type": "http", "url": setting.url}
    if setting.url is None:
        entry = {"type": "stdio", "command": setting.command[0], "args": setting.command[1:]}
    if setting.patient:
        entry["alwaysLoad"] = True  # else a server that is slow to start is left out of the first turn
    servers = setting.write(setting.home / "mcp.json", {"mcpServers": {SERVER: entry}})
    options = ["--mcp-config", str(servers), "--strict-mcp-config", "--allowedTools", f"mcp__{SERVER}"]
    waiting = {
        "ENABLE_TOOL_SEARCH": "false",
        "MCP_CONNECTION_NONBLOCKING": "0",
        "MCP_CONNECT_TIMEOUT_MS": str(MILLISECONDS),
        "MCP_TIMEOUT": str(MILLISECONDS),
    }
    return [*setting.executable, "-p", PROMPT, *options, "--output-format", "json"], {
        **(waiting if setting.patient else {}),
        "ANTHROPIC_API_KEY": "nothing",
        "ANTHROPIC_BASE_URL": setting.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(setting.home / "claude"),
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }


def codex(setting: Setting) -> Start:
    folder = setting.home / "codex"
    folder.mkdir()
    server = {"url": setting.url} if setting.url else {"command": setting.command[0], "args": setting.command[1:]}
    waiting = {
        "startup_timeout_sec": int(SECONDS),
        "tool_timeout_sec": int(SECONDS),
        "required": True,  # else it is left out of the turn if it is not ready within one second
    }
    provider = {"name": "fake", "base_url": f"{setting.model}/v1", "wire_api": "responses"}
    settings: dict[str, Any] = {
        "model": "scripted",
        "model_provider": "fake",
        "approval_policy": "never",
        "check_for_update_on_startup": False,
        "analytics.enabled": False,
        "feedback.enabled": False,
        **{f"model_providers.fake.{key}": value for key, value in provider.items()},
        **{f"mcp_servers.{SERVER}.{key}": value for key, value in server.items()},
        **{f"mcp_servers.{SERVER}.{key}": value for key, value in waiting.items() if setting.patient},
        f"mcp_servers.{SERVER}.default_tools_approval_mode": "approve",
    }
    overrides = [part for key, value in settings.items() for part in ("-c", f"{key}={json.dumps(value)}")]
    options = ["--skip-git-repo-check", "--sandbox", "read-only", "--json"]
    return [*setting.executable, "exec", *overrides, *options, PROMPT], {"CODEX_HOME": str(folder)}


def gemini(setting: Setting) -> Start:
    entry: dict[str, Any] = {"httpUrl": setting.url}
    if setting.url is None:
        entry = {"command": setting.command[0], "args": setting.command[1:]}
    waiting = {"timeout": MILLISECONDS} if setting.patient else {}
    settings = {
        "mcpServers": {SERVER: {**entry, **waiting, "trust": True}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "telemetry": {"enabled": False},
    }
    setting.write(setting.home / "home" / ".gemini" / "settings.json", settings)
    options = ["--allowed-mcp-server-names", SERVER, "--approval-mode", "yolo", "--output-format", "json"]
    return [*setting.executable, "-m", "gemini-2.5-flash", "-p", PROMPT, *options], {
        "GEMINI_API_KEY": "nothing",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GOOGLE_GEMINI_BASE_URL": setting.model,
    }


def opencode(setting: Setting) -> Start:
    entry: dict[str, Any] = {"type": "remote", "url": setting.url}
    if setting.url is None:
        entry = {"type": "local", "command": setting.command}
    waiting = {"timeout": MILLISECONDS} if setting.patient else {}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{setting.model}/v1", "apiKey": "nothing"},
        "models": {"scripted": {"name": "scripted", "tool_call": True}},
    }
    settings = {
        "autoupdate": False,
        "mcp": {SERVER: {**entry, **waiting, "enabled": True}},
        "model": "fake/scripted",
        "permission": "allow",
        "provider": {"fake": provider},
        "share": "disabled",
        "small_model": "fake/scripted",
        "snapshot": False,
    }
    path = setting.write(setting.home / "opencode.json", settings)
    return [*setting.executable, "run", "--format", "json", PROMPT], {
        "OPENCODE_CONFIG": str(path),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }


# -- what each is like ---------------------------------------------------------------------------------------------

CLAUDE = "node_modules/@anthropic-ai/claude-code-*/claude"
ROOTS, FORM, URL = "get-roots-list", "trigger-elicitation-request", "trigger-url-elicitation"
DISMISSED = "The user answered cancel: no alarm is set."
DECLINED = 'The user answered decline: alarm "Alarm" is set for 07:30.'
UNASKED = "the user could not be asked (The client of this call cannot be asked: it did not declare the capability"
CANNOT_BE_ASKED = "This needs a client with the capability elicitation"

PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "claude-code-2.1.330", CLAUDE, claude, "2026-07-28", frozenset({ROOTS, FORM, URL}), "claude-code",
            alarm=DISMISSED, deletion='Note 1, "Groceries", is kept: the question was dismissed.',
        ),
        Program(
            "claude-code-2.1.197", CLAUDE, claude, "2025-11-25", frozenset({ROOTS, FORM}), "claude-code",
            alarm=DISMISSED, deletion='Note 1, "Groceries", is kept: the question was dismissed.',
        ),
        Program(
            "codex-0.169", "node_modules/@openai/codex-*/vendor/*/bin/codex", codex, "2025-06-18",
            frozenset({FORM, URL}), "codex-mcp-client",  # it declares `url`, which its revision does not know
            alarm=DECLINED, deletion='Note 1, "Groceries", is kept, as you wish.',
        ),
        Program(
            "gemini-cli-0.61", "node_modules/@google/gemini-cli/bundle/gemini.js", gemini, "2025-06-18",
            frozenset({ROOTS}), "gemini-cli-mcp-client", alarm=UNASKED, deletion=CANNOT_BE_ASKED, script=True,
        ),
        Program(
            "opencode-1.18", "node_modules/opencode-*/bin/opencode", opencode, "2025-11-25",
            frozenset({ROOTS}), "opencode", alarm=UNASKED, deletion=CANNOT_BE_ASKED,
        ),
    )
}  # fmt: skip

INSPECTOR = "inspector-2.12"


def inspector() -> Sequence[str]:
    launcher = installed.program(INSPECTOR) / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build"
    return [shutil.which("node") or "node", str(launcher / "index.js"), "--cli"]
