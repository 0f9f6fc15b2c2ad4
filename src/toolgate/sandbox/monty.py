"""The other Python engine: monty, an interpreter that has no way to files, networks or processes in it, for machines
whose kernel cannot lock CPython.

It knows less of Python than CPython does. The rules this file keeps: it is taken only where CPython cannot be locked,
and its name is in what comes of a run; it reaches nothing but the bridge, which the program around it
(`monty_script`) holds.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from importlib.metadata import version

from toolgate.sandbox import javascript, python
from toolgate.sandbox.bridge import Broken
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.worker import Engine, Worker
from toolgate.upstreams import diagnosis
from toolgate.upstreams.process import confinement
from toolgate.upstreams.process.supervisor import Child, Supervisor

log = logging.getLogger(__name__)

PACKAGE = "pydantic_monty"
INSTALL = "pip install 'toolgate[monty]'"

_HERE = os.path.dirname(os.path.abspath(__file__))
COMMAND = "import sys; sys.path.append(sys.argv[1]); import monty_script; monty_script.main(*map(int, sys.argv[2:]))"


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def either(supervisor: Supervisor, limits: Limits, is_lenient: bool = False) -> Engine:
    """CPython, where the kernel can lock it; else this one, where it is installed and may run without the kernel."""
    locked = python.engine(supervisor, limits)
    if not locked.problem() or not is_lenient:
        return locked
    if is_installed():
        return engine(supervisor, limits)
    why = f"{locked.problem()}, and another engine is not installed ({INSTALL})"
    return Engine("python", locked.start, lambda: why, locked.layers, close=locked.close)


def engine(supervisor: Supervisor, limits: Limits) -> Engine:
    """The engine whose processes this supervisor starts and ends. The package is installed."""

    async def start(worker: Worker) -> None:
        child: Child | None = None

        def exited(reason: str) -> None:
            last = diagnosis.last_words(child.stderr.text()) if child else ""
            if not reason.endswith("was stopped"):
                log.warning("the process of %s: %s", reason, last)
            worker.exited(Broken(f"the sandbox failed: its process {reason.removeprefix('monty ')}"))

        args = ["-I", "-B", "-X", "utf8", "-c", COMMAND, _HERE, str(limits.address_space), str(limits.cpu)]
        child = await supervisor.start(
            *("monty", sys.executable, args, python.ENVIRONMENT, None),
            *(worker.wrote, exited, _unheard),
        )
        child.on_full, child.on_room = worker.full, worker.room
        worker.started(child.pid, child.write, javascript.killing(child), child.output)

    def lacks() -> str:
        return "; ".join(confinement.missing(python.box_of_run(limits.address_space, limits.cpu)))

    def layers() -> str:
        return f"monty {version('pydantic-monty')}, not confined by the kernel"

    return Engine("python", start, layers=layers, lacks=lacks, runs_own=False)


def _unheard() -> None:
    """What it writes to stderr is looked at when it has ended."""
