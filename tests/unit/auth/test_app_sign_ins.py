"""What the gateway knows of servers that one signs in at follows the configuration that is served."""

from inmemory import GREETER, gateway

from toolgate.config import Config, Server, ServerAuth

FAR = Server(id="far", name="far", type="http", url="http://127.0.0.1:1/mcp", auth=ServerAuth())


async def test_a_server_that_is_added_while_it_serves_can_be_signed_in_at_and_a_removed_one_cannot() -> None:
    async with gateway(GREETER) as app:
        app._prepared(Config(servers=(GREETER, FAR)))()
        assert set(app.sign_ins._servers) == {"far"}
        app._prepared(Config(servers=(GREETER,)))()
        assert not app.sign_ins._servers
