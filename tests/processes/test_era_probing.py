"""Which era a child speaks is found out by asking it, whatever it makes of the question."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from processes.ground import child, failure, gateway, real, settings

from toolgate.core.clock import SystemClock
from toolgate.core.mcp import Era
from toolgate.demo import SERVERS
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.known_eras import Eras
from toolgate.upstreams.mcp import opening

FIXTURE = Path(__file__).resolve().parents[1] / "conformance" / "fixture_server.py"
FALLBACK = ["server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"]


@pytest.mark.promise("spec.2026.stdio.child-fallback")
@pytest.mark.parametrize("way", ["-32601", "-32602", "no result", "an odd result", "an old version"])
@real
async def test_a_refusal_or_an_odd_answer_falls_back_to_the_handshake(way: str) -> None:
    """At once: the silence that would do so as well is longer than this test may take."""
    async with gateway(settings(one=child("opening", way, scope="session"))) as served:
        messages = json.loads(await served.client().call("one__seen"))
        assert [message["method"] for message in messages] == FALLBACK
        assert served.status("one").revision == "2025-11-25"


@pytest.mark.promise("spec.2026.stdio.child-fallback")
@pytest.mark.parametrize("way", ["silence", "-32600 without an id", "text", "half a message", "no message"])
@real
async def test_silence_and_garbage_fall_back_to_the_handshake(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "SILENCE", 1.0)
    monkeypatch.setattr(opening, "SILENCE_AFTER_A_SIGN", 0.2)
    async with gateway(settings(one=child("opening", way, scope="session"))) as served:
        messages = json.loads(await served.client().call("one__seen"))
        assert [message["method"] for message in messages] == FALLBACK
        assert served.status("one").revision == "2025-11-25"
        ids = [message["id"] for message in messages if message["id"] is not None]
        assert len(set(ids)) == len(ids)


@pytest.mark.promise("b.rulings.16-first-message")
@pytest.mark.parametrize("scope", ["principal", "session"])
@real
async def test_a_child_that_ends_over_what_it_does_not_know_is_started_once_more_and_remembered(
    scope: str, tmp_path: Path
) -> None:
    notes, store = tmp_path / "notes", MemoryStore(SystemClock())
    config = settings(one=child("opening", "end", str(notes), scope=scope))
    for _ in range(2):
        async with gateway(config, store=store) as served:
            for era in ("2025-11-25", "2026-07-28"):
                assert await served.client(era).call("one__echo", say="hi") == "hi"
        assert notes.read_text() == "ended\n"


@pytest.mark.promise("b.rulings.16-first-message")
@real
async def test_a_child_that_ends_only_over_the_next_message_is_started_once_more_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(opening, "SILENCE", 0.5)
    there = child("opening", "end late", str(tmp_path / "notes"), scope="session")
    async with gateway(settings(one=there)) as served:
        assert await served.client("2025-11-25").call("one__echo", say="hi") == "hi"


@pytest.mark.promise("b.rulings.16-first-message")
@real
async def test_a_modern_program_that_goes_by_its_first_message_is_started_once_more_and_remembered() -> None:
    """The official SDK takes a refused `initialize` for the era of the whole connection."""
    store = MemoryStore(SystemClock())
    config = settings(one={"command": sys.executable, "args": [str(FIXTURE), "--stdio", "--era", "modern"]})
    for _ in range(2):
        async with gateway(config, store=store) as served:
            for era in ("2025-11-25", "2026-07-28"):
                assert "simple text" in await served.client(era).call("one__test_simple_text")
            assert served.status("one").revision == "2026-07-28"
    assert Eras(store).load(config.servers[0]) == "modern"


@pytest.mark.promise("b.rulings.16-first-message", "b.rulings.16-era")
@real
async def test_one_child_for_all_is_asked_to_initialize_first(tmp_path: Path) -> None:
    async with gateway(settings(one=child("opening", "end", str(tmp_path / "notes")))) as served:
        messages = json.loads(await served.client().call("one__seen"))
        assert [message["method"] for message in messages] == FALLBACK[1:]


@pytest.mark.promise("b.rulings.16-first-message")
@pytest.mark.parametrize("wrong", ["legacy", "modern"])
@pytest.mark.parametrize("scope", ["shared", "session"])
@real
async def test_an_era_that_is_remembered_and_wrong_heals_by_itself(wrong: Era, scope: str, tmp_path: Path) -> None:
    """The program behind the same command is another one now."""
    store = MemoryStore(SystemClock())
    modern = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS["notes"])], "scope": scope}
    there = modern if wrong == "legacy" else child("opening", "end", str(tmp_path / "notes"), scope=scope)
    config = settings(one=there)
    Eras(store).save(config.servers[0], wrong)
    async with gateway(config, store=store) as served:
        assert await served.client().tools()
    assert Eras(store).load(config.servers[0]) in (None, "modern" if wrong == "legacy" else "legacy")


@pytest.mark.promise("spec.2026.versions.discover-first")
@real
async def test_a_modern_child_is_found_by_the_first_question() -> None:
    config = settings(notes={"command": sys.executable, "args": ["-I", "-S", str(SERVERS["notes"])]})
    async with gateway(config) as served:
        assert "notes__list_notes" in await served.client().tools()
        assert served.status("notes").revision == "2026-07-28"


@real
async def test_a_modern_child_that_was_slow_to_answer_is_asked_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is silent for long enough, and then refuses the handshake as only a modern server does."""
    monkeypatch.setattr(opening, "SILENCE", 0.0)
    monkeypatch.setattr(opening, "SILENCE_AFTER_A_SIGN", 0.0)
    config = settings(notes={"command": sys.executable, "args": ["-I", "-S", str(SERVERS["notes"])]})
    async with gateway(config) as served:
        assert "notes__list_notes" in await served.client().tools()
        assert served.status("notes").revision == "2026-07-28"


@real
async def test_a_child_that_never_answers_fails_after_its_start_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "SILENCE", 0.1)
    deaf = {"command": sys.executable, "args": ["-I", "-S", "-c", "import sys; sys.stdin.read()"]}
    async with gateway(settings(one=deaf | {"start_timeout": "1s"}, two=child("counting"))) as served:
        client = served.client()
        error = await failure(client.call("one__anything"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")
        assert "did not answer within 1 s" in error.message
        assert "start_timeout" in error.data["hint"]
        assert await client.call("two__pid")
