"""What the fields of the configuration say of themselves."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any

import msgspec
import pytest

from toolgate.config import (
    Audit,
    Config,
    Http,
    Overlay,
    Server,
    ServerAuth,
    VirtualSearch,
    access,
    fields,
    render,
    secrets,
    server,
    server_types,
    settings,
)
from toolgate.config.access import KnownClient, Rate
from toolgate.config.server import ServerBox
from toolgate.config.settings import NOTED, Telemetry

SERVER = Server(id="a", name="a", type="stdio", command="x")
OTHERS: dict[str, Any] = {  # another value of each field
    "type": "http", "command": "y", "args": ("z",), "env": {"A": "b"}, "cwd": "/", "url": "http://h",
    "headers": {"A": "b"}, "enabled": False, "timeout": 1.0, "start_timeout": 1.0, "start": "eager",
    "lifecycle": "ephemeral", "idle": 1.0, "criticality": "optional", "description": "d", "validate_arguments": False,
    "result_limit": 1, "result_tokens": 1, "tools": {"a": Overlay(hidden=True)}, "new_privileges": True,
    "auth": ServerAuth(), "forward_headers": ("a",), "roots": ("r",), "scope": "session", "era": "legacy",
    "concurrency": 1, "rate": Rate(1, 1.0), "pinning": "off", "by_operator": False, "private_args": (0,),
    "problem": "p", "missing": ("M",), "id": "b", "name": "b", "project": "p-1",
    "box": ServerBox(level="strict"), "fetch_timeout": 1.0, "package_hash": "sha256:0",
}  # fmt: skip
LIVE = {"description", "project", "validate_arguments", "result_limit", "result_tokens", "tools"}
LIVE |= {"timeout", "start_timeout", "fetch_timeout", "criticality", "rate"}
LISTS = ("type", "command", "args", "env", "cwd", "url", "headers", "roots", "scope", "era")


@pytest.mark.parametrize("field", Server.__struct_fields__)
def test_a_server_is_restarted_for_a_change_of_all_but_what_is_let_through_to_it(field: str) -> None:
    other = msgspec.structs.replace(SERVER, **{field: OTHERS[field]})
    assert other.runs_as(SERVER) == (field in LIVE)
    assert (other.lists_depend_on() != SERVER.lists_depend_on()) == (field in LISTS)


def test_what_lists_depend_on_keeps_its_order_since_hashes_of_it_are_kept() -> None:
    assert fields.changing(Server, "relist") == LISTS


def test_what_waits_for_a_restart_is_what_was_opened_with_the_gateway() -> None:
    sent = {f"telemetry.{key}" for key in Telemetry.__struct_fields__} - {"telemetry.usage"}
    opened = {"http", "log", "sessions", "parking", "state", "audit.path"}
    assert dict(Config().waits_for_restart()).keys() == opened | sent
    found = dict(Config(http=Http(port=1), audit=Audit(path="p")).waits_for_restart())
    assert (found["http"], found["audit.path"]) == (Http(port=1), "p")


def test_what_is_listed_depends_on_the_surface_the_search_and_the_bundles() -> None:
    assert fields.changing(Config, "relist") == ("virtual_search", "surface", "bundles", "codex")
    assert Config().lists_as(Config(drain=1.0))
    assert not Config().lists_as(Config(virtual_search=VirtualSearch(enabled=True)))


def test_what_a_server_has_from_the_root_is_a_key_of_the_root() -> None:
    assert fields.inherited(Server) == ("validate_arguments", "box")
    assert set(fields.inherited(Server)) <= set(fields.keys(Config))
    rows = server_types.TYPES.values()
    named = {key for row in rows for key in (row.template, row.names) if key}
    assert named == {"component_url", "tool_components"} and named <= set(fields.rows(Config))


def test_changes_of_who_may_do_what_are_noted() -> None:
    noted = {"add_servers", "approvals", "audit", "auth", "guard", "limits", "secrets", "validate_arguments"}
    assert set(NOTED) == noted | {"box", "tasks", "codex", "sandbox", "providers", "provision"}


def test_what_may_be_secret_is_marked_at_its_field() -> None:
    def marked(struct: type[msgspec.Struct]) -> set[str]:
        found: set[str] = set()
        for key, row in fields.rows(struct).items():
            inner = (
                row.struct if isinstance(row, fields.Section) else getattr(getattr(row, "kind", None), "struct", None)
            )
            found |= marked(inner) if inner else {key} if getattr(row, "secret", None) else set()
        return found

    assert marked(Config) == {
        "args", "env", "url", "headers", "fixed", "client_secret", "private_key", "key", "notify", "token", "role_id",
        "secret_id",
    }  # fmt: skip


def test_a_key_is_shown_where_its_type_of_server_has_it() -> None:
    shown = render.config(Config(servers=(SERVER,)))["mcpServers"]["a"]
    assert {"command", "era", "timeout"} <= shown.keys()
    assert not {"url", "headers", "forward_headers", "private_args", "id", "name"} & shown.keys()


def test_what_is_empty_is_shown_where_something_else_is_the_default() -> None:
    client = KnownClient(id="a", name="a", servers=())
    assert render.config(Config(clients=(client,)))["clients"][0]["mcp_server_access"] == []
    assert "claims" not in render.config(Config(clients=(client,)))["clients"][0]


MODULES = (access, secrets, server, settings)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_annotation_uses_a_name_that_is_a_field_of_its_struct(module: ModuleType) -> None:
    """Python evaluates annotations inside the class: the field would be found instead."""
    for struct in ast.parse(inspect.getsource(module)).body:
        if isinstance(struct, ast.ClassDef):
            parts = [
                part for part in struct.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            ]
            used = {node.id for part in parts for node in ast.walk(part.annotation) if isinstance(node, ast.Name)}
            assert used & {part.target.id for part in parts if isinstance(part.target, ast.Name)} == set(), struct.name
