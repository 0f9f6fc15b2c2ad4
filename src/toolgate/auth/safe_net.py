"""Reaching what somebody else has named: a server's authorization server, a registry, a key set, a server that a tool
call has added.

The rules this file keeps: a URL that the operator has not written leads to public addresses only, at every hop; what
was looked at is what is connected to: names are resolved once for each connection, and it goes to that very address;
and nothing leads to the gateway itself, whoever has allowed what.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, urljoin, urlsplit
from weakref import WeakValueDictionary

import msgspec

from toolgate.auth.exchange import BadAnswer, Request, exchange
from toolgate.auth.lookups import Lookups, in_thread
from toolgate.config import Config
from toolgate.core import encrypted
from toolgate.core.fault import Fault
from toolgate.core.redaction import excerpt
from toolgate.core.services import Swap, sets

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})  # as hosts are written
LONGEST = 1024 * 1024  # bytes of an answer
LONGEST_URL = 8192  # characters
PATIENCE = 10.0  # seconds for one, with its redirects and the wait for its turn
AT_ONCE = 4  # answers on one asker's word
HOPS = 3
MOST_ADDRESSES = 16  # of one name, which are looked at and tried: an answer of DNS has room for thousands
REDIRECTS = (301, 302, 303, 307, 308)
KEPT_ELSEWHERE = ("accept", "accept-language", "user-agent")  # headers that a redirect to another origin may keep

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

Dial: TypeAlias = Callable[[str, int], Awaitable[socket.socket]]
"""A connection to a host and port. Raises `Fault` ACCESS_DENIED, `OSError`."""

# What is not of the public internet: the registries of special purpose addresses (IANA), with what clouds keep for
# themselves. It stands here since what Python's `is_global` says differs between its versions.
INSIDE_4 = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4",
    "168.63.129.16/32",  # Azure's host, to each of its machines
)  # fmt: skip
PUBLIC_6 = "2000::/3"
INSIDE_6 = ("2001::/23", "2001:db8::/32", "3fff::/20")  # of what would be public
# IPv6 addresses that lead to an IPv4 address: the network, and where in the 128 bits that stands.
EMBEDDED = (("::ffff:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))

# Ends of names that no public resolver knows, and that others answer in their own way.
INSIDE_NAMES = frozenset(
    ("localhost", "local", "localdomain", "internal", "intranet", "private", "corp", "home", "lan", "arpa", "onion")
)

_inside_4 = tuple(ipaddress.IPv4Network(each) for each in INSIDE_4)
_public_6 = ipaddress.IPv6Network(PUBLIC_6)
_inside_6 = tuple(ipaddress.IPv6Network(each) for each in INSIDE_6)
_embedded = tuple((ipaddress.IPv6Network(network), shift) for network, shift in EMBEDDED)
_plain = re.compile(r"[!-\[\]-~]*")  # ASCII without spaces, and without the backslash, on which readers disagree
_name = re.compile(r"[a-z0-9_.-]+")
_number = re.compile(r"0x[0-9a-f]*|[0-9]+")


class Fetched(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # by names in small letters
    body: bytes
    url: str  # after redirects


class Bounds(msgspec.Struct, frozen=True):
    """Of an answer: how long it may take with its redirects and the wait for its turn, in seconds, how long its body
    may be, in bytes, and how many come at once on one asker's word."""

    seconds: float = PATIENCE
    longest: int = LONGEST
    at_once: int = AT_ONCE


USUAL = Bounds()


class Net:
    """The resolver, and the way to an address; in tests the internet is on loopback."""

    async def lookup(self, host: str, port: int) -> Sequence[str]:
        """Raises `OSError`, `UnicodeError`."""
        return await in_thread(host, port)

    def place(self, address: str, port: int) -> tuple[str, int]:
        return address, port


class SafeNet:
    """`allowed` are hosts, addresses and networks that may be private (`guard.allow_hosts`). `own` says at which
    addresses and ports the gateway itself listens. An `asker` is on whose word something is reached, mostly a server:
    what it makes slow is slow for itself."""

    def __init__(
        self,
        allowed: Iterable[str] = (),
        net: Net | None = None,
        own: Callable[[str, int], bool] = lambda _at, _on: False,
    ) -> None:
        self.allowed = tuple(allowed)
        self._net = net or Net()
        self._own = own
        self._lookups = Lookups(self._net.lookup)
        self._turn = asyncio.Lock()  # of answers that are read
        self._fetching: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by asker
        self._tls: ssl.SSLContext | None = None

    def prepared(self, config: Config) -> Swap:
        return sets(self, allowed=tuple(config.guard.allow_hosts))

    async def fetch(
        self,
        url: str,
        method: Literal["GET", "POST"] = "GET",
        *,
        asker: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        trusted: Iterable[str] = (),
        follow: bool = True,
        bounds: Bounds = USUAL,
    ) -> Fetched:
        """The answer, whatever its status. `trusted` are URLs that the operator has written: their hosts may be
        private, at their ports. Redirects are followed where nothing is sent but the question. Raises `Fault`
        UPSTREAM_ERROR where nothing answers in time, ACCESS_DENIED where the URL leads inside."""
        may = self._may(trusted)
        told = dict(headers or {})
        turns = self._fetching.setdefault(asker, asyncio.Semaphore(bounds.at_once))
        try:
            async with asyncio.timeout(bounds.seconds), turns:
                for _ in range(HOPS + 1):
                    if len(url) > LONGEST_URL:
                        raise _refused(excerpt(url), f"it has more than {LONGEST_URL:,} characters", "")
                    fetched = await self._once(asker, method, url, told, body, may, bounds.longest)
                    location = fetched.headers.get("location")
                    if not follow or method != "GET" or not location or fetched.status not in REDIRECTS:
                        return fetched
                    url, told = _next(url, location, told)
        except (OSError, TimeoutError, BadAnswer) as error:
            why = str(error) or type(error).__name__
            raise Fault("UPSTREAM_ERROR", f"{_shown(url)} cannot be fetched: {why}", reach="not_sent") from None
        raise Fault("UPSTREAM_ERROR", f"{_shown(url)} redirects too many times", reach="not_sent")

    def dial(self, asker: str, allowed: Iterable[str] = ()) -> Dial:
        """Connections under the same rule, for who speaks to a server in his own way. `allowed` are further hosts."""
        further = tuple(allowed)

        async def dial(host: str, port: int) -> socket.socket:
            may = (*self.allowed, *further)
            return await self._connected(host, port, await self.resolve(asker, host, port, may))

        return dial

    def dial_anywhere(self, asker: str) -> Dial:
        """Connections to what the operator has written, wherever it leads."""

        async def dial(host: str, port: int) -> socket.socket:
            return await self._connected(host, port, await self._addresses(asker, host, port))

        return dial

    def check(self, url: str, trusted: Iterable[str]) -> None:
        """A URL that is to be used later, by a browser maybe. Raises `Fault`."""
        parts = check_url(url, self._may(trusted))
        host, port = _place(parts)
        if self._own("127.0.0.1" if host == "localhost" else host, port):
            raise _refused(f"{host}:{port}", _OURSELVES, "")

    async def resolve(self, asker: str, host: str, port: int, may: Iterable[str]) -> Sequence[str]:
        """The addresses to connect to. Raises `Fault` ACCESS_DENIED where the name leads to any that it must not, and
        `OSError` where it leads nowhere."""
        may = tuple(may)
        is_allowed = is_named(host, may, port)
        if not is_allowed and (why := strange_name(host)):
            raise _refused(host, why)
        addresses = await self._addresses(asker, host, port)
        if any(self._own(each, port) for each in addresses):
            raise _refused(f"{host}:{port}", _OURSELVES, "")
        private = [each for each in addresses if not is_public(each) and not is_named(each, may, port)]
        if private and not is_allowed:
            raise _refused(host, f"it resolves to {private[0]}, which is not a public address")
        return addresses

    def _may(self, trusted: Iterable[str]) -> tuple[str, ...]:
        return (*self.allowed, *(place for url in trusted for place in _places(url)))

    async def _addresses(self, asker: str, host: str, port: int) -> Sequence[str]:
        return [host] if _address(host) else (await self._lookups.find(asker, host, port))[:MOST_ADDRESSES]

    async def _connected(self, host: str, port: int, addresses: Sequence[str]) -> socket.socket:
        error = OSError(f"{host} does not resolve")
        for address in addresses:
            try:
                return await _connected(*self._net.place(address, port))
            except OSError as failed:
                error = failed
        raise error

    async def _once(
        self,
        asker: str,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        may: tuple[str, ...],
        longest: int,
    ) -> Fetched:
        parts = check_url(url, may)
        host, port = _place(parts)
        if parts.scheme == "https" and not self._tls:
            self._tls = encrypted.to_servers()
        tls = self._tls if parts.scheme == "https" else None
        request = Request(_written(method, parts, headers, body), host, tls)
        connection = await self._connected(host, port, await self.resolve(asker, host, port, may))
        try:
            answer = await exchange(connection, request, longest, self._turn)
        finally:
            connection.close()
        return Fetched(answer.status, answer.headers, bytes(answer.body), url)


def _written(method: str, parts: SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    """A whole request. The parts are of a URL that was looked at, so that there are no spaces or lines in it."""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    told = {"Host": parts.netloc, **headers, "Connection": "close"}
    if body or method == "POST":
        told["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise OSError("a header contains a line break")
    return "\r\n".join((*lines, "", "")).encode("latin-1", "replace") + body


async def _connected(address: str, port: int) -> socket.socket:
    [(family, kind, protocol, _, place), *_] = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await _reach(connection, place)
    except BaseException:
        connection.close()
        raise
    return connection


async def _reach(connection: socket.socket, place: Any) -> None:
    """As `sock_connect` of the event loop, which uvloop has look up even addresses, in threads that are few."""
    failed = connection.connect_ex(place)
    if failed == errno.EINPROGRESS:
        loop, writable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(connection, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(connection)
        failed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        raise OSError(failed, os.strerror(failed))


def _next(url: str, location: str, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Where a redirect leads, and what is said there: another origin gets nothing that was meant for this one."""
    try:
        there = urljoin(url, location)
        is_same = _origin(there) == _origin(url)
    except ValueError:
        raise _refused(excerpt(location), "it is not a URL") from None
    return there, headers if is_same else {
        name: value for name, value in headers.items() if name.lower() in KEPT_ELSEWHERE
    }


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


# What may be reached.


def check_url(url: str, may: tuple[str, ...]) -> SplitResult:
    """The parts of a URL that is one beyond doubt: https; http only to what may be private. Raises `Fault`."""
    try:
        parts = urlsplit(url)
        is_sound = bool(parts.hostname) and parts.port != 0 and bool(_plain.fullmatch(url))
    except ValueError:
        raise _refused(excerpt(url), "it is not a URL") from None
    if not is_sound:
        raise _refused(excerpt(url), "it is not a URL")
    if "@" in parts.netloc:
        raise _refused(_shown(url), "it contains a user name")
    if parts.scheme == "https" or (parts.scheme == "http" and _is_named(parts, may)):
        return parts
    raise _refused(_shown(url), "only https URLs are fetched")


def strange_name(host: str) -> str:
    """Why a name must not even be looked up; empty where it may."""
    if _address(host):
        return ""
    try:
        name = host.encode("idna").decode().lower().rstrip(".")
    except UnicodeError:
        return "it is not a host name"
    if not _name.fullmatch(name):
        return "it is not a host name"
    last = name.rpartition(".")[2]
    if _address(name) or _number.fullmatch(last):
        return "it is an obfuscated address"
    if "." not in name or last in INSIDE_NAMES:
        return "it is a name of an internal network"
    return ""


def is_named(host: str, may: Iterable[str], port: int = 0) -> bool:
    """Whether a host or an address is one of these, or in a network of these; or one of these with this port."""
    may = tuple(may)
    if port and _at(host, port) in may:
        return True
    address = _address(host)
    if not address:
        return host.lower() in {each.lower() for each in may}
    return any(address in network for each in may if (network := _network(each)) and network.version == address.version)


def _is_named(parts: SplitResult, may: tuple[str, ...]) -> bool:
    host, port = _place(parts)
    return is_named(host, may, port)


def _places(url: str) -> tuple[str, ...]:
    """What of a host is meant by who writes this URL: its port, and that of https, where only who has a certificate for
    the host answers. What else listens there is not meant: it may be behind a container's or a tunnel's end, where the
    server cannot reach it. Of this machine all ports are meant, but our own: in development servers have their
    authorization servers beside them."""
    try:
        host, port = _place(urlsplit(url))
    except ValueError:
        return ()
    if host in LOOPBACK:
        return (host,)
    return (_at(host, port), _at(host, 443)) if host else ()


def _place(parts: SplitResult) -> tuple[str, int]:
    return parts.hostname or "", parts.port or (443 if parts.scheme in ("https", "wss") else 80)


def _at(host: str, port: int) -> str:
    """Never the same as a host, an address or a network."""
    return f"[{_address(host) or host.lower()}]:{port}"


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet: not of this machine, its network, or a cloud's own."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return not any(found in network for network in _inside_4)
    if not found or found.scope_id:
        return False
    for network, shift in _embedded:
        if found in network:
            return is_public(str(ipaddress.IPv4Address(int(found) >> shift & 0xFFFFFFFF)))
    return found in _public_6 and not any(found in network for network in _inside_6)


def is_here(bound: str, address: str) -> bool:
    """Whether what listens at the host `bound` may answer at an address. Loopback is one place, however written."""
    found, listening = _address(address), _address(bound)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    if not found or found.is_loopback or found.is_unspecified:
        return found is not None
    return found == listening or (listening is not None and listening.is_unspecified and _is_of_this_machine(found))


def _is_of_this_machine(address: Address) -> bool:
    """By what the system would send from. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return _address(probe.getsockname()[0]) == address
    except OSError:
        return False


_OURSELVES = "it is this gateway"


def _refused(what: str, why: str, hint: str = "the operator may allow it: guard.allow_hosts") -> Fault:
    return Fault("ACCESS_DENIED", f"{what} is refused: {why}", reach="not_sent", hint=hint)


def _address(written: str) -> Address | None:
    try:
        return ipaddress.ip_address(written)
    except ValueError:
        return None


def _network(written: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(written, strict=False)
    except ValueError:
        return None


def _shown(url: str) -> str:
    """Without what may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
