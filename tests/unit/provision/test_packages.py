"""What npm and PyPI say of a package: whose it is, how old, with which hash."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from registry_double import Registry, RegistryNet, where
from virtualtime import VirtualTimeLoop

from toolgate.core.fault import Fault
from toolgate.provision import packages
from toolgate.provision.entries import Package, moment
from toolgate.provision.packages import File, Packages, Unknown

NPM = Package("npm", "@ann/notes", "1.0.0")
PYPI = Package("pypi", "ann-notes", "1.0.0")
OWNER = "io.github.ann/notes"


def over(registry: Registry) -> Packages:
    return Packages(RegistryNet(registry), where)


def stocked(**more: Any) -> tuple[Registry, Packages]:
    registry = Registry()
    packages = over(registry)
    registry.add_npm(NPM.name, NPM.version, OWNER, **more)
    registry.add_pypi(PYPI.name, PYPI.version, OWNER, **more)
    return registry, packages


@pytest.mark.parametrize("package", [NPM, PYPI], ids=["npm", "pypi"])
async def test_a_package_says_its_hash_its_age_and_whose_it_is(package: Package) -> None:
    _, packages = stocked(published="2026-01-01T00:00:00Z")
    facts = await packages.facts(package)
    assert facts.owners == (OWNER,)
    assert facts.published == moment("2026-01-01T00:00:00Z")
    assert facts.hash.startswith("sha512-" if package.kind == "npm" else "sha256:")
    assert facts.file and await packages.bytes_of(package, facts.file)


@pytest.mark.parametrize("package", [NPM, PYPI], ids=["npm", "pypi"])
async def test_a_file_that_has_another_hash_than_is_stated_is_found_out(package: Package) -> None:
    _, packages = stocked(hashed=b"what was published once")
    facts = await packages.facts(package)
    if package.kind == "pypi":
        assert (facts.owners, "another hash" in facts.unowned) == ((), True)
    assert facts.file
    with pytest.raises(Unknown, match="another hash"):
        await packages.bytes_of(package, facts.file)


async def test_a_package_that_does_not_say_whose_it_is_is_nobodys() -> None:
    registry, packages = stocked()
    registry.add_npm(NPM.name, NPM.version)
    registry.add_pypi(PYPI.name, PYPI.version)
    assert [(await packages.facts(each)).owners for each in (NPM, PYPI)] == [(), ()]


async def test_a_version_that_was_withdrawn_says_why() -> None:
    registry, packages = stocked()
    registry.add_npm(NPM.name, NPM.version, OWNER, deprecated="It was stolen")
    registry.add_pypi(PYPI.name, PYPI.version, OWNER, yanked="It was stolen")
    assert {(await packages.facts(each)).withdrawn for each in (NPM, PYPI)} == {"It was stolen"}


@pytest.mark.parametrize("package", [Package("npm", "@ann/notes", "9.9.9"), Package("pypi", "ann-notes", "9.9")])
async def test_a_version_that_there_is_not_is_unknown(package: Package) -> None:
    with pytest.raises(Unknown, match="has no version"):
        await stocked()[1].facts(package)


async def test_a_package_that_there_is_not_is_unknown() -> None:
    with pytest.raises(Unknown, match="does not know it"):
        await over(Registry()).facts(NPM)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (500, "HTTP 500"),
        (302, "HTTP 302"),
        (b"<html>", "cannot be read"),
        (..., "cannot be fetched"),
        (b"{}", "has no"),
    ],
)
async def test_a_registry_of_packages_that_answers_wrong_says_nothing(answer: Any, says: str) -> None:
    registry, packages = stocked()
    registry.answers = {"/npm/@ann/notes": answer}
    with pytest.raises(Unknown, match=says):
        await packages.facts(NPM)


async def test_an_answer_for_another_package_is_none() -> None:
    registry, packages = stocked()
    other = json.loads(registry.packages["/npm/@ann/notes"])
    other["versions"]["1.0.0"]["name"] = "@mallory/notes"
    registry.packages["/npm/@ann/notes"] = json.dumps(other).encode()
    registry.packages["/simple/ann-notes/"] = registry.packages["/simple/ann-notes/"].replace(
        b'"name": "ann-notes"', b'"name": "mallory-notes"'
    )
    for package in (NPM, PYPI):
        with pytest.raises(Unknown, match="answers for another package"):
            await packages.facts(package)


async def test_a_file_elsewhere_is_not_fetched_where_it_may_not_be() -> None:
    registry, packages = stocked()
    registry.packages["/simple/ann-notes/"] = registry.packages["/simple/ann-notes/"].replace(
        b'"url": "/files/', b'"url": "http://169.254.169.254/files/'
    )
    facts = await packages.facts(PYPI)
    assert (facts.owners, "169.254.169.254" in facts.unowned) == ((), True)


async def test_a_wheel_that_is_none_has_no_owner() -> None:
    registry, packages = stocked()
    registry.add_pypi(PYPI.name, PYPI.version, packed=b"PK\x03\x04 no wheel")
    assert "cannot be read" in (await packages.facts(PYPI)).unowned


async def test_a_client_that_does_not_say_where_its_registry_is_leaves_all_unknown() -> None:
    async def nowhere(_kind: str, _package: str) -> str:
        raise Fault("SERVER_FAILED", "Command not found: npm", reach="not_sent")

    with pytest.raises(Unknown, match="Command not found: npm"):
        await Packages(RegistryNet(Registry()), nowhere).facts(NPM)


async def test_whatever_a_registry_says_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    _, over_it = stocked()
    seen: dict[str, set[bool]] = {}

    def noting(name: str) -> None:
        work = getattr(packages, name)

        def noted(*given: Any) -> Any:
            seen.setdefault(name, set()).add(VirtualTimeLoop.is_aside)
            return work(*given)

        monkeypatch.setattr(packages, name, noted)

    names = ("_read", "_metadata_of", "hash_of")
    for name in names:
        noting(name)
    for package in (NPM, PYPI):
        facts = await over_it.facts(package)
        assert facts.file
        await over_it.bytes_of(package, facts.file)
    assert seen == {name: {True} for name in names}


async def test_what_npm_says_of_other_versions_is_not_looked_at() -> None:
    registry, over_it = stocked()
    found = json.loads(registry.packages["/npm/@ann/notes"])
    found["versions"] |= {"0.9.0": "no version at all"}
    registry.packages["/npm/@ann/notes"] = json.dumps(found).encode()
    assert (await over_it.facts(NPM)).owners == (OWNER,)


@pytest.mark.parametrize(("bound", "most"), [("MOST_LISTED", 3), ("MOST_FILES", 1)])
async def test_files_without_end_are_not_read(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    registry, over_it = stocked()
    found = json.loads(registry.packages["/simple/ann-notes/"])
    found["files"] *= 2
    registry.packages["/simple/ann-notes/"] = json.dumps(found).encode()
    assert len((await over_it.facts(PYPI)).files) == 2
    monkeypatch.setattr(packages, bound, most)
    with pytest.raises(Unknown, match="its registry lists"):
        await over_it.facts(PYPI)


def test_of_the_wheels_the_one_is_chosen_whose_name_has_just_these_tags() -> None:
    endless = "-".join(".".join(f"{part}{number}" for number in range(1_000)) for part in ("py", "abi", "linux"))
    names = (f"a-1-{endless}.whl", "a-1-py3-none-any.whl", "a-1-py2.py3.py3-none-any.whl", "a-1-cp311-cp311-linux.whl")
    wheels = [File(name, "", name) for name in names]

    def found(*tags: str) -> str | None:
        file = packages.chosen(wheels, frozenset(tags))
        return file.name if file else None

    assert found("py3-none-any") == names[1]
    assert found("py3-none-any", "py2-none-any") == names[2]
    assert found("cp311-cp311-linux") == names[3]
    assert found("py3-none-any", "py4-none-any") is found() is None


async def test_a_wheel_of_files_without_end_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    _, over_it = stocked()
    monkeypatch.setattr(packages, "MOST_PACKED", 2)
    facts = await over_it.facts(PYPI)
    assert (facts.owners, facts.unowned) == ((), "its wheel has more than 2 files")


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_metadata_that_become_a_lot_at_once_are_not_unpacked(way: int) -> None:
    registry, over_it = stocked()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", way) as packed:
        packed.writestr("ann_notes-1.0.0.dist-info/METADATA", f"mcp-name: {OWNER}" + " " * 10_000_000)
    registry.add_pypi(PYPI.name, PYPI.version, packed=buffer.getvalue())
    facts = await over_it.facts(PYPI)
    assert (facts.owners, facts.unowned) == ((), "its wheel cannot be read")
