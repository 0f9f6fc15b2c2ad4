"""Signing in to the operator's pages at the issuer of tokens: off to it, and back.

    GET /ui/oidc           off
    GET /ui/oidc/callback  back

The rules this file keeps: the browser that comes back is the one that went; and the pages are opened from a page of
this origin, since browsers do not send the session's cookie where another one has led them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

from toolgate.auth.page_sign_in import NotSignedIn, PageSignIn, SignedIn
from toolgate.frontends.streams import HeaderList

PATH = "/oidc"
CALLBACK = PATH + "/callback"
COOKIE = "toolgate-sign-in"


class SignInWithBrowser:
    """`reached_at` is the URL that browsers reach the gateway by, `prefix` the path of the pages."""

    def __init__(self, sign_in: PageSignIn, reached_at: Callable[[], str], prefix: str) -> None:
        self._sign_in = sign_in
        self._reached_at = reached_at
        self._prefix = prefix

    @property
    def host(self) -> str:
        return self._sign_in.host if self._reached_at() else ""

    @property
    def callback(self) -> str:
        return self._reached_at() + self._prefix + CALLBACK

    async def begin(self, is_secure: bool) -> HeaderList:
        """The headers of the answer that leads there. Raises `NotSignedIn`."""
        if not self.host:
            raise NotSignedIn("Nobody signs in that way here")
        begun = await self._sign_in.begin(self.callback)
        return (b"location", begun.url.encode()), self._cookie(begun.cookie, is_secure)

    async def finish(self, query: bytes, cookie: str, address: str) -> SignedIn:
        """Raises `NotSignedIn`."""
        if not cookie:
            raise NotSignedIn(f"This sign-in was not begun in this browser: open {self._reached_at()}{self._prefix}")
        try:
            told: Mapping[str, str] = dict(parse_qsl(query.decode("latin-1"), max_num_fields=50))
        except ValueError:
            raise NotSignedIn("The answer that the browser brings has more than 50 fields") from None
        return await self._sign_in.finish(told, cookie, self.callback, address)

    def forgotten(self) -> tuple[bytes, bytes]:
        return b"set-cookie", f"{COOKIE}=; Path={self._prefix}{PATH}; Max-Age=0".encode()

    def _cookie(self, value: str, is_secure: bool) -> tuple[bytes, bytes]:
        secure = "; Secure" if is_secure else ""
        attributes = f"Path={self._prefix}{PATH}; Max-Age=600; HttpOnly; SameSite=Lax{secure}"
        return b"set-cookie", f"{COOKIE}={value}; {attributes}".encode()
