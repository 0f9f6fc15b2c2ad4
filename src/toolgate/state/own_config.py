"""The configuration file that is edited for the user, by commands and by pages: its servers put in and taken out.

The rules this file keeps: an edit touches only what changes, comments stay; what comes out is read before it is
written, and nothing that could not be served is written; a file that was found and is not trusted is not edited, and
one that was stays trusted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from toolgate import config as configs
from toolgate.config import Config, ConfigError, dialects, edits, fields, foreign_writers, secrets, spans, trust
from toolgate.config.dialect import Dialect
from toolgate.config.formats import Format, Malformed
from toolgate.config.secret_references import Extraction
from toolgate.config.secrets import Broken
from toolgate.core.not_edited import NotEdited
from toolgate.state import edited_files

Servers: TypeAlias = Mapping[str, Mapping[str, Any]]  # name → a native table, its variables as references


class OwnConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The file to edit. `config` is what it says, with variables as references; `text` is None where there is no file
    yet."""

    path: Path
    text: str | None
    dialect: Dialect
    config: Config
    is_found: bool  # nobody has named it, and it is not in the user's folder

    @property
    def format(self) -> Format:
        return edited_files.format_of(self.path)

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        return tables(self.config)

    @property
    def secrets_file(self) -> Path:
        return secrets.file_of(self.config.secrets, self.config.state, self.config.source, os.environ)


def tables(config: Config) -> dict[str, dict[str, Any]]:
    """The servers of what was read with references, as native tables."""
    return {server.name: fields.written(server, masked=False, brief=True) for server in config.servers}


def opened(path: Path, accept: Callable[[bytes], None] | None = None) -> OwnConfig:
    """The file as it stands; where there is none, as a new one. `accept`: see `configs.load`. Raises `NotEdited`."""
    text = edited_files.read(path)
    if text is None or not text.strip():
        return OwnConfig(path=path, text=text, dialect=dialects.NATIVE, config=Config(source=str(path)), is_found=False)
    try:
        dialect = configs.recognised(path, os.environ)
        config = configs.load(path, os.environ, dialect.name, references=True, looks_up=False, accept=accept)
    except ConfigError as error:
        raise NotEdited(str(error), is_unfit=True) from None
    if dialect.name not in foreign_writers.WRITERS:
        why = f"{path} is a {dialect.title}, which toolgate does not edit: give another --config"
        raise NotEdited(why, is_unfit=True)
    return OwnConfig(path=path, text=text, dialect=dialect, config=config, is_found=bool(accept))


def edited(own: OwnConfig, put: Servers, drop: Sequence[str] = ()) -> str:
    """The text with these servers put in, or changed, and those taken out. Raises `NotEdited`."""
    writer = foreign_writers.WRITERS[own.dialect.name]
    text, format = own.text or "", own.format
    try:
        for name in drop:
            if not spans.holds(spans.tree(text, format), (*writer.root, name)):
                raise NotEdited(f"{name} is not below `{'.'.join(writer.root)}` in {own.path}: remove it by hand")
            text = spans.drop(text, format, (*writer.root, name))
        for name, server in put.items():
            told = foreign_writers.written(writer, name, server)
            if told.table is None or told.left_out:
                why = f"{own.path} is a {own.dialect.title}: {name}: {'; '.join(told.left_out)}"
                raise NotEdited(why, is_unfit=True)
            text = spans.put(text, format, (*writer.root, name), told.table)
        configs.read(text, file=str(own.path), environ=os.environ, format=format, dialect=own.dialect.name)
    except Malformed as error:
        raise NotEdited(f"{own.path} {error.message}") from None
    except ConfigError as error:
        raise NotEdited(f"Nothing was written, since it would be invalid: {error}", is_unfit=True) from None
    return text


def written(
    own: OwnConfig, text: str, command: str, names: Sequence[str], found: Mapping[str, str] | None = None
) -> None:
    """Write it, and before it the secrets that it names. Raises `NotEdited`."""
    root = foreign_writers.WRITERS[own.dialect.name].root
    kept = _kept(own, found or {})
    edited_files.write(own.path, own.text, text, command=command, root=root, names=names, secrets=kept)
    if own.is_found:
        with contextlib.suppress(OSError):  # it is written; who reads it next is told that it is not trusted
            trust.keep(own.path, text.encode(), os.environ)


def known_secrets(own: OwnConfig) -> Mapping[str, str]:
    """Raises `NotEdited`."""
    return _read(own.secrets_file)


def extraction(own: OwnConfig) -> Extraction:
    """For servers that are put into this file. No name is used for their secrets that stands for another one in a place
    where the gateway looks before it looks into the file of secrets, or that the configuration names already: else it
    would be given to the wrong server. Raises `NotEdited`."""
    backends = own.config.secrets.backends
    before = backends[: backends.index("file")] if "file" in backends else backends
    settings = msgspec.structs.replace(own.config.secrets, backends=before)
    places, named = secrets.Sources(settings, os.environ, own.secrets_file), set(secrets.named_in(own.text or ""))

    def is_taken(name: str) -> bool:
        return name in named or places.has(name)

    return Extraction(known_secrets(own), is_taken)


def _kept(own: OwnConfig, found: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Secrets into their file: the names of those that were not there, and the file."""
    fresh = {name: value for name, value in found.items() if name not in known_secrets(own)}
    if not fresh:
        return (), ""
    try:
        edits.edit_table(own.secrets_file, lambda: {**known_secrets(own), **fresh})
    except OSError as error:
        raise NotEdited(f"{own.secrets_file} cannot be written ({os.strerror(error.errno or 0)})") from None
    return tuple(fresh), str(own.secrets_file)


def undo(command: str) -> list[str]:
    """The last edit of a command undone, with the secrets that it added: what was done, in lines. Raises
    `NotEdited`."""
    edit = next(iter(edited_files.last(command)), None)
    if not edit:
        raise NotEdited(f"Nothing of `toolgate {command}` is left to undo")
    done = [edited_files.undo(edit)]
    if edit.secrets:
        path = Path(edit.secrets_file)
        edits.edit_table(path, lambda: {name: each for name, each in _read(path).items() if name not in edit.secrets})
        done.append(f"removed from {path}: {', '.join(edit.secrets)}")
    return done


def _read(path: Path) -> Mapping[str, str]:
    try:
        return secrets.read_file(path)
    except Broken as error:
        raise NotEdited(str(error)) from None
