"""Who the gateway is to an authorization server: a client that was registered beforehand, one that is described by a
document at a URL, or one that registers itself; and how it shows that it is that client.

The rules this file keeps: a registration belongs to the issuer that it was made with, and is shown to no other; of what
an authorization server answers nothing stands in an error but the word of the standard.
Spec: 2026-07-28 basic/authorization/client-registration; RFC 7591, RFC 7523.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, cast
from urllib.parse import quote, urlsplit

import msgspec

from toolgate.auth.oauth.base import Authority, Registration, Word, failed, is_document
from toolgate.auth.safe_net import LOOPBACK
from toolgate.config import Server, ServerAuth
from toolgate.core import jsonrpc
from toolgate.core.fault import Fault

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_LASTS = 60.0  # seconds
NAME = "toolgate"
GRANT_TYPES = ("authorization_code", "refresh_token")
_METHODS = ("client_secret_basic", "client_secret_post", "none")  # the first that an authorization server knows


class Described(msgspec.Struct, frozen=True):
    """What an authorization server answers to a registration."""

    client_id: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    client_secret: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: Word = ""


class _Refused(msgspec.Struct):
    error: str = ""


def error_word(said: str) -> str:
    """The word that OAuth has for an error (RFC 6749 5.2, RFC 7591 3.2.2); empty for what is none."""
    return said if _error.fullmatch(said) else ""


_error = re.compile(r"[a-z][a-z_]{2,63}")


def configured(auth: ServerAuth, authority: Authority) -> Registration | None:
    """The client that the operator has registered; None where there is none, or only its document's URL."""
    if not auth.client_id or is_document(auth.client_id):
        return None
    if auth.private_key:
        return Registration(authority.issuer, auth.client_id, method="private_key_jwt")
    method = _first_known(authority, has_secret=True) if auth.client_secret else "none"
    return Registration(authority.issuer, auth.client_id, auth.client_secret, method)


def described(auth: ServerAuth, authority: Authority, document: str) -> Registration | None:
    """A client by the URL of its document: the operator's, or our own where we can be reached by https."""
    url = auth.client_id or document
    if not authority.client_id_metadata_document_supported or not is_document(url):
        return None
    if auth.private_key:
        return Registration(authority.issuer, url, method="private_key_jwt")
    return Registration(authority.issuer, url)


def metadata(redirect_uri: str, method: str) -> dict[str, Any]:
    """What we say of ourselves, in a registration and in a document."""
    is_native = urlsplit(redirect_uri).hostname in LOOPBACK
    return {
        "client_name": NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": list(GRANT_TYPES),
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native" if is_native else "web",
    }


def request(authority: Authority, redirect_uri: str) -> bytes:
    """The body of a registration."""
    return msgspec.json.encode(metadata(redirect_uri, _first_known(authority, has_secret=True)))


def read_registered(server: Server, authority: Authority, status: int, body: bytes) -> Registration:
    """Raises `Fault` where the authorization server does not register us."""
    try:
        found = jsonrpc.read_given(body, Described) if status in (200, 201) else None
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
        found = None
    if not found:
        try:
            word = error_word(jsonrpc.read_given(body, _Refused).error)
        except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
            word = ""
        said = f"HTTP {status}, {word}" if word else f"HTTP {status}"
        raise failed(
            server,
            f"cannot complete sign-in: {authority.issuer} refused to register a client: {said}",
            "register a client there by hand, and set its `client_id` in the server's `auth`",
        )
    method = found.token_endpoint_auth_method or _first_known(authority, has_secret=bool(found.client_secret))
    if method == "private_key_jwt" and not (server.auth and server.auth.private_key):
        raise failed(
            server,
            f"cannot complete sign-in: {authority.issuer} has registered a client that must sign with a private key",
            "register a client there by hand, and set its `client_id` and `private_key` in the server's `auth`",
        )
    return Registration(
        authority.issuer,
        found.client_id,
        found.client_secret,
        method if found.client_secret or method == "private_key_jwt" else "none",
        found.client_secret_expires_at or None,
        is_own=True,
    )


def _first_known(authority: Authority, has_secret: bool) -> str:
    known = authority.token_endpoint_auth_methods_supported
    usable = _METHODS if has_secret else ("none",)
    return next((method for method in usable if method in known), usable[0])


def identified(client: Registration, auth: ServerAuth, wall: float) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The headers and the parameters by which a token request shows who makes it. Raises `Fault` for a key that is
    none."""
    if client.method == "client_secret_basic":
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}, {}
    if client.method == "client_secret_post":
        return {}, {"client_id": client.client_id, "client_secret": client.secret}
    if client.method == "private_key_jwt":
        return {}, {
            "client_id": client.client_id,
            "client_assertion_type": ASSERTION,
            "client_assertion": _assertion(client, auth, wall),
        }
    return {}, {"client_id": client.client_id}


def _assertion(client: Registration, auth: ServerAuth, wall: float) -> str:
    from joserfc import jwt  # 60 ms that nobody pays who has no such key
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    kinds = {"ES256": "EC", "ES384": "EC", "RS256": "RSA", "PS256": "RSA", "EdDSA": "OKP"}
    claims = {
        "iss": client.client_id,
        "sub": client.client_id,
        "aud": client.issuer,
        "jti": secrets.token_urlsafe(16),
        "iat": int(wall),
        "exp": int(wall + ASSERTION_LASTS),
    }
    try:
        key = cast(Any, import_key(auth.private_key, cast(Any, kinds[auth.algorithm])))
        return jwt.encode({"alg": auth.algorithm}, claims, key, algorithms=[auth.algorithm])
    except (JoseError, ValueError, TypeError, KeyError) as error:
        message = f"`auth.private_key` is not a valid key for {auth.algorithm}: {type(error).__name__}"
        raise Fault("SERVER_FAILED", message, reach="not_sent") from None
