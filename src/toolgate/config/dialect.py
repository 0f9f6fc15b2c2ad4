"""What is known of one way to write servers down, be it ours or another tool's; `dialects` has the table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config import variables
from toolgate.config.containers import File, ManifestEntry
from toolgate.config.fields import Rows
from toolgate.config.variables import Reference, Style

Table: TypeAlias = dict[str, Any]
SpinVariables: TypeAlias = tuple[tuple[str, ...], Table]  # where they stand, and what they say


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write servers down. `fits` is asked in the order of `DIALECTS`. `rows` are the keys of a server,
    `defaults` the fields that are other than ours. `strict`: what is unknown is an error. `whole`: the file is a
    tool's own, so that other keys of its root are of no concern here. `may_be_list`: its root may be a list of servers.
    `spin_variables` finds ours where they stand deeper."""

    name: str
    title: str
    fits: Callable[[File, object], bool]
    entries: Callable[[File, Any], Iterable[ManifestEntry]]
    containers: tuple[str, ...] = ("mcpServers",)  # keys of the root that hold servers
    rows: Rows = {}
    style: Style = variables.EDITOR
    defaults: Mapping[str, Any] = {}
    surface: str = ""
    strict: bool = False
    whole: bool = False
    may_be_list: bool = False
    inputs: Callable[[Any], Mapping[str, Reference]] = lambda tree: {}
    passed_over: Callable[[Table], str] = lambda table: ""
    spin_variables: Callable[[Table], SpinVariables | None] = lambda tree: None
