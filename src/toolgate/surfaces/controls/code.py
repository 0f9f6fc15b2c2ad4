"""The control tools that run code against tools: `mcp_execute` of seed 002; `execute_code` of seed 004."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolgate.core import jsonrpc
from toolgate.core.fault import Fault
from toolgate.sandbox import CodeFailed, Refused
from toolgate.sandbox.run import Ran
from toolgate.surfaces.controls.base import Given, Object
from toolgate.surfaces.controls.context import ControlContext

LONGEST = 120.0  # seconds that a caller of `execute_code` may ask for
USUAL = 30.0  # seconds, where it does not ask

_FENCE = re.compile(r"\s*```[^\n`]*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)
_SPELLINGS = {"js": "javascript", "node": "javascript", "ts": "javascript", "typescript": "javascript", "py": "python"}


async def mcp_execute(given: Given, context: ControlContext) -> Object:
    """Console lines, then the value: texts as they are, images as images, all else as JSON (seed 002)."""
    try:
        ran = await context.gateway.run("javascript", _unfenced(given["code"]), context)
    except Refused as why:
        return _error(f"mcp_execute error: {why}")
    except CodeFailed as why:
        return _error(f"{_lines(why.printed)}Sandbox error: {why}")
    value, images = _shown(ran)
    text = f"{_lines(ran.printed)}{value}".rstrip("\n") or "(no output)"
    blocks = [{"type": "text", "text": text}] if value or ran.printed or not images else []
    return {"content": [*blocks, *images]}


async def execute_code(given: Given, context: ControlContext) -> Object:
    """The result as a text, with how long it took (seed 004)."""
    language = given.get("language", "python").lower()
    language = _SPELLINGS.get(language, language)
    if language not in ("python", "javascript"):
        raise Fault(
            "INVALID_ARGS",
            f"Invalid arguments: `language` must be python or javascript, not {given['language'][:100]}",
            reach="not_sent",
        )
    try:
        ran = await context.gateway.run(
            language, _unfenced(given["code"]), context, timeout=float(given.get("timeout", USUAL))
        )
    except Refused as why:
        raise Fault("INVALID_ARGS" if why.is_callers else "RATE_LIMITED", str(why), reach="not_sent") from None
    except CodeFailed as why:
        raise Fault(
            "TIMEOUT" if why.is_timeout else "UPSTREAM_ERROR",
            str(why),
            reach="executed",
            extra={"stdout": why.printed} if why.printed else {},
        ) from None
    said: dict[str, Any] = {
        "success": True,
        "result": _as_text(ran),
        "language": language,
        "execution_time": round(ran.seconds, 3),
        "stdout": ran.printed,
        "engine": ran.engine,
    }
    if "context" in given:
        said["note"] = "context was not used: no model is configured to read it"
    return said


def _unfenced(code: str) -> str:
    """Models put code between the fences of Markdown."""
    found = _FENCE.match(code)
    return found[1] if found else code


def _as_text(ran: Ran) -> str:
    """The value; where there is none, what was printed."""
    if ran.value is None:
        return ran.printed
    value = jsonrpc.read(ran.value, Any)
    return value if isinstance(value, str) else jsonrpc.encode(value).decode()


def _lines(printed: str) -> str:
    return printed if not printed or printed.endswith("\n") else f"{printed}\n"


def _error(text: str) -> Object:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _shown(ran: Ran) -> tuple[str, Sequence[Object]]:
    """A value as text, and the images that stand in it: a model sees these, and cannot read them as text."""
    if ran.value is None:
        return "", ()
    value = jsonrpc.read(ran.value, Any)
    if isinstance(value, str):
        return value, ()
    images: list[Object] = []
    rest = _without_images(value, images)
    if images and (rest is None or rest == []):
        return "", images
    return jsonrpc.encode(rest).decode(), images


def _without_images(value: Any, images: list[Object]) -> Any:
    """The value with a note in place of each image; None where it is one itself, or nothing but images."""
    if isinstance(value, Mapping):
        if _is_image(value):
            images.append({"type": "image", "data": value["data"], "mimeType": value["mimeType"]})
            return None
        return {name: _noted(each, images) for name, each in value.items()}
    if isinstance(value, list):
        if value and all(_is_image(each) for each in value):
            for each in value:
                _without_images(each, images)
            return None
        return [_noted(each, images) for each in value]
    return value


def _noted(value: Any, images: list[Object]) -> Any:
    before = len(images)
    rest = _without_images(value, images)
    if rest is None and len(images) > before:
        return "[image]" if len(images) == before + 1 else f"[{len(images) - before} images]"
    return rest


def _is_image(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.get("type") == "image"
        and isinstance(value.get("data"), str)
        and isinstance(value.get("mimeType"), str)
    )
