"""Permissions on resources against URIs that servers read in other ways than we do: a differential fuzz of readers."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlparse, urlsplit
from urllib.request import url2pathname

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolgate.auth.access import Rules
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.spelling import as_a_lenient_reader
from toolgate.surfaces import uris

CLOSED = {"docs+file:///p/*": "off", "docs+notes://private/*": "off", "docs+http://private/*": "off"}
EXACT = {"docs+file:///p/key": "off", "docs+notes://private/key": "off", "docs+http://private/key": "off"}


def rules(said: Any) -> Rules:
    return Rules(KnownClient(id="ci", name="ci", servers="all", permissions=Permissions(resources=said)))


def is_closed(uri: str, said: Any = CLOSED) -> bool:
    return rules(said).verdict("docs", "resources", uri) == "off"


AUTHORITIES = [
    "file://x/p/key",
    "file://127.0.0.2/p/key",
    "file://[::2]/p/key",
    "notes://private:80/key",
    "notes://u:p@private:9/key",
]
VARIATIONS = [
    "file://evil.example:9/p/key",
    "file://u:p@x/p/key",
    "file://%78/p/key",
    "file://x//p//key",
    "file://x/q/../p/key",
    "file://0x7f.1/p/key",
    "file://x\\p\\key",
    "/p/key",
    "p/key",
    "file:///P/Key",
    "file:///ｐ/key",
    "file:///p\u200b/key",
    "url:file:///p/key",
    "view-source:file:///p/key",
    "jar:file:///p/key",
    "FILE://X/p/key",
    "file://x:/p/key?x",
    "notes://PRIVATE:/key",
    "notes://private.:80/key",
    "notes://private:abc/key",
    "notes://a@b@private/key",
    "notes:///private/key",
    "notes:/private/key",
    "notes:////u@private:1/key",
    "notes://private%3A80/key",
    "notes://u%40private/key",
    "notes://private:80/a/../key",
    "notes://private:80\\key",
    "notes:private/key",
    "Notes:private\\key/./%2e%2e//key#y",
    "notes:q/../private/key",
    "FILE://127.0.0.2//p%2Fkey/.//./%2e%2e",
    "file://x//p/key//..",
    "FILE://u@private.:9\\q/p%2Fkey/%2e%2e/key?x/private",
    "file://:p%2Fkey/p%2Fkey",
    "file://\\p%2Fkey/p%2Fkey",
    "file://\\p/p/key?x",
    "FILE:////a@b@%70rivate:9/..//p%2Fkey/%2e%2e/p%2Fkey",
]
TWO_AT_ONCE = [
    "x+file://localhost/p/key",
    "x-file://localhost/p/key",
    "//localhost/p/key",
    "\\\\localhost\\p\\key",
    "//u@x:9/q/../p/key",
    "view-source:file://localhost/p/key",
    "view-source:FILE://localhost/P/Key",
    "url:file://127.0.0.1/p/key",
    "jar:file://u:p@x:0/p/key",
    "git+file:\\\\localhost\\p\\key",
    "x+file%3A%2F%2Flocalhost%2Fp%2Fkey",
    "x+fi\tle://localhost/p/key",
    "x+file://localhost/q/../p/key",
    "x+file:///q/file:a/../../p/key",
    "x+file:///p/key/file:a/..",
    "jar:url:file://localhost/p/key",
    "x+file://\\p/p/key",
    "\uff46ile://localhost/p/key",
    "x+\uff46ile\uff1a\uff0f\uff0flocalhost\uff0fp/key",
    "file:///q/\uff0e\uff0e/p/key",
    "file:///q/.\u200b./p/key",
    "file:///\uff05\uff17\uff10/key",
    "http://private::0080/key",
    "http://private:80:0080/key",
    "http://private:80:/key",
    "http://u@PRIVATE.:80::080/q/../key",
    "http://private:abc/key",
]


WHOSE_READER_TAKES_SOMETHING_OUT = [  # a scheme within, what stands behind a `;`
    "file:///pfile:///key",
    "file:///file://p/key",
    "file:///ffile://ile://p/key",
    "/pfile:///key",
    "file:x:///p/key",
    "file:x://p/key",
    "notes://privnotes://ate/key",
    "notes://notes://private/key",
    "file:///p/key;x=1",
    "file:///p/key%3Bx",
    "file%3A//\\p/p/key?x",
    "notes://private/key;v1?a",
]
WITH_DOTS_BEHIND_WHAT_READERS_TAKE_APART = [
    "file:///q?%2fy/../p/key",
    "file:///x%2f?/../p/key",
    "file:///x%252f#/../p/key",
    "file:///q;a/../../p/key",
    "file:///q%3f/../../p/key",
    "notes://pub?%2fy/../private/key",
]

WHOSE_READER_DECODES_MORE = [  # `%uXXXX`, bytes that are no UTF-8
    "file:///%u0070/key",
    "file:///%U0070/k%u0065y",
    "file:///q/%u002e%u002E/p/key",
    "file:%u002f%u002f/p%u002Fkey",
    "file%u003A///p/key",
    "%u0066ile:///p/key",
    "file:///%25u0070/key",
    "file:///%u002570/key",
    "file:///%u0025u0070/key",
    "file:///%75%u0030070/../p/key",
    "file:///%%750070/key",
    "file:///%uff50/key",
    "file:///%uD835%uDC29/key",
    "file:///%uD835%25uDC29/key",
    "file:///p%uD835/key",
    "file:///\uff05u0070/key",
    "file:///p/key%u0000.txt",
    "file:///p/key%u003fx",
    "file:///p/key%u003Bx",
    "file:///p/key%25u003bx",
    "file:///p/key%u00253bx",
    "file:///p/key%3%62x",
    "file://x%u002fy/p/key",
    "notes://%u0070rivate/key",
    "notes://a%u0040private/key",
    "notes://private%3A80\\p/key?x",
    "notes://PRIVAT%u0045%u003A80/key",
    "http://priv%u0061te/key",
    "file:///%C1%B0/key",
    "file:///%25c1%25b0/key",
    "file:///%c1%25b0/key",
    "file:///%E0%81%B0/key",
    "file:///%E0%2581%B0/key",
    "file:///%F0%80%81%B0/key",
    "file:///%f8%80%80%81%b0/key",
    "file:///%FC%80%80%80%81%B0/key",
    "file:///%F0%8F%BD%90/key",
    "file:///%ED%A0%B5%ED%B0%A9/key",
    "file:///q/%c0%ae%c0%ae/p/key",
    "file:///q/%c0%ae./p%C0%AFkey",
    "file:///q\\%C0%AE%C0%AE%C1%9Cp\\KEY",
    "file:///q%c1%1c%c0%2e%c0.%c0/p/key",
    "file:///\uff05C1\uff05B0/key",
    "file%C0%BA///p/key",
    "notes://%C1%B0rivate/key",
    "notes://priv%E0%81%A1te/key",
    "http://private%C0%AF/key",
    "file:///%80%81%B0/key",
    "file:///%C1p/key",
    "file:///p%C1/key",
    "file:///%FFp/k%80ey",
    "file:///%%FF70/key",
    "file:///q/.%FF./p/key",
    "notes://pri%FFvate/key",
    "http://pri%FFvate/key",
    "fil%FFe:///p/key",
]


@pytest.mark.promise("b.attacks.uris")
@pytest.mark.parametrize("said", [CLOSED, EXACT], ids=["pattern", "exact"])
@pytest.mark.parametrize(
    "uri",
    [
        *AUTHORITIES,
        *VARIATIONS,
        *TWO_AT_ONCE,
        *WHOSE_READER_TAKES_SOMETHING_OUT,
        *WITH_DOTS_BEHIND_WHAT_READERS_TAKE_APART,
        *WHOSE_READER_DECODES_MORE,
    ],
)
def test_an_authority_is_no_way_around_a_permission(uri: str, said: Any) -> None:
    assert is_closed(uri, said)


@pytest.mark.parametrize("uri", ["file:///q/key", "file://x/q/p/key", "notes://public:80/key", "notes://u@public/key"])
def test_what_is_another_resource_to_everybody_stays_open(uri: str) -> None:
    assert not is_closed(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///q/%u0070",
        "file:///%u4F60%u597D/key",
        "file:///100%used/key",
        "file:///p%u00ZZ/key",
        "file:///%u007/key",
        "notes://caf%u00E9/key",
        "file:///home/j%FCrgen/%E4ndern.txt",  # no UTF-8, and nothing that is closed to who leaves that out
        "file:///%D0%9F%D0%B0%D0%BF%D0%BA%D0%B0/%E0%A4%95/%F0%9F%93%84/%ED%95%9C",
        "file:///%E2%80%80%E3%80%80%E3%80%81/%EF%BC%8E",
    ],
)
def test_what_looks_as_if_it_could_be_decoded_otherwise_stays_open(uri: str) -> None:
    assert not is_closed(uri)


@pytest.mark.parametrize(
    ("said", "uri"),
    [
        ("file:///%u0070/*", "file:///p/key"),
        ("file:///%u4F60/*", "file:///\u4f60/key"),
        ("file:///j%FC/*", "file:///j%fc/key"),
        ("file:///j%FC/*", "file:///j\ufffd/key"),
        ("file:///%C1%B0/*", "file:///%c1%b0/key"),
    ],
)
def test_a_permission_is_read_as_a_uri_is(said: str, uri: str) -> None:
    assert is_closed(uri, {f"docs+{said}": "off"})


@pytest.mark.parametrize(
    "uri", ["file:///d%AAta/x", "file:///data/n%ba1", "file:///d%u00AAta/x", "file:///d%C2%AAta/x"]
)
def test_letters_of_latin_1_that_fold_to_ascii_are_read_as_that(uri: str) -> None:
    assert is_closed(uri, {"docs+file:///data/*": "off"})


@pytest.mark.parametrize(
    "uri",
    [
        "file:///pr\u0131vate/key",
        "file:///pr%C4%B1vate/key",
        "file:///PR\u0130VATE/key",
        "file:///pri\u200b\u0307vate/key",
        "f\u0131le:///private/key",
        "x+F\u0130LE:///private/key",
        "notes://pr\u0131vate/key",
        "notes://xn--prvate-q9a/key",
        "http://PR\u0130VATE/key",
    ],
)
def test_letters_that_some_fold_to_i_are_read_as_that(uri: str) -> None:
    """As Java's `equalsIgnoreCase` does, whoever compares in capitals, and Go's `ToLower`."""
    closed = {f"docs+{scheme}private/*": "off" for scheme in ("file:///", "notes://", "http://")}
    written = {name.replace("private", "pr\u0131vate"): verdict for name, verdict in closed.items()}
    assert is_closed(uri, closed) and is_closed(uri, written)


def test_what_is_read_in_no_known_way_is_allowed_by_its_own_name() -> None:
    said = {"docs+file:///%C1%B0/a": "allow", "docs+file:///p/*": "off"}
    assert not is_closed("file:///%C1%B0/a", said) and is_closed("file:///%C1%B0/b", said)


def test_a_name_without_slashes_is_closed_whole() -> None:
    said = {"docs+urn:a:b": "off"}
    assert is_closed("urn:a:b", said) and not is_closed("urn:a:c", said) and not is_closed("urn:a", said)


def test_a_port_that_means_something_stays_another_place() -> None:
    said = {"docs+https://h:8443/*": "off"}
    assert is_closed("https://h:8443/a", said) and not is_closed("https://h/a", said)


# Readers: what resource a server that reads URIs so would serve. (scheme, name) or None.

Read = tuple[str, str]
Reader = Callable[[str], "Read | None"]


def _path(path: str) -> str:
    return posixpath.normpath("/" + unquote(path).replace("\\", "/").lstrip("/"))


def by_urllib(uri: str) -> Read | None:
    try:
        found = urlsplit(uri)
        host = found.hostname or ""
    except ValueError:
        return None
    return ("file", _path(found.path)) if found.scheme == "file" else (found.scheme, _path(f"/{host}{found.path}"))


def by_pathname(uri: str) -> Read | None:
    """A server that hands what follows the scheme to `url2pathname`."""
    try:
        found = urlsplit(uri)
        return (found.scheme, _path(url2pathname(found.path))) if found.scheme == "file" else None
    except ValueError:
        return None


def by_hand(uri: str) -> Read | None:
    scheme, found, rest = uri.partition("://")
    return (scheme.lower(), _path(rest)) if found else None


def by_slashes(uri: str) -> Read | None:
    scheme, _, rest = uri.partition(":")
    return scheme.lower(), _path(re.split(r"[?#]", rest)[0])


def by_path(uri: str) -> Read | None:
    """A server of files that looks at the path alone, of what has another scheme before `file:`, or none."""
    try:
        found = urlsplit(uri)
    except ValueError:
        return None
    return ("file", _path(found.path)) if found.scheme.endswith("file") or not found.scheme else None


def by_replacing(uri: str) -> Read | None:
    """A server of files that takes the scheme out, wherever it stands."""
    return ("file", _path(uri.replace("file://", ""))) if uri.startswith("file:") else None


def by_resolving(uri: str) -> Read | None:
    """A server of files that cuts off the scheme, and decodes nothing."""
    rest = uri.removeprefix("file://")
    return ("file", posixpath.normpath("/" + rest.lstrip("/"))) if rest != uri else None


def by_parameters(uri: str) -> Read | None:
    """A server of files that reads a URI by `urllib.parse.urlparse`, which parts it by `;` as well."""
    try:
        found = urlparse(uri)
    except ValueError:
        return None
    return ("file", _path(found.path)) if found.scheme == "file" else None


def by_what_follows(uri: str) -> Read | None:
    """A server that cuts off what stands before `file:`."""
    before, found, rest = uri.partition("file:")
    return by_path(found + rest) if before and found else None


def folding(reader: Reader) -> Reader:
    """A server of files that minds neither case, width nor what cannot be seen, and decodes before it reads."""

    def read(uri: str) -> Read | None:
        found = reader(as_a_lenient_reader(unquote(uri)))
        return found if found and found[0] == "file" else None

    read.__name__ = f"folding {reader.__name__}"
    return read


def _joined(text: str) -> str:
    """Its surrogates in pairs."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def by_unescape(uri: str) -> str:
    """JavaScript's `unescape`."""
    escape = "%u([0-9A-Fa-f]{4})|%([0-9A-Fa-f]{2})"
    return _joined(re.sub(escape, lambda found: chr(int(found[1] or found[2], 16)), uri))


def by_url_decode(uri: str) -> str:
    """`HttpUtility.UrlDecode` of .NET; ModSecurity's `urlDecodeUni` takes `%U` as well."""
    return unquote(_joined(re.sub("%[uU]([0-9A-Fa-f]{4})", lambda found: chr(int(found[1], 16)), uri)))


_LENGTHS = ((0xFC, 6), (0xF8, 5), (0xF0, 4), (0xE0, 3), (0xC0, 2))


def by_any_bytes(uri: str) -> str:
    """A decoder of UTF-8 that does not look whether a form is the shortest, or whether bytes are what continues one."""
    raw, at, found = unquote_to_bytes(uri.encode("utf-8", "surrogatepass")), 0, ""
    while at < len(raw):
        length = next((length for least, length in _LENGTHS if raw[at] >= least), 1)
        value = raw[at] if length == 1 else raw[at] & (0x7F >> length)
        for each in raw[at + 1 : at + length]:
            value = value << 6 | each & 0x3F
        found += chr(value) if value <= 0x10FFFF else "\ufffd"
        at += length
    return _joined(found)


def by_three_bytes_at_most(uri: str) -> str:
    """One for JavaScript that was copied for years: what does not begin one or two bytes, begins three."""
    raw, at, found = unquote_to_bytes(uri.encode("utf-8", "surrogatepass")), 0, ""
    while at < len(raw):
        first, second, third = (*raw[at : at + 3], 0, 0)[:3]
        if first < 0x80:
            value, length = first, 1
        elif 0xC0 <= first < 0xE0:
            value, length = (first & 31) << 6 | second & 63, 2
        else:
            value, length = (first & 15) << 12 | (second & 63) << 6 | third & 63, 3
        found += chr(value)
        at += length
    return _joined(found)


def by_leaving_out(uri: str) -> str:
    """A server that leaves out what is no UTF-8."""
    return unquote(uri, errors="ignore")


DECODERS = [by_unescape, by_url_decode, by_any_bytes, by_three_bytes_at_most, by_leaving_out]


def as_decoded(uri: str) -> dict[str, str]:
    """What servers have before they read it, who decode it first, and how they came to it."""
    found = {uri: ""}
    for decoder in DECODERS:
        once = decoder(uri)
        found.setdefault(once, f" after {decoder.__name__}")
        found.setdefault(decoder(once), f" after {decoder.__name__} twice")
    return found


PLAIN: list[Reader] = [
    by_urllib,
    by_pathname,
    by_hand,
    by_slashes,
    by_path,
    by_what_follows,
    by_replacing,
    by_resolving,
    by_parameters,
]
READERS = [*PLAIN, *map(folding, PLAIN)]
PROTECTED = {("file", "/p/key"), ("notes", "/private/key"), ("http", "/private/key")}

_hosts = st.sampled_from(
    ["", "x", "localhost", "127.0.0.2", "[::2]", "private", "PRIVATE", "private.", "p", "%70rivate"]
)
_users = st.sampled_from(["", "", "u@", "u:p@", "private@", "a@b@", "%40@"])
_ports = st.sampled_from(["", "", ":", ":80", ":9", ":0", ":abc", "%3A80"])
_ports_of_http = st.sampled_from(["", ":", ":80", ":0080", ":80:80", "::0080", ":80:0080", ":abc"])
_slashes = st.sampled_from(["//", "//", "/", "///", "////", "", "\\\\", "/\\"])
_paths = st.lists(
    st.sampled_from(["p", "key", "private", "..", ".", "", "q", "%70", "k%65y", "%2e%2e", "p%2Fkey", "key?x", "key#y"]),
    max_size=5,
).map("/".join)
_joints = st.sampled_from(["/", "/", "//", "\\", ""])
_plain_uris = st.builds(
    lambda scheme, slashes, user, host, port, joint, path: f"{scheme}:{slashes}{user}{host}{port}{joint}{path}",
    st.sampled_from(["file", "FILE", "notes", "Notes"]),
    _slashes,
    _users,
    _hosts,
    _ports,
    _joints,
    _paths,
)
_of_http = st.builds(
    lambda scheme, user, host, port, joint, path: f"{scheme}://{user}{host}{port}{joint}{path}",
    st.sampled_from(["http", "HTTP"]),
    _users,
    st.sampled_from(["private", "PRIVATE", "private."]),
    _ports_of_http,
    st.just("/"),
    _paths,
)

# Leniencies that are put on top of each other, up to three of them.

_leniencies = st.sampled_from(
    [
        lambda uri: "x+" + uri,
        lambda uri: "x-" + uri,
        lambda uri: "view-source:" + uri,
        lambda uri: "jar:url:" + uri,
        lambda uri: uri.partition(":")[2],
        lambda uri: uri.replace("/", "\\"),
        lambda uri: uri.replace(":", "%3A", 1),
        lambda uri: uri.replace("/", "%2F"),
        lambda uri: uri.replace("%", "%25"),
        lambda uri: uri.replace("le", "l\te", 1),
        lambda uri: uri.replace("le", "l\u200be", 1),
        lambda uri: uri.replace("f", "\uff46", 1),
        lambda uri: uri.replace("p", "\uff50"),
        lambda uri: uri.replace("..", "\uff0e\uff0e"),
        lambda uri: uri.replace("key", "KEY"),
        lambda uri: " " + uri,
        lambda uri: uri + "/file:a/..",
        lambda uri: uri.replace("file:", "FILE:"),
        lambda uri: uri.replace("k", "file://k"),
        lambda uri: uri.replace("/p", "/q?%2fy/../p"),
        lambda uri: uri + ";v=1",
        lambda uri: uri + "%3Bx",
        lambda uri: uri.replace("p", "%u0070"),
        lambda uri: uri.replace("k", "%U006B"),
        lambda uri: uri.replace("p", "%uff50", 1),
        lambda uri: uri.replace("p", "%uD835%uDC29", 1),
        lambda uri: uri.replace("/", "%u002f"),
        lambda uri: uri.replace("/", "%u005C", 1),
        lambda uri: uri.replace(":", "%u003A", 1),
        lambda uri: uri.replace(".", "%u002e"),
        lambda uri: uri.replace("%", "%u0025"),
        lambda uri: uri.replace("u", "%75"),
        lambda uri: uri + "%u003bx",
        lambda uri: uri + "%3%62x",
        lambda uri: uri + "%u0000",
        lambda uri: uri.replace("p", "%C1%B0"),
        lambda uri: uri.replace("k", "%E0%81%AB"),
        lambda uri: uri.replace("e", "%F0%80%81%A5"),
        lambda uri: uri.replace(".", "%c0%ae"),
        lambda uri: uri.replace("/", "%c0%af", 1),
        lambda uri: uri.replace("/", "%c1%9c", 1),
        lambda uri: uri.replace("/", "%c1%1c", 1),
        lambda uri: uri.replace("%", "%c0%a5"),
        lambda uri: uri.replace("p", "%FFp"),
        lambda uri: uri.replace("e", "%E9e", 1),
        lambda uri: uri.replace("k", "%u00ADk", 1),
        lambda uri: uri.replace("k", "%ADk", 1),
    ]
)


def _on_top(uri: str, leniencies: list[Callable[[str], str]]) -> str:
    for each in leniencies:
        uri = each(uri)
    return uri


_of_files = st.builds(
    lambda slashes, user, host, port, joint, path: f"file:{slashes}{user}{host}{port}{joint}{path}",
    _slashes,
    _users,
    _hosts,
    _ports,
    _joints,
    st.sampled_from(["p/key", "q/../p/key", "p//key", "p/./key"]),
)
_uris = st.one_of(
    _plain_uris, _of_http, st.builds(_on_top, _of_files | _plain_uris, st.lists(_leniencies, min_size=1, max_size=3))
)


@pytest.mark.promise("b.attacks.uris")
@given(_uris)
@example("fil\te://:p%2Fkey/p/key")  # what is left out first stands beside another leniency
@example("fil\te://\\p/p/key")
@example(" notes://private:\\p/key")
@example("notes://private%3A80\\p/key?x")
@example("notes://%u0070rivate/key")
@example("file:///%C1%B0/key")
@example("notes://%70rivate:\\%FFp/key/key")
@example("notes://:\\%FFp/%FFprivate/key")
@settings(max_examples=500, deadline=None)
def test_what_any_reader_takes_for_a_closed_resource_is_closed(uri: str) -> None:
    _held(uri)


@pytest.mark.attack
@pytest.mark.timeout(900)
@given(_uris)
@settings(max_examples=50_000, deadline=None)
def test_what_any_reader_takes_for_a_closed_resource_is_closed_at_length(uri: str) -> None:
    _held(uri)


def _held(uri: str) -> None:
    for text, how in as_decoded(uri).items():
        for reader in READERS:
            if reader(text) in PROTECTED:
                assert is_closed(uri), f"{reader.__name__}{how} reads {uri!r} as {reader(text)}"
                assert is_closed(uri, EXACT), f"{reader.__name__}{how} reads {uri!r} as {reader(text)}"
                break


NODE = """
const lines = require("fs").readFileSync(0, "utf8").split("\\n");
console.log(JSON.stringify(lines.map(line => {
  try {
    const found = new URL(JSON.parse(line));
    return [found.protocol.slice(0, -1), found.hostname, found.pathname];
  } catch { return null; }
})));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="there is no Node here")
def test_unescape_is_read_here_as_node_does() -> None:
    given_lines = "\n".join(map(json.dumps, found := [*WHOSE_READER_DECODES_MORE, "%u00e9%E9%u00E%uD835%uDC29%U0070"]))
    found_there = "{pathname: unescape(JSON.parse(line)), hostname: '', protocol: ''}"
    script = NODE.replace("new URL(JSON.parse(line))", found_there)
    ended = subprocess.run(["node", "-e", script], input=given_lines, capture_output=True, text=True, timeout=60)
    assert [each[2] for each in json.loads(ended.stdout)] == list(map(by_unescape, found))


@pytest.mark.promise("b.attacks.uris")
@pytest.mark.skipif(not shutil.which("node"), reason="there is no Node here")
def test_what_node_takes_for_a_closed_resource_is_closed() -> None:
    found: list[str] = []

    @given(_uris)
    @settings(max_examples=2000, deadline=None, database=None)
    def gather(uri: str) -> None:
        found.append(uri)

    gather()
    found += AUTHORITIES + VARIATIONS
    given_lines = "\n".join(map(json.dumps, found))
    ended = subprocess.run(["node", "-e", NODE], input=given_lines, capture_output=True, text=True, timeout=60)
    for uri, read in zip(found, json.loads(ended.stdout), strict=True):
        if read is None:
            continue
        scheme, host, path = read
        name = _path(path) if scheme == "file" else _path(f"/{host}{path}")
        if (scheme, name) in PROTECTED:
            assert is_closed(uri) and is_closed(uri, EXACT), f"Node reads {uri!r} as {read}"


@pytest.mark.parametrize(
    "uri", ["memo:///insights", "memo://insights", "urn:isbn:1", "mail:Ann@h/x", "https://h/p/key"]
)
def test_who_closes_all_files_closes_nothing_else(uri: str) -> None:
    closed = {"docs+file:///*": "off"}
    assert not is_closed(uri, closed)
    assert is_closed("file:///etc/passwd", closed) and is_closed("/etc/passwd", closed)


@pytest.mark.parametrize("rest", ["{a}/", "{a}", "{a}b{c}"])
def test_a_template_without_end_is_read_as_far_as_a_uri_is_like_it(monkeypatch: pytest.MonkeyPatch, rest: str) -> None:
    """A server chooses how long its templates are, and each read of a URI without a server's name looks at all."""
    found = list[int]()

    class Counted:
        def finditer(self, template: str) -> Any:
            for each in expressions.finditer(template):
                found.append(each.start())
                yield each

    expressions = uris._EXPRESSIONS  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(uris, "_EXPRESSIONS", Counted())
    uris.is_made_by("evil://" + rest * 5000, "evil://abc")
    assert len(found) <= len("evil://abc")
    found.clear()
    assert not uris.is_made_by("evil://" + rest * 5000, "file:///abc/abc/abc")
    assert len(found) == 1
