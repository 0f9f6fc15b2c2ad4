"""In whose session and project a call is: by the record that it named, by its client's roots, by its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock, soon

from toolgate.auth.access import THE_OPERATOR
from toolgate.config import Config
from toolgate.core.exchange import Exchange
from toolgate.core.model import Answer, Asker, Call, Client, Principal
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.inprocess.tools import ToolContext
from toolgate.workspace import workspace as workspaces
from toolgate.workspace.sessions import Record
from toolgate.workspace.workspace import Workspace, absolute

HERE = Principal("local", "127.0.0.1", is_here=True)
AWAY = Principal("client:ann", "127.0.0.1", client="ann", via="key")


class Asked(ToolContext):
    """A call whose client answers at once."""

    def __init__(self, client: Client, answer: Answer) -> None:
        super().__init__(Call("tools/call", "t", client), Exchange(Asker("upstream", "gobby-tasks"), FakeClock()))
        self.answer = answer
        self.asked = 0

    async def ask(self, method: str, params: Any) -> Answer:
        assert method == "roots/list"
        self.asked += 1
        return self.answer


def calling(session: str = "s", principal: Principal = HERE, roots: Any = None) -> Asked:
    capabilities = {} if roots is None else {"roots": {}}
    return Asked(Client(principal, session, capabilities), Answer(Raw(json.dumps({"roots": roots}).encode())))


def uris(*folders: Path) -> list[dict[str, str]]:
    return [{"uri": folder.as_uri()} for folder in folders]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return project(tmp_path, "repo")


def project(where: Path, name: str) -> Path:
    (where / name / ".gobby").mkdir(parents=True)
    (where / name / ".gobby/project.json").write_text(json.dumps({"id": name}))
    (where / name / "src").mkdir()
    return where / name


def room(folder: Path) -> Workspace:
    return Workspace(MemoryStore(FakeClock()), FakeClock(), Config(), folder)


async def named(workspace: Workspace, context: ToolContext, id: str) -> Record:
    """What a call that names a session is in."""
    caller, now = await workspace.caller(context), workspace.now()
    record = await workspace.transact(lambda connection: caller.session(connection, id, now))
    workspace.bind(context, record)
    found = await workspace.record(context)
    assert found and found.id == record
    return found


async def where(workspace: Workspace, context: ToolContext) -> str | None:
    found = await soon(workspace.project(context))
    return found and found.id


async def test_a_call_is_in_the_project_of_the_folder_where_the_gateway_was_started(repo: Path) -> None:
    assert await where(room(repo / "src"), calling()) == "repo"
    assert await where(room(repo.parent), calling()) is None


async def test_the_first_root_in_a_project_counts_more_and_is_asked_for_once(repo: Path, tmp_path: Path) -> None:
    workspace, other = room(repo), project(tmp_path, "other 1")
    context = calling(roots=uris(tmp_path / "nowhere", other / "src", repo))
    assert [await where(workspace, context) for _ in range(3)] == ["other 1"] * 3
    assert context.asked == 1
    context.answer = Answer(Raw(json.dumps({"roots": uris(repo)}).encode()))
    workspace.roots_changed(context.client)
    assert (await where(workspace, context), context.asked) == ("repo", 2)


async def test_who_has_no_session_is_asked_each_time(repo: Path) -> None:
    workspace, context = room(repo), calling("", roots=[])
    await where(workspace, context)
    await where(workspace, context)
    assert context.asked == 2


async def test_the_folder_of_a_named_record_counts_most(repo: Path, tmp_path: Path) -> None:
    workspace, other = room(repo), project(tmp_path, "other")
    await named(workspace, calling("before", roots=uris(other)), "mine")
    context = calling("s", roots=uris(repo))
    assert await where(workspace, context) == "repo"
    await named(workspace, context, "mine")
    assert await where(workspace, context) == "other"
    assert await where(workspace, calling("another")) == "repo"


@pytest.mark.parametrize(
    "roots",
    [
        None,
        7,
        [7],
        [{}],
        [{"uri": 7}],
        [{"uri": "file://"}],
        [{"uri": "https://x/y"}],
        [{"uri": "file://[x"}],
        [{"uri": "file:///a%00b"}],
        [{"uri": "file:///" + "a" * 20_000}],
        [{"uri": "file:///etc/passwd"}],
    ],
)
async def test_roots_that_are_none_count_as_none(roots: Any, repo: Path) -> None:
    context = calling(roots=[])
    context.answer = Answer(Raw(json.dumps({"roots": roots}).encode()))
    assert await where(room(repo), context) == "repo"


async def test_paths_of_clients_from_elsewhere_count_nothing_and_are_not_asked_for(repo: Path, tmp_path: Path) -> None:
    workspace, context = room(tmp_path), calling(principal=AWAY, roots=uris(repo))
    assert (await where(workspace, context), context.asked) == (None, 0)
    assert (await named(workspace, context, "theirs")).cwd == ""


async def test_who_does_not_say_what_its_roots_are_is_not_waited_for_twice(repo: Path) -> None:
    workspace = room(repo)
    asking = Exchange(Asker("upstream", "gobby-tasks"), FakeClock())
    client = Client(HERE, "s", {"roots": {}})
    context = ToolContext(Call("tools/call", "t", client), asking)
    assert (await workspace.project(context)) is not None
    assert asking.open_asks() == ()  # withdrawn
    assert (await soon(workspace.project(context))) is not None


async def test_a_call_belongs_to_the_only_active_session_of_its_folder(repo: Path) -> None:
    workspace = room(repo)
    assert await workspace.record(calling()) is None
    await named(workspace, calling("one"), "a")
    found = await workspace.record(calling("other"))
    assert found and found.shown_id == "a"
    assert await workspace.record(calling("s", AWAY)) is None
    await named(workspace, calling("two"), "b")
    assert await workspace.record(calling("other")) is None  # it may be either
    bound = [await workspace.record(calling(session)) for session in ("one", "two")]
    assert [record and record.shown_id for record in bound] == ["a", "b"]


async def test_a_stale_session_is_no_candidate(repo: Path) -> None:
    clock = FakeClock()
    workspace = Workspace(MemoryStore(clock), clock, Config(), repo)
    await named(workspace, calling("one"), "a")
    await clock.sleep(7 * 3600)
    assert await workspace.record(calling("other")) is None


async def test_nobody_is_bound_to_what_is_anothers(repo: Path) -> None:
    workspace = room(repo)
    mine = await named(workspace, calling("one", THE_OPERATOR), "a")
    theirs = await named(workspace, calling("one", AWAY), "a")
    assert (mine.principal, theirs.principal, mine.id == theirs.id) == ("", "client:ann", False)


async def test_what_is_remembered_of_sessions_is_bounded(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "MOST_BOUND", 2)
    workspace = room(repo)
    contexts = [calling(f"s{number}", roots=[]) for number in range(3)]
    for number, context in enumerate(contexts):
        await named(workspace, context, f"r{number}")
    assert [len(workspace._bound), len(workspace._roots)] == [2, 2]  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("path", "kept"),
    [("/a/../b//c/", "/b/c"), ("a/b", ""), ("", ""), ("/a\nb", ""), ("/a\0b", ""), ("/" + "a" * 5000, "")],
)
def test_a_path_is_absolute_and_plain_or_none(path: str, kept: str) -> None:
    assert absolute(path) == kept


async def test_of_a_session_that_is_over_nothing_is_kept_and_of_long_roots_the_first(repo: Path) -> None:
    workspace = Workspace(MemoryStore(FakeClock()), FakeClock(), Config(), repo)
    long = [{"uri": f"file:///{number}/{'x' * 3000}"} for number in range(20)]
    context = calling(roots=[*uris(repo), *long])
    assert await workspace.project(context)
    (kept,) = workspace._roots.values()
    assert kept[0] == str(repo) and sum(map(len, kept)) <= workspaces.LARGEST_ROOTS
    workspace.bind(context, "a-record")
    workspace.forget(context.client)
    assert not workspace._roots and not workspace._bound
