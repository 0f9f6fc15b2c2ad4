"""How a client is told that it is not let in, and what would let it in (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_unfit = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")  # for a text in quotes (RFC 6750, section 3)


class Unauthorized(Exception):
    """A client that does not show who it is, or is nobody that may come in, or not where it came in. `status` is that
    of HTTP, `challenge` the value of `WWW-Authenticate`, empty where none helps."""

    def __init__(self, message: str, challenge: str = "", status: int = 401) -> None:
        super().__init__(message)
        self.message = message
        self.challenge = challenge
        self.status = status


def is_over() -> Unauthorized:
    """For who was let in with what is good no longer."""
    return Unauthorized("The key or token is no longer valid", 'Bearer error="invalid_token"')


def has_moved() -> Unauthorized:
    """For who came in where another surface is now."""
    return Unauthorized("The surface of this client has changed: initialize again", status=404)


def challenge(metadata: str, error: str = "", description: str = "", scopes: Iterable[str] = ()) -> str:
    """The value of `WWW-Authenticate`. `metadata` is where an endpoint says what it is, if tokens are taken."""
    parameters = {
        "error": error,
        "error_description": description,
        "scope": " ".join(scopes),
        "resource_metadata": metadata,
    }
    said = [f'{name}="{_unfit.sub(" ", value)}"' for name, value in parameters.items() if value]
    return f"Bearer {', '.join(said) or _REALM}"


_REALM = 'realm="toolgate"'  # a challenge has one parameter at least
