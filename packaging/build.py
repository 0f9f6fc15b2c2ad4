"""`make package`: the wheel, the sdist and their bill of materials, in `dist`.

Both are built twice: here, and elsewhere out of the sdist, at another time and with other settings. Unless the two are
the same, byte for byte, nothing is left in `dist`. The time that stands in them is that of the last commit, or
SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
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
        bill_of_materials(wheel, DIST / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json", Path(folder), environ)
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("\n".join([*lines, ""]))
    print("\n".join(lines))


def epoch() -> str:
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    return asked.stdout.strip()


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
