"""What servers are shown, and the sign-ins that are under way, as other packages see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from toolgate.config import Server


class Refusal(msgspec.Struct, frozen=True):
    """How a server refused a request for what it was shown: the HTTP status, its `WWW-Authenticate`, and the value of
    `Authorization` that it had been shown, empty for none."""

    status: int
    challenge: str = ""
    shown: str = ""


class UpstreamCredential(Protocol):
    """What one server is shown on one connection."""

    async def shown(self) -> str:
        """The value of `Authorization`; empty where nothing is known yet. Raises `Fault`."""
        ...

    async def refused(self, refusal: Refusal) -> str:
        """Another value to try. Raises `Fault`: SIGN_IN_REQUIRED where a person has to do something about it."""
        ...


class Credentials(Protocol):
    """How the gateway shows servers who it is, where their configuration has `auth`."""

    def credential(self, server: Server, principal: str) -> UpstreamCredential:
        """For connections to a server that serve one principal."""
        ...

    async def settled(self, server: str, principal: str, seconds: float) -> None:
        """Return when a principal has signed in at a server where it was asked to, or after so many seconds."""
        ...


class Offered(msgspec.Struct, frozen=True):
    """A sign-in as its page shows it: at which server, whose host and authorization server these are, for which
    principal. `confirm` is what comes back with the page's form."""

    server: str
    host: str
    authority: str
    client: str
    scopes: tuple[str, ...]
    confirm: str


class Begun(msgspec.Struct, frozen=True):
    """Where a browser goes to sign in, and what it must hold when it is back."""

    url: str
    cookie: str


class Places(msgspec.Struct, frozen=True):
    """Where the pages for sign-ins are, as paths: that of a link ends before its id. `callback` is where browsers come
    back, `document` what authorization servers fetch of us."""

    link: str
    callback: str
    document: str


NOWHERE = Places("", "", "")


class SignIns(Protocol):
    """The sign-ins that are under way, as the pages for them need it."""

    def served_at(self, places: Places, /) -> None:
        """There are such pages now. Before that, nobody can sign in."""
        ...

    def find(self, id: str, /) -> Offered | None:
        """One that is not begun yet, by the id of its link."""
        ...

    async def begin(self, id: str, confirm: str, /) -> Begun | None:
        """Begin it, once. None where there is none, or the form was not that of its page."""
        ...

    async def finish(self, answer: Mapping[str, str], cookie: str, path: str, /) -> str:
        """What the authorization server's answer comes to: the server's name. `path` is where it came. Raises
        `Fault`."""
        ...

    def document(self) -> bytes | None:
        """Who the gateway is to authorization servers that fetch it; None where they could not."""
        ...

    @property
    def is_secure(self) -> bool:
        """Whether browsers come by https."""
        ...
