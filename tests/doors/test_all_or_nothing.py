"""Another configuration is served as a whole, or not at all."""

from __future__ import annotations

import msgspec
import pytest
from peers import LegacyServer, Scene, gateway

from toolgate.auth import keys
from toolgate.config import Config, ConfigError
from toolgate.config.access import KnownClient, Permissions


async def echo(scene: Scene) -> str:
    return "echo"


OTHERS = (KnownClient(id="ann", name="ann", permissions=Permissions(everything="off")),)


async def test_where_one_service_cannot_go_by_a_new_configuration_all_go_on_by_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(store: object) -> None:
        raise OSError("the store cannot be read")

    def edited(config: Config) -> Config:
        return msgspec.structs.replace(config, clients=OTHERS, servers=())

    async with gateway(there=LegacyServer({"echo": echo}), edited=edited) as rig:
        before = rig.app.gateway.snapshot
        monkeypatch.setattr(keys, "records", unreadable)
        with pytest.raises(ConfigError, match="the store cannot be read"):
            await rig.app.reload()
        assert rig.app.gateway.snapshot is before and rig.app.gateway.access.is_open
        assert "the store cannot be read" in rig.app.problem
        assert (await rig.modern().call("there__echo")).text == "echo"

        monkeypatch.undo()
        await rig.app.reload()
        assert not rig.app.problem and not rig.app.gateway.access.is_open
