"""What the operator's own proxies say of a request: whose it was, and by which name and scheme it came to them.

The rules this file keeps: nobody's word is taken but that of an address which `http.trusted_proxies` names, and each
proxy's word only for who came to it, from the last one back to the first whose caller is none of them; what cannot be
read, or is said in two ways, is never guessed; and no proxy elsewhere can say that somebody is on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, TypeAlias

import msgspec

from toolgate.frontends.peers import Operator

LONGEST = 1024  # characters of an element that is looked into
MOST_HOPS = 16  # proxies in a row whose word is looked at
FORWARDED, X_FOR, X_SCHEME, X_HOST = b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
_OURS = frozenset({FORWARDED, X_FOR, X_SCHEME, X_HOST})
_SCHEMES = {"http": "http", "ws": "http", "https": "https", "wss": "https"}
_pair = re.compile(r'\s*([A-Za-z]+)=(?:([!#-+\--:<-\[\]-~]+)|"([!#-+\--:<-\[\]-~]*)")\s*')
_node = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9.]+)(?::[0-9]{1,5})?|([0-9A-Fa-f:.]+)")

Address: TypeAlias = IPv4Address | IPv6Address


class Told(msgspec.Struct, frozen=True):
    """What was said, empty where nothing was. `is_unclear`: two kinds of headers say different things."""

    address: str = ""
    scheme: str = ""
    host: str = ""
    is_unclear: bool = False


class Forwarding:
    """`trusted` are addresses and networks."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._networks = tuple(ip_network(each, strict=False) for each in trusted)

    def told(self, scope: Mapping[str, Any]) -> Told | None:
        """None where there is nobody whose word is taken, or who says nothing."""
        client = scope.get("client")
        if not self._networks or not client or isinstance(client, Operator):
            return None
        peer = _address(client[0].partition("%")[0])
        if not peer or not self._trusts(peer):
            return None
        said: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            if name in _OURS:
                said.setdefault(name, []).append(value.decode("latin-1"))
        if not said:
            return None
        return _agreed(self._by_forwarded(peer, said), self._by_x(peer, said))

    def _by_forwarded(self, peer: Address, said: Mapping[bytes, Sequence[str]]) -> Told:
        """RFC 7239."""
        elements = [_pairs(each) for each in _last(said.get(FORWARDED, ()))]
        found, hops = self._client(peer, [each.get("for", "") for each in elements])
        element: Mapping[str, str] = elements[hops] if hops < len(elements) else {}
        return Told(found, _SCHEMES.get(element.get("proto", "").lower(), ""), element.get("host", ""))

    def _by_x(self, peer: Address, said: Mapping[bytes, Sequence[str]]) -> Told:
        found, hops = self._client(peer, _last(said.get(X_FOR, ())))
        schemes, hosts = _last(said.get(X_SCHEME, ())), _last(said.get(X_HOST, ()))
        return Told(found, _SCHEMES.get(_nearest(schemes, hops).lower(), ""), _nearest(hosts, hops))

    def _client(self, peer: Address, nodes: Sequence[str]) -> tuple[str, int]:
        """Who came to the first proxy, as far as that is known, and whose element tells of it. `nodes` are what the
        proxies have said, the last one first."""
        hop, hops = peer, 0
        for node in nodes:
            found = _node.fullmatch(node)
            address = _address(found[1] or found[2] or found[3]) if found else None
            if not address or not self._trusts(hop) or (address.is_loopback and not hop.is_loopback):
                break
            hop, hops = address, hops + 1
        return (str(hop) if hops else ""), max(0, hops - 1)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _address(written: str) -> Address | None:
    try:
        found = ip_address(written)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _last(values: Sequence[str]) -> list[str]:
    """The last elements of a header that may stand there several times, the very last one first. What stands before
    them, a client may have written."""
    return (
        [each.strip(" \t") for each in reversed(",".join(values).rsplit(",", MOST_HOPS)[-MOST_HOPS:])] if values else []
    )


def _nearest(elements: Sequence[str], hops: int) -> str:
    """Proxies that pass these on as they are leave fewer of them than there are hops."""
    return elements[min(hops, len(elements) - 1)] if elements else ""


def _pairs(element: str) -> Mapping[str, str]:
    """Of one element of `Forwarded`; nothing where any of it cannot be read."""
    if len(element) > LONGEST:
        return {}
    found = [_pair.fullmatch(each) for each in element.split(";")]
    pairs = {each[1].lower(): each[2] or each[3] or "" for each in found if each}
    return pairs if len(pairs) == len(found) else {}


def _agreed(one: Told, other: Told) -> Told:
    """What both say, or one of them does. A proxy that sets one kind passes the other on as a client has sent it."""
    chosen: dict[str, str] = {}
    for name in ("address", "scheme", "host"):
        said = {getattr(one, name), getattr(other, name)} - {""}
        if len(said) > 1:
            return Told(is_unclear=True)
        chosen[name] = said.pop() if said else ""
    return msgspec.convert(chosen, Told)
