"""The ids by which clients know tasks: sealed, so that nothing is kept here of who may ask for which.

The rule this file keeps: an id is good for the principal, the path and the form of the protocol that it was given out
for, and for the server that has the task, not for another that has its name; any other is that of no task, and nobody
is told why.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from toolgate.auth.seal import Broken, Seal
from toolgate.core import mcp, names
from toolgate.core.model import Accepted, Call, Client, Done, Event, Made, Outcome
from toolgate.eras import tasks
from toolgate.surfaces import who_asks
from toolgate.surfaces.base import Surface
from toolgate.surfaces.single import Single


class Handle(msgspec.Struct, frozen=True, array_like=True):
    """What a sealed id holds. `of_extension`: it was given to a client that declared the extension of 2026-07-28.
    `made` is what the task was made by: a client that asks for the task is judged by that again. `print` is
    `Upstream.print` of its server."""

    principal: str
    path: str
    of_extension: bool
    server: str
    id: str
    made: Made
    print: str


class Handles:
    """`path` is where the client came in, `print` is `Upstream.print` of the server that is meant."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def enter(self, call: Call, path: str, print_of: Callable[[str], str]) -> Call:
        """The call about a task with the server's own id of it. Raises `Fault` where the client has no such task, or
        its server is another by now: `print_of` says `Upstream.print` by id."""
        handle = self.read(call.target, path, call.client)
        if handle.print != print_of(handle.server):
            raise tasks.not_found()
        about = about_made(handle.server, handle.made, call.client)
        return msgspec.structs.replace(call, server=handle.server, target=handle.id, about=about)

    def read(self, text: str, path: str, client: Client) -> Handle:
        """What an id stands for. Raises `Fault` where this client has no such task at this path."""
        try:
            handle = self._seal.unseal(text, Handle)
        except Broken:
            raise tasks.not_found() from None
        if handle != _handle(handle.server, handle.id, handle.made, path, client, handle.print):
            raise tasks.not_found()
        return handle

    def write(self, server: str, id: str, made: Made, path: str, client: Client, print: str) -> str:
        """A task's id for this client: the same each time."""
        return self._seal.stable(_handle(server, id, made, path, client, print))

    def leave(self, call: Call, outcome: Outcome, path: str, surface: Surface, print: str) -> Outcome:
        """What a client is told of a task, in its own names. `call` is as the server knows it."""
        if isinstance(outcome, Accepted):
            id = self.write(call.server, tasks.read_id(outcome.body), call.made, path, call.client, print)
            return Accepted(_asked(surface, call.client, call.server, tasks.with_id(outcome.body, id, lambda raw: raw)))
        if not call.about or call.method not in mcp.TASKS or not isinstance(outcome, Done):
            return surface.leave(call, outcome)
        id = self.write(call.server, call.target, call.about.made, path, call.client, print)
        if call.method == mcp.TASK_RESULT:
            return Done(tasks.with_related(_as_of_tool(surface, call.server, outcome.body), id))
        told = tasks.with_id(outcome.body, id, lambda raw: _as_of_tool(surface, call.server, raw))
        return Done(_asked(surface, call.client, call.server, told))

    def listed(self, said: msgspec.Raw, server: str, id: str, surface: Surface) -> msgspec.Raw | bytes:
        """What a list says of a task, for a client whose it is, and which knows it by this id (see `write`)."""
        return tasks.with_id(said, id, lambda raw: _as_of_tool(surface, server, raw))

    def shown(self, event: Event, made: Made, path: str, client: Client, surface: Surface) -> bytes:
        """The parameters of a notification on a task, for a client whose it is."""
        id = self.write(event.server, event.uri, made, path, client, event.print)
        told = tasks.with_id(event.params, id, lambda raw: _as_of_tool(surface, event.server, raw))
        return _asked(surface, client, event.server, told)


def _as_of_tool(surface: Surface, server: str, body: msgspec.Raw | bytes) -> msgspec.Raw | bytes:
    """A task's result, as the tool's own would leave."""
    left = surface.leave(Call("tools/call", "", Client(), server=server), Done(body))
    assert isinstance(left, Done)
    return left.body


def _asked(surface: Surface, client: Client, server: str, told: msgspec.Raw | bytes) -> bytes:
    """What is told of a task, with who asks in its questions."""
    return who_asks.told_of_task(told, client, server, isinstance(surface, Single))


def about_made(server: str, made: Made, client: Client) -> Call:
    """The call that has made something, as far as it is judged by."""
    asked = Call(mcp.CALL, made.via, client, server=names.OWN) if made.via else None
    return Call(made.method, made.target, client, server=server, asked=asked)


def _handle(server: str, id: str, made: Made, path: str, client: Client, print: str) -> Handle:
    return Handle(client.principal.id, path, tasks.declares(client.capabilities), server, id, made, print)
