"""What tools mean, as vectors of a model that is configured for it, on this machine or behind an API: made in the
background, kept by what they are of.

The rules this file keeps: a search waits for the vector of its own words and for no other; where a model does not
answer, words alone are searched; what was made once is not asked for again, by the next process either; and servers
choose texts, so how many of them are made vectors, and how much is kept of these, has a bound for each server and all.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairThreads
from toolgate.core.fairness import giving_way
from toolgate.core.fault import Fault
from toolgate.search import Document
from toolgate.search.folder import LocalModel, NoModel, mark
from toolgate.search.semantic import text_of
from toolgate.state.base import Store
from toolgate.upstreams.providers.embeddings import Vector
from toolgate.upstreams.providers.services import CONFIGURE, Providers

log = logging.getLogger(__name__)

SPACE: Final = "embeddings"
USE: Final = "embeddings"
BATCH = 64  # texts of one request
MOST = 5000  # documents that have a vector; a catalogue beyond it is searched by words
MOST_BYTES = 64 * 1024 * 1024  # of these vectors; where they are large, it is fewer
MOST_A_DAY = 5000  # texts of one server that are made vectors
AT_ONCE = 8  # texts that a model on this machine is given: less than a tenth of a second, and few MB
MOST_WAITING = 8  # searches of one principal
MOST_QUERIES = 500  # whose vectors are kept
MOST_UNWRITTEN = 256  # vectors of which the store does not know yet whose they are: a list of some 800 KB is written
DAY = 24 * 3600.0  # seconds
KEPT = 90 * DAY  # in the store
ALL = "all"  # what stands there by it: of which servers the others are


class Embeddings:
    """`folder` is that of the model on this machine, as it is configured now; empty where a provider is to be asked."""

    def __init__(self, providers: Providers, store: Store, clock: Clock, folder: Callable[[], str]) -> None:
        self._providers = providers
        self._clock = clock
        self._store = store
        self._folder = folder
        self._local: tuple[str, LocalModel | NoModel] | None = None  # by its mark
        self._turns = FairThreads(1, most=MOST_WAITING, what="searches by meaning")  # at it
        self._thread = ThreadPoolExecutor(1, "toolgate embeddings")
        self._background = BackgroundTasks()
        self._known: dict[bytes, Vector] = {}  # by a hash of model and text
        self._whose: dict[bytes, str] | None = None  # the servers of all that is kept; None: not read yet
        self._made: dict[str, tuple[int, int]] = {}  # by server, on which day how many
        self._unwritten = 0  # of these, what the store does not have yet
        self._largest = 1  # bytes of a vector
        self._queries: dict[bytes, Vector] = {}
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        await self._background.close()
        if self._unwritten:
            self._write()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def check(self) -> None:
        """Raises `Fault` where no model is there for it."""
        if not self._folder() and not self._providers.of(USE):
            hint = CONFIGURE.format(use=f'"{USE}"') + ", or one on this machine: `virtual_search.model`"
            message = "The mode semantic needs a model that makes embeddings, and none is configured: use mode bm25"
            raise Fault("INVALID_ARGS", message, hint=hint, reach="not_sent")

    async def of_query(self, query: str, whose: str) -> Vector | None:
        """None where the model does not answer."""
        key = _key(self._model(), query)
        if key not in self._queries:
            try:
                (self._queries[key],) = await self._embed((query,), whose)
            except Fault as fault:
                log.warning("searched by words alone: %s", fault.message)
                return None
            while len(self._queries) > MOST_QUERIES:
                del self._queries[next(iter(self._queries))]
        return self._queries[key]

    def known(self, documents: Sequence[Document]) -> Mapping[Document, Vector]:
        """The vectors that are there; those that are not are made in the background."""
        model = self._model()
        keys = {document: _key(model, text_of(document)) for document in documents[: self._most]}
        lacking = [document for document, key in keys.items() if key not in self._known and self._left(document.server)]
        if lacking and not self._turn.locked():
            self._background.start(self._make(lacking), "make embeddings of tools")
        return {document: self._known[key] for document, key in keys.items() if key in self._known}

    async def made(self) -> None:
        """Until what was begun is done."""
        async with self._turn:
            pass

    @property
    def _most(self) -> int:
        return min(MOST, MOST_BYTES // self._largest)

    def _left(self, server: str) -> int:
        """How many texts of a server may still be made vectors today."""
        day, made = self._made.get(server, (0, 0))
        return MOST_A_DAY - made if day == self._today() else MOST_A_DAY

    def _today(self) -> int:
        return int(self._clock.now() // DAY)

    async def _make(self, documents: Sequence[Document]) -> None:
        async with self._turn:
            whose, model = self._kept(), self._model()
            texts = {_key(model, text_of(document)): document for document in documents}
            for key in texts:
                if kept := self._store.get(SPACE, key.hex()):
                    self._keep(key, texts[key].server, array("f", kept), whose)
            wanted = self._affordable(
                (key, document.server) for key, document in texts.items() if key not in self._known
            )
            try:
                for at in range(0, len(wanted), BATCH):
                    part = wanted[at : at + BATCH]
                    vectors = await self._embed([text_of(texts[key]) for key in part], "")
                    for key, vector in zip(part, vectors, strict=True):
                        server = texts[key].server
                        self._keep(key, server, vector, whose)
                        self._made[server] = self._today(), MOST_A_DAY - self._left(server) + 1
                        self._store.put(SPACE, key.hex(), vector.tobytes(), KEPT)
                        self._unwritten += 1
                    self._let_go(whose)
            except Fault as fault:
                log.warning("not all tools have embeddings yet: %s", fault.message)
            self._let_go(whose)
            if self._unwritten > MOST_UNWRITTEN:
                self._write()

    def _keep(self, key: bytes, server: str, vector: Vector, whose: dict[bytes, str]) -> None:
        self._known[key] = vector
        whose.setdefault(key, server)
        self._largest = max(self._largest, len(vector) * vector.itemsize)

    def _write(self) -> None:
        """Of which servers they are, for the next process."""
        self._store.put(SPACE, ALL, msgspec.json.encode(_by_server(self._kept())), KEPT)
        self._unwritten = 0

    def _affordable(self, wanted: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """As many as their servers may have made today."""
        left, found = dict[str, int](), list[bytes]()
        for key, server in wanted:
            left[server] = left.get(server, self._left(server)) - 1
            if left[server] >= 0:
                found.append(key)
        for server in (server for server, most in left.items() if most < 0):
            log.warning("%s: more than %d texts of a day: the others are found by words", server, MOST_A_DAY)
        return found

    def _kept(self) -> dict[bytes, str]:
        if self._whose is None:
            try:
                kept = msgspec.json.decode(self._store.get(SPACE, ALL) or b"{}", type=dict[str, list[str]])
                self._whose = {bytes.fromhex(key): server for server, keys in kept.items() for key in keys}
            except (msgspec.DecodeError, ValueError):
                self._whose = {}
        return self._whose

    def _let_go(self, whose: dict[bytes, str]) -> None:
        """Of what is too much to be kept: the oldest of whichever server has most."""
        for key in giving_way(whose, 2 * self._most, lambda key: whose[key]):
            del whose[key]
            self._known.pop(key, None)
            self._store.delete(SPACE, key.hex())

    async def _embed(self, texts: Sequence[str], whose: str) -> Sequence[Vector]:
        """Raises `Fault`."""
        folder = self._folder()
        if not folder:
            return await self._providers.embed(texts, whose)
        vectors: list[Vector] = []
        for at in range(0, len(texts), AT_ONCE):  # so that a search waits for few of them
            part = texts[at : at + AT_ONCE]
            vectors += await self._turns.in_thread(whose, partial(self._made_here, Path(folder), part), self._thread)
        return vectors

    def _made_here(self, folder: Path, texts: Sequence[str]) -> Sequence[Vector]:
        """On the model's thread. One that cannot be loaded is not tried again until its files are others."""
        model = mark(folder)
        try:
            if not self._local or self._local[0] != model:
                self._local = model, _loaded(folder)
            if isinstance(self._local[1], NoModel):
                raise self._local[1]
            return self._local[1].embed(texts)
        except NoModel as why:
            raise Fault("SERVER_FAILED", str(why), reach="not_sent") from None

    def _model(self) -> str:
        """What makes vectors now: those of another one are of no use."""
        if folder := self._folder():
            return mark(Path(folder))
        provider = self._providers.of(USE)
        return f"{provider.base} {provider.model}" if provider else ""


def _loaded(folder: Path) -> LocalModel | NoModel:
    try:
        return LocalModel(folder)
    except NoModel as why:
        return why


def _key(model: str, text: str) -> bytes:
    return hashlib.sha256(f"{model}\n{text}".encode(errors="replace")).digest()


def _by_server(whose: Mapping[bytes, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, server in whose.items():
        found.setdefault(server, []).append(key.hex())
    return found
