"""Who is told that a call waits for an operator: the log, and a command or a webhook of the configuration.

The rules this file keeps: no call waits for those who are told; no more are told at once, and none for longer, than the
bounds here; of what waits to be told principals take turns; a command is run without a shell, and gets what it is told
on its standard input; and what is told holds no known secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os.path
import shlex
from typing import Any
from urllib.parse import urlsplit

import msgspec

from toolgate.auth import safe_text
from toolgate.auth.safe_net import SafeNet
from toolgate.config import Config
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.fairness import RoundRobin
from toolgate.core.fault import Fault
from toolgate.core.redaction import Redactor
from toolgate.core.services import Swap
from toolgate.policy.approvals import MOST_REQUESTS, MOST_UNDECIDED, StoredRequest
from toolgate.upstreams import diagnosis
from toolgate.upstreams.process.supervisor import Supervisor

log = logging.getLogger(__name__)

PATIENCE = 10.0  # seconds for a command to end, or a webhook to answer
AT_ONCE = 2  # that are told
MOST_WAITING = MOST_UNDECIDED  # notices of one principal, and `MOST_REQUESTS` of all; more are in the log only


class Notices:
    """`waits` is called for each call that begins to wait."""

    def __init__(self, config: Config, clock: Clock, supervisor: Supervisor, outside: SafeNet, redactor: Redactor):
        self._clock = clock
        self._supervisor = supervisor
        self._outside = outside
        self._redactor = redactor
        self._background = BackgroundTasks()
        self._waiting: RoundRobin[bytes] = RoundRobin()  # by principal
        self._working = 0
        self._notify, self._source = config.approvals.notify, config.source

    def prepared(self, config: Config) -> Swap:
        def swap() -> None:
            self._notify, self._source = config.approvals.notify, config.source

        return swap

    def waits(self, request: StoredRequest) -> None:
        """Never waits itself."""
        command = self.command(request.id)
        place = request.place
        who, what, where = map(safe_text.named, (place.principal, place.target, place.server))
        about = f"{who} calls {what} on {where}"
        log.info("a call waits for approval: %s. Decide: %s", about, command)
        if not self._notify:
            return
        if self._waiting.count(place.principal) >= MOST_WAITING or len(self._waiting) >= MOST_REQUESTS:
            log.warning("approvals.notify: too many notices are queued; approval %s is only in the log", request.id)
            return
        self._waiting.put(place.principal, self._redactor.certain.body(msgspec.json.encode(told(request, command))))
        if self._working < AT_ONCE:
            self._working += 1
            self._background.start(self._tell_all(), "approvals.notify")

    def command(self, id: str) -> str:
        """What decides on a request, as it would be typed."""
        where = f" --config {shlex.quote(os.path.abspath(self._source))}" if self._source else ""
        return f"toolgate approvals allow {id}{where}"

    async def _tell_all(self) -> None:
        try:
            while said := self._waiting.pop():
                await self._tell(said)
        finally:
            self._working -= 1

    async def _tell(self, said: bytes) -> None:
        notify = self._notify
        try:
            async with self._clock.timeout(PATIENCE):
                await (self._post(notify, said) if isinstance(notify, str) else self._run(notify, said))
        except TimeoutError:
            log.warning("approvals.notify did not finish within %g s", PATIENCE)
        except Fault as fault:
            log.warning("approvals.notify failed: %s", fault.message)

    async def _post(self, url: str, said: bytes) -> None:
        """The operator has written the URL, so that it may lead inside (behaviour.md 6.11). Its path may be secret, and
        is not shown."""
        host = urlsplit(url).hostname or ""
        headers = {"Content-Type": "application/json"}
        try:
            answer = await self._outside.fetch(
                url, "POST", asker="approvals.notify", headers=headers, body=said, trusted=(url,), follow=False
            )
        except Fault as fault:
            raise Fault(fault.code, f"{host} is unreachable") from fault
        if answer.status >= 300:
            raise Fault("UPSTREAM_ERROR", f"{host} answered with HTTP {answer.status}")

    async def _run(self, command: tuple[str, ...], said: bytes) -> None:
        if not command:
            return
        ended = asyncio.get_running_loop().create_future()

        def exited(reason: str) -> None:
            if not ended.done():
                ended.set_result(reason)

        no_variables: dict[str, str] = {}
        no_output = (_nothing, exited, lambda: None)
        child = await self._supervisor.start(
            *("approvals.notify", command[0], command[1:], no_variables, None, *no_output),
            talks=False,
            may_gain_privileges=True,  # it is the operator's own
        )
        try:
            with contextlib.suppress(Fault):  # it may have ended already, and not cared
                child.write(said + b"\n")
            child.close_input()
            reason = await ended
        finally:
            child.end()
        if not reason.endswith("status 0"):
            raise Fault("UPSTREAM_ERROR", ": ".join(filter(None, (reason, diagnosis.last_words(child.stderr.text())))))

    async def close(self) -> None:
        self._waiting = RoundRobin()
        await self._background.close()


def told(request: StoredRequest, command: str) -> dict[str, Any]:
    """What a command or a webhook is told of a call that waits. Its arguments have known secrets taken out."""
    place = request.place
    return {
        "event": "approval.waiting",
        "id": request.id,
        "principal": place.principal,
        "server": place.server,
        "kind": place.kind,
        "target": place.target,
        "via": request.via,
        "arguments": request.shown,
        "until": request.until,
        "command": command,
    }


def _nothing(_output: bytes) -> None:
    """What such a command prints is nobody's."""
