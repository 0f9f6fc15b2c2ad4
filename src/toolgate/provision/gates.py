"""The gates that a server passes before toolgate installs it by itself. All are needed, and all are told.

The rule this file keeps: what is not known is not passed. Facts that come with the bundled list count for its own
entries; a registry's word counts for nothing but what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from toolgate.core import names
from toolgate.provision.entries import Entry, Package
from toolgate.provision.packages import Facts

LEAST_CONFIDENCE = 0.9

Name: TypeAlias = Literal[
    "allowed", "active", "trusted", "owned", "pinned", "aged", "hashed", "plain", "configured", "confident"
]


class Gate(msgspec.Struct, frozen=True):
    """`why` it is passed or not; `fix` is what its reader can do."""

    name: Name
    passed: bool
    why: str
    fix: str = ""


class Given(msgspec.Struct, frozen=True):
    """What the gates go by. `refused` says why this client may not have servers installed, empty where it may; `facts`
    are None where they are not known, and `unknown` says why. `references` are what the configuration has for each
    variable that is needed, empty for none. `least_age` in seconds, `now` in seconds since 1970. `as_good` are names of
    others that fit as well."""

    confidence: float
    trusted: Sequence[str]
    least_age: float
    now: float
    refused: str = ""
    facts: Facts | None = None
    unknown: str = ""
    references: Mapping[str, str] = {}
    as_good: Sequence[str] = ()


def judged(entry: Entry, given: Given) -> tuple[Gate, ...]:
    """Each gate, in the order in which they are told."""
    return tuple(_judged(entry, entry.package, given))


def _judged(entry: Entry, package: Package | None, given: Given) -> Iterator[Gate]:
    yield _allowed(given)
    yield _active(entry, given)
    yield _trusted(entry, given)
    yield _owned(entry, given)
    yield _pinned(entry, package)
    yield _aged(entry, package, given)
    yield _hashed(entry, package, given)
    yield _plain(entry, package)
    yield _configured(package, given)
    yield _confident(given)


def _allowed(given: Given) -> Gate:
    fix = "an administrator can provision it: toolgate provision"
    return Gate("allowed", not given.refused, given.refused or "this client may have servers installed", fix)


def _active(entry: Entry, given: Given) -> Gate:
    if entry.status != "active":
        said = f": {entry.message}" if entry.message else ""
        return Gate("active", False, f"its registry calls it {entry.status}{said}", "choose another server")
    if given.facts and given.facts.withdrawn:
        return Gate("active", False, f"this version was withdrawn: {given.facts.withdrawn}", "choose another version")
    return Gate("active", True, "it is active")


def is_trusted(entry: Entry, patterns: Sequence[str], owners: Sequence[str]) -> bool:
    """Whether one of the patterns covers its publisher. The namespace of a registry was proven to that registry; a
    package proves nothing for an entry that only names it, until it says itself whose it is."""
    package, is_of_package = entry.package, entry.is_bundled or entry.name in owners
    known_as = [entry.name] if entry.is_bundled or "/" in entry.name else []
    if package and is_of_package:
        known_as += [f"{package.kind}:{package.name}", *([package.name] if package.name.startswith("@") else [])]
    return any(_covers(pattern, name) for pattern in patterns for name in known_as)


def _covers(pattern: str, name: str) -> bool:
    if pattern.endswith("/*"):
        return name.startswith(pattern[:-1]) and len(name) >= len(pattern)
    return name == pattern


def _trusted(entry: Entry, given: Given) -> Gate:
    owners = given.facts.owners if given.facts else ()
    if is_trusted(entry, given.trusted, owners):
        return Gate("trusted", True, "its publisher is in provision.trusted")
    publisher = entry.namespace or (f"{entry.package.kind}:{entry.package.name}" if entry.package else entry.name)
    why = f"its publisher, {publisher}, is not in provision.trusted"
    close = _lookalike(entry, given.trusted)
    if close:
        return Gate(
            "trusted", False, f"{why}; its name looks like {close}, which is", "make sure that it is not a copy"
        )
    return Gate("trusted", False, why, "the operator can add its namespace to provision.trusted")


def _lookalike(entry: Entry, trusted: Sequence[str]) -> str:
    """A trusted namespace that this is not, and that a hasty reader would take it for."""
    own = {entry.namespace.lstrip("@"), (entry.package.name.partition("/")[0] if entry.package else "").lstrip("@")}
    for pattern in trusted:
        namespace = pattern.partition("/")[0].lstrip("@")
        if any(each and each != namespace and _skeleton(each) == _skeleton(namespace) for each in own):
            return pattern
        if namespace not in own and any(names.near(each, [namespace], 1) for each in own if each):
            return pattern
    return ""


def _skeleton(name: str) -> str:
    """Names of one skeleton look alike, as far as ASCII goes."""
    return name.lower().translate(_ALIKE).replace("rn", "m").replace("vv", "w")


_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "2": "z", "-": None, "_": None, ".": None})


def _owned(entry: Entry, given: Given) -> Gate:
    if entry.is_bundled:
        return Gate("owned", True, "the package was checked for the bundled list")
    if entry.package is None:
        return Gate("owned", False, "it has no package of npm or PyPI", _BY_HAND)
    if given.facts is None:
        return _unknown("owned", given)
    if entry.name in given.facts.owners:
        return Gate("owned", True, "the package says that it is this server")
    said = ", ".join(given.facts.owners[:3])
    why = f"the package says that it is {said}" if said else f"the package does not say that it is {entry.name}"
    return Gate("owned", False, why if not given.facts.unowned else given.facts.unowned, _NOT_THEIRS)


def _pinned(entry: Entry, package: Package | None) -> Gate:
    if package is None:
        where = "somebody else runs it, and may change it" if entry.remote else "it has no package of npm or PyPI"
        return Gate("pinned", False, f"it has no version that can be pinned: {where}", _BY_HAND)
    if not package.version:
        return Gate("pinned", False, "its entry names no exact version", "choose an exact version yourself")
    return Gate("pinned", True, f"version {package.version}, exactly")


def _aged(entry: Entry, package: Package | None, given: Given) -> Gate:
    least = given.least_age
    published = given.facts.published if given.facts else package.published if package and entry.is_bundled else 0.0
    if not published:
        return _unknown("aged", given) if given.facts is None else Gate("aged", False, "its age is not known", _BY_HAND)
    age = given.now - published
    if age < least:
        when = f"try again in {_spoken(least - age)}, or lower provision.minimum_age"
        return Gate("aged", False, f"this version is {_spoken(max(age, 0))} old, less than {_spoken(least)}", when)
    return Gate("aged", True, f"this version is {_spoken(age)} old")


def _spoken(seconds: float) -> str:
    days, hours = divmod(int(seconds) // 3600, 24)
    return f"{days} days" if days > 1 else f"{days * 24 + hours} hours"


def _hashed(entry: Entry, package: Package | None, given: Given) -> Gate:
    attested = package.hash if package else ""
    stated = given.facts.hash if given.facts else ""
    if given.facts and not stated:
        return Gate("hashed", False, "its registry states no hash that can be checked", _BY_HAND)
    if given.facts and attested and attested not in (stated, *given.facts.others):
        why = "the package has another hash than its entry says"
        return Gate("hashed", False, why, "do not install it: it may have been exchanged")
    if stated or (attested and entry.is_bundled):
        return Gate("hashed", True, f"its hash begins with {(stated or attested)[:23]}")
    return _unknown("hashed", given)


def _plain(entry: Entry, package: Package | None) -> Gate:
    """Arguments and values are instructions, too, and a registry's are anybody's who may publish there."""
    if package is None:
        return Gate("plain", False, "there is no package to start", _BY_HAND)
    if entry.asks_for:
        return Gate("plain", False, f"its entry wants {' and '.join(entry.asks_for)}", _BY_HAND)
    return Gate("plain", True, "it starts by its package alone")


def _configured(package: Package | None, given: Given) -> Gate:
    """What the gateway has in its environment goes to entries of the bundled list only: see `Provisioning`."""
    needed = [each.name for each in package.variables if each.required] if package else []
    missing = [name for name in needed if not given.references.get(name)]
    if missing:
        fix = f"set {missing[0]} for the gateway, or store it: toolgate secrets set {missing[0]}"
        return Gate("configured", False, f"it needs {', '.join(missing[:5])}", fix)
    return Gate("configured", True, f"it has {', '.join(needed)}" if needed else "it needs no variables")


def _confident(given: Given) -> Gate:
    shown = f"{given.confidence:.2f}"
    if given.confidence < LEAST_CONFIDENCE:
        why = f"it may not be what was meant: confidence {shown}, less than {LEAST_CONFIDENCE}"
        return Gate("confident", False, why, "describe more exactly what you need")
    if given.as_good:
        return Gate("confident", False, f"{given.as_good[0]} fits as well", "a person can choose: toolgate provision")
    return Gate("confident", True, f"confidence {shown}")


def _unknown(name: Name, given: Given) -> Gate:
    return Gate(name, False, f"not known: {given.unknown or 'its package was not looked up'}", _BY_HAND)


_BY_HAND = "a person can add it: add_mcp_server asks for approval"
_NOT_THEIRS = "do not install it: anybody can name another's package in a registry"
