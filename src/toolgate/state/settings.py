"""Where a gateway's configuration comes from, and how it changes while the gateway runs.

Two files make it: the one that people write, which is only ever read, and the gateway's own, where servers stand that
were added at run time. The rule this file keeps: what is written was understood as a whole before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from toolgate import config as configs
from toolgate.config import Config, ConfigError, edits, ownership
from toolgate.config.edits import Tree
from toolgate.core import jsonrpc
from toolgate.core.fault import Fault

Stamp = tuple[int, int, int]  # when it was written, its size, its inode
Accept: TypeAlias = Callable[[Config], object]
Seen = tuple[Stamp | None, Stamp | None, tuple[Stamp | None, ...]]  # of what people wrote, what was added, the others


class Settings:
    """`written` reads what people wrote, from `path` where it is a file. `own` is the file of what was added; without
    one it is kept in memory. Values of variables come from `environ`; `beside` are files that secrets come from, or
    that say what is trusted, and are followed too. `known` is what `seen` said of the files that the configuration was
    last made of, or that were last found to be wrong."""

    def __init__(
        self,
        written: Callable[[], Config],
        environ: Mapping[str, str],
        path: Path | None = None,
        own: Path | None = None,
        beside: Sequence[Path] = (),
    ) -> None:
        self._written = written
        self._environ = environ
        self._path = path
        self._own = own
        self._beside = beside
        self._in_memory: Tree = {}
        self._names_added: frozenset[str] = frozenset()
        self.known = self.seen()

    @property
    def has_files(self) -> bool:
        return self._path is not None or self._own is not None

    @property
    def path(self) -> Path | None:
        """The file that people write; None where there is none."""
        return self._path

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    def with_added(self, written: Config) -> Config:
        """What people would have written, with what was added. Raises `ConfigError`."""
        return configs.with_own(written, self._added(), self._environ)

    def read(self) -> Config:
        """The configuration as it stands now. Raises `ConfigError`."""
        self.known = self.seen()  # before they are read: what changes meanwhile is to be read again
        written, added = self._written(), self._added()
        self._names_added = frozenset(added)
        return configs.with_own(written, added, self._environ)

    def whence(self, name: str) -> Path | None:
        """The file that a server stands in, by what was read last; None where it is in none."""
        return self._own if name in self._names_added else self._path

    def seen(self) -> Seen:
        """What tells whether one of the files is another now."""
        return _stamp(self._path), _stamp(self._own), tuple(map(_stamp, self._beside))

    def add(self, name: str, table: Mapping[str, Any], accept: Accept = lambda _config: None) -> Config:
        """The configuration with another server, which is kept. Raises `Fault` where it cannot be. `accept` may raise
        one before anything is written."""

        def added(own: Tree, _written: Config) -> Tree:
            return edits.added(own, name, table)

        return self._change(added, accept, f"The server {name} was not added")

    def remove(self, name: str, accept: Accept = lambda _config: None) -> Config:
        """The configuration without a server that was added. Raises `Fault` where it cannot be. `accept`: the same."""
        return self._change(lambda own, written: edits.removed(own, name, written), accept, "Not removed")

    def _change(self, change: Callable[[Tree, Config], Tree], accept: Accept, otherwise: str) -> Config:
        found, before = Config(), self.seen()

        def checked(own: Tree) -> Tree:
            nonlocal found
            written = self._written()
            changed = change(own, written)
            found = configs.with_own(written, changed, self._environ)
            accept(found)
            self._names_added = frozenset(changed)
            return changed

        try:
            if self._own:
                self._wrote(edits.edit(self._own, checked), before)
            else:
                self._in_memory = checked(self._in_memory)
        except ConfigError as error:
            raise Fault("INVALID_ARGS", f"{otherwise}: {error}", reach="not_sent") from None
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise Fault("INTERNAL", f"{otherwise}: {self._own} cannot be written ({why})", reach="not_sent") from None
        return found

    def _wrote(self, own: Tree, before: Seen) -> None:
        """Know our own file as it is now, where it still holds what we wrote, and the other one as it was read."""
        after = self.seen()
        with contextlib.suppress(ConfigError):  # then somebody else has written it, and it is to be read again
            if self._added() == own:
                self.known = (before[0], after[1], before[2])

    def _added(self) -> Tree:
        return edits.read_own(self._own) if self._own else self._in_memory


def _stamp(path: Path | None) -> Stamp | None:
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None


class _Project(msgspec.Struct):
    id: str


LONGEST_PROJECT = 64 * 1024  # bytes of what says which project it is; a longer one is none


def project_at(source: str) -> str | None:
    """The id of the project that a configuration file lies in (`.gobby/project.json` beside it); None where it lies in
    none."""
    path = Path(os.path.dirname(os.path.abspath(source)), ".gobby", "project.json")
    try:
        with ownership.open_anyones(path) as file:
            return msgspec.json.decode(file.read(LONGEST_PROJECT), type=_Project).id
    except (OSError, *jsonrpc.UNREADABLE):
        return None
