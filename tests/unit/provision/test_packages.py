"""What npm and PyPI say of a package: whose it is, how old, with which hash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from registry_double import Registry, RegistryNet, where

from toolgate.core.fault import Fault
from toolgate.provision.entries import Package, moment
from toolgate.provision.packages import Packages, Unknown

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
