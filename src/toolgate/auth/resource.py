"""What the gateway says of itself to who wants a token for it (RFC 9728), and how it asks for one.

The rules this file keeps: each endpoint path is a resource of its own, and a token for one is good for no other; and
what is said tells nobody which endpoints there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from toolgate.auth.refusals import challenge
from toolgate.config import Auth, Config

WELL_KNOWN = "/.well-known/oauth-protected-resource"
ENDPOINT = "/mcp"  # what is meant where no path is named


def reached_at(config: Config, port: int | None) -> str:
    """The URL that browsers reach the gateway by, without a path; empty where they cannot."""
    if port is None:
        return ""
    return config.auth.audience.rstrip("/") or config.http.url(config.http.host, port)


class Resource:
    """`auth` is as it is configured now."""

    def __init__(self, auth: Auth) -> None:
        self.auth = auth

    def identifier(self, path: str) -> str:
        """The URL of an endpoint: what the `aud` of a token for it must be."""
        return self.auth.audience + path

    def metadata(self, path: str, beside: Collection[str] = ()) -> dict[str, Any] | None:
        """What is at a well-known path; None where nothing is. `beside` are paths of pages that take tokens too."""
        endpoint = path.removeprefix(WELL_KNOWN).rstrip("/") or ENDPOINT
        below = tuple(f"{each}/" for each in (ENDPOINT, *beside))
        is_served = endpoint in (ENDPOINT, "/sse", *beside) or endpoint.startswith(below)
        if not self.auth.issuer or not is_served:
            return None
        said = {
            "resource": self.identifier(endpoint),
            "authorization_servers": [self.auth.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "toolgate",
        }
        return said | ({"scopes_supported": list(self.auth.scopes)} if self.auth.scopes else {})

    def challenge(self, path: str, error: str = "", description: str = "", scopes: Iterable[str] = ()) -> str:
        """`scopes` are all that the operation needs; else those that any needs."""
        if not self.auth.issuer:
            return challenge("", error, description)
        metadata = self.auth.audience + WELL_KNOWN + path
        return challenge(metadata, error, description, tuple(scopes) or self.auth.scopes)
