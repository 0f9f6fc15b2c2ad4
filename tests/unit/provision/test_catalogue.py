"""The list of servers that comes with toolgate."""

from __future__ import annotations

import base64
import re
import tomllib

import pytest

from toolgate.provision import catalogue
from toolgate.provision.catalogue import bundled
from toolgate.provision.entries import LONGEST_TEXT, is_package, is_version, shown


def test_it_has_at_least_sixty_servers_and_each_once() -> None:
    assert len(bundled()) >= 60
    assert len({each.name for each in bundled()}) == len({each.id for each in bundled()}) == len(bundled())
    assert sum(each.package is not None for each in bundled()) >= 60


@pytest.mark.parametrize("entry", bundled(), ids=lambda each: each.id)
def test_an_entry_is_one_exact_version_of_a_package_with_its_hash_or_one_url(entry: catalogue.Entry) -> None:
    package, remote = entry.package, entry.remote
    assert (package is None) != (remote is None)
    assert re.fullmatch("[a-z0-9][a-z0-9-]*", entry.id)
    assert 10 < len(entry.description) <= LONGEST_TEXT
    assert shown(entry.description) == entry.description
    if package:
        assert is_package(package.kind, package.name) and is_version(package.kind, package.version)
        assert package.published > 0
        if package.kind == "npm":
            assert len(base64.b64decode(package.hash.removeprefix("sha512-"))) == 64
        else:
            assert re.fullmatch("sha256:[0-9a-f]{64}", package.hash)
        assert all(re.fullmatch("[A-Z][A-Z0-9_]*", each.name) for each in package.variables)
    if remote:
        assert remote.url.startswith("https://")


def test_what_its_file_says_is_known() -> None:
    """`_Server` forbids other keys; what stands there is also used."""
    servers = tomllib.loads(catalogue.FILE.read_text())["server"]
    assert [each["id"] for each in servers] == [each.id for each in bundled()]
