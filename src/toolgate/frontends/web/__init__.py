"""What is served beside MCP, by the path that it begins with.

    admin      what an operator's programs ask of a running gateway
    openapi    what that says of itself
    metadata   what the gateway says to anybody who wants a token for it
    connect    the pages by which a user signs in at a server
    discovery  what is said of each endpoint before anybody connects: server cards, and where they are
    registry   the servers, as an MCP registry lists them
    endpoints  how both write an endpoint down
    health     whether the gateway works, and takes calls
    metrics    how it and its servers are, for Prometheus

Another page is a class with `answer` in a file here, and its row in `Web`. It passes the guards itself, and refuses by
raising `Refused`. No framework stands behind it: see docs/decisions/0028-pages-without-a-framework.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from toolgate.auth.resource import WELL_KNOWN, Resource
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.guards import Guards, Scope
from toolgate.frontends.streams import Receive, Response
from toolgate.frontends.web import admin, connect, discovery, health, metrics, registry
from toolgate.frontends.web.admin import Admin
from toolgate.frontends.web.connect import Connect
from toolgate.frontends.web.discovery import Discovery
from toolgate.frontends.web.health import Health
from toolgate.frontends.web.metadata import Metadata
from toolgate.frontends.web.metrics import Metrics
from toolgate.frontends.web.registry import Registry


class Page(Protocol):
    """All that is served below one path."""

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`, `Unauthorized`."""
        ...


class Web:
    """`prefixes` are the beginnings of paths that are no endpoint of the protocol, `suffixes` ends of them."""

    def __init__(self, deps: FrontendDeps, guards: Guards, resource: Resource) -> None:
        self.admin = Admin(deps.gateway, deps.editor, guards)
        self._discovery, lives = Discovery(deps.gateway, guards), Health(deps.gateway, guards)
        self._pages: Mapping[str, Page] = {
            admin.PREFIX: self.admin,
            WELL_KNOWN: Metadata(resource, guards, (admin.PREFIX,)),
            connect.PREFIX: Connect(deps.sign_ins, guards),
            discovery.CATALOG: self._discovery,
            registry.PREFIX: Registry(deps.gateway, guards),
            health.ALIVE: lives,
            health.READY: lives,
            metrics.PATH: Metrics(deps.gateway, deps.usage, guards, admin.PREFIX),
        }
        self.prefixes, self.suffixes = tuple(self._pages), (discovery.CARD,)

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """For a path that begins with one of `prefixes`, or ends with one of `suffixes`."""
        page = next((page for prefix, page in self._pages.items() if scope["path"].startswith(prefix)), self._discovery)
        await page.answer(scope, receive, response)
