"""The sandbox of a running gateway: its engines, what they may use, and what confines them, by the configuration.

The rule this file keeps: an engine that is missing, or cannot be confined as the configuration wants it, says so and
runs nothing; there is no weaker engine behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from toolgate.config import Config
from toolgate.core.addresses import LOOPBACK, counted
from toolgate.core.bodies import Bodies
from toolgate.core.clock import Clock, SystemClock
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.core.services import Swap
from toolgate.sandbox import javascript, monty
from toolgate.sandbox.limits import DEFAULTS, Limits
from toolgate.sandbox.pool import Pool
from toolgate.sandbox.run import Host, Ran
from toolgate.sandbox.slots import Slots, TakeTurn
from toolgate.sandbox.worker import Engine
from toolgate.upstreams.process.supervisor import Supervisor

log = logging.getLogger(__name__)

MakeEngine = Callable[[Supervisor, Limits, bool], Engine]
"""An engine, with whether it may run where the system cannot confine it."""

_UNCONFINED = (
    "code in %s is not confined whole: this machine lacks %s; "
    'sandbox.require_os_confinement = "always" refuses such code'
)
OWN = "own"  # what a control tool needs that is a program of ours (`Control.needs`)

ENGINES: Mapping[str, MakeEngine] = {"javascript": javascript.engine, "python": monty.either}


class Sandbox:
    """`engines` are other engines than the usual ones, by language."""

    def __init__(
        self,
        config: Config,
        supervisor: Supervisor,
        clock: Clock,
        intake: IntakeQueue,
        engines: Mapping[str, MakeEngine] = ENGINES,
        held: Bodies | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._engines = engines
        self._warned: set[str] = set()  # the languages of which it was said that something is lacking
        limits = limits_of(config)
        self._settings, self._slots = config.sandbox, Slots(limits, clock, held)
        self._pools = {
            language: Pool(engine, self._slots, limits, clock, intake)
            for language, engine in self._made(config, limits).items()
        }

    def _made(self, config: Config, limits: Limits) -> Mapping[str, Engine]:
        is_lenient = _is_lenient(config)
        return {language: make(self._supervisor, limits, is_lenient) for language, make in self._engines.items()}

    @property
    def held(self) -> Bodies:
        return self._slots.held

    def take_turns(self, take_turn: TakeTurn) -> None:
        """Have the calls of code wait for their principals' turns."""
        self._slots.take_turn = take_turn

    def prepared(self, config: Config) -> Swap:
        """Runs under way keep what they began with."""
        limits = limits_of(config)
        engines = self._made(config, limits)

        def swap() -> None:
            self._settings = config.sandbox
            self._slots.use(limits)
            for language, pool in self._pools.items():
                pool.use(engines[language], limits)

        return swap

    def offered(self, config: Config) -> frozenset[str]:
        """The languages in which clients of this configuration can run code, and whether our own programs can run."""
        pools = self._pools.items() if config.sandbox.enabled else ()
        there = {language: pool.engine for language, pool in pools if not pool.engine.problem()}
        own = {OWN} if (python := there.get("python")) and python.runs_own else set[str]()
        return frozenset(there) | own

    def described(self) -> Mapping[str, str]:
        """By language, what runs code and what keeps it in, or why it cannot run. Nothing where none is to run."""
        if not self._settings.enabled:
            return {}
        return {language: _described(pool.engine) for language, pool in self._pools.items()}

    def missing(self, language: str) -> str:
        """Why code in this language cannot run, with how to change that; empty where it can."""
        if not self._settings.enabled:
            return "code cannot be run here: sandbox.enabled = false"
        pool = self._pools.get(language)
        return pool.engine.problem() if pool else f"code in {language} cannot be run here: there is no engine for it"

    async def run(
        self,
        language: str,
        code: str,
        host: Host,
        *,
        whose: str,
        data: bytes | None = None,
        wall: float | None = None,
        is_own: bool = False,
    ) -> Ran:
        """What comes of code. `whose` it is: see `Principal.counted_as`; `data` is JSON that it finds as `data`; `wall`
        are seconds, where they are to be fewer; `is_own`: the code is the gateway's, of any length. Raises `Fault`
        where it does not run, `SandboxError` where it fails."""
        if why := self.missing(language):
            raise Fault("SERVER_FAILED", why, reach="not_sent")
        if is_own and not self._pools[language].engine.runs_own:
            raise Fault("SERVER_FAILED", f"this needs a machine whose kernel can lock {language}", reach="not_sent")
        self._warn(language)
        pool, strict = self._pools[language], self._settings.strict_globals
        return await pool.run(code, host, whose=whose, data=data, strict=strict, wall=wall, is_own=is_own)

    def _warn(self, language: str) -> None:
        """Once, of code that runs without all that should keep it in."""
        lacking = self._pools[language].engine.lacks() if language not in self._warned else ""
        self._warned.add(language)
        if lacking:
            log.warning(_UNCONFINED, language, lacking)

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()


def described(config: Config) -> Mapping[str, tuple[str, bool]]:
    """By language, what would run code of this configuration here and what keeps it in, or why it would not run; and
    whether it would."""
    if not config.sandbox.enabled:
        return {}
    supervisor, limits = Supervisor(SystemClock(), {}), limits_of(config)
    made = {language: make(supervisor, limits, _is_lenient(config)) for language, make in ENGINES.items()}
    return {language: (_described(engine), not engine.problem()) for language, engine in made.items()}


def _described(engine: Engine) -> str:
    return engine.problem() or engine.layers()


def _is_lenient(config: Config) -> bool:
    """Whether code may run where the system cannot confine it."""
    wanted = config.sandbox.require_os_confinement
    return wanted == "never" or (wanted == "auto" and _is_here(config.http.host))


def _is_here(host: str) -> bool:
    return host == "localhost" or counted(host) == LOOPBACK


def limits_of(config: Config) -> Limits:
    wanted = config.sandbox
    return msgspec.structs.replace(
        DEFAULTS,
        wall=wanted.timeout,
        cpu=max(DEFAULTS.cpu, int(wanted.timeout) + 5),
        output=wanted.output_limit,
        resident=wanted.memory,
        address_space=wanted.memory,
        calls=wanted.calls,
        values=config.most_values,
        runs=wanted.runs or DEFAULTS.runs,
        warm=wanted.warm,
    )
