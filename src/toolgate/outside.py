"""Fetching what somebody else has named: a server's authorization server, a registry, a key set.

The rule this file keeps: a URL that the operator has not written leads to public addresses only, at every hop, and
what was looked at is what is connected to: names are resolved once, and the connection goes to that very address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin, urlsplit

import msgspec

from toolgate.model import Fault

if TYPE_CHECKING:
    import httpcore2

LONGEST = 1024 * 1024  # bytes of an answer
PATIENCE = 10.0  # seconds for one
HOPS = 3


class Fetched(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # by names in small letters
    body: bytes
    url: str  # after redirects


class Outside:
    """`allowed` are hosts, addresses and networks that may be private (`guard.allow_hosts`)."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = tuple(allowed)

    async def fetch(
        self,
        url: str,
        method: str = "GET",
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        trusted: Iterable[str] = (),
        follow: bool = True,
    ) -> Fetched:
        """The answer, whatever its status. `trusted` are further hosts that may be private: those that the operator
        has written. Raises `Fault` UPSTREAM_ERROR where nothing answers, ACCESS_DENIED where the URL leads inside."""
        may = (*self.allowed, *trusted)
        for _ in range(HOPS + 1):
            fetched = await self._once(method, url, headers or {}, body, may)
            location = fetched.headers.get("location")
            if not follow or not location or fetched.status not in (301, 302, 303, 307, 308):
                return fetched
            url = urljoin(url, location)
        raise Fault("UPSTREAM_ERROR", f"{_shown(url)} leads from one place to the next without end", reach="not_sent")

    async def _once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, may: tuple[str, ...]
    ) -> Fetched:
        import httpcore2  # 80 ms that nobody pays who has no need of it

        check_scheme(url, may)
        timeouts = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), PATIENCE)}
        sent = [("Host", urlsplit(url).netloc.rpartition("@")[2]), *headers.items()]
        try:
            async with (
                asyncio.timeout(PATIENCE),
                httpcore2.AsyncConnectionPool(network_backend=_backend(may)) as pool,
                pool.stream(method, url, headers=sent, content=body or None, extensions=timeouts) as answer,
            ):
                chunks: list[bytes] = []
                size = 0
                async for chunk in answer.aiter_stream():
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > LONGEST:
                        raise Fault("UPSTREAM_ERROR", f"{_shown(url)} sends over {LONGEST} bytes")
                told = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
                return Fetched(answer.status, told, b"".join(chunks), url)
        except (
            OSError,
            TimeoutError,
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
        ) as error:
            why = str(error) or type(error).__name__
            raise Fault("UPSTREAM_ERROR", f"{_shown(url)} cannot be fetched: {why}", reach="not_sent") from None


def check_scheme(url: str, may: tuple[str, ...]) -> None:
    """https; http only to what may be private. Raises `Fault`."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_named(parts.hostname or "", may)):
        return
    raise Fault("ACCESS_DENIED", f"{_shown(url)} is refused: only https URLs are fetched", reach="not_sent")


def is_named(host: str, may: Iterable[str]) -> bool:
    """Whether a host or an address is one of these, or in a network of these."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() in {each.lower() for each in may}
    return any(address in network for each in may if (network := _network(each)) and network.version == address.version)


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet: not of this machine, its network, or a cloud's own."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


async def resolve(host: str, port: int, may: Iterable[str]) -> str:
    """The address to connect to. Raises `Fault` ACCESS_DENIED where the name leads to any that it must not."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    private = [each for each in addresses if not is_public(each) and not is_named(each, may)]
    if private and not is_named(host, may):
        raise Fault(
            "ACCESS_DENIED",
            f"{host} is refused: it leads to {private[0]}, which is not public",
            reach="not_sent",
            hint="the operator may allow it: guard.allow_hosts",
        )
    return addresses[0]


def _backend(may: tuple[str, ...]) -> httpcore2.AsyncNetworkBackend:
    import httpcore2

    class Pinned(httpcore2.AsyncNetworkBackend):
        """Connects to the address that was looked at; TLS still asks for the name."""

        def __init__(self) -> None:
            self._inner = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

        async def connect_tcp(self, host: str, port: int, *args: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
            return await self._inner.connect_tcp(await resolve(host, port, may), port, *args, **more)

    return Pinned()


def _network(written: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(written, strict=False)
    except ValueError:
        return None


def _shown(url: str) -> str:
    """Without what may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
