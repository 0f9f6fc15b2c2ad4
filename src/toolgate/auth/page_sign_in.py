"""Administrators who sign in to the operator's pages at the issuer of tokens, with a browser: OpenID Connect by code,
with PKCE (RFC 7636), and the issuer's own word for whose answer it is (RFC 9207).

The rules this file keeps: of a sign-in that has not ended nothing is kept, since anybody can begin one: what must come
back is made of what its browser holds, by a key of this process; of an answer that is another issuer's nothing more is
looked at; and who has signed in is a client by the same rules as who comes with a token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from toolgate.auth.issuer import Issuer, Unreachable
from toolgate.auth.refusals import Unauthorized
from toolgate.auth.safe_net import LOOPBACK
from toolgate.config import Auth
from toolgate.core import jsonrpc
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.core.redaction import excerpt

LASTS = 600.0  # seconds that a user has
LONGEST_HINT = 4096  # characters of an ID token that may stand in a URL
MOST_AT_ONCE = 8  # answers that are held against their issuer; half as many from one address
MOST_ADDRESSES = 64  # those that have one place beyond these, where others have taken all
MOST_USED = 10_000  # sign-ins that are over, and are not to be tried again

ByIdToken = Callable[[str, str, str, str], Awaitable[Principal]]


class NotSignedIn(Exception):
    """`str()` says why, for the person at the browser."""


class Begun(NamedTuple):
    """Where the browser goes, and what it must hold when it is back."""

    url: str
    cookie: str


class SignedIn(NamedTuple):
    """Who it is, and where their browser signs out there; empty where the issuer says nothing of that."""

    principal: Principal
    sign_out_url: str


class Metadata(msgspec.Struct, frozen=True):
    """What an issuer says of itself, as far as it matters here."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    end_session_endpoint: Any = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _Answer(msgspec.Struct):
    id_token: str = ""
    error: str = ""


class PageSignIn:
    """`auth` and `issuer` are as they are configured now. `by_id_token` says who somebody is by an ID token, the client
    id that it is for, its nonce and an address; it raises `Unauthorized`."""

    def __init__(
        self, auth: Callable[[], Auth], issuer: Callable[[], Issuer | None], by_id_token: ByIdToken, clock: Clock
    ) -> None:
        self._auth = auth
        self._issuer = issuer
        self._by_id_token = by_id_token
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._at_once: Counter[str] = Counter()  # by address
        self._used: dict[bytes, float] = {}  # what came back once, until when it might come again; the first one first

    @property
    def host(self) -> str:
        """Where one can sign in; empty where one cannot."""
        auth = self._auth()
        return urlsplit(auth.issuer).netloc if auth.issuer and auth.pages.client_id else ""

    async def begin(self, callback: str) -> Begun:
        """Raises `NotSignedIn`."""
        pages, (_, metadata) = self._auth().pages, await self._found()
        cookie = f"{int(self._clock.wall())}.{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(self._made("verifier", cookie).encode()).digest()
        query = {
            "response_type": "code",
            "client_id": pages.client_id,
            "redirect_uri": callback,
            "scope": " ".join(dict.fromkeys(("openid", *pages.scopes))),
            "state": self._made("state", cookie),
            "nonce": self._made("nonce", cookie),
            "code_challenge": _encoded(digest),
            "code_challenge_method": "S256",
        }
        url = metadata.authorization_endpoint
        return Begun(url + ("&" if "?" in url else "?") + urlencode(query), cookie)

    async def finish(self, answer: Mapping[str, str], cookie: str, callback: str, address: str) -> SignedIn:
        """Who has signed in, with what came back. Raises `NotSignedIn`."""
        if not self._is_begun(cookie) or not hmac.compare_digest(
            answer.get("state", "").encode(), self._made("state", cookie).encode()
        ):
            raise NotSignedIn("This sign-in was not begun in this browser, or more than ten minutes ago: begin again")
        own, all_of_them = self._at_once[address], self._at_once.total()
        if own >= MOST_AT_ONCE // 2 or (all_of_them >= MOST_AT_ONCE and (own or all_of_them >= MOST_ADDRESSES)):
            raise NotSignedIn("Too many sign in at once: try again in a moment")
        self._use(cookie)
        self._at_once[address] += 1
        try:
            issuer, metadata = await self._found()
            _check_issuer(metadata, answer)
            if answer.get("error"):
                raise NotSignedIn(f"{self.host} says: {excerpt(answer['error'], 100)}")
            id_token = await self._exchanged(issuer, metadata, answer.get("code", ""), cookie, callback)
            client_id = self._auth().pages.client_id
            principal = await self._by_id_token(id_token, client_id, self._made("nonce", cookie), address)
            return SignedIn(principal, _sign_out_url(metadata.end_session_endpoint, client_id, id_token))
        except Unauthorized as refused:
            raise NotSignedIn(f"Nobody is let in by that: {refused.message}") from None
        finally:
            self._at_once -= Counter([address])

    def _use(self, cookie: str) -> None:
        """A sign-in is tried once: its issuer would be asked without end. Raises `NotSignedIn`."""
        now, digest = self._clock.wall(), hashlib.sha256(cookie.encode()).digest()
        while self._used and (next(iter(self._used.values())) <= now or len(self._used) >= MOST_USED):
            del self._used[next(iter(self._used))]
        if digest in self._used:
            raise NotSignedIn("This sign-in was tried already: begin again")
        self._used[digest] = now + LASTS

    def _is_begun(self, cookie: str) -> bool:
        begun = cookie.partition(".")[0]
        return begun.isdecimal() and len(begun) < 15 and 0 <= self._clock.wall() - int(begun) <= LASTS

    def _made(self, what: str, cookie: str) -> str:
        return _encoded(hmac.digest(self._key, f"{what}:{cookie}".encode(), hashlib.sha256))

    async def _found(self) -> tuple[Issuer, Metadata]:
        issuer = self._issuer()
        if not issuer or not self.host:
            raise NotSignedIn("Nobody signs in that way here")
        try:
            metadata = msgspec.convert(await issuer.metadata(), Metadata)
        except (Unreachable, Fault, msgspec.ValidationError) as why:
            raise NotSignedIn(f"{self.host} cannot be asked: {why}") from None
        for url in (metadata.authorization_endpoint, metadata.token_endpoint):
            if not _is_safe(url):
                raise NotSignedIn(f"{self.host} has no endpoint that could be used for that")
        return issuer, metadata

    async def _exchanged(self, issuer: Issuer, metadata: Metadata, code: str, cookie: str, callback: str) -> str:
        """The ID token for a code."""
        pages = self._auth().pages
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "code_verifier": self._made("verifier", cookie),
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        is_basic = "client_secret_basic" in metadata.token_endpoint_auth_methods_supported
        if pages.client_secret and is_basic:
            pair = f"{quote(pages.client_id, safe='')}:{quote(pages.client_secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            sent |= {"client_id": pages.client_id}
            sent |= {"client_secret": pages.client_secret} if pages.client_secret else {}
        try:
            fetched = await issuer.post(metadata.token_endpoint, headers, urlencode(sent).encode())
            told = jsonrpc.read_given(fetched.body, _Answer)
        except Fault as fault:
            raise NotSignedIn(f"{self.host} cannot be asked: {fault.message}") from None
        except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
            raise NotSignedIn(f"{self.host} answered with something that is no token") from None
        if fetched.status != 200 or not told.id_token:
            raise NotSignedIn(f"{self.host} gave no ID token: {excerpt(told.error, 100) or f'HTTP {fetched.status}'}")
        return told.id_token


def _check_issuer(metadata: Metadata, answer: Mapping[str, str]) -> None:
    """RFC 9207, letter by letter."""
    said = answer.get("iss")
    is_named = said is not None or metadata.authorization_response_iss_parameter_supported
    if is_named and said != metadata.issuer:
        raise NotSignedIn(f"The answer is not from {metadata.issuer}, where this sign-in was begun")


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.netloc) and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK))


def _sign_out_url(endpoint: Any, client_id: str, id_token: str) -> str:
    """RP-initiated logout. Where to go then is not said: the issuer would have to know that address, and many sign
    nobody out where they do not."""
    if not isinstance(endpoint, str) or not _is_safe(endpoint):
        return ""
    query = {"client_id": client_id} | ({"id_token_hint": id_token} if len(id_token) <= LONGEST_HINT else {})
    return endpoint + ("&" if "?" in endpoint else "?") + urlencode(query)


def _encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
