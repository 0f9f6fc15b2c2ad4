"""The pages by which a user signs in at a server: /connect/ID, which a client was sent to, and the way back.

    GET /connect/ID        who signs in where, and a button
    POST /connect/ID       the button: off to the authorization server
    GET /connect/callback  the way back; with /ISSUER, from that one

The rules this file keeps: a link does nothing until a person has read what it is for and has said yes; the browser that
comes back is the one that went; nothing of these pages is kept, framed or told to others. Who is sent here by whom the
gateway cannot see: a link is known to its principal alone, is good once and for ten minutes, and its page says so.
Spec: 2025-11-25 client/elicitation, "Safe URL Handling" and "Phishing"; 2026-07-28 security best practices, "Confused
Deputy".
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from toolgate.auth import safe_text
from toolgate.auth.oauth.base import Begun, Offered, Places
from toolgate.auth.oauth.credentials import OAuth
from toolgate.auth.oauth.sign_in import hashed
from toolgate.core.fault import Fault
from toolgate.frontends.guards import Guards, Refused, Scope, not_allowed, read_form
from toolgate.frontends.streams import Receive, Response
from toolgate.frontends.web import cookies

PREFIX = "/connect/"
CALLBACK = "callback"
DOCUMENT = "client.json"
PLACES = Places(PREFIX, PREFIX + CALLBACK, PREFIX + DOCUMENT)
LONGEST_FORM = 4096  # bytes
_COOKIE = "toolgate-connect"

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em}"
    "body{color:#1a1a1a;background:#fff}"
    "dt{color:#555;margin-top:.6em}dd{margin:0;font-weight:600;overflow-wrap:anywhere}"
    "button{font:inherit;padding:.6em 1.4em;margin-top:1.4em;border:0;border-radius:6px;background:#1a5fb4;color:#fff}"
    "button:focus-visible{outline:3px solid #1a1a1a}p.care{border-left:4px solid #b45f1a;padding-left:1em}"
    "@media(prefers-color-scheme:dark){body{color:#eee;background:#1a1a1a}dt{color:#bbb}}"
)

# No `form-action`: browsers hold all of an authorization server's own redirects against it. The referrer stays within,
# and is not `no-referrer`: then the form would come from no known origin.
_HEADERS = (
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
)


class Connect:
    """`guards` are those of the frontend that these pages stand in."""

    def __init__(self, sign_ins: OAuth, guards: Guards) -> None:
        sign_ins.served_at(PLACES)
        self._sign_ins = sign_ins
        self._guards = guards

    async def answer(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Raises `Refused` for what comes from elsewhere."""
        headers = self._guards.admit_page(scope)
        method, place = str(scope["method"]), str(scope["path"]).removeprefix(PREFIX)
        is_back = place.partition("/")[0] == CALLBACK
        if is_back or place == DOCUMENT:
            if method != "GET":
                raise not_allowed("GET")
            await (self._back(scope, headers, response) if is_back else self._document(response))
        elif method == "GET":
            await self._page(place, response)
        elif method == "POST":
            await self._begin(place, await read_form(receive, LONGEST_FORM), response)
        else:
            raise not_allowed("GET, POST")

    async def _page(self, id: str, response: Response) -> None:
        offered = self._sign_ins.find(id)
        if offered:
            await self._say(response, 200, _offer(offered))
        else:
            await self._gone(response)

    async def _begin(self, id: str, form: Mapping[str, str], response: Response) -> None:
        begun = await self._sign_ins.begin(id, form.get("confirm", ""))
        if not begun:
            await self._gone(response)
            return
        told = [(b"location", begun.url.encode()), (b"set-cookie", self._cookie(begun).encode())]
        await response.whole(303, b"", [*told, *_HEADERS])

    def _cookie(self, begun: Begun) -> str:
        attributes = f"Path={PLACES.callback}; Max-Age=600; HttpOnly; SameSite=Lax"
        secure = "; Secure" if self._sign_ins.is_secure else ""
        return f"{_cookie_of(begun.state)}={begun.cookie}; {attributes}{secure}"

    async def _back(self, scope: Scope, headers: Mapping[str, str], response: Response) -> None:
        query = bytes(scope.get("query_string", b"")).decode("latin-1")
        try:
            answer = dict(parse_qsl(query))
            cookie = cookies.held(headers, _cookie_of(answer.get("state", "")))
            server = await self._sign_ins.finish(answer, cookie, str(scope["path"]))
        except Fault as fault:
            more = f"<p>{html.escape(fault.hint)}</p>" if fault.hint else ""
            await self._say(response, 400, f"<h1>Not signed in</h1><p>{html.escape(fault.message)}.</p>{more}")
            return
        done = f"<h1>Signed in</h1><p>toolgate may now use {html.escape(server)} for you. You can close this page.</p>"
        await self._say(response, 200, done)

    async def _document(self, response: Response) -> None:
        found = self._sign_ins.document()
        if found is None:
            raise Refused(404, "This gateway has no https URL, so it has no such document")
        await response.whole(200, found)

    async def _gone(self, response: Response) -> None:
        text = "This link is unknown, already used or expired. Make the call again to get a new one."
        await self._say(response, 404, f"<h1>Sign-in link not valid</h1><p>{text}</p>")

    async def _say(self, response: Response, status: int, body: str) -> None:
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>toolgate: sign in</title>'
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><main>{body}</main></html>'
        )
        await response.whole(status, page.encode(), _HEADERS, b"text/html; charset=utf-8")


_is_plain = re.compile(r"[A-Za-z0-9_.:/*-]{1,80}").fullmatch


def _permission(scope: str) -> str:
    """A server names these: what could be read as more than a name stands in quotes."""
    return scope if _is_plain(scope) else safe_text.quoted(scope)


def _offer(offered: Offered) -> str:
    known = {
        "Server": f"{offered.server} ({offered.host})",
        "Sign-in page": offered.leads_to,
        "Authorization server": offered.authority,
        "On behalf of": offered.client,
        "Requested permissions": ", ".join(map(_permission, offered.scopes)) or "not specified",
    }
    shown = {name: html.escape(safe_text.in_one_line(value)) for name, value in known.items() if value}
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in shown.items())
    return (
        f"<h1>Sign in to {html.escape(offered.server)}</h1>"
        "<p>toolgate asks to use this server with your account.</p>"
        f"<dl>{rows}</dl>"
        '<p class="care">Continue only if you have just requested this yourself. If somebody sent you this link, that '
        "person, and not you, would use your account.</p>"
        f'<form method="post"><input type="hidden" name="confirm" value="{html.escape(offered.confirm)}">'
        "<button>Sign in</button></form>"
    )


def _cookie_of(state: str) -> str:
    """The name of a sign-in's cookie: in one browser there may be several sign-ins at once."""
    return f"{_COOKIE}-{hashed(state)[:16]}"
