"""The kind `component`: a server of tools that knows no MCP. GET lists them, POST runs one (seed 003, behaviour.md 3).

The rule this file keeps: what a component says passes through as its bytes, and whatever else happens is a fault of
that call alone, which begins with "Tool execution failed".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec import Raw

from toolgate.config import Server
from toolgate.core import crowds, mcp
from toolgate.core.bodies import Kept
from toolgate.core.complaints import Complaints
from toolgate.core.fault import Code, Fault, Reach, Words
from toolgate.core.model import Call, Client, Done, Event, EventSink, Made, Outcome
from toolgate.eras import tasks
from toolgate.upstreams.base import About, Begun, Items, State, Status, Upstream, rechecked
from toolgate.upstreams.component import answers
from toolgate.upstreams.component.metadata import Tools
from toolgate.upstreams.component.program import Program
from toolgate.upstreams.concurrency import ConcurrencyLimit
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.links.whole import HttpClient, Lost, WholeAnswer
from toolgate.upstreams.predecessors import Predecessors
from toolgate.upstreams.stopping import marked, stopped

log = logging.getLogger(__name__)

UNLISTED = 60.0  # seconds for which what was fetched for another purpose is good for a list
MOST_HEADS = 100  # of requests that are kept, where a name may take 200 KB in one
AGAIN = 1.0  # seconds after which it is asked again for a tool that it did not have


class ComponentUpstream:
    """An `Upstream` of one component: the same for everybody. One with a command is started when it is first asked."""

    def __init__(self, server: Server, link_deps: LinkDeps, on_event: EventSink) -> None:
        self.id = server.id
        self.name = server.name
        self.print = server.print
        self._server = server
        self._link_deps = link_deps
        self._clock = link_deps.clock
        self._complaints = link_deps.complaints or Complaints(link_deps.clock)
        self._on_event = on_event
        self._concurrency = ConcurrencyLimit(server.name, server.concurrency, link_deps.clock)
        self._predecessors = Predecessors()
        self._line: HttpClient | None = None
        self._program: Program | None = None
        self._last: Mapping[str, object] = {}  # what was known of the program when it ended
        self._tools: Tools | None = None  # as it said last
        self._heads: dict[str, bytes] | None = (
            None  # of its requests, by tool; none while it is to be asked what it has
        )
        self._in_vain = -AGAIN  # when it was last asked for a tool that it has not
        self._unlisted: float | None = None  # since when `_tools` is there, and nobody has been given the list
        self._asking: asyncio.Task[Tools] | None = None
        self._state: State = "configured"
        self._fault: Fault | None = None
        self._is_over = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"<ComponentUpstream {self.id} {self._state} {self._calls} in flight>"

    @property
    def calls(self) -> int:
        return self._calls

    def works_for_others(self, whose: Client) -> bool:
        return bool(self.calls)  # it does not know whose they are

    def scope(self, client: Client) -> str:
        return ""

    def status(self, whose: Client | None = None) -> Status:
        about = self._program.describe() if self._program else self._last
        return Status(
            state="busy" if self._state == "ready" and self._calls else self._state,
            error=self._fault.message if self._fault else "",
            hint=self._fault.hint if self._fault else "",
            words=self._fault.words if self._fault else None,
            pid=about.get("pid"),  # type: ignore[arg-type]
            started=about.get("started"),  # type: ignore[arg-type]
            says=about.get("says"),  # type: ignore[arg-type]
            calls=self._calls,
            stopped_by="close" if self._state == "stopped" else "",
        )

    def live_scope(self, client: Client) -> str | None:
        return "" if self._state == "ready" else None

    async def open(self) -> None:
        try:
            await self._ask()
        except Fault:
            pass  # it stands in the status, and in the log

    async def about(self, client: Client) -> About:
        return About({"tools": {}})

    async def list(self, kind: str, client: Client) -> Items:
        if kind != "tools":
            return Items()
        since, self._unlisted = self._unlisted, None
        if self._tools and since is not None and self._clock.now() - since < UNLISTED:
            return Items(self._tools.raw, ignored=self._tools.faults)
        tools = await self._ask()
        self._unlisted = None
        return Items(tools.raw, ignored=tools.faults)

    def begin(self, call: Call) -> Begun | None:
        return None

    async def invoke(self, call: Call) -> Outcome:
        if call.method != mcp.CALL:
            raise self._nothing_such(call)
        self._calls += 1
        self._idle.clear()
        try:
            return await self._run(call)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def tasks(self, client: Client) -> Mapping[str, tuple[Raw, Made]]:
        return {}

    async def watch(self, uri: str, client: Client, kind: str = "resources") -> None:
        raise Fault("METHOD_NOT_FOUND", f"{self.name} does not support subscriptions", reach="not_sent")

    def unwatch(self, uri: str, client: Client, kind: str = "resources") -> None: ...

    async def set_level(self, level: str, client: Client) -> None: ...

    async def roots_changed(self, client: Client) -> None: ...

    def leave(self, client: Client) -> None: ...

    async def stop(self, whose: Client | None = None) -> None:
        if self._asking:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await self._let_go(f"{self.name} was stopped", is_meant=True)
        self._state, self._fault = "stopped", None

    def use(self, server: Server) -> None:
        self._server = server

    def succeed(self, ends: Iterable[asyncio.Event]) -> None:
        self._predecessors.add(ends)

    async def drain(self, seconds: float, successor: Callable[[], Upstream | None] = lambda: None) -> None:
        try:
            async with self._clock.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            log.info("closing %s with %d calls in progress", self.name, self._calls)
        await self.close()

    async def close(self) -> None:
        self._is_over = True
        await self.stop()

    # One call.

    async def _run(self, call: Call) -> Done:
        try:
            whose = call.client.principal.counted_as
            await self._concurrency.take(self._server.timeout, whose)
            try:
                answer = await self._posted_or_again(call)
            finally:
                self._concurrency.give_back(whose)
        except Lost as lost:
            failed = self._failed(str(lost), lost.reach, words=lost.words)
            raise marked(failed) if lost.is_meant else failed from None
        except TimeoutError:
            raise self._failed(f"no answer within {self._server.timeout:g} s", "sent_unknown", "TIMEOUT") from None
        except Fault as fault:
            if fault.code == "TOOL_NOT_FOUND":
                raise
            raise self._failed(fault.message, "not_sent", fault.code, fault.hint, fault.words) from None
        look = partial(answers.result, answer, self._server)
        whose = call.client.principal.counted_as
        return Done(await self._link_deps.bounds.answers.looked_at(whose, len(answer.body), look), kept=answer.kept)

    async def _posted_or_again(self, call: Call) -> WholeAnswer:
        """A process that does not listen any more is ending: what it was not sent is for another one. One that is at
        work for others, and takes no connection now, goes on with that."""
        whose = call.client.principal.counted_as
        line, head = await self._line_for(call.target, whose)
        program, answered = self._program, line.answered
        call = await rechecked(call)
        try:
            return await self._posted(line, head, call)
        except Lost as lost:
            if not program or lost.is_meant or lost.reach == "executed":
                raise
            has_ended = await program.has_ended(self._clock)
            await crowds.turn(whose)
            if lost.reach != "not_sent":
                if has_ended and program.fault:
                    raise Lost(program.fault.message, lost.reach, words=program.fault.words) from None
                raise
            if not has_ended and line.serves(answered):
                raise
            if self._line is line:
                await self._let_go(str(lost))
        line, head = await self._line_for(call.target, whose)
        return await self._posted(line, head, await rechecked(call))

    async def _line_for(self, tool: str, whose: str) -> tuple[HttpClient, bytes]:
        """The line that this tool is reached by, and the head of its requests there. The server is asked again what it
        has where that is not known of it, but not again and again for what it has not. `whose` call it is: see
        `Principal.counted_as`."""
        self._refuse_what_cannot_be()
        was_asked = self._heads is not None and self._clock.now() - self._in_vain < AGAIN
        if not self._has(tool) and (was_asked or tool not in (await self._ask(whose)).names):
            self._in_vain = self._in_vain if was_asked else self._clock.now()
            raise Fault("TOOL_NOT_FOUND", f"Tool not found: {tool}", reach="not_sent")
        if not self._has(tool):  # its process has ended in the same moment
            raise Lost(f"{self.name} has ended", "not_sent")
        line = self._line = self._line or self._line_to(self._server.url)
        return line, self._head(line, tool)

    def _has(self, tool: str) -> bool:
        """As far as it has said so since it may be another."""
        return self._heads is not None and self._tools is not None and tool in self._tools.names

    def _head(self, line: HttpClient, tool: str) -> bytes:
        """Of a request to a tool that it has."""
        assert self._heads is not None and self._tools
        if tool not in self._heads:
            if len(self._heads) >= MOST_HEADS:
                del self._heads[next(iter(self._heads))]
            self._heads[tool] = line.head("POST", self._tools.path(tool), has_body=True)
        return self._heads[tool]

    async def _posted(self, line: HttpClient, head: bytes, call: Call) -> WholeAnswer:
        if call.reached:
            call.reached.is_sent = True
        answered = line.answered
        try:
            arguments, whose = bytes(call.arguments) or b"{}", call.client.principal.counted_as
            kept = Kept(self._link_deps.results.begun(whose, self._server.id))
            async with self._clock.timeout(self._server.timeout):
                answer = await line.ask(head, arguments, whose, kept=kept)
        except Lost as lost:
            if lost.reach == "not_sent" and self._line is line and not line.serves(answered):
                self._set_failed(answers.none(lost, self._server))
                self._heads = None  # it may be another when it is back
            raise
        if self._line is line:
            self._state, self._fault = "ready", None
        return answer

    def _failed(
        self, why: str, reach: Reach, code: Code = "SERVER_FAILED", hint: str = "", words: Words | None = None
    ) -> Fault:
        hint = hint or (self._fault.hint if self._fault else "")
        return Fault(code, f"Tool execution failed: {why}", server=self.id, reach=reach, hint=hint, words=words)

    def _nothing_such(self, call: Call) -> Fault:
        if call.kind == "methods":
            return Fault("METHOD_NOT_FOUND", f"Method not found: {call.method}", reach="not_sent")
        if call.kind == "tasks":
            return tasks.not_found()
        if call.reference:
            return Fault("METHOD_NOT_FOUND", f"{self.name} does not support completion", reach="not_sent")
        kind = mcp.KINDS[call.kind]
        return Fault(kind.missing, f"{kind.noun} not found: {call.target}", reach="not_sent")

    # What it says of itself.

    async def _ask(self, whose: str = "") -> Tools:
        """Asked once, however many wait for it, who go on in turns; started where it must be. Raises `Fault`."""
        if not self._asking:
            self._asking = asyncio.get_running_loop().create_task(self._asked(), name=f"list the tools of {self.id}")
            self._asking.add_done_callback(self._was_asked)
        asking = self._asking
        await crowds.over(asking)
        await crowds.turn(whose)
        if asking.cancelled():
            raise stopped(self.id, self.name, "not_sent")
        return asking.result()

    def _was_asked(self, done: asyncio.Task[Tools]) -> None:
        self._asking = None
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more

    async def _asked(self) -> Tools:
        if self._state != "ready":
            self._state = "starting"
        try:
            line, answer = await self._metadata()
            bounds = self._link_deps.bounds
            steps = answers.tools(answer, line, self._server, bounds.limits)
            tools = await bounds.looked_through(self.id, len(answer.body), steps)
            if self._line is not line:  # its process has ended meanwhile
                raise Fault("SERVER_FAILED", f"{self.name} has ended", server=self.id, reach="not_sent")
        except Fault as fault:
            if not self._is_over:
                self._set_failed(fault)
            raise
        self._learn(tools)
        return tools

    async def _metadata(self) -> tuple[HttpClient, WholeAnswer]:
        self._refuse_what_cannot_be()
        if self._server.command and not self._program:
            await self._predecessors.gone()
            return await self._started()
        line = self._line = self._line or self._line_to(self._server.url)
        program = self._program
        try:
            async with self._clock.timeout(self._server.timeout):
                return line, await line.ask(line.head("GET"))
        except Lost as lost:
            if program and await program.has_ended(self._clock):
                return await self._started()
            raise answers.none(lost, self._server) from None
        except TimeoutError:
            message = f"{line} did not list its tools within {self._server.timeout:g} s"
            raise Fault("TIMEOUT", message, server=self.id, reach="not_sent") from None

    def _learn(self, tools: Tools) -> None:
        for fault in tools.faults:
            if self._complaints.takes(self.id):
                log.warning("%s: ignored a tool: %s", self.name, fault)
        before, self._tools = self._tools, tools
        self._heads = {}
        self._unlisted = self._clock.now()
        was_ready = self._state == "ready"
        self._state, self._fault = "ready", None
        if not was_ready:
            self._on_event(Event(self.id, "opened"))
        elif before and before.raw != tools.raw:
            self._on_event(Event(self.id, "list_changed", "", ("tools",)))

    def _refuse_what_cannot_be(self) -> None:
        why = f"{self.name} is no longer configured" if self._is_over else self._server.problem
        if why:
            raise Fault("SERVER_FAILED", why, server=self.id, reach="not_sent")

    def _set_failed(self, fault: Fault) -> None:
        kept = fault.at("", "")  # whose traceback holds no call
        self._state, self._fault, self._unlisted = "failed", kept, None
        if self._complaints.takes(self.id):
            log.warning("%s: %s", self.name, fault.told().message)

    def _line_to(self, url: str, program: Program | None = None) -> HttpClient:
        """`{name}` in a URL is the server's in kebab case, as ids are."""
        try:
            server, deps = self._server, self._link_deps
            dial = program.dialling(deps.dial(server), deps.bounds) if program else deps.dial(server)
            url = url.replace("{name}", self.id)
            return HttpClient(
                *(url, server.headers, self._clock, dial, deps.turns, deps.places),
                *(self.id, server.timeout),
            )
        except ValueError as error:
            hint = f"correct url in the configuration of {self.name}"
            raise Fault("SERVER_FAILED", str(error), server=self.id, reach="not_sent", hint=hint) from None

    # Its process, where it has one.

    async def _started(self) -> tuple[HttpClient, WholeAnswer]:
        """What it answers first, once it has been started. Raises `Fault`."""
        self._state = "starting"
        program = Program(self._server, self._server.url, self._ended)
        line = self._line_to(program.url, program)
        self._program, self._line = program, line
        try:
            await program.start(self._link_deps)
            return line, await program.first_answer(line, self._clock)
        except Fault as fault:
            await self._let_go(fault.message)
            message = f"Server not started: {fault.message}"
            raise Fault(
                fault.code, message, server=self.id, reach="not_sent", hint=fault.hint, words=fault.words
            ) from None

    def _ended(self, program: Program) -> None:
        """The process is gone, however it ended; the next use starts another."""
        if self._program is program and self._state != "starting" and program.fault:
            self._forget(program.fault.message)
            self._set_failed(program.fault)

    def _forget(self, why: str, is_meant: bool = False) -> Program | None:
        program, self._program = self._program, None
        line, self._line = self._line, None
        if program:
            self._last = program.describe()
        if line:
            line.close(why, is_meant)
        if self._server.command:
            self._heads = None  # they name the port of the one that has ended
        return program

    async def _let_go(self, why: str, is_meant: bool = False) -> None:
        program = self._forget(why, is_meant)
        if program:
            await program.end()
            self._last = program.describe()
