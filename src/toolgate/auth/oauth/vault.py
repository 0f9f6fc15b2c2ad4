"""Where grants, registrations and sign-ins under way are kept: in the store, sealed with its own keys.

The rules this file keeps: a grant is found by principal, server, URL and nothing less, says itself whose it is, and is
none where the configuration names another issuer or client by now; a link and a state are used up by whoever comes
first, and stand in the store as hashes only.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from toolgate.auth.oauth.base import Grant, Registration, SignIn, fits
from toolgate.auth.seal import Broken, Seal
from toolgate.config import Server
from toolgate.core.clock import Clock
from toolgate.core.redaction import Redactor
from toolgate.state.base import NotKept, Store

GRANTS, CLIENTS, SIGN_INS, ISSUERS = "oauth/grants", "oauth/clients", "oauth/sign-ins", "oauth/issuers"
REGISTERED = "oauth/registered"  # the keys of the clients that were registered for a server
KEPT = 90 * 24 * 3600.0  # seconds for which a grant is kept that nobody uses; the keys of seals open as long
RENEWED = 7 * 24 * 3600.0  # seconds after which one that is used is written anew
LEASES = "oauth/leases"
LEASE = 20.0  # seconds for which one gateway renews a grant, and others wait; a request for a token takes up to 10
SIGN_IN_LASTS = 600.0  # seconds from the link to its end
MOST_KNOWN = 10_000  # grants in memory
MOST_CLIENTS = 8  # registrations that are kept for one server, which may name another issuer each time


Kept = TypeVar("Kept", Grant, Registration, SignIn)


class GrantVault:
    """See the module. What it opens or keeps, `redactor` learns."""

    def __init__(self, store: Store, keys: Sequence[bytes], clock: Clock, redactor: Redactor) -> None:
        self._store = store
        self._seal = Seal("oauth", keys)
        self._clock = clock
        self._redactor = redactor
        self._grants: dict[str, Grant] = {}
        self._unkept: set[str] = set()  # the keys of those that could not be written
        self.document = ""  # the path of the gateway's own document: see `fits`

    # Grants.

    def grant(self, server: Server, principal: str) -> Grant | None:
        """As it is known here."""
        found = self._grants.get(_key(principal, server.id, server.url))
        return found if found and self._is_of(server, found) else self.read_again(server, principal)

    def read_again(self, server: Server, principal: str) -> Grant | None:
        """As it is in the store: another process may have another by now."""
        key = _key(principal, server.id, server.url)
        kept = self._store.get(GRANTS, key)
        grant = self._stored(server, principal)
        if grant is None or not self._is_of(server, grant):
            self._grants.pop(key, None)
            return None
        self._remember(key, grant)
        if self._clock.wall() - grant.kept > RENEWED:  # where it still stands: another process may renew it meanwhile
            young = self._sealed(msgspec.structs.replace(grant, kept=self._clock.wall()))
            self._store.compare_and_set(GRANTS, key, kept, young, KEPT)
        return grant

    def known(self) -> list[Grant]:
        """Those that were read or kept here."""
        return list(self._grants.values())

    def _is_of(self, server: Server, grant: Grant) -> bool:
        return server.auth is None or fits(server.auth, grant, self.document)

    def _stored(self, server: Server, principal: str) -> Grant | None:
        grant = self._read(GRANTS, _key(principal, server.id, server.url), Grant)
        is_theirs = grant and (grant.principal, grant.server, grant.url) == (principal, server.id, server.url)
        return grant if is_theirs else None

    async def forget(self, server: Server, principal: str) -> bool:
        """Forget what is kept, whoever it is of, and have all gateways of this store do so; whether there was
        anything."""
        key = _key(principal, server.id, server.url)
        was_there = self._stored(server, principal) is not None
        self._forget_here(key)
        await self._store.delete(GRANTS, key, ("sign-ins",))
        return was_there

    def look(self) -> None:
        """Another process has forgotten a grant: what is known here is read again where it is used."""
        self._grants = {key: self._grants[key] for key in self._unkept if key in self._grants}

    async def keep(self, grant: Grant) -> None:
        key = _of(grant)
        self._remember(key, grant)
        try:
            await self._store.put(GRANTS, key, self._sealed(grant), KEPT)
            self._unkept.discard(key)
        except NotKept:
            self._unkept.add(key)  # it is good until the gateway ends; the store has said so

    async def renew(self, grant: Grant, renewed: Grant) -> bool:
        """Keep what a grant was renewed to, where that grant is still the one that is kept; whether it was. One that
        was forgotten meanwhile does not come back."""
        key, sealed = _of(grant), self._sealed(renewed)
        if key in self._unkept:
            await self.keep(renewed)
            return True
        while kept := self._store.get(GRANTS, key):
            if not (found := self._opened(kept, Grant)) or found.token != grant.token:
                break
            try:
                if not await self._store.compare_and_set(GRANTS, key, kept, sealed, KEPT):
                    continue  # it was only written anew
            except NotKept:
                self._unkept.add(key)
            self._remember(key, renewed)
            return True
        self._forget_here(key)
        return False

    def _forget_here(self, key: str) -> None:
        self._grants.pop(key, None)
        self._unkept.discard(key)

    async def drop(self, grant: Grant) -> None:
        """Forget it, where it is still the one that is kept."""
        key = _of(grant)
        self._forget_here(key)
        kept = self._store.get(GRANTS, key)
        if kept and (found := self._opened(kept, Grant)) and found.token == grant.token:
            await self._store.compare_and_set(GRANTS, key, kept, None)

    async def lease(self, grant: Grant, holder: bytes) -> bool:
        """Whether a grant is this holder's to renew for a while, of all gateways with this store. It ends by itself
        where its holder does; where nothing can be kept there is none to wait for."""
        try:
            return await self._store.compare_and_set(LEASES, _of(grant), None, holder, LEASE)
        except NotKept:
            return True

    async def give_back(self, grant: Grant, holder: bytes) -> None:
        with contextlib.suppress(NotKept):
            await self._store.compare_and_set(LEASES, _of(grant), holder, None)

    def _remember(self, key: str, grant: Grant) -> None:
        self._redactor.learn_tokens(grant.server, [grant.token, grant.refresh, grant.client.secret], grant.principal)
        self._grants[key] = grant
        while len(self._grants) > MOST_KNOWN:
            self._forget_here(next(iter(self._grants)))

    # Clients, and the issuers that configured ones are bound to.

    def client(self, issuer: str, redirect_uri: str) -> Registration | None:
        found = self._read(CLIENTS, _key(issuer, redirect_uri), Registration)
        is_over = found and found.expires is not None and found.expires <= self._clock.wall()
        return None if not found or is_over or found.issuer != issuer else found

    async def keep_client(self, client: Registration, redirect_uri: str, server: Server) -> None:
        """The oldest of this server's gives way. Grants have their own copy of theirs."""
        self._redactor.learn_tokens(server.id, [client.secret])
        key, of = _key(client.issuer, redirect_uri), _key(server.id)
        known = (self._store.get(REGISTERED, of) or b"").decode().split()
        keys = [*(each for each in known if each != key), key]
        written = self._store.put(REGISTERED, of, " ".join(keys[-MOST_CLIENTS:]).encode(), KEPT)
        await self._store.put(CLIENTS, key, self._sealed(client), KEPT)
        await written
        for old in keys[:-MOST_CLIENTS]:
            await self._store.delete(CLIENTS, old)

    async def drop_client(self, client: Registration, redirect_uri: str) -> None:
        await self._store.delete(CLIENTS, _key(client.issuer, redirect_uri))

    async def bound_issuer(self, server: Server, client_id: str, issuer: str) -> str:
        """The issuer that a client of the configuration is for: the first that it was shown to."""
        key = _key(server.id, client_id)
        await self._store.compare_and_set(ISSUERS, key, None, issuer.encode())
        return (self._store.get(ISSUERS, key) or issuer.encode()).decode()

    # Sign-ins.

    async def offer(self, id: str, sign_in: SignIn) -> None:
        await self._store.put(SIGN_INS, _key(id), self._sealed(sign_in), SIGN_IN_LASTS)

    async def withdraw(self, id: str) -> None:
        with contextlib.suppress(NotKept):  # then it ends by itself
            await self._store.delete(SIGN_INS, _key(id))

    def sign_in(self, id: str) -> SignIn | None:
        found = self._read(SIGN_INS, _key(id), SignIn)
        return found if found and found.expires > self._clock.wall() else None

    async def use_up(self, id: str) -> SignIn | None:
        """The sign-in, for the first who comes."""
        kept = self._store.get(SIGN_INS, _key(id))
        found = self.sign_in(id)
        if not kept or not found or not await self._store.compare_and_set(SIGN_INS, _key(id), kept, None):
            return None
        return found

    def _read(self, space: str, key: str, kind: type[Kept]) -> Kept | None:
        kept = self._store.get(space, key)
        return self._opened(kept, kind) if kept else None

    def _opened(self, kept: bytes, kind: type[Kept]) -> Kept | None:
        try:
            return self._seal.unseal(kept.decode(), kind)
        except (Broken, UnicodeDecodeError):
            return None

    def _sealed(self, value: Grant | Registration | SignIn) -> bytes:
        return self._seal.seal(value).encode()


def _of(grant: Grant) -> str:
    return _key(grant.principal, grant.server, grant.url)


def _key(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
