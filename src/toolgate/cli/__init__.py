"""The command line. A command's module is imported when the command runs, so that help is quick.

May import `app` and the rooms below it.

    __init__     `COMMANDS`: name → module and line of help
    common       what commands share: the configuration or its problems, and the event loop
    printing     what commands print, and how they end
    progress     what is shown on a terminal while a person waits
    gateways     the gateway that a command asks: the running one, else one of its own for this command
Serving
    serve        over HTTP
    stdio        for one client, over standard input and output
    demo         the bundled servers
    tour         the tour of `demo`
    summary      what `serve` prints: its servers, and how clients connect
    service_manager  what systemd is told of the gateway that it has started
    descriptors  as many file descriptors as can be had
    memory       given back to the system when large messages are gone
Looking
    listing      servers and tools (`toolgate list`)
    log_lines    the log of a gateway that serves
    call         one call
    search       tools that are here, and servers that could be added
    status       the running gateway
    top          its servers and tools, again and again
    traffic      calls as they end
    logs         what servers write to their stderr
    screen       text that is shown in place
    open         a link to its pages
    doctor       the configuration and every server
    preflight    all that a gateway needs, before it is served
    checked      what came of one server, and what to do about it
    suggesting   the tightest box in which a server works
    config       a configuration file: its dialect, its servers, its problems
    audit        the audit log
Changing
    init         the servers of all agent programs in one configuration
    add          add a server to the file
    remove       remove one
    trying       start one server, list, call (`toolgate test`)
    measuring    tools and tokens of servers and surfaces
    install      put the gateway into agent programs
    importing    copy servers out of other programs' files
    exporting    write servers as another program's file
    agents       the programs that are known, and where their files are
    own_file     which file of the user's is edited
    servers      add and remove servers of the running gateway
    provision    find a server for what is needed, show its gates, add it
    reload       read the configuration again
    trust        trust a configuration file that lies in a folder
    trusting     what that file would run, for the user who is asked
    widening     what it would allow or turn off, each in a sentence
    keys         the keys of clients
    secrets      the file of `${secret:NAME}`
    connect      sign in at a server
    tasks        the tasks of the project in this folder
    task_views   how tasks are shown
    git_hooks    the hooks of git that sync tasks
    approvals    decide on calls that wait
    pins         approve tools that have changed
    scripts      approve scripts that clients may call as tools
    state        back up, restore and check the store
    systemd      a unit that serves a configuration
    workers      `serve --workers`: the processes of one gateway, and what each of them does
    launchd      the same for macOS
    tree         every command with its arguments and options
    completion   scripts that complete them in shells
    man          the manual page
    hooks        have agents' programs tell of their sessions
    hook         what they run then, for its help
    sessions     the sessions of agents

Another command is a module with a Typer `app` of one command, and a row in `COMMANDS`. What it asks of a running
gateway goes through `gateways.reached`, to a path of `frontends.web.admin`.
"""

from __future__ import annotations

import importlib
import os

import typer
from typer.core import TyperCommand, TyperGroup

from toolgate import __version__
from toolgate.core import search_path
from toolgate.core.not_edited import NotEdited

# name → (module with a Typer `app` of one command, the line in the help)
COMMANDS = {
    "demo": ("toolgate.cli.demo", "A short tour with bundled servers; it then keeps serving until Ctrl-C."),
    "serve": ("toolgate.cli.serve", "Serve the configured servers over HTTP."),
    "stdio": ("toolgate.cli.stdio", "Serve the configured servers over standard input and output."),
    "init": ("toolgate.cli.init", "Find the agent programs here, and merge their servers into your configuration."),
    "install": ("toolgate.cli.install", "Put the gateway into the configuration of agent programs."),
    "import": ("toolgate.cli.importing", "Copy the servers of other programs' files into your configuration."),
    "export": ("toolgate.cli.exporting", "Write the servers of your configuration as another program's file."),
    "add": ("toolgate.cli.add", "Add a server to your configuration file."),
    "remove": ("toolgate.cli.remove", "Remove a server from your configuration file."),
    "test": ("toolgate.cli.trying", "Start one server, list its tools, and call one."),
    "trust": ("toolgate.cli.trust", "Review a configuration file found in this folder and trust it."),
    "list": ("toolgate.cli.listing", "List the servers and their tools."),
    "call": ("toolgate.cli.call", "Call one tool and print its result."),
    "search": ("toolgate.cli.search", "Find tools of the servers, and servers that could be added."),
    "provision": ("toolgate.cli.provision", "Find a server for what you need, show what it would run, and add it."),
    "status": ("toolgate.cli.status", "Show the running gateway and its servers."),
    "top": ("toolgate.cli.top", "Show the busiest servers and tools of the running gateway, live."),
    "traffic": ("toolgate.cli.traffic", "Show calls of the running gateway as they end."),
    "logs": ("toolgate.cli.logs", "Show what servers write to their stderr; -f goes on with it."),
    "open": ("toolgate.cli.open", "Print a link that opens the pages of the running gateway."),
    "servers": ("toolgate.cli.servers", "Add a server to the running gateway, or remove an added one."),
    "reload": ("toolgate.cli.reload", "Make the running gateway reload its configuration."),
    "approvals": ("toolgate.cli.approvals", "Decide on calls that need approval: list, allow, deny, revoke."),
    "tasks": (
        "toolgate.cli.tasks",
        "The tasks of the project in this folder: list, create, close, sync, board, graph.",
    ),
    "secrets": ("toolgate.cli.secrets", "Store secrets for ${secret:NAME}; show where each one is found."),
    "keys": ("toolgate.cli.keys", "Create, list, revoke and rotate client keys."),
    "connect": ("toolgate.cli.connect", "Sign in to a server that requires OAuth, or remove a sign-in."),
    "config": ("toolgate.cli.config", "Check a configuration file: its dialect, servers and problems."),
    "audit": ("toolgate.cli.audit", "View, verify, export and rotate the audit log."),
    "pins": ("toolgate.cli.pins", "Review and approve tools that have changed since they were trusted."),
    "scripts": ("toolgate.cli.scripts", "Approve scripts that clients may call as tools: add, list, show, remove."),
    "state": ("toolgate.cli.state", "Back up, restore and check what gateways keep."),
    "hooks": ("toolgate.cli.hooks", "Have a coding agent's program report its sessions to the gateway."),
    "sessions": ("toolgate.cli.sessions", "Show the sessions of coding agents and what they handed over."),
    "hook": ("toolgate.cli.hook", "Pass a hook's payload to a gateway; `toolgate hooks install` sets this up."),
    "systemd": ("toolgate.cli.systemd", "Print a systemd unit that runs `toolgate serve`, with few rights."),
    "launchd": ("toolgate.cli.launchd", "Print a property list for launchd (macOS) that runs `toolgate serve`."),
    "completion": ("toolgate.cli.completion", "Print a script that completes commands in bash, zsh or fish."),
    "man": ("toolgate.cli.man", "Print the manual page."),
    "preflight": ("toolgate.cli.preflight", "Check everything before a gateway is served; nothing is changed."),
    "doctor": ("toolgate.cli.doctor", "Check configuration and servers; report each problem and how to fix it."),
}


class Commands(TyperGroup):
    """Finds a command in the table."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | None:
        """The command; where only its line in the help is wanted, an empty one does."""
        if cmd_name not in COMMANDS:
            return None
        module, help = COMMANDS[cmd_name]
        if getattr(ctx, "wants_only_help", False):
            return TyperCommand(cmd_name, help=help)
        command = typer.main.get_command(importlib.import_module(module).app)
        command.name, command.help = cmd_name, command.help or help
        return command  # type: ignore[return-value]

    def invoke(self, ctx: object) -> object:
        try:
            return super().invoke(ctx)  # type: ignore[arg-type]
        except NotEdited as why:
            importlib.import_module("toolgate.cli.printing").fail(str(why), 2 if why.is_unfit else 1)

    def format_help(self, ctx: object, formatter: object) -> None:
        ctx.wants_only_help = True  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)  # type: ignore[arg-type]


app = typer.Typer(
    cls=Commands, no_args_is_help=True, add_completion=False, help="One MCP endpoint in front of every MCP server."
)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True)) -> None:
    if version:
        typer.echo(f"toolgate {__version__}")
        raise typer.Exit


def main() -> None:
    if path := os.environ.get("PATH"):
        os.environ["PATH"] = search_path.absolute(path)  # also for git and the programs of agents
    app(prog_name="toolgate")
