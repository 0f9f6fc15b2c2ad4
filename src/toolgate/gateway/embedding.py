"""What tools mean, as vectors of a model that is configured for it: made in the background, kept by what they are of.

The rules this file keeps: a search waits for the vector of its own words and for no other; where a model does not
answer, words alone are searched; and what was made once is not asked for again, by the next process either.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from toolgate.core.background import BackgroundTasks
from toolgate.core.fault import Fault
from toolgate.search import Document
from toolgate.search.semantic import text_of
from toolgate.state.base import Store
from toolgate.upstreams.providers.embeddings import Vector
from toolgate.upstreams.providers.services import CONFIGURE, Providers

log = logging.getLogger(__name__)

SPACE: Final = "embeddings"
USE: Final = "embeddings"
BATCH = 64  # texts of one request
MOST = 5000  # documents that have a vector; a catalogue beyond it is searched by words
MOST_QUERIES = 500  # whose vectors are kept
KEPT = 90 * 24 * 3600.0  # seconds in the store


class Embeddings:
    def __init__(self, providers: Providers, store: Store) -> None:
        self._providers = providers
        self._store = store
        self._background = BackgroundTasks()
        self._known: dict[bytes, Vector] = {}  # by a hash of model and text
        self._queries: dict[bytes, Vector] = {}
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        await self._background.close()

    def check(self) -> None:
        """Raises `Fault` where no model is there for it."""
        if not self._providers.of(USE):
            hint = CONFIGURE.format(use=f'"{USE}"')
            message = "The mode semantic needs a model that makes embeddings, and none is configured: use mode bm25"
            raise Fault("INVALID_ARGS", message, hint=hint, reach="not_sent")

    async def of_query(self, query: str, whose: str) -> Vector | None:
        """None where the model does not answer."""
        key = self._key(query)
        if key not in self._queries:
            try:
                (self._queries[key],) = await self._providers.embed((query,), whose)
            except Fault as fault:
                log.warning("searched by words alone: %s", fault.message)
                return None
            while len(self._queries) > MOST_QUERIES:
                del self._queries[next(iter(self._queries))]
        return self._queries[key]

    def known(self, documents: Sequence[Document]) -> Mapping[Document, Vector]:
        """The vectors that are there; those that are not are made in the background."""
        keys = {document: self._key(text_of(document)) for document in documents[:MOST]}
        lacking = [document for document, key in keys.items() if key not in self._known]
        if lacking and not self._turn.locked():
            self._background.start(self._make(lacking), "make embeddings of tools")
        return {document: self._known[key] for document, key in keys.items() if key in self._known}

    async def made(self) -> None:
        """Until what was begun is done."""
        async with self._turn:
            pass

    async def _make(self, documents: Sequence[Document]) -> None:
        async with self._turn:
            texts = {self._key(text): text for text in map(text_of, documents)}
            for key in texts:
                if kept := self._store.get(SPACE, key.hex()):
                    self._known[key] = array("f", kept)
            wanted = [key for key in texts if key not in self._known]
            try:
                for at in range(0, len(wanted), BATCH):
                    part = wanted[at : at + BATCH]
                    vectors = await self._providers.embed([texts[key] for key in part], "")
                    for key, vector in zip(part, vectors, strict=True):
                        self._known[key] = vector
                        self._store.put(SPACE, key.hex(), vector.tobytes(), KEPT)
            except Fault as fault:
                log.warning("not all tools have embeddings yet: %s", fault.message)
            while len(self._known) > 2 * MOST:
                del self._known[next(iter(self._known))]

    def _key(self, text: str) -> bytes:
        provider = self._providers.of(USE)
        model = f"{provider.base} {provider.model}" if provider else ""
        return hashlib.sha256(f"{model}\n{text}".encode(errors="replace")).digest()
