"""What a tool is told and what it says pass through the whole gateway byte by byte."""

from __future__ import annotations

from hypothesis import example, given, settings
from inmemory import Scripted, Visitor, gateway, tools
from properties.material import objects, written
from virtualtime import play

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"docs__t","arguments":%b,"_meta":{"x":%b}}}'


@settings(max_examples=60)
@given(written(objects), written(objects))
@example(b'{ "a" : 1.0e2 , "a" : 12345678901234567890123 }', b"{}")
def test_arguments_and_results_pass_byte_by_byte(arguments: bytes, result: bytes) -> None:
    async def conversation() -> None:
        heard: list[bytes] = []
        script = Scripted("2025-11-25", tools_list=tools("t"), tools_call=result)
        script.on_bytes = heard.append
        async with gateway(scripts={"docs": script}) as app:
            for path in ("/mcp", "/mcp/servers/docs"):
                visitor = Visitor(app, path)
                await visitor.initialize()
                name = CALL if path == "/mcp" else CALL.replace(b"docs__t", b"t")
                response = await visitor.post(name % (arguments, result))
                assert response.body == b'{"jsonrpc":"2.0","id":1,"result":' + result.strip() + b"}"
                assert b'"arguments":' + arguments.strip() in heard[-1]
                assert b'"_meta":{"x":' + result.strip() + b"}" in heard[-1]

    play(conversation())
