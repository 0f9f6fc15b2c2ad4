"""Whatever a file of toolgate's own says: what is read is valid by the JSON Schema, what has a wrong type is not, and
what is shown of it can be read again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.config import Config, ConfigError, KnownClient, Server, fields, read, render
from toolgate.config.fields import Key, Section

SCHEMA = jsonschema_rs.validator_for(render.schema())


def places() -> Iterator[tuple[str, Any]]:
    """Each key, and a function: a value → a file in which it stands there."""
    for key, row in fields.rows(Config).items():
        if isinstance(row, Section):
            for name in row.rows:
                yield f"{key}.{name}", lambda value, key=key, name=name: {key: {name: value}}
        if key not in ("mcpServers", "clients"):
            yield key, lambda value, key=key: {key: value}
    for key, row in fields.rows(Server).items():
        is_started = isinstance(row, Key) and (not row.only or "stdio" in row.only) and key != "url"
        one = {"command": "uvx"} if is_started else {"type": "http", "url": "http://h"}
        yield f"mcpServers.a.{key}", lambda value, key=key, one=one: {"mcpServers": {"a": {**one, key: value}}}
    for key in fields.rows(KnownClient):
        yield f"clients.{key}", lambda value, key=key: {"clients": [{"id": "a", key: value}]}


PLACES = dict(places())
WORDS = [
    "5m", "60/m", "1MiB", "lazy", "off", "warn", "all", "none", "oauth", "true", "x", "${A}", "http://h", "https://h/p",
    "ws://h", "stdio", "http", "uvx", "/tmp", "mcp<2", "allow", "ask", "meta", "k" * 24, "http://{name}/", "operator",
]  # fmt: skip
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-2, 20000)
    | st.floats(-1, 100, allow_nan=False).filter(lambda number: not number.is_integer())
    | st.sampled_from(WORDS)
    | st.text(max_size=5)
)
KEYS = sorted({name for key in PLACES for name in key.split(".")} | {"idleTimeoutMs", "uri", "tool", "*", "A", "head"})
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)
FILES = st.builds(lambda place, value: PLACES[place](value), st.sampled_from(sorted(PLACES)), VALUES)


def joined(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return {**one, **{key: joined(one[key], value) if key in one else value for key, value in other.items()}}


def understood(tree: object) -> Config | ConfigError:
    try:
        return read(json.dumps(tree), file="toolgate.json", environ={"A": "a" * 24}, format="json")
    except ConfigError as error:
        return error


@given(FILES, FILES)
def test_what_is_read_is_valid_by_the_schema(one: Any, other: Any) -> None:
    tree = joined(one, other)
    if isinstance(understood(tree), Config):
        assert [f"{error.instance_path}: {error.message}" for error in SCHEMA.iter_errors(tree)] == []


@given(FILES)
def test_what_has_a_wrong_type_is_not_valid_by_the_schema_either(tree: Any) -> None:
    assert not (has_wrong_type(tree) and SCHEMA.is_valid(tree))


def has_wrong_type(tree: Any) -> bool:
    """Whether another kind of value was wanted somewhere, or another key."""
    found = understood(tree)
    messages = [problem.message for problem in found.problems] if isinstance(found, ConfigError) else []
    wanted = [message for message in messages if message.startswith("must be ") and ", not " in message]
    return "unknown key" in messages or any("a JSON value" not in message for message in wanted)


@given(FILES, FILES)
def test_what_is_shown_of_a_file_says_the_same_but_for_secrets(one: Any, other: Any) -> None:
    config = understood(joined(one, other))
    if isinstance(config, Config):
        shown = render.config(config)
        assert SCHEMA.is_valid(shown)
        again = understood(shown)
        assert isinstance(again, Config)
        kept = {"servers": (), "clients": (), "known": None, "source": "", "warnings": (), "approvals": None}
        assert msgspec.structs.replace(again, **kept) == msgspec.structs.replace(config, **kept, dialect="native")


# Each key, once for sure.

OF_EACH_KIND = [
    None,
    True,
    1,
    0.5,
    *WORDS,
    [],
    ["x"],
    {},
    {"x": 1},
    ["x-a"],
    ["client"],
    ["env"],
    ["https://h"],
    {"x": {}},
]
MORE = [7, 10000, "sha256:" + "0" * 64, False, {"sub": "x"}, {"idleTimeoutMs": 1}, "lazy", "shared", "auto", "vital",
        "hash", "known", "bm25", "aggregate", "authorization_code", "7d", ["@modelcontextprotocol/*"],
        ".gobby/tasks.jsonl", {"client_id": "x"}, "text", "info",
        {"certificate": "x.pem", "key": "x.pem"}]  # fmt: skip
NEVER_READ = {"cluster"}


@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_key_has_values_that_are_read_and_valid_and_others_that_are_neither(place: str) -> None:
    trees = [PLACES[place](value) for value in [*OF_EACH_KIND, *MORE]]
    read = [tree for tree in trees if isinstance(understood(tree), Config)]
    assert bool(read) != (place in NEVER_READ)
    assert [tree for tree in read if not SCHEMA.is_valid(tree)] == []
    assert [tree for tree in trees if has_wrong_type(tree) and SCHEMA.is_valid(tree)] == []
    assert any(not SCHEMA.is_valid(tree) for tree in trees)
