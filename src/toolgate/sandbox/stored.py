"""Scripts that a person has approved, to be called as tools: kept whole, by the hash of their text.

    // /// toolgate
    // name = "open_issues"
    // description = "Counts the open issues of a repository."
    // parameters.properties.repo.type = "string"
    // parameters.required = ["repo"]
    // ///
    return (await servers.github.list_issues({ repo: data.repo })).length;

A script is one text. Its head is TOML in comments, `//` in JavaScript and `#` in Python, so that whoever approves the
text approves the name, the description and the schema of the parameters as well.

The rules this file keeps: a text is served under the name that stands in it, and only as it was approved; what is kept
and does not fit its hash, or cannot be read, is as if it were not there.
"""

from __future__ import annotations

import hashlib
import keyword
import logging
import os
import re
import tomllib
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, cast

import msgspec

from toolgate.core import jsonrpc, names
from toolgate.sandbox.limits import DEFAULTS
from toolgate.state.base import UNREAD, Store

log = logging.getLogger(__name__)

SPACE = "scripts"
MOST = 200  # scripts of one configuration that are served
LONGEST_DESCRIPTION = 2_000  # characters
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")  # such that it needs no quotes in code, and no shortening with its server
_LANGUAGES = {"//": "javascript", "#": "python"}
_KEYS = frozenset({"name", "description", "parameters"})


class Unfit(ValueError):
    """A text that is no script. `str()` says why, and how to fix it."""


class Script(msgspec.Struct, frozen=True):
    """`schema` is JSON, of the parameters; `digest` the SHA-256 of the text."""

    name: str
    language: str
    description: str
    schema: bytes
    text: str
    digest: str

    def listed(self) -> Mapping[str, Any]:
        """It as `tools/list` shows it: the same bytes for the same text."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": msgspec.Raw(self.schema),
            "_meta": {names.DIGEST: self.digest},
        }


class Approved(msgspec.Struct, frozen=True, array_like=True):
    """As it is kept. `at` in seconds since 1970, `by` is who approved it."""

    digest: str
    text: str
    at: float
    by: str


def read(text: str) -> Script:
    """A script by its text. Raises `Unfit`."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > DEFAULTS.code:
        raise Unfit(f"it has {size:,} bytes; the limit is {DEFAULTS.code:,}")
    head, language = _head(text)
    if unknown := head.keys() - _KEYS:
        raise Unfit(f"its head has the unknown key {min(unknown)}; the keys are {', '.join(sorted(_KEYS))}")
    name, description, parameters = head.get("name"), head.get("description"), head.get("parameters", {})
    if not isinstance(name, str) or not _NAME.match(name) or keyword.iskeyword(name):
        raise Unfit("`name` must be small letters, digits and underscores, at most 48, beginning with a letter")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= LONGEST_DESCRIPTION:
        raise Unfit(f"`description` must say what it is for, in at most {LONGEST_DESCRIPTION:,} characters")
    if not isinstance(parameters, dict) or cast(Any, parameters).get("type", "object") != "object":
        raise Unfit("`parameters` must be a JSON Schema of an object")
    schema = jsonrpc.encode({"type": "object", **cast(Any, parameters)})
    return Script(name, language, description, schema, text, digest_of(text))


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _head(text: str) -> tuple[dict[str, Any], str]:
    """The head as a table, and the language."""
    lines = iter(text.split("\n"))
    mark, _, rest = next(lines).strip().partition(" ")
    if mark not in _LANGUAGES or rest.strip() != "/// toolgate":
        raise Unfit("its first line must be `// /// toolgate` (JavaScript) or `# /// toolgate` (Python)")
    try:
        return tomllib.loads("\n".join(_inside(lines, mark))), _LANGUAGES[mark]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unfit(f"its head is no TOML: {error}") from None


def _inside(lines: Iterator[str], mark: str) -> Iterator[str]:
    for line in lines:
        line = line.strip()
        if line == f"{mark} ///":
            return
        if not line.startswith(mark):
            break
        yield line.removeprefix(mark)
    raise Unfit(f"its head must end with the line `{mark} ///`")


class StoredScripts:
    """Those of one configuration, which lies at `source`: what `github` is there need not be what it is elsewhere."""

    def __init__(self, store: Store, source: str) -> None:
        self.store = store
        which = hashlib.sha256(os.path.abspath(source).encode()).hexdigest()[:12] if source else "-"
        self._begin = f"{which}/"
        self._all: Mapping[str, Script] = {}  # when they could be read last
        self._read: dict[str, tuple[bytes, Script | None]] = {}  # as they were last, by name

    def get(self, name: str) -> Script | None:
        """The script of this name as it is approved now."""
        raw = self.kept(name)
        if raw is None:
            self._read.pop(name, None)
            return None
        known = self._read.get(name)
        if not known or known[0] != raw:
            known = self._read[name] = (raw, _trusted(name, raw))
        return known[1]

    def all(self) -> Mapping[str, Script]:
        """Those that are approved now, by name in order; those of before, where they cannot be read."""
        if (items := self.store.items(SPACE)) is not UNREAD:
            kept = [key.removeprefix(self._begin) for key in items if key.startswith(self._begin)]
            found = ((name, self.get(name)) for name in kept[:MOST])
            self._all = {name: script for name, script in found if script}
        return self._all

    def kept(self, name: str) -> bytes | None:
        return self.store.get(SPACE, self._begin + name)

    def approve(self, script: Script, before: bytes | None, at: float, by: str) -> Awaitable[bool]:
        """Serve this from now on, if what is kept under its name is still `before`; whether it was. Raises
        `NotKept`."""
        kept = Approved(script.digest, script.text, at, by)
        return self.store.compare_and_set(SPACE, self._begin + script.name, before, msgspec.msgpack.encode(kept))

    def remove(self, name: str) -> Awaitable[None]:
        return self.store.delete(SPACE, self._begin + name)


def approved(raw: bytes) -> Approved | None:
    try:
        return msgspec.msgpack.decode(raw, type=Approved)
    except (msgspec.DecodeError, ValueError):
        return None


def _trusted(name: str, raw: bytes) -> Script | None:
    """What was approved, if it is that still."""
    kept = approved(raw)
    try:
        script = read(kept.text) if kept else None
    except Unfit:
        script = None
    if kept and script and script.digest == kept.digest and script.name == name:
        return script
    log.warning("the stored script %s was changed after its approval and is not served; approve it again", name[:100])
    return None
