"""Edits of the file that people write, for a person who has asked for one: its text, servers of another program's file,
what a client may do with a tool.

The rules this file keeps: what was looked at is what is edited, by a digest of the file; what `toolgate config check`
would refuse is not written, but for what it refused before; secrets are masked, and stay where they were; and
nothing is read by a path that a browser names.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from toolgate import config as configs
from toolgate.auth import cross_checks
from toolgate.auth.access import Rules
from toolgate.catalog.poisoning import visible
from toolgate.config import Config, ConfigError, dialects, fields, masked_text, permission_names, spans, telling, trust
from toolgate.config.access import KnownClient, Verdict
from toolgate.config.formats import SUFFIXES, Format, Malformed
from toolgate.config.masked_text import Masked
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Hints
from toolgate.core.not_edited import NotEdited
from toolgate.state import edited_files, merging, own_config
from toolgate.state.merging import Source
from toolgate.state.settings import Settings

_PERMISSIONS = next(key for key, row in fields.keys(KnownClient).items() if row.field == "permissions")

Wanted: TypeAlias = Literal["allow", "ask", "off", ""]
Made = TypeVar("Made")


class FileEdit(msgspec.Struct, frozen=True, kw_only=True):
    """One edit: `wanted` is what the file would say then, and `found` what it said before, where that could be read.
    `put` writes it; `event` and `about` are for the audit."""

    path: Path
    found: Config | None
    wanted: Config
    put: Callable[[], None]
    event: str
    about: Mapping[str, Any]


class FileText(msgspec.Struct):
    """The file as a person may see it. `sha256` is of its bytes."""

    path: str
    format: Format
    text: str
    sha256: str


class Planned(msgspec.Struct):
    """One server of another program's file: what it would make toolgate do, in lines. `gives`: which secrets and
    variables of the user it would be given, and where; nothing where it names none."""

    name: str
    does: tuple[str, ...]
    gives: str = ""


class ImportPlan(msgspec.Struct):
    """What would be added to `file`; nothing else would. `secrets` are names under which values would be kept in
    `secrets_file`. `sha256` is of all that it was made of."""

    file: str
    servers: tuple[Planned, ...]
    secrets: tuple[str, ...]
    secrets_file: str
    notes: tuple[str, ...]
    sha256: str


def made(make: Callable[[Settings], Made], settings: Settings) -> Made:
    """Raises `Fault`."""
    try:
        return make(settings)
    except (NotEdited, Malformed) as why:
        raise Fault("INVALID_STATE", f"Nothing was written: {why}", reach="not_sent") from None
    except ConfigError as error:
        raise Fault("INVALID_ARGS", f"Nothing was written: {error}", reach="not_sent") from None


def write(edit: FileEdit) -> None:
    """Raises `Fault`."""
    try:
        edit.put()
    except (NotEdited, ConfigError, OSError) as why:
        raise Fault("INVALID_STATE", f"Nothing was written: {why}", reach="not_sent") from None


# Its text.


def text(settings: Settings) -> FileText:
    path, now = _file(settings)
    found = _masked(now, path, settings)
    return FileText(str(path), edited_files.format_of(path), found.text, _digest(now))


def of_text(settings: Settings, edited: str, sha256: str) -> FileEdit:
    """The file with another text, whose masks stand for what they stood for."""
    path, now = _file(settings)
    _check_seen(now, sha256)
    after = masked_text.unmasked(edited.replace("\r\n", "\n"), _masked(now, path, settings))
    if "\r\n" in now:  # browsers write line ends of their own
        after = after.replace("\r\n", "\n").replace("\n", "\r\n")
    return _edit(settings, path, now, after, "configuration.edit", {})


def _masked(now: str, path: Path, settings: Settings) -> Masked:
    format, known = edited_files.format_of(path), frozenset[str]()
    try:
        known = configs.secrets_of(configs.checked(now, file=str(path), environ=settings.environ, format=format))
    except ConfigError:
        pass  # it is to be repaired; what goes by the name of a secret is masked all the same
    return masked_text.masked(now, format, known)


# Servers of another program.


class Imported(msgspec.Struct, frozen=True):
    """A file of another program that somebody has sent: its text, what it is called, and whose words it is in where
    that is said. `servers`: only these. `confirmed`: what `Planned.gives` says of those that may have it."""

    text: str
    called: str = ""
    dialect: str = ""
    servers: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()


def import_plan(settings: Settings, sent: Imported, is_chosen: bool) -> ImportPlan:
    """`is_chosen`: without the servers that are not given what they name."""
    own, merged = _merged(settings, sent)
    if is_chosen:
        merged = _confirmed(merged, sent.confirmed)
    planned = tuple(
        Planned(name, tuple(telling.of_table(table)), visible(merged.gives.get(name, "")))
        for name, table in merged.servers.items()
    )
    kept = str(own.secrets_file) if merged.secrets else ""
    return ImportPlan(str(own.path), planned, tuple(merged.secrets), kept, merged.notes, _seen(own.text or "", sent))


def of_import(settings: Settings, sent: Imported, sha256: str) -> FileEdit:
    own, merged = _merged(settings, sent)
    if sha256 != _seen(own.text or "", sent):
        raise NotEdited("this is not the plan that was looked at: look at it again")
    merged = _confirmed(merged, sent.confirmed)
    if not merged.servers:
        raise NotEdited("; ".join(("there is nothing to add", *merged.notes)))
    after = own_config.edited(own, merged.servers)
    about = {"servers": list(merged.servers), "secrets": list(merged.secrets)}
    about |= {"given": list(merged.gives.values())} if merged.gives else {}
    edit = _edit(settings, own.path, own.text or "", after, "configuration.import", about)
    put = lambda: own_config.written(own, after, "import", tuple(merged.servers), merged.secrets)  # noqa: E731
    return msgspec.structs.replace(edit, put=put)


def _confirmed(merged: merging.Merged, confirmed: Collection[str]) -> merging.Merged:
    return merged.without([name for name, given in merged.gives.items() if visible(given) not in confirmed])


def _merged(settings: Settings, sent: Imported) -> tuple[own_config.OwnConfig, merging.Merged]:
    known = {each.name for each in dialects.DIALECTS}
    if sent.dialect and sent.dialect not in known:
        raise NotEdited(f"unknown dialect {sent.dialect}. Available: {', '.join(sorted(known))}")
    path, now = _file(settings)
    own = own_config.opened(path, _accepting(path, now))
    called = Path(sent.called).name or "pasted.json"
    format = SUFFIXES.get(Path(called).suffix.lower(), "json")
    config = configs.foreign(sent.text, file=called, format=format, dialect=sent.dialect)
    label = Path(called).stem.strip(".") or "imported"
    return own, merging.merge(own, [Source(called, label, config)], only=sent.servers)


def _seen(now: str, sent: Imported) -> str:
    return _digest("\0".join((_digest(now), *map(_digest, (sent.text, sent.called, sent.dialect)), *sent.servers)))


# What a client may do.


def of_verdict(settings: Settings, client: str, server: str, tool: str, verdict: Wanted, hints: Hints) -> FileEdit:
    """A tool allowed, asked for or off for a client; without a verdict what is said of the tool itself is taken out."""
    path, now = _file(settings)
    own = own_config.opened(path, _accepting(path, now))
    if not own.text or not own.config.clients:
        raise NotEdited(f"{path} has no clients in it")
    name = names.join_name(server, tool)
    if "*" in tool or permission_names.named(name) != name:
        raise NotEdited("no permission can name this tool alone")
    after = _with_verdict(own.text, own.format, client, name, verdict)
    about = {"client": client, "tool": name, "verdict": verdict or "as its server"}
    edit = _edit(settings, path, now, after, "access.edit", about)
    known = next((each for each in edit.wanted.clients if each.id == client), None)
    rules = Rules(known, edit.wanted.add_servers, edit.wanted.codex.calls) if known else None
    found = rules.why(server, "tools", tool, hints) if rules else None
    if found and verdict and found.verdict != verdict:
        raise NotEdited(f"it would still be {found.verdict}, by {found.rule}: change that in the configuration")
    return edit


def _with_verdict(now: str, format: Format, client: str, name: str, verdict: Wanted) -> str:
    where = (*_place_of(spans.tree(now, format), client), _PERMISSIONS, "tools")
    found: Any = spans.tree(now, format)
    tools = dict[str, Verdict]()
    if spans.holds(found, where):
        for key in where:
            found = found[key]
        tools = cast("dict[str, Verdict]", found) if isinstance(found, dict) else tools
    same = [each for each in tools if permission_names.named(each) == name]
    if verdict:
        return spans.put(now, format, (*where, same[0] if same else name), verdict)
    left = {each: said for each, said in tools.items() if each not in same}
    return spans.put(now, format, where, left) if same else now


def _place_of(tree: Mapping[str, Any], client: str) -> tuple[str | int, ...]:
    """Of clients that stand in a list, or in a table by id."""
    clients = tree.get("clients")
    if isinstance(clients, dict) and client in clients:
        return "clients", client
    listed = cast("list[Any]", clients) if isinstance(clients, list) else []
    for place, each in enumerate(listed):
        if isinstance(each, dict) and cast("dict[str, Any]", each).get("id") == client:
            return "clients", place
    raise NotEdited(f"there is no client {client} in this file")


# What they share.


def _file(settings: Settings) -> tuple[Path, str]:
    """The file that people write, and its text."""
    if not settings.path:
        raise NotEdited("this gateway has no configuration file")
    return settings.path, edited_files.read(settings.path) or ""


def _accepting(path: Path, now: str) -> Callable[[bytes], None] | None:
    """Where it is trusted by its bytes, as a file is that was found, it has to be so still."""
    return (lambda data: trust.check(path, data, os.environ)) if trust.is_known(path, os.environ) else None


def _check_seen(now: str, sha256: str) -> None:
    if sha256 != _digest(now):
        raise NotEdited("the file was written by somebody else since it was shown: load the page again, and edit that")


def _edit(settings: Settings, path: Path, now: str, after: str, event: str, about: Mapping[str, Any]) -> FileEdit:
    if now == after:
        raise NotEdited("the file says so already")
    format = edited_files.format_of(path)
    wanted = configs.checked(after, file=str(path), environ=settings.environ, format=format, references=False)
    settings.with_added(wanted)
    found = _found(settings, path, now, format)
    if wrong := _refusals(wanted) - (_refusals(found) if found else frozenset()):
        raise ConfigError(tuple(configs.Problem(str(path), key, message) for key, message in sorted(wrong)))

    def put() -> None:
        is_trusted = _accepting(path, now)
        if is_trusted:
            is_trusted(now.encode())
        edited_files.write(path, now or None, after, command="page")
        if is_trusted:
            with contextlib.suppress(OSError):  # who reads it next is told that it is not trusted, and what to do
                trust.keep(path, after.encode(), os.environ)

    digests = {"before": _digest(now), "after": _digest(after)}
    return FileEdit(path=path, found=found, wanted=wanted, put=put, event=event, about={**about, **digests})


def _refusals(config: Config) -> frozenset[tuple[str, str]]:
    """What `toolgate config check` ends with 1 for, beside what cannot be read."""
    of_servers = ((each.name, each.problem) for each in config.servers if each.enabled and each.problem)
    return frozenset((*((each.path, each.message) for each in cross_checks.problems(config)), *of_servers))


def _found(settings: Settings, path: Path, now: str, format: Format) -> Config | None:
    try:
        return configs.checked(now, file=str(path), environ=settings.environ, format=format, references=False)
    except ConfigError:
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
