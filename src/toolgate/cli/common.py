"""What several commands need: the configuration, or the end with its faults; and the event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from toolgate import config as configs
from toolgate.auth import safe_text
from toolgate.catalog.poisoning import visible
from toolgate.cli import descriptors, memory, trusting
from toolgate.cli.printing import Gone, fail, say
from toolgate.config import SURFACES, Config, ConfigError, Server, edits, secrets, trust
from toolgate.core import names
from toolgate.state.settings import Settings
from toolgate.upstreams.process import guard

try:
    import uvloop
except ImportError:  # there is none for Windows and PyPy: asyncio's own loop takes twice as long for a call
    uvloop = None

log = logging.getLogger(__name__)

Result = TypeVar("Result")

AFTER_START = 1.0  # seconds, in which all else has more to do
GARBAGE = 10_000  # objects that may be garbage before it is looked for: some hundred calls at once are less
SWITCH_INTERVAL = 0.001  # seconds that the loop may have to wait at each event for a thread that computes; 5 ms else

WHERE = "Default: toolgate.toml, .yaml or .json in this folder, if trusted; otherwise in ~/.config/toolgate."

ConfigPath = Annotated[str | None, typer.Option("--config", "-c", help=f"The configuration file. {WHERE}")]

Words = Annotated[list[str], typer.Argument(metavar="WORDS...", help="What you need, in words.")]

ChildrenConfig = Annotated[
    str | None, typer.Option("--children-config", help="Same as --config, for a file of child servers.")
]
TrustedConfig = Annotated[
    str | None, typer.Option("--trusted", help="Same as --config, but used only as it is trusted, like a found file.")
]
SurfaceName = Annotated[
    str | None, typer.Option("--surface", help=f"What /mcp shows: {', '.join(SURFACES)}. Default: `surface`.")
]


def load_config(path: str | None) -> Config:
    """The configuration with what was added to it, for who only reads: no secret is looked up. Or the end of the
    command with all that is wrong with it."""
    return open_settings(path, looks_up=False)[0]


def load_whole(path: str | None, is_told: bool = False) -> Config:
    """The same with secrets, for who starts servers. `is_told`: what is to be warned of was said before."""
    return open_settings(path, is_told=is_told)[0]


def load_written(path: str | None) -> Config:
    """The file alone, with variables and secrets as they are written: one that is missing must not keep anybody from
    setting it. Or the end of the command."""
    found, accept = find_config(path)
    try:
        config = configs.load(found, os.environ, references=True, looks_up=False, accept=accept) if found else Config()
    except ConfigError as error:
        fail(str(error), 2)
    for warning in config.warnings:
        say(f"warning: {warning}", err=True)
    return config


def find_config(named: str | None) -> tuple[Path | None, Callable[[bytes], None] | None]:
    """The file to read, and what `configs.load` is to ask about its bytes: what nobody has named must be trusted."""
    found = configs.find(named, Path.cwd(), os.environ)
    if found and configs.is_strangers(found, named, os.environ):
        return found, trusting.accepting(found)
    return found, None


def named_to_be_trusted(path: str) -> tuple[Path, Callable[[bytes], None]]:
    """The same of a file that is named, and must be trusted nevertheless."""
    found = Path(os.path.abspath(path))
    return found, trusting.accepting(found)


def naming(config: Config, named: str | None) -> tuple[str, str]:
    """The option by which a command that is kept names this configuration. What nobody has named now needs trust after
    each change, then too."""
    source = os.path.abspath(config.source)
    is_found = configs.is_strangers(Path(source), named, os.environ)
    return "--trusted" if is_found else "--config", source


def open_settings(
    path: str | None,
    children: str | None = None,
    surface: str | None = None,
    change: Callable[[Config], Config] = lambda same: same,
    looks_up: bool = True,
    is_told: bool = False,
    trusted: str | None = None,
) -> tuple[Config, Settings]:
    """The configuration as `change` makes it, and the files that it comes from and may change by; or the end of the
    command with all that is wrong."""
    if sum(map(bool, (path, children, trusted))) > 1:
        fail("--config, --children-config and --trusted are the same option: give only one", 2)
    if surface is not None and surface not in SURFACES:
        fail(f"unknown surface {surface}: choose one of {', '.join(SURFACES)}", 2)
    found, accept = find_config(children or path) if not trusted else named_to_be_trusted(trusted)
    dialect = "children" if children else ""

    def written() -> Config:
        load = configs.load
        config = load(found, os.environ, dialect, looks_up=looks_up, accept=accept) if found else Config()
        return change(msgspec.structs.replace(config, surface=surface) if surface else config)

    try:
        first = written()
        own = edits.own_file(first, os.environ)
        kept = secrets.file_of(first.secrets, first.state, first.source, os.environ)
        settings = Settings(written, os.environ, found, own, (kept, trust.place(os.environ)))
        config = settings.read()
    except ConfigError as error:
        fail(str(error), 2)
    for warning in () if is_told else config.warnings:
        say(f"warning: {warning}", err=True)
    return config, settings


_EXAMPLE = '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'


def require_servers(config: Config, may_be_empty: bool = False) -> Config:
    if config.servers or (may_be_empty and config.source):
        return config
    if config.source:
        fail(f"{config.source} has no servers. Add one:\n  {_EXAMPLE}", 2)
    others = [name for name in (".mcp.json", ".cursor/mcp.json") if Path(name).exists()]
    if others:
        fail(f"No toolgate.json here. To use {others[0]}, give --config {others[0]}", 2)
    fail(f"No configuration found here or in the user's folder. Write toolgate.json:\n  {_EXAMPLE}", 2)


def find_server(config: Config, wanted: str) -> Server:
    """The server by any spelling of its name, or the end of the command with those that there are."""
    for server in config.servers:
        if wanted in names.spellings(server.name) or names.slug(wanted) == server.id:
            return server
    known = [server.name for server in config.servers]
    near = names.near(names.slug(wanted), [server.id for server in config.servers])
    close = names.did_you_mean([server.name for id in near for server in config.servers if server.id == id])
    fail(f"Server not found: {visible(wanted)}{f' ({close})' if close else ''}. Available: {', '.join(known)}")


def own_command() -> tuple[str, ...]:
    """What starts this toolgate from any folder, whatever PATH is. With `-I` no module of that folder is taken for
    ours."""
    started = Path(sys.argv[0])
    if started.name == "toolgate" and os.access(started, os.X_OK) and started.is_file():
        return (os.path.abspath(started),)
    return (sys.executable, "-I", "-m", "toolgate")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end. What commands print themselves is not logged a second time; those that serve set more up."""
    logging.getLogger("toolgate").addHandler(logging.NullHandler())
    _spare_the_collector()
    descriptors.raise_limit()
    memory.give_back()
    sys.setswitchinterval(SWITCH_INTERVAL)
    guard.prctl(guard.PR_SET_DUMPABLE, 0)  # what a server starts, of our own user, cannot read our memory and variables
    try:
        return uvloop.run(work) if uvloop else asyncio.run(work)
    except Gone as error:
        fail(f"The running gateway does not answer: {error}")


def log_start(servers: int) -> None:
    log.info("started, process %d; servers: %d", os.getpid(), servers)


async def _prepare() -> None:
    await asyncio.sleep(AFTER_START)
    await asyncio.to_thread(safe_text.prepare)


@asynccontextmanager
async def watch_process() -> AsyncGenerator[None]:
    """Inside the block the log says it where no file descriptor is left, and free memory is given back. What takes
    long to make is made while nobody waits for it."""
    begun = descriptors.watch(), memory.trim(), _prepare()
    work = [asyncio.get_running_loop().create_task(each) for each in begun]
    try:
        yield
    finally:
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)


class Ending:
    """That of a gateway. From when this is made SIGINT and SIGTERM do not end the program at once; the second of them
    sets `hurry`."""

    def __init__(self) -> None:
        self._told, self.hurry = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.tell)

    def tell(self) -> None:
        """As if one of them had come."""
        (self.hurry if self._told.is_set() else self._told).set()

    def at_once(self) -> None:
        """As if both had come."""
        self._told.set()
        self.hurry.set()

    async def told(self, drain: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Wait for one of them, then for `drain`, which is to hurry when its event is set: by a second signal."""
        await self._told.wait()
        await drain(self.hurry)


def _spare_the_collector() -> None:
    """Calls leave no cycles behind. With Python's own threshold a dozen of them at once set the garbage collector off,
    and each time that it goes through the whole program costs as much as a hundred calls."""
    gc.freeze()
    gc.set_threshold(GARBAGE)
