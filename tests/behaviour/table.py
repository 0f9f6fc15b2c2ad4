"""Promises and their tests, read from `promises.toml` and from the markers; run as a script it prints them as a table.

    python tests/behaviour/table.py            everything, by source
    python tests/behaviour/table.py seed 001   what begins so

A promise is served now, and has a test that is marked `@pytest.mark.promise("its.id")`, or it is `later`: the number
of the issue that brings it, or one of `UNNUMBERED`. The rule this file keeps: nothing is imported or run for it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TESTS = HERE.parent

# Where a promise may come from: the sections of each text that promise anything.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "seed 000": (
        "execute_child_tool",
        "get_schema",
        "list_registered_children",
        "get_child_status",
        "close_child_session",
        "Resource URIs",
        "Advanced Parameters",
        "Error Codes",
        "Performance Considerations",
        "Integration Patterns",
    ),
    "seed 001": (
        "mcp-endpoint",
        "mcp-tool-namespacing",
        "mcp-session-lifecycle",
        "mcp-authentication",
        "mcp-methods",
        "mcp-tools-list",
        "mcp-tools-call",
        "mcp-resources-list",
        "mcp-resources-read",
        "mcp-prompts-list",
        "mcp-prompts-get",
        "mcp-error-handling",
    ),
    "seed 002": ("mcp_discover", "mcp_provision", "mcp_call", "mcp_execute", "Response format", "Error handling"),
    "seed 003": (
        "Configuration",
        "Supported Methods",
        "Request Flow",
        "Tool Component Requirements",
        "Error Handling",
        "Performance Features",
        "Usage Example",
    ),
    "seed 004": (
        "Daemon Status",
        "Tool Proxy",
        "Server Management",
        "Code Execution",
        "AI-Powered",
        "Session Hooks",
        "Codex Integration",
        "Task Management",
        "Progressive Disclosure Pattern",
        "Error Handling",
    ),
    "behaviour": ("1", "2", "3 000", "3 001", "3 002", "3 003", "3 004", "3 004 tasks", "4", "5", "6", "7"),
    "spec 2025-03-26": ("basic/index",),
    "spec 2025-11-25": (
        "basic/index",
        "basic/lifecycle",
        "basic/transports",
        "basic/utilities/cancellation",
        "basic/utilities/ping",
        "basic/utilities/progress",
        "basic/utilities/tasks",
        "client/elicitation",
        "client/roots",
        "client/sampling",
        "server/utilities/logging",
    ),
    "spec 2026-07-28": (
        "basic/authorization/authorization-server-discovery",
        "basic/authorization/client-registration",
        "basic/authorization/index",
        "basic/authorization/security-considerations",
        "basic/index",
        "basic/versioning",
        "basic/transports/index",
        "basic/transports/stdio",
        "basic/transports/streamable-http",
        "basic/patterns/cancellation",
        "basic/patterns/mrtr supported requests",
        *(f"basic/patterns/mrtr server {number}" for number in (3, 4, 5, 6, 7, 8)),
        *(f"basic/patterns/mrtr client {number}" for number in (2, 3, 4)),
        "basic/patterns/mrtr error handling",
        "basic/patterns/progress",
        "basic/patterns/subscriptions",
        "client/elicitation",
        "client/roots",
        "client/sampling",
        "extensions/tasks",
        "server/discover",
        "server/resources",
        "server/tools",
        "server/utilities/caching",
        "server/utilities/completion",
        "server/utilities/logging",
        "server/utilities/pagination",
    ),
}
SOURCES = tuple(f"{text} {section}" for text, sections in SECTIONS.items() for section in sections)

ISSUES = (3, 4, 5)  # that bring what is not served yet
UNNUMBERED = ("hooks", "sandbox", "tasks")  # subjects of issues that have no number yet


class Promise(NamedTuple):
    id: str
    text: str
    sources: tuple[str, ...]
    later: int | str | None


class Test(NamedTuple):
    """A marked test, or a whole file by its `pytestmark`. `fails`: all of it, or some case, is expected to fail."""

    place: str
    name: str
    fails: bool


def promises() -> list[Promise]:
    """In the order of the file. Raises `tomllib.TOMLDecodeError` where an id stands there twice."""
    found = tomllib.loads((HERE / "promises.toml").read_text())
    return [_promise(id, row) for id, row in found.items()]


def _promise(id: str, row: dict[str, object]) -> Promise:
    if unknown := row.keys() - {"text", "source", "later"}:
        raise ValueError(f"{id}: unknown keys {unknown}")
    source = row["source"]
    sources = tuple(map(str, source)) if isinstance(source, list) else (str(source),)
    later = row.get("later")
    assert later is None or isinstance(later, int | str)
    return Promise(id, str(row["text"]), sources, later)


def marked() -> dict[str, list[Test]]:
    """The tests of each id that any marker names."""
    found: dict[str, list[Test]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "promise(" not in text:
            continue
        tree = ast.parse(text)
        failing = {name for name, value in _assigned(tree) if "xfail" in ast.unparse(value)}
        for name, marks in _marks(tree):
            fails = any("xfail" in ast.unparse(mark) or _names(mark) & failing for mark in marks)
            for id in (id for mark in marks for id in _ids(mark)):
                found.setdefault(id, []).append(Test(path.relative_to(TESTS).as_posix(), name, fails))
    return found


def _marks(tree: ast.Module) -> Iterator[tuple[str, list[ast.expr]]]:
    for name, value in _assigned(tree):
        if name == "pytestmark":
            yield "(all)", list(value.elts) if isinstance(value, ast.List | ast.Tuple) else [value]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.decorator_list:
            yield node.name, node.decorator_list


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _ids(mark: ast.expr) -> list[str]:
    if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != "pytest.mark.promise":
        return []
    ids = [each.value if isinstance(each, ast.Constant) else None for each in mark.args]
    if not ids or mark.keywords or not all(isinstance(id, str) for id in ids):
        raise ValueError(f"a promise is named by plain text: {ast.unparse(mark)}")
    return [str(id) for id in ids]


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def lines(wanted: str = "") -> Iterator[str]:
    rows, tests = promises(), marked()
    for source in SOURCES:
        here = [row for row in rows if source in row.sources]
        if not source.startswith(wanted) or not here:
            continue
        yield f"\n{source}"
        for row in here:
            yield f"  {row.id:<36} {row.text}"
            if row.later is not None:
                yield f"  {'':<36}   later: {f'issue {row.later}' if isinstance(row.later, int) else row.later}"
            for test in tests.get(row.id, []):
                yield f"  {'':<36}   {test.place}::{test.name}{'  (expected to fail)' if test.fails else ''}"
    if wanted:
        return
    later = sum(row.later is not None for row in rows)
    unkept = [row.id for row in rows if any(test.fails for test in tests.get(row.id, []))]
    yield f"\n{len(rows)} promises: {len(rows) - later} served now, {later} later."
    if unkept:
        yield f"Not kept, or not in every case: {', '.join(unkept)}."


if __name__ == "__main__":
    print("\n".join(lines(" ".join(sys.argv[1:]))).lstrip())
