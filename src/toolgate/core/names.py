"""Names on aggregating surfaces: `server__tool`, `server+uri`, and back (behaviour.md section 1);
and which name somebody may have meant.

The rule this file keeps: every name that `join_*` makes is split back to the same pair, and a server id
never contains `__` or `+`, so that a split is a look-up.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import cast

from toolgate.core import surrogates
from toolgate.core.spelling import as_seen

SEPARATOR = "__"
OWN = "toolgate"  # the id of the gateway itself, as a server
OWN_SCHEME = "mcp://"
TASKS, SCRIPTS = "gobby-tasks", "gobby-scripts"
DIGEST = "toolgate/sha256"  # in the `_meta` of a stored script as it is listed: the hash of its text
INTERNAL = (TASKS, SCRIPTS)  # servers that the gateway has itself, under names that no other may have (seed 004)
INTERNAL_PREFIX = "gobby-"  # of their ids
LONGEST = 64  # a limit of common model APIs on a tool's name
_not_slug = re.compile(r"[^a-z0-9]+")
_needs_letter = re.compile("s*[0-9]")
_ui = "ui://"


def slug(name: str) -> str:
    """The id of a configured name: "My MCP Server" → "my-mcp-server". Empty where nothing is left."""
    return _not_slug.sub("-", name.lower()).strip("-")


def spellings(name: str) -> tuple[str, str, str]:
    """What a server may be looked up by: its id, its configured name, the name in snake_case."""
    id = slug(name)
    return id, name, id.replace("-", "_")


def did_you_mean(near: Sequence[str]) -> str:
    return f"did you mean {' or '.join(near)}?" if near else ""


def join_name(server: str, name: str) -> str:
    """The namespaced name, shortened with a hash where it is over 64 characters."""
    whole = server + SEPARATOR + name
    return whole if len(whole) <= LONGEST else _shortened(whole, 0)


def join_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """The namespaced names of all of a server's tools, by its own. No two are one, and each is the same in whatever
    order the server lists them: what need not be shortened has its name, and of those that would be shortened to one
    the first in the alphabet has it."""
    joined = {name: join_name(server, name) for name in names}
    if len(set(joined.values())) == len(joined):
        return joined
    taken = {whole for name, whole in joined.items() if whole == server + SEPARATOR + name}
    for name in sorted(joined):
        whole, attempt = server + SEPARATOR + name, 0
        while joined[name] in taken and joined[name] != whole:
            attempt += 1
            joined[name] = _shortened(whole, attempt)
        taken.add(joined[name])
    return joined


def _shortened(whole: str, attempt: int) -> str:
    """Where the server's id is too long to be kept, another one may begin alike: then the digest tells them apart, and
    is so long that no server finds a name of its own with the digest of another's."""
    salted = f"{whole}#{attempt}" if attempt else whole
    length = _DIGITS if SEPARATOR in whole[: LONGEST - 1 - _DIGITS] else _DIGITS_ALONE
    return f"{whole[: LONGEST - 1 - length]}_{_digest(salted)[:length]}"


_DIGITS, _DIGITS_ALONE = 8, 32  # hexadecimal


def _digest(text: str) -> str:
    return hashlib.sha256(surrogates.utf8(text)).hexdigest()


def matches(pattern: str, server: str, name: str) -> bool:
    """Whether a pattern, a namespaced name or the beginning of some with `*` behind it, means this tool."""
    whole = server + SEPARATOR + name
    return whole.startswith(pattern[:-1]) if pattern.endswith("*") else whole == pattern


def matcher(patterns: Iterable[str]) -> Callable[[str, str], bool]:
    """Whether any of these means a tool, in the time that one takes: there may be many, and many tools."""
    wanted = tuple(patterns)
    whole = frozenset(each for each in wanted if not each.endswith("*"))
    begun = tuple(each[:-1] for each in wanted if each.endswith("*"))

    def means(server: str, name: str) -> bool:
        found = server + SEPARATOR + name
        return found in whole or found.startswith(begun)

    return means


def fits(parts: Sequence[str], name: str) -> bool:
    """Whether a name fits a pattern that is taken apart where any text may stand. One part is a name in full."""
    first, *between = parts
    if not between:
        return name == first
    last = between.pop()
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    reached, end = len(first), len(name) - len(last)
    for part in between:
        found = name.find(part, reached, end)
        if found < 0:
            return False
        reached = found + len(part)
    return True


def meant(pattern: str, servers: Collection[str]) -> list[str]:
    """The servers whose tools a pattern can match. None: the pattern is a mistake."""
    if not pattern.endswith("*") or SEPARATOR in pattern:
        split = split_name(pattern, servers)
        return [split[0]] if split else []
    return [server for server in servers if (server + SEPARATOR).startswith(pattern[:-1])]


def near(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """What may have been meant by a name that is not known, the likeliest first: what is about as long, and has most of
    its letters and pairs of letters. Servers choose names, so only so much of them is compared, whatever they are:
    first those that begin as this one does."""
    return [*_near(name[:LONGEST_COMPARED], tuple(itertools.islice(known, MOST_LOOKED_AT)), most)]


@lru_cache(2)  # what is not there is looked for twice in a call
def _near(name: str, known: tuple[str, ...], most: int) -> list[str]:
    shortest, longest, beginning = len(name) // 3, min(3 * len(name), LONGEST_COMPARED), name[: len(name) // 2]
    likely = [each for each in known if shortest <= len(each) <= longest]
    likely.sort(key=lambda each: not each.startswith(beginning))
    own, left = _parts(name), MOST_COMPARED
    found: list[tuple[float, str]] = []
    for each in likely:
        left -= _NAME + len(each)
        if left < 0:
            break
        parts = _parts(each)
        likeness = 2 * len(own & parts) / (len(own) + len(parts))
        if likeness >= _ALIKE:
            found.append((likeness, each))
    return [each for _, each in heapq.nlargest(most, found)]


def _parts(name: str) -> set[object]:
    """Its letters, and the pairs of them with the two ends."""
    name = name.lower()
    return {*name, *itertools.pairwise(("", *name, ""))}


LONGEST_COMPARED = 200  # characters
MOST_LOOKED_AT = 20_000  # names
MOST_COMPARED = 8 * 1024  # characters of all names together: some milliseconds
_NAME = 16  # characters that each counts for beside its own
_ALIKE = 0.6  # of what two names are made of, what both have


def split_name(whole: str, servers: Collection[str], known: Mapping[str, str] = {}) -> tuple[str, str] | None:
    """(server, the rest); None where no server is named. `servers` are ids; where they have the configured names with
    them, a server may be written as it is configured, and in snake_case. `known` are those that there are besides: a
    name that means one of them means none of these. It costs the same however many there are."""
    id, separator, rest = whole.partition(SEPARATOR)
    if not separator:
        return None
    if id in servers:
        return id, rest
    if id in known or not isinstance(servers, Mapping):
        return None
    found = _split_otherwise(whole, cast("Mapping[str, str]", servers), known)
    return found if found and found[0] in servers else None


def _split_otherwise(whole: str, servers: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, str] | None:
    """By another spelling of a server's name, the longest, which may have the separator in it."""
    parts = whole.split(SEPARATOR, MOST_SEPARATORS)
    for end in range(len(parts) - 1, 0, -1):
        written = SEPARATOR.join(parts[:end])
        id = slug(written) if len(written) <= LONGEST_COMPARED else ""
        name = servers.get(id) or known.get(id)
        if name is not None and written in spellings(name):
            return id, SEPARATOR.join(parts[end:])
    return None


MOST_SEPARATORS = 8  # in a configured name, and one behind it


def join_uri(server: str, uri: str) -> str:
    """`docs` and `file:///a` → `docs+file:///a`. A `ui://` URI keeps its scheme, so that hosts of MCP Apps know it."""
    scheme = _scheme(server)
    if uri.startswith(_ui):
        return f"{_ui}{scheme}+{uri[len(_ui) :]}"
    return f"{scheme}+{uri}"


def split_uri(whole: str, servers: Collection[str], known: Mapping[str, str] = {}) -> tuple[str, str] | None:
    """(server, the server's own URI) for `server+uri`, `ui://server+rest` and `server__uri`; None for a bare URI.
    `known` as in `split_name`."""
    ui = whole.startswith(_ui)
    rest = whole[len(_ui) :] if ui else whole
    scheme, plus, own = rest.partition("+")
    server = scheme[1:] if _needs_letter.match(scheme) else scheme
    if plus and server in servers:
        return server, _ui + own if ui else own
    return split_name(whole, servers, known)


def place_of(via: str) -> tuple[str, str]:
    """The server and tool that a call came through: a control tool of the gateway, or a stored script that made it."""
    server, separator, tool = via.partition(SEPARATOR)
    return (server, tool) if separator and server == SCRIPTS else (OWN, via)


def says_whose(whole: str, servers: Mapping[str, str], is_uri: bool = False) -> bool:
    """Whether a name begins as those of one of these servers do, of the gateway itself, or of one that it has itself,
    in any spelling that has the same id, or looks so. Nobody's own name does."""
    if _says_whose(whole, servers, is_uri):
        return True
    seen = as_seen(whole)
    return bool(seen) and any(_says_whose(each, servers, is_uri) for each in seen)


def _says_whose(whole: str, servers: Mapping[str, str], is_uri: bool) -> bool:
    if not is_uri and SEPARATOR not in whole:
        return False
    rest = whole.removeprefix(_ui) if is_uri else whole
    if is_uri and rest.startswith(OWN_SCHEME):
        return True
    parts = rest.split(SEPARATOR, MOST_SEPARATORS)
    begins = [SEPARATOR.join(parts[:end]) for end in range(1, len(parts))]
    if is_uri:
        scheme, plus, _ = rest.partition("+")
        begins = [each for each in (*begins, scheme if plus else "") if ":" not in each]
        begins += [each[1:] for each in begins if _needs_letter.match(each)]
    ids = {slug(each) for each in begins if len(each) <= LONGEST_COMPARED}
    return any(id in servers or id == OWN or id.startswith(INTERNAL_PREFIX) for id in ids)


def is_one_of(slugs: Collection[str], name: str) -> bool:
    """Whether a name is one of these in any spelling, or looks so."""
    return slug(name) in slugs or any(slug(each) in slugs for each in as_seen(name))


def _scheme(server: str) -> str:
    """A scheme begins with a letter. What would look like such a one (`s1x` beside `1x`) gets another."""
    return "s" + server if _needs_letter.match(server) else server
