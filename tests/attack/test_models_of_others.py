"""Clients whose requests to a model take as long as they may, beside others that ask the same model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import model_double as double
import pytest
from model_double import KEY, MODEL
from virtualtime import FakeClock, settle, soon

from toolgate.auth.safe_net import Fetched
from toolgate.config import Config
from toolgate.config.providers import Provider
from toolgate.config.shapes import Rate
from toolgate.core.fault import Fault
from toolgate.core.redaction import Redactor
from toolgate.upstreams.providers import api, embeddings
from toolgate.upstreams.providers.api import Prompt
from toolgate.upstreams.providers.services import Providers

SLOW, QUICK = "take your time", "be quick"


class Net:
    """A model that answers what is quick at once, and never what is slow."""

    async def fetch(self, url: str, _method: str, *, body: bytes, **_: Any) -> Fetched:
        if SLOW in body.decode():
            await asyncio.Event().wait()
        return Fetched(200, {}, json.dumps(double.completion("hi")).encode(), url)


def asks(models: Providers, whose: str, text: str) -> Coroutine[Any, Any, Any]:
    return models.ask("datasets", Prompt("", text), whose)


def runs(models: Providers, whose: str, text: str) -> Coroutine[Any, Any, Any]:
    return models.execute("1", text, whose)


@asynccontextmanager
async def beside(
    slow: Callable[[Providers, str, str], Coroutine[Any, Any, Any]], *clients: str, concurrency: int = 4
) -> AsyncGenerator[Providers]:
    """Models that these clients have asked for something slow, as often as they may."""
    robot = Provider(
        type="openai",
        model=MODEL,
        key=KEY,
        url="http://127.0.0.1:9/v1",
        concurrency=concurrency,
        rate=Rate(1000, 60.0),
        uses=("datasets", "execution"),
    )
    models = Providers(Config(providers={"robot": robot}), FakeClock(), Net(), Redactor())  # type: ignore[arg-type]
    waiting = [asyncio.ensure_future(slow(models, whose, SLOW)) for whose in clients for _ in range(12)]
    await settle()
    try:
        yield models
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("slow", [asks, runs])
@pytest.mark.parametrize("concurrency", [2, 4, 5])
async def test_slow_requests_of_one_client_keep_nobody_from_a_model(slow: Any, concurrency: int) -> None:
    async with beside(slow, "mallory", concurrency=concurrency) as models:
        for _ in range(3):
            assert (await soon(asks(models, "ann", QUICK))).text == "hi"


async def test_nor_do_those_of_two() -> None:
    async with beside(asks, "mallory", "trudy") as models:
        assert (await soon(asks(models, "ann", QUICK))).text == "hi"


async def test_one_client_may_keep_the_only_request_there_is_until_its_time_is_over() -> None:
    async with beside(asks, "mallory", concurrency=1) as models:
        waits = asyncio.ensure_future(asks(models, "ann", QUICK))
        await settle()
        assert not waits.done()
        waits.cancel()
        with pytest.raises(Fault):
            await soon(asks(models, "mallory", QUICK))


# Models that answer as nobody would.


def answering(type: str, said: object, *uses: str) -> Providers:
    class Odd:
        async def fetch(self, url: str, _method: str, *, body: bytes, **_: Any) -> Fetched:
            return Fetched(200, {}, json.dumps(said).encode(), url)

    odd = Provider(type=type, model=MODEL, key=KEY, url="http://127.0.0.1:9/v1", uses=uses)  # type: ignore[arg-type]
    return Providers(Config(providers={"odd": odd}), FakeClock(), Odd(), Redactor())  # type: ignore[arg-type]


BLOCKS = {"content": [{"type": ""}] * 100_000}


@pytest.mark.parametrize("use", ["datasets", "execution"])
async def test_an_answer_of_very_many_parts_is_refused_before_it_is_read(use: str, monkeypatch: Any) -> None:
    models = answering("anthropic", BLOCKS, use)
    monkeypatch.setattr(api, "read", lambda *_: pytest.fail("it is read"))
    with pytest.raises(Fault, match="more than 10,000 values"):
        await (runs if use == "execution" else asks)(models, "ann", QUICK)


@pytest.mark.parametrize(("count", "why"), [(embeddings.MOST_DIMENSIONS + 1, "8,192 numbers"), (200_000, "values")])
async def test_a_vector_with_very_many_numbers_is_refused(count: int, why: str) -> None:
    models = answering("openai", {"data": [{"index": 0, "embedding": [1.0] * count}]}, "embeddings")
    with pytest.raises(Fault, match=why):
        await models.embed(["text"], "ann")
