"""What the gateway answers itself, as the server `toolgate`: control tools that work, and its own resources."""

from __future__ import annotations

from typing import Any

from toolgate.auth.access import KEPT
from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.surfaces import controls
from toolgate.surfaces.controls import base, children
from toolgate.surfaces.controls.context import ControlContext
from toolgate.upstreams.inprocess.tools import EncodedResult, Result


async def answer(context: ControlContext) -> Result:
    """The result of a call whose target is the gateway itself. Raises `Fault`."""
    call = context.call
    if call.method == mcp.CALL:
        control = controls.CONTROLS[call.target]
        assert control.work
        given = base.read(control, call)
        said = await (call.does(context) if call.does else control.work(given, context))
        if callable(said):  # what came of code, which may be large
            return await context.gateway.written(lambda: base.say(control, said()))
        if isinstance(said, base.OfLists):
            return await context.gateway.told(call, said.size, said.tokens, said.written)
        return said if isinstance(said, EncodedResult) else base.say(control, said)
    if call.target.startswith(KEPT):
        return context.gateway.kept(call)
    return _contents(call.target, await _resource(call.target, context))


async def _resource(uri: str, context: ControlContext) -> Any:
    found = children.RESOURCES.get(uri)
    if not found:
        hint = f"there are {' and '.join(children.RESOURCES)}"
        raise Fault("RESOURCE_NOT_FOUND", f"Resource not found: {uri}", hint=hint, reach="not_sent")
    return await found[2](context)


def _contents(uri: str, said: Any) -> base.Object:
    text = jsonrpc.encode(said).decode()
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
