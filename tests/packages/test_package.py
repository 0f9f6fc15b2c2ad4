"""The wheel and the sdist: built again elsewhere they are the same, and they hold what toolgate needs and no more."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

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
