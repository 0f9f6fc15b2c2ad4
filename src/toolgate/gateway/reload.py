"""Another configuration, for whatever reason: the one path from what is written, added or removed to what is served.

The rules this file keeps: one change after the other; what is not understood as a whole changes nothing, and why stands
in `problem` until something else is served; and what takes guards away waits for the operator's word
(`confirming`): one word is for all gateways of one store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from toolgate.config import Config, ConfigError, Problem, render
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.core.names import slug
from toolgate.gateway import confirming, file_edits
from toolgate.gateway.confirming import Agreements, Unconfirmed
from toolgate.gateway.file_edits import FileEdit
from toolgate.gateway.snapshot import Snapshot
from toolgate.state.audit import Trail
from toolgate.state.base import Store
from toolgate.state.settings import Settings

log = logging.getLogger(__name__)

LOOK = 0.2  # seconds between looks at the files: two, and the time to read them, are within half a second
Looked = TypeVar("Looked")
Made = TypeVar("Made")
Check = Callable[[], None]  # raises where what is served by then speaks against a change

NOBODY = Principal("")  # who works inside this process


class Reloading:
    """Changes the configuration: what is added this way is kept apart from what people write. `prepared` makes what
    has a configuration served from now on; it is told which server was added or removed here, where that is noted."""

    def __init__(
        self,
        opened: Config,
        settings: Settings,
        store: Store,
        prepared: Callable[[Config, str], Callable[[], Snapshot]],
        audit: Trail,
        clock: Clock,
        background: BackgroundTasks,
    ) -> None:
        self.problem = ""  # why the configuration as it stands now is not served
        self._waiting: Unconfirmed | None = None  # the configuration as it stands now, for the operator
        self._opened = self._served = opened
        self._settings = settings
        self._agreements = Agreements(store)
        self._prepared = prepared
        self._audit = audit
        self._clock = clock
        self._background = background
        self._turn = asyncio.Lock()

    async def _in_turn(self, work: Callable[[], Awaitable[Made]], check: Check, name: str) -> Made:
        """Behind the changes before it, where `check` takes it by what is served then, and whole from there. Who is
        gone by then, or would not be let in any more, has changed nothing."""

        async def alone() -> Made:
            try:
                check()
                return await work()
            finally:
                self._turn.release()

        await self._turn.acquire()
        return await self._background.whole(alone(), name)

    async def reload(self, confirmed: Collection[str] = (), check: Check = lambda: None, /) -> Snapshot:
        """Serve the configuration as it stands now. `confirmed` are the sentences of `Unconfirmed.losses` that the
        operator has agreed to. Raises `ConfigError`, and goes on with the old one, where it is not to be understood, or
        waits; and what `check` raises."""
        return await self._in_turn(partial(self._reload, confirmed), check, "reload the configuration")

    async def _reload(self, confirmed: Collection[str]) -> Snapshot:
        try:
            config = await asyncio.to_thread(self._settings.read)
            confirming.check(self._served, config, confirmed)
        except ConfigError as error:
            self.problem = str(error)
            self._waiting = error if isinstance(error, Unconfirmed) else None
            raise
        except Exception as error:  # the rescue: who follows the files goes on
            self.problem, self._waiting = f"cannot be read: {type(error).__name__}: {error}", None
            raise ConfigError((Problem("configuration", "", self.problem),)) from error
        await self._agreements.keep(config, confirmed)
        return self._serve(config)

    async def reload_anyway(self) -> None:
        """The same for the program that the gateway is part of, whose word is the operator's. Raises `ConfigError`."""
        try:
            await self.reload()
        except Unconfirmed as waiting:
            await self.reload(waiting.losses)

    async def edit(
        self,
        make: Callable[[Settings], FileEdit],
        confirmed: Collection[str],
        by: Principal,
        check: Check = lambda: None,
        /,
    ) -> FileEdit:
        """Edit the file that people write, and serve what stands there then. Raises `Fault`, what `check` raises, and
        `Unconfirmed` where guards are taken away; then nothing was written."""
        return await self._in_turn(partial(self._edit, make, confirmed, by), check, "edit the configuration")

    async def _edit(
        self, make: Callable[[Settings], FileEdit], confirmed: Collection[str], by: Principal, /
    ) -> FileEdit:
        edit = await asyncio.to_thread(file_edits.made, make, self._settings)
        losses = confirming.check_edit(self._served, edit.found, edit.wanted, confirmed)
        await self._agreements.keep(edit.wanted, losses)
        await asyncio.to_thread(file_edits.write, edit)
        self._audit.note_change(edit.event, by, file=str(edit.path), **edit.about)
        try:
            self._serve(await asyncio.to_thread(self._settings.read))
        except ConfigError as error:
            self.problem = str(error)
            message = f"The file was saved, and what was served before still is: {error}"
            raise Fault("INVALID_ARGS", message, reach="executed") from None
        return edit

    async def look(self, make: Callable[[Settings], Looked]) -> Looked:
        """What `make` says of the file that people write. Raises `Fault`."""
        return await asyncio.to_thread(file_edits.made, make, self._settings)

    async def add(
        self,
        name: str,
        table: Mapping[str, Any],
        by: Principal = NOBODY,
        check: Check = lambda: None,
        added: Callable[[], None] = lambda: None,
        /,
    ) -> str:
        """Add a server, and have it listed. Its id. `added` is told when it is served, also where who waits for that is
        gone. Raises `Fault`, and what `check` raises."""

        async def work() -> None:
            snapshot = await self._serve_changed(name, partial(self._settings.add, name, table))
            server = next(each for each in snapshot.config.servers if each.id == slug(name))
            shown = render.server(server, masked=True)
            self._audit.note_change("servers.add", by, name=name, by_operator=server.by_operator, config=shown)
            added()

        await self._in_turn(work, check, f"add {name}")
        return slug(name)

    async def remove(self, name: str, by: Principal = NOBODY, check: Check = lambda: None, /) -> None:
        """Remove a server that was added. Raises `Fault`, and what `check` raises."""

        async def work() -> None:
            await self._serve_changed(name, partial(self._settings.remove, name))
            self._audit.note_change("servers.remove", by, name=name)

        await self._in_turn(work, check, f"remove {name}")

    async def _serve_changed(self, name: str, change: Callable[[Callable[[Config], None]], Config]) -> Snapshot:
        """What people wrote is served with it, and so it waits as long as that does. Raises `Fault`."""
        waiting = self._waiting

        def accept(config: Config) -> None:
            nonlocal waiting
            try:
                confirming.check(self._served, config, ())
            except Unconfirmed as error:
                waiting = error
                raise Fault("INVALID_ARGS", f"{name}: {error}", reach="not_sent") from None

        try:
            if waiting:
                raise Fault("INVALID_ARGS", f"{name}: {self.problem}", reach="not_sent")
            return self._serve(await asyncio.to_thread(change, accept), name)
        finally:
            if waiting and waiting is not self._waiting:
                self.problem, self._waiting = str(waiting), waiting
                log.warning("%s", waiting)

    def _serve(self, config: Config, changed: str = "") -> Snapshot:
        try:
            serve = self._prepared(config, changed)
        except Exception as error:  # the rescue: a store that cannot be read, say; nothing has changed yet
            log.warning("cannot use the new configuration, still serving the previous one", exc_info=error)
            self.problem = f"cannot be used: {type(error).__name__}: {error}"
            raise ConfigError((Problem(config.source or "configuration", "", self.problem),)) from error
        snapshot = serve()
        self.problem, self._waiting = "", None
        _warn_of_what_waits(self._opened, self._served, config)
        for warning in config.warnings:
            if warning not in self._served.warnings:
                log.warning("%s", warning)
        self._served = config
        return snapshot

    async def read_again(self, confirmed: Collection[str], check: Check) -> None:
        """The same as `reload`, for who cannot do with any other `ConfigError` than `Unconfirmed`. Raises `Fault`."""
        try:
            await self.reload(confirmed, check)
        except Unconfirmed:
            raise
        except ConfigError as error:
            message = f"Invalid configuration, still serving the previous one: {error}"
            raise Fault("INVALID_ARGS", message, reach="not_sent") from None

    def reload_soon(self) -> None:
        """The same, for who cannot wait, nor be asked: what is wrong, or waits, stands in the log."""
        self._background.start(self._reload_or_say(), "reload")

    async def _reload_or_say(self, confirmed: Collection[str] = ()) -> None:
        before = self._served
        try:
            snapshot = await self.reload(confirmed)
        except Unconfirmed as error:
            log.warning("%s", error)
            return
        except ConfigError as error:
            log.error("invalid configuration, still serving the previous one:\n%s", error)
            return
        if self._served == before:
            log.info("configuration reloaded; nothing has changed")
        else:
            served = [server.name for server in snapshot.config.servers if server.enabled]
            log.info("configuration reloaded; now serving: %s", ", ".join(served) or "no servers")

    async def follow_files(self) -> None:
        """Serve what stands in the files whenever that is another than was read, and the same for a moment; and what
        waits here when another gateway was told to serve it."""
        last = self._settings.known
        while True:
            await self._clock.sleep(LOOK)
            seen = self._settings.seen()
            try:
                if seen == last != self._settings.known:
                    await self._reload_or_say()
                elif (waiting := self._waiting) and self._agreements.are_for(waiting):
                    await self._reload_or_say(waiting.losses)
            except Exception:  # the rescue: the next edit is read all the same
                log.exception("cannot use the new configuration")
            last = seen


def _warn_of_what_waits(opened: Config, before: Config, now: Config) -> None:
    """The frontends, the store and the audit stand as they were opened."""
    was_opened, was_served = dict(opened.waits_for_restart()), dict(before.waits_for_restart())
    for key, value in now.waits_for_restart():
        if value not in (was_opened[key], was_served[key]):
            log.warning("`%s` was changed; restart toolgate to apply it", key)
