"""What servers may take a URI for: its readings, by all who take one apart in another order or more leniently.

The rule this file keeps: each reading is made once, and what is too long to be read in every way is obscure.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar
from urllib.parse import unquote

from toolgate.auth import hosts
from toolgate.core.spelling import as_a_lenient_reader, normalized

_Form = TypeVar("_Form")
_MOST_DECODED = 5  # times over that a URI may be percent-encoded
LONGEST_URI = 2048  # characters; what a longer one means is not looked for
MOST_LOOKED_AT = 5 * 1024  # characters of all the URIs that may be found in one: each is read in dozens of ways
MOST_BEYOND = 512  # of them beyond ASCII, decoded and as they fold: each costs fifty times as much, in each reading
WORK = 54  # times that a character which is not ASCII is looked at: it may become eighteen, and is folded three times
_MOST_FOLDED = 256 * 1024  # characters of all readings of one URI
_DEARER = 24  # times that one is to read that is not ASCII
_MOST_FORMS = 64  # readings of a URI that readers take apart in different orders, in about
_MOST_WITHIN = 6  # URIs of files that servers may find in one; more of them mean nothing
_MOST_UNQUOTED = 16  # URIs of which it is remembered, since the readings of one are decoded again and again
_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}  # schemes that always have a host
_BEHIND_A_DRIVE = 4  # slashes before the first segment that `..` takes back there
_HERE = ("", "localhost", "127.0.0.1", "[::1]")
_file = re.compile("file:")
_wide = re.compile("%[uU]([0-9A-Fa-f]{4})")  # `unescape` of JavaScript and `UrlDecode` of .NET decode these; some `%U`
_no_utf8 = r"\ud800-\udfff"  # bytes that are none, as `surrogateescape` keeps them, and halves of characters
_overlong = re.compile(
    r"[\udcc0\udcc1]|\udce0[\udc80-\udc9f]|\udced[\udca0-\udcbf]|\udcf0[\udc80-\udc8f]|\udcf8[\udc80-\udc87]"
    r"|\udcfc[\udc80-\udc83]|[\udc80\udc90\udca0\udcb0\udce0\udcf0\udcf8\udcfc][\0\1@A\udc80\udc81]"
    r"|[\udcaa\udcb2\udcb3\udcb9\udcba]"
)
"""Bytes that are no UTF-8, and ASCII to some: in longer forms than need be, with anything for the bytes that continue
one, by surrogates, or as Latin-1 (`\xaa` folds to `a`)."""
_UNREADABLE = "\ufffd"
_not_utf8 = re.compile(f"[{_no_utf8}]")  # bytes that some leave out: beside a backslash there is no end to what is made
_unseen = re.compile(rf"[\x00-\x1f\x7f{_no_utf8}]")  # what URL parsers leave out, and decoders
_hidden = re.compile(rf"[\x01-\x1f\x7f{_no_utf8}]")  # the same but for the end of a string in C, which cuts
_parts = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/*)([^/?#]*)(.*)", re.DOTALL)
_dot = re.compile("%2e", re.IGNORECASE)  # URL parsers decode no more than this
_drive = re.compile(r"(?<=/)([A-Za-z])[:|](?=/|$)")  # a segment that URL parsers take for a drive of Windows
_plain_enough = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^:?#%;\\\x00-\x20\x7f-\U0010ffff]*")
"""What all readers resolve `..` of to the same, or to one of a few."""
_parameters = re.compile(  # of its last segment; each segment is looked at once, however many it may have
    r"(?<![^/?#])(?>([^/?#]*?)(?:;|%(?:25)*(?:u00)?3b))[^/?#]*+(?=[?#]|$)", re.IGNORECASE
)
_differs = re.compile(r"[%\\]|/\.")  # what readers take apart in different orders


def forms(uri: str) -> tuple[str, ...]:
    """A URI, and what a server may take it for: decoded, its host as URL parsers write it, its dots resolved, without
    what follows its path. What a permission says of any of them, it says of the URI."""
    found = _once(form for each in _visible(uri) for form in (each, *_forms(each), *_apart(each)))
    return tuple(_once((*found, *(each for form in found for each in _with_hosts_read(form)))))


def _visible(uri: str) -> Iterable[str]:
    """As it is, and without what some leave out before they do anything else."""
    found = _once((*_bare_of_own_scheme(uri), *_bare_of_own_scheme(_without_hidden(uri))))
    bare = _once(_parameters.sub(r"\1", each) for each in found)
    decoded = (_unquoted(each) for each in bare if "%" in each)
    return _once((*found, *bare, *(_parameters.sub(r"\1", each) for each in decoded if ";" in each)))


def _bare_of_own_scheme(uri: str) -> Iterable[str]:
    """Also as who takes its scheme out has it, wherever that stands (`uri.replace("notes://", "")`)."""
    scheme, found, rest = uri.partition("://")
    own = scheme + found
    return (uri, own + _taken_out(rest, own)) if found and own in rest else (uri,)


def _taken_out(text: str, what: str) -> str:
    """Again and again, as often as more of it may be made by that."""
    for _ in range(_MOST_WITHIN):
        text = text.replace(what, "")
    return text


def _apart(uri: str) -> Iterable[str]:
    return _decoded_last(uri) if _differs.search(uri) else ()


def work_of(uri: str) -> int:
    """How many characters are looked at, in about, to read it in every way."""
    if is_too_long(uri):
        return len(uri)
    return sum(
        len(each) * (_MOST_FORMS if _differs.search(each) else 4) * (1 if each.isascii() else WORK)
        for each in (*_visible(uri), *_within(uri))
    )


def times(uri: str) -> int:
    """How many URIs are read in every way, to read one."""
    return 1 if is_too_long(uri) else len((*_visible(uri), *_within(uri)))


def folded_files(uri: str, found: Iterable[str]) -> Iterable[str] | None:
    """The same as `as_files`, in the spelling of who minds neither case nor width; None where that would take too
    long."""
    left = _MOST_FOLDED
    files: dict[str, None] = {}
    for file in as_files(uri, found):
        if file not in files:
            files[file] = None
            left -= len(file) if file.isascii() else _DEARER * len(file)
            if left < 0:
                return None
    return dict.fromkeys(as_a_lenient_reader(each) for each in files)


def as_files(uri: str, found: Iterable[str]) -> Iterable[str]:
    """What a server of files takes a URI for, of which `found` are the forms: also one without a scheme, or with
    another one before `file:`. What follows is read in every way again: who is lenient there is so elsewhere too."""
    for form in itertools.chain(found, (each for file in _within(uri) for each in forms(file))):
        yield from _as_a_file(form)


def _as_a_file(uri: str) -> Iterable[str]:
    """What has a scheme of its own is no file: `urn:a` stays open where all files are closed."""
    before, scheme, path = uri.rpartition("file:")
    if scheme:
        yield from (uri,) if not before else ("file:///" + path.lstrip("/"), uri)
    elif not _parts.fullmatch(uri):
        yield "file:///" + uri.lstrip("/")


@functools.lru_cache(_MOST_UNQUOTED)
def _within(uri: str) -> tuple[str, ...]:
    """The URIs of files that servers may find in one, beside itself: after they have decoded it and folded its
    characters, which may make a scheme, slashes and dots of what was none. In small letters: of files, case is
    all the same."""
    raw, decoded = _without_hidden(uri.lower()), _without_hidden(_unquoted(uri).lower())
    found: list[str] = []
    for text in _once((raw, decoded, _without_hidden(as_a_lenient_reader(uri)), _without_hidden(_settled(uri)))):
        places = itertools.islice(_file.finditer(text), _MOST_WITHIN + 1)
        found += ("file:" + text[each.end() :] for each in places)
        if not _parts.fullmatch(text):
            found.append("file:" + text)
        found += ("file:///" + _taken_out(text, each).lstrip("/") for each in ("file://", "file:") if each in text[1:])
        if text.startswith("file:") and "://" in text and text[5:7] != "//":
            found.append("file:///" + text.partition("://")[2].lstrip("/"))
    own: tuple[str, ...] = ()  # of which its own forms are, too
    if decoded.isascii():
        own = (uri.lower(), _unquoted(uri).lower()) if _file.match(uri.lower()) else (uri.lower(),)
    return tuple(each for each in _once(found) if each not in own)


def _without_hidden(uri: str) -> str:
    return _hidden.sub("", uri).strip(" ")


def _settled(uri: str) -> str:
    """Decoded and folded until neither changes anything, or as often as it may be encoded."""
    for _ in range(_MOST_DECODED):
        again = as_a_lenient_reader(_unquoted(uri))
        if again == uri:
            break
        uri = again
    return uri


def _decoded_last(uri: str) -> Iterable[str]:
    """The same to who takes it apart first, or resolves its dots first as well: a `/` that is encoded parts nothing
    there, a backslash may be of the host, and `..` may take back an empty segment (WHATWG URL)."""
    dotted = _dot.sub(".", uri)
    bare = [_before(each, "?#") for each in (dotted, dotted.replace("\\", "/"))]
    whole = _once(form for each in _once(bare) for form in (_plain(each), _lenient(each)))
    found: dict[tuple[str, int], None] = {}
    for each, start in itertools.product(whole, _starts(uri)):
        early = (each, _resolved(each, start, nothing=(".",)), _resolved(each, start))
        found |= dict.fromkeys((form, start) for form in early)
    decoded = _once((_decoded(form), start) for form, start in found)
    return _once(each for form, start in decoded for each in _ended(_resolved(form, start), form))


def _before(uri: str, marks: str) -> str:
    """What stands before the first of these."""
    for mark in marks:
        uri = uri.partition(mark)[0]
    return uri


def _ended(resolved: str, uri: str) -> Iterable[str]:
    """With the slash, too, that a URL parser leaves at the end."""
    return (resolved, resolved + "/") if uri.endswith(("/", "/.", "/..")) else (resolved,)


def _forms(uri: str) -> Iterable[str]:
    decoded = _decoded(uri)
    plain = _once(_plain(each) for each in _once((decoded, _decoded(_plain(uri)))))
    bare = _once(_plain(_before(each, "?#\0")) for each in _once((decoded, *plain)))
    kept = _unquoted(uri)  # some take a backslash as host
    lenient = _once(_lenient(each) for each in _once((*plain, *bare, kept, _before(kept, "?#\0"))))
    starts = _starts(uri)
    resolved = _once(_resolved(each, start) for each in _once((*plain, *bare, *lenient)) for start in starts)
    return decoded, *resolved, *plain, *lenient


def _once(each: Iterable[_Form]) -> Iterable[_Form]:
    """Most ways of reading a URI come to the same, and each reading costs what the URI is long."""
    return dict.fromkeys(each)


def is_too_long(uri: str) -> bool:
    """Whether what it means is not looked for, because that would take too long. Tells soon."""
    if len(uri) > LONGEST_URI:
        return True
    if uri.isascii() and "%" not in uri:
        return False
    beyond = re.sub(r"[\x00-\x7f]+", "", _unquoted(uri))
    return len(beyond) > MOST_BEYOND or len(normalized(beyond)) > MOST_BEYOND


def is_obscure(uri: str) -> bool:
    """Whether it is so long, or so often encoded, that what it means is not looked for; or its host cannot be read, or
    where its `..` lead depends on who reads it: with an encoded slash, a `?` or the like before them; or it has bytes
    that are ASCII to some, and left out, or no character at all, to others; or such bytes beside a backslash."""
    if is_too_long(uri) or _UNREADABLE in (found := _unquoted(uri)) or _unquote(found) != found:
        return True
    if len(uri) * times(uri) > MOST_LOOKED_AT or ("\\" in found and _not_utf8.search(found)):
        return True
    if len(_within(uri)) > _MOST_WITHIN or _UNREADABLE in (settled := _settled(uri)) or _unquote(settled) != settled:
        return True
    if not _plain_enough.fullmatch(uri) and ".." in re.split(r"[/\\?#;]", _unseen.sub("", settled)):
        return True
    found = None if found.isascii() else _parts.fullmatch(_plain(found))
    return bool(found and hosts.is_unknown(found[3]))


def _with_hosts_read(uri: str) -> Iterable[str]:
    """With its host in the one form that all of its spellings have."""
    found = _parts.fullmatch(uri)
    if found and found[2] == "//" and found[3]:
        scheme, path = found[1].lower(), found[4]
        if scheme == "file" and _drive.fullmatch("/" + found[3], 1):
            yield f"file:///{found[3][0]}:{path}"
        if scheme in _PORTS and not path.startswith("/"):
            path = "/" + path
        for host in hosts.readings(found[3], _PORTS.get(scheme, "")):
            yield f"{scheme}://{host}{path}"


@functools.lru_cache(_MOST_UNQUOTED)
def _unquoted(uri: str) -> str:
    for _ in range(_MOST_DECODED):
        again = _unquote(uri)
        if again == uri:
            break
        uri = again
    return uri


def _unquote(uri: str) -> str:
    """Once, by all ways of encoding a character. Of bytes that are no UTF-8 it keeps which they are: they may become
    something with others that were encoded more often."""
    if "%" not in uri:
        return uri
    if "%u" in uri or "%U" in uri:
        uri = _wide.sub(lambda found: chr(int(found[1], 16)), uri)
        uri = uri.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # two halves are one character
    uri = unquote(uri, errors="surrogateescape")
    return uri if uri.isascii() else _overlong.sub(_UNREADABLE, uri)


def _decoded(uri: str) -> str:
    decoded = _unquoted(uri).replace("\\", "/").strip(" ")
    scheme, colon, rest = decoded.partition(":")
    return scheme.lower() + colon + rest if colon and scheme.isascii() and "/" not in scheme else decoded


def _plain(uri: str) -> str:
    """As a URL parser writes it (WHATWG URL): without what is not seen, a user, a port that goes without saying, and in
    small letters up to its path; `file:/a` and `file://localhost/a` are `file:///a`."""
    uri = _unseen.sub("", uri).strip(" ").replace("\\", "/")
    found = _parts.fullmatch(uri)
    if not found:
        return uri
    scheme, slashes, host, rest = found[1].lower(), found[2], found[3].rpartition("@")[2].lower(), found[4]
    if scheme == "file":
        if slashes != "//":
            host, rest = "", found[3] + rest
        rest = _drive.sub(r"\1:", "/" + rest)[1:]
        return f"file://{host}{rest}" if host not in _HERE else "file:///" + rest.lstrip("/")
    if scheme not in _PORTS and slashes != "//":
        return f"{scheme}:{slashes}{found[3]}{rest}"
    host = host.removesuffix(":" + _PORTS.get(scheme, "")).removesuffix(":").rstrip(".")
    return f"{scheme}://{host}{rest}"


def _lenient(uri: str) -> str:
    """As a server takes it that looks at nothing it needs not: of `file:` the path alone, whatever host stands there;
    elsewhere the host without user and port. How many slashes there are is all the same to it; where there are none,
    colons and `@` are of the name (`urn:a:b`). Ports of schemes that go by them mean something."""
    found = _parts.fullmatch(uri)
    if not found:
        return uri
    scheme, host, rest = found[1].lower(), found[3], found[4]
    if scheme == "file":
        return "file:///" + (rest if found[2] == "//" else host + rest).lstrip("/")
    host = (host.rpartition("@")[2] if found[2] else host).lower()
    if found[2] and scheme not in _PORTS:
        bracketed, bracket, port = host.rpartition("]")
        host = (bracketed + bracket + port.partition(":")[0]).rstrip(".")
    return f"{scheme}://{host}{rest}"


def _starts(uri: str) -> Sequence[int]:
    seen = _unseen.sub("", _unquoted(uri)).replace("\\", "/")
    return (2, 3, _BEHIND_A_DRIVE) if _drive.search(seen) else (2, 3)


def _resolved(uri: str, start: int, nothing: Sequence[str] = (".", "")) -> str:
    """Without `.`, `..` and empty segments. `start`: where the path begins, behind the host or with it; or where `..`
    may not take back a drive letter. `nothing`: the segments that `..` passes over."""
    parts = uri.split("/")
    if len(parts) > 2 and parts[0].endswith(":") and not parts[1]:
        head, path = parts[: min(start, 3)], parts[min(start, 3) :]
    else:
        head, path = parts[:1], parts[1:]
    kept = [] if ".." in path else [part for part in path if part != "."]
    for part in path if ".." in path else ():
        if part == "..":
            if start != _BEHIND_A_DRIVE or len(kept) != 1 or not _drive.fullmatch("/" + kept[0], 1):
                del kept[-1:]
        elif part not in nothing:
            kept.append(part)
    return "/".join((*head, *filter(None, kept)))
