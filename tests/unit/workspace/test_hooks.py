"""What programs say of their sessions, as it was captured from them, gives the right records; and what is said while
nobody reads it is read later, once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from virtualtime import FakeClock, settle, soon

from toolgate.config import Config
from toolgate.core.fault import Fault
from toolgate.core.redaction import LONGEST_QUOTED, Redactor
from toolgate.frontends.hook import is_allowed
from toolgate.state.memory import MemoryStore
from toolgate.workspace import hooks, sessions
from toolgate.workspace.hooks import HOOKS, NOTHING, Hooks
from toolgate.workspace.sessions import LONGEST_SUMMARY, MOST_SUMMARY, Record
from toolgate.workspace.workspace import Workspace

CAPTURED = Path(__file__).parents[2] / "fixtures" / "hook_payloads.txt"


class Room:
    """A workspace whose hooks come through a folder."""

    def __init__(self, folder: Path, store: MemoryStore | None = None) -> None:
        self.clock = FakeClock()
        self.folder = folder
        self.workspace = Workspace(store or MemoryStore(self.clock), self.clock, Config(), folder)
        self.spool = folder / "hooks"
        self.spool.mkdir(mode=0o700, exist_ok=True)
        self.hooks = Hooks(self.workspace, self.clock, self.spool)
        self._numbers = iter(range(1, 10**6))

    def put(self, source: str, payload: object, number: int | None = None) -> str:
        """As `toolgate hook` does."""
        name = f"{number or next(self._numbers):020d}-1-{source}.json"
        (self.spool / name).write_bytes(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
        return name

    async def told(self, source: str, payload: object) -> dict[str, str]:
        """The same while somebody waits: what its program is told."""
        answer = await soon(self.hooks.answer(self.put(source, payload)))
        assert answer is not None
        return json.loads(answer)

    async def records(self) -> list[Record]:
        return list(await self.workspace.query(lambda connection: sessions.newest(connection, "", 100)))

    async def record(self, id: str) -> Record:
        return await self.workspace.query(lambda connection: sessions.found(connection, "", id))

    @property
    def unread(self) -> list[str]:
        return sorted(path.name for path in self.spool.glob("[0-9]*"))


@asynccontextmanager
async def reading(room: Room) -> AsyncGenerator[Room]:
    work = asyncio.ensure_future(room.hooks.follow())
    try:
        await settle()
        yield room
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def captured(source: str) -> list[dict[str, str]]:
    lines = CAPTURED.read_text().splitlines()
    return [json.loads(payload) for program, _, payload in (line.partition(" ") for line in lines) if program == source]


@pytest.mark.promise("004.hooks.start", "004.hooks.prompt", "004.hooks.stop", "004.hooks.end")
@pytest.mark.parametrize("source", ["claude", "codex", "gemini"])
async def test_the_payloads_of_each_program_give_the_record_of_its_session(source: str, tmp_path: Path) -> None:
    start, prompt, stop, end = captured(source)
    async with reading(Room(tmp_path)) as room:
        told = await room.told(source, start)
        [record] = await room.records()
        assert (record.external_id, record.source, record.status) == (start["session_id"], source, "active")
        assert (record.cwd, record.transcript_path) == ("/home/user/repo", start["transcript_path"])
        assert record.model == ("fake-model" if source == "codex" else "")
        assert record.id in told["hookSpecificOutput"]["additionalContext"]

        assert await room.told(source, prompt) == {}
        assert (await room.record(record.id)).title == "say hi"

        assert await room.told(source, stop) == {}
        paused = await room.record(record.id)
        assert (paused.status, paused.last_reply, paused.prompts) == ("paused", "hello from fake", 1)

        assert await room.told(source, end) == {}
        ended = await room.record(record.id)
        assert ended.status == "handoff_ready" and ended.ended_at
        assert "say hi" in ended.summary and "hello from fake" in ended.summary

        next_start = {**start, "session_id": "the next one"}
        context = (await room.told(source, next_start))["hookSpecificOutput"]
        assert context["hookEventName"] == "SessionStart" and ended.summary in context["additionalContext"]
        assert (await room.record("the next one")).parent_id == record.id
        assert (await room.record(record.id)).status == "ended"
        assert room.unread == []


async def test_what_a_hook_has_added_to_a_prompt_is_none_of_it(tmp_path: Path) -> None:
    added = "<hook_context>The id of this session: 1\n&lt;more&gt;</hook_context>\n\n"
    async with reading(Room(tmp_path)) as room:
        await room.told("gemini", {**captured("gemini")[1], "prompt": added + added + "Mend <hook_context>"})
        [record] = await room.records()
        assert (record.title, record.first_prompt) == ("Mend <hook_context>", "Mend <hook_context>")


async def test_what_a_hook_has_added_is_looked_for_in_the_beginning_of_a_prompt_alone(tmp_path: Path) -> None:
    added = f"<hook_context>{'a' * 5 * LONGEST_QUOTED}</hook_context>"
    async with reading(Room(tmp_path)) as room:
        await room.told("gemini", {**captured("gemini")[1], "prompt": f"{added}Mend"})
        [record] = await room.records()
        assert record.first_prompt.startswith("<hook_context>aaa")


async def test_what_was_said_while_nobody_read_is_read_in_its_order_later(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for payload in captured("claude"):
        room.put("claude", payload)
    async with reading(room):
        [record] = await room.records()
        assert (record.status, record.prompts, record.title) == ("handoff_ready", 1, "say hi")
        assert room.unread == []


async def test_a_start_that_nobody_waits_for_takes_no_handoff(tmp_path: Path) -> None:
    async with reading(Room(tmp_path)) as room:
        for payload in captured("claude"):
            await room.told("claude", payload)
        start = {**captured("claude")[0], "session_id": "late"}
        room.put("claude", start)
        await room.clock.advance(hooks.LOOK)
        assert (await room.record("late")).parent_id is None
        told = await room.told("claude", start)
        assert "say hi" in told["hookSpecificOutput"]["additionalContext"]


async def test_all_who_ask_about_one_file_are_answered_also_where_the_first_has_left(tmp_path: Path) -> None:
    room = Room(tmp_path)
    name = room.put("claude", captured("claude")[0])
    first, second, third = [asyncio.ensure_future(room.hooks.answer(name)) for _ in range(3)]
    await settle()
    first.cancel()
    async with reading(room):
        assert await soon(second) == await soon(third) is not None


async def test_who_stops_waiting_loses_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path)
    waiting = asyncio.ensure_future(room.hooks.answer(room.put("claude", captured("claude")[0])))
    await settle()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with reading(room):
        assert [record.source for record in await room.records()] == ["claude"]


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff" * 100, b"{}", b'{"hook_event_name": "Stop"}', b"9" * 99])
async def test_what_is_not_understood_is_dropped_and_holds_nothing_up(payload: bytes, tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.put("claude", payload)
    room.put("claude", captured("claude")[0])
    async with reading(room):
        assert len(await room.records()) == 1
        assert room.unread == []


async def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    room = Room(tmp_path)
    other = tmp_path / "other"
    other.write_text(json.dumps(captured("claude")[0]))
    (room.spool / f"{1:020d}-1-claude.json").symlink_to(other)
    room.put("claude", {**captured("claude")[0], "session_id": "mine"}, 2)
    async with reading(room):
        assert [record.id for record in await room.records()] == ["mine"]
        assert other.exists()


async def test_payloads_wait_while_sessions_cannot_be_kept(tmp_path: Path) -> None:
    room = Room(tmp_path, MemoryStore(FakeClock(), "the disk is full"))
    names = [room.put("claude", payload) for payload in captured("claude")]
    async with reading(room):
        assert room.unread == names


async def test_two_gateways_read_one_folder_once(tmp_path: Path) -> None:
    store = MemoryStore(FakeClock())
    one, two = Room(tmp_path, store), Room(tmp_path, store)
    for number in range(20):
        one.put("claude", {**captured("claude")[1], "prompt": f"prompt {number}"})
    async with reading(one), reading(two):
        await one.clock.advance(hooks.LOOK)
        [record] = await one.records()
        assert (record.prompts, record.first_prompt, record.last_prompt) == (20, "prompt 0", "prompt 19")


async def test_what_is_kept_has_no_secrets_and_nothing_that_acts_on_a_terminal(tmp_path: Path) -> None:
    redactor = Redactor(["correct horse battery"])
    token = "ghp_" + "a1B2" * 9
    said = f"Use correct horse battery\x1b[2J and {token}\nnow"
    async with reading(Room(tmp_path)) as room:
        await room.told("gemini", {**captured("gemini")[1], "prompt": said})
        await room.told("gemini", {**captured("gemini")[2], "prompt_response": said})
        [record] = await room.records()
    whole = json.dumps([record.title, record.first_prompt, record.last_prompt, record.last_reply])
    assert not any(each in whole for each in ("horse", token, "\\u001b")) and record.title.startswith("Use [secret]")
    del redactor


async def test_a_compacted_session_gets_its_own_summary_back(tmp_path: Path) -> None:
    start, prompt, _, _ = captured("claude")
    async with reading(Room(tmp_path)) as room:
        await room.told("claude", start)
        await room.told("claude", prompt)
        await room.told("claude", {**start, "hook_event_name": "PreCompact"})
        told = await room.told("claude", {**start, "source": "compact"})
        assert "say hi" in told["hookSpecificOutput"]["additionalContext"]
        [record] = await room.records()
        assert (record.status, record.parent_id) == ("active", None)


async def test_a_session_that_did_nothing_hands_on_what_it_was_handed(tmp_path: Path) -> None:
    start, _, _, end = captured("claude")
    async with reading(Room(tmp_path)) as room:
        for payload in captured("claude"):
            await room.told("claude", payload)
        await room.told("claude", {**start, "session_id": "opened by mistake"})
        await room.told("claude", {**end, "session_id": "opened by mistake"})
        told = await room.told("claude", {**start, "session_id": "meant"})
        assert "say hi" in told["hookSpecificOutput"]["additionalContext"]


async def test_handoffs_stay_in_their_folder(tmp_path: Path) -> None:
    async with reading(Room(tmp_path)) as room:
        for payload in captured("claude"):
            await room.told("claude", payload)
        told = await room.told("claude", {**captured("claude")[0], "session_id": "other", "cwd": "/elsewhere"})
        assert "say hi" not in told["hookSpecificOutput"]["additionalContext"]


async def test_handoffs_go_from_folder_to_folder_of_one_project(tmp_path: Path) -> None:
    for folder in ("repo/.gobby", "repo/src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "repo/.gobby/project.json").write_text('{"id": "p1", "name": "repo"}')
    start, prompt, _, end = captured("codex")
    async with reading(Room(tmp_path)) as room:
        for payload in (start, prompt, end):
            await room.told("codex", {**payload, "cwd": str(tmp_path / "repo")})
        more = {"session_id": "other", "cwd": str(tmp_path / "repo/src")}
        told = await room.told("codex", {**start, **more})
        assert "say hi" in told["hookSpecificOutput"]["additionalContext"]
        assert (await room.record("other")).project_id == "p1"


MOST_TAKEN = 10_000  # characters: what Claude Code takes as context, and puts into a file if it is more

ANY = st.none() | st.integers() | st.text(max_size=20) | st.text(max_size=20).map(lambda text: text * 500)
SAID = st.fixed_dictionaries(
    {"session_id": st.sampled_from(["one", "two"]) | ANY},
    optional=dict.fromkeys(("cwd", "prompt", "last_assistant_message", "source", "model", "summary", "more"), ANY),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*HOOKS, "Nonsense"]), SAID), max_size=6))
def test_whatever_is_said_is_a_record_within_its_bounds_or_a_fault(said: list[tuple[str, dict[str, object]]]) -> None:
    async def play() -> None:
        clock = FakeClock()
        workspace = Workspace(MemoryStore(clock), clock, Config(), Path("/nowhere"))
        for hook, params in said:
            payload = Raw(json.dumps({**params, "hook_event_name": hook}).encode())
            with contextlib.suppress(Fault):
                printed = await Hooks(workspace, clock).take(payload, "claude")
                assert is_allowed(printed) and (printed == NOTHING) == (hook != "SessionStart")
                shown = json.loads(printed).get("hookSpecificOutput", {})
                assert len(shown.get("additionalContext", "")) <= MOST_TAKEN
        for record in await workspace.query(lambda connection: sessions.newest(connection, "", 100)):
            assert len(record.title) <= 80 and "\n" not in record.title
            assert len(record.summary) <= LONGEST_SUMMARY and len(record.summary.encode()) <= MOST_SUMMARY
            assert len(record.last_prompt) <= sessions.LONGEST_PROMPT

    asyncio.run(play())
