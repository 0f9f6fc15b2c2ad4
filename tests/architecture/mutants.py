"""Are the tests of what decides good enough to notice a mistake there? `make mutants` runs this.

For each module of `mutants.toml` mutmut makes every small change it knows, one at a time, and runs the tests that the
file names for that module. A change that no test notices has survived. The run fails where a survivor is not written
down in the file with its reason, where one is written down that does not survive any more, or where fewer are noticed
than `least_percent`.

    python tests/architecture/mutants.py                   all modules
    python tests/architecture/mutants.py auth/keys.py ...  these
    python tests/architecture/mutants.py --shown ...       what the last run found of them, without another run

All that it makes is in `build/mutants`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from mutmut.mutation.diff_apply import get_diff_for_mutant

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "mutants"
KEPT = Path(__file__).with_name("mutants.toml")
NOBODY_NOTICED = {0, 5, 33}  # exit codes of mutmut: survived; no test runs what was changed
TOO_SLOW = {36, 24, -24, 152, 255, -9}  # was ended, since its tests did not


class Change(NamedTuple):
    """One mutation: the function (`Rules.verdict`), and its line or lines before and after."""

    function: str
    was: str
    now: str


class Found(NamedTuple):
    """`slow` are noticed, as far as anybody can tell: on a busy machine they may be survivors whose time was over."""

    mutants: int
    survivors: Counter[Change]
    slow: Counter[Change]
    seconds: int


def main(arguments: list[str]) -> int:
    kept = tomllib.loads(KEPT.read_text())
    is_shown = "--shown" in arguments
    modules = [each for each in arguments if each != "--shown"] or list(kept["modules"])
    if unknown := set(modules) - set(kept["modules"]):
        print(f"{KEPT.name} has no module {', '.join(sorted(unknown))}")
        return 2
    is_good = True
    for module in modules:
        if not is_shown:
            run(module, kept["modules"][module]["tests"])
        is_good &= judged(module, found(module), kept)
    return 0 if is_good else 1


def run(module: str, tests: list[str]) -> None:
    """All mutants of a module, in a copy of the project under `build/mutants`. Raises `SystemExit` where the tests fail
    without any change."""
    place = _place(module)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in ("src", "tests", "docs"):
        (place / name).symlink_to(ROOT / name)
    settings = {
        "source_paths": ["src"],
        "only_mutate": [f"src/toolgate/{module}"],
        "also_copy": ["docs"],
        "pytest_add_cli_args": ["-p", "no:xdist", "-m", "not attack"],
        "pytest_add_cli_args_test_selection": tests,
        "do_not_mutate_patterns": [r"TypeVar\(", r"\bcast\("],
        "timeout_constant": 3.0,  # seconds beside what the tests take, which is multiplied with them
        "timeout_multiplier": 2.5,
        "track_dependencies": False,
        "use_git_change_detection": False,
    }
    written = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (place / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + "\n[tool.mutmut]\n" + written)
    print(f"{module} ... ({place.relative_to(ROOT)}/log)", flush=True)
    started = time.monotonic()
    with (place / "log").open("w") as log:
        command = [Path(sys.executable).with_name("mutmut"), "run", "--max-children", "1"]
        code = subprocess.run(command, cwd=place, stdout=log, stderr=log, check=False).returncode
    if code:
        print(*(place / "log").read_text().splitlines()[-40:], sep="\n")
        raise SystemExit(f"mutmut failed on {module}: the whole of it is in {place / 'log'}")
    (place / "seconds").write_text(str(round(time.monotonic() - started)))


def found(module: str) -> Found:
    place = _place(module)
    source = Path("src", "toolgate", module)
    codes: dict[str, int | None] = json.loads((place / "mutants" / f"{source}.meta").read_text())["exit_code_by_key"]
    if None in codes.values():
        raise SystemExit(f"the run over {module} did not end")
    with contextlib.chdir(place):
        survivors, slow = (
            Counter(_change(name, source) for name, code in codes.items() if code in several)
            for several in (NOBODY_NOTICED, TOO_SLOW)
        )
    return Found(len(codes), survivors, slow, int((place / "seconds").read_text()))


def judged(module: str, found: Found, kept: dict[str, Any]) -> bool:
    """Print what was found of a module, and say whether it is as `mutants.toml` has it."""
    listed = Counter(
        Change(each["function"], each["was"], now)
        for each in kept["modules"][module].get("survivors", [])
        for now in ([each["now"]] if isinstance(each["now"], str) else each["now"])
    )
    alive = found.survivors.total()
    percent = 100 * (found.mutants - alive) / found.mutants
    new, gone = found.survivors - listed, listed - found.survivors - found.slow
    print(f"{module}: {found.mutants - alive} of {found.mutants} noticed ({percent:.1f} %), {found.seconds} s")
    for title, changes in (("survives, and has no reason", new), ("is listed, and does not survive", gone)):
        for change in sorted(changes.elements()):
            print(f"  {title}: {change.function}\n    - {change.was}\n    + {change.now}")
    if percent < kept["least_percent"]:
        print(f"  fewer than {kept['least_percent']} % are noticed")
    return not new and not gone and percent >= kept["least_percent"]


def _change(name: str, source: Path) -> Change:
    lines = get_diff_for_mutant(name, path=source).splitlines()[2:]
    was, now = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    function = name.rpartition("__mutmut_")[0].rpartition(".")[2]
    return Change(function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", "."), was, now)


def _place(module: str) -> Path:
    return BUILT / module.removesuffix(".py").replace("/", ".")


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.exit(main(sys.argv[1:]))
