"""From a home in which two agent programs have servers, to four programs that call their tools through the gateway: by
`toolgate init --yes` and one `toolgate install`, with nothing else running. And what the programs see of files that
`toolgate export` has written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_model
import installed
import programs
import pytest
import world
from programs import PROGRAMS, PROMPT, Program
from room import Room, closed
from test_real_programs import run

from toolgate.demo import SERVERS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), pytest.mark.filterwarnings("error")]

NAMES = {
    "claude-code": ("claude", "claude-code-2.1.330"),
    "codex": ("codex", "codex-0.169"),
    "gemini": ("gemini", "gemini-cli-0.61"),
    "opencode": ("opencode", "opencode-1.18"),
}
GOAL = ("clock__convert_time", {"time": "12:00", "from_timezone": "UTC", "to_timezone": "+02:00"})
TRUTH = "14:00"
TOKEN = "ghp_abcdefghijklmnopqrstuvwx0123"


def demo(name: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(SERVERS[name])]


@dataclass(frozen=True)
class Machine:
    """A home with programs, each in a folder of PATH by its own name, and in a room without a way out."""

    room: Room
    home: Path
    names: list[str]

    @property
    def env(self) -> dict[str, str]:
        env = world.environment(self.home)
        return (
            env | self.room.env | {"PATH": f"{self.home / 'bin'}:{env['PATH']}", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        )

    def file(self, *parts: str) -> Path:
        path = Path(self.env["HOME"], *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def toolgate(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            self.room.enter([sys.executable, "-m", "toolgate", *arguments]), cwd=self.home, env=self.env,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=world.SECONDS * 2, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def asked(self, name: str, *arguments: str) -> str:
        """What a program prints."""
        done = subprocess.run(
            self.room.enter([str(self.home / "bin" / name), *arguments]), cwd=self.home, env=self.env,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=world.SECONDS, check=True,
        )  # fmt: skip
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout + done.stderr)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    home = tmp_path_factory.mktemp("machine")
    (home / "bin").mkdir()
    names: list[str] = []
    for name, (executable, pins) in NAMES.items():
        found = PROGRAMS[pins].found() if PROGRAMS[pins].missing() is None else None
        if found:
            (home / "bin" / executable).write_text(
                "#!/bin/sh\nexec " + " ".join(f"'{each}'" for each in found) + ' "$@"\n'
            )
            (home / "bin" / executable).chmod(0o755)
            names.append(name)
    if not names:
        pytest.skip(str(installed.missing_program("claude-code-2.1.330")))
    with closed() as room:
        yield Machine(room, home, names)


@pytest.fixture(scope="module")
def installed_machine(machine: Machine) -> Machine:
    """After `init` and `install`. Two programs had servers, and two had settings of their own only."""
    clock, notes = demo("clock"), demo("notes")
    claude = {
        "clock": {"type": "stdio", "command": clock[0], "args": clock[1:]},
        "notes": {"command": notes[0], "args": notes[1:], "env": {"NOTES_TOKEN": TOKEN}},
    }
    machine.file(".claude.json").write_text(json.dumps({"numStartups": 3, "mcpServers": claude}))
    codex = f"# mine\n[mcp_servers.clock]\ncommand = {json.dumps(clock[0])}\nargs = {json.dumps(clock[1:])}\n"
    machine.file(".codex", "config.toml").write_text(codex)
    shown = machine.toolgate("init", "--yes")
    assert TOKEN not in shown and "tokens" in shown
    own = Path(machine.env["XDG_CONFIG_HOME"], "toolgate", "toolgate.toml").read_text()
    assert "[mcpServers.clock]" in own and "${secret:notes-token}" in own and TOKEN not in own
    machine.toolgate("install", *machine.names, "--replace")  # ends with 1 where a program does not see it
    return machine


def start(name: str, program: Program, home: Path, model: str) -> programs.Start:
    """How a program is started without a person; where its servers are, its own files say."""
    setting = programs.Setting(home, program.found() or [], model, None, ["nothing"], patient=False)
    command, env = program.start(setting)
    if name == "claude-code":
        env.pop("CLAUDE_CONFIG_DIR")
        command = [*setting.executable, "-p", PROMPT, "--allowedTools", "mcp__toolgate", "--output-format", "json"]
    if name == "codex":
        env.pop("CODEX_HOME")
        where = re.compile(r"mcp_servers\.toolgate\.(?:command|args|url)=")
        options = list(zip(command, [*command[1:], ""], strict=True))
        said = {
            at for at, (each, then) in enumerate(options) if where.match(each) or (each == "-c" and where.match(then))
        }
        command = [each for at, each in enumerate(command) if at not in said]
    if name == "opencode":
        env.pop("OPENCODE_CONFIG")
    return command, env


def settings_beside(name: str, home: Path, machine: Machine) -> None:
    """What `programs` has written elsewhere, and is no matter of servers, into the program's own file."""
    if name in ("gemini", "opencode"):
        theirs = {"gemini": home / "home" / ".gemini" / "settings.json", "opencode": home / "opencode.json"}[name]
        own = {
            "gemini": machine.file(".gemini", "settings.json"),
            "opencode": Path(machine.env["XDG_CONFIG_HOME"], "opencode", "opencode.json"),
        }[name]
        more = {key: each for key, each in json.loads(theirs.read_text()).items() if key not in ("mcp", "mcpServers")}
        own.write_text(json.dumps({**json.loads(own.read_text()), **more}))
        theirs.unlink()  # a file above its folder counts, too


@pytest.mark.parametrize("name", NAMES)
def test_a_program_calls_a_tool_through_the_gateway_that_was_installed(
    name: str, installed_machine: Machine, tmp_path: Path
) -> None:
    machine, program = installed_machine, PROGRAMS[NAMES[name][1]]
    if name not in machine.names:
        pytest.skip(str(program.missing()))
    record = tmp_path / "model.jsonl"
    play = [str(fake_model.__file__), "--goal", json.dumps(GOAL), "--query", "convert a time", "--record", str(record)]
    with world.process(machine.room.enter([sys.executable, *play]), tmp_path / "model") as model:
        url = world.Lines(model.stdout).until("^(http://.*)$")[1]
        command, env = start(name, program, tmp_path, url)
        settings_beside(name, tmp_path, machine)
        ended, said = run(machine.room, command, machine.env | env, tmp_path)
    turns = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    results = [result for turn in turns if "turn" in turn for result in turn["results"]]
    assert ended == 0 and any(TRUTH in result for result in results), said


def test_the_programs_see_it(installed_machine: Machine) -> None:
    if "claude-code" in installed_machine.names:
        assert re.search("toolgate: .*Connected", installed_machine.asked("claude", "mcp", "list"))
    if "codex" in installed_machine.names:
        [entry] = json.loads(installed_machine.asked("codex", "mcp", "list", "--json"))
        assert (entry["name"], entry["enabled"], entry["transport"]["type"]) == ("toolgate", True, "stdio")
    if "gemini" in installed_machine.names:
        assert re.search("toolgate: .*Connected", installed_machine.asked("gemini", "mcp", "list"))
    if "opencode" in installed_machine.names:
        assert re.search("toolgate.*connected", installed_machine.asked("opencode", "mcp", "list"))


EXPORTED = """
[mcpServers.local]
command = "npx"
args = ["-y", "x@1"]
env = { A = "a" }
[mcpServers.passing]
command = "y"
env = { PASSED = "${PASSED:-}" }
[mcpServers.far]
url = "http://127.0.0.1:9/mcp"
headers = { Authorization = "Bearer ${TOKEN}", X-Region = "eu" }
timeout = 45
"""


def exported(machine: Machine, to: str, file: Path) -> None:
    config = machine.home / "exported.toml"
    config.write_text(EXPORTED)
    file.parent.mkdir(parents=True, exist_ok=True)
    machine.toolgate("export", "--config", str(config), "--to", to, "--output", str(file))


def test_codex_sees_what_was_exported(machine: Machine, tmp_path: Path) -> None:
    if "codex" not in machine.names:
        pytest.skip("codex is not installed")
    exported(machine, "codex", tmp_path / "config.toml")
    done = subprocess.run(
        machine.room.enter([str(machine.home / "bin" / "codex"), "mcp", "list", "--json"]), cwd=tmp_path,
        env=machine.env | {"CODEX_HOME": str(tmp_path)}, capture_output=True, text=True, timeout=world.SECONDS,
        check=True,
    )  # fmt: skip
    found: dict[str, Any] = {each["name"]: each for each in json.loads(done.stdout)}
    assert (found["local"]["transport"]["command"], found["local"]["transport"]["env"]) == ("npx", {"A": "a"})
    assert found["passing"]["transport"]["env_vars"] == ["PASSED"]
    far = found["far"]["transport"]
    assert (far["url"], far["bearer_token_env_var"]) == ("http://127.0.0.1:9/mcp", "TOKEN")
    assert far["http_headers"] == {"X-Region": "eu"} and found["far"]["tool_timeout_sec"] == 45


@pytest.mark.parametrize(("name", "executable", "project"), [
    ("claude-code", "claude", ".mcp.json"), ("gemini", "gemini", ".gemini/settings.json"),
    ("opencode", "opencode", "opencode.json"),
])  # fmt: skip
def test_the_others_see_what_was_exported(
    name: str, executable: str, project: str, machine: Machine, tmp_path: Path
) -> None:
    if name not in machine.names:
        pytest.skip(f"{name} is not installed")
    exported(machine, name, tmp_path / project)
    done = subprocess.run(
        machine.room.enter([str(machine.home / "bin" / executable), "mcp", "list"]), cwd=tmp_path,
        env=machine.env | {"PASSED": "p", "TOKEN": "t"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=world.SECONDS, check=True,
    )  # fmt: skip
    shown = done.stdout + done.stderr
    assert all(each in shown for each in ("local", "passing", "far", "127.0.0.1:9/mcp")), shown
