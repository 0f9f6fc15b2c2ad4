"""A configuration → native tables, with every default in it, for people and for files.

The rule this file keeps: what may be a secret is masked, and what is masked can still be read as a native file.
With `masked=False` a table is what the server was configured with, for those that keep it in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config import access_render, variables
from toolgate.config.masking import MASK, arguments, url

Table: TypeAlias = dict[str, Any]

SECTIONS = ("http", "sessions", "parking", "catalog", "pool", "virtual_search")


def config(found: Any, masked: bool = True) -> Table:
    """Everything that holds, as a native file says it."""
    root: Table = {section: _without_none(msgspec.structs.asdict(getattr(found, section))) for section in SECTIONS}
    root["http"] |= {key: list(root["http"][key]) for key in ("allowed_origins", "allowed_hosts")}
    return {
        "surface": found.surface,
        "validate_arguments": found.validate_arguments,
        "component_url": found.component_url,
        "drain": found.drain,
        "add_servers": found.add_servers,
        **({"state": found.state} if found.state else {}),
        **({"auth": auth} if (auth := access_render.auth(found.auth)) else {}),
        **({"clients": [access_render.client(each) for each in found.clients]} if found.clients else {}),
        "approvals": access_render.approvals(found.approvals, MASK if masked else ""),
        "guard": msgspec.structs.asdict(found.guard) | {"allow_hosts": list(found.guard.allow_hosts)},
        "audit": access_render.audit(found.audit),
        "bundles": {name: list(patterns) for name, patterns in found.bundles.items()},
        "limits": _limits(found.limits),
        "secrets": _secrets(found.secrets, masked),
        **root,
        "mcpServers": {each.name: server(each, masked=masked, whole=True) for each in found.servers},
    }


def _limits(limits: Any) -> Table:
    lines = _without_none({"head": limits.head, "tail": limits.tail})
    sizes = {key: getattr(limits, key) for key in ("result_limit", "result_tokens", "argument_limit", "values")}
    tables = {
        "truncate": lines,
        "rates": access_render.rates(limits.rates),
        "concurrency": access_render.concurrency(limits.concurrency),
    }
    return {**_without_none(sizes), **_without_empty(tables)}


def _secrets(found: Any, masked: bool) -> Table:
    table = _without_empty(msgspec.structs.asdict(found))
    table |= {key: list(table[key]) for key in ("backends", "public") if key in table}
    if found.vault:
        vault = _without_empty(msgspec.structs.asdict(found.vault))
        hidden = vault.keys() & {"token", "role_id", "secret_id"} if masked else ()
        table["vault"] = vault | dict.fromkeys(hidden, MASK)
    return {key: value for key, value in table.items() if value != []}


def server(found: Any, masked: bool = False, whole: bool = False) -> Table:
    """One server. `whole`: with what is as by default."""
    fields = {name: getattr(found, name) for name in _PLAIN}
    fields["start"] = found.start or None  # what is not written depends on the type
    if found.type in ("component", "sse"):
        fields["era"] = None  # they have one only
    defaults = {field.name: field.default for field in msgspec.structs.fields(found)}
    written = {
        "type": found.type,
        **_reach(found, masked),
        **{key: value for key, value in fields.items() if value is not None and (whole or value != defaults[key])},
        "lifecycle": found.lifecycle if found.idle is None else {"idleTimeoutMs": found.idle * 1000},
        **_guarded(found, defaults, masked),
        "roots": [_without_empty({"uri": root.uri, "name": root.name}) for root in found.roots],
        "tools": {name: _overlay(overlay, masked) for name, overlay in found.tools.items()},
    }
    kept = {"lifecycle"} if whole or written["lifecycle"] != "lazy" else set[str]()
    return {
        key: value for key, value in written.items() if key in kept or (key != "lifecycle" and value not in ([], {}))
    }


def _guarded(found: Any, defaults: Mapping[str, Any], masked: bool) -> Table:
    """How the gateway signs in there, what it passes on, and what it holds back."""
    table: Table = {
        "auth": access_render.server_auth(found.auth, MASK if masked else "") if found.auth else None,
        "forward_headers": list(found.forward_headers),
        "rate": access_render.rate(found.rate) if found.rate else None,
        "pinning": found.pinning,
    }
    by = {} if found.by_operator == defaults["by_operator"] else {"by_operator": found.by_operator}
    return {key: value for key, value in table.items() if value not in ("", None, [])} | by


_PLAIN = (
    "enabled", "timeout", "start_timeout", "start", "criticality", "description", "validate_arguments",
    "result_limit", "result_tokens", "scope", "era", "concurrency",
)  # fmt: skip


def _reach(found: Any, masked: bool) -> Table:
    """How it is started and reached. Where a variable was missing its gap is masked."""
    gap = MASK if found.problem else ""
    table: Table = {}
    if found.type == "stdio" or found.command:
        table = {
            "command": found.command or gap,
            "args": arguments(found.args, found.private_args) if masked else list(found.args),
        }
        table |= {"env": _masked(found.env) if masked else dict(found.env)}
        table |= {"cwd": found.cwd} if found.cwd else {}
        table |= {"new_privileges": True} if found.new_privileges else {}
    if found.type != "stdio":
        scheme = "ws" if found.type == "ws" else "http"
        sound = found.url if not found.problem or variables.is_url(found.url) else ""
        table["url"] = (url(sound) if masked else sound) or f"{scheme}://{MASK}"
        table["headers"] = _masked(found.headers) if masked else dict(found.headers)
    return table


def _masked(values: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(values, MASK)


def _overlay(overlay: Any, masked: bool) -> Table:
    parameters = {name: _parameter(each, masked) for name, each in overlay.parameters.items()}
    return _without_empty(
        {
            "name": overlay.name,
            "title": overlay.title,
            "description": overlay.description,
            "hidden": overlay.hidden,
            "parameters": parameters,
            "values": overlay.values,
        }
    )


def _parameter(parameter: Any, masked: bool) -> Table:
    """What is fixed is hidden from clients, so it is hidden here."""
    given = {key: value for key in ("fixed", "default") if (value := getattr(parameter, key)) is not msgspec.UNSET}
    if masked and "fixed" in given:
        given["fixed"] = MASK
    words = {key: getattr(parameter, key) for key in ("name", "description", "hidden")}
    return {**_without_empty(words), **given}


def _without_none(table: Mapping[str, Any]) -> Table:
    return {key: value for key, value in table.items() if value is not None}


def _without_empty(table: Mapping[str, Any]) -> Table:
    return {key: value for key, value in table.items() if value not in (None, "", False, {})}
