"""The control tools that run code: `mcp_execute` of seed 002; `execute_code`, `process_large_dataset` of seed 004."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from msgspec import Raw

from toolgate.core import counting, jsonrpc
from toolgate.core.fault import Fault
from toolgate.sandbox.dataset import program, tables
from toolgate.sandbox.run import Ran, SandboxError
from toolgate.sandbox.stored import Script
from toolgate.surfaces.controls.context import ControlContext, GatewayView
from toolgate.upstreams.inprocess.tools import EncodedResult, Object, ToolContext
from toolgate.upstreams.providers import prompts
from toolgate.upstreams.providers.api import Prompt
from toolgate.upstreams.providers.execution import ENGINE
from toolgate.upstreams.providers.services import CONFIGURE, code_of

LONGEST = 120.0  # seconds that a caller of `execute_code` may ask for
USUAL = 30.0  # seconds, where it does not ask

_SPELLINGS = {"js": "javascript", "node": "javascript", "ts": "javascript", "typescript": "javascript", "py": "python"}


Later: TypeAlias = Callable[[], Object]
"""What a tool says, once it is asked: whoever asks does so in a thread where that takes long."""


async def mcp_execute(given: Object, context: ControlContext) -> Later:
    """Console lines, then the value: texts as they are, images as images, all else as JSON (seed 002)."""
    try:
        ran = await context.gateway.run("javascript", given["code"], context)
    except SandboxError as error:
        return partial(_broken, error.logs, str(error))
    return partial(_blocks, ran)


def _broken(logs: str, why: str) -> Object:
    return {"content": [{"type": "text", "text": f"{_lines(logs)}{why}"}], "isError": True}


def _blocks(ran: Ran) -> Object:
    value, images = _shown(ran)
    text = f"{_lines(ran.logs)}{value}".rstrip("\n") or "(no output)"
    blocks = [{"type": "text", "text": text}] if value or ran.printed or not images else []
    return {"content": [*blocks, *images]}


async def run_stored(script: Script, context: ToolContext, gateway: GatewayView) -> EncodedResult:
    """What a stored script gives, as the result of a tool: it finds its arguments as `data`, and what it prints is
    logged."""
    try:
        arguments = bytes(context.call.arguments or b"{}")
        ran = await gateway.run(script.language, script.text, context, data=arguments)
    except SandboxError as error:
        return await gateway.written(partial(_broken, error.logs, str(error)))
    for line in ran.logs.splitlines()[:_MOST_LOGGED]:
        context.log("info", line, is_scrubbed=True)
    return await gateway.written(partial(_of_stored, ran))


def _of_stored(ran: Ran) -> Object:
    value, images = _shown(ran)
    text = (value if ran.value is not None else ran.logs) or ("" if images else "(no output)")
    content = [*([{"type": "text", "text": text}] if text else []), *images]
    is_object = ran.value is not None and ran.value.startswith(b"{") and not images
    return {"content": content} | ({"structuredContent": Raw(ran.value or b"")} if is_object else {})


_MOST_LOGGED = 1000  # lines


async def execute_code(given: Object, context: ControlContext) -> Later:
    """The result as a text, with how long it took (seed 004): the value and what was printed, or that alone."""
    language = given.get("language", "python").lower()
    language = _SPELLINGS.get(language, language)
    if language not in ("python", "javascript"):
        raise Fault(
            "INVALID_ARGS",
            f"Invalid arguments: `language` must be python or javascript, not {given['language'][:100]}",
            reach="not_sent",
        )
    providers = context.gateway.providers
    if language == "python" and providers.of("execution"):
        return await _elsewhere(given, context)
    code, written = given["code"], _BY_CALLER
    if given.get("context") and providers.of("context"):
        prompt = prompts.rewrite(code, language, given["context"])
        code, written = await _written("context", prompt, context, "A model rewrote the code as `context` says.")
    ran = await _ran(language, code, given, context, written)
    more = dict(written)
    if given.get("context") and not written:
        hint = CONFIGURE.format(use='"context"')
        more["note"] = f"context was not used: no model is configured to read it ({hint})"
    return lambda: {
        "success": True,
        "result": jsonrpc.as_text(ran.printed) if ran.value is None else _written_out(ran.value),
        "language": language,
        "execution_time": round(ran.seconds, 3),
        **({} if ran.value is None else {"stdout": jsonrpc.as_text(ran.printed)}),
        "engine": ran.engine,
        **more,
    }


async def _elsewhere(given: Object, context: ControlContext) -> Later:
    """In a container of a provider. Raises `Fault`."""
    began, providers = context.gateway.gateway_info.wall(), context.gateway.providers
    name = providers.name("execution")
    ran = await providers.execute(
        given["code"], given.get("context", ""), context.client.principal.counted_as, given.get("timeout")
    )
    told = {"model": {"provider": name, "model": ran.model}, "code": "\n\n".join(ran.ran), "stdout": ran.stdout}
    if ran.failure or ran.status:
        why = ran.failure or f"the code ended with status {ran.status}"
        last = ran.stderr.strip().rpartition("\n")[2][:500]
        message = f"Sandbox error: {why}" + (f": {last}" if last else "")
        raise Fault("UPSTREAM_ERROR", message, reach="executed", extra=told, is_scrubbed=True)
    seconds = context.gateway.gateway_info.wall() - began
    return lambda: {
        "success": True,
        "result": ran.stdout.removesuffix("\n"),
        "language": "python",
        "execution_time": round(max(0.0, seconds), 3),
        "engine": ENGINE,
        **told,
        "note": f"The code left this machine: a model had it run in a container of {name}. `code` is what it ran.",
    }


_BY_CALLER: Mapping[str, Any] = {}


async def _written(use: str, prompt: Prompt, context: ControlContext, note: str) -> tuple[str, Mapping[str, Any]]:
    """Code that a model writes, and what is told of that. Raises `Fault`."""
    providers = context.gateway.providers
    name, said = providers.name(use), await providers.ask(use, prompt, context.client.principal.counted_as)
    code = code_of(said.text)
    return code, {"code": code, "model": {"provider": name, "model": said.model}, "note": f"{note} `code` is what ran."}


async def _ran(
    language: str,
    code: str,
    given: Object,
    context: ControlContext,
    written: Mapping[str, Any] = _BY_CALLER,
    **more: Any,
) -> Ran:
    """`written` is told of code that a model has written. Raises `Fault`."""
    try:
        return await context.gateway.run(language, code, context, timeout=float(given.get("timeout", USUAL)), **more)
    except SandboxError as error:
        kept = {**written, **({"stdout": error.logs} if error.logs else {})}
        raise Fault("UPSTREAM_ERROR", str(error), reach="executed", extra=kept, is_scrubbed=True) from None


async def process_large_dataset(given: Object, context: ControlContext) -> Later | EncodedResult:
    """The whole data, by SQL, steps or code in `parameters`, else by what the operation says in English (seed 004).
    What is not understood as a whole is done by code of a model, where one is configured for that; else refused."""
    parameters = jsonrpc.members(given.get("parameters", jsonrpc.EMPTY_OBJECT))
    if "code" in parameters:
        return await _by_code(given, parameters, context)
    request = {
        "data": given["data"],
        "operation": given["operation"],
        "parameters": parameters,
        "seconds": float(given.get("timeout", USUAL)),
    }
    if provider := context.gateway.providers.of("datasets"):
        request["samples"] = provider.samples
    ran = await _ran("python", program.text(), given, context, data=jsonrpc.encode(request), is_own=True)
    assert ran.value
    reply = jsonrpc.read(ran.value, dict[str, Raw])
    if bytes(reply["success"]) != b"true":
        hints = jsonrpc.read(reply["hints"], list[str])
        refusal = jsonrpc.read(reply["error"], str)
        if "outline" in reply:
            return await _by_model(given, parameters, refusal, reply["outline"], context)
        if not provider and not parameters:
            hints.append(CONFIGURE.format(use='"datasets"'))
        raise Fault("INVALID_ARGS", refusal, hint="; ".join(hints), reach="not_sent", is_scrubbed=True)
    return lambda: {**reply, "execution_time": round(ran.seconds, 3)}


async def _by_code(given: Object, parameters: Mapping[str, Raw], context: ControlContext) -> EncodedResult:
    """By Python code of the caller, which finds the data as `data`: a call of `execute_code`, for who may call that."""
    others = [name for name in parameters if name != "code"]
    if others:
        message = f"Invalid arguments: parameters.code does all itself: leave out {', '.join(others)[:200]}"
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    try:
        code = jsonrpc.read(parameters["code"], str)
    except jsonrpc.UNREADABLE:
        raise Fault("INVALID_ARGS", "Invalid arguments: parameters.code must be a text", reach="not_sent") from None
    said = "Ran the code in parameters.code on the whole data."

    async def run(context: ControlContext) -> Later:
        ran = await _ran("python", code, given, context, data=bytes(given["data"]))
        return lambda: _of_code(ran, given, "code", said)

    asked = {"code": code, **({"timeout": given["timeout"]} if "timeout" in given else {})}
    return await context.gateway.as_call("execute_code", asked, context, run)


async def _by_model(
    given: Object, parameters: Mapping[str, Raw], refusal: str, outline: Raw, context: ControlContext
) -> Later:
    """By Python code that a model writes by an outline of the data. It may call no tool: nobody has read it."""
    prompt = prompts.dataset(given["operation"], parameters, bytes(outline))
    note = f"The operation was not understood without a model: {refusal}."
    code, written = await _written("datasets", prompt, context, note)
    ran = await _ran("python", code, given, context, written, data=bytes(given["data"]), calls_tools=False)
    said = "A model wrote the code in `code`, which ran on the whole data."
    return lambda: {**_of_code(ran, given, "model", said), **written}


def _of_code(ran: Ran, given: Object, method: str, interpretation: str) -> Object:
    value = ran.value if ran.value is not None else bytes(jsonrpc.as_text(ran.printed))
    before = _length(given["data"])
    is_countable = not counting.has_more_values(value, counting.MANY)
    return {
        "success": True,
        "result": Raw(value),
        **(tables.sizes(before, _length(Raw(value))) if is_countable else {"original_size": before}),
        "interpretation": interpretation,
        "method": method,
        "execution_time": round(ran.seconds, 3),
    }


def _length(raw: Raw) -> int:
    """How many items a list or an object has; 1 of anything else."""
    try:
        return len(jsonrpc.read(raw, list[Raw] | dict[str, Raw]))
    except jsonrpc.UNREADABLE:
        return 1


def _written_out(value: bytes) -> str:
    """A text as it is, and anything else as JSON: in one spelling, but what has very many values, or a number that
    cannot be read, in that of the code."""
    if counting.has_more_values(value, counting.MANY):
        return value.decode()
    try:
        return jsonrpc.read(value, str) if value.startswith(b'"') else jsonrpc.encode(jsonrpc.read(value, Any)).decode()
    except jsonrpc.UNREADABLE:
        return value.decode(errors="replace")


def _lines(printed: str) -> str:
    return printed if not printed or printed.endswith("\n") else f"{printed}\n"


def _shown(ran: Ran) -> tuple[str, Sequence[Object]]:
    """A value as text, and the images that stand in it: a model sees these, and cannot read them as text."""
    if ran.value is None:
        return "", ()
    if b'"image"' not in ran.value or counting.has_more_values(ran.value, counting.MANY):
        return _written_out(ran.value), ()
    try:
        value = jsonrpc.read(ran.value, Any)
    except jsonrpc.UNREADABLE:
        return _written_out(ran.value), ()
    images: list[Object] = []
    rest = _without_images(value, images)
    if images and (rest is None or rest == []):
        return "", images
    return jsonrpc.encode(rest).decode(), images


def _without_images(value: Any, images: list[Object]) -> Any:
    """The value with a note in place of each image; None where it is one itself, or nothing but images."""
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        if _is_image(members):
            images.append({"type": "image", "data": members["data"], "mimeType": members["mimeType"]})
            return None
        return {name: _noted(each, images) for name, each in members.items()}
    if isinstance(value, list):
        rest = [_noted(each, images) for each in cast(list[Any], value)]
        return None if rest and all(each is _IMAGE for each in rest) else rest
    return value


_IMAGE = "[image]"


def _noted(value: Any, images: list[Object]) -> Any:
    before = len(images)
    rest = _without_images(value, images)
    return _IMAGE if rest is None and len(images) > before else rest


def _is_image(value: dict[str, Any]) -> bool:
    return value.get("type") == "image" and all(isinstance(value.get(name), str) for name in ("data", "mimeType"))
