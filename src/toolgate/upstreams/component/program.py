"""A component that is started by command, and ended with the gateway: its process, and the port that it gets.

The rule this file keeps: it is started on a port that was free, and those who need it hear of its end.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec

from toolgate.auth.safe_net import Dial
from toolgate.config import Server
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault, Words
from toolgate.upstreams import diagnosis
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.component import owner
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.links.refusals import fault
from toolgate.upstreams.links.whole import HttpClient, Lost, WholeAnswer
from toolgate.upstreams.process.supervisor import Child, Tail

PORT = "{port}"
POLL = 0.05  # seconds between looks whether it answers
LAST_BREATH = 0.5  # seconds that a process which breaks its connections may take to end


class Program:
    """`on_exit` hears of its end, once, with the reason. A URL with `{port}` gets one that is free: the process is told
    in `PORT`, and in those of its arguments that hold `{port}`, too."""

    def __init__(self, server: Server, url: str, on_exit: Callable[[Program], None]) -> None:
        self.fault: Fault | None = None
        self._server = server
        self._on_exit = on_exit
        self._child: Child | None = None
        self._log = Tail()
        port = str(_free_port()) if PORT in url else ""
        self.url = url.replace(PORT, port)
        self._env = {**server.env, "PORT": port} if port else server.env
        self._args = tuple(arg.replace(PORT, port) for arg in server.args) if port else server.args

    async def start(self, link_deps: LinkDeps) -> None:
        """Raises `Fault`."""
        server = msgspec.structs.replace(self._server, args=self._args, env=self._env)
        start = await link_deps.launch(server, "") if link_deps.launch else server
        self._child = await link_deps.supervisor.start(
            *(server.name, start.command, start.args, start.env, start.cwd, self._log.add, self._exited),
            on_stderr=lambda: None,
            talks=False,
            may_gain_privileges=server.new_privileges and server.by_operator,
        )

    def dialling(self, dial: Dial, bounds: Bounds) -> Dial:
        """Connections to it, once it is started, and to no other program that has its port."""

        async def connect(host: str, port: int) -> socket.socket:
            assert self._child
            return await owner.dialling_own(dial, self._server, self._child.pid, bounds)(host, port)

        return connect

    async def first_answer(self, line: HttpClient, clock: Clock) -> WholeAnswer:
        """What it says of itself as soon as it says anything. Raises `Fault`."""
        patience = self._server.start_timeout
        try:
            async with clock.timeout(patience):
                while not (answer := await _answer(line)) or self.fault:
                    if self.fault:  # then what answers is another program
                        raise self.fault
                    await clock.sleep(POLL)
                return answer
        except TimeoutError:
            hint = f"make it listen on the port in PORT, or raise start_timeout of {self._server.name}"
            message = f"no answer at {line} after {patience:g} s"
            raise fault(self._server, message, "not_sent", "TIMEOUT", hint) from None

    def describe(self) -> dict[str, object]:
        """What a status shows."""
        child = self._child
        if not child:
            return {}
        return {"pid": None if self.fault else child.pid, "started": child.started, "says": self._words}

    async def has_ended(self, clock: Clock) -> bool:
        """Whether a connection broke because the process did: its end is seen a moment later."""
        try:
            async with clock.timeout(LAST_BREATH):
                await self._ended()
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        if self._child:
            self._child.end()
        await self._ended()

    async def _ended(self) -> None:
        if self._child:
            await self._child.ended()

    def _words(self) -> str:
        """What it wrote. Some programs complain on stdout, which carries nothing else here."""
        said = self._child.stderr.text(self._server.id) if self._child else ""
        return said or self._log.text(self._server.id)

    def _exited(self, reason: str) -> None:
        hint = f"see the end of its output: toolgate doctor --server {self._server.id}"
        self.fault = fault(self._server, reason, "not_sent", hint=hint)
        if not reason.endswith("stopped") and (last := diagnosis.last_words(self._words())):
            self.fault.words = Words(last)
        self._on_exit(self)


async def _answer(line: HttpClient) -> WholeAnswer | None:
    try:
        return await line.ask(line.head("GET"))
    except Lost:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
