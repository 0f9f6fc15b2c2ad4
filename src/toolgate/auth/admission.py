"""Who is let in: whoever comes, as the one user of this machine, or those whom the configuration knows.

The rules this file keeps: with the first client that is configured nobody comes in by the address alone any more, and
who did come in that way is known no longer; and what somebody has shown in vain is noted in the audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from toolgate.auth.access import OPERATOR
from toolgate.auth.authenticator import Authenticator
from toolgate.auth.page_sign_in import PageSignIn
from toolgate.auth.refusals import Unauthorized
from toolgate.config import Config
from toolgate.core.addresses import counted
from toolgate.core.model import Principal
from toolgate.core.services import Swap
from toolgate.state.audit import Trail

Headers = Mapping[str, str]


class Identify(Protocol):
    """Says who a client is, by its headers, its address, and the path that it wants. Raises `Unauthorized`."""

    async def __call__(self, headers: Headers, address: str, path: str, /) -> Principal: ...


class Admission:
    """The `Identify` of a configuration, which `use` takes another of."""

    def __init__(self, config: Config, authenticator: Authenticator, audit: Trail) -> None:
        self._is_open = config.is_open
        self._authenticator = authenticator
        self._audit = audit

    def prepared(self, config: Config) -> Swap:
        authenticate = self._authenticator.prepared(config)

        def swap() -> None:
            self._is_open = config.is_open
            authenticate()

        return swap

    async def __call__(self, headers: Headers, address: str, path: str, /) -> Principal:
        try:
            if self._is_open:
                return _local(headers, address)
            return await self._authenticator(headers, address, path)
        except Unauthorized as refused:
            if "authorization" in headers:  # who shows nothing learns what to show, and is no event
                said = {"decision": "deny", "reason": str(refused), "address": address, "path": path}
                self._audit.note_of_strangers("login", by=counted(address), kind=str(refused), **said)
            raise

    @property
    def page_sign_in(self) -> PageSignIn:
        return self._authenticator.page_sign_in

    def knows(self, principal: Principal) -> bool:
        """Whether who was let in once would be let in still."""
        if principal.client == OPERATOR:
            return True
        return not principal.via if self._is_open else self._authenticator.knows(principal)


def everybody(principal: Principal) -> bool:
    """What is known of who was let in by somebody else's judgement."""
    return True


def _local(headers: Headers, address: str) -> Principal:
    """Who a client is where none are configured: anybody may call. Nobody is an administrator by a network connection:
    all users of a machine reach its loopback, and nothing about a connection proves whose it is."""
    return _user(address, "origin" in headers)


@lru_cache(maxsize=1024)
def _user(address: str, is_page: bool) -> Principal:
    return Principal("local", address, is_here=not is_page and _is_loopback(address))


def _is_loopback(address: str) -> bool:
    """Whether a client's address is of this machine: 127.0.0.0/8, ::1, or the former as IPv6 writes it."""
    try:
        found = ip_address(address)
    except ValueError:  # of no network: a path, or nothing
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback
