"""Asking for tokens: by a code, by what renews them, by the gateway's own credentials.

The rules this file keeps: `resource` is in every request, and is the server's own; a redirect is never followed, since
secrets are in the request; a client of the configuration shows the secret that stands there now, of which a grant keeps
no copy; a token that could not stand in a header, or is not a bearer's, is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from toolgate.auth.oauth import challenge
from toolgate.auth.oauth.base import Authority, Grant, failed
from toolgate.auth.oauth.discovery import Discovery
from toolgate.auth.oauth.registering import configured, error_word, identified
from toolgate.config import Server
from toolgate.core import jsonrpc
from toolgate.core.clock import Clock
from toolgate.core.redaction import LONGEST_TOKEN

LONGEST = 10 * 366 * 86400.0  # seconds for which a token is good, whatever its issuer says
_visible = re.compile(r"[\x21-\x7e]{1,65536}")


class NotGranted(Exception):
    """The authorization server says no. `error` is its word for why, empty where it gave none."""

    def __init__(self, error: str, said: str) -> None:
        super().__init__(said)
        self.error = error


class _Answer(msgspec.Struct):
    access_token: str = ""
    token_type: str = ""
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None
    error: str = ""


class Grants:
    def __init__(self, discovery: Discovery, clock: Clock) -> None:
        self._discovery = discovery
        self._clock = clock

    async def by_code(
        self, server: Server, authority: Authority, plan: Grant, code: str, verifier: str, redirect_uri: str
    ) -> Grant:
        """What the user has granted. `plan` is the grant without its token. Raises `NotGranted`, `Fault`."""
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
        }
        return await self._asked(server, authority, plan, sent)

    async def renewed(self, server: Server, authority: Authority, grant: Grant) -> Grant:
        """The same grant with another token. Raises `NotGranted`, `Fault`."""
        sent = {"grant_type": "refresh_token", "refresh_token": grant.refresh}
        return await self._asked(server, authority, grant, sent)

    async def by_own(self, server: Server, authority: Authority, plan: Grant) -> Grant:
        """What the gateway's own credentials are good for. Raises `NotGranted`, `Fault`."""
        sent = {"grant_type": "client_credentials"} | ({"scope": " ".join(plan.asked)} if plan.asked else {})
        return await self._asked(server, authority, plan, sent)

    async def _asked(self, server: Server, authority: Authority, plan: Grant, sent: Mapping[str, str]) -> Grant:
        assert server.auth
        client = plan.client if plan.client.is_own else configured(server.auth, authority) or plan.client
        headers, who = identified(client, server.auth, self._clock.wall())
        body = urlencode({**sent, **who, "resource": plan.resource}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        fetched = await self._discovery.fetch(authority.token_endpoint, server, headers, body)
        try:
            answer = jsonrpc.read_given(fetched.body, _Answer)
        except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
            answer = _Answer()
        if fetched.status >= 500 or (fetched.status != 200 and not answer.error):
            raise failed(server, f"cannot complete sign-in: {authority.issuer} answered HTTP {fetched.status}")
        if fetched.status != 200:
            raise NotGranted(answer.error, error_word(answer.error))
        return self._read(server, authority, plan, answer)

    def _read(self, server: Server, authority: Authority, plan: Grant, answer: _Answer) -> Grant:
        if max(len(answer.access_token), len(answer.refresh_token or "")) > LONGEST_TOKEN:
            said = f"issued a token of more than {LONGEST_TOKEN:,} characters, which no header has room for"
            raise failed(server, f"cannot complete sign-in: {authority.issuer} {said}")
        if not _visible.fullmatch(answer.access_token) or answer.token_type.lower() != "bearer":
            raise failed(server, f"cannot complete sign-in: {authority.issuer} issued no bearer token")
        lasts = _seconds(answer.expires_in)
        now = self._clock.wall()
        return msgspec.structs.replace(
            plan,
            client=plan.client if plan.client.is_own else msgspec.structs.replace(plan.client, secret=""),
            token=answer.access_token,
            refresh=answer.refresh_token if _visible.fullmatch(answer.refresh_token or "") else plan.refresh,
            expires=None if lasts is None else now + lasts,
            scopes=plan.scopes if answer.scope is None else challenge.scopes(answer.scope),
            kept=now,
        )


def _seconds(written: float | str | None) -> float | None:
    """Some write numbers as text. What is no time is not known."""
    try:
        seconds = float(written) if written is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(seconds) else min(max(0.0, seconds), LONGEST)
