"""An answer of a server that is refused, or cannot be read, is let go of: it stays neither in memory nor counted among
what waits for its client, whose other results would wait for it."""

from __future__ import annotations

import gc
import types
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, tools
from virtualtime import settle

LARGE = b"x" * 1_200_000
SMALL = b"x" * 100_000
ASKED = b'"resultType":"input_required","inputRequests":'
PAGE = b'{"method":"elicitation/create","params":{"mode":"url","url":"a:b","message":"%b"}}'
MODEL = b'{"method":"sampling/createMessage","params":{"systemPrompt":"%b"}}'
MANY = b"".join(b'"%d":{"method":"roots/list"},' % at for at in range(16))
REFUSED = {
    "an array": b'["%b"]',
    "a text": b'"%b"',
    "what is behind it": b'{"a":"%b"} x',
    "no UTF-8": b'{"a":"%b\xff"}',
    "too deep": b'{"a":"%b","b":' + b"[" * 300 + b"]" * 300 + b"}",
    "asks for nothing": b'{"resultType":"input_required","x":"%b"}',
    "asks for no page of the web": b'{%b{"a":%b}}' % (ASKED, PAGE),
    "asks for what is not declared": b'{%b{"a":%b}}' % (ASKED, MODEL),
    "asks for too much": b'{%b{%b"b":%b}}' % (ASKED, MANY, MODEL),
    "asks out of shape": b'{%b["%%b"]}' % ASKED,
    "a state that is too long": b'{"resultType":"input_required","requestState":"%b"}',
    "a task": b'{"resultType":"task","taskId":"%b"}',
}


def kept() -> list[Any]:
    """What only the garbage collector frees, of frames and errors: it counts objects, however large these are."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [each for each in gc.garbage if isinstance(each, types.FrameType | BaseException)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def there(revision: str, answer: bytes) -> Scripted:
    script = Scripted(revision, tools_list=tools("t"), tools_call=...)

    def heard(message: bytes) -> None:
        if b"tools/call" in message:
            id = message.split(b'"id":')[1].split(b",")[0].strip(b"}")
            script.say(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, answer))

    script.on_bytes = heard
    return script


@pytest.mark.parametrize("filler", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_nothing_of_it_waits_for_the_garbage_collector(revision: str, answer: bytes, filler: bytes) -> None:
    scripts = {"there": there(revision, answer.replace(b"%b", filler))}
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "there__t"}

        async def call() -> None:
            await visitor.post(visitor.modern_request("tools/call", name="there__t", arguments={}), headers=headers)
            await settle()

        for _ in range(2):
            await call()
        gc.collect()
        gc.disable()
        try:
            await call()
            assert kept() == []
        finally:
            gc.enable()


UNREADABLE = {name: REFUSED[name] for name in ("what is behind it", "no UTF-8", "too deep")}


@pytest.mark.parametrize("filler", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("id", [b"99999", b'"a"', b"null"])
async def test_nor_does_an_answer_that_nobody_asked_for(id: bytes, answer: bytes, filler: bytes) -> None:
    script = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"there": script}) as app:
        await Visitor(app).initialize()
        said = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, answer.replace(b"%b", filler))
        for count in range(3):
            if count == 2:
                gc.collect()
                gc.disable()
            script.say(said)
            await settle()
        try:
            assert kept() == []
        finally:
            gc.enable()


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_nor_does_a_list(revision: str, answer: bytes) -> None:
    scripts = {"there": Scripted(revision, tools_list=answer.replace(b"%b", LARGE))}
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
        for count in range(3):
            if count == 2:
                gc.collect()
                gc.disable()
            await visitor.post(visitor.modern_request("tools/list"), headers=headers)
            await settle()
        try:
            assert kept() == []
        finally:
            gc.enable()
