"""The values of OAuth: what servers and authorization servers say of themselves, the gateway as a client, what was
granted, and sign-ins; the rest of the package makes, keeps and shows them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from toolgate.config import Server, ServerAuth
from toolgate.core.fault import Fault

# What others may name has a length: it is kept, shown, and sent. Metadata with more are none.
Url = Annotated[str, msgspec.Meta(max_length=2048)]
Word = Annotated[str, msgspec.Meta(max_length=256)]
Urls = Annotated[tuple[Url, ...], msgspec.Meta(max_length=64)]
Words = Annotated[tuple[Word, ...], msgspec.Meta(max_length=1024)]


class Refusal(msgspec.Struct, frozen=True):
    """How a server refused a request for what it was shown: the HTTP status, its `WWW-Authenticate`, and the value of
    `Authorization` that it had been shown, empty for none."""

    status: int
    challenge: str = ""
    shown: str = ""


class ProtectedResource(msgspec.Struct, frozen=True):
    """What a server says of itself. `scopes_supported` None: it does not say."""

    resource: Url
    authorization_servers: Urls = ()
    scopes_supported: Words | None = None


class Authority(msgspec.Struct, frozen=True):
    """What an authorization server says of itself, as far as it matters here."""

    issuer: Url
    token_endpoint: Url
    authorization_endpoint: Url = ""
    registration_endpoint: Url = ""
    scopes_supported: Words = ()
    code_challenge_methods_supported: Words = ()
    token_endpoint_auth_methods_supported: Words = ("client_secret_basic",)
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class Discovered(msgspec.Struct, frozen=True):
    """Both, of one server."""

    resource: ProtectedResource
    authority: Authority


class Registration(msgspec.Struct, frozen=True):
    """A client at one authorization server. `expires` in seconds since 1970; None: never."""

    issuer: str
    client_id: str
    secret: str = ""
    method: str = "none"
    expires: float | None = None
    is_own: bool = False  # registered by the gateway itself: it may register again

    def __repr__(self) -> str:
        return f"<Registration {self.client_id} at {self.issuer}>"


class Grant(msgspec.Struct, frozen=True):
    """What a principal was granted for a server. `scopes` are those that were granted, where that was said; `asked`
    those that were asked for; `expires` in seconds since 1970, None where that was not said; `kept`: when it was."""

    principal: str
    server: str
    url: str
    issuer: str
    resource: str
    client: Registration
    token: str
    refresh: str = ""
    expires: float | None = None
    scopes: tuple[str, ...] | None = None
    asked: tuple[str, ...] = ()
    kept: float = 0.0
    steps: int = 0  # sign-ins in a row that asked for no other scopes

    @property
    def shown(self) -> str:
        """The value of `Authorization`."""
        return f"Bearer {self.token}"

    def covers(self, scopes: tuple[str, ...]) -> bool:
        """Whether these were granted, as far as anybody has said."""
        return set(scopes) <= set(self.asked if self.scopes is None else self.scopes)

    def __repr__(self) -> str:
        return f"<Grant {self.principal} {self.server} {self.issuer}>"


class SignIn(msgspec.Struct, frozen=True):
    """A sign-in that its user has not begun yet, or (with `verifier` and `cookie`) has. `plan` is the grant that will
    come of it, without its token."""

    plan: Grant
    server_name: str
    authority: Authority
    redirect_uri: str
    expires: float  # seconds since 1970
    confirm: str = ""  # stands on the page, and comes back with its form
    verifier: str = ""
    cookie: str = ""  # hash of what the browser holds that has begun it

    def __repr__(self) -> str:
        return f"<SignIn {self.plan}>"


class Offered(msgspec.Struct, frozen=True):
    """A sign-in as its page shows it: at which server, whose host and authorization server (an issuer) these are, which
    host a browser is led to, for which principal. `confirm` is what comes back with the page's form."""

    server: str
    host: str
    authority: str
    leads_to: str
    client: str
    scopes: tuple[str, ...]
    confirm: str


class Begun(msgspec.Struct, frozen=True):
    """Where a browser goes to sign in, and what it must hold when it is back."""

    url: str
    state: str
    cookie: str


class Places(msgspec.Struct, frozen=True):
    """Where the pages for sign-ins are, as paths: that of a link ends before its id. `callback` is where browsers come
    back, `document` what authorization servers fetch of us."""

    link: str
    callback: str
    document: str


NOWHERE = Places("", "", "")


def fits(auth: ServerAuth, grant: Grant, document: str) -> bool:
    """Whether a grant is of the issuer and the client that the configuration names now, as far as it names any. A
    client that it names no more is not used either: then the gateway is a client by itself, or by its `document`,
    which is at this path; empty: there is none."""
    if auth.issuer and grant.issuer.rstrip("/") != auth.issuer.rstrip("/"):
        return False
    client = grant.client
    if not auth.client_id:
        return client.is_own or bool(document and client.client_id.endswith(document))
    # Not every authorization server takes the operator's document.
    return client.client_id == auth.client_id or (client.is_own and is_document(auth.client_id))


def is_document(client_id: str) -> bool:
    parts = urlsplit(client_id)
    return parts.scheme == "https" and len(parts.path) > 1


def failed(server: Server, what: str, hint: str = "") -> Fault:
    """The gateway cannot show this server who it is."""
    return Fault("SERVER_FAILED", f"{server.name} {what}", server=server.id, reach="not_sent", hint=hint)
