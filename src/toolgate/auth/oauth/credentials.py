"""What servers are shown, and what is done when they refuse it: the one place that decides where a token comes from.

    refused → discovery → a renewed token, or one by our own credentials, or a sign-in that its user is asked for

The rules this file keeps: however many requests are refused together, and however differently, it is done once, or
one after the other; a scope that was granted and
does not help is not asked for again; what ends in a sign-in waits for nobody.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec

from toolgate.auth import credential_states
from toolgate.auth.credential_states import CredentialState
from toolgate.auth.oauth import challenge
from toolgate.auth.oauth.base import (
    NOWHERE,
    Authority,
    Begun,
    Discovered,
    Grant,
    Offered,
    Places,
    Refusal,
    Registration,
    SignIn,
    failed,
    fits,
)
from toolgate.auth.oauth.challenge import Challenge, united
from toolgate.auth.oauth.discovery import Discovery
from toolgate.auth.oauth.grants import Grants, NotGranted
from toolgate.auth.oauth.ourselves import Ourselves
from toolgate.auth.oauth.registering import error_word
from toolgate.auth.oauth.sign_in import OFFLINE, asked_to_sign_in, authorize, check_issuer, hashed
from toolgate.auth.oauth.vault import LEASE, SIGN_IN_LASTS, GrantVault
from toolgate.auth.safe_net import SafeNet
from toolgate.config import Config, Server, ServerAuth
from toolgate.core import crowds
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.redaction import Redactor
from toolgate.core.services import Swap, sets
from toolgate.state.base import NotKept, Store

log = logging.getLogger(__name__)

LEEWAY = 30.0  # seconds before its end at which a token is renewed
MOST_STEPS = 2  # sign-ins in a row for scopes that were asked for before, and not granted
MOST_OFFERED = 10_000  # servers and principals to which some are offered
MOST_OFFERS = 4  # of one server and principal at once, for other scopes each; the oldest gives way
MOST_BEGUN = 20  # of one server and principal in the time for which a sign-in is good
MOST_WARNED = 1000  # servers and issuers that one warning each was enough for
LOOK = 0.25  # seconds between looks for a sign-in, or another gateway's renewal, that has ended
MOST_LEASES = 3  # in a row that are waited for
MOST_REFUSALS = 4  # of one principal at one server that differ, and are looked at one after the other


Value = TypeVar("Value")


class Full(Exception):
    """As much of a kind is under way as may be."""


class OAuth:
    """What servers are shown whose configuration has `auth`, and the sign-ins that are under way for that. `base` is
    the URL that browsers reach the gateway by, empty where they cannot; `on_grant` is told of each sign-in that has
    ended well, by server and principal."""

    def __init__(
        self,
        store: Store,
        keys: Sequence[bytes],
        clock: Clock,
        outside: SafeNet,
        redactor: Redactor,
        base: Callable[[], str],
        on_grant: Callable[[str, str], object] = lambda server, principal: None,
    ) -> None:
        self.vault = GrantVault(store, keys, clock, redactor)
        self.discovery = Discovery(outside, clock)
        self.grants = Grants(self.discovery, clock)
        self.clock = clock
        self._places = NOWHERE
        self._base = lambda: base() if self._places.callback else ""
        self.ourselves = Ourselves(self.vault, self.discovery, self._base)
        self._on_grant = on_grant
        self._servers: dict[str, Server] = {}  # that sign-ins may be under way for
        # Links and their scopes, the newest last, by server and principal.
        self._offered: dict[tuple[str, str], tuple[tuple[str, tuple[str, ...]], ...]] = {}
        self._begun: dict[tuple[str, str], tuple[float, int]] = {}  # since when how many, by the same
        self._under_way: dict[tuple[str, ...], asyncio.Task[str]] = {}
        self._turns: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()
        self._warned: set[tuple[str, str]] = set()
        self._written: Sequence[Server] = ()  # those in whose configuration a token may stand
        self._store = store
        self._failing: dict[tuple[str, str], tuple[float, str]] = {}  # since when, and why, by the same

    def credential(self, server: Server, principal: str) -> UpstreamCredential:
        """For connections to a server that serve one principal."""
        assert server.auth
        self._servers[server.id] = server
        return UpstreamCredential(self, server, server.auth, _whose(server, principal))

    async def close(self) -> None:
        under_way = list(self._under_way.values())
        for work in under_way:
            work.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def once(self, key: tuple[str, ...], work: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """The same work for all who want it now. Who goes away leaves it to the others."""
        task = self._under_way.get(key)
        if not task:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(work(), name=f"credentials {key[0]}")
            task.add_done_callback(lambda done: self._done(key, done))
        await crowds.over(task)
        await crowds.turn(key[0])  # thousands may have waited, most of them of one server
        try:
            return task.result()
        except Fault as fault:
            raise fault.at("", "") from None  # a new one for each

    async def in_turn(
        self, kind: tuple[str, ...], key: tuple[str, ...], work: Callable[[], Coroutine[Any, Any, str]]
    ) -> str:
        """The same, but one after the other where more than the key's beginning, its kind, differs. Raises `Full`."""
        if key not in self._under_way and sum(each[: len(kind)] == kind for each in self._under_way) >= MOST_REFUSALS:
            raise Full
        turn = self._turns.setdefault(kind, asyncio.Lock())

        async def in_turn() -> str:
            async with turn:
                return await work()

        return await self.once(key, in_turn)

    def _done(self, key: tuple[str, ...], done: asyncio.Task[str]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more

    # Sign-ins.

    def served_at(self, places: Places) -> None:
        """There are pages for sign-ins now. Before that, nobody can sign in."""
        self._places = self.ourselves.places = places
        self.vault.document = places.document

    def _page(self, link: str) -> str:
        return f"{self._base()}{self._places.link}{link}"

    def _fits(self, auth: ServerAuth, grant: Grant) -> bool:
        return fits(auth, grant, self._places.document)

    async def sign_in(
        self, credential: UpstreamCredential, found: Discovered, scopes: tuple[str, ...], steps: int
    ) -> Fault:
        """The fault that asks a user for a sign-in; it is offered as long as it is good. Raises another `Fault` where
        none is possible."""
        server, authority = credential.server, found.authority
        if "S256" not in authority.code_challenge_methods_supported:
            raise failed(server, f"cannot complete sign-in: {authority.issuer} does not support PKCE with S256")
        if not authority.authorization_endpoint:
            raise failed(server, f"cannot complete sign-in: {authority.issuer} has no authorization endpoint")
        link = self._still_offered(credential, authority, scopes)
        if not link:
            self._check_pace(credential)
            client = await self.ourselves.at(server, credential.auth, authority)
            redirect_uri = self.ourselves.redirect_uri(server, client.issuer if client.is_own else "")
            self._warn_of_mix_ups(server, client, authority)
            plan = credential.plan(found, client, scopes, steps)
            link = secrets.token_urlsafe(32)
            expires = self.clock.wall() + SIGN_IN_LASTS
            offered = SignIn(plan, server.name, authority, redirect_uri, expires, secrets.token_urlsafe(32))
            await self.vault.offer(link, offered)
            key = server.id, credential.principal
            offers = (*self._offered.pop(key, ()), (link, scopes))
            _put_last(self._offered, key, offers[-MOST_OFFERS:])
            for replaced, _ in offers[:-MOST_OFFERS]:
                await self.vault.withdraw(replaced)
        return asked_to_sign_in(server, credential.auth, self._page(link), link)

    def _still_offered(self, credential: UpstreamCredential, authority: Authority, scopes: tuple[str, ...]) -> str:
        for link, for_scopes in reversed(self._offered.get((credential.server.id, credential.principal), ())):
            sign_in = self.vault.sign_in(link) if for_scopes == scopes else None
            if (
                sign_in
                and sign_in.redirect_uri.startswith(self._base() + self._places.callback)
                and sign_in.plan.issuer == authority.issuer
                and self._fits(credential.auth, sign_in.plan)
                and sign_in.expires - self.clock.wall() > SIGN_IN_LASTS / 2
            ):
                return link
        return ""

    def _check_pace(self, credential: UpstreamCredential) -> None:
        """A server may want another sign-in each time, for other scopes or of another issuer: each is written, and may
        be registered for. Raises `Fault`."""
        key, now = (credential.server.id, credential.principal), self.clock.now()
        since, count = self._begun.pop(key, (now, 0))
        if now - since >= SIGN_IN_LASTS:
            since, count = now, 0
        _put_last(self._begun, key, (since, count + 1))
        if count >= MOST_BEGUN:
            server, wait = credential.server, since + SIGN_IN_LASTS - now
            what = f"requires a new sign-in each time: after {MOST_BEGUN}, the next one is possible in {wait:.0f} s"
            raise Fault("SIGN_IN_REQUIRED", f"{server.name} {what}", server=server.id, reach="not_sent")

    def _warn_of_mix_ups(self, server: Server, client: Registration, authority: Authority) -> None:
        place = server.id, authority.issuer
        if client.is_own or authority.authorization_response_iss_parameter_supported or place in self._warned:
            return
        if len(self._warned) < MOST_WARNED:
            self._warned.add(place)
        log.warning(
            "%s: %s does not send its issuer in its answers (RFC 9207), and `auth.client_id` has one redirect URI: "
            "another such authorization server could obtain a code from this one",
            server.name,
            authority.issuer,
        )

    async def forget(self, server: Server, principal: str) -> bool:
        """Forget what a principal was granted; whether there was anything."""
        return await self.vault.forget(server, _whose(server, principal))

    def link(self, server: str, principal: str) -> str:
        """The page of the sign-in that is offered now; empty where none is."""
        offers = self._offered.get((server, _whose(self._servers.get(server), principal)), ())
        return self._page(offers[-1][0]) if offers and self.vault.sign_in(offers[-1][0]) else ""

    async def settled(self, server: str, principal: str, seconds: float) -> None:
        """Return when a principal has signed in at a server where it was asked to, or after so many seconds. It may be
        another process where the sign-in ends."""
        configured = self._servers.get(server)
        principal = _whose(configured, principal)
        offered = self._offered.get((server, principal))
        before = self.vault.read_again(configured, principal) if configured else None
        until = self.clock.now() + seconds
        while configured and offered and self._offered.get((server, principal)) == offered:
            if self.clock.now() >= until or self.vault.read_again(configured, principal) != before:
                return
            await self.clock.sleep(LOOK)

    def find(self, id: str) -> Offered | None:
        """One that is not begun yet, by the id of its link."""
        found = self.vault.sign_in(id)
        if not found or found.verifier:
            return None
        plan = found.plan
        return Offered(
            server=found.server_name,
            host=_host(plan.url),
            authority=plan.issuer,
            leads_to=_host(found.authority.authorization_endpoint),
            client=plan.principal,
            scopes=plan.asked,
            confirm=found.confirm,
        )

    async def begin(self, id: str, confirm: str) -> Begun | None:
        """Begin it, once. None where there is none, or the form was not that of its page."""
        found = self.vault.sign_in(id)
        if not found or found.verifier or not hmac.compare_digest(found.confirm.encode(), confirm.encode()):
            return None
        found = await self.vault.use_up(id)
        if not found:
            return None
        verifier, state, cookie = secrets.token_urlsafe(48), secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        await self.vault.offer(
            state, msgspec.structs.replace(found, verifier=verifier, cookie=hashed(cookie), confirm="")
        )
        return Begun(authorize(found, state, verifier), state, cookie)

    async def finish(self, answer: Mapping[str, str], cookie: str, path: str) -> str:
        """What the authorization server's answer comes to: the server's name. `path` is where it came. Raises
        `Fault`."""
        state = answer.get("state", "")
        found = self.vault.sign_in(state) if state else None
        if not found or not found.verifier:
            raise Fault("INVALID_STATE", "This sign-in is unknown or has expired", reach="not_sent")
        if not hmac.compare_digest(found.cookie.encode(), hashed(cookie).encode()):
            raise Fault("INVALID_STATE", "This sign-in was started in another browser", reach="not_sent")
        found = await self.vault.use_up(state)
        if not found:
            raise Fault("INVALID_STATE", "This sign-in has already ended", reach="not_sent")
        check_issuer(found, answer, path)
        if "error" in answer or not answer.get("code"):
            said = error_word(answer.get("error", ""))
            raise Fault("ACCESS_DENIED", f"{found.plan.issuer} did not sign you in: {said or 'it sent no code'}")
        server = self._server_of(found)
        await self._take(server, found, answer["code"])
        return found.server_name

    def _server_of(self, found: SignIn) -> Server:
        server = self._servers.get(found.plan.server)
        if not server or server.url != found.plan.url or not server.auth or not self._fits(server.auth, found.plan):
            raise Fault("SERVER_NOT_FOUND", f"{found.server_name} was reconfigured in the meantime", reach="not_sent")
        return server

    async def _take(self, server: Server, found: SignIn, code: str) -> None:
        """The code for a grant, which is kept. Raises `Fault`."""
        try:
            grant = await self.grants.by_code(
                server, found.authority, found.plan, code, found.verifier, found.redirect_uri
            )
        except NotGranted as no:
            await self.ourselves.forget_if_unknown(found.plan.client, no.error, found.redirect_uri)
            raise failed(
                server, f"cannot complete sign-in: {found.plan.issuer} answered: {no or 'no reason given'}"
            ) from None
        await self.vault.keep(grant)
        self._offered.pop((server.id, grant.principal), None)
        self.works(server.id, grant.principal)
        self._on_grant(server.id, grant.principal)

    def prepared(self, config: Config) -> Swap:
        """Sign-ins that were offered by another process are for a server of this configuration."""
        return sets(
            self,
            _servers={server.id: server for server in config.servers if server.enabled and server.auth},
            _written=[server for server in config.servers if server.enabled],
        )

    def document(self) -> bytes | None:
        """Who the gateway is to authorization servers that fetch it; None where they could not."""
        return self.ourselves.document()

    # How credentials are.

    def works(self, server: str, principal: str) -> None:
        self._failing.pop((server, principal), None)

    def fails(self, server: str, principal: str, why: str) -> None:
        since, _ = self._failing.pop((server, principal), (self.clock.wall(), ""))
        _put_last(self._failing, (server, principal), (since, why))

    def credentials(self) -> Sequence[CredentialState]:
        """How all are that end or fail, those of clients too."""
        written, made = credential_states.of_servers(self._written), credential_states.of_keys(self._store)
        return list(islice(chain(self._states(), written, made), credential_states.MOST))

    def _states(self) -> Iterator[CredentialState]:
        """Of what was granted and used since the gateway runs, or is its own; and of what fails."""
        for server in self._servers.values():
            if not _whose(server, "somebody"):
                self.vault.grant(server, "")
        left = dict(self._failing)
        for grant in self.vault.known():
            server = self._servers.get(grant.server)
            if server and server.auth and server.url == grant.url:
                yield self._state(server.auth, grant, *left.pop((grant.server, grant.principal), (None, "")))
        for (id, principal), (since, why) in left.items():
            if (server := self._servers.get(id)) and server.auth:
                yield CredentialState(_kind(server.auth), id, principal, failing_since=since, problem=why)

    def _state(self, auth: ServerAuth, grant: Grant, since: float | None, why: str) -> CredentialState:
        renews = bool(grant.refresh) or auth.grant == "client_credentials"
        return CredentialState(_kind(auth), grant.server, grant.principal, grant.expires, renews, since, why)

    @property
    def is_secure(self) -> bool:
        """Whether browsers come by https."""
        return self._base().startswith("https:")


class UpstreamCredential:
    """What one server is shown for one principal, empty for the gateway's own."""

    def __init__(self, oauth: OAuth, server: Server, auth: ServerAuth, principal: str) -> None:
        self.server = server
        self.auth = auth
        self.principal = principal
        self._oauth = oauth
        self._vault = oauth.vault

    async def shown(self) -> str:
        """The value of `Authorization`; empty where nothing is known yet. Raises `Fault`."""
        grant = self._vault.grant(self.server, self.principal)
        if not grant:
            return ""
        if grant.expires is None or grant.expires - LEEWAY > self._oauth.clock.wall():
            return grant.shown
        return await self._once("renew", grant.token, work=lambda: self._renewed_early(grant))

    async def refused(self, refusal: Refusal) -> str:
        """Another value to try. Raises `Fault`: SIGN_IN_REQUIRED where a person has to do something about it."""
        kind = (*self._key, "refused")
        key = (*kind, str(refusal.status), refusal.challenge, refusal.shown)
        try:
            shown = await self._oauth.in_turn(kind, key, lambda: self._answered(refusal))
            self._oauth.works(self.server.id, self.principal)
            return shown
        except (Fault, NotKept) as error:
            said = f"cannot complete sign-in, since the gateway cannot store it: {error}"
            fault = error if isinstance(error, Fault) else failed(self.server, said)
            self._note(fault, refusal)
            raise fault from None
        except Full:
            raise failed(self.server, "refuses each request in a different way, so no sign-in is possible") from None

    def _note(self, fault: Fault, refusal: Refusal) -> None:
        """It fails: not where it is a first sign-in that is asked for, or one for more than was granted."""
        if refusal.status != 401:
            return
        if fault.code != "SIGN_IN_REQUIRED":
            self._oauth.fails(self.server.id, self.principal, fault.message)
        elif refusal.shown:
            self._oauth.fails(self.server.id, self.principal, "it is not accepted any more: sign in again")

    def _once(self, *what: str, work: Callable[[], Coroutine[Any, Any, str]]) -> Awaitable[str]:
        return self._oauth.once((*self._key, *what), work)

    @property
    def _key(self) -> tuple[str, ...]:
        """As this credential has its `auth`: another configuration has another."""
        return self.server.id, self.server.url, self.auth.issuer, self.auth.client_id, self.principal

    async def _renewed_early(self, grant: Grant) -> str:
        """A token near its end renewed. Where that cannot be done the old one is shown: the server will say."""
        if self.auth.grant == "client_credentials" or not grant.refresh:
            return grant.shown
        try:
            shown = await self._renewed(grant)
            self._oauth.works(self.server.id, self.principal)
            return shown
        except (NotGranted, Fault) as error:
            log.info("cannot renew a token for %s: %s", self.server.name, error)
            self._oauth.fails(self.server.id, self.principal, f"cannot be renewed: {error}")
            left = self._vault.read_again(self.server, self.principal)
            return left.shown if left else ""

    async def _renewed(self, grant: Grant) -> str:
        """The token after this one, asked for once by whoever comes first. Raises `NotGranted`, `Fault`."""
        return await self._once("exchange", grant.refresh, work=lambda: self._exchanged(grant))

    async def _exchanged(self, grant: Grant) -> str:
        """By one gateway of this store at a time: what renews a grant is often good once, and an authority to which it
        is shown twice may take all of it back (RFC 9700 4.14)."""
        authority = await self._oauth.discovery.authority(self.server, grant.issuer)
        holder, until = secrets.token_bytes(16), self._oauth.clock.now() + MOST_LEASES * LEASE
        while not await self._vault.lease(grant, holder):
            if other := self._after(grant):
                return other.shown
            if self._oauth.clock.now() >= until:
                raise failed(self.server, "cannot complete sign-in: another gateway is still renewing the token")
            await self._oauth.clock.sleep(LOOK)
        try:
            if other := self._after(grant):
                return other.shown
            renewed = await self._oauth.grants.renewed(self.server, authority, grant)
            if await self._vault.renew(grant, renewed):
                return renewed.shown
            if other := self._after(grant):
                return other.shown
            raise NotGranted("", "it was forgotten meanwhile")
        finally:
            await self._vault.give_back(grant, holder)

    def _after(self, grant: Grant) -> Grant | None:
        """What another gateway of this store was given in its place."""
        other = self._vault.read_again(self.server, self.principal)
        return other if other and other.token != grant.token and other.kept >= grant.kept else None

    async def _answered(self, refusal: Refusal) -> str:
        """Another token to show. Raises `Fault`."""
        wants = challenge.read(refusal.challenge)
        grant = self._vault.read_again(self.server, self.principal)
        if grant and grant.shown != refusal.shown:
            return grant.shown  # there is another by now
        found = await self._oauth.discovery.find(
            self.server, self.auth, wants.resource_metadata, grant.issuer if grant else ""
        )
        if grant and grant.issuer != found.authority.issuer:
            await self._vault.drop(grant)
            grant = None
        if refusal.status == 401 and grant and grant.refresh:
            try:
                return await self._renewed(grant)
            except NotGranted as no:
                log.info("cannot renew a token for %s: %s", self.server.name, no)
        scopes = self._scopes(found, wants, grant)
        if refusal.status == 403:
            self._check_step(grant, scopes, wants)
        if self.auth.grant == "client_credentials":
            return await self._by_own(found, scopes)
        is_no_wider = refusal.status == 403 and grant and set(scopes) <= set(grant.asked)
        raise await self._oauth.sign_in(self, found, scopes, grant.steps + 1 if grant and is_no_wider else 0)

    def plan(self, found: Discovered, client: Registration, scopes: tuple[str, ...], steps: int = 0) -> Grant:
        """A grant as it will be, without its token."""
        return Grant(
            principal=self.principal,
            server=self.server.id,
            url=self.server.url,
            issuer=found.authority.issuer,
            resource=found.resource.resource,
            client=client,
            token="",
            asked=scopes,
            steps=steps,
        )

    def _scopes(self, found: Discovered, wants: Challenge, grant: Grant | None) -> tuple[str, ...]:
        """Those to ask for: what the operation needs, or all that the server knows; and what was asked for before."""
        known = () if grant else challenge.usable(found.resource.scopes_supported or ())
        first = known if wants.scopes is None else wants.scopes
        wanted = united(grant.asked if grant else (), self.auth.scopes, first)
        is_a_user = self.auth.grant == "authorization_code"
        if wanted and is_a_user and OFFLINE in found.authority.scopes_supported:
            return united(wanted, (OFFLINE,))
        return wanted

    def _check_step(self, grant: Grant | None, scopes: tuple[str, ...], wants: Challenge) -> None:
        """Raises `Fault` where asking again cannot help."""
        if (
            grant
            and set(scopes) <= set(grant.asked)
            and (grant.covers(wants.scopes or ()) or grant.steps >= MOST_STEPS)
        ):
            named = " ".join(wants.scopes or ()) or "more"
            raise Fault(
                "UPSTREAM_ERROR",
                f"{self.server.name} still requires {named} after a sign-in that requested it",
                server=self.server.id,
                reach="not_sent",
            )

    async def _by_own(self, found: Discovered, scopes: tuple[str, ...]) -> str:
        """By the gateway's own credentials."""
        client = await self._oauth.ourselves.at(self.server, self.auth, found.authority)
        plan = self.plan(found, client, scopes)
        try:
            grant = await self._oauth.grants.by_own(self.server, found.authority, plan)
        except NotGranted as no:
            hint = "check `client_id` and its secret or key in the server's `auth`"
            raise failed(
                self.server, f"cannot complete sign-in: {plan.issuer} answered: {no or 'no reason given'}", hint
            ) from None
        await self._vault.keep(grant)
        return grant.shown


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _put_last(table: dict[tuple[str, str], Value], key: tuple[str, str], value: Value) -> None:
    """Beyond `MOST_OFFERED` the first gives way."""
    table[key] = value
    while len(table) > MOST_OFFERED:
        del table[next(iter(table))]


def _kind(auth: ServerAuth) -> str:
    return "client_credentials" if auth.grant == "client_credentials" else "sign-in"


def _whose(server: Server | None, principal: str) -> str:
    """Whose grants a principal uses at a server: its own, or those of the gateway."""
    auth = server and server.auth
    return "" if auth and (auth.shared or auth.grant == "client_credentials") else principal
