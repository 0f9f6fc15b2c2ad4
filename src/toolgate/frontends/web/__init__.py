"""What is served beside MCP, by the path that it begins with.

    admin      what an operator's programs ask of a running gateway
    openapi    what that says of itself
    cursors    where the next page of a long list begins
    decisions  calls that wait for an operator, in its words
    reviews    tools that have changed since they were trusted, in its words
    agents     tasks and sessions of coding agents, in its words
    inspections  what clients may do, the audit, the configuration
    file_edits  edits of the configuration file
    live       calls as they end, as a stream of events
    metadata   what the gateway says to anybody who wants a token for it
    connect    the pages by which a user signs in at a server
    discovery  what is said of each endpoint before anybody connects: server cards, and where they are
    registry   the servers, as an MCP registry lists them
    endpoints  how both write an endpoint down
    health     whether the gateway works, and takes calls
    metrics    how it and its servers are, for Prometheus
    oidc       signing in to those at the issuer of tokens
    ui         the operator's pages: who is signed in, and how they are sent
    views      what stands on each of them
    tool_fields  a form for the arguments of a tool
    rendering  how it is written into a template
    browser_sessions  who is signed in with a browser
    cookies    what a browser shows for that

Another page is a class with `answer` in a file here, and its row in `Web`. It passes the guards itself, and refuses by
raising `Refused`. No framework stands behind it: see docs/decisions/0028-pages-without-a-framework.md and
0039-pages-of-templates.md. A page of the operator's is a row in `views` and a template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from toolgate.auth.resource import WELL_KNOWN, Resource, reached_at
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.frontends.active_requests import ActiveRequest, ActiveRequests
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.guards import Guards, Scope
from toolgate.frontends.streams import Receive, Response
from toolgate.frontends.web import admin, connect, discovery, health, metrics, registry, ui
from toolgate.frontends.web.admin import Admin, Linked
from toolgate.frontends.web.browser_sessions import LINK_LASTS, BrowserSessions
from toolgate.frontends.web.connect import Connect
from toolgate.frontends.web.discovery import Discovery
from toolgate.frontends.web.health import Health
from toolgate.frontends.web.live import LiveTraffic
from toolgate.frontends.web.metadata import Metadata
from toolgate.frontends.web.metrics import Metrics
from toolgate.frontends.web.oidc import SignInWithBrowser
from toolgate.frontends.web.registry import Registry
from toolgate.frontends.web.ui import OperatorPages


class Page(Protocol):
    """All that is served below one path."""

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused`, `Unauthorized`."""
        ...


class Web:
    """`prefixes` are the beginnings of paths that are no endpoint of the protocol, `suffixes` ends of them."""

    def __init__(self, deps: FrontendDeps, guards: Guards, resource: Resource) -> None:
        self._deps = deps
        self._sessions = BrowserSessions(deps.clock, guards.is_administrator)
        self._live = LiveTraffic(deps.gateway, deps.traffic, deps.clock)
        self._active_requests = ActiveRequests()
        self.admin = Admin(deps, guards, self._linked, self._live, self._enter)
        self._discovery, lives = Discovery(deps.gateway, guards), Health(deps.gateway, guards)
        self._pages: Mapping[str, Page] = {
            admin.PREFIX: self.admin,
            ui.PREFIX: self._operator_pages(guards),
            WELL_KNOWN: Metadata(resource, guards, (admin.PREFIX,)),
            connect.PREFIX: Connect(deps.sign_ins, guards),
            discovery.CATALOG: self._discovery,
            registry.PREFIX: Registry(deps.gateway, guards),
            health.ALIVE: lives,
            health.READY: lives,
            metrics.PATH: Metrics(deps.gateway, deps.usage, guards, admin.PREFIX),
        }
        self.prefixes, self.suffixes = tuple(self._pages), (discovery.CARD,)

    def _operator_pages(self, guards: Guards) -> OperatorPages:
        deps, sign_in = self._deps, guards.page_sign_in
        issuer = SignInWithBrowser(sign_in, self._reached_at, ui.PREFIX) if sign_in else None
        shared = (self.admin.ask, self._live, self._sessions, guards, self._enter)
        return OperatorPages(*shared, lambda: deps.sign_ins.is_secure, issuer, deps.audit)

    def _enter(self, principal: Principal) -> ActiveRequest:
        return ActiveRequest(principal, self._deps.clock, self._active_requests.all)

    def _reached_at(self) -> str:
        """The URL that browsers reach the gateway by; empty where they cannot."""
        return reached_at(self._deps.gateway.snapshot.config, self._deps.gateway.gateway_info.port())

    def _linked(self, principal: Principal) -> Linked:
        """Raises `Fault` where browsers cannot come."""
        base = self._reached_at()
        if not base:
            raise Fault("INVALID_STATE", "This gateway has no pages: it does not listen over HTTP", reach="not_sent")
        return Linked(f"{base}{ui.LINK}{self._sessions.link(principal)}", LINK_LASTS)

    def end_unknown(self, is_known: Callable[[Principal], bool]) -> None:
        """Sign out who would not be let in any more, and end what they have under way."""
        self._sessions.end_unknown(is_known)
        self._active_requests.expel_unknown(is_known)

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """For a path that begins with one of `prefixes`, or ends with one of `suffixes`."""
        page = next((page for prefix, page in self._pages.items() if scope["path"].startswith(prefix)), self._discovery)
        await page.answer(scope, receive, response)
