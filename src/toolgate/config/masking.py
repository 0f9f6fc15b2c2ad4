"""What looks like a secret, by its name or as it is written, and texts with that masked."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

import msgspec

MASK = "***"


class Secret(msgspec.Struct, frozen=True):
    """Why a field is not shown as it is: `mask` gives what is shown for its value and its struct, and `gather` puts
    what is secret in it, with the name that it goes by, into a `private.Private`."""

    mask: Callable[[Any, Any], Any]
    gather: Callable[[Any, str, Any], None] = lambda private, name, value: None


_secret_name = re.compile(
    r"token|secret|passw|pwd|credential|bearer|cookie|authori[sz]|(?:^|[_.-])auth|key(?![a-z])|^-p$"
    r"|(?:^|[_.-])(?:pass|pat|pw|t?otp)(?![a-z0-9_.-])",  # as the last word of a name
    re.I,
)


# What `npx -p` names, where `-p` is no password.
_package = re.compile(r"@[a-z0-9~-][a-z0-9._~-]*/[a-z0-9~-][a-z0-9._~-]*(?:@[A-Za-z0-9.^~<>=*+-]{1,64})?")


_assignment = re.compile(r"(-{0,2}[A-Za-z0-9_.-]+[=:] ?)(.+)", re.DOTALL)


_known_secret = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[a-z]|npm|pypi|hf|AKIA|ASIA|AIza|eyJ|ya29|shpat|SG)[-_.]?[A-Za-z0-9_.-]{16,}"
    r"|Bearer .+|Basic .+",
    re.DOTALL,
)


_random = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+=-]{24,}")


_url = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)(?:[^/?#@\s]*@)?([^?#\s]*)(\?[^#\s]*)?(#\S*)?")


def is_secret_name(name: str) -> bool:
    return bool(_secret_name.search(name))


def looks_secret(text: str) -> bool:
    return bool(_known_secret.search(text) or _random.fullmatch(text))


def secrets_of(args: Iterable[str]) -> Iterator[str]:
    """What `arguments` masks of them by its looks, without what stands before it."""
    before = ""
    for argument in args:
        assigned = _assigned(argument) and _assignment.fullmatch(argument)
        if assigned:
            yield assigned[2]
        elif _announces(before, argument) or ("://" not in argument and looks_secret(argument)):
            yield argument
        before = argument


def arguments(args: Iterable[str], private: Container[int] = ()) -> list[str]:
    """Arguments with what is or looks like a secret masked. `private`: those that are for certain."""
    shown: list[str] = []
    before = ""
    for index, argument in enumerate(args):
        shown.append(MASK if index in private or _announces(before, argument) else _argument(argument))
        before = argument
    return shown


def _announces(option: str, argument: str) -> bool:
    """Whether an option says of the argument behind it that it is a secret."""
    if argument.startswith("-") or not option.startswith("-") or "=" in option or not is_secret_name(option):
        return False
    return option != "-p" or not _package.fullmatch(argument)


def _argument(text: str) -> str:
    if "://" in text:
        return _url.sub(lambda found: url(found[0]), text) if not _assigned(text) else _assigned(text)
    if _known_secret.search(text) or _random.fullmatch(text):
        return MASK
    return _assigned(text) or text


def _assigned(text: str) -> str:
    """`--api-key=…`, `TOKEN=…`, `Authorization: …` with the value masked; empty for all else."""
    found = _assignment.fullmatch(text)
    if not found or found[2].startswith("//"):
        return ""
    is_secret = _secret_name.search(found[1]) or _known_secret.search(found[2]) or _random.fullmatch(found[2])
    return found[1] + MASK if is_secret else ""


def url(text: str) -> str:
    """A URL without the user, the query's values and the fragment."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return MASK if text else ""
    place, mark, _ = rest.partition("#")[0].partition("?")
    host, slash, path = place.partition("/")
    user, at, host = host.rpartition("@")
    segments = [MASK if _known_secret.search(part) or _random.fullmatch(part) else part for part in path.split("/")]
    return f"{scheme}://{MASK if user else ''}{at}{host}{slash}{'/'.join(segments)}{mark}{MASK if mark else ''}"
