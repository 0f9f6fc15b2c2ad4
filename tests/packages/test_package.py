"""The wheel and the sdist: built again elsewhere they are the same, and they hold what toolgate needs and no more."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from toolgate import __version__

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "packaging"))

import build  # noqa: E402

ENVIRON = {"SOURCE_DATE_EPOCH": "1700000000", "PATH": "/usr/bin:/bin"}
OUTSIDE = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build.built_twice(tmp_path_factory.mktemp("built"), ENVIRON)


def test_two_builds_are_the_same_byte_for_byte(files: list[Path]) -> None:
    names = [f"toolgate-{__version__}-py3-none-any.whl", f"toolgate-{__version__}.tar.gz"]
    assert [file.name for file in files] == names


def test_the_wheel_has_every_file_of_the_product_and_no_others(files: list[Path]) -> None:
    with zipfile.ZipFile(files[0]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert held == {name.removeprefix("src/") for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def test_the_sdist_has_the_source_and_what_is_said_of_it(files: list[Path]) -> None:
    with tarfile.open(files[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {name for name in names if not name.startswith("src/toolgate/")} <= OUTSIDE


def test_a_link_in_a_folder_that_git_ignores_takes_nothing_out_of_them(tmp_path: Path) -> None:
    """Such as those of `make mutants`, which lead to src: of two ways to a folder the builder follows the first."""
    source = tmp_path / "source"
    (source / "build").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "build" / "src").symlink_to(source / "src")
    wheel, sdist = build.built(source, tmp_path / "built", ENVIRON)
    with zipfile.ZipFile(wheel) as packed:
        assert "toolgate/app.py" in packed.namelist()
    with tarfile.open(sdist) as packed:
        assert f"toolgate-{__version__}/src/toolgate/app.py" in packed.getnames()


def test_the_provenance_names_each_file_by_its_digest_and_the_commit_that_it_is_made_of(files: list[Path]) -> None:
    """By the fields that the standards require: in-toto Statement 1, SLSA Provenance 1."""
    said: Any = build.statement(files, "c0ffee", is_changed=True, environ=ENVIRON)
    assert (
        said["_type"] == "https://in-toto.io/Statement/v1" and said["predicateType"] == "https://slsa.dev/provenance/v1"
    )
    digests = {each["name"]: each["digest"]["sha256"] for each in said["subject"]}
    assert digests == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    definition, run = said["predicate"]["buildDefinition"], said["predicate"]["runDetails"]
    assert definition["buildType"].startswith("urn:") and run["builder"]["id"].startswith("urn:")
    source, *tools = definition["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "c0ffee"} and definition["externalParameters"]["commit"] == "c0ffee"
    assert all(re.fullmatch(r"pkg:pypi/[a-z-]+@[0-9.]+", tool["uri"]) for tool in tools)
    assert definition["internalParameters"]["uncommittedChanges"] is True
    assert definition["internalParameters"]["sourceDateEpoch"] == ENVIRON["SOURCE_DATE_EPOCH"]
