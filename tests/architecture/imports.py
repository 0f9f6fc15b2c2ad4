"""Who imports whom in the product: the modules of `src/toolgate` and the imports among them, read by `ast`.

Imports for type checkers count: a reader follows them like all others. `from package import module` is an import of
the module; of a package alone it is one of its `__init__`.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

SOURCE = Path(__file__).parents[2] / "src" / "toolgate"

Graph: TypeAlias = Mapping[str, frozenset[str]]  # by name, what it imports


def name_of(path: Path) -> str:
    """The module's name below `toolgate`; a package goes by its own name."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> Mapping[str, ast.Module]:
    found = {name_of(path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    gc.collect()
    gc.freeze()  # the nodes stay: no later collection has to look at them
    return found


@cache
def graph() -> Graph:
    known = set(modules())
    return {name: frozenset(imported(tree, known)) - {name} for name, tree in modules().items()}


def imported(tree: ast.Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (below(alias.name) for alias in node.names if alias.name.split(".")[0] == "toolgate")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "toolgate":
            package = below(node.module or "")
            for alias in node.names:
                module = f"{package}.{alias.name}".lstrip(".")
                yield module if module in known else package


def below(module: str) -> str:
    return module.partition(".")[2]


def room_of(module: str) -> str:
    """The folder of `src/toolgate` that a module is in; the modules beside the folders are in none."""
    top = module.split(".")[0]
    return top if (SOURCE / top).is_dir() and top else ""


def between_rooms() -> Graph:
    rooms = {room for room in map(room_of, graph()) if room}
    return {
        room: frozenset(room_of(other) for name, others in graph().items() if room_of(name) == room for other in others)
        - {room, ""}
        for room in rooms
    }


def inside(room: str) -> Graph:
    """The imports among the modules of one room."""
    names = {name for name in graph() if room_of(name) == room}
    return {name: graph()[name] & names for name in names}


def longest_chain(among: Graph) -> list[str]:
    """The longest chain of imports, from the top. The members of a cycle stand in it one after the other."""
    groups = strongly_connected(among)
    group_of = {name: group for group in groups for name in group}
    chains: dict[frozenset[str], list[str]] = {}
    for group in groups:  # what a group imports stands before it
        imports = {group_of[other] for name in group for other in among[name]} - {group}
        chains[group] = sorted(group) + max((chains[each] for each in imports), key=_length, default=[])
    return max(chains.values(), key=_length, default=[])


def _length(chain: list[str]) -> tuple[int, list[str]]:
    return len(chain), chain


def cycles() -> list[frozenset[str]]:
    """Cycles among modules, and among the members of each package, whichever of their modules import each other."""
    packages = {"", *(name.rpartition(".")[0] for name in graph())}
    among = [graph(), *(members(package) for package in sorted(packages))]
    return [group for each in among for group in strongly_connected(each) if len(group) > 1]


def members(package: str) -> Graph:
    """The imports among the modules and packages right below a package. Its `__init__` is none of them."""
    start = f"{package}." if package else ""

    def member(name: str) -> str:
        return name.removeprefix(start).split(".")[0] if name.startswith(start) else ""

    names = {member(name) for name in graph()} - {""}
    return {
        each: frozenset(member(other) for name in graph() if member(name) == each for other in graph()[name])
        - {each, ""}
        for each in names
    }


def strongly_connected(among: Graph) -> list[frozenset[str]]:
    """Tarjan's algorithm: the sets of names that all import each other, each set after those that it imports."""
    found: list[frozenset[str]] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in sorted(among[name]):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            start = stack.index(name)
            found.append(frozenset(stack[start:]))
            del stack[start:]

    for name in sorted(among):
        if name not in order:
            visit(name)
    return found
