"""How many calls in a while, how many at once, and how large their arguments may be (behaviour.md, seed 001).

The rules this file keeps: a call is charged in all its meters or in none, and once, whatever it asks on its way; what
is taken while it runs is given back when its round is over, however it ends, or the task that it has become; meters
outlive configurations, and are bounded.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import msgspec

from toolgate.config import Config
from toolgate.config.access import Rate
from toolgate.config.shapes import EVERY
from toolgate.core import counting, mcp, names
from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairThreads
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Outcome, Principal
from toolgate.core.spelling import as_a_lenient_reader
from toolgate.policy.base import Passed, Policy, Wait

MOST_METERS = 20_000  # of each kind; beyond, those that are soonest as good as new are forgotten
SOON = 1.0  # seconds after which one may try again where too much runs
BREATH = 0.005  # seconds that one is not heard then, who is refused again and again: what runs may end at any time

_EXACT = 1e-6  # seconds: what a sum of floats may lack


class Meter:
    """One kind of meters: what was charged and what runs, by key.

    `filled` is the time at which a meter is as good as new: as in a bucket that a rate fills, each call puts it off by
    the share of time of one call, and one that would put it off by more than the whole time has to wait.
    """

    def __init__(self) -> None:
        self.filled: dict[object, float] = {}
        self.running: dict[object, int] = {}

    def spend(self, key: object, most: int, since: float, until: float, now: float) -> bool:
        """Charge one of so many calls that may be made between two moments of `Clock.now`, as in a day; False where all
        are spent, and nothing is charged."""
        share = (until - since) / most
        filled = self.filled.get(key, since)  # which may be before the clock began
        if max(filled, since) + share > until + share / 2:  # what a sum of floats may lack
            return False
        self.put_off(key, since, share, now)
        return True

    def put_off(self, key: object, since: float, share: float, now: float) -> None:
        """Charge a call that is worth `share` seconds, from `since` on where it was as good as new then."""
        filled = self.filled.get(key, since)
        self.filled[key] = (filled if filled > since else since) + share
        if len(self.filled) > MOST_METERS:
            self.forget(now)

    def count(self, key: object, more: int) -> None:
        """So many more run, or fewer."""
        if left := self.running.get(key, 0) + more:
            self.running[key] = left
        else:
            self.running.pop(key, None)

    def forget(self, now: float) -> None:
        lasting = [(key, filled) for key, filled in self.filled.items() if filled > now]
        lasting.sort(key=lambda each: each[1])
        for key in self.filled.keys() - dict(lasting[-MOST_METERS // 2 :]).keys():
            del self.filled[key]


class Meters:
    """Those of a gateway, by kind. Whoever looks at one and then charges it does so `together`: with no other process
    in between that has the same."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.together: AbstractContextManager[Any] = threading.RLock()  # costs less than what does nothing
        self._kinds: dict[str, Meter] = {}
        self.asking = FairThreads(1)  # calls that are written out for an operator
        self.on_refused: Callable[[str, float], None] | None = None  # told who, and for how many seconds still

    def refused(self, who: Principal, wait: float) -> None:
        """A call of this principal was refused, as others would be for so many seconds."""
        if self.on_refused:
            self.on_refused(who.counted_as, wait)

    def of(self, kind: str) -> Meter:
        """Those of a kind, such as the name of a policy that counts: the same, whatever the configuration."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = self._made(kind)
        return found

    def _made(self, kind: str) -> Meter:
        return Meter()

    def limits(self, config: Config) -> Limits:
        """Those of a configuration, by these meters."""
        return Limits(config, self)

    @property
    def are_idle(self) -> bool:
        """Whether nothing runs."""
        return not any(each.running for each in self._kinds.values())


class _Limit:
    """What holds for one kind of meters: `whose` says whose limit it is, in messages."""

    def __init__(self, whose: str, meter: Meter, rate: Rate | None, most: int | None) -> None:
        self.whose = whose
        self.rate = rate
        self.most = most
        self.is_some = rate is not None or most is not None
        self.meter = meter
        self._filled, self.running = meter.filled, meter.running
        self.share = rate.seconds / rate.count if rate else 0.0
        self._slack = rate.seconds - self.share + _EXACT if rate else 0.0

    def has_room(self, key: object, now: float) -> bool:
        """Whether one more call is in order."""
        most, rate = self.most, self.rate
        if most is not None and self.running.get(key, 0) >= most:
            return False
        return rate is None or self._filled.get(key, 0.0) <= now + self._slack

    def is_full(self, key: object) -> bool:
        """Whether as much runs as may."""
        return self.most is not None and self.running.get(key, 0) >= self.most

    def is_used_up(self, key: object, now: float) -> bool:
        return self.rate is not None and self._filled.get(key, 0.0) > now + self._slack

    def wait(self, key: object, now: float) -> float:
        """Seconds until one more call is in order, where it is not yet."""
        assert self.rate
        filled = min(self._filled[key], now + self.rate.seconds)  # the rate may have been another
        self._filled[key] = filled
        return filled - now - self._slack


Metered: TypeAlias = tuple[_Limit, object]
"""A limit, and the key of the meter that it is held to."""


class Places(msgspec.Struct, eq=False):
    """What a call takes of what may run at once: taken and given back by whoever says so first, until it is over."""

    _limits: Sequence[Metered]
    _together: AbstractContextManager[Any]
    _are_taken: bool = False
    _has_ended: bool = False  # the round: the next one has places of its own
    _is_over: bool = False

    def take(self) -> None:
        with self._together:
            if not (self._are_taken or self._is_over):
                self._are_taken = True
                for limit, key in self._limits:
                    limit.meter.count(key, 1)

    def give_back(self) -> None:
        """Nobody need wait for that: each process counts what runs there by itself."""
        if self._are_taken:
            self._are_taken = False
            for limit, key in self._limits:
                limit.meter.count(key, -1)

    def ended(self, goes_on: bool) -> None:
        """The round. `goes_on`: at the server, as a task, until that is over."""
        self._has_ended = True
        self.take() if goes_on else self.give_back()

    def over(self) -> None:
        self.give_back()
        self._is_over = True

    def rests(self, rests: bool) -> None:
        """The call waits for a person, or goes on. Raises `Fault` where it finds no place then."""
        if self._has_ended:
            return
        if rests:
            self.give_back()
            return
        with self._together:
            full = None if self._are_taken else next((limit for limit, key in self._limits if limit.is_full(key)), None)
            if full:
                raise _too_many_at_once(full)
            self.take()


class Limits(Policy):
    """Of one configuration. What is of no limit is not metered."""

    name = "limits"
    sees_misses = True

    def __init__(self, config: Config, meters: Meters) -> None:
        rates, most = config.limits.rates, config.limits.concurrency
        self._clock = meters.clock
        self._meters = meters
        self._largest = config.limits.argument_limit
        self._values = config.limits.values
        self._tools = {server.id: server.tools for server in config.servers}
        self._counts = config.most_values > self._values  # else who took the request has counted
        self._principal = _Limit("this client", meters.of("principal"), rates.principal, most.principal)
        self._clients: Mapping[str, _Limit] = {
            client.id: _Limit(
                "this client",
                meters.of("principal"),
                client.limits.rate or rates.principal,
                client.limits.concurrency or most.principal,
            )
            for client in config.clients
        }
        self._server = _Limit("this server", meters.of("server"), rates.server, most.server)
        self._servers: Mapping[str, _Limit] = {
            server.id: _Limit("this server", meters.of("server"), server.rate, most.server)
            for server in config.servers
            if server.rate
        }
        self._tool = _Limit("this tool", meters.of("tool"), rates.tool, most.tool)
        self.has_meters = any(
            limit.is_some
            for limit in (self._principal, self._server, self._tool, *self._clients.values(), *self._servers.values())
        )

    @property
    def are_some(self) -> bool:
        return self.has_meters or self._largest is not None or self._counts

    def made_for(self, call: Call) -> Callable[[Call, bool, Any], Call | Passed | Wait]:
        if call.method != mcp.CALL or not self.has_meters or self._largest is not None or self._counts:
            return self.before
        others = self._of_target(call)

        def before(call: Call, was_passed: bool, waited: Any = None) -> Call | Passed:
            who = call.client.principal
            own = self._clients.get(who.client, self._principal)
            return self._entered(call, [(own, who.counted_as), *others] if own.is_some else others, was_passed)

        return before

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Passed | Wait:
        """A round that goes on with what was let through once is not refused; while it runs, it counts."""
        is_of_tool = call.method == mcp.CALL
        if self._largest is not None:
            self._refuse_too_large(call, self._largest)
        if self._counts and is_of_tool and not waited:
            if len(call.arguments) > counting.LARGE:
                return Wait(lambda: self._counted(call))
            self._refuse_too_many(call)
        if not self.has_meters or (not is_of_tool and call.kind == "tasks"):  # who asks how work goes on does none
            return call
        return self._entered(call, self._of(call), was_passed)

    def _entered(self, call: Call, limits: list[Metered], was_passed: bool) -> Call | Passed:
        if not was_passed:
            self._charge(limits, call.client.principal)
        taken = [each for each in limits if each[0].most is not None]
        if not taken:
            return call
        places = Places(taken, self._meters.together)
        places.take()
        if reached := call.reached:
            reached.rests += (places.rests,)
            reached.over += (places.over,)
        return Passed(call, places)

    async def check(self, call: Call) -> None:
        """Arguments that somebody has written into a call that was let through. Raises `Fault`."""
        if self._largest is not None:
            self._refuse_too_large(call, self._largest)
        await self._counted(call)

    async def _counted(self, call: Call) -> bool:
        """That it has no more values than it may have. Raises `Fault`."""
        if len(call.arguments) > counting.LARGE:
            await asyncio.to_thread(self._refuse_too_many, call)
        else:
            self._refuse_too_many(call)
        return True

    def _refuse_too_large(self, call: Call, largest: int) -> None:
        size = len(call.arguments)
        if size > largest:
            raise Fault(
                "INVALID_ARGS",
                f"Invalid arguments for {call.shown}: they have {size:,} bytes; the limit is {largest:,}",
                reach="not_sent",
                hint="send less at once, or send a reference to large data",
                extra={"limit": largest, "size": size},
            )

    def _refuse_too_many(self, call: Call) -> None:
        """Where some tools may be given more than others."""
        tools = self._tools.get(call.server, {})
        own = tools.get(call.target) or tools.get(EVERY)
        most = (own and own.values) or self._values
        if counting.has_more_values(bytes(call.arguments), most):
            raise Fault(
                "INVALID_ARGS",
                f"Invalid arguments for {call.shown}: they have more than {most:,} JSON values (limits.values)",
                reach="not_sent",
                hint="send less at once, or send a reference to large data",
                extra={"limit": most},
            )

    def _charge(self, limits: list[Metered], who: Principal) -> None:
        now = self._clock.now()
        for limit, key in limits:
            if limit.has_room(key, now):
                continue
            if limit.is_full(key):
                self._meters.refused(who, BREATH)
                raise _too_many_at_once(limit)
            fault = _too_often([each for each in limits if each[0].is_used_up(each[1], now)], now)
            self._meters.refused(who, fault.extra["retryAfter"])
            raise fault
        for limit, key in limits:
            if limit.rate:
                limit.meter.put_off(key, now, limit.share, now)

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: Places | None) -> None:
        if ticket:
            ticket.ended(bool(call.reached and call.reached.goes_on))

    def _of(self, call: Call) -> list[Metered]:
        """What concerns this call. Control tools cost their callers, and no server."""
        who = call.client.principal
        own = self._clients.get(who.client, self._principal)
        return [*([(own, who.counted_as)] if own.is_some else ()), *self._of_target(call)]

    def _of_target(self, call: Call) -> list[Metered]:
        found: list[Metered] = []
        if call.server and call.server != names.OWN:  # it is empty where the target is not found
            if (limit := self._servers.get(call.server, self._server)).is_some:
                found.append((limit, call.server))
            if self._tool.is_some and call.method == mcp.CALL:
                found.append((self._tool, (call.server, as_a_lenient_reader(call.target))))  # a server may read it so
        return found


def _too_often(limits: list[Metered], now: float) -> Fault:
    """It has to wait for the slowest of them."""
    wait, slowest = max(((limit.wait(key, now), limit) for limit, key in limits), key=lambda each: each[0])
    assert slowest.rate
    rate = f"{slowest.rate.count:,} calls in {slowest.rate.seconds:g} s"
    return _refusal(f"Too many calls: {slowest.whose} may have {rate}", math.ceil(wait * 1000) / 1000)


def _too_many_at_once(limit: _Limit) -> Fault:
    return _refusal(f"Too many calls at once: {limit.whose} may have {limit.most:,}", SOON)


def _refusal(message: str, wait: float) -> Fault:
    return Fault("RATE_LIMITED", message, reach="not_sent", hint=f"try again in {wait:g} s", extra={"retryAfter": wait})
