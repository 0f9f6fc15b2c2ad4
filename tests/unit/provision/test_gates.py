"""The gates: each one, failing alone, keeps a server from being installed, and says why and what to do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from toolgate.provision import gates
from toolgate.provision.entries import Entry, Package, Remote, Variable
from toolgate.provision.gates import Given, judged
from toolgate.provision.packages import Facts

DAY = 24 * 3600.0
NOW = 1000 * DAY
PACKAGE = Package("npm", "@ann/notes", "1.0.0")
ENTRY = Entry("io.github.ann/notes", "Keeps notes", "notes", source="https://registry.example", package=PACKAGE)
FACTS = Facts("sha512-abc", NOW - 100 * DAY, (ENTRY.name,))
GIVEN = Given(0.95, ("io.github.ann/*",), 7 * DAY, NOW, facts=FACTS)


def failed(entry: Entry = ENTRY, **changed: Any) -> list[gates.Gate]:
    return [gate for gate in judged(entry, msgspec.structs.replace(GIVEN, **changed)) if not gate.passed]


def entry(**changed: Any) -> Entry:
    return msgspec.structs.replace(ENTRY, **changed)


def package(**changed: Any) -> Entry:
    return entry(package=msgspec.structs.replace(PACKAGE, **changed))


def facts(**changed: Any) -> Facts:
    return msgspec.structs.replace(FACTS, **changed)


def test_all_gates_are_passed_by_what_is_right() -> None:
    assert failed() == []
    assert [gate.name for gate in judged(ENTRY, GIVEN)] == list(gates.Name.__args__)  # type: ignore[attr-defined]


@pytest.mark.promise("b.002.provision-gates")
@pytest.mark.parametrize(
    ("name", "its", "changed", "says"),
    [
        ("allowed", ENTRY, {"refused": "only an administrator"}, "only an administrator"),
        ("active", entry(status="deprecated", message="Use another"), {}, "deprecated: Use another"),
        ("active", entry(status="deleted"), {}, "deleted"),
        ("active", ENTRY, {"facts": facts(withdrawn="stolen")}, "withdrawn: stolen"),
        ("trusted", ENTRY, {"trusted": ()}, "io.github.ann, is not in provision.trusted"),
        ("owned", ENTRY, {"facts": facts(owners=())}, "does not say that it is io.github.ann/notes"),
        ("owned", ENTRY, {"facts": facts(owners=("io.github.bob/notes",))}, "says that it is io.github.bob/notes"),
        ("pinned", package(version=""), {}, "no exact version"),
        ("aged", ENTRY, {"facts": facts(published=NOW - DAY)}, "24 hours old, less than 7 days"),
        ("aged", ENTRY, {"facts": facts(published=NOW + 30 * DAY)}, "0 hours old"),
        ("hashed", ENTRY, {"facts": facts(hash="")}, "states no hash"),
        ("hashed", package(hash="sha512-xyz"), {}, "another hash than its entry says"),
        ("plain", entry(asks_for=("arguments",)), {}, "wants arguments"),
        ("configured", package(variables=(Variable("NOTES_KEY", True),)), {}, "needs NOTES_KEY"),
        ("confident", ENTRY, {"confidence": 0.89}, "0.89, less than 0.9"),
    ],
)
def test_a_gate_that_fails_alone_says_why_and_what_to_do(
    name: str, its: Entry, changed: dict[str, Any], says: str
) -> None:
    (gate,) = failed(its, **changed)
    assert gate.name == name
    assert says in gate.why
    assert gate.fix


def test_what_is_not_known_is_not_passed() -> None:
    found = failed(facts=None, unknown="npm does not answer")
    assert [gate.name for gate in found] == ["owned", "aged", "hashed"]
    assert all("npm does not answer" in gate.why for gate in found)


def test_facts_of_the_bundled_list_count_for_its_own_entries_only() -> None:
    known = {"hash": "sha512-abc", "published": NOW - 100 * DAY}
    its = msgspec.structs.replace(package(**known), name="@ann/notes", source="")
    assert failed(its, facts=None, trusted=("@ann/*",)) == []
    listed = package(**known)
    assert {gate.name for gate in failed(listed, facts=None)} == {"owned", "aged", "hashed"}


def test_a_server_that_somebody_else_runs_has_nothing_to_pin() -> None:
    its = entry(package=None, remote=Remote("https://mcp.example/mcp"))
    assert {gate.name for gate in failed(its, facts=None)} == {"owned", "pinned", "aged", "hashed", "plain"}


@pytest.mark.parametrize(
    ("pattern", "name", "is_covered"),
    [
        ("io.github.ann/*", "io.github.ann/notes", True),
        ("io.github.ann/notes", "io.github.ann/notes", True),
        ("io.github.ann/*", "io.github.anna/notes", False),
        ("io.github.ann/*", "io.github.ann/", False),
        ("io.github.ann/notes", "io.github.ann/notes2", False),
    ],
)
def test_a_namespace_is_trusted_as_a_whole_and_no_other_that_begins_so(
    pattern: str, name: str, is_covered: bool
) -> None:
    its = entry(name=name, package=None)
    assert gates.is_trusted(its, (pattern,), ()) == is_covered


def test_a_package_lends_its_good_name_to_no_entry_that_it_does_not_know() -> None:
    squatter = entry(name="io.github.mallory/notes")
    assert not gates.is_trusted(squatter, ("@ann/*",), ("io.github.ann/notes",))
    assert gates.is_trusted(ENTRY, ("@ann/*",), ("io.github.ann/notes",))


def test_one_package_of_pypi_is_trusted_by_its_name_and_not_by_one_of_npm() -> None:
    its = Entry("mcp-notes", "Keeps notes", "notes", package=Package("pypi", "mcp-notes", "1.0"))
    assert gates.is_trusted(its, ("pypi:mcp-notes",), ())
    assert not gates.is_trusted(its, ("npm:mcp-notes",), ())


@pytest.mark.parametrize(
    "name",
    [
        "io.github.modelcontextprotoco1/github",
        "io.github.modelcontextprotcol/github",
        "io.github.model-contextprotocol/x",
    ],
)
def test_a_name_that_looks_like_a_trusted_one_is_called_that(name: str) -> None:
    its = entry(name=name, package=Package("npm", f"@{name.split('.')[2].split('/')[0]}/server-github", "1.0.0"))
    (gate, *_) = [gate for gate in failed(its, trusted=("@modelcontextprotocol/*",)) if gate.name == "trusted"]
    assert "looks like @modelcontextprotocol/*" in gate.why
