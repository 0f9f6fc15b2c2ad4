"""The authorization server whose tokens are taken, and its keys (RFC 8414, OIDC Discovery, RFC 7517).

The rules this file keeps: what names itself another issuer is not believed; keys are looked for anew when they are old,
and when a token names one that is not there, but not more often than every half minute, whoever asks; who shows a
token meanwhile waits for that same look, as far as there is room; while the issuer is not there, the keys that it had
hold for a day; and when a key holds no more, that is told at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

import msgspec

from toolgate.auth.safe_net import LOOPBACK, Fetched, SafeNet
from toolgate.core import jsonrpc
from toolgate.core.addresses import counted
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = logging.getLogger(__name__)

HOLDS = 3600.0  # seconds until keys are looked at again
AT_MOST = 24 * HOLDS  # seconds that they hold while the issuer is not there
PAUSE = 30.0  # seconds between two looks, at least
ROUND = 60.0  # seconds between looks whether they are old, which need no request
SAID_HOLDS = 300.0  # seconds
PAUSE_AFTER_FAILURE = 5.0
MOST_WAITING = 128  # for one look; half of them from one address
MOST_KEYS = 64
LONGEST_KEY = 2048  # characters of one of its members; RSA of 12,288 bits: each token is checked by it
_PUBLIC = frozenset({"kty", "kid", "n", "e", "crv", "x", "y"})


class _About(msgspec.Struct, frozen=True):
    """What a key says of itself. No secrets are among these kinds."""

    kty: Literal["RSA", "EC", "OKP"]
    kid: str | None = None
    use: str = "sig"
    alg: str = ""


class Unreachable(Exception):
    """The issuer's keys are not to be had. `str()` says why."""


class PublicKey(msgspec.Struct, frozen=True):
    """One key of the issuer. `algorithm` is the only one that it is for, empty where it does not say."""

    id: str | None
    kind: str
    algorithm: str
    key: Key

    @property
    def print(self) -> tuple[str | None, str, str]:
        """To know it again by."""
        return self.id, self.algorithm, self.key.thumbprint()


class Issuer:
    """`name` is as it is configured: without a slash at its end, which its own may have. `on_withdrawn` hears that some
    of the keys hold no more."""

    def __init__(
        self, name: str, outside: SafeNet, clock: Clock, on_withdrawn: Callable[[], object] = lambda: None
    ) -> None:
        self.name = name
        self.exact = name  # as it says itself
        self._outside = outside
        self._clock = clock
        self._keys: Sequence[PublicKey] = ()
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._problem = ""
        self._looking: asyncio.Task[None] | None = None
        self._waiting: Counter[str] = Counter()  # for it, by address
        self._on_withdrawn = on_withdrawn
        self._asking = asyncio.Lock()
        self._said: Mapping[str, Any] = {}
        self._said_at = self._asked_at = float("-inf")
        self._held: frozenset[tuple[str | None, str, str]] = frozenset()  # the prints of its keys

    async def keys(self, id: str | None, address: str = "") -> Sequence[PublicKey]:
        """Those that may have signed what names this key; all, where it names none. `address` is where that comes from.
        Raises `Unreachable`."""
        if self._is_wanting(id, self._clock.now()):
            await self._waited(self._begin(), address)
        elif self._looking and (not self._named(id) or self._is_stale):
            await self._waited(self._looking, address)
        if not self._keys or self._is_stale:
            raise Unreachable(self._problem or "it has not answered yet")
        return self._named(id)

    async def _waited(self, looking: asyncio.Task[None], address: str) -> None:
        address = counted(address)
        if self._waiting.total() >= MOST_WAITING or self._waiting[address] >= MOST_WAITING // 2:
            raise Unreachable("its keys are being fetched")
        self._waiting[address] += 1
        try:
            await asyncio.shield(looking)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    def holds(self, print: tuple[str | None, str, str]) -> bool:
        """Whether what was signed with this key may still be believed."""
        return print in self._held and not self._is_stale

    async def look_round(self) -> None:
        """Look at keys that are old, whether or not anybody comes with a token."""
        if self._clock.now() - self._fetched >= HOLDS and self._clock.now() - self._tried >= PAUSE:
            await asyncio.shield(self._begin())
        if self._held and self._is_stale:
            self._held = frozenset()
            self._on_withdrawn()

    @property
    def _is_stale(self) -> bool:
        return self._clock.now() - self._fetched > AT_MOST

    def _named(self, id: str | None) -> Sequence[PublicKey]:
        return [key for key in self._keys if id is None or key.id == id]

    def _is_wanting(self, id: str | None, now: float) -> bool:
        if now - self._tried < PAUSE:
            return False
        return now - self._fetched >= HOLDS or not self._named(id)

    def _begin(self) -> asyncio.Task[None]:
        """A look that goes on when those who wait have left, or the one that is under way."""
        if not self._looking:
            self._tried = self._clock.now()
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="fetch the issuer's keys")
            self._looking.add_done_callback(self._looked)
        return self._looking

    def _looked(self, looking: asyncio.Task[None]) -> None:
        self._looking = None
        if not looking.cancelled():
            looking.exception()  # seen, also where nobody waits any more

    async def _look(self) -> None:
        try:
            keys = read_keys(await self._fetch(await self._where()))
        except (Fault, Unreachable) as error:
            self._problem = str(error)
            log.warning("cannot fetch the keys of %s: %s", self.name, error)
            return
        before, self._held = self._held, frozenset(key.print for key in keys)
        self._keys, self._fetched, self._problem = keys, self._clock.now(), ""
        if before - self._held:
            self._on_withdrawn()

    async def metadata(self) -> Mapping[str, Any]:
        """What it says of itself. It is asked for every few minutes at most, whoever wants it. Raises `Unreachable`,
        `Fault`."""
        async with self._asking:
            if not self._said or self._clock.now() - self._said_at >= SAID_HOLDS:
                if self._clock.now() - self._asked_at < PAUSE_AFTER_FAILURE:
                    raise Unreachable("it did not answer a moment ago")
                self._asked_at = self._clock.now()
                self._said, self._said_at = await self._metadata(), self._clock.now()
                self._asked_at = float("-inf")
        return self._said

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Fetched:
        """What one of its endpoints answers. Redirects are not followed: secrets are in the request. Raises `Fault`."""
        return await self._outside.fetch(
            url, "POST", asker="auth.pages", headers=headers, body=body, trusted=(self.name,), follow=False
        )

    async def _where(self) -> str:
        """The URL of its keys."""
        found = (await self._metadata())["jwks_uri"]
        return str(found)

    async def _metadata(self) -> dict[str, Any]:
        told = "it has no metadata"
        for url in described_at(self.name):
            try:
                metadata = await self._fetch(url)
            except Unreachable as error:
                told = str(error)
                continue
            if str(metadata.get("issuer", "")).removesuffix("/") != self.name:
                raise Unreachable(f"{url} is the metadata of another issuer: {metadata.get('issuer')!r}")
            if not isinstance(metadata.get("jwks_uri"), str):
                raise Unreachable(f"{url} has no jwks_uri")
            self.exact = metadata["issuer"]
            return metadata
        raise Unreachable(told)

    async def _fetch(self, url: str) -> dict[str, Any]:
        try:
            parts = urlsplit(url)
            is_fine = parts.scheme == "https" or (parts.hostname or "") in LOOPBACK
        except ValueError:
            is_fine = False
        if not is_fine:
            raise Unreachable(f"{url} is not an https URL")
        fetched = await self._outside.fetch(
            url, asker="auth.issuer", headers={"Accept": "application/json"}, trusted=(self.name,)
        )
        return _read(fetched)


def described_at(issuer: str) -> tuple[str, ...]:
    """Where an issuer may say what it is, in the order in which it is asked (RFC 8414, section 3; OIDC Discovery)."""
    parts = urlsplit(issuer)
    host, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [
        f"{host}/.well-known/oauth-authorization-server{path}",
        f"{host}/.well-known/openid-configuration{path}",
        f"{host}{path}/.well-known/openid-configuration",
    ]
    return tuple(dict.fromkeys(places))


def read_keys(found: Mapping[str, Any]) -> list[PublicKey]:
    """Those of a key set that can check a signature; what is not understood is left out (RFC 7517, section 5)."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    listed = found.get("keys")
    keys: list[PublicKey] = []
    for each in cast("list[object]", listed)[:MOST_KEYS] if isinstance(listed, list) else ():
        try:
            about = msgspec.convert(each, _About)
            public = {name: value for name, value in cast("dict[str, Any]", each).items() if name in _PUBLIC}
            if about.use == "sig" and all(len(str(value)) <= LONGEST_KEY for value in public.values()):
                keys.append(PublicKey(about.kid, about.kty, about.alg, JWKRegistry.import_key(public)))
        except (msgspec.ValidationError, JoseError, ValueError, TypeError, KeyError) as error:
            log.debug("ignored a key of the issuer: %s", error)
    if not keys:
        raise Unreachable("its key set has no usable key")
    return keys


def _read(fetched: Fetched) -> dict[str, Any]:
    if fetched.status != 200:
        raise Unreachable(f"{fetched.url} answered HTTP {fetched.status}")
    try:
        return jsonrpc.read_given(fetched.body, dict[str, Any])
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
        raise Unreachable(f"{fetched.url} did not answer with a JSON object") from None
