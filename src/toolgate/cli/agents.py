"""The agent programs that toolgate knows: where each keeps its servers, and how it is asked which it sees.

`AGENTS` is all of that: to add one, add a row. The words of each file are a dialect's (`config.dialects`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

Environ: TypeAlias = Mapping[str, str]
Place: TypeAlias = Callable[[Environ], Path | None]  # None: a variable that would name it is not set


def home(environ: Environ) -> Path:
    return Path(environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~"))


def at_home(path: str) -> Place:
    return lambda environ: home(environ) / path


def within(variable: str, otherwise: str, path: str) -> Place:
    """In the folder that a variable names, else in one of the home."""
    return lambda environ: (Path(environ[variable]) if environ.get(variable) else home(environ) / otherwise) / path


def named_by(variable: str) -> Place:
    return lambda environ: Path(environ[variable]) if environ.get(variable) else None


def configured(path: str) -> Place:
    """In the folder for configurations, as the XDG Base Directory Specification has it."""
    return within("XDG_CONFIG_HOME", ".config", path)


def windowed(path: str) -> Place:
    """In the folder for configurations of programs with windows."""
    return at_home(f"Library/Application Support/{path}") if sys.platform == "darwin" else configured(path)


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """`files` are those of its user, in the order in which it prefers them: the first that there is counts, and where
    there is none the first is made. `project` is the file in a project's folder, in `project_dialect` where that is
    another. `program` is what it is started by, and `listing` what shows which servers it sees. `by` are the ways in
    which it reaches servers, `note` is what its user has to do."""

    title: str
    dialect: str
    files: tuple[Place, ...]
    project: str = ""
    project_dialect: str = ""
    program: str = ""
    listing: tuple[str, ...] = ()
    by: tuple[Literal["stdio", "http"], ...] = ("stdio", "http")
    note: str = ""
    idle: str = ""
    patience: Mapping[str, Any] = {}

    def file(self, environ: Environ) -> Path:
        places = [place for each in self.files if (place := each(environ))]
        return next((place for place in places if place.is_file()), places[0])

    def is_here(self, environ: Environ) -> bool:
        """Whether it seems to be installed: by its file, or its program."""
        found = self.program and shutil.which(self.program, path=environ.get("PATH"))
        return bool(found) or self.file(environ).is_file()

    def read_as(self, is_project: bool) -> str:
        return (self.project_dialect or self.dialect) if is_project else self.dialect


AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        title="Claude Code",
        dialect="claude-user",
        files=(within("CLAUDE_CONFIG_DIR", "", ".claude.json"),),
        project=".mcp.json",
        project_dialect="claude-code",
        program="claude",
        listing=("mcp", "list"),
        patience={"alwaysLoad": True},
    ),
    "claude-desktop": Agent(
        title="Claude Desktop",
        dialect="claude-desktop",
        files=(windowed("Claude/claude_desktop_config.json"),),
        by=("stdio",),
        note="restart it",
    ),
    "codex": Agent(
        title="Codex",
        dialect="codex",
        files=(within("CODEX_HOME", ".codex", "config.toml"),),
        program="codex",
        listing=("mcp", "list", "--json"),
        patience={"required": True, "startup_timeout_sec": 60},
    ),
    "cursor": Agent(title="Cursor", dialect="cursor", files=(at_home(".cursor/mcp.json"),), project=".cursor/mcp.json"),
    "vscode": Agent(
        title="VS Code", dialect="vscode", files=(windowed("Code/User/mcp.json"),), project=".vscode/mcp.json"
    ),
    "gemini": Agent(
        title="Gemini CLI",
        dialect="gemini",
        files=(at_home(".gemini/settings.json"),),
        project=".gemini/settings.json",
        program="gemini",
        listing=("mcp", "list"),
        idle="it starts servers only in folders that it trusts: start gemini in this one and trust it",
    ),
    "opencode": Agent(
        title="opencode",
        dialect="opencode",
        files=(
            named_by("OPENCODE_CONFIG"),
            configured("opencode/opencode.json"),
            configured("opencode/opencode.jsonc"),
        ),
        project="opencode.json",
        program="opencode",
        listing=("mcp", "list"),
        patience={"timeout": 60_000},
    ),
    "zed": Agent(title="Zed", dialect="zed", files=(configured("zed/settings.json"),), project=".zed/settings.json"),
    "windsurf": Agent(title="Windsurf", dialect="windsurf", files=(at_home(".codeium/windsurf/mcp_config.json"),)),
    "cline": Agent(
        title="Cline",
        dialect="cline",
        files=(windowed("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),),
    ),
    "goose": Agent(title="Goose", dialect="goose", files=(configured("goose/config.yaml"),)),
    "lm-studio": Agent(title="LM Studio", dialect="lm-studio", files=(at_home(".lmstudio/mcp.json"),)),
}


def here(environ: Environ) -> Iterator[tuple[str, Agent]]:
    """Those that seem to be installed on this machine."""
    return ((name, agent) for name, agent in AGENTS.items() if agent.is_here(environ))
