"""What a configuration would make toolgate do, for the user who is to trust it; and the question on a terminal.

The rules this file keeps: it is shown as it is written, commands and URLs to the letter, since what is masked could be
what runs; no variable is put in, no secret looked up, nothing started.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import typer

from toolgate import config as configs
from toolgate.catalog.poisoning import visible
from toolgate.cli import widening
from toolgate.config import Config, ConfigError, Server, masking, trust
from toolgate.config.formats import SUFFIXES, parse
from toolgate.core.redaction import shaped

LONG = 2000  # characters that a person sees at once; of more it is said that there is more
_variable = re.compile(r"\$\{(?!secret:)([^${}]{1,80})\}|\{env:(\w{1,80})\}")
_secret = re.compile(r"\$\{secret:([^${}]{1,250})\}")


def described(path: Path) -> tuple[bytes, list[str]]:
    """The bytes of a file, and what they say, in lines for people. Raises `ConfigError`."""
    read: list[bytes] = []
    config = configs.load(path, os.environ, references=True, accept=read.append)
    text = read[0].decode()
    tree = parse(text, SUFFIXES[path.suffix.lower()])
    lines = [*_lines(config), *_reads(tree, text)]
    return read[0], [visible(line) for line in lines]


def accepting(path: Path) -> Callable[[bytes], None]:
    """What `configs.load` is to ask before it uses a file that was found. On a terminal the user is asked at once."""

    def accept(data: bytes) -> None:
        trust.check(path, data, os.environ)

    if sys.stdin.isatty() and sys.stderr.isatty():
        with contextlib.suppress(ConfigError):  # who uses it says so
            try:
                configs.load(path, os.environ, references=True, accept=accept)
            except trust.NotTrusted as error:
                typer.echo(f"{error.problems[0].file} {error.problems[0].message}.", err=True)
                ask(path)
    return accept


def ask(path: Path, is_sure: bool = False) -> None:
    """Show what a file would do, and trust it if the user says so; else that is the end of the command. Who is sure is
    shown nothing: that may go to a log."""
    data, lines = described(path)
    if not is_sure:
        shown = "\n".join((f"{visible(str(path))} would make toolgate", *(f"  {line}" for line in lines)))
        typer.echo(shown, err=True)
        if len(shown) > LONG:
            typer.echo(f"These are {len(shown)} characters: read all of them.", err=True)
        typer.confirm("Trust this file?", abort=True, err=True)
    trust.keep(path, data, os.environ)


def _lines(config: Config) -> Iterator[str]:
    servers = [server for server in config.servers if server.enabled]
    yield from (each for server in servers for each in _of_server(server))
    if not servers:
        yield "run and contact no servers"
    if isinstance(config.approvals.notify, str) and config.approvals.notify:
        yield f"contact {config.approvals.notify} for approvals"
    elif config.approvals.notify:
        yield f"run for approvals: {shlex.join(config.approvals.notify)}"
    if config.auth.issuer:
        yield f"contact {config.auth.issuer} for token keys"
    if vault := config.secrets.vault:
        yield f"contact Vault at {vault.address or '$VAULT_ADDR'} for secrets, with {vault.token or '$VAULT_TOKEN'}"
    for name, provider in config.providers.items():
        headers = f", with {', '.join(provider.headers)}" if provider.headers else ""
        yield f"ask {provider.model} of {name} at {provider.base}{headers} for {', '.join(provider.uses) or 'nothing'}"
        if provider.samples != "none" and "datasets" in provider.uses:
            yield f"  and send it {provider.samples} values of three rows of a dataset"
        if provider.allow_http:
            yield "  unencrypted, if that is its URL"
    if config.audit.path:
        yield f"write its audit log to {config.audit.path}"
    if config.http.host != configs.Http().host:
        yield f"listen on {config.http.host}"
    yield from widening.of_config(config)


def _of_server(server: Server) -> Iterator[str]:
    if server.command:
        yield f"run {server.name}: {shlex.join((server.command, *server.args))}"
    if server.cwd:
        yield f"  in {server.cwd}"
    if server.env:
        yield f"  with {', '.join(_assigned(server.env))}"
    if server.url and not server.command:
        headers = f" with {', '.join(server.headers)}" if server.headers else ""
        yield f"contact {server.name}: {server.url}{headers}"
    if server.auth and server.auth.issuer:
        yield f"contact {server.auth.issuer} to sign in to {server.name}"
    yield from widening.of_server(server)
    if server.problem:
        yield f"  incomplete: {server.problem}"


_SHOWN = frozenset({"type", "command", "args", "cwd", "env", "url", "headers", "enabled"})  # in words of their own


def of_table(table: Mapping[str, Any]) -> Iterator[str]:
    """The same of a native table, whose other keys are shown as they are: each may allow something."""
    if command := table.get("command"):
        yield f"run {shlex.join((command, *table.get('args', ())))}"
    if cwd := table.get("cwd"):
        yield f"in {cwd}"
    if env := table.get("env"):
        yield f"with {', '.join(_assigned(env))}"
    if url := table.get("url"):
        headers = f" with {', '.join(table['headers'])}" if table.get("headers") else ""
        yield f"contact {url}{headers}"
    if not table.get("enabled", True):
        yield "disabled"
    yield from (f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in table.items() if key not in _SHOWN)


# Variables that decide what else a program loads or runs, or where that is: none of them holds a secret.
_of_loaders = re.compile(
    r"(?:PYTHON|LD_|DYLD_|PERL5|RUBY|GEM_|BUNDLE_|NODE_(?!AUTH)|NPM_CONFIG_(?!.*(?:AUTH|TOKEN|PASS))|BUN_"
    r"|DENO_(?!AUTH)|GIT_|JAVA_|JDK_|_JAVA|MAVEN_|GRADLE_|GO(?:FLAGS|PATH|ROOT|PROXY|ENV)$|CARGO_(?!.*TOKEN)|RUST|DOTNET_|CORECLR_|LUA_|PHP"
    r"|R_|JULIA_|BASH|GLIBC_|GCONV|OPENSSL|SSL_CERT|LESS|UV_(?!.*(?:TOKEN|PASS))|PIP_|DOCKER_(?!AUTH))"
    r"|(?:PATH|SHELL|ENV|CLASSPATH|HOME|IFS|SSH_ASKPASS|SUDO_ASKPASS|EDITOR|VISUAL|PAGER|BROWSER|XDG_\w+|TMPDIR)$"
    r"|.*(?:COMMAND|CMD|FILE|FILENAME|SOCK|SOCKET|HELPER|PATH|DIR|URL|URI|EXE|PROGRAM|PROCESS|ASKPASS)$",
    re.IGNORECASE,
)
_in_no_token = re.compile(r"[^A-Za-z0-9_.:+=-]")  # but in commands and paths


def _assigned(env: Mapping[str, str]) -> Iterator[str]:
    """Values matter, since some variables make programs run others, whatever they are called; what is written as tokens
    are, and could be neither a command nor a path, is masked."""
    for name, value in env.items():
        is_plain = _of_loaders.match(name) or _in_no_token.search(value) or not _is_token(value)
        yield f"{name}={value if is_plain else masking.MASK}"


def _is_token(value: str) -> bool:
    written = value.encode()
    return masking.looks_secret(value) or shaped(written) != written


def _reads(tree: object, text: str) -> Iterator[str]:
    if files := list(dict.fromkeys(_env_files(tree))):
        yield f"read variables from {', '.join(files)}"
    if variables := sorted({name or braced for name, braced in _variable.findall(text)}):
        yield f"read from the environment: {', '.join(variables)}"
    if secrets := sorted(set(_secret.findall(text))):
        yield f"look up the secrets: {', '.join(secrets)}"


def _env_files(tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in cast("dict[str, Any]", tree).items():
            if key == "envFile" and isinstance(value, str):
                yield value
            yield from _env_files(value)
    elif isinstance(tree, list):
        for each in cast("list[Any]", tree):
            yield from _env_files(each)
