"""Edits of the configuration file, as the admin API is asked for them. What is edited, and when not, is
`gateway/file_edits`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from toolgate.core.model import Hints, Principal
from toolgate.gateway import file_edits
from toolgate.gateway.file_edits import FileText, Imported, ImportPlan, Wanted
from toolgate.gateway.reload import Check, Reloading

LONGEST_SENT = 4 * 1024 * 1024  # characters of another program's file, which may hold much beside its servers

Digest: TypeAlias = Annotated[str, Meta(max_length=64)]


class WantedSave(msgspec.Struct):
    """The file as it was edited, in which masks stand for what they stood for; `sha256` is that of what was shown, and
    `confirmed` are sentences of an answer before, to which the operator has agreed."""

    text: str
    sha256: Digest
    confirmed: tuple[str, ...] = ()


class WantedImport(msgspec.Struct):
    """Another program's file: its `text`, its name, and its dialect where that is not to be recognised. `servers`: only
    these. With the `sha256` of a plan it is carried out; without one nothing is written. A server of it that `gives`
    says something of is left out, unless that stands in `confirmed`."""

    text: Annotated[str, Meta(max_length=LONGEST_SENT)]
    name: Annotated[str, Meta(max_length=250)] = ""
    dialect: Annotated[str, Meta(max_length=50)] = ""
    servers: tuple[str, ...] = ()
    sha256: Digest = ""
    confirmed: tuple[str, ...] = ()


class WantedVerdict(msgspec.Struct):
    """What a client may do with one tool, by its server's own name of it; empty: what holds for its server."""

    server: str
    tool: str
    verdict: Wanted


class Saved(msgspec.Struct):
    """`sha256` is that of the file as it stands now."""

    path: str
    sha256: str


class Planned(msgspec.Struct):
    """What was, or would be, added."""

    plan: ImportPlan
    is_done: bool


async def text(editor: Reloading) -> FileText:
    """Raises `Fault`."""
    return await editor.look(file_edits.text)


async def save(editor: Reloading, wanted: WantedSave, by: Principal, check: Check) -> Saved:
    """Raises `Fault`, `Unconfirmed`."""
    what = (wanted.text, wanted.sha256)
    edit = await editor.edit(lambda settings: file_edits.of_text(settings, *what), wanted.confirmed, by, check)
    return Saved(str(edit.path), edit.about["after"])


async def plan_or_import(editor: Reloading, wanted: WantedImport, by: Principal, check: Check) -> Planned:
    """Raises `Fault`, `Unconfirmed`."""
    sent = Imported(wanted.text, wanted.name, wanted.dialect, wanted.servers, wanted.confirmed)
    plan = await editor.look(lambda settings: file_edits.import_plan(settings, sent, bool(wanted.sha256)))
    if wanted.sha256:
        await editor.edit(lambda settings: file_edits.of_import(settings, sent, wanted.sha256), (), by, check)
    return Planned(plan, bool(wanted.sha256))


async def rule(
    editor: Reloading, client: str, wanted: WantedVerdict, hints: Hints, by: Principal, check: Check
) -> Saved:
    """Raises `Fault`, `Unconfirmed`."""
    what = (client, wanted.server, wanted.tool, wanted.verdict, hints)
    edit = await editor.edit(lambda settings: file_edits.of_verdict(settings, *what), (), by, check)
    return Saved(str(edit.path), edit.about["after"])
