"""Search by meaning, where a model that makes embeddings is configured: a double, in which words of one meaning are one
direction; and that nothing of a list or an answer differs from session to session."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import small_model
from inmemory import Json, Scripted, gateway
from stage import Asker, playing, tool

from toolgate.app import App
from toolgate.auth.safe_net import Fetched
from toolgate.config import Config, VirtualSearch
from toolgate.config.access import KnownClient
from toolgate.config.providers import Provider

# Words of one meaning. What is no such word is a direction of its own.
MEANINGS = (
    ("picture", "screenshot", "image", "photograph"),
    ("money", "invoice", "payment", "bill"),
    ("cat", "feline"),
)
TOOLS = [
    tool("browser_screenshot", "Take a screenshot of the page"),
    tool("send_invoice", "Send an invoice to a customer", {"customer": "string"}),
    tool("list_rows", "List the rows of a table", {"table": "string"}),
    tool("feline_facts", "Tell about felines"),
]
PROVIDER = Provider(type="openai", model="embed-1", url="http://127.0.0.1:9/v1", uses=("embeddings",))


class Model:
    """An API of embeddings in this process."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.status = 200
        self.answer: Any = None

    async def fetch(self, url: str, method: str = "GET", *, body: bytes = b"", **_: Any) -> Fetched:
        assert (url, method) == ("http://127.0.0.1:9/v1/embeddings", "POST")
        given = json.loads(body)
        assert given.keys() == {"model", "input"} and given["model"] == "embed-1"
        self.asked.append(given)
        data = [{"index": at, "embedding": vector(text)} for at, text in enumerate(given["input"])]
        said = self.answer if self.answer is not None else {"data": list(reversed(data)), "model": "embed-1"}
        return Fetched(self.status, {}, json.dumps(said).encode(), url)


def vector(text: str) -> list[float]:
    found = [0.0] * 64
    for word in text.lower().replace(".", " ").replace("_", " ").split():
        word = word.rstrip("s")
        place = next((at for at, words in enumerate(MEANINGS) if word in words), None)
        digest = int(hashlib.sha256(word.encode()).hexdigest(), 16)
        found[place if place is not None else 8 + digest % 56] += 1.0
    return found if any(found) else [1.0, *found[1:]]


@asynccontextmanager
async def searching(mode: str = "semantic", **more: Any) -> AsyncGenerator[tuple[App, Model]]:
    given = {"providers": {"embed": PROVIDER}, **more.pop("settings", {})}
    config = Config(virtual_search=VirtualSearch(mode=mode), **given)  # type: ignore[arg-type]
    model = Model()
    async with gateway(config=config, scripts={"many": Scripted(tools_list={"tools": TOOLS})}, **more) as app:
        app.providers._net = model  # type: ignore[assignment]
        yield app, model


async def found(asker: Asker, query: str, **more: Any) -> list[str]:
    result = await asker.call("search_tools", {"query": query, **more})
    return [each["name"] for each in result["structuredContent"]["matches"]]


async def settled(app: App) -> None:
    """Until the vectors that were begun are made."""
    await app.gateway._views.embeddings.made()
    await asyncio.sleep(0)
    await app.gateway._views.embeddings.made()


async def test_of_a_very_long_query_the_beginning_is_meant(era: str) -> None:
    async with searching() as (app, model):
        asker = Asker(app, era)
        await found(asker, "feline")
        await settled(app)
        model.asked.clear()
        await found(asker, "picture" + " é" * 2_000 + " money" * 10_000)
    (asked,) = model.asked
    assert len(asked["input"][0]) == 4_000


async def test_what_is_said_in_other_words_is_found_by_its_meaning(era: str) -> None:
    async with searching() as (app, _):
        asker = Asker(app, era)
        await found(asker, "a picture of it")  # the first search has the vectors made
        await settled(app)
        assert (await found(asker, "a photograph of it"))[0] == "many__browser_screenshot"
        assert (await found(asker, "money from somebody"))[0] == "many__send_invoice"
        assert await found(asker, "a photograph of it", mode="bm25") == []


async def test_until_the_vectors_are_there_words_are_searched(era: str) -> None:
    async with searching() as (app, model):
        assert (await found(Asker(app, era), "rows of a table"))[0] == "many__list_rows"
        await settled(app)
        texts = [text for each in model.asked for text in each["input"]]
        assert any("Take a screenshot" in text for text in texts) and "rows of a table" not in texts


async def test_a_text_is_made_a_vector_once(era: str) -> None:
    async with searching() as (app, model):
        asker = Asker(app, era)
        for _ in range(3):
            await found(asker, "a photograph of it")
            await settled(app)
        texts = [text for each in model.asked for text in each["input"]]
        assert len(texts) == len(set(texts)) and texts.count("a photograph of it") == 1


async def test_what_was_made_once_is_there_after_a_restart() -> None:
    from virtualtime import FakeClock

    from toolgate.state.memory import MemoryStore

    clock = FakeClock()
    store = MemoryStore(clock)
    async with searching(clock=clock, store=store) as (app, model):
        await found(Asker(app, "modern"), "x")
        await settled(app)
        assert model.asked
    async with searching(clock=clock, store=store) as (app, model):
        asker = Asker(app, "modern")
        await found(asker, "x")
        await settled(app)
        assert (await found(asker, "a photograph of it"))[0] == "many__browser_screenshot"
        assert [each["input"] for each in model.asked] == [["a photograph of it"]]


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, None),
        (200, {"data": []}),
        (200, {"nonsense": 1}),
        (200, {"data": [{"index": 0, "embedding": [0.0, 0.0]}]}),
        (200, {"data": [{"index": 0, "embedding": []}]}),
        (200, {"data": [{"index": 0, "embedding": [1e400]}]}),
    ],
)
async def test_where_the_model_fails_words_are_searched(status: int, answer: Any) -> None:
    async with searching() as (app, model):
        model.status, model.answer = status, answer
        asker = Asker(app, "modern")
        for _ in range(2):
            assert (await found(asker, "rows of a table"))[0] == "many__list_rows"
            await settled(app)


async def test_without_such_a_model_the_mode_is_a_clear_error(era: str) -> None:
    async with playing("sqlite") as app:
        arguments = {"query": "x", "mode": "semantic"}
        error = await Asker(app, era).error("tools/call", name="search_tools", arguments=arguments)
        assert "none is configured: use mode bm25" in error["message"] and 'uses = ["embeddings"]' in str(error["data"])


@asynccontextmanager
async def with_a_folder(folder: Path, mode: str = "semantic") -> AsyncGenerator[App]:
    config = Config(virtual_search=VirtualSearch(mode=mode, model=str(folder)))  # type: ignore[arg-type]
    async with gateway(config=config, scripts={"many": Scripted(tools_list={"tools": TOOLS})}) as app:
        yield app


async def test_a_model_in_a_folder_needs_no_provider(era: str, tmp_path: Path) -> None:
    async with with_a_folder(small_model.made(tmp_path)) as app:
        asker = Asker(app, era)
        await found(asker, "a picture of it")
        await settled(app)
        assert (await found(asker, "a photograph of it"))[0] == "many__browser_screenshot"
        assert (await found(asker, "money from somebody"))[0] == "many__send_invoice"


async def test_one_mode_of_one_search_may_use_the_folder(era: str, tmp_path: Path) -> None:
    async with with_a_folder(small_model.made(tmp_path), mode="bm25") as app:
        asker = Asker(app, era)
        await found(asker, "a picture of it", mode="semantic")
        await settled(app)
        assert (await found(asker, "a photograph of it", mode="semantic"))[0] == "many__browser_screenshot"
        assert await found(asker, "a photograph of it") == []


async def test_where_the_folder_has_no_model_words_are_searched_and_it_is_told(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_a_folder(tmp_path) as app:
        assert (await found(Asker(app, era), "rows of a table"))[0] == "many__list_rows"
        await settled(app)
        assert "has no model.onnx: name a folder" in caplog.text


async def test_other_searches_are_by_meaning_too_and_what_is_found_so_is_no_match(era: str) -> None:
    async with searching() as (app, _):
        asker = Asker(app, era)
        await asker.told("mcp_discover", query="x")
        await settled(app)
        hits = await asker.told("mcp_discover", query="a photograph of it")
        assert hits[0]["tool"] == "browser_screenshot"
        assert [each["confidence"] for each in hits] == sorted((each["confidence"] for each in hits), reverse=True)
        told = await asker.told("mcp_provision", intent="a photograph of it", source="local")
        assert told["source"] == "none", "how sure that is nobody has measured"


async def test_what_a_client_may_not_use_is_found_by_no_meaning(era: str) -> None:
    key = "tg-a-key-that-is-long-enough"
    from toolgate.config.access import Permissions

    rules = Permissions(tools={"many__browser_screenshot": "off"})
    client = KnownClient(id="ann", name="ann", key=key, servers="all", permissions=rules)
    async with searching(settings={"clients": (client,)}) as (app, _):
        asker = Asker(app, era)
        asker.visitor.headers["authorization"] = f"Bearer {key}"
        await found(asker, "x")
        await settled(app)
        assert "many__browser_screenshot" not in await found(asker, "a photograph of it")


def test_a_provider_for_embeddings_has_an_api_that_makes_them() -> None:
    from toolgate import config as configs

    table = {"type": "anthropic", "model": "m", "key": "k", "uses": ["embeddings"]}
    with pytest.raises(configs.ConfigError, match="makes them"):
        configs.read(json.dumps({"providers": {"a": table}}), file="toolgate.json", environ={}, format="json")


# The same bytes.

ASKED: tuple[tuple[str, Json], ...] = (
    ("tools/list", {}),
    ("tools/call", {"name": "mcp_discover", "arguments": {"query": "take a screenshot of the page"}}),
    ("tools/call", {"name": "search_tools", "arguments": {"query": "run a query on the database", "limit": 20}}),
)


async def answers(app: App, era: str, path: str) -> tuple[bytes, ...]:
    """What one session is told: its results as they are written."""
    asker = Asker(app, era, path)
    responses = [(await asker.request(method, **params)).last["result"] for method, params in ASKED]
    return tuple(json.dumps(each).encode() for each in responses)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", ["/mcp/aggregate"])
async def test_a_thousand_sessions_are_told_the_same_bytes(path: str, era: str) -> None:
    async with playing("playwright", "sqlite", "serena") as app:
        first = await answers(app, era, path)
        seen = {await answers(app, era, path) for _ in range(999)}
        if era == "legacy":  # a session's search has the tools that it found shown from then on, in its own list alone
            assert len(seen) == 1
        assert seen == {first}


SCRIPT = """
import asyncio, hashlib, sys
from virtualtime import play
from test_semantic_search import answers, playing
async def main():
    async with playing("playwright", "sqlite", "serena") as app:
        told = await answers(app, "modern", "/mcp/aggregate")
        print(hashlib.sha256(b"".join(told)).hexdigest())
play(main())
"""


def test_two_processes_with_other_hash_seeds_tell_the_same_bytes() -> None:
    here = Path(__file__).parent
    told = {run(here, {"PYTHONHASHSEED": seed}) for seed in ("1", "2")}
    assert len(told) == 1 and all(len(each) == 64 for each in told)


def run(here: Path, more: Mapping[str, str]) -> str:
    root = here.parents[1]
    path = os.pathsep.join(map(str, (root / "src", root / "tests", here)))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path, **more},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.strip()


# A server that changes the texts of its tools again and again.


class Shifting(Scripted):
    """Its tools are described in other words each time."""

    def __init__(self) -> None:
        super().__init__(tools_list=self.told)
        self.times = 0

    def told(self, _params: Json) -> Json:
        self.times += 1
        return {"tools": [tool(f"shift_{at}", f"The words of time {self.times}") for at in range(6)]}


async def searched(app: App, shifting: Shifting, times: int = 8) -> None:
    asker = Asker(app, "modern")
    for _ in range(times):
        app.gateway.snapshot.catalog.changed("shift", "", ("tools",))
        await asker.request("tools/list")
        await found(asker, "words")
        await settled(app)


async def test_only_so_many_texts_of_a_server_are_made_vectors_in_a_day_and_so_many_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from virtualtime import FakeClock

    from toolgate.gateway import embedding
    from toolgate.state.memory import MemoryStore

    monkeypatch.setattr(embedding, "MOST", 10)
    monkeypatch.setattr(embedding, "MOST_A_DAY", 20)
    clock, model, day = FakeClock(), Model(), 24 * 3600
    store = MemoryStore(clock)
    config = Config(virtual_search=VirtualSearch(mode="semantic"), providers={"embed": PROVIDER})
    still = Scripted(tools_list={"tools": [tool("stay", "It stays as it is")]})
    for made in (20, 60):
        shifting = Shifting()
        shifting.times = made
        async with gateway(config=config, scripts={"shift": shifting, "still": still}, clock=clock, store=store) as app:
            app.providers._net = model  # type: ignore[assignment]
            await searched(app, shifting)
            texts = [text for each in model.asked for text in each["input"]]
            assert sum("of time" in text for text in texts) == made
            await clock.advance(day)
            await searched(app, shifting)
            texts = [text for each in model.asked for text in each["input"]]
            assert sum("of time" in text for text in texts) == made + 20
            assert sum("stays" in text for text in texts) == 1
            assert len(app.gateway._views.embeddings._known) <= 20
        assert len(store.items(embedding.SPACE)) == 20 + 1  # and whose they are
        await clock.advance(day)


async def test_of_larger_vectors_fewer_tools_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolgate.gateway import embedding

    monkeypatch.setattr(embedding, "MOST_BYTES", 3 * 64 * 4)
    async with searching() as (app, _):
        asker = Asker(app, "modern")
        for _ in range(3):
            await found(asker, "a photograph of it")
            await settled(app)
        embeddings = app.gateway._views.embeddings
        assert embeddings._most == 3 and len(embeddings._known) <= 2 * 3
