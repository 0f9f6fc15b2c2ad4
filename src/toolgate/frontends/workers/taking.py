"""A worker's connection with a client: what can be answered at once is, and all else is the owner's.

The rules this file keeps: a request is passed on before anything of it has happened here, as the very bytes that came,
so that the owner refuses, counts and notes it as if its client had come there; and neither side sends faster than the
other reads.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, cast

import msgspec

from toolgate.core.model import Principal
from toolgate.frontends.application import Application
from toolgate.frontends.connections import Connection
from toolgate.frontends.known_heads import Parted
from toolgate.frontends.server import HEAD_PATIENCE, HttpProtocol
from toolgate.frontends.workers.channel import Channel, Peer
from toolgate.frontends.workers.framing import Framing

FILES = 2  # of a connection: its own, and that of its link
STALE = 30.0  # seconds after which a link that rests is not used any more: the owner may be about to close it
_CALL = b"tools/call"


class Worker:
    """What the connections of a worker share: the channel to the owner, and who learns from requests that it has
    answered."""

    def __init__(self, channel: Channel, learn_soon: Callable[[Parted, bytes, Connection, Peer], object]) -> None:
        self.channel = channel
        self.learn_soon = learn_soon
        self.links: dict[int, _Link] = {}
        self.numbers = count(1)

    @property
    def passes_on(self) -> bool:
        """Whether the owner still works for a client."""
        return any(not link.rests for link in self.links.values())

    def admitted(self, told: bytes) -> None:
        """By the owner: whom, and the number of the link."""
        number, principal = msgspec.json.decode(told, type=tuple[int, Principal])
        if link := self.links.get(number):
            link.admitted(principal)


class TakingProtocol(HttpProtocol):
    _link: _Link | None = None
    _is_passing = False  # what comes goes to the owner
    _begun = b""  # the request that may be begun here

    def __init__(self, application: Application, *, worker: Worker, **given: Any) -> None:
        super().__init__(application, **given)
        self._worker = worker
        self._later = b""  # what came while a request is under way here
        self.data_received = self._put

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        link, self._link = self._link, None
        if link:
            link.left()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._link:
            self._link.hold()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._link:
            self._link.let_go()

    def _put(self, data: bytes) -> None:
        if self._intake.is_busy:  # it is read from once more while it is held
            self._intake.wait(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if self._is_passing and self._link and not self._link.rests:
            self._link.pass_on(data)
        elif self._is_passing or not self.cycle or self.cycle.response_complete:
            self._begin_with(data)
        else:  # it is of the next request
            self._later += data
            self._intake.hold(self)

    def _begin_with(self, data: bytes) -> None:
        """A request begins."""
        if self.transport.is_closing():
            return
        data, self._head = self._head + data, b""
        if self._known_heads.is_alone(data):
            self._head, self._patience = data, HEAD_PATIENCE
            self._timer = self._timer or self.loop.call_later(HEAD_PATIENCE, self.transport.close)
            return
        came, self._begun = self._known_heads.parted(self._connection.address, data), data
        self._is_passing = False
        if not (came and self._took_known(came)):
            self._pass_on(data, came)

    def not_begun(self, cycle: Any) -> None:
        cycle.response_complete = True  # of it nothing is done here
        turn, self._turn = self._turn, None
        if turn:
            self._scheduler.ended(turn)
        self._pass_on(self._begun, cycle.came)

    def _pass_on(self, data: bytes, came: Parted | None) -> None:
        self._stop_timer()
        self._stop_keeping()
        self._patience = 0.0
        self._begun = b""
        self._is_passing = True
        if not self._link or self._link.is_stale:
            if self._link:
                self._link.left()
            try:
                self._link = self._new_link()
            except OSError:  # no files are left
                self.transport.abort()
                return
            if self.flow.write_paused:  # nobody says so again
                self._link.hold()
        wants = came is not None and _CALL in data
        self._link.pass_on(data, (lambda: self._learn(came, data)) if came and wants else None)
        later, self._later = self._later, b""
        if later:
            self._link.pass_on(later)
            self._intake.let_go(self)

    def _peer(self, number: int = 0) -> Peer:
        server = cast("tuple[str, int]", self.server or ("", 0))
        return Peer(self.client or ("", 0), server, self.scheme == "https", number)

    def _learn(self, came: Parted, data: bytes) -> None:
        self._worker.learn_soon(came, data, self._connection, self._peer())

    def _new_link(self) -> _Link:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        links, number = self._worker.links, next(self._worker.numbers)
        self._worker.channel.send("connection", msgspec.json.encode(self._peer(number)), theirs)
        over = partial(links.pop, number, None)
        links[number] = _Link(self.transport, self._intake, ours, self._link_ended, over, self._connection.admitted)
        return links[number]

    def _link_ended(self, link: _Link) -> None:
        """The owner has closed its end: so it ends here, too, unless this has gone on here."""
        if link is not self._link:
            return
        self._link = None
        if self._is_passing and link.is_held:
            self.transport.abort()  # its client does not read
        elif self._is_passing:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        later, self._later = self._later, b""
        if later and not self.transport.is_closing():
            self._begin_with(later)
        if not self._later:
            self._intake.let_go(self)


class _Link(asyncio.Protocol):
    """What joins a client's connection to the owner. `client` is the client's transport, `intake` what is held while
    the owner does not read. `admitted` is whom to tell that the owner has let somebody in."""

    _transport: asyncio.Transport | None = None
    _is_left = False
    is_held = False

    def __init__(
        self,
        client: Any,
        intake: Any,
        end: socket.socket,
        ended: Callable[[_Link], object],
        over: Callable[[], object],
        admitted: Callable[[Principal], object],
    ) -> None:
        self._client = client
        self._intake = intake
        self._end = end
        self._ended = ended
        self._over = over
        self.admitted = admitted
        self._framing = Framing()
        self._early: list[bytes] = []
        self._learn: Callable[[], object] | None = None
        self._used = 0.0
        self._intake.hold(self)  # until it is connected
        self._task = asyncio.get_running_loop().create_task(self._connect(), name="link to the owner")

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=self._end)

    @property
    def rests(self) -> bool:
        return self._framing.is_between

    @property
    def is_stale(self) -> bool:
        return self.rests and asyncio.get_running_loop().time() - self._used > STALE

    def pass_on(self, data: bytes, learn: Callable[[], object] | None = None) -> None:
        """`learn` is called when this is answered as it should be."""
        self._learn = learn
        self._framing.sent(data)
        if self._transport:
            self._transport.write(data)
        else:
            self._early.append(data)

    def hold(self) -> None:
        """The client does not read."""
        self.is_held = True
        if self._transport and not self._transport.is_closing():
            self._transport.pause_reading()

    def let_go(self) -> None:
        self.is_held = False
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def left(self) -> None:
        """The client is gone, or goes on over another link."""
        self._is_left = True
        self._over()
        self._intake.let_go(self)
        if self._transport:
            self._transport.close()

    # Of asyncio.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._is_left:
            transport.close()
            return
        early, self._early = b"".join(self._early), []
        transport.write(early)
        if self.is_held:
            transport.pause_reading()
        self._intake.let_go(self)

    def data_received(self, data: bytes) -> None:
        if self._is_left:
            return
        self._framing.returned(data)
        self._client.write(data)
        if self._framing.is_between:
            self._used = asyncio.get_running_loop().time()
            learn, self._learn = self._learn, None
            if learn and self._framing.status == 200:
                learn()

    def pause_writing(self) -> None:
        self._intake.hold(self)

    def resume_writing(self) -> None:
        self._intake.let_go(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._intake.let_go(self)
        self._over()
        if not self._is_left:
            self._is_left = True
            self._ended(self)
