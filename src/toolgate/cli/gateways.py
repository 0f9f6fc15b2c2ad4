"""A gateway for one command, and for who runs it: whoever can start its servers needs no permission.

Its store is opened only where a server has `auth`: there stands who has signed in.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from toolgate import store as stores
from toolgate.access import OPERATOR
from toolgate.app import App, running
from toolgate.config import Config, state_folder
from toolgate.model import Client, Principal

WHO = Client(Principal(is_admin=True, client=OPERATOR))


@asynccontextmanager
async def opened(config: Config) -> AsyncGenerator[App]:
    async with AsyncExitStack() as stack:
        store = None
        if any(server.auth for server in config.servers):
            store = await stack.enter_async_context(stores.opened(state_folder(config, os.environ)))
        yield await stack.enter_async_context(running(config, store=store))
