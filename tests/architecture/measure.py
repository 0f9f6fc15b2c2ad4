"""The figures of the structure, measured on `src/toolgate` and `docs/architecture.md`; run as a script it prints them.

    python tests/architecture/measure.py

`ratchets.toml` keeps each figure, with its goal. Less is better for all of them. What a change touches is counted
where it is made (`trial`), or read off one example, which moves as the structure does.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from architecture import imports, trial, warm_call
from architecture.imports import SOURCE

from toolgate.config import Config, fields
from toolgate.config.fields import Section

RATCHETS = Path(__file__).with_name("ratchets.toml")
MAP = SOURCE.parents[1] / "docs" / "architecture.md"


@cache
def kept() -> Mapping[str, Any]:
    return tomllib.loads(RATCHETS.read_text())


# The package and its imports.


def entries_at_the_top() -> int:
    return sum(path.suffix != ".typed" and path.name != "__pycache__" for path in SOURCE.iterdir())


def chain_between_rooms() -> int:
    return len(imports.longest_chain(imports.between_rooms()))


def chain_inside_a_room() -> int:
    return max(len(imports.longest_chain(imports.inside(room))) for room in imports.between_rooms())


def chain_of_modules() -> int:
    return len(imports.longest_chain(imports.graph()))


def import_cycles() -> int:
    return len(imports.cycles())


# Protocols.


class Class(NamedTuple):
    module: str
    name: str
    bases: tuple[str, ...]
    members: frozenset[str]  # methods and attributes that its own body defines

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.bases


@cache
def classes() -> tuple[Class, ...]:
    return tuple(
        Class(module, node.name, tuple(_bases(node)), frozenset(_members(node)))
        for module, tree in imports.modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def _bases(node: ast.ClassDef) -> Iterator[str]:
    for base in node.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(named, ast.Name):
            yield named.id


def _members(node: ast.ClassDef) -> Iterator[str]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name
            yield from _set_on_self(part)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id
        elif isinstance(part, ast.Assign):
            yield from (target.id for target in part.targets if isinstance(target, ast.Name))


def _set_on_self(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_set and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node.attr


@cache
def members_by_class() -> Mapping[Class, frozenset[str]]:
    """By class, its members with those of its bases; a base is known by its name alone."""
    by_name: dict[str, list[Class]] = {}
    for each in classes():
        by_name.setdefault(each.name, []).append(each)

    def with_bases(found: Class, below: frozenset[Class] = frozenset()) -> frozenset[str]:
        seen = below | {found}
        bases = [each for name in found.bases for each in by_name.get(name, ()) if each not in seen]
        return found.members.union(*(with_bases(base, seen) for base in bases))

    return {each: with_bases(each) for each in classes()}


@cache
def protocols() -> Mapping[str, tuple[str, ...]]:
    """By protocol, the classes of the product that have all of its members."""
    members = members_by_class()
    return {
        f"{protocol.module}.{protocol.name}": tuple(
            f"{each.module}.{each.name}"
            for each, found in members.items()
            if not each.is_protocol and members[protocol] <= found
        )
        for protocol in members
        if protocol.is_protocol
    }


def with_one_implementation() -> set[str]:
    return {protocol for protocol, found in protocols().items() if len(found) == 1}


def protocols_with_one_implementation() -> int:
    return len(with_one_implementation() - kept()["excused_protocols"].keys())


# What one change touches: the files that name one example of its kind, other than its own.

EXAMPLES: Mapping[str, tuple[str, str]] = {  # the names, and the modules that are its own
    "page": (r"toolgate\.frontends\.web(\..*)?|/connect.*|/admin.*", "frontends.web"),
}


def files_for(kind: str) -> Callable[[], int]:
    pattern, own = EXAMPLES[kind]
    return lambda: len(files_that_name(pattern, own))


def files_that_name(pattern: str, own: str = "") -> list[str]:
    fits = re.compile(pattern).fullmatch
    return [
        module
        for module, names in all_names().items()
        if imports.room_of(module) != "demo"
        and not (own and f"{module}.".startswith(f"{own}."))
        and any(map(fits, names))
    ]


@cache
def all_names() -> Mapping[str, frozenset[str]]:
    return {module: frozenset(names_in(tree)) for module, tree in imports.modules().items()}


def names_in(tree: ast.Module) -> Iterator[str]:
    """Names, imported modules and strings; a string of several lines is a docstring or a text."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
                yield name
            case _:
                pass


@cache
def keys() -> Mapping[str, int]:
    """The keys of the configuration whose names are made of several words, and in how many structs each is; everyday
    words mean other things, too."""

    def below(struct: type) -> Iterator[str]:
        for key, row in fields.rows(struct).items():
            yield key
            inner = row.struct if isinstance(row, Section) else getattr(getattr(row, "kind", None), "struct", None)
            yield from below(inner) if inner else getattr(row, "later", None) or ()

    return Counter(key for key in below(Config) if re.search("[a-z][_A-Z]", key))


def known_elsewhere() -> Mapping[str, list[str]]:
    """By key, the places that know it, where those are more than the structs that have it."""
    found = {key: places_that_know(key) for key in keys()}
    return {key: places for key, places in found.items() if len(places) > keys()[key]}


def places_that_know_a_key() -> int:
    unexcused = known_elsewhere().keys() - kept()["excused_keys"].keys()
    return max((len(places_that_know(key)) - keys()[key] + 1 for key in unexcused), default=1)


def places_that_know(key: str) -> list[str]:
    """Statements at the top of a module that have the key as a field, a string or an argument's name."""
    return [
        f"{module}:{statement.lineno}"
        for module, tree in imports.modules().items()
        if key in all_names()[module]
        for statement in tree.body
        if any(_names_key(node, key) for node in ast.walk(statement))
    ]


def _names_key(node: ast.AST, key: str) -> bool:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
            return name == key
        case _:
            return False


# The page that explains the structure.


def words_of_our_own() -> int:
    """The words that the table "Words" of docs/architecture.md explains."""
    rows = re.findall(r"^\| (.+?) \|", section("Words"), re.M)
    return sum(len(row.split(",")) for row in rows if row != "word" and not row.startswith("-"))


def lines_of_the_core() -> int:
    """The lines of code that the table "An hour's reading" names. Of files that "or" joins, the longest counts."""
    return sum(_lines_of(row) for row in section("An hour's reading").splitlines() if row.startswith("|"))


_READING = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`(: the docstrings| from `\w+` on| to `[\w.]+`)?")


def _lines_of(row: str) -> int:
    found = [lines_of_code(file, part) for file, part in _READING.findall(row)]
    return max(found, default=0) if " or `" in row else sum(found)


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", MAP.read_text(), re.M | re.S)
    assert found, f"{MAP.name} has no section {title!r}"
    return found[1]


def lines_of_code(file: str, part: str = "") -> int:
    """Without blank lines, comments and docstrings. `part`: ` from NAME on`, ` to NAME`, or `: the docstrings`, which
    are no code."""
    text = (SOURCE / file).read_text()
    tree = ast.parse(text)
    named = part.rpartition("`")[0].partition("`")[2]
    first, last = 1, len(text.splitlines())
    if part.startswith(" from"):
        first = _definition(tree, named).lineno
    elif part:
        last = _definition(tree, named).end_lineno or last if named else 0
    silent = {line for each in _docstrings(tree) for line in range(each.lineno, (each.end_lineno or 0) + 1)}
    lines = enumerate((line.strip() for line in text.splitlines()), start=1)
    return sum(first <= at <= last and at not in silent and line[:1] not in ("", "#") for at, line in lines)


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None and isinstance(node.body[0], ast.Expr):
            yield node.body[0].value


def _definition(tree: ast.AST, name: str) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
    first, _, rest = name.partition(".")
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = next(node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == first)
    return _definition(found, rest) if rest else found


# One call.

one_call = cache(warm_call.measured)

FIGURES: Mapping[str, Callable[[], int]] = {
    "entries at the top of the package": entries_at_the_top,
    "longest chain of imports between rooms": chain_between_rooms,
    "longest chain of imports inside a room": chain_inside_a_room,
    "longest chain of imports of modules": chain_of_modules,
    "import cycles": import_cycles,
    "protocols with one implementation": protocols_with_one_implementation,
    "words of our own": words_of_our_own,
    "places that know one key of the configuration": places_that_know_a_key,
    "files changed for a new method": lambda: trial.files("method", are_new=False),
    "files changed for a new kind": lambda: trial.files("kind", are_new=False),
    "files made for a new kind": lambda: trial.files("kind", are_new=True),
    "files changed for a new policy": lambda: trial.files("policy", are_new=False),
    "files made for a new policy": lambda: trial.files("policy", are_new=True),
    "files changed for a new revision": lambda: trial.files("revision", are_new=False),
    "files made for a new revision": lambda: trial.files("revision", are_new=True),
    "files for a new page": files_for("page"),
    "lines of the core": lines_of_the_core,
    "files of a warm call": lambda: len(one_call().files),
    "moves between files in a warm call": lambda: one_call().moves,
    "calls of our functions in a warm call": lambda: one_call().calls,
    "files of the spine": lambda: len(kept()["spine"]["files"]),
}


if __name__ == "__main__":
    print(f"{'':48} {'now':>6} {'kept':>6} {'goal':>6}")
    for name, figure in FIGURES.items():
        row = kept()["figures"].get(name, {})
        print(f"{name:48} {figure():6} {row.get('kept', '-'):>6} {row.get('goal', '-'):>6}")
