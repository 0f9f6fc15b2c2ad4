"""What readers take the host of a URI for: as WHATWG URL, pydantic and Node do, and more leniently than they do.

The rule this file keeps: two spellings that any reader takes for one host have one reading here, which also readers
may share that tell them apart: what is closed then is more than had to be.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from functools import lru_cache

from toolgate.core.spelling import INVISIBLE, normalized, with_plain_i

_MOST_REMEMBERED = 64  # hosts: the readings of one URI have the same few
_LONGEST_NAME = 253  # characters that a host has in the DNS; a longer one has no form in ASCII
_ideographic_stops = re.compile("[\u3002\uff0e\uff61]")  # what IDNA takes for a dot
_number = re.compile("0[xX][0-9a-fA-F]*|[0-9]+")


def is_unknown(host: str) -> bool:
    """Whether it has characters that this Unicode does not know: a newer one may take them for any others."""
    return not host.isascii() and any(unicodedata.category(each) == "Cn" for each in host)


@lru_cache(_MOST_REMEMBERED)
def readings(host: str, default_port: str) -> tuple[str, ...]:
    """A host and its port as they are read, in Unicode, and in ASCII where that is another. `default_port` goes without
    saying."""
    folded = _folded(host)
    bracketed, bracket, behind = folded.rpartition("]")
    name, colon, port = (bracketed + bracket, *behind.rpartition(":")[1:]) if bracket else _parted(folded)
    found = [(name, _shown(colon, port, default_port))]
    first, *ports = (behind if bracket else folded).split(":")
    if default_port and ports and (len(ports) > 1 or _is_no_port(port)):
        # Who reads on takes the first or the last port, or looks at none.
        whole = bracketed + bracket + first
        found += ((whole, _shown(":", each, default_port)) for each in (ports[0], ports[-1], ""))
    found = [(_as_an_address(name), shown) for name, shown in found]
    return tuple(dict.fromkeys(each + shown for name, shown in found for each in (name, _in_ascii(name))))


def _shown(colon: str, port: str, default_port: str) -> str:
    port = port.lstrip("0") or port[:1]
    return colon + port if port and port != default_port else ""


def _is_no_port(text: str) -> bool:
    """Nobody means another place by it; `*` and `{` are of permissions and templates."""
    return bool(text) and not (text.isascii() and text.isdigit()) and not any(each in text for each in "*{")


def _parted(host: str) -> tuple[str, str, str]:
    name, colon, port = host.rpartition(":")
    return (name, colon, port) if colon else (host, "", "")


def _folded(host: str) -> str:
    """As IDNA maps it (UTS 46), and without what it tells apart beyond that, such as a final sigma: labels in
    Punycode as what they stand for."""
    if host.isascii():
        return ".".join(map(_out_of_ascii, host.lower().split(".")))
    seen = _seen(_ideographic_stops.sub(".", host))
    return ".".join(map(_out_of_ascii, seen.split(".")))


def _seen(text: str) -> str:
    folded = normalized(normalized(normalized(text, "NFKD").casefold()).casefold())
    visible = "".join(each for each in folded if unicodedata.category(each) != "Cf")
    return normalized(with_plain_i(INVISIBLE.sub("", visible)))


def _out_of_ascii(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return _seen(label[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return label


def _in_ascii(name: str) -> str:
    if name.isascii() or len(name) > _LONGEST_NAME:
        return name
    labels = name.split(".")
    return ".".join(each if each.isascii() else "xn--" + each.encode("punycode").decode("ascii") for each in labels)


def _as_an_address(name: str) -> str:
    """An address in its usual form, whichever it has; of IPv6 that means one of IPv4, that one. Else the name."""
    if name.startswith("["):
        try:
            address = ipaddress.IPv6Address(name.strip("[]").partition("%")[0])
        except ValueError:
            return name
        return str(address.ipv4_mapped or f"[{address.compressed}]")
    name = name.rstrip(".")
    labels = name.split(".")
    if len(labels) > 4 or not all(map(_number.fullmatch, labels)):
        return name
    try:
        *firsts, last = map(_value, labels)
        whole = sum(each << 8 * (3 - place) for place, each in enumerate(firsts)) + last
        is_one = max((0, *firsts)) < 256 and last < 256 ** (4 - len(firsts))
        return str(ipaddress.IPv4Address(whole)) if is_one else name
    except ValueError:
        return name


def _value(label: str) -> int:
    """As C reads it: hexadecimal, octal or decimal."""
    if label[:2] in ("0x", "0X"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") else 10)
