"""Code runs where the system is not Linux: what only Linux has is not touched, neither by an import nor by a run.

It is a Linux without what macOS lacks (`children/elsewhere.py`), since these tests have no other."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.ground import CHILDREN, WAIT, real

from toolgate.sandbox import monty

IMPORTS = """
import importlib, pkgutil, sys, toolgate
for each in pkgutil.walk_packages(toolgate.__path__, "toolgate."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
print(sys.platform)
"""

ENDS = """
import os, time
from toolgate.upstreams.process import guard
told = [guard.has_children()]
pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
until = time.monotonic() + 60
while not guard.REAPED and time.monotonic() < until:
    told[1:] = [guard.has_children()]
told += [guard.has_children(), guard.reap() == {pid: 3}, guard.reap(), guard.has_children()]
print(told)
"""

RUNS = """
import asyncio, json, logging, logging.handlers, os
from toolgate.config import Config
from toolgate.config.sandbox import Sandbox as Settings
from toolgate.core.clock import SystemClock
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox.run import Host
from toolgate.sandbox.services import Sandbox, described
from toolgate.upstreams.process.supervisor import Supervisor

async def echo(server, tool, arguments, raw, rests):
    return arguments

async def main():
    warnings = logging.handlers.BufferingHandler(1000)
    logging.getLogger("toolgate").addHandler(warnings)
    clock, config = SystemClock(), Config(sandbox=Settings(warm=0))
    supervisor = Supervisor(clock, os.environ)
    sandbox = Sandbox(config, supervisor, clock, IntakeQueue())
    told = {"offered": sorted(sandbox.offered(config)), "described": described(config)}
    for language, code in (("python", "servers.shop.echo(n=6)['n'] * 7"),
                           ("javascript", "return (await servers.shop.echo({ n: 6 })).n * 7")):
        ran = await sandbox.run(language, code, Host({"shop": ["echo"]}, echo), whose="ann")
        told[language] = [json.loads(ran.value), ran.engine.split()[0]]
    await sandbox.close()
    await supervisor.close()
    told["warnings"] = [each.getMessage() for each in warnings.buffer]
    print(json.dumps(told))

asyncio.run(main())
"""


async def elsewhere(folder: Path, code: str) -> str:
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{CHILDREN / "elsewhere.py"}" "{python}" "$@"\n')
    python.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", code), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WAIT):
        output, errors = await process.communicate()
    assert (process.returncode, errors.decode()[-3000:]) == (0, "")
    return output.decode()


@real
async def test_nothing_that_only_linux_has_is_touched_by_an_import(tmp_path: Path) -> None:
    assert await elsewhere(tmp_path, IMPORTS) == "darwin\n"


@real
async def test_the_guard_knows_which_of_its_children_have_ended(tmp_path: Path) -> None:
    assert await elsewhere(tmp_path, ENDS) == "[False, True, True, True, {}, False]\n"


@pytest.mark.skipif(not monty.is_installed(), reason="monty is not installed")
@real
async def test_code_of_both_languages_runs_and_python_by_the_engine_that_needs_no_kernel(tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(await elsewhere(tmp_path, RUNS))
    assert told["python"] == [42, "monty"] and told["javascript"] == [42, "deno"]
    assert len(told["warnings"]) == 2 and all("is not confined whole" in each for each in told["warnings"])
    assert told["offered"] == ["javascript", "python"]
    (python, _), (javascript, _) = told["described"]["python"], told["described"]["javascript"]
    assert python.startswith("monty ") and javascript.endswith(", none")
