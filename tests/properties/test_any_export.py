"""Whatever servers there are: what a dialect is told of them is read back as it was, and written the same again; and an
edit of a file with comments changes what it was to change."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolgate import config as configs
from toolgate.config import dialects, fields, foreign_writers, spans
from toolgate.config.dialect import Dialect
from toolgate.config.formats import Format, parse
from toolgate.core.names import slug

WRITTEN = {name: dialects.named(name) for name in foreign_writers.WRITERS}
NAMES = {"opencode": "opencode.json", "native": "toolgate.toml", "children": "children_config.toml"}

letters = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\0")
words = st.text(letters, min_size=1, max_size=12).filter(str.strip)
variables = st.sampled_from(["${TOKEN}", "${A_B}", "${secret:my-key}", "${X:-y}", "$HOME", "{env:X}", "%PATH%"])
texts = (
    st.lists(words | variables, min_size=1, max_size=3)
    .map("".join)
    .filter(
        lambda text: "${" not in re.sub(r"\$\{[\w:-]+\}", "", text)  # no configuration of ours can have that
    )
)
names = st.from_regex(r"\A[A-Za-z][A-Za-z0-9 _.-]{0,11}\Z").filter(lambda name: slug(name) not in ("", "toolgate"))
header_names = st.from_regex(r"\A[A-Z][A-Za-z]{0,5}(-[A-Z][a-z]{0,5})?\Z") | st.just("Authorization")
header_values = st.from_regex(r"\A[!-z]{1,9}\Z") | st.sampled_from(["Bearer ${TOKEN}", "${KEY}", "Bearer abc"])
env_names = st.from_regex(r"\A[A-Z][A-Z_]{0,7}\Z")
envs = st.dictionaries(env_names, texts, min_size=1, max_size=3) | st.just({"TOKEN": "${TOKEN}"})
tools = st.just({"*": {"hidden": True}, "a": {}}) | st.just({"a": {"hidden": True}})
common = {
    "timeout": st.sampled_from([1.0, 2.5, 90.0]),
    "start_timeout": st.just(5.0),
    "enabled": st.just(False),
    "tools": tools,
    "description": words,
    "lifecycle": st.just("keep-alive"),
}
started = st.fixed_dictionaries(
    {"type": st.just("stdio"), "command": texts},
    optional={"args": st.lists(texts, min_size=1, max_size=3), "env": envs, "cwd": words, **common},
)
reached = st.fixed_dictionaries(
    {"type": st.sampled_from(["http", "sse"]), "url": st.sampled_from(["https://h.example/mcp", "http://h/${PATH_X}"])},
    optional={"headers": st.dictionaries(header_names, header_values, min_size=1, max_size=3), **common},
)
servers = st.dictionaries(names, started | reached, min_size=1, max_size=4).filter(
    lambda found: len({slug(name) for name in found}) == len(found)
)


def exported(dialect: Dialect, tables: dict[str, Any]) -> tuple[str, list[str]]:
    writer = foreign_writers.WRITERS[dialect.name]
    text, written = "", list[str]()
    for name, table in tables.items():
        told = foreign_writers.written(writer, name, table)
        assert told.table is not None or told.left_out
        if told.table is not None:
            text = spans.put(text, writer.format, (*writer.root, name), told.table)
            written.append(name)
    return text or ("" if writer.format != "json" else "{}"), written


def imported(dialect: Dialect, text: str) -> dict[str, Any]:
    writer = foreign_writers.WRITERS[dialect.name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAMES.get(dialect.name, f"file.{writer.format}"))
        path.write_text(text, encoding="utf-8", newline="")
        config = configs.load(path, {}, dialect.name, references=True, looks_up=False)
    assert not config.warnings, config.warnings
    assert not [server.problem for server in config.servers if server.problem]
    return {server.name: fields.written(server, masked=False, brief=True) for server in config.servers}


@pytest.mark.parametrize("name", WRITTEN)
@settings(max_examples=30)
@given(servers)
def test_what_is_exported_is_imported_as_it_was_also_after_another_round(name: str, given: dict[str, Any]) -> None:
    dialect = WRITTEN[name]
    text, written = exported(dialect, given)
    first = imported(dialect, text)
    assert list(first) == written
    again, _ = exported(dialect, first)
    assert imported(dialect, again) == first
    for server in written:
        assert first[server]["type"] == given[server]["type"]
        plain = [key for key in ("command", "args", "cwd", "url") if "${" not in json.dumps(given[server].get(key))]
        assert [first[server].get(key) for key in plain] == [given[server].get(key) for key in plain]


# Edits of texts with comments.

trees = st.dictionaries(
    st.sampled_from("abcd"),
    st.integers(0, 9)
    | st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9) | st.just([1, {"x": "}"}]), max_size=3),
    max_size=4,
)


@st.composite
def jsonc(draw: st.DrawFn, tree: Any) -> str:
    """The text of a tree, with comments and trailing commas anywhere."""
    gap = lambda: draw(st.sampled_from(["", " ", "\n", "\n  ", ' // c "{\n', "/* } , */", "\t"]))  # noqa: E731
    if not isinstance(tree, dict):
        return json.dumps(tree)
    members = [f"{gap()}{json.dumps(key)}{gap()}:{gap()}{draw(jsonc(each))}{gap()}" for key, each in tree.items()]
    trailing = "," + gap() if members and draw(st.booleans()) else gap()
    return "{" + ",".join(members) + trailing + "}"


@settings(max_examples=300)
@given(st.data(), trees, st.sampled_from(["ab", "a", "cx", "xy"]), st.integers(0, 99) | st.just({"n": [1]}))
def test_an_edit_changes_what_it_was_to_change(data: st.DataObject, tree: Any, path: str, value: Any) -> None:
    format: Format = data.draw(st.sampled_from(["json", "toml", "yaml"]))
    tree = json.loads(json.dumps(tree))
    text = data.draw(jsonc(tree)) if format == "json" else written(tree, format)
    place = tuple(path)
    if isinstance(tree.get(path[0], {}), int) and len(path) > 1:
        return  # nothing can be put into a number
    put = spans.put(text, format, place, value)  # says itself whether all else is as it was
    found: Any = parse(put, format)
    for key in path:
        found = found[key]
    assert found == value
    left = spans.drop(put, format, place)
    assert not spans.holds(parse(left, format) if left.strip() else {}, place)
    if not spans.holds(tree, place):  # what stood in it goes with it
        for edited in (put, left):
            assert [edited.count(comment) for comment in COMMENTS] == [text.count(comment) for comment in COMMENTS]


COMMENTS = ("// c", "/* }")


def written(tree: Any, format: Format) -> str:
    import tomlkit
    import yaml

    return tomlkit.dumps(tree) if format == "toml" else yaml.safe_dump(tree, sort_keys=False)
