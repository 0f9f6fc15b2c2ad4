"""How tasks are shown to people: one in full, trees, the board, graphs. Pure: tasks as the tools answer, to lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rich.columns import Columns as Beside
from rich.panel import Panel
from rich.text import Text

from toolgate.catalog.poisoning import visible
from toolgate.workspace.board import TITLES

Task: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By their names; each is what a list of tasks answers."""

WIDTH = 38  # characters of a column of the board

# One task.


def described(task: Task) -> Iterator[str]:
    """What has a value, a line each; long texts below their names."""
    for key, value in task.items():
        if key == "dependencies":
            for name, others in value.items():
                for other in _items(others):
                    yield f"{name.replace('_', ' ')}: {_brief(other)}"
        elif isinstance(value, str) and "\n" in value:
            yield f"{key}:"
            yield from (f"  {line}" for line in value.splitlines())
        elif value not in (None, [], "", False):
            yield f"{key}: {', '.join(map(str, _items(value))) or value}"


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def _brief(task: Task) -> str:
    status = "" if task.get("status") == "open" else f" ({task.get('status')})"
    return visible(f"{task['id']} {task.get('title', '')}{status}")


# Trees.


def dependency_tree(task: Task) -> Iterator[str]:
    yield _brief(task)
    for way, title in (("blockers", "waits for"), ("blocking", "is waited for by")):
        if below := _items(task.get(way)):
            yield f"{title}:"
            yield from _below(below, way, "  ")
    if task.get("truncated"):
        yield "(the rest is not shown)"


def _below(tasks: Sequence[Task], way: str, indent: str) -> Iterator[str]:
    for task in tasks:
        more = " (as above)" if task.get("repeated") else " ..." if task.get("truncated") else ""
        yield f"{indent}{_brief(task)}{more}"
        yield from _below(_items(task.get(way)), way, indent + "  ")


def parts(tasks: Sequence[Task]) -> Iterator[str]:
    """Each task below the one that it is part of, where that is among them."""
    known = {task["id"]: task for task in tasks}
    below: dict[str, list[Task]] = {}
    for task in tasks:
        parent = str(task.get("parent_task_id"))
        below.setdefault(parent if parent in known else "", []).append(task)
    ahead = [(task, "") for task in reversed(below.get("", []))]
    while ahead:
        task, indent = ahead.pop()
        yield f"{indent}{_brief(task)}"
        ahead += [(each, indent + "  ") for each in reversed(below.pop(task["id"], []))]


# What a sync has done.


def synced(found: Mapping[str, Any]) -> Iterator[str]:
    if done := found.get("import"):
        if why := done.get("skipped"):
            yield f"nothing imported: {why}"
        else:
            said = ("created", "updated", "unchanged", "kept", "dependencies_added")
            yield f"imported {done['tasks']}: " + ", ".join(f"{key.replace('_', ' ')} {done[key]}" for key in said)
        yield from (f"left out: {each}" for each in done.get("refused", ()))
        for key, count in done.get("unknown_keys", {}).items():
            yield f"left out: the key {key}, in {count} lines"
    if done := found.get("export"):
        yield f"exported {done['tasks']} to {found['file']}" if done["written"] else f"{found['file']} is up to date"


# The board.


def board(columns: Columns) -> Beside:
    """For a terminal."""
    shown = [
        Panel(_cards(columns[name]["tasks"], name), title=_head(title, columns[name]), width=WIDTH)
        for name, title in TITLES.items()
        if columns[name]["tasks"] or name in ("ready", "blocked", "in_progress")
    ]
    return Beside(shown)


def _head(title: str, column: Mapping[str, Any]) -> str:
    return f"{title} ({len(column['tasks'])}{'+' if column['has_more'] else ''})"


def _cards(tasks: Sequence[Task], column: str) -> Text:
    text = Text()
    for task in tasks:
        text.append(f"{visible(task['id'])} P{task['priority']} ", "bold")
        text.append(f"{visible(task['title'])}\n")
        for blocker in task.get("blockers", ()) if column == "blocked" else ():
            text.append(f"  waits for {_brief(blocker)}\n", "yellow")
        if more := task.get("more_blockers"):
            text.append(f"  and for {more:,} more\n", "yellow")
    return text or Text("-")


def plain_board(columns: Columns) -> Iterator[str]:
    for name, title in TITLES.items():
        if columns[name]["tasks"]:
            yield _head(title, columns[name])
        for task in columns[name]["tasks"]:
            yield f"  {visible(task['id'])}  P{task['priority']}  {visible(task['title'])}"
            for blocker in task.get("blockers", ()):
                yield f"    waits for {_brief(blocker)}"
            if more := task.get("more_blockers"):
                yield f"    and for {more:,} more"


# Graphs. An arrow leads from what is done first to what waits for it.


def mermaid(tasks: Sequence[Task]) -> Iterator[str]:
    names = {task["id"]: f"t{number}" for number, task in enumerate(tasks, 1)}
    yield "graph TD"
    for task in tasks:
        label = _label(task).replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
        yield f'  {names[task["id"]]}["{label}"]:::{task["status"]}'
    for kind, start, end in _edges(tasks):
        arrow = {"blocks": "-->", "parent": "-.-", "discovered_from": "-. found .->", "related": "---"}[kind]
        yield f"  {names[start]} {arrow} {names[end]}"
    yield "  classDef closed fill:#ddd"
    yield "  classDef in_progress fill:#cfe8ff"
    yield "  classDef failed fill:#f8d0d0"
    yield "  classDef escalated fill:#fbe3b5"


def dot(tasks: Sequence[Task]) -> Iterator[str]:
    yield "digraph tasks {"
    yield "  node [shape=box];"
    for task in tasks:
        style = ' style="dashed"' if task["status"] == "closed" else ""
        yield f"  {_quoted(task['id'])} [label={_quoted(_label(task))}{style}];"
    for kind, start, end in _edges(tasks):
        style = "" if kind == "blocks" else f' [style=dotted label="{"part of" if kind == "parent" else kind}"]'
        yield f"  {_quoted(start)} -> {_quoted(end)}{style};"
    yield "}"


def _label(task: Task) -> str:
    return visible(f"{task['id']}: {task['title']}")


def _quoted(text: str) -> str:
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _edges(tasks: Sequence[Task]) -> Iterator[tuple[str, str, str]]:
    """Between those that are shown, each once."""
    known = {task["id"] for task in tasks}
    for task in tasks:
        waits = task.get("dependencies", {})
        for name, kind in (("blocked_by", "blocks"), ("discovered_from", "discovered_from"), ("related", "related")):
            for other in waits.get(name, ()):
                if other["id"] in known and (kind != "related" or other["id"] < task["id"]):
                    yield kind, other["id"], task["id"]
        if (parent := str(task.get("parent_task_id"))) in known:
            yield "parent", parent, task["id"]


FORMATS: Mapping[str, Callable[[Sequence[Task]], Iterator[str]]] = {"mermaid": mermaid, "dot": dot}
