"""What a configuration would make toolgate do, for the user who is to trust it; and the question on a terminal.

The rules this file keeps: it is shown as it is written, commands and URLs to the letter, since what is masked could be
what runs; no variable is put in, no secret looked up, nothing started.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import typer

from toolgate import config as configs
from toolgate.catalog.poisoning import visible
from toolgate.cli import widening
from toolgate.config import Config, ConfigError, Server, telling, trust
from toolgate.config.formats import SUFFIXES, parse
from toolgate.config.problems import KeyPath, dotted

LONG = 2000  # characters that a person sees at once; of more it is said that there is more
_variable = re.compile(r"\$\{(?!secret:)([^${}]{1,80})\}|\{env:(\w{1,80})\}")
_secret = re.compile(r"\$\{secret:([^${}]{1,250})\}")


def described(path: Path) -> tuple[bytes, list[str]]:
    """The bytes of a file, and what they say, in lines for people. Raises `ConfigError`."""
    read: list[bytes] = []
    config = configs.load(path, os.environ, references=True, accept=read.append)
    tree = parse(read[0].decode(), SUFFIXES[path.suffix.lower()])
    lines = [*_lines(config), *_reads(tree)]
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
    if config.auth.pages.client_id:
        pages = config.auth.pages
        scopes = f", for {', '.join(pages.scopes)}" if pages.scopes else ""
        secret = ", with a secret of its own" if pages.client_secret else ""
        yield f"let administrators sign in to its pages at {config.auth.issuer}, as {pages.client_id}{secret}{scopes}"
    if vault := config.secrets.vault:
        yield f"contact Vault at {vault.address or '$VAULT_ADDR'} for secrets, with {vault.token or '$VAULT_TOKEN'}"
    for name, provider in config.providers.items():
        sent = {**({"its key": provider.key} if provider.key else {}), **provider.headers}
        headers = f", with {', '.join(telling.sent(sent))}" if sent else ""
        yield f"ask {provider.model} of {name} at {provider.base}{headers} for {', '.join(provider.uses) or 'nothing'}"
        if provider.samples != "none" and "datasets" in provider.uses:
            yield f"  and send it {provider.samples} values of three rows of a dataset"
        if provider.allow_http:
            yield "  unencrypted, if that is its URL"
    if config.audit.path:
        yield f"write its audit log to {config.audit.path}"
    if config.http.host != configs.Http().host:
        yield f"listen on {config.http.host}"
    if tls := config.http.tls:
        yield f"show who connects the certificate {tls.certificate}, and read its key from {tls.key}"
    yield from widening.of_config(config)


def _of_server(server: Server) -> Iterator[str]:
    if server.command:
        yield f"run {server.name}: {shlex.join((server.command, *server.args))}"
    if server.cwd:
        yield f"  in {server.cwd}"
    if server.env:
        yield f"  with {', '.join(telling.assigned(server.env))}"
    if server.url and not server.command:
        headers = f" with {', '.join(telling.sent(server.headers))}" if server.headers else ""
        yield f"contact {server.name}: {server.url}{headers}"
    if server.auth and server.auth.issuer:
        yield f"contact {server.auth.issuer} to sign in to {server.name}"
    yield from widening.of_server(server)
    if server.problem:
        yield f"  incomplete: {server.problem}"


def _reads(tree: object) -> Iterator[str]:
    if files := list(dict.fromkeys(_env_files(tree))):
        yield f"read variables from {', '.join(files)}"
    texts = list(_texts(tree, ()))
    if variables := list(_places(texts, _variable)):
        yield f"read from the environment: {', '.join(variables)}"
    if secrets := list(_places(texts, _secret)):
        yield f"look up the secrets: {', '.join(secrets)}"


def _places(texts: Sequence[tuple[KeyPath, str]], pattern: re.Pattern[str]) -> Iterator[str]:
    """Each name that the pattern finds, with the keys that it is for."""
    places: dict[str, dict[str, None]] = {}
    for path, text in texts:
        for found in pattern.finditer(text):
            name = next(filter(None, found.groups()))
            places.setdefault(name, {})[dotted(path)] = None
    yield from (f"{name} for {' and '.join(places[name])}" for name in sorted(places))


def _texts(tree: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(tree, str):
        yield path, tree
    elif isinstance(tree, dict):
        for key, each in cast("dict[str, Any]", tree).items():
            yield (*path, key), key
            yield from _texts(each, (*path, key))
    elif isinstance(tree, list):
        for at, each in enumerate(cast("list[Any]", tree)):
            yield from _texts(each, (*path, at))


def _env_files(tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in cast("dict[str, Any]", tree).items():
            if key == "envFile" and isinstance(value, str):
                yield value
            yield from _env_files(value)
    elif isinstance(tree, list):
        for each in cast("list[Any]", tree):
            yield from _env_files(each)
