"""A call that is parked until its client has answered ends with the key that it was made by."""

from __future__ import annotations

from doors.issuers import client
from inmemory import GREETER, gateway
from virtualtime import FakeClock, settle

from toolgate.auth import keys
from toolgate.config import Config
from toolgate.core.exchange import Exchange
from toolgate.core.model import Asker, Principal
from toolgate.state import changes
from toolgate.state.memory import MemoryStore


def work(by: Principal, clock: FakeClock, cancelled: list[Principal]) -> Exchange:
    return Exchange(Asker("upstream", "there"), clock, on_cancel=lambda _why: cancelled.append(by))


async def test_the_parked_calls_of_a_revoked_key_end_with_it_and_those_of_others_do_not() -> None:
    clock = FakeClock()
    store, cancelled = MemoryStore(clock), list[Principal]()
    made = [await keys.create(store, id, clock.wall()) for id in ("ann", "bob")]
    config = Config(clients=(client("ann"), client("bob")))
    async with gateway(GREETER, config=config, store=store, clock=clock) as app:
        app.open()
        who = [await app._admission({"authorization": f"Bearer {key}"}, "127.0.0.1", "/mcp") for _, key in made]
        who.append(Principal("client:ann", client="ann"))  # over a pipe: `toolgate stdio --client ann`
        for each in who:
            app.parking.hold(work(each, clock, cancelled), None, each)
        await keys.revoke(store, made[0][0])
        await changes.tell(store, "keys")
        await clock.advance(1)
        await settle()
        assert cancelled == [who[0]] and len(app.parking) == 2
        await app.reload()
        assert len(app.parking) == 2
