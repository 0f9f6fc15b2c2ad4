"""Who the gateway is to an authorization server: registered beforehand, else by a document, else by itself.

The rules this file keeps: a client that the configuration names is shown to one issuer only, the first; no browser is
sent back to where others could listen; and by where it comes back it is known which issuer has sent it (RFC 9700
4.4.2): each at which the gateway registers itself has a place of its own, and one that takes our document names itself.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from toolgate.auth.oauth import registering
from toolgate.auth.oauth.base import NOWHERE, Authority, Registration, failed
from toolgate.auth.oauth.discovery import Discovery
from toolgate.auth.oauth.sign_in import hashed
from toolgate.auth.oauth.vault import GrantVault
from toolgate.auth.safe_net import LOOPBACK
from toolgate.config import Server, ServerAuth
from toolgate.core.fault import Fault


class Ourselves:
    """`base` is the URL that browsers reach the gateway by, empty where they cannot."""

    def __init__(self, vault: GrantVault, discovery: Discovery, base: Callable[[], str]) -> None:
        self._vault = vault
        self._discovery = discovery
        self._base = base
        self.places = NOWHERE

    async def at(self, server: Server, auth: ServerAuth, authority: Authority) -> Registration:
        """Registered beforehand, else by a document, else by itself. Raises `Fault`."""
        if found := registering.configured(auth, authority):
            bound = auth.issuer or await self._vault.bound_issuer(server, auth.client_id, authority.issuer)
            if bound.rstrip("/") != authority.issuer.rstrip("/"):
                what = f"requires tokens from {authority.issuer}, but its `auth.client_id` was registered at {bound}"
                raise failed(server, what, "register a client there, and set its `client_id` and `issuer`")
            return found
        base = self._base()
        # Any issuer could send a browser to another one in the name of our document, and take what comes back.
        names_itself = authority.authorization_response_iss_parameter_supported
        if found := registering.described(
            auth, authority, base + self.places.document if base and names_itself else ""
        ):
            return found
        redirect_uri = self.redirect_uri(server, authority.issuer)
        if found := self._vault.client(authority.issuer, redirect_uri):
            return found
        if not authority.registration_endpoint:
            what = f"cannot complete sign-in: {authority.issuer} has no dynamic client registration"
            raise failed(server, what, f"register a client there for {redirect_uri}, and set its `client_id` in `auth`")
        fetched = await self._discovery.fetch(
            authority.registration_endpoint,
            server,
            {"Content-Type": "application/json"},
            registering.request(authority, redirect_uri),
        )
        found = registering.read_registered(server, authority, fetched.status, fetched.body)
        await self._vault.keep_client(found, redirect_uri, server)
        return found

    def redirect_uri(self, server: Server, issuer: str = "") -> str:
        """Where browsers come back from an issuer at which the gateway has registered itself; without one, to a client
        that was made beforehand. Raises `Fault` where no browser could be sent back."""
        base = self._base()
        parts = urlsplit(base)
        if not base:
            raise Fault(
                "SIGN_IN_REQUIRED",
                f"{server.name} requires its user to sign in: run `toolgate connect {server.id}`",
                server=server.id,
                reach="not_sent",
            )
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            hint = "set `auth.audience` to the https URL by which browsers reach this gateway"
            raise failed(server, "cannot complete sign-in: browsers must not be redirected to plain http", hint)
        return base + self.places.callback + (f"/{hashed(issuer)[:32]}" if issuer else "")

    async def forget_if_unknown(self, client: Registration, error: str, redirect_uri: str) -> None:
        """An authorization server that has forgotten us, by its word `error`, is registered at anew."""
        if client.is_own and error in ("invalid_client", "unauthorized_client"):
            await self._vault.drop_client(client, redirect_uri)

    def document(self) -> bytes | None:
        """The client's metadata, for authorization servers that take their URL; None where they could not fetch it."""
        base = self._base()
        if not base.startswith("https:"):
            return None
        told = registering.metadata(base + self.places.callback, "none")
        return msgspec.json.encode({"client_id": base + self.places.document, **told})
