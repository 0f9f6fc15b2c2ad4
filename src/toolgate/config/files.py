"""The file of a configuration on disk: which one it is, its text, and the lines that problems stand in."""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from toolgate.config import ownership
from toolgate.config.formats import LONGEST, SUFFIXES, Format, Malformed, line_of, parse
from toolgate.config.problems import ConfigError, Problem, dotted, refused
from toolgate.config.values import Finding

NAMES = ("toolgate.toml", "toolgate.yaml", "toolgate.yml", "toolgate.json")
VARIABLE = "TOOLGATE_CONFIG"  # names a file as --config does
MOST_LINES = 20  # problems of a file whose lines are looked up: each look reads the text again


def find(explicit: str | None, cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the one that was named, here or by `TOOLGATE_CONFIG`, the working directory's, the user's.
    None: there is none.

    A file that was named need not exist: `load` says so.
    """
    named = explicit if explicit is not None else environ.get(VARIABLE)
    if named:
        return cwd / named
    places = (folder / name for folder in (cwd, *own_folders(environ)) for name in NAMES)
    return next((path for path in places if os.path.isfile(path)), None)


def is_strangers(path: Path, explicit: str | None, environ: Mapping[str, str]) -> bool:
    """Whether what `find` has found may be anybody's: nobody has named it, and it is not the user's own."""
    if explicit is not None or environ.get(VARIABLE):
        return False
    return os.path.realpath(path.parent) not in map(os.path.realpath, own_folders(environ))


def own_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    """The user's own, if there is one."""
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    configs = environ.get("XDG_CONFIG_HOME") or ""
    if os.path.isabs(configs):  # else it would be below whatever folder the command was started in
        yield Path(configs, "toolgate")
    elif os.path.isabs(home):
        yield Path(home, ".config", "toolgate")


def tree_of(path: Path, accept: Callable[[bytes], None] = lambda _: None, longest: int = LONGEST) -> object:
    """The plain values of a file. Raises `ConfigError`."""
    file = str(path)
    format = SUFFIXES.get(path.suffix.lower())
    if path.suffix.lower() in (".mcpb", ".dxt"):
        raise refused(file, "is a packed bundle", "unpack it, and give the manifest.json from it")
    if not format:
        raise refused(file, "is not a TOML, YAML or JSON file", f"use {', '.join(SUFFIXES)}")
    return parsed(_text(path, accept, longest), file, format, longest)


def parsed(text: str, file: str, format: Format, longest: int = LONGEST) -> object:
    """The plain values of a text. Raises `ConfigError`."""
    try:
        return parse(text, format, longest)
    except Malformed as error:
        place = f"{file}:{error.line}:{error.column}" if error.line else file
        raise refused(place, error.message) from None


def placed(findings: Iterable[Finding], file: str, given: str | None = None) -> tuple[Problem, ...]:
    """The findings with the lines that their keys stand in, as far as the file still says so, or the text that was
    given."""
    findings = tuple(findings)
    format = SUFFIXES.get(Path(file).suffix.lower())
    text = given or ""
    if findings and format and given is None:
        with contextlib.suppress(ConfigError):
            text = _text(Path(file))
    problems: list[Problem] = []
    for each in findings:
        line = line_of(text, format, each.path) if format and text and len(problems) < MOST_LINES else 0
        place = f"{file}:{line}" if line else file
        problems.append(Problem(place, dotted(each.path), each.message, each.fix))
    return tuple(problems)


def _text(path: Path, accept: Callable[[bytes], None] = lambda _: None, longest: int = LONGEST) -> str:
    try:
        with ownership.open_anyones(path) as file:
            data = file.read(4 * longest + 1)
        accept(data)
        return data.decode()
    except UnicodeDecodeError:
        raise refused(str(path), "is not UTF-8", "save it as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        said = (isinstance(error, OSError) and error.strerror) or "no such file"
        raise refused(str(path), f"cannot be read ({said})") from None
