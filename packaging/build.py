"""`make package`: the wheel, the sdist, their bill of materials and their provenance, in `dist`.

Both are built twice: here, and elsewhere out of the sdist, at another time and with other settings. Unless the two are
the same, byte for byte, nothing is left in `dist`. The time that stands in them is that of the last commit, or
SOURCE_DATE_EPOCH. The provenance is a statement of in-toto in the form of SLSA 1; it is not signed, since there is no
signer here: it says from which commit and with which tools the files were built, and proves nothing by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TOOLS = ("hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers")  # that have a part in the files
ELSEWHERE = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7"}


def main() -> None:
    environ = {"SOURCE_DATE_EPOCH": epoch(), **os.environ}
    with tempfile.TemporaryDirectory() as folder:
        first = built_twice(Path(folder), environ)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for file in first:
            shutil.copy(file, DIST)
        wheel = next(DIST.glob("*.whl"))
        name = "-".join(wheel.name.split("-")[:2])
        bill_of_materials(wheel, DIST / f"{name}.cdx.json", Path(folder), environ)
    said = statement(sorted(DIST.iterdir()), asked("rev-parse", "HEAD"), bool(asked("status", "--porcelain")), environ)
    (DIST / f"{name}.intoto.json").write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    lines = [f"{digest(file)}  {file.name}" for file in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("\n".join([*lines, ""]))
    print("\n".join(lines))


def epoch() -> str:
    return asked("log", "-1", "--format=%ct")


def asked(*arguments: str) -> str:
    """Of git."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def statement(files: Sequence[Path], commit: str, is_changed: bool, environ: Mapping[str, str]) -> dict[str, Any]:
    """Where these files come from. `is_changed`: there is more in them than in the commit."""
    tools = [{"uri": f"pkg:pypi/{tool}@{version(tool)}"} for tool in TOOLS]
    source = {"uri": "urn:toolgate:source", "digest": {"gitCommit": commit}}
    parameters: dict[str, Any] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "sourceDateEpoch": environ["SOURCE_DATE_EPOCH"],
        "uncommittedChanges": is_changed,
    }
    definition = {
        "buildType": "urn:toolgate:make-package:1",
        "externalParameters": {"source": source["uri"], "commit": commit},
        "internalParameters": parameters,
        "resolvedDependencies": [source, *tools],
    }
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": digest(file)}} for file in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": definition, "runDetails": {"builder": {"id": "urn:toolgate:local-build"}}},
    }


def built_twice(folder: Path, environ: Mapping[str, str]) -> list[Path]:
    """The files of the first build. Ends where the second one has others."""
    first = built(ROOT, folder / "first", environ)
    sdist = next(file for file in first if file.name.endswith(".tar.gz"))
    with tarfile.open(sdist) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    [source] = (folder / "unpacked").iterdir()
    before = os.umask(0o077)
    try:
        second = built(source, folder / "second", {**environ, **ELSEWHERE})
    finally:
        os.umask(before)
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            sys.exit(f"{one.name} is not the same when it is built again")
    return first


def built(source: Path, target: Path, environ: Mapping[str, str]) -> list[Path]:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    subprocess.run(command, cwd=source, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return sorted(target.iterdir())


def bill_of_materials(wheel: Path, file: Path, folder: Path, environ: Mapping[str, str]) -> None:
    """What is installed with the wheel, in the versions that the tests ran with."""
    fresh = folder / "installed"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    install = [sys.executable, "-m", "pip", "--python", fresh, "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
    make = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--short-PURLs"]
    project = ["--pyproject", str(ROOT / "pyproject.toml"), "-o", str(file), str(fresh / "bin" / "python")]
    subprocess.run([*make, *project], env=environ, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
