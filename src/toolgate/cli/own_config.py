"""The configuration file that commands edit for the user: which one it is, and its servers put in and taken out.

The rules this file keeps: an edit touches only what changes, comments stay; what comes out is read before it is
written, and nothing that could not be served is written; a file that was found and is not trusted is not edited.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from toolgate import config as configs
from toolgate.cli import client_files, common, printing
from toolgate.config import Config, ConfigError, dialects, edits, fields, foreign_writers, secrets, spans, trust
from toolgate.config.dialect import Dialect
from toolgate.config.formats import LONGEST_STATE, Malformed
from toolgate.config.secrets import Broken

Servers: TypeAlias = Mapping[str, Mapping[str, Any]]  # name → a native table, its variables as references

NEW = "toolgate.toml"


class OwnConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The file to edit. `config` is what it says, with variables as references; `text` is None where there is no file
    yet."""

    path: Path
    text: str | None
    dialect: Dialect
    config: Config
    is_found: bool  # nobody has named it, and it is not in the user's folder

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        return tables(self.config)

    @property
    def secrets_file(self) -> Path:
        return secrets.file_of(self.config.secrets, self.config.state, self.config.source, os.environ)


def tables(config: Config) -> dict[str, dict[str, Any]]:
    """The servers of what was read with references, as native tables."""
    return {server.name: fields.written(server, masked=False, brief=True) for server in config.servers}


def read_foreign(path: Path, dialect: str = "") -> Config:
    """A file of another program, with variables as references. Raises `ConfigError`."""
    dialect = dialect or configs.recognised(path, os.environ).name
    return configs.load(path, os.environ, dialect, references=True, looks_up=False, longest=LONGEST_STATE)


def users_folder() -> Path:
    folder = next(configs.own_folders(os.environ), None)
    return folder or printing.fail(
        "There is no home folder to write a configuration into: set HOME, or give --config", 2
    )


def opened(named: str | None, is_users: bool = False) -> OwnConfig:
    """The file that was named, or the one that commands would read; `is_users`: the user's own rather than one in the
    working directory. Where there is none it is a new one in the user's folder. Or the end of the command."""
    found, accept = common.find_config(named)
    if is_users and found and accept:
        found, accept = None, None
    if found is None or not (named or found.exists()):
        folder = users_folder()
        found = next((path for name in configs.NAMES if (path := folder / name).is_file()), folder / NEW)
    text = client_files.read(found)
    if text is None or not text.strip():
        return OwnConfig(
            path=found, text=text, dialect=dialects.NATIVE, config=Config(source=str(found)), is_found=False
        )
    try:
        dialect = configs.recognised(found, os.environ)
        config = configs.load(found, os.environ, dialect.name, references=True, looks_up=False, accept=accept)
    except ConfigError as error:
        printing.fail(str(error), 2)
    if dialect.name not in foreign_writers.WRITERS:
        printing.fail(f"{found} is a {dialect.title}, which toolgate does not edit: give another --config", 2)
    return OwnConfig(path=found, text=text, dialect=dialect, config=config, is_found=bool(accept))


def edited(own: OwnConfig, put: Servers, drop: Sequence[str] = ()) -> str:
    """The text with these servers put in, or changed, and those taken out. Or the end of the command."""
    writer = foreign_writers.WRITERS[own.dialect.name]
    text, format = own.text or "", client_files.format_of(own.path)
    try:
        for name in drop:
            if not spans.holds(spans.tree(text, format), (*writer.root, name)):
                printing.fail(f"{name} is not below `{'.'.join(writer.root)}` in {own.path}: remove it by hand")
            text = spans.drop(text, format, (*writer.root, name))
        for name, server in put.items():
            told = foreign_writers.written(writer, name, server)
            if told.table is None or told.left_out:
                printing.fail(f"{own.path} is a {own.dialect.title}: {name}: {'; '.join(told.left_out)}", 2)
            text = spans.put(text, format, (*writer.root, name), told.table)
        configs.read(text, file=str(own.path), environ=os.environ, format=format, dialect=own.dialect.name)
    except Malformed as error:
        printing.fail(f"{own.path} {error.message}")
    except ConfigError as error:
        printing.fail(f"Nothing was written, since it would be invalid: {error}", 2)
    return text


def written(
    own: OwnConfig, text: str, command: str, names: Sequence[str], found: Mapping[str, str] | None = None
) -> None:
    """Write it, and before it the secrets that it names. Or the end of the command."""
    root = foreign_writers.WRITERS[own.dialect.name].root
    kept = _kept(own, found or {})
    client_files.write(own.path, own.text, text, command=command, root=root, names=names, secrets=kept)
    if own.is_found:
        trust.keep(own.path, text.encode(), os.environ)


def known_secrets(own: OwnConfig) -> Mapping[str, str]:
    return _read(own.secrets_file)


def _kept(own: OwnConfig, found: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Secrets into their file: the names of those that were not there, and the file."""
    fresh = {name: value for name, value in found.items() if name not in known_secrets(own)}
    if not fresh:
        return (), ""
    try:
        edits.edit_table(own.secrets_file, lambda: {**known_secrets(own), **fresh})
    except OSError as error:
        printing.fail(f"{own.secrets_file} cannot be written ({os.strerror(error.errno or 0)})")
    return tuple(fresh), str(own.secrets_file)


def undo(command: str) -> None:
    """The last edit of a command undone, with the secrets that it added; or the end of the command."""
    edit = next(iter(client_files.last(command)), None)
    if not edit:
        printing.fail(f"Nothing of `toolgate {command}` is left to undo")
    printing.say(client_files.undo(edit))
    if edit.secrets:
        path = Path(edit.secrets_file)
        edits.edit_table(path, lambda: {name: each for name, each in _read(path).items() if name not in edit.secrets})
        printing.say(f"removed from {path}: {', '.join(edit.secrets)}")


def _read(path: Path) -> Mapping[str, str]:
    try:
        return secrets.read_file(path)
    except Broken as error:
        printing.fail(str(error))
