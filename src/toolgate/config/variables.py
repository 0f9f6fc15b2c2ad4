"""Variables in the strings of a server, in every way of writing them that some tool has, and what must hold of the
strings once the variables are in.

The rules this file keeps: what looks like a variable and is none never goes to a server as it stands; what stands in
a variable is put in once and never read as a pattern itself; and, as in `values`, no value is ever quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from toolgate.config import secrets
from toolgate.config.values import Key, Kind, Wrong, gather, wrong


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


_name = r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
_default = r"(?::-(?P<default>(?:(?!\$\{)[^}])*))?"
_places = r"(?P<place>userHome|workspaceFolder|workspaceFolderBasename|pathSeparator|/)"
_input = r"input:(?P<input>[^${}]{1,80})"
_secret = r"secret:(?P<secret>[^${}]{0,250})"
_dollar_brace = re.compile(r"\$\0*\{")  # \0 stands where a variable was; no text of a file holds one
_bundle_places = r"(?P<place>__dirname|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|/)"

SHELL = Style(
    re.compile(rf"\$\{{(?:{_secret}|{_name}{_default})\}}"), _dollar_brace, "write ${NAME} or ${NAME:-default}"
)
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

_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_url = re.compile(
    r"(?:http|ws)s?://(?:[^/?#@\s]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\s\[\]]+)(?::[0-9]{1,5})?(?:[/?#]\S*)?",
    re.IGNORECASE,
)


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
            items = gather(cast("dict[Key, object]", value).items(), self.expand)
            return {key: each for key, each in items.items() if each is not None or value[key] is None}
        return value

    def expand_overlays(self, tools: dict[str, Any]) -> dict[str, Any]:
        """Of overlays only what is sent: what is `fixed`, and each `default`."""
        return gather(tools.items(), cast(Kind, self._overlay))

    def _overlay(self, tool: dict[str, Any]) -> dict[str, Any]:
        if "parameters" not in tool:
            return tool
        try:
            return {**tool, "parameters": gather(tool["parameters"].items(), cast(Kind, self._parameter))}
        except Wrong as error:
            raise Wrong(*(finding.under("parameters") for finding in error.findings)) from None

    def _parameter(self, parameter: dict[str, Any]) -> dict[str, Any]:
        sent = [(key, parameter[key]) for key in ("fixed", "default") if key in parameter]
        return {**parameter, **gather(sent, self.expand)}

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
        if not self._secret or not secrets.is_name(name):
            raise wrong("has an invalid secret name", "write ${secret:NAME}")
        try:
            return self._secret(name)
        except secrets.Unread:
            self.unread.append(name)
            return f"${{{secrets.PREFIX}{name}}}"
        except secrets.Lacking as error:
            self.missing.append(secrets.PREFIX + name)
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


class References(Expansion):
    """Writes each variable as a native file does, instead of putting it in."""

    def literally(self, text: str) -> str:
        if _dollar_brace.search(text):
            raise wrong("contains a literal `${`, which a toolgate file cannot express")
        return text

    def _looked_up(self, name: str) -> str:
        return f"${{{secrets.PREFIX}{name}}}"

    def _resolved(self, wanted: Reference) -> str | None:
        default = "" if wanted.optional else wanted.default
        written = "" if default is None or "}" in default or "${" in default else f":-{default}"
        return f"{wanted.before}${{{wanted.name}{written}}}"


def has_pattern(value: Any) -> bool:
    """Somewhere in a value stands what other tools would take for a variable."""
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, Mapping):
        return any(map(has_pattern, cast("Mapping[str, Any]", value).values()))
    return isinstance(value, tuple | list) and any(map(has_pattern, cast("list[Any]", value)))


def as_variable(name: str) -> str:
    """`api-key` → `API_KEY`: the variable for what another tool asks a person for."""
    found = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "INPUT"
    return found if not found[0].isdigit() else f"_{found}"


# What must hold once the variables are in. Each raises `Wrong`.


def sound_text(value: str) -> None:
    try:
        strange = b"\0" in os.fsencode(value)
    except UnicodeEncodeError:
        strange = True
    if strange:
        raise wrong("contains a NUL character or a lone surrogate")


def sound_command(value: str) -> None:
    sound_text(value)
    if not value.strip():
        raise wrong("must not be empty")


def sound_url(value: str) -> None:
    _sound_url(value, "http", "ws")


def sound_component_url(value: str) -> None:
    """`{port}` may stand where a port does."""
    _sound_url(value.replace(":{port}", ":1"), "http")


def sound_http_url(value: str) -> None:
    _sound_url(value, "http")


def sound_ws_url(value: str) -> None:
    _sound_url(value, "ws")


def is_url(value: str) -> bool:
    return bool(_url.fullmatch(value))


def is_websocket(url: str) -> bool:
    return url.lower().startswith(("ws://", "wss://"))


def _sound_url(value: str, *schemes: str) -> None:
    sound_text(value)
    if not _url.fullmatch(value) or not value.lower().startswith(schemes):
        *others, last = (each for scheme in schemes for each in (f"{scheme}://", f"{scheme}s://"))
        raise wrong(f"must be a URL that starts with {', '.join(others)} or {last}")


def sound_fields(value: Mapping[str, Any]) -> None:
    """What one key says of a program: `command`, `args`, `env`."""
    sound_command(value["command"])
    sound_texts(value.get("args", ()))
    sound_environment(value.get("env", {}))


def sound_texts(value: tuple[str, ...]) -> None:
    gather(enumerate(value), cast(Kind, sound_text))


def sound_environment(value: Mapping[str, str]) -> None:
    gather(value.items(), cast(Kind, sound_text))


def sound_headers(value: Mapping[str, str]) -> None:
    gather(value.items(), cast(Kind, _sound_header))


def sound_roots(value: tuple[tuple[str, str], ...]) -> None:
    gather(((index, uri) for index, (uri, _) in enumerate(value)), cast(Kind, _sound_root))


def _sound_header(value: str) -> None:
    sound_text(value)
    if _control.search(value):
        raise wrong("contains a line break or another control character")


def _sound_root(value: str) -> None:
    sound_text(value)
    if not value.startswith("file:///") and not os.path.isabs(value):
        raise wrong("must be an absolute path or a file:/// URI")
