"""Who a client is, by what it shows with each request: a key or a token, as a bearer and in no other way.

The rules this file keeps: every request is judged, whatever session it speaks of; what is refused is not told why
beyond what its bearer may know; and nobody is let in for being two things at once: the first client of the
configuration that fits a token is the one, and if that one is disabled, nobody is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from toolgate.auth import keys
from toolgate.auth.issuer import ROUND, Issuer, Unreachable
from toolgate.auth.page_sign_in import PageSignIn
from toolgate.auth.refusals import Unauthorized
from toolgate.auth.resource import Resource
from toolgate.auth.safe_net import SafeNet
from toolgate.auth.tokens import SKEW, BadToken, Tokens, Verified
from toolgate.config import Config, KnownClient
from toolgate.core.background import rounds
from toolgate.core.clock import Clock, Timer
from toolgate.core.model import Principal
from toolgate.core.services import Swap
from toolgate.state.base import NotKept, Store

BEARER = "bearer"
LOOK = 60.0  # seconds between two looks at most, since wall clocks are set
MOST_REMEMBERED = 4096  # that were let in by a key


class Authenticator:
    """Knows the clients of the configuration as it is now (`use`), and the keys as the store has them (`look`).
    `on_withdrawn` hears that keys of the issuer hold no more: who came in by them is no longer known; `on_ended`, that
    the time of a key of the store is over, which it may have been given after somebody came in by it."""

    def __init__(
        self, config: Config, store: Store, clock: Clock, own: Callable[[str, int], bool] = lambda _at, _on: False
    ) -> None:
        self._own = own  # where the gateway itself listens
        self.on_withdrawn: Callable[[], object] = lambda: None
        self.on_ended: Callable[[], object] = lambda: None
        self.resource = Resource(config.auth)
        self._store = store
        self._clock = clock
        self._config = Config()
        self._clients: Mapping[str, KnownClient] = {}
        self._ring = keys.Ring((), {})
        self._tokens: Tokens | None = None
        self._whose: dict[bytes, KnownClient | None] = {}  # tokens' clients, by digest
        self._let_in: dict[tuple[str, str, bool], Principal] = {}  # by a key, until any of them changes
        self._timer: Timer | None = None  # until the next key ends
        self.page_sign_in = PageSignIn(
            lambda: self.resource.auth, lambda: self._tokens.issuer if self._tokens else None, self.by_id_token, clock
        )
        self.prepared(config)()

    def prepared(self, config: Config) -> Swap:
        before = self._config
        clients = {client.id: client for client in config.clients}
        try:
            made: Mapping[str, keys.Record] = keys.records(self._store)
        except NotKept:
            made = self._ring.made  # an edit of the configuration revokes none
        ring = keys.Ring(config.clients, made)
        tokens = self._tokens
        if (config.auth, config.guard.allow_hosts) != (before.auth, before.guard.allow_hosts):
            outside = SafeNet(config.guard.allow_hosts, own=self._own)
            issuer = Issuer(config.auth.issuer, outside, self._clock, lambda: self.on_withdrawn())
            tokens = Tokens(issuer, self._clock) if config.auth.issuer else None

        def swap() -> None:
            self._config, self._clients, self._tokens, self._ring = config, clients, tokens, ring
            self.resource.auth = config.auth
            self._whose.clear()
            self._let_in.clear()
            self._until_next_end()

        return swap

    def look(self) -> None:
        """Read the keys of the store: others have changed them. Raises `NotKept`, and knows those of before."""
        made = keys.records(self._store)
        self._let_in.clear()
        self._ring = keys.Ring(self._config.clients, made)
        self._until_next_end()

    def _until_next_end(self) -> None:
        self.close()
        now = self._clock.wall()
        if ends := self._ring.next_end(now):
            self._timer = self._clock.call_later(min(ends - now, LOOK), lambda: self._may_have_ended(ends))

    def _may_have_ended(self, ends: float) -> None:
        if self._clock.wall() >= ends:
            self.on_ended()
        self._until_next_end()

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    async def follow(self) -> None:
        """Look at the issuer's keys now and then as long as anybody may be inside by them. Until cancelled."""
        await rounds(self._clock, ROUND, self._look_at_issuer, "look at the issuer's keys")

    async def _look_at_issuer(self) -> None:
        if self._tokens and self._tokens.has_any:
            await self._tokens.issuer.look_round()

    async def __call__(self, headers: Mapping[str, str], address: str, path: str) -> Principal:
        """Raises `Unauthorized`."""
        header, is_page = headers.get("authorization", ""), "origin" in headers  # a page administers nothing
        known = self._let_in.get((header, address, is_page))
        if known and (known.expires is None or self._clock.wall() < known.expires):
            return known
        shown = self._bearer(header, path)
        if shown.startswith(keys.PREFIX) and self._ring.is_behind(shown, self._store):
            with suppress(NotKept):
                self.look()  # whoever has just made it may use it; that others hear of it takes a moment
        if found := self._ring.find(shown, self._clock.wall()):
            client = self._clients.get(found.client)
            if not client or not client.enabled:
                raise self._unknown(path)
            let_in = _principal(f"client:{client.id}", address, client, is_page, found.credential, found.expires)
            if len(header) == len(BEARER) + 1 + len(shown):  # of the same key with blanks there is no end
                if len(self._let_in) >= MOST_REMEMBERED:
                    self._let_in.clear()
                self._let_in[header, address, is_page] = let_in
            return let_in
        if shown.startswith(keys.PREFIX) and self._store.problem:  # it may be a good one
            raise Unauthorized("Keys cannot be checked: the gateway cannot use its store", status=503)
        if not self._tokens or shown.startswith(keys.PREFIX):
            raise self._unknown(path)
        return await self._by_token(self._tokens, shown, address, path, is_page)

    def knows(self, principal: Principal) -> bool:
        """Whether who was let in once would be let in still. That a token's time is over does not matter here: see
        `Principal.expires`."""
        client = self._clients.get(principal.client)
        if not client or not client.enabled:
            return False
        if not principal.via:  # who has started this gateway as a client of it, over a pipe
            return True
        if principal.via == "token":
            token = self._tokens and self._tokens.find(principal.credential)
            return bool(token and self._whose_is(token) is client)
        return self._ring.has(principal.credential, client.id, self._clock.wall())

    def _bearer(self, header: str, path: str) -> str:
        scheme, _, shown = header.partition(" ")
        shown = shown.strip(" ")
        if not header or scheme.lower() != BEARER:
            raise Unauthorized("Unauthorized: send the header Authorization: Bearer KEY", self.resource.challenge(path))
        if not shown or not shown.isascii() or " " in shown or "," in shown:
            challenge = self.resource.challenge(path, "invalid_request", "exactly one bearer token is required")
            raise Unauthorized("Authorization must be: Bearer KEY", challenge, 400)
        return shown

    def _unknown(self, path: str, why: str = "unknown or revoked key") -> Unauthorized:
        challenge = self.resource.challenge(path, "invalid_token", why)
        return Unauthorized(f"Unauthorized: {why}", challenge)

    async def _by_token(self, tokens: Tokens, shown: str, address: str, path: str, is_page: bool) -> Principal:
        try:
            token = await tokens.verify(shown, address)
        except BadToken as bad:
            raise self._unknown(path, str(bad)) from None
        except Unreachable:
            raise Unauthorized("The token issuer is unreachable; try again later", status=503) from None
        if tokens is not self._tokens:  # while its keys were fetched
            raise self._unknown(path, "the issuer was replaced")
        if self.resource.identifier(path) not in token.audience:
            raise self._unknown(path, "the token is not for this endpoint")
        client = self._whose_is(token)
        if not client or not client.enabled:
            raise Unauthorized("Forbidden: the token matches no enabled client", status=403)
        if wanted := [scope for scope in self.resource.auth.scopes if scope not in token.scopes]:
            challenge = self.resource.challenge(path, "insufficient_scope")
            raise Unauthorized(f"The token lacks the scope {' '.join(wanted)}", challenge, 403)
        tokens.keep(token)
        id = f"token:{tokens.issuer.name}|{token.subject}"
        return _principal(id, address, client, is_page, token.name, token.expires + SKEW, token.scopes)

    async def by_id_token(self, shown: str, client_id: str, nonce: str, address: str) -> Principal:
        """Who has signed in at the issuer with a browser: an ID token says so (OpenID Connect Core, 3.1.3.7). Raises
        `Unauthorized`."""
        try:
            if not (tokens := self._tokens):
                raise BadToken("no issuer is configured")
            token = await tokens.verify(shown, address)
            if tokens is not self._tokens:  # while its keys were fetched
                raise BadToken("the issuer was replaced")
            authorized = token.claims.get("azp", client_id if len(token.audience) == 1 else None)
            if client_id not in token.audience or authorized != client_id:
                raise BadToken("the token is for another client")
            if token.claims.get("nonce") != nonce:
                raise BadToken("the token is of another sign-in")
        except BadToken as bad:
            raise Unauthorized(str(bad)) from None
        except Unreachable:
            raise Unauthorized("the keys of the issuer are not to be had; try again later", status=503) from None
        client = self._whose_is(token)
        if not client or not client.enabled:
            raise Unauthorized("the token matches no enabled client", status=403)
        self._tokens.keep(token)
        id = f"token:{self._tokens.issuer.name}|{token.subject}"
        return _principal(id, address, client, False, token.name, token.expires + SKEW, token.scopes)

    def _whose_is(self, token: Verified) -> KnownClient | None:
        """The client whose permissions a token has."""
        if token.digest not in self._whose:
            if len(self._whose) >= 4096:
                self._whose.clear()
            fitting = (each for each in self._config.clients if each.claims and _has(token.claims, each.claims))
            self._whose[token.digest] = next(fitting, self._clients.get(self.resource.auth.client))
        return self._whose[token.digest]


def _principal(
    id: str,
    address: str,
    client: KnownClient,
    is_page: bool,
    credential: str,
    expires: float | None,
    scopes: frozenset[str] | None = None,
) -> Principal:
    return Principal(
        id,
        address,
        is_admin=client.admin and not is_page,
        client=client.id,
        scopes=scopes,
        via="key" if scopes is None else "token",
        credential=credential,
        expires=expires,
    )


def _has(claims: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in claims and _is(claims[name], value) for name, value in wanted.items())


def _is(found: object, wanted: object) -> bool:
    """Equal, or, of several that a token has, one that is; what is within that is somebody's own. `true` is not 1."""
    several = isinstance(found, list) and not isinstance(wanted, list)
    members = cast("list[object]", found if several else [found])
    return any(isinstance(one, bool) == isinstance(wanted, bool) and one == wanted for one in members)
