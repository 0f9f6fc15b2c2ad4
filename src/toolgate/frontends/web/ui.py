"""The operator's pages: who may see them, and how they are sent. What stands on them is `views`.

    GET /ui              the overview; behind it one path for each page
    GET, POST /ui/login  by an administrator's key
    GET, POST /ui/link/CODE  by a link that is good once (`toolgate open`)
    GET /ui/oidc, /ui/oidc/callback  at the issuer of tokens (`oidc`)
    POST /ui/logout
    GET /ui/traffic/events  calls as they end
    GET /ui/static/NAME  the style and the script

The rules this file keeps: nobody sees a page who is not signed in, on this machine neither; a form counts only with the
secret of its session, and from a page of this origin; and nothing on a page is loaded from, framed by or told to
anybody else.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from toolgate import __version__
from toolgate.auth.page_sign_in import NotSignedIn
from toolgate.auth.refusals import Unauthorized
from toolgate.core.addresses import counted
from toolgate.core.fault import Fault, let_go
from toolgate.core.model import Principal
from toolgate.frontends.active_requests import Enter
from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed, read_form
from toolgate.frontends.streams import HeaderList, Receive, Response
from toolgate.frontends.web import cookies, oidc, views
from toolgate.frontends.web.browser_sessions import BrowserSession, BrowserSessions
from toolgate.frontends.web.live import LiveTraffic
from toolgate.frontends.web.oidc import SignInWithBrowser
from toolgate.frontends.web.views import Done, Failed, PageRequest, Shown
from toolgate.state.audit import Trail
from toolgate.telemetry.traffic import Wanted

PREFIX = "/ui"
LINK = PREFIX + "/link/"
EVENTS = views.TRAFFIC + "/events"
LONGEST_KEY_FORM = 4096  # bytes, of who is nobody yet
LONGEST_FORM = 1024 * 1024  # bytes
_COOKIE = "toolgate-session"
_STATIC = {
    "ui.css": b"text/css; charset=utf-8",
    "ui.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
_HTML = b"text/html; charset=utf-8"
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SAFE: HeaderList = (
    (b"content-security-policy", _POLICY),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_FORGOTTEN = (b"set-cookie", f"{_COOKIE}=; Path={PREFIX}; Max-Age=0".encode())
_ENDED = "/login?why=ended"
_WHY_SIGN_IN = {"ended": "Your session has ended. Sign in again.", "left": "You are signed out."}
_HEADERS: HeaderList = ((b"cache-control", b"no-store"), *_SAFE)

Ask = Callable[[str, str, bytes, Principal], Awaitable[tuple[int, bytes]]]


class _Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    scope: Scope
    receive: Receive


class OperatorPages:
    """`ask` is the admin API, `live` what is streamed of it; within `enter` a request ends as soon as who is signed in
    would not be let in any more. Browsers come by https where `is_secure`, beside those
    that do so by themselves. `issuer` lets administrators sign in at another place."""

    def __init__(
        self,
        ask: Ask,
        live: LiveTraffic,
        sessions: BrowserSessions,
        guards: Guards,
        enter: Enter,
        is_secure: Callable[[], bool],
        issuer: SignInWithBrowser | None,
        audit: Trail,
    ) -> None:
        self._ask = ask
        self._live = live
        self._sessions = sessions
        self._guards = guards
        self._enter = enter
        self._is_secure = is_secure
        self._issuer = issuer
        self._audit = audit

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Who is refused reads why on a page."""
        try:
            await self._answer(scope, receive, response)
        except Refused as refused:
            let_go(refused)
            await self._say(response, _of_failure(Failed(refused.status, str(refused))), more=refused.headers)
        except Unauthorized:
            if response.is_streaming:
                await response.end()
            elif not response.has_begun:
                await _see(response, _ENDED)

    async def _answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        headers = self._guards.admit_page(scope)
        path = str(scope["path"]).removeprefix(PREFIX)
        if path and not path.startswith("/"):
            raise Refused(404, f"Not found: {scope['path']}")
        request = _Request(str(scope["method"]), path.rstrip("/") or "/", headers, scope, receive)
        if request.method == "POST":
            _check_is_our_form(headers)
        elif request.method != "GET":
            raise not_allowed("GET, POST")
        if path.startswith("/static/"):
            await _static(path.removeprefix("/static/"), headers, response)
        elif request.path == "/login":
            await self._login(request, response)
        elif path.startswith("/link/"):
            await self._link(request, response)
        elif request.path in (oidc.PATH, oidc.CALLBACK):
            await self._at_the_issuer(request, response)
        else:
            await self._page(request, response)

    # Signing in and out.

    async def _login(self, request: _Request, response: Response) -> None:
        if request.method == "GET":
            await self._ask_to_sign_in(response, _WHY_SIGN_IN.get(_query(request).get("why", ""), ""), is_refused=False)
            return
        key = (await read_form(request.receive, LONGEST_KEY_FORM)).get("key", "").strip()
        try:
            principal = await self._guards.administrator(key, request.scope, "/admin")
        except (Refused, Unauthorized) as refused:
            if isinstance(refused, Refused):  # of a key that nobody has there is a line already
                self._note_refused("key", str(refused), request)
            await self._ask_to_sign_in(response, "This is not the key of an administrator.", 403)
            return
        await _see(response, "/", (self._begin(principal, "key", request),))

    async def _link(self, request: _Request, response: Response) -> None:
        """A link does nothing until somebody presses the button: programs that look at links would use it up."""
        code = request.path.removeprefix("/link/")
        if request.method == "GET" and self._sessions.has_link(code):
            await self._say(response, Shown("link.html", {"code": code}))
            return
        await read_form(request.receive, LONGEST_KEY_FORM)
        principal = self._sessions.redeemed(code) if request.method == "POST" else None
        if principal and self._guards.is_administrator(principal):
            await _see(response, "/", (self._begin(principal, "link", request),))
            return
        says = "This link is unknown, already used or expired. Get a new one: toolgate open"
        self._note_refused("link", "unknown, already used or expired", request)
        await self._ask_to_sign_in(response, says, 404)

    async def _at_the_issuer(self, request: _Request, response: Response) -> None:
        """Off to it, or back from there."""
        if request.method != "GET":
            raise not_allowed("GET")
        try:
            if not self._issuer:
                raise NotSignedIn("Nobody signs in that way here")
            if request.path == oidc.PATH:
                await response.whole(303, b"", (*await self._issuer.begin(self._comes_by_https(request)), *_HEADERS))
                return
            query, held = bytes(request.scope.get("query_string", b"")), cookies.held(request.headers, oidc.COOKIE)
            principal, sign_out_url = await self._issuer.finish(query, held, _address(request))
            if not self._guards.is_administrator(principal):
                raise NotSignedIn("You are signed in there, and no administrator here")
        except NotSignedIn as why:
            self._note_refused("issuer", str(why), request)
            await self._ask_to_sign_in(response, f"{why}.", 403)
            return
        more = (self._issuer.forgotten(), self._begin(principal, "issuer", request, sign_out_url))
        await self._say(response, Shown("signed_in.html", {}), more=more)

    async def _sign_out(self, session: BrowserSession, request: _Request, response: Response) -> None:
        """Here, and at the issuer by a page that leads there: browsers do not follow where a form would."""
        self._sessions.end(session)
        issuer = urlsplit(session.sign_out_url).netloc
        self._audit.note_change("pages.sign_out", session.principal, address=_address(request), issuer=issuer)
        if issuer:
            shown = Shown("signed_out.html", {"url": session.sign_out_url, "issuer": issuer})
            await self._say(response, shown, more=(_FORGOTTEN,))
        else:
            await _see(response, "/login?why=left", (_FORGOTTEN,))

    async def _ask_to_sign_in(
        self, response: Response, says: str, status: int = 200, *, is_refused: bool = True
    ) -> None:
        values = {"says": says, "has_failed": is_refused, "issuer": self._issuer.host if self._issuer else ""}
        await self._say(response, Shown("login.html", values, status))

    def _begin(self, principal: Principal, way: str, request: _Request, sign_out_url: str = "") -> tuple[bytes, bytes]:
        """The header with the cookie of a new session."""
        self._audit.note_change("pages.sign_in", principal, decision="allow", way=way, address=_address(request))
        secure = "; Secure" if self._comes_by_https(request) else ""
        attributes = f"; Path={PREFIX}; HttpOnly; SameSite=Strict{secure}"
        return b"set-cookie", f"{_COOKIE}={self._sessions.begin(principal, sign_out_url)}{attributes}".encode()

    def _note_refused(self, way: str, why: str, request: _Request) -> None:
        address = _address(request)
        said = {"decision": "deny", "way": way, "reason": why, "address": address}
        self._audit.note_of_strangers("pages.sign_in", by=counted(address), kind=way, **said)

    def _comes_by_https(self, request: _Request) -> bool:
        return request.scope.get("scheme") == "https" or self._is_secure()

    # Pages.

    async def _page(self, request: _Request, response: Response) -> None:
        held = cookies.held(request.headers, _COOKIE)
        session = self._sessions.find(held)
        if not session:
            await _see(response, _ENDED if held else "/login")
            return
        with self._enter(session.principal):
            await self._page_of(session, request, response)

    async def _page_of(self, session: BrowserSession, request: _Request, response: Response) -> None:
        form = await self._form(request, session)
        if request.path == "/logout" and form:
            await self._sign_out(session, request, response)
            return
        query = _query(request)
        if request.path == EVENTS and request.method == "GET":
            await self._events(query, session, request.receive, response)
            return
        view, name = views.find(request.method, request.path)
        if not view:
            await self._say(response, _of_failure(Failed(404, "There is no such page")), session)
            return
        try:
            asked = PageRequest(self._asking(session), name, form, query)
            outcome = await view(asked)
        except Failed as failed:
            await self._say(response, _of_failure(failed), session)
            return
        if isinstance(outcome, Done):
            session.says, session.has_failed = outcome.says, False
            await _see(response, outcome.path)
        else:
            await self._say(response, outcome, session, at=asked.at, cursor=asked.cursor)

    async def _form(self, request: _Request, session: BrowserSession) -> Mapping[str, str]:
        """Of a POST. Raises `Refused` for one that is not of a page of this session."""
        if request.method != "POST":
            return {}
        form = await read_form(request.receive, LONGEST_FORM)
        if not session.is_its_form(form.get("csrf", "")):
            raise Refused(403, "This form is of another session: load its page again")
        return form

    async def _events(
        self, query: Mapping[str, str], session: BrowserSession, receive: Receive, response: Response
    ) -> None:
        response.headers += _SAFE
        try:
            wanted = msgspec.convert(query, Wanted)
            await self._live.stream(
                wanted, session.principal, lambda: self._sessions.is_good(session), receive, response
            )
        except msgspec.ValidationError as error:
            raise Refused(400, f"There is no such filter: {error}") from None
        except Fault as fault:
            raise Refused(429, fault.message) from None

    def _asking(self, session: BrowserSession) -> views.Ask:
        async def ask(method: str, path: str, body: Any = None, longest: int | None = None) -> Any:
            if not self._sessions.is_good(session):  # a form may be long in coming
                raise Failed(403, "Your session has ended: sign in again")
            data = b"" if body is None else msgspec.json.encode(body)
            status, said = await self._ask(method, "/admin" + path, data, session.principal)
            if longest is not None and len(said) > longest:
                raise Failed(502, f"The answer has {len(said):,} bytes; a page shows {longest:,} at most")
            answer = await asyncio.to_thread(msgspec.json.decode, said)
            if status >= 400:
                raise Failed(status, str(answer.get("error", "")), answer.get("hint", ""), answer)
            return answer

        return ask

    async def _say(
        self,
        response: Response,
        shown: Shown,
        session: BrowserSession | None = None,
        more: HeaderList = (),
        at: int = 0,
        cursor: str = "",
    ) -> None:
        """Templates are slow to import, and nobody pays for them who asks for no page."""
        rendering = await asyncio.to_thread(importlib.import_module, "toolgate.frontends.web.rendering")
        about: dict[str, Any] = {
            "version": __version__,
            "base": PREFIX,
            "csrf": "",
            "says": "",
            "has_failed": False,
            "at": at,
            "cursor": cursor,
        }
        if session:
            about |= {"csrf": session.csrf, "says": session.says, "who": session.principal.id}
            session.says = ""
        body = await asyncio.to_thread(rendering.page, shown.template, {**about, **shown.values})
        await response.whole(shown.status, body, (*more, *_HEADERS), _HTML)


def _query(request: _Request) -> Mapping[str, str]:
    return dict(parse_qsl(bytes(request.scope.get("query_string", b"")).decode("latin-1"), keep_blank_values=True))


def _of_failure(failed: Failed) -> Shown:
    return Shown("error.html", {"failed": failed}, failed.status)


async def _static(name: str, headers: Mapping[str, str], response: Response) -> None:
    if name not in _STATIC:
        raise Refused(404, "Not found")
    tag = f'"{__version__}-{len(_read(name))}"'
    more = ((b"cache-control", b"no-cache"), (b"etag", tag.encode()), *_SAFE)
    if headers.get("if-none-match") == tag:
        await response.whole(304, b"", more)
    else:
        await response.whole(200, _read(name), more, _STATIC[name])


def _read(name: str) -> bytes:
    return files("toolgate.frontends.web").joinpath("static", name).read_bytes()


async def _see(response: Response, path: str, more: HeaderList = ()) -> None:
    """Go on at another page."""
    await response.whole(303, b"", ((b"location", (PREFIX + path.removesuffix("/")).encode()), *more, *_HEADERS))


def _check_is_our_form(headers: Mapping[str, str]) -> None:
    """Browsers say where a form comes from: `admit_page` has compared its origin with this one, where there is one."""
    came_from = headers.get("sec-fetch-site", "same-origin")
    if "origin" not in headers or came_from != "same-origin":
        raise Refused(403, "Forms come from pages of this origin only")


def _address(request: _Request) -> str:
    return str((request.scope.get("client") or ("",))[0])
