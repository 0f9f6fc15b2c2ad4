"""What calls leave behind in memory: nothing, whatever they end with."""

from __future__ import annotations

import gc

import pytest
from peers import LegacyServer, ModernServer, RpcError, Scene, gateway

from toolgate.core.exchange import Exchange


async def refuses(scene: Scene) -> str:
    raise RpcError(-32000, "no")


def exchanges() -> int:
    gc.collect()
    return sum(isinstance(each, Exchange) for each in gc.get_objects())


@pytest.mark.promise("b.memory.calls")
@pytest.mark.parametrize("made", [LegacyServer, ModernServer])
async def test_an_error_of_a_server_is_not_kept_with_its_call_and_its_connection(made: type[LegacyServer]) -> None:
    async with gateway(there=made(tools={"refuses": refuses})) as rig:
        client = rig.modern()
        await client.request("tools/call", name="there__refuses")
        before = exchanges()
        for _ in range(10):
            assert (await client.request("tools/call", name="there__refuses")).error
        assert exchanges() <= before
