"""One call of a stored script.

The rules this file keeps: the text that runs is the one that the call was judged by; its arguments fit the schema that
was approved with it, whoever has looked at them before; and what it may reach is the same on whatever path it is
called, with the rights of its caller."""

from __future__ import annotations

from msgspec import Raw

from toolgate.catalog import prints
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.policy import schemas
from toolgate.policy.checker import Checker
from toolgate.sandbox.stored import Script

LARGEST = 1024 * 1024  # bytes of arguments

PATH = "/mcp/aggregate"  # where the calls of stored scripts are resolved

_UNDECIDED = schemas.ArgumentsVerdict(is_whole=False)


def is_known(script: Script, call: Call) -> bool:
    """Whether this is the text that was listed when the call was judged: a person may have allowed that one alone."""
    return call.tool_info is not None and prints.digest_of(call.tool_info.listed) == script.digest


def changed(script: Script) -> Fault:
    message = f"{script.name} has changed since the call was allowed"
    return Fault("INVALID_STATE", message, reach="not_sent", hint="make the same call again")


async def check(script: Script, call: Call, checker: Checker) -> None:
    """Raises `Fault` where the arguments do not fit, or nobody can tell."""
    arguments = bytes(call.arguments or b"{}")
    if len(arguments) > LARGEST:
        raise _unfit(script, f"they have {len(arguments):,} bytes; the limit is {LARGEST:,}")
    whose = call.client.principal.counted_as
    schema, verdict = await checker.check(whose, names.SCRIPTS, script.schema, arguments, _UNDECIDED)
    if schema.problem:
        raise _unfit(script, f"the schema of the script cannot be used: {schema.problem}")
    if verdict is _UNDECIDED:
        raise _unfit(script, "they take too long to check")
    if verdict.wrong:
        raise _unfit(script, "; ".join(f"{each.pointer or 'arguments'}: {each.message}" for each in verdict.wrong))


def _unfit(script: Script, why: str) -> Fault:
    message = f"Invalid arguments for {script.name}: {why}"
    return Fault("INVALID_ARGS", message, reach="not_sent", extra={"schema": Raw(script.schema)})
