"""`toolgate tasks`: the tasks of the project in this folder, for people.

All of it goes through the tools of `gobby-tasks`, at the gateway that runs or at one of its own: so a person sees and
changes what agents do. The rule this file keeps: texts of tasks are shown so that nothing in them acts on the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Raw
from rich.console import Console
from rich.live import Live

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, git_hooks, printing, progress, task_views
from toolgate.cli.printing import aligned
from toolgate.config import Config
from toolgate.core import jsonrpc
from toolgate.workspace.board import MOST_CLOSED
from toolgate.workspace.projects import project_of

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, create, close and sync the project's tasks.")

LOOK = 1.0  # seconds between looks of a board
SHOW = 0.3  # seconds between looks at how far a sync is
MOST_SHOWN = 200  # tasks in a column of the board
MOST_IN_GRAPH = 500
HOOK_TIME = 30.0  # seconds that git waits for a hook

Id = Annotated[str, typer.Argument(help="The task's id, such as gt-1a2b3c.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option("--limit", help="The maximum number of tasks.", min=1)]
Priority = Annotated[int | None, typer.Option("--priority", help="0 critical, 1 high, 2 medium, 3 low.", min=0, max=3)]
TaskType = Annotated[str | None, typer.Option("--type", help="task, bug, feature, epic or chore.")]
Parent = Annotated[str | None, typer.Option("--parent", help="The id of the task that it is part of.")]


# Asking the gateway.


class _Result(msgspec.Struct):
    structuredContent: Any = None
    content: tuple[Mapping[str, Any], ...] = ()
    isError: bool = False


class Tasks:
    """The tools of `gobby-tasks`, called from this folder."""

    def __init__(self, gateway: gateways.Reached) -> None:
        self._gateway = gateway

    async def ask(self, tool: str, **given: Any) -> Any:
        """What the tool answers, or the end of the command with why it does not. What is None is not given."""
        arguments = {key: value for key, value in given.items() if value is not None}
        name = f"gobby-tasks__{tool}"
        answer = await gateways.called(self._gateway, name, Raw(jsonrpc.encode(arguments)), os.getcwd())
        if answer.asks:
            printing.fail(
                f"{tool} asks its user for {answer.asks[0]}, which this command cannot answer: "
                "use an MCP client that can"
            )
        result = msgspec.json.decode(answer.result, type=_Result)
        if result.isError:
            printing.fail("\n".join(str(block.get("text", "")) for block in result.content))
        return result.structuredContent

    @asynccontextmanager
    async def with_progress(self, said: str) -> AsyncGenerator[None]:
        """On a terminal it is shown meanwhile how far a sync of this project's tasks is."""
        project = project_of(Path.cwd())

        async def follow(wait: progress.Wait) -> None:
            while project:
                _, answer = await self._gateway.ask("GET", "/syncs")
                found = msgspec.json.decode(answer, type=dict[str, str])
                wait.says(f"{said}: {found[str(project.folder)]}" if str(project.folder) in found else said)
                await asyncio.sleep(SHOW)

        with progress.waiting(said) as wait:
            following = asyncio.ensure_future(follow(wait))
            try:
                yield
            finally:
                following.cancel()
                await asyncio.wait([following])


@asynccontextmanager
async def _reached(config: Config) -> AsyncGenerator[Tasks]:
    """A gateway of our own has no servers: tasks need none."""
    async with gateways.reached(config, lambda: msgspec.structs.replace(config, servers=())) as gateway:
        if isinstance(gateway, gateways.Own):
            async with Tasks(gateway).with_progress("reading the file of tasks"):
                await gateway.caught_up()
        yield Tasks(gateway)


def _asked(config: str | None, tool: str, **given: Any) -> Any:
    async def work() -> Any:
        async with _reached(common.load_config(config)) as tasks:
            return await tasks.ask(tool, **given)

    return common.run(work())


def _print(found: Any, as_json: bool, text: str) -> None:
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        printing.say(text)


def _rows(tasks: Sequence[Mapping[str, Any]], otherwise: str) -> str:
    head = ("id", "status", "priority", "type", "title")
    rows = tuple(tuple(visible(str(task[key])) for key in head) for task in tasks)
    return "\n".join(aligned((head, *rows))) if rows else otherwise


def _whether_more(found: Mapping[str, Any], filters: str) -> str:
    """And how to see them. A `hint` says that an answer has no room for them, whatever the limit."""
    if not found.get("has_more"):
        return ""
    if "hint" not in found:
        return f"\n(there are more: raise --limit, or filter by {filters})"
    return (
        f"\n(there are more, for which one answer has no room: filter by {filters}; "
        "all are in the project's file of tasks after toolgate tasks sync)"
    )


_FILTERS = "--status, --priority, --type, --assignee, --label, --parent or --title"


# The commands.


@app.command("list", help="List tasks, the newest first.")
def listing(
    status: Annotated[
        str | None, typer.Option("--status", help="open, in_progress, closed, failed or escalated.")
    ] = None,
    priority: Priority = None,
    task_type: TaskType = None,
    assignee: Annotated[str | None, typer.Option("--assignee", help="Only tasks of this assignee.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Only tasks with this label.")] = None,
    parent: Parent = None,
    title: Annotated[str | None, typer.Option("--title", help="A part of the title.")] = None,
    limit: Limit = 50,
    config: common.ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    given = {"status": status, "priority": priority, "task_type": task_type, "assignee": assignee, "label": label}
    found = _asked(config, "list_tasks", **given, parent_task_id=parent, title_like=title, limit=limit)
    _print(found, as_json, _rows(found["tasks"], "no tasks") + _whether_more(found, _FILTERS))


@app.command(help="List the tasks that can be worked on: open, and nothing open blocks them.")
def ready(
    priority: Priority = None,
    task_type: TaskType = None,
    limit: Limit = 10,
    config: common.ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    found = _asked(config, "list_ready_tasks", priority=priority, task_type=task_type, limit=limit)
    _print(found, as_json, _rows(found["tasks"], "no tasks are ready") + _whether_more(found, "--priority or --type"))


@app.command(help="Show one task in full, with what it waits for.")
def show(id: Id, config: common.ConfigPath = None, as_json: AsJson = False) -> None:
    found = _asked(config, "get_task", task_id=id)
    _print(found, as_json, "\n".join(task_views.described(found)))


@app.command(help="Create a task and print its id.")
def create(
    title: Annotated[str, typer.Argument(help="What is to be done, in one line.")],
    description: Annotated[str | None, typer.Option("--description", "-d", help="More about it.")] = None,
    priority: Priority = None,
    task_type: TaskType = None,
    parent: Parent = None,
    blocks: Annotated[
        list[str] | None, typer.Option("--blocks", help="The id of a task that waits for it; may be repeated.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="A label; may be repeated.")] = None,
    config: common.ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    given = {"title": title, "description": description, "priority": priority, "task_type": task_type}
    found = _asked(config, "create_task", **given, parent_task_id=parent, blocks=blocks or None, labels=label or None)
    _print(found, as_json, found["id"])


@app.command(help="Close a task.")
def close(
    id: Id,
    reason: Annotated[str, typer.Option("--reason", help="Why it is closed.")] = "completed",
    summary: Annotated[str | None, typer.Option("--summary", help="What was changed.")] = None,
    config: common.ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    found = _asked(config, "close_task", task_id=id, reason=reason, changes_summary=summary)
    _print(found, as_json, f"closed {id}")


@app.command(help="Show what a task waits for and what waits for it; without an id, which tasks are part of which.")
def tree(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task's id.")] = None,
    config: common.ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    if id:
        found = _asked(config, "get_dependency_tree", task_id=id)
        _print(found, as_json, "\n".join(task_views.dependency_tree(found)))
    else:
        found = _asked(config, "list_tasks", limit=MOST_IN_GRAPH)
        more = "\n(there are more; those below one: toolgate tasks list --parent ID)" if found.get("has_more") else ""
        _print(found, as_json, ("\n".join(task_views.parts(found["tasks"])) or "no tasks") + more)


@app.command(help="Import what others have written into the project's file of tasks, and export what is here.")
def sync(
    direction: Annotated[str, typer.Option("--direction", help="import, export or both.")] = "both",
    config: common.ConfigPath = None,
    as_json: AsJson = False,
    hook: Annotated[str, typer.Option("--hook", hidden=True)] = "",
    within: Annotated[str, typer.Option("--in", hidden=True)] = ".",
) -> None:
    if hook in git_hooks.HOOKS:
        top = os.getcwd()
        os.chdir(within)
        common.run(_by_hook(common.load_config(config), hook, top))
        return

    async def work() -> Any:
        async with (
            _reached(common.load_config(config)) as tasks,
            tasks.with_progress("syncing the tasks of this project"),
        ):
            return await tasks.ask("sync_tasks", direction=direction)

    found = common.run(work())
    _print(found, as_json, "\n".join(task_views.synced(found)))


async def _by_hook(config: Config, name: str, top: str) -> None:
    """For git, which is held up for a while at most, and never stopped: what goes wrong is said."""
    try:
        async with asyncio.timeout(HOOK_TIME), _silently(config) as gateway:
            direction = git_hooks.HOOKS[name]
            arguments = Raw(jsonrpc.encode({"direction": direction}))
            asked = {"tool": "gobby-tasks__sync_tasks", "arguments": arguments, "folder": os.getcwd()}
            status, said = await gateway.ask("POST", "/call", asked)
            if status >= 400:
                typer.echo(f"toolgate: tasks were not synced: {gateways.explained(said)}", err=True)
            elif direction == "export":
                found = msgspec.json.decode(said)["result"]["structuredContent"]
                git_hooks.add_if_tracked(found["file"], top)
    except TimeoutError:
        typer.echo(f"toolgate: tasks were not synced: that took longer than {HOOK_TIME:.0f} s", err=True)
    except Exception as error:  # noqa: BLE001  the rescue: a commit does not fail for our sake
        typer.echo(f"toolgate: tasks were not synced: {str(error) or type(error).__name__}", err=True)


@asynccontextmanager
async def _silently(config: Config) -> AsyncGenerator[gateways.Reached]:
    if running := gateways.find(config):
        yield running
        return
    async with gateways.opened(msgspec.structs.replace(config, servers=())) as own:
        gateway = gateways.Own(own)
        await gateway.caught_up()
        yield gateway


@app.command(help="Show the tasks by status, and what blocks what; it follows changes until Ctrl-C.")
def board(
    once: Annotated[bool, typer.Option("--once", help="Print the board once and exit.")] = False,
    config: common.ConfigPath = None,
) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        common.run(_board(common.load_config(config), once or not sys.stdout.isatty()))


async def _board(config: Config, once: bool) -> None:
    async with _reached(config) as tasks:
        if once:
            console = Console(highlight=False)
            if console.is_terminal:
                console.print(task_views.board(await _columns(tasks)))
            else:
                typer.echo("\n".join(task_views.plain_board(await _columns(tasks))) or "no tasks")
            return
        with progress.nothing(), Live(auto_refresh=False, screen=True) as live:
            while True:
                live.update(task_views.board(await _columns(tasks)), refresh=True)
                await asyncio.sleep(LOOK)


async def _columns(tasks: Tasks) -> task_views.Columns:
    """The tasks by what can be done with them."""
    columns: dict[str, Mapping[str, Any]] = {
        "ready": await tasks.ask("list_ready_tasks", limit=MOST_SHOWN),
        "blocked": await tasks.ask("list_blocked_tasks", limit=MOST_SHOWN),
    }
    for status in ("in_progress", "escalated", "failed", "closed"):
        most = MOST_CLOSED if status == "closed" else MOST_SHOWN
        columns[status] = await tasks.ask("list_tasks", status=status, limit=most)
    return columns


@app.command(help="Print the tasks as a graph: which block others, and which are part of others.")
def graph(
    format: Annotated[str, typer.Option("--format", help="mermaid or dot.")] = "mermaid",
    closed: Annotated[bool, typer.Option("--closed", help="Include closed tasks.")] = False,
    config: common.ConfigPath = None,
) -> None:
    if format not in task_views.FORMATS:
        printing.fail(f"unknown format {format}: choose one of {', '.join(task_views.FORMATS)}", 2)

    async def work() -> list[Any]:
        async with _reached(common.load_config(config)) as tasks:
            found = await tasks.ask("list_tasks", limit=MOST_IN_GRAPH)
            if found.get("has_more"):
                typer.echo(f"warning: only the newest {MOST_IN_GRAPH} tasks are in the graph", err=True)
            wanted = [task for task in found["tasks"] if closed or task["status"] != "closed"]
            return [await tasks.ask("get_task", task_id=task["id"]) for task in wanted]

    printing.say("\n".join(task_views.FORMATS[format](common.run(work()))))


@app.command(help="Have git export tasks before a commit and import them after a merge or checkout: install or remove.")
def hooks(
    action: Annotated[str, typer.Argument(help="install or remove.")],
    config: common.ConfigPath = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask where git looks for hooks outside of the repository.")
    ] = False,
) -> None:
    def agrees(folder: Path) -> bool:
        question = f"git looks for hooks in {visible(str(folder))}, outside of this repository. Install them there?"
        return yes or (printing.can_ask() and typer.confirm(printing.on_a_terminal(question), err=True))

    actions = {"install": lambda: git_hooks.install(config, agrees), "remove": git_hooks.remove}
    if action not in actions:
        printing.fail(f"unknown action {action}: choose install or remove", 2)
    try:
        done = actions[action]()
    except git_hooks.NotPossible as why:
        printing.fail(str(why))
    for line in done.said:
        printing.say(line)
    raise typer.Exit(0 if done.is_whole else 1)
