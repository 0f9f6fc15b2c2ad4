"""The keys that the pages and the schema for editors have are those of the fields, and the examples are sound."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from typer.testing import CliRunner

from toolgate.cli import app
from toolgate.config import Config, ConfigError, read, render
from toolgate.config.formats import SUFFIXES, Format, Malformed, parse
from toolgate.frontends.workers import handed

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "configuration-keys.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCHEMA = jsonschema_rs.validator_for(render.schema())


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_configuration", ROOT / "docs" / "make_configuration.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_page_and_the_schema_are_made_of_the_fields() -> None:
    before = list(sys.path)
    try:
        made = maker()
    finally:
        sys.path[:] = before
    assert made.page() == PAGE, "run `make keys`"
    assert made.schema() == (ROOT / "docs" / "toolgate.schema.json").read_text(), "run `make keys`"


def test_the_command_prints_the_schema() -> None:
    printed = CliRunner().invoke(app, ["config", "schema"])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == render.schema()
    assert render.schema()["$schema"] == "http://json-schema.org/draft-07/schema#"


def tables() -> dict[str, dict[str, str]]:
    """By table of the page, the defaults of its keys as they are shown."""
    found: dict[str, dict[str, str]] = {}
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S):
        rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", text, re.M)
        at = -3  # key, perhaps for, default, about, edit
        found[title.strip("`")] = {key: re.split(r"(?<!\\)\|", cells)[at].strip() for key, cells in rows}
    return {title: rows for title, rows in found.items() if rows}


@pytest.mark.promise("b.001.port")
def test_the_page_shows_all_defaults_as_they_are() -> None:
    """Read as a file, the defaults of the root and of each section say nothing new."""
    shown: dict[str, Any] = {}
    for title, rows in tables().items():
        if re.search(r"[.\[]", title):
            continue
        table = shown if title == "The root of a file" else shown.setdefault(title, {})
        table |= {
            key: tomllib.loads(f"a = {default.strip('`')}")["a"]
            for key, default in rows.items()
            if re.fullmatch(r'`(".*"|\d+|true|false|\[.*\]|\{\})`', default)
        }
    assert shown["http"]["port"] == 8765 and shown["sessions"]["idle"] == "30m"
    config = read(json.dumps(shown), file="toolgate.json", environ={}, format="json")
    assert msgspec.structs.replace(config, source="") == Config()


def test_the_page_has_a_line_of_documentation_for_every_key() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", PAGE, re.M)
    assert len(rows) > 100
    assert [key for key, cells in rows if not re.split(r"(?<!\\)\|", cells)[-2].strip()] == []


# Examples.


def examples() -> list[Any]:
    """All blocks of the pages that are files of toolgate's own."""
    found: list[Any] = []
    for page in PAGES:
        for format, text in re.findall(r"^```(toml|yaml|json)\n(.*?)^```$", page.read_text(), re.M | re.S):
            if (tree := own(text, format)) is not None:
                found.append(pytest.param(tree, id=f"{page.name}-{len(found)}"))
    return found


def own(text: str, format: Format) -> object:
    """The plain values of a text that is a native file; None of another."""
    environ = dict.fromkeys(re.findall(r"\$\{([A-Z_]+)", text), "k" * 24)
    try:
        config = read(text, file=f"toolgate.{format}", environ=environ, format=format)
        return parse(text, format) if config.dialect == "native" else None
    except (ConfigError, Malformed):
        return None


def test_there_are_examples() -> None:
    assert len(examples()) > 30


@pytest.mark.parametrize("tree", examples())
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers need Linux")
def test_a_worker_is_handed_every_example_of_the_pages_as_it_is(tree: object) -> None:
    text = json.dumps(tree, default=str)
    environ = dict.fromkeys(re.findall(r"\$\{([A-Z_]+)", text), "k" * 24)
    config, between = read(text, file="toolgate.json", environ=environ, format="json"), handed.made()
    between.write(config)
    assert between.read() == config
    os.close(between.file)


@pytest.mark.parametrize("tree", examples())
def test_every_example_of_the_pages_is_valid_by_the_schema(tree: object) -> None:
    assert [f"{error.instance_path}: {error.message}" for error in SCHEMA.iter_errors(tree)] == []


def test_the_sentence_on_editors_names_a_format_each() -> None:
    told = PAGE.partition("## In editors")[2].partition("\n## ")[0]
    assert {"TOML", "YAML", "JSON"} <= set(re.findall(r"^- (\w+)", told, re.M))
    assert set(SUFFIXES.values()) == {"toml", "yaml", "json"}
