"""Variables and secrets in the strings of a file, in every way of writing them that some tool has.

The rules this file keeps: what looks like a variable and is none never goes to a server as it stands; what stands in
a variable is put in once and never read as a pattern itself; and, as in `values`, no value is ever quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec

from toolgate.config.values import Step, Wrong, gather, wrong

SECRET_PREFIX = "secret:"
Struct = TypeVar("Struct", bound=msgspec.Struct)


class Style(msgspec.Struct, frozen=True):
    """How a tool writes variables. The groups of `pattern`: `name` of one of the environment, with `default`; `secret`
    that is looked up by name; `input` that the file declares elsewhere; `place` that the tool knows of itself.
    `leftover`: what must not remain; `write` corrects it. Without a pattern text stays as it is."""

    pattern: re.Pattern[str] | None = None
    leftover: re.Pattern[str] | None = None
    write: str = ""


class Reference(msgspec.Struct, frozen=True):
    """A variable of the environment that a key names without a pattern. One that is `optional` and not set leaves
    nothing, not even its key."""

    name: str
    default: str | None = None
    before: str = ""
    optional: bool = False


class Joined(msgspec.Struct, frozen=True):
    """A text in parts, for those who take it to pieces themselves."""

    parts: tuple[str | Reference, ...]


class Lacking(Exception):
    """A secret that cannot be had. `str()` says where it was looked for, or which place is broken."""


class Unread(Lacking):
    """It was not looked for: nothing is started that needs it."""


ENVIRONMENT_PREFIX = "TOOLGATE_SECRET_"


def variable_of_secret(name: str) -> str:
    """`github-token` → `TOOLGATE_SECRET_GITHUB_TOKEN`."""
    return ENVIRONMENT_PREFIX + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


_secret_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:/[A-Za-z0-9][A-Za-z0-9_.-]*)*(?:#[A-Za-z0-9_.-]+)?")


def is_secret_name(text: str) -> bool:
    return len(text) <= 200 and _secret_name.fullmatch(text) is not None


_name = r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
_default = r"(?::-(?P<default>(?:(?!\$\{)[^}])*))?"
_places = r"(?P<place>userHome|workspaceFolder|workspaceFolderBasename|pathSeparator|/)"
_input = r"input:(?P<input>[^${}]{1,80})"
_secret = r"secret:(?P<secret>[^${}]{0,250})"
_dollar_brace = re.compile(r"\$\0*\{")  # \0 stands where a variable was; no text of a file holds one
_bundle_places = r"(?P<place>__dirname|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|/)"

_native = re.compile(rf"\$\{{(?:{_secret}|{_name}{_default})\}}")
SHELL = Style(_native, _dollar_brace, "write ${NAME} or ${NAME:-default}")
EDITOR = Style(
    re.compile(rf"\$\{{(?:{_secret}|{_input}|{_places}|(?:env:)?{_name}{_default})\}}"),
    _dollar_brace,
    "write ${env:NAME}",
)
BARE = Style(
    re.compile(rf"\$(?:\{{(?:{_secret}|{_name}{_default})\}}|(?P<bare>[A-Za-z_][A-Za-z0-9_]*))"),
    _dollar_brace,
    "write ${NAME}",
)
BRACES = Style(
    re.compile(r"\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}"), re.compile(r"\{\0*(?:env|file):"), "write {env:NAME}"
)
BUNDLE = Style(
    re.compile(rf"\$\{{(?:user_config\.(?P<input>[^${{}}]{{1,80}})|{_bundle_places})\}}"),
    _dollar_brace,
    "write ${user_config.KEY}",
)
LITERAL = Style()


class Expansion:
    """Puts variables into the strings of one server, and remembers what it put in, and what it could not. `inputs` are
    those that the file declares, `places` those that its tool has, `secret` looks one up and raises `Lacking`."""

    def __init__(
        self,
        environ: Mapping[str, str],
        style: Style = SHELL,
        inputs: Mapping[str, Reference] | None = None,
        places: Mapping[str, str] | None = None,
        secret: Callable[[str], str] | None = None,
    ) -> None:
        self._environ = environ
        self._style = style
        self._inputs = inputs or {}
        self._places = places or {}
        self._secret = secret
        self.asked_for: dict[str, str] = {}  # variables that the file's own tool asks its user for, as they are written
        self.missing: list[str] = []  # variables by name, secrets by `secret:NAME`
        self.lacking: list[str] = []  # why a secret could not be had
        self.unread: list[str] = []  # secrets that nobody looked for, and that stand there as they are written
        self.put_in: list[tuple[str, str]] = []  # variables by name with their values

    def expand(self, value: Any) -> Any:
        """`value` is a string, a tuple or a table of what can be expanded; anything else stays. Raises `Wrong` for
        what looks like a variable and is none: it may not be sent upstream as it stands."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Joined):
            return "".join(part if isinstance(part, str) else self._resolved(part) or "" for part in value.parts)
        if isinstance(value, Reference):
            return self._resolved(value)
        if isinstance(value, tuple | list):
            items = gather(enumerate(cast("list[object]", value)), self.expand).items()
            return type(cast("list[object]", value))(
                each for at, each in items if each is not None or value[at] is None
            )
        if isinstance(value, dict):
            items = gather(cast("dict[Step, object]", value).items(), self.expand)
            return {key: each for key, each in items.items() if each is not None or value[key] is None}
        return value

    def expand_struct(self, value: Struct) -> Struct:
        """All strings of it. Raises `Wrong`."""
        held = {name: getattr(value, name) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **self.expand(held))

    def expand_overlays(self, tools: dict[str, Any]) -> dict[str, Any]:
        """Of overlays only what is sent: what is `fixed`, and each `default`."""
        return gather(tools.items(), self._overlay)

    def _overlay(self, tool: Any) -> dict[str, Any]:
        if "parameters" not in tool:
            return tool
        try:
            return {**tool, "parameters": gather(tool["parameters"].items(), self._parameter)}
        except Wrong as error:
            raise Wrong(*(finding.under("parameters") for finding in error.findings)) from None

    def _parameter(self, parameter: Any) -> dict[str, Any]:
        sent = [(key, parameter[key]) for key in ("fixed", "default") if key in parameter]
        return {**parameter, **gather(sent, self.expand)}

    def lacks(self) -> list[str]:
        """What could not be put in, and what to do about it."""
        names = tuple(dict.fromkeys(name for name in self.missing if not name.startswith(SECRET_PREFIX)))
        asked = [name for name in names if name in self.asked_for]
        plain = tuple(name for name in names if name not in self.asked_for)
        return [
            *(_not_asked(name, self.asked_for[name]) for name in asked),
            *([_not_set(plain, self._style)] if plain else []),
            *dict.fromkeys(self.lacking),
        ]

    def _text(self, text: str) -> str:
        style = self._style
        if style.pattern is None:
            return self.literally(text)
        rest = style.pattern.sub(lambda found: "\0" + (found.groupdict().get("default") or ""), text)
        if style.leftover and style.leftover.search(rest):  # a default may join with what stands beside it
            raise wrong("contains `${` that is not a variable" if "$" in style.write else _no_file, style.write)
        self.literally(rest)
        return style.pattern.sub(self._found, text)

    def literally(self, text: str) -> str:
        return text

    def _found(self, found: re.Match[str]) -> str:
        groups = found.groupdict()
        if (secret := groups.get("secret")) is not None:
            return self._looked_up(secret)
        if place := groups.get("place"):
            return self._places.get(place, "")
        if written := groups.get("input"):
            wanted = self._inputs.get(written, Reference(as_variable(written)))
            self.asked_for[wanted.name] = found[0]
            return self._resolved(wanted) or ""
        return self._resolved(Reference(groups.get("name") or groups.get("bare") or "", groups.get("default"))) or ""

    def _looked_up(self, name: str) -> str:
        if not self._secret or not is_secret_name(name):
            raise wrong("has an invalid secret name", "write ${secret:NAME}")
        try:
            return self._secret(name)
        except Unread:
            self.unread.append(name)
            return f"${{{SECRET_PREFIX}{name}}}"
        except Lacking as error:
            self.missing.append(SECRET_PREFIX + name)
            self.lacking.append(str(error))
            return ""

    def _resolved(self, wanted: Reference) -> str | None:
        value = self._environ.get(wanted.name)
        if value:
            self.put_in.append((wanted.name, value))
            return wanted.before + value
        if wanted.default is not None:
            return wanted.before + wanted.default  # as in a shell, empty counts as unset here
        if wanted.optional:
            return None
        if value is None:
            self.missing.append(wanted.name)
        return wanted.before


_no_file = "contains `{env:` or `{file:` that is not a variable"


def _not_asked(name: str, written: str) -> str:
    """Another tool asks its user for this; we have nobody to ask when a server starts."""
    return f"{written} has no value, and toolgate does not prompt for it: set {name} in toolgate's environment"


def _not_set(missing: tuple[str, ...], style: Style) -> str:
    """A default is named as a way out only where the tool whose file it is has them."""
    names, are, them = ", ".join(missing), *(("is", "it") if len(missing) == 1 else ("are", "them"))
    way_out = f", or write a default: ${{{missing[0]}:-default}}" if ":-" in style.write else ""
    return f"{names} {are} not set: set {them} in toolgate's environment{way_out}"


class References(Expansion):
    """Writes each variable as a native file does, instead of putting it in."""

    def literally(self, text: str) -> str:
        if _dollar_brace.search(text):
            raise wrong("contains a literal `${`, which a toolgate file cannot express")
        return text

    def _looked_up(self, name: str) -> str:
        return f"${{{SECRET_PREFIX}{name}}}"

    def _resolved(self, wanted: Reference) -> str | None:
        default = "" if wanted.optional else wanted.default
        written = "" if default is None or "}" in default or "${" in default else f":-{default}"
        return f"{wanted.before}${{{wanted.name}{written}}}"


# What tells nothing about a user but names and places, so that every program that is started has it.
OF_EVERY_PROGRAM = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ", "TMPDIR"})


def named_in(value: Any) -> tuple[list[str], list[str]]:
    """The secrets and the variables that a native table names anywhere, each once."""
    secrets, names = dict[str, None](), dict[str, None]()
    for text in _texts(value):
        for found in _native.finditer(text):
            if found["name"]:
                names[found["name"]] = None
            elif is_secret_name(found["secret"]):  # no server starts with another
                secrets[found["secret"]] = None
    return list(secrets), list(names)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in cast("Mapping[str, Any]", value).items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            yield from _texts(each)


def has_pattern(value: Any) -> bool:
    """Somewhere in a value stands what other tools would take for a variable."""
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, msgspec.Struct):
        return any(has_pattern(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, Mapping):
        return any(map(has_pattern, cast("Mapping[str, Any]", value).values()))
    return isinstance(value, tuple | list) and any(map(has_pattern, cast("list[Any]", value)))


def as_variable(name: str) -> str:
    """`api-key` → `API_KEY`: the variable for what another tool asks a person for."""
    found = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "INPUT"
    return found if not found[0].isdigit() else f"_{found}"
