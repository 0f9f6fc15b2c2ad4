"""Rules that no linter knows: `make check` runs this script. It prints each line that breaks a rule, and then fails.

1. A module of ours is imported at the top: late imports hide who knows whom (import-linter sees only what is there).
2. Which era a peer is of is tested in `eras`, `frontends` and `upstreams/mcp`, and nowhere else (`model` and `config`
   say only that clients have one, and servers may).
3. What catches everything says why on its line: it is the rescue or a pump; or it raises again.
4. A file says in its first lines what it is for.
5. Nobody compares revisions but their table, `core/mcp.py`: a difference is a field of `mcp.Revision`.
6. Where JSON becomes plain values, Python reads the numbers (`core/plain.py` says why): by that, or by `jsonrpc`. But
   for commands, which nobody waits for but who started them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "toolgate"
KNOW_ERAS = ("eras/", "frontends/", "upstreams/mcp/", "core/mcp.py", "core/model.py", "demo/", "config/server.py")
ERA = {"era", "is_modern", "is_legacy"}
REVISION = {"revision", "date", "LATEST", "UNSTATED"}
MAY_COMPARE_REVISIONS = ("core/mcp.py", "demo/")
DATE = re.compile(r"20\d\d-\d\d-\d\d")
READERS = ("msgspec.json.decode", "msgspec.json.Decoder")
REASONS = ("the rescue", "pump")

Found = Iterator[tuple[int, str]]


def late_imports(tree: ast.Module) -> Found:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(function):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or "toolgate"] if isinstance(node, ast.ImportFrom) else []
            yield from ((node.lineno, f"imports {name} late") for name in modules if name.split(".")[0] == "toolgate")


def tests_of_the_era(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if name_of(node) in ERA:
            yield node.lineno, f"asks for {name_of(node)}: that is for those who know eras"  # type: ignore[attr-defined]


def comparisons_of_revisions(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
            continue
        for part in (node.left, *node.comparators):
            is_date = isinstance(part, ast.Constant) and DATE.fullmatch(str(part.value))
            if is_date or name_of(part) in REVISION or _is_row(part):
                yield node.lineno, "compares revisions: a difference is a field of `mcp.Revision`"


def _is_row(part: ast.expr) -> bool:
    """Whether it is looked up: `LATEST[era]`."""
    return isinstance(part, ast.Subscript) and name_of(part.value) in REVISION


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def catches_of_everything(tree: ast.Module, lines: list[str]) -> Found:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = {name_of(part) for part in ast.walk(node.type)} if node.type else {"everything"}
        reason = lines[node.lineno - 1].partition("#")[2]
        raises_again = isinstance(node.body[-1], ast.Raise)
        if caught & {"Exception", "everything"} and not any(word in reason for word in REASONS):
            yield node.lineno, f"catches everything, and does not say that it is {' or a '.join(REASONS)}"
        elif "BaseException" in caught and not raises_again:
            yield node.lineno, "catches even a cancellation, and does not raise it again"


def readers_of_plain_values(tree: ast.Module) -> Found:
    """A type that another module defines is not looked into."""
    nodes = list(ast.walk(tree))
    plain = {"Any", "object"}
    plain |= {node.name for node in nodes if isinstance(node, ast.ClassDef) and any(map(_is_any, node.body))}
    for node in nodes:
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in READERS:
            continue
        given = {each.arg: each.value for each in node.keywords}
        kind = given.get("type", *node.args[:1] if name_of(node.func) == "Decoder" else ())
        is_plain = kind is None or any(name_of(part) in plain for part in ast.walk(kind))
        if is_plain and "float_hook" not in given:
            yield node.lineno, "reads plain values by msgspec alone: that is for `core.plain`"


def _is_any(field: ast.stmt) -> bool:
    return isinstance(field, ast.AnnAssign) and any(name_of(part) == "Any" for part in ast.walk(field.annotation))


def problems(path: Path) -> Found:
    text = path.read_text()
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield 1, "does not say what it is for"
    yield from late_imports(tree)
    yield from catches_of_everything(tree, text.splitlines())
    if not path.relative_to(SOURCE).as_posix().startswith(KNOW_ERAS):
        yield from tests_of_the_era(tree)
    if not path.relative_to(SOURCE).as_posix().startswith(MAY_COMPARE_REVISIONS):
        yield from comparisons_of_revisions(tree)
    if not path.relative_to(SOURCE).as_posix().startswith("cli/"):
        yield from readers_of_plain_values(tree)


def broken() -> list[str]:
    """Each line of the source that breaks a rule, as `file:line: what is wrong`."""
    found = [(path, *each) for path in sorted(SOURCE.rglob("*.py")) for each in sorted(set(problems(path)))]
    return [f"{path.relative_to(SOURCE.parents[1])}:{line}: {what}" for path, line, what in found]


if __name__ == "__main__":
    lines = broken()
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(bool(lines))
