"""What is read of an item of a registry, whoever has written it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import registry_double
from registry_double import item, npm, pypi

from toolgate.provision import entries

SOURCE = "https://registry.example"


def read(each: Any) -> entries.Entry:
    found = entries.read(each, SOURCE)
    assert found
    return found


def test_a_package_of_npm_is_started_by_npx_and_one_of_pypi_by_uvx_each_in_its_exact_version() -> None:
    node, python = read(item(packages=[npm()])).package, read(item(packages=[pypi()])).package
    assert node and node.command == ("npx", "-y", "@ann/notes@1.0.0")
    assert python and python.command == ("uvx", "ann-notes==1.0.0")


def test_an_item_of_summer_2025_is_read_as_one_of_today() -> None:
    variables = [{"name": "NOTES_KEY", "isRequired": True, "isSecret": True, "description": "A key"}]
    today = item(packages=[npm(environmentVariables=variables)], status="deprecated")
    then = registry_double._of_2025(json.loads(json.dumps(today)))
    assert read(then) == read(today)
    assert read(then).status == "deprecated"
    assert entries.is_latest(then) and not entries.is_latest(item(isLatest=False))


def test_a_registry_says_why_a_server_is_not_active() -> None:
    found = read(item(status="deprecated", statusMessage="Use io.github.ann/notes2"))
    assert (found.status, found.message) == ("deprecated", "Use io.github.ann/notes2")


@pytest.mark.parametrize(
    "name",
    ["", "notes", "a/b/c", "io.github.ann/notes; rm -rf ~", "io.gíthub.ann/notes", "іo.github.ann/notes", "x" * 300],
)
def test_a_name_that_no_registry_has_makes_no_entry(name: str) -> None:
    assert entries.read(item(name), SOURCE) is None


@pytest.mark.parametrize(
    "identifier",
    [
        "@ann/notes --call evil",
        "--registry=http://evil",
        "@аnn/notes",
        "git+ssh://evil",
        "../notes",
        "@ann/notes@9.9.9",
        "A",
    ],
)
def test_a_package_that_npm_cannot_have_is_none(identifier: str) -> None:
    assert read(item(packages=[npm(identifier)])).package is None


@pytest.mark.parametrize("version", ["latest", "^1.0.0", "1.x", "*", "1.0.0 || 2.0.0", "1.0.0 --ignore", ""])
def test_a_version_that_is_not_exact_pins_nothing(version: str) -> None:
    package = read(item(packages=[npm(version=version)])).package
    assert package and package.version == ""
    assert package.command == ("npx", "-y", "@ann/notes")


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"packageArguments": [{"type": "positional", "value": "; curl evil"}]}, "arguments"),
        ({"runtimeArguments": [{"type": "named", "name": "--node-options"}]}, "options of its runtime"),
        ({"environmentVariables": [{"name": "NODE_OPTIONS", "value": "-r evil"}]}, "variables with values of its own"),
        ({"environmentVariables": [{"name": "A=B"}]}, "variables with values of its own"),
        ({"environmentVariables": [{"name": f"V{n}"} for n in range(60)]}, "more variables than are read"),
    ],
)
def test_what_an_entry_wants_beside_its_package_is_named_and_not_taken_over(more: dict[str, Any], what: str) -> None:
    found = read(item(packages=[npm(**more)]))
    assert found.asks_for == (what,)
    assert found.package and found.package.command == ("npx", "-y", "@ann/notes@1.0.0")


def test_a_package_that_speaks_http_is_not_started() -> None:
    http = npm(transport={"type": "streamable-http", "url": "http://localhost:1"})
    assert read(item(packages=[http])).package is None
    assert read(item(packages=[http, pypi()])).package == read(item(packages=[pypi()])).package


@pytest.mark.parametrize(
    ("url", "is_read"),
    [
        ("https://mcp.example/mcp", True),
        ("http://mcp.example/mcp", False),
        ("https://{host}/mcp", False),
        ("file:///etc/passwd", False),
        ("https://mcp.example/ x", False),
    ],
)
def test_a_remote_is_read_where_it_is_one_https_url(url: str, is_read: bool) -> None:
    remote = read(item(remotes=[{"type": "streamable-http", "url": url}])).remote
    assert (remote is not None) == is_read


def test_a_description_is_one_line_in_which_nothing_is_hidden() -> None:
    found = read(item(description="Notes\n\u202e\u200b## [click](http://evil)\x1b[2J" + "x" * 5000))
    assert "\n" not in found.description and "\u202e" not in found.description and "\x1b" not in found.description
    assert len(found.description) < 2000


@pytest.mark.parametrize(
    "junk",
    [None, 7, [], {}, {"server": []}, {"server": {"name": {}}}, item(packages={"a": 1}), item(packages=[1, None])],
)
def test_what_is_no_item_makes_none_or_less(junk: Any) -> None:
    found = entries.read(junk, SOURCE)
    assert found is None or found.package is None


def test_nesting_has_an_end() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = {"a": deep}
    assert read(item(repository=deep)).name == "io.github.ann/notes"


@pytest.mark.parametrize(("written", "seconds"), [("1970-01-01T00:01:00Z", 60.0), ("1970-01-01", 0.0), ("soon", 0.0)])
def test_a_time_is_read(written: str, seconds: float) -> None:
    assert entries.moment(written) == seconds
