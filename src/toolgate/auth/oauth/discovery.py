"""Where a server's tokens come from: its own metadata (RFC 9728), and its authorization server's (RFC 8414, OIDC).

The rules this file keeps: a document speaks only for what it was asked about: the resource must be the server, the
issuer the one that was looked for, letter by letter; and everything is fetched from `SafeNet`, where only the host that
the operator has written may be a private one. Spec: 2026-07-28 basic/authorization/authorization-server-discovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from toolgate.auth.oauth.base import Authority, Discovered, ProtectedResource, failed
from toolgate.auth.safe_net import Fetched, SafeNet
from toolgate.config import Server, ServerAuth
from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock

KEPT = 300.0  # seconds for which an authorization server's metadata is good
MOST_KEPT = 64

_OF_RESOURCE = "/.well-known/oauth-protected-resource"
_OF_SERVER = "/.well-known/oauth-authorization-server"
_OF_OPENID = "/.well-known/openid-configuration"


# Of what authorization servers list, the words that are ever looked for: others are not kept, since a sign-in has this.
LOOKED_FOR = frozenset({"offline_access", "S256", "client_secret_basic", "client_secret_post", "none"})

Document = TypeVar("Document", ProtectedResource, Authority)


class Discovery:
    """Finds them, and remembers authorization servers for a while."""

    def __init__(self, outside: SafeNet, clock: Clock) -> None:
        self._outside = outside
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, Authority]] = {}

    async def find(self, server: Server, auth: ServerAuth, metadata: str, before: str = "") -> Discovered:
        """Where this server's tokens come from; `metadata` is the URL that it has named for that, if it has. `before`
        is the issuer of what we have already: of several it is preferred. Raises `Fault`."""
        resource = await self._resource(server, metadata)
        issuers = resource.authorization_servers
        if auth.issuer:
            issuer = next((each for each in issuers if each.rstrip("/") == auth.issuer.rstrip("/")), "")
            if issuers and not issuer:
                raise failed(server, f"requires tokens from {issuers[0]}, but `auth.issuer` is {auth.issuer}")
            issuer = issuer or auth.issuer
        else:
            issuer = before if before in issuers else issuers[0] if issuers else _origin(urlsplit(server.url))
        return Discovered(resource, await self.authority(server, issuer))

    async def authority(self, server: Server, issuer: str) -> Authority:
        """The metadata of an authorization server. Raises `Fault`."""
        found = self._known.get((server.id, issuer))
        if found and self._clock.now() - found[0] < KEPT:
            return found[1]
        authority = await self._authority(server, issuer)
        self._known[server.id, issuer] = self._clock.now(), authority
        while len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]
        return authority

    async def _resource(self, server: Server, named: str) -> ProtectedResource:
        """By its own word, or by that of a whole that it stands in (decision 27)."""
        here, origin = server.url, _origin(urlsplit(server.url))
        read: dict[str, ProtectedResource | None] = {}

        async def at(url: str) -> ProtectedResource | None:
            if url not in read:
                read[url] = _read(await self._fetch(url, server), ProtectedResource)
            return read[url]

        said = await at(named or _described_at(here)) or (None if named else await at(_described_at(origin)))
        if not said and named:
            raise failed(server, f"has no metadata at {named}, the URL that it gave")
        if not said:
            return ProtectedResource(here.partition("#")[0])  # of a revision without such metadata (2025-03-26)
        if _is_same(said.resource, here):
            return said
        if not _is_within(here, said.resource):
            raise failed(server, f"has metadata for another resource: {said.resource}")
        # What is narrow goes first; and for a whole only what stands at its own place speaks (RFC 9728 3.3).
        for resource in (here, said.resource):
            found = await at(_described_at(resource))
            if found and _is_same(found.resource, resource):
                return found
        raise failed(
            server, f"has metadata for {said.resource}, but that resource has none at {_described_at(said.resource)}"
        )

    async def _authority(self, server: Server, issuer: str) -> Authority:
        self._outside.check(issuer, _written(server))
        for url in _places(issuer):
            found = _read(await self._fetch(url, server), Authority)
            if found and found.issuer != issuer:
                raise failed(server, f"names the authorization server {issuer}, but its metadata is for {found.issuer}")
            if found:
                for endpoint in (found.token_endpoint, found.authorization_endpoint, found.registration_endpoint):
                    if endpoint:
                        self._outside.check(endpoint, _written(server))
                if not _is_sound(found.authorization_endpoint):
                    raise failed(server, f"is sent by {issuer} to a sign-in page with parameters of its own choice")
                return msgspec.structs.replace(
                    found,
                    scopes_supported=_looked_for(found.scopes_supported),
                    code_challenge_methods_supported=_looked_for(found.code_challenge_methods_supported),
                    token_endpoint_auth_methods_supported=_looked_for(found.token_endpoint_auth_methods_supported),
                )
        raise failed(server, f"names the authorization server {issuer}, which has no metadata")

    async def _fetch(self, url: str, server: Server) -> Fetched:
        return await self.fetch(url, server, headers={"MCP-Protocol-Version": mcp.LATEST["modern"].date})

    async def fetch(self, url: str, server: Server, headers: Mapping[str, str], body: bytes | None = None) -> Fetched:
        """From an authorization server of this server, or of its metadata; with a `body` a POST, which is not
        redirected. Raises `Fault`."""
        return await self._outside.fetch(
            url,
            "GET" if body is None else "POST",
            asker=f"auth of {server.id}",
            headers={"Accept": "application/json", **headers},
            body=body or b"",
            trusted=_written(server),
            follow=body is None,
        )


def _written(server: Server) -> tuple[str, ...]:
    """The URLs that may lead to private addresses since the operator has written them."""
    return (server.url, server.auth.issuer if server.auth else "") if server.by_operator else ()


def _places(issuer: str) -> tuple[str, ...]:
    """In the order of the specification."""
    parts = urlsplit(issuer)
    origin, path = _origin(parts), parts.path.rstrip("/")
    if not path:
        return origin + _OF_SERVER, origin + _OF_OPENID
    return origin + _OF_SERVER + path, origin + _OF_OPENID + path, origin + path + _OF_OPENID


def _origin(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _read(fetched: Fetched, kind: type[Document]) -> Document | None:
    """None for what is no such document."""
    if fetched.status != 200:
        return None
    try:
        return jsonrpc.read_given(fetched.body, kind)
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
        return None


def _looked_for(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(LOOKED_FOR.intersection(words))


def _described_at(resource: str) -> str:
    """Where the metadata of a resource stand (RFC 9728 3.1)."""
    parts = urlsplit(resource)
    return _origin(parts) + _OF_RESOURCE + parts.path.rstrip("/")


def _is_same(resource: str, url: str) -> bool:
    """But for a slash at the end of the path."""
    if not _is_within(url, resource):
        return False
    return urlsplit(resource).path.rstrip("/") == urlsplit(url).path.rstrip("/")


def _is_within(url: str, resource: str) -> bool:
    """Whether a resource is of the same origin, and its path leads to that of the server. A query of the server may be
    a setting, and need not be in the name."""
    try:
        whole, server = urlsplit(resource), urlsplit(url)
        same = (whole.scheme, whole.hostname, whole.port) == (server.scheme, server.hostname, server.port)
    except ValueError:
        return False
    path = whole.path.rstrip("/") + "/"
    is_plain = whole.query in ("", server.query) and not whole.fragment and "@" not in whole.netloc
    return same and is_plain and f"{server.path.rstrip('/')}/".startswith(path)


# What an authorization server's own address may not bring: ours stands behind it, and who reads the first goes by that.
_NAMES = """
response_type client_id redirect_uri state code_challenge code_challenge_method resource scope prompt
request request_uri response_mode nonce
"""
_OURS = frozenset(_NAMES.split())


def _is_sound(endpoint: str) -> bool:
    """Whether what is added to this address is what the browser's user is asked by (RFC 6749 3.1)."""
    parts = urlsplit(endpoint)
    names = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    return not parts.fragment and "#" not in endpoint and not names & _OURS
