"""Python where the kernel cannot lock CPython: monty, behind the same bridge."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from processes.ground import offspring, real, started, until
from processes.python_snippets import SNIPPETS
from processes.sandbox_stage import Stage, staged
from sandboxing import supervising

from toolgate.config import Config
from toolgate.config.sandbox import Sandbox as Settings
from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox import monty
from toolgate.sandbox.limits import DEFAULTS, Limits
from toolgate.sandbox.run import Host, SandboxError
from toolgate.sandbox.services import Sandbox
from toolgate.sandbox.worker import Engine
from toolgate.upstreams.process import confinement
from toolgate.upstreams.process.supervisor import Supervisor

pytestmark = pytest.mark.skipif(not monty.is_installed(), reason="monty is not installed")

POOR = confinement.Layers("Darwin", "arm64", 0, False)


def engine(supervisor: Supervisor, limits: Limits, _is_lenient: bool) -> Engine:
    return monty.engine(supervisor, limits)


async def value(stage: Stage, code: str, **more: Any) -> Any:
    ran = await stage.pool.run(code, stage.host(), **more)
    assert ran.engine.startswith("monty ")
    return None if ran.value is None else json.loads(ran.value)


RESULTS: dict[str, Any] = {
    "1 + 1": 2,
    "x = 5": None,
    "result = [1]\nprint('x')": [1],
    "result = 1\nresult + 1": 2,
    "print('only this')": None,
    "[float('nan'), 1e300, {1}, (1, 2)]": ["nan", 1e300, "{1}", [1, 2]],
    "import math\nmath.sqrt(16)": 4.0,
    "data['a'] + 1": 42,
    "servers.shop.echo(n=1)": {"n": 1},
    "servers.shop.echo({'n': 1}, m=2)": {"n": 1, "m": 2},
    "servers['shop']['echo'](n=3)": {"n": 3},
    "servers.shop.call('echo', {'n': 4})": {"n": 4},
    "servers.shop.call_raw('echo', n=5)": {"n": 5},
    "list(servers)": ["shop", "batch", "__proto__", 'a"b\n\u2028'],
    "'shop' in servers, 'x' in servers, list(servers.shop)": [True, False, ["echo", "fail", "much"]],
    "servers.batch([['shop', 'echo', {'n': 1}], {'server': 'shop', 'tool': 'fail'}])": [
        {"ok": True, "value": {"n": 1}},
        {"ok": False, "error": {"message": "no tool fail on shop: did you mean echo?", "code": "TOOL_NOT_FOUND"}},
    ],
    "try:\n    servers.shop.fail()\nexcept ToolError as e:\n    result = str(e)": (
        "no tool fail on shop: did you mean echo?"
    ),
}


@real
async def test_values_and_calls_are_those_of_the_other_engine() -> None:
    async with staged(make=engine, warm=1) as stage:
        for code, expected in RESULTS.items():
            assert (code, await value(stage, code, data=b'{"a": 41}')) == (code, expected)


@real
async def test_half_of_what_models_write_runs() -> None:
    async with staged(make=engine, warm=2) as stage:
        right = [name for name, code, expected in SNIPPETS if await came(stage, code) == expected]
    assert len(right) >= 20, right  # of 43: it has no inheritance, no generators, and less of the standard library


async def came(stage: Stage, code: str) -> Any:
    try:
        return await value(stage, code)
    except SandboxError as error:
        return error


ERRORS = {
    "1 / 0": 'ZeroDivisionError: division by zero\n  File "<script>", line 1\n    1 / 0',
    "x =": "SyntaxError: ",
    "open('/etc/passwd').read()": "PermissionError: ",
    "import socket": "ModuleNotFoundError: ",
    "servers.shop.ecko()": "AttributeError: ",
    "servers.nowhere.echo()": "AttributeError: ",
    "servers.shop.fail()": "RuntimeError: no tool fail on shop: did you mean echo?",
    "servers.shop.echo(x=object())": "TypeError: ",
    "a = []\nwhile True: a.append('x' * 1_000_000)": "MemoryError: memory limit exceeded",
    "def f(): return f()\nf()": "RecursionError: ",
}


@real
async def test_errors_say_what_they_say_elsewhere() -> None:
    async with staged(make=engine, warm=1, address_space=128 << 20) as stage:
        for code, said in ERRORS.items():
            told = await stage.told(code)
            assert told.startswith(f"\nSandbox error: {said}"), (code, told)


@real
async def test_what_does_not_end_is_ended_and_leaves_nothing() -> None:
    async with staged(make=engine, wall=0.5) as stage:
        told = await stage.told("print('before')\nwhile True: pass")
        assert told == "before\nSandbox error: execution timed out after 500ms"
        run = asyncio.ensure_future(stage.pool.run("servers.shop.echo()\nwhile True: pass", stage.host(), wall=30))
        stage.called.clear()
        await until(lambda: stage.called)
        run.cancel()
        await asyncio.wait([run])
        await until(lambda: not started())
    assert not offspring()


# Which engine runs.


def sandbox(supervisor: Supervisor, **settings: Any) -> tuple[Sandbox, Config]:
    config = Config(sandbox=Settings(warm=0, **settings))
    return Sandbox(config, supervisor, SystemClock(), IntakeQueue()), config


@real
async def test_it_runs_where_nothing_locks_cpython_and_the_gateways_own_programs_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confinement, "layers", lambda: POOR)
    async with supervising() as supervisor:
        service, config = sandbox(supervisor)
        assert "python" in service.offered(config) and "own" not in service.offered(config)
        ran = await service.run("python", "6 * 7", Host({}, Stage.call), whose="")  # type: ignore[arg-type]
        assert ran.value == b"42" and ran.engine.startswith("monty ")
        with pytest.raises(Fault, match="whose kernel can lock"):
            await service.run("python", "1", Host({}, Stage.call), whose="", is_own=True)  # type: ignore[arg-type]
        await service.close()


@real
async def test_nothing_runs_where_the_kernel_must_lock_it_or_neither_engine_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confinement, "layers", lambda: POOR)
    async with supervising() as supervisor:
        assert "cannot be locked" in monty.either(supervisor, DEFAULTS, is_lenient=False).problem()
        monkeypatch.setattr(monty, "is_installed", lambda: False)
        problem = monty.either(supervisor, DEFAULTS, is_lenient=True).problem()
        assert "cannot be locked" in problem and "pip install 'toolgate[monty]'" in problem
        service, config = sandbox(supervisor, require_os_confinement="never")
        assert "python" not in service.offered(config)
        await service.close()
