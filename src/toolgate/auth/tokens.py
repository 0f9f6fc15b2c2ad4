"""Tokens of the configured issuer: JWTs whose signature, issuer, time and kind are checked (RFC 9068, RFC 8725).

The rules this file keeps: which algorithms are good is said here and not by the token, and each goes with its kind of
key only; a token that lacks what is checked is no token; and what was found good holds until its time is over or its
issuer has that key no more, wherever it is asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from toolgate.auth.issuer import Issuer, PublicKey
from toolgate.core import jsonrpc, plain
from toolgate.core.clock import Clock

ALGORITHMS: Mapping[str, str] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
}
TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})  # of access tokens; an issuer may not say
SKEW = 30.0  # seconds by which clocks may differ
LONGEST = 16 * 1024  # characters
LONGEST_HEADER = 8 * 1024
MOST_TRIED = 8  # keys of an issuer, for a token that names none
KEPT = 4096  # tokens that somebody was let in by


class BadToken(Exception):
    """`str()` says what is wrong, in words that its bearer may see."""


class Verified(msgspec.Struct, frozen=True):
    """What a good token says. Times in seconds since 1970."""

    subject: str
    audience: tuple[str, ...]
    expires: float
    scopes: frozenset[str]
    claims: Mapping[str, Any]
    digest: bytes
    signed_by: tuple[str | None, str, str]  # the print of the key

    @property
    def name(self) -> str:
        """To know it again by."""
        return f"token:{self.digest.hex()}"


class Tokens:
    def __init__(self, issuer: Issuer, clock: Clock) -> None:
        self.issuer = issuer
        self._clock = clock
        self._good: dict[bytes, Verified] = {}
        self._by_subject: dict[str, dict[bytes, None]] = {}  # their digests

    async def verify(self, token: str, address: str = "") -> Verified:
        """`address` is where it was shown. Raises `BadToken`; `issuer.Unreachable` where its issuer's keys are not to
        be had. What a token of a stranger costs is a signature for each of `MOST_TRIED` keys at most, and is read
        once."""
        if len(token) > LONGEST:
            raise BadToken("the token is too long")
        digest = hashlib.sha256(token.encode()).digest()
        if known := self._known(digest):
            return known
        header = _header(token)
        keys = [key for key in await self.issuer.keys(header.kid, address) if _fits(key, header.alg)]
        if not keys:
            raise BadToken("the token's key is unknown to its issuer")
        if len(keys) > MOST_TRIED:
            raise BadToken("the token does not name its key, and its issuer has too many")
        claims, key = _claims(token, header.alg, keys)
        return self._read(claims, digest, key)

    def keep(self, verified: Verified) -> None:
        """Somebody was let in by it. Of more than `KEPT`, the oldest of whoever has most gives way."""
        if verified.digest in self._good:
            return
        self._good[verified.digest] = verified
        self._by_subject.setdefault(verified.subject, {})[verified.digest] = None
        if len(self._good) > KEPT:
            self._drop(next(iter(max(self._by_subject.values(), key=len))))

    def find(self, name: str) -> Verified | None:
        """One that somebody was let in by of late, by its name, and whose key is still its issuer's."""
        found = self._good.get(bytes.fromhex(name.removeprefix("token:")))
        return found if found and self.issuer.holds(found.signed_by) else None

    @property
    def has_any(self) -> bool:
        return bool(self._good)

    def _known(self, digest: bytes) -> Verified | None:
        known = self._good.get(digest)
        if known and (not self.issuer.holds(known.signed_by) or self._clock.wall() >= known.expires + SKEW):
            self._drop(digest)
            return None
        return known

    def _drop(self, digest: bytes) -> None:
        subject = self._good.pop(digest).subject
        del self._by_subject[subject][digest]
        if not self._by_subject[subject]:
            del self._by_subject[subject]

    def _read(self, claims: Mapping[str, Any], digest: bytes, key: PublicKey) -> Verified:
        now = self._clock.wall()
        if claims.get("iss") not in (self.issuer.exact, self.issuer.name):
            raise BadToken("the token is from another issuer")
        expires = _time(claims, "exp")
        if expires is None:
            raise BadToken("the token has no expiry")
        if now >= expires + SKEW:
            raise BadToken("the token has expired")
        if any((_time(claims, name) or 0.0) > now + SKEW for name in ("nbf", "iat")):
            raise BadToken("the token is not valid yet")
        if "cnf" in claims:
            raise BadToken("the token is bound to a client key, which is not supported")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise BadToken("the token has no subject")
        if _control.search(subject):  # it is written into lines, and names of several are told apart by those
            raise BadToken("the subject of the token has control characters")
        return Verified(
            subject,
            _texts(claims.get("aud")),
            expires,
            _scopes(claims),
            claims,
            digest,
            key.print,
        )


_control = re.compile(r"[\x00-\x1f\x7f]")


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    typ: str = ""
    crit: msgspec.Raw = jsonrpc.NOTHING
    b64: bool = True


def _header(token: str) -> _Header:
    parts = token.split(".")
    if len(parts) != 3 or not all(parts[:2]) or len(parts[0]) > LONGEST_HEADER:
        raise BadToken("not a valid token")
    try:
        header = msgspec.json.decode(_decoded(parts[0]), type=_Header)
    except (ValueError, *jsonrpc.UNREADABLE):
        raise BadToken("not a valid token") from None
    if header.alg not in ALGORITHMS:
        raise BadToken("the token's signature algorithm is not accepted")
    if header.typ.lower() not in TYPES or jsonrpc.given(header.crit) or not header.b64:
        raise BadToken("the token is not an access token")
    return header


def _decoded(part: str) -> bytes:
    """Base64url in its one spelling (RFC 7515, section 2): another would make two tokens of one. Raises
    `ValueError`."""
    from base64 import urlsafe_b64decode, urlsafe_b64encode

    decoded = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if urlsafe_b64encode(decoded).rstrip(b"=") != part.encode():
        raise ValueError
    return decoded


def _fits(key: PublicKey, algorithm: str) -> bool:
    return ALGORITHMS[algorithm] == key.kind and key.algorithm in ("", algorithm)


def _claims(token: str, algorithm: str, keys: Sequence[PublicKey]) -> tuple[dict[str, Any], PublicKey]:
    """What it says, and the key that has signed it."""
    content, _, signature = token.rpartition(".")
    try:
        signed = content.encode(), _decoded(signature)
        payload = _decoded(content.partition(".")[2])
    except ValueError:
        raise BadToken("not a valid token") from None
    key = next((key for key in keys if _has_signed(key, algorithm, *signed)), None)
    if not key:
        raise BadToken("the token's signature is invalid")
    try:
        return plain.read(payload, dict[str, Any]), key
    except (ValueError, *jsonrpc.UNREADABLE):
        raise BadToken("the token's claims cannot be read") from None


def _has_signed(key: PublicKey, algorithm: str, content: bytes, signature: bytes) -> bool:
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    model = JWSRegistry.algorithms[algorithm]
    try:
        model.check_key(key.key)  # its kind and its curve
        return model.verify(content, signature, key.key)
    except (JoseError, ValueError):
        return False


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise BadToken(f"the token's {name} is not a valid time")
    return float(min(max(found, 0.0), 1e12))


def _texts(found: object) -> tuple[str, ...]:
    listed = cast("list[object]", found) if isinstance(found, list) else [found]
    return tuple(each for each in listed if isinstance(each, str))


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """As RFC 8693 has them, or in `scp`, as some issuers write them. A space alone parts them (RFC 6749, 3.3)."""
    found = claims.get("scope", claims.get("scp"))
    return frozenset(filter(None, found.split(" ")) if isinstance(found, str) else _texts(found))
