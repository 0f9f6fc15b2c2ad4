"""The gateway that a command asks: the one that runs with this configuration, else one of its own for this command.

Both answer at the admin door, in the same words. The rule this file keeps: nothing is started a second time beside a
gateway that runs, and a command says which one has answered.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
from msgspec import Raw

from toolgate import config as configs
from toolgate import state as stores
from toolgate.app import App, running
from toolgate.auth.access import THE_OPERATOR
from toolgate.catalog.poisoning import visible
from toolgate.cli import common, printing, progress
from toolgate.config import Config, ConfigError, files, state_folder, trust
from toolgate.core import jsonrpc
from toolgate.core.clock import SystemClock
from toolgate.core.model import Client
from toolgate.frontends import operator
from toolgate.frontends.peers import is_ours
from toolgate.frontends.web.admin import PREFIX
from toolgate.state import audit
from toolgate.state.settings import Settings

WHO = Client(THE_OPERATOR)
LONGEST_LINE = 4 * 1024 * 1024  # bytes of a stream
PATIENCE = 5.0  # seconds for a running gateway to accept a connection


class Reached(Protocol):
    """A gateway that answers at its admin door."""

    @property
    def is_running(self) -> bool:
        """Whether it runs beside this command."""
        ...

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of the answer. `path` is that behind /admin. On a terminal it is shown meanwhile what is
        waited for."""
        ...


class Own:
    """A gateway inside this command."""

    is_running = False

    def __init__(self, app: App) -> None:
        self._app = app

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        with progress.waiting(_waits_for(path)):
            return await self._app.http.web.admin.ask(method, PREFIX + path, _encoded(body), THE_OPERATOR)

    async def caught_up(self) -> None:
        """Until what others have written into the project's file of tasks is in the store, as far as it can be read."""
        await self._app.workspace.caught_up()


class Running:
    """A gateway that was there before, reached over its operator's socket; each question has a connection of its own,
    whose end ends what it asked for."""

    is_running = True

    def __init__(self, path: str) -> None:
        self._path = path

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Raises `printing.Gone`."""
        with progress.waiting(_waits_for(path)):
            return await self.fetch(method, PREFIX + path, body)

    async def fetch(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """The same for a path beside the admin API."""
        async with self._sent(method, path, body) as reader:
            answer = await reader.read()
        said, _, whole = answer.partition(b"\r\n\r\n")
        return _status(said), whole

    async def events(self, path: str, body: Any) -> AsyncGenerator[bytes]:
        """The data of each event of a stream of the admin API. Ends the command where it is refused. Raises `OSError`
        where the gateway is gone."""
        async with self._sent("POST", PREFIX + path, body) as reader:
            head = await reader.readuntil(b"\r\n\r\n")
            if _status(head) >= 400:
                printing.fail(explained(await reader.read()))
            async for line in reader:
                if line.startswith(b"data: "):
                    yield line.removeprefix(b"data: ")

    @asynccontextmanager
    async def _sent(self, method: str, path: str, body: Any) -> AsyncGenerator[asyncio.StreamReader]:
        """A request, and what reads its answer."""
        data = _encoded(body)
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_unix_connection(self._path, limit=LONGEST_LINE)
        except OSError as error:
            raise printing.Gone(str(error)) from None
        try:
            if not is_ours(writer.get_extra_info("socket")):
                raise PermissionError(f"{self._path} belongs to another user")
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            yield reader
        except ConnectionError as error:
            raise printing.Gone(str(error)) from None
        finally:
            writer.close()


def _status(head: bytes) -> int:
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise printing.Gone("it ended during the request")
    return int(words[1])


_WAITS = {"/list": "waiting for what the servers list", "/call": "waiting for the tool's answer"}


def _waits_for(path: str) -> str:
    if path.endswith("/check"):
        return "starting the server and listing its tools"
    return _WAITS.get(path, "waiting for the gateway")


def _encoded(body: Any) -> bytes:
    return b"" if body is None else jsonrpc.encode(body)


async def value(gateway: Reached, method: str, path: str, body: Any = None) -> Any:
    """What it answers, or the end of the command with why it does not."""
    status, said = await gateway.ask(method, path, body)
    if status >= 400:
        printing.fail(explained(said))
    return msgspec.json.decode(said)


class _RpcError(msgspec.Struct):
    message: str = ""


class _Refused(msgspec.Struct):
    """An answer that says why there is none: the admin door's own, or a JSON-RPC error of HTTP."""

    error: str | _RpcError = ""
    code: str = ""
    hint: str = ""


def explained(said: bytes) -> str:
    """Such an answer as one line for people."""
    refused = msgspec.json.decode(said, type=_Refused)
    error = refused.error if isinstance(refused.error, str) else refused.error.message
    more = f" ({refused.hint})" if refused.hint and refused.hint not in error else ""
    return visible(f"{refused.code}: {error}{more}" if refused.code else f"{error}{more}")


class Called(msgspec.Struct):
    result: Raw = Raw()
    asks: tuple[str, ...] = ()


async def told(gateway: Reached, tool: str, **arguments: Any) -> Any:
    """What a control tool says, as its text has it in JSON; or the end of the command with why it says nothing."""
    answer = await called(gateway, tool, Raw(jsonrpc.encode(arguments)))
    result = msgspec.json.decode(answer.result)
    text = result["content"][0]["text"]
    if result.get("isError"):
        printing.fail(text)
    return msgspec.json.decode(text)


async def called(gateway: Reached, tool: str, arguments: Raw, folder: str | None = None) -> Called:
    """The result of a call as its bytes, or what the tool asks; or the end of the command with why there is none.
    `folder`: the call is in the project that this absolute path lies in."""
    status, said = await gateway.ask("POST", "/call", {"tool": tool, "arguments": arguments, "folder": folder})
    if status >= 400:
        printing.fail(explained(said))
    return msgspec.json.decode(said, type=Called)


def config_to_look(path: str | None) -> Config:
    """For who only looks at a gateway that runs. Where its file cannot be read by now, it serves what was there before,
    and where it listens stands in what can be read. Without one it is the end of the command with what is wrong."""
    found, accept = common.find_config(path)
    if not found:
        return common.load_config(path)
    try:
        configs.load(found, os.environ, looks_up=False, accept=accept)
    except trust.NotTrusted as error:
        printing.fail(str(error), 2)
    except ConfigError as error:
        kept = Config(source=str(found), state=_state_in(found, accept))
        if find(kept):
            printing.say(f"warning: {error}", err=True)
            printing.say("warning: the running gateway serves what was there before", err=True)
            return kept
    return common.load_config(path)


def _state_in(file: Path, accept: Callable[[bytes], None] | None) -> str:
    try:
        tree = files.tree_of(file, accept or (lambda _: None))
    except ConfigError:
        return ""
    state = cast("dict[str, object]", tree).get("state") if isinstance(tree, dict) else ""
    return state if isinstance(state, str) else ""


def find(config: Config) -> Running | None:
    """The gateway that runs with this configuration."""
    path = operator.place(config, os.environ)
    try:
        operator.check_ours(path.parent)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(PATIENCE)
            connection.connect(os.fspath(path))
        finally:
            connection.close()
    except OSError:
        return None
    return Running(os.fspath(path))


@asynccontextmanager
async def reached_to_change(config: Config, whole: Callable[[], tuple[Config, Settings]]) -> AsyncGenerator[Reached]:
    """The same, where one of our own keeps what the command adds."""
    if find(config):
        async with reached(config) as gateway:
            yield gateway
    else:
        found, settings = whole()
        async with opened(found, settings) as app:
            yield Own(app)


@asynccontextmanager
async def reached(config: Config, whole: Callable[[], Config] | None = None) -> AsyncGenerator[Reached]:
    """The gateway that runs, said on stderr; else one of our own of the configuration that `whole` reads, with secrets.
    Without that it is the end of the command."""
    gateway = find(config)
    if gateway:
        about = await value(gateway, "GET", "/status")
        printing.say(f"answered by the running gateway: {described(about)}", err=True)
        try:
            yield gateway
        except OSError as error:
            printing.fail(f"The running gateway stopped answering: {error}")
        return
    if not whole:
        printing.fail(f"No gateway of {config.source or 'this configuration'} is running. Start one: toolgate serve")
    async with opened(whole()) as app:
        yield Own(app)


def described(about: Any) -> str:
    """A running gateway in a few words, by what its `GET /admin/status` says."""
    where = f", {about['url']}/mcp" if about.get("url") else ", over stdio"
    return f"process {about['pid']}{where}, {about['state']}"


@asynccontextmanager
async def opened(config: Config, settings: Settings | None = None) -> AsyncGenerator[App]:
    """A gateway for one command and the user who runs it. That user could start its servers anyhow, so no permission is
    needed. What its servers list is kept for the gateways that come after it; with `settings` so is what is added, and
    the audit notes that."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(stores.opened(state_folder(config, os.environ)))
        trail = audit.opened(config, os.environ, SystemClock(), store)
        noted = await stack.enter_async_context(trail) if settings else None
        yield await stack.enter_async_context(running(config, store=store, settings=settings, audit=noted))
