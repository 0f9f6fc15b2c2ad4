"""The JavaScript engine: Deno, one process for each run, with no permission, and `worker.js` in it.

The rules this file keeps: an engine that is not installed is an error that says what to install, never another engine;
what the process may not do is said by flags here and by the box that it is put into, each as if the other were not
there.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from toolgate.core.fault import Fault
from toolgate.sandbox.bridge import MEMORY, Broken
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.worker import Engine, Worker
from toolgate.upstreams import diagnosis
from toolgate.upstreams.process import confinement
from toolgate.upstreams.process.confinement import Box
from toolgate.upstreams.process.supervisor import Child, Supervisor

log = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("worker.js")

FLAGS = (
    "run",
    "--quiet",
    "--no-prompt",
    "--no-remote",
    "--no-npm",
    "--no-config",
    "--no-lock",
    "--cached-only",
    "--no-code-cache",
    *(f"--deny-{what}" for what in ("import", "read", "write", "net", "env", "sys", "run", "ffi")),
)
RESERVED = 512 * 1024 * 1024  # bytes that a process may write to; what it has in memory is looked at by `run`
STACK = 900  # KB of V8's stack: less than it has, so that what Deno does itself near its end has room

# Nothing of the gateway's environment is Deno's business. Its folders are ones that cannot be: it would make them, and
# read an .npmrc.
NOWHERE = "/proc/toolgate"
ENVIRONMENT = {
    "HOME": NOWHERE,
    "DENO_DIR": NOWHERE,
    "DENO_NO_PACKAGE_JSON": "1",
    "DENO_NO_UPDATE_CHECK": "1",
    "NO_COLOR": "1",
}

_OUT_OF_MEMORY = ("out of memory", "Fatal process out of memory", "invalid table size")


def command(limits: Limits) -> list[str]:
    """The program and its arguments. Raises `Fault` where it is not installed."""
    heap = f"--max-old-space-size={limits.heap},--stack-size={STACK}"
    v8 = f"--v8-flags=--disallow-code-generation-from-strings,{heap}"
    return [_deno(), *FLAGS, v8, str(WORKER)]


def _deno() -> str:
    try:
        from deno import find_deno_bin  # pyright: ignore[reportMissingTypeStubs]

        return str(find_deno_bin())
    except (ImportError, OSError):
        message = "Code in JavaScript cannot run: its engine, Deno, is not installed"
        raise Fault("SERVER_FAILED", message, reach="not_sent", hint="pip install 'toolgate[sandbox]'") from None


def engine(supervisor: Supervisor, limits: Limits, is_lenient: bool = False) -> Engine:
    """The engine whose processes this supervisor starts and ends. `is_lenient`: also where the system cannot confine
    them whole."""

    @cache  # of what is there: to look for it takes longer than all else that is done for a run which is refused
    def box() -> Box:
        confined = confinement.box_for_deno(_deno(), [str(WORKER)], RESERVED, limits.cpu)
        return dataclasses.replace(confined, lenient=is_lenient)

    def lacks() -> str:
        return "; ".join(confinement.missing(box()))

    def problem() -> str:
        try:
            lacking = lacks()
        except Fault as fault:
            return f"{fault.message} ({fault.hint})"
        refused = lacking and not is_lenient
        return f"code in JavaScript cannot be confined on this machine: it lacks {lacking}" if refused else ""

    async def start(worker: Worker) -> None:
        program, *arguments = command(limits)
        child: Child | None = None

        def exited(reason: str) -> None:
            worker.exited(_why(reason, child.stderr.text() if child else ""))

        child = await supervisor.start(
            *("javascript", program, arguments, ENVIRONMENT, None),
            *(worker.wrote, exited, _unheard),
            box=box().packed(),
        )
        child.on_full, child.on_room = worker.full, worker.room
        worker.started(child.pid, child.write, killing(child), child.output)
        worker.write(b"\n")  # it is ready when it has read a line

    def layers() -> str:
        return f"deno {version('deno')}, no permissions, {confinement.layers().words}"

    return Engine("javascript", start, problem, layers, lacks)


def _unheard() -> None:
    """What V8 writes to stderr is looked at when it has ended."""


def killing(child: Child) -> Callable[[], None]:
    def kill() -> None:
        """At once: the process would not hear of anything else. What its keeper finds left, it kills."""
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        child.end("was stopped")

    return kill


def _why(reason: str, stderr: str) -> Broken:
    if any(word in stderr for word in _OUT_OF_MEMORY):
        return Broken(MEMORY)
    if not reason.endswith("was stopped"):
        log.warning("the process of %s: %s", reason, diagnosis.last_words(stderr))
    return Broken(f"the sandbox failed: its process {reason.removeprefix('javascript ')}")
