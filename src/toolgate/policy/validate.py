"""Arguments are held against their tool's schema before the server sees them (behaviour.md, seed 003).

The rules this file keeps: wrong arguments are one JSON-RPC error -32602 that names everything that is wrong, so that
the next call can be right; a schema that is wrong itself is its server's fault: the call goes on, and the log says so
once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet

import msgspec

from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call, ToolInfo
from toolgate.policy import schemas
from toolgate.policy.base import Policy, Wait
from toolgate.policy.checker import Checker
from toolgate.policy.schemas import FINE, ArgumentsVerdict

log = logging.getLogger(__name__)

_TRIVIAL = frozenset({b"", b"{}", b"true", b'{"type":"object"}'})


class Validate(Policy):
    """`trusted`: the servers whose tools judge their arguments themselves. `checker` is for what may take long."""

    name = "validate"

    def __init__(self, trusted: AbstractSet[str] = frozenset(), checker: Checker | None = None) -> None:
        self._trusted = trusted
        self._checker = checker or Checker()

    def applies(self, call: Call) -> bool:
        return bool(call.tool_info) and call.tool_info.schema not in _TRIVIAL and call.server not in self._trusted

    def made_for(self, call: Call) -> Callable[[Call, bool, ArgumentsVerdict | None], Call | Wait]:
        text = call.tool_info.schema if call.tool_info else b""
        compiled, key = schemas.KEPT, (call.server, text)

        def before(call: Call, was_passed: bool, waited: ArgumentsVerdict | None = None) -> Call | Wait:
            """Arguments that are right need nothing else."""
            schema = compiled.get(key)
            if schema and not waited and schema.surely_takes(bytes(call.arguments or b"{}")):
                return call
            return self.before(call, was_passed, waited)

        return before if call.method == mcp.CALL and text else self.before

    def before(self, call: Call, was_passed: bool, waited: ArgumentsVerdict | None = None) -> Call | Wait:
        """What was passed once comes back with the same arguments: the state that a client hands back is bound to them,
        and a list that changed meanwhile must not end what is under way."""
        if was_passed or call.method != mcp.CALL or not call.tool_info or call.server in self._trusted:
            return call
        tool_info = call.tool_info
        verdict = waited or self._judged_here(call, tool_info)
        if not verdict:
            return Wait(lambda: self._judged(call, tool_info))
        if verdict.wrong:
            raise _refusal(call, tool_info, verdict)
        return call

    async def check(self, call: Call) -> None:
        """The same, for what a person has edited. Raises `Fault`."""
        if call.tool_info and call.server not in self._trusted:
            verdict = self._judged_here(call, call.tool_info) or await self._judged(call, call.tool_info)
            if verdict.wrong:
                raise _refusal(call, call.tool_info, verdict)

    def refuses(self, call: Call) -> bool:
        """What takes long to tell may be refused."""
        if not call.tool_info or call.server in self._trusted:
            return False
        verdict = self._judged_here(call, call.tool_info)
        return verdict is None or bool(verdict.wrong)

    def _judged_here(self, call: Call, tool_info: ToolInfo) -> ArgumentsVerdict | None:
        """None: that may take long."""
        text = tool_info.schema
        if text in _TRIVIAL:
            return FINE
        if len(call.arguments) > schemas.LARGE or not schemas.is_quick(call.server, text):
            return None
        schema = schemas.here(text, call.server)
        if schema.problem:
            self._tell(call, schema)
        return schema.judge_here(bytes(call.arguments or b"{}"))

    async def _judged(self, call: Call, tool_info: ToolInfo) -> ArgumentsVerdict:
        """In turns of clients. Raises `Fault` where too many calls of this one wait for that."""
        whose, arguments = call.client.principal.counted_as, bytes(call.arguments or b"{}")
        schema, verdict = await self._checker.check(whose, call.server, tool_info.schema, arguments)
        if schema.problem:
            self._tell(call, schema)
        return verdict

    def _tell(self, call: Call, schema: schemas.Schema) -> None:
        if not schema.was_told:
            schema.was_told = True
            log.warning(
                "%s: the schema of %s cannot be used, so its arguments are not checked: %s",
                call.server,
                call.target,
                schema.problem,
            )


def _refusal(call: Call, tool_info: ToolInfo, verdict: ArgumentsVerdict) -> Fault:
    """In the names that the caller knows the tool and its parameters by."""
    wrong = [msgspec.structs.replace(each, pointer=tool_info.as_shown(each.pointer)) for each in verdict.wrong]
    named = "; ".join(f"{each.pointer or 'arguments'}: {each.message}" for each in wrong)
    further = verdict.count - len(wrong)
    more = f"; and {further:,} more" if further else "" if verdict.is_whole else "; and possibly more"
    schema = schemas.in_error(tool_info)
    hint = "correct the arguments and call again"
    return Fault(
        "INVALID_ARGS",
        f"Invalid arguments for {call.shown}: {named}{more}",
        reach="not_sent",
        hint=hint if schema else f"{hint}; the tool's schema is in tools/list",
        extra={"errors": wrong, "error_count": verdict.count, **schema},
    )
