"""An authorization server in memory: its metadata, its keys, and tokens as it would sign them, or as others would."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from collections.abc import Iterable
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from toolgate.auth import authenticator
from toolgate.auth.safe_net import Fetched
from toolgate.config import Auth, Config, KnownClient
from toolgate.core.fault import Fault

Json = dict[str, Any]
ISSUER = "https://idp.example/realm"
AUDIENCE = "https://gate.example"
NOW = 1_800_001_000  # about: where the virtual clock begins
KEYS = {"ada": "ada-has-a-key-of-24-chars", "bob": "bob-has-a-key-of-24-chars", "carl": "carl-has-a-key-of-24-char"}
OFF = "off-but-has-a-key-of-24-c"


@functools.cache
def key(kind: str, name: str) -> Any:
    made = {"RSA": lambda: RSAKey.generate_key(2048), "EC": lambda: ECKey.generate_key("P-256")}
    found = made.get(kind, lambda: OKPKey.generate_key("Ed25519"))()
    return type(found).import_key(found.as_dict(private=True) | {"kid": name})


def public(made: Any, **more: Any) -> Json:
    return {**made.as_dict(private=False), "use": "sig", **more}


def encoded(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Issuer:
    """`fetched` are the URLs that were asked for; `answers` says what is there, instead of what it says itself."""

    def __init__(self, name: str = ISSUER) -> None:
        self.name = name
        self.fetched: list[str] = []
        self.is_there = True
        self.rsa, self.ec, self.okp = key("RSA", "r1"), key("EC", "e1"), key("OKP", "o1")
        self.keys = [public(self.rsa), public(self.ec), public(self.okp)]
        self.answers: dict[str, Any] = {}

    @property
    def looks(self) -> int:
        return sum(url.endswith("/jwks") for url in self.fetched)

    async def fetch(self, url: str, *_: Any, **__: Any) -> Fetched:
        self.fetched.append(url)
        if not self.is_there:
            raise Fault("UPSTREAM_ERROR", f"{url} cannot be fetched")
        host, _, path = self.name.removeprefix("https://").partition("/")
        told = {
            f"https://{host}/.well-known/oauth-authorization-server/{path}": {
                "issuer": self.name,
                "jwks_uri": f"{self.name}/jwks",
            },
            f"{self.name}/jwks": {"keys": self.keys},
        } | self.answers
        found = told.get(url)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        return Fetched(404 if found is None else 200, {}, body, url)

    # Tokens.

    def claims(self, **more: Any) -> Json:
        """`...` leaves a claim out."""
        usual = {"iss": self.name, "sub": "dora", "aud": f"{AUDIENCE}/mcp", "scope": "mcp"}
        usual |= {"iat": NOW, "nbf": NOW, "exp": NOW + 3600}
        return {name: value for name, value in (usual | more).items() if value is not ...}

    def token(self, header: Json | None = None, by: Any = None, **claims: Any) -> str:
        by = by or self.ec
        algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "Ed25519"}[by.key_type]
        head = {"alg": algorithm, "kid": by.kid, "typ": "at+jwt"} | (header or {})
        head = {name: value for name, value in head.items() if value is not ...}
        return self.by_hand(head, self.claims(**claims), by)

    def by_hand(self, head: Json, claims: Json, by: Any) -> str:
        """Signed rightly by what the key is for, whatever the header says."""
        algorithm = jws.JWSRegistry.algorithms[{"RSA": "RS256", "EC": "ES256", "OKP": "Ed25519"}[by.key_type]]
        content = f"{encoded(head)}.{encoded(claims)}"
        return f"{content}.{encoded(algorithm.sign(content.encode(), by))}"

    def unsigned(self, algorithm: str = "none", **claims: Any) -> str:
        return f"{encoded({'alg': algorithm, 'typ': 'at+jwt'})}.{encoded(self.claims(**claims))}."

    def by_secret(self, secret: bytes, algorithm: str = "HS256", **header: Any) -> str:
        """Signed with what everybody knows, as if it were a secret."""
        content = f"{encoded({'alg': algorithm, 'typ': 'at+jwt', **header})}.{encoded(self.claims())}"
        return f"{content}.{encoded(hmac.digest(secret, content.encode(), hashlib.sha256))}"


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Issuer:
    """What the gateway fetches, it fetches from this one."""
    found = Issuer()
    monkeypatch.setattr(authenticator, "SafeNet", lambda _allowed, own: found)
    return found


def client(id: str, **more: Any) -> KnownClient:
    given: Json = {"name": id, "servers": "all"}
    return KnownClient(id=id, **(given | more))


def clients() -> Iterable[KnownClient]:
    yield client("ada", key=KEYS["ada"])
    yield client("bob", key="sha256:" + hashlib.sha256(KEYS["bob"].encode()).hexdigest())
    yield client("carl", key=KEYS["carl"], admin=True)
    yield client("off", key=OFF, enabled=False)
    yield client("dora", claims={"sub": "dora"})
    yield client("erin", claims={"groups": "staff"}, admin=True)
    yield client("gone", claims={"sub": "gone"}, enabled=False)
    yield client("made")


AUTH = Auth(ISSUER, AUDIENCE, ("mcp",), {"there__delete*": ("write",), "there__odd": ("odd", "write")})
CONFIG = Config(clients=tuple(clients()), auth=AUTH)


def bearer(shown: str) -> dict[str, str]:
    return {"authorization": f"Bearer {shown}"}
