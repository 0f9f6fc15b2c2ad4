"""What tasks wait for is shown from both ends, as a tree, and never makes a circle."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtualtime import play
from workroom import Json, Workroom

from toolgate.core.fault import Fault
from toolgate.workspace import circles, dependencies


@pytest.fixture
def room() -> Workroom:
    return Workroom()


async def chain(room: Workroom, length: int) -> list[str]:
    """Tasks that each wait for the next one."""
    ids = [await room.task() for _ in range(length)]
    for task, next in itertools.pairwise(ids):
        await room.after(task, next)
    return ids


async def test_a_dependency_is_shown_from_both_ends_until_it_is_removed(room: Workroom) -> None:
    a, b = await room.task("a"), await room.task("b")
    assert await room.after(a, b) == {"added": True, "task_id": a, "depends_on": b, "dep_type": "blocks"}
    assert (await room.after(a, b))["added"] is False
    shown = (await room.do("get_task", task_id=a))["dependencies"]
    assert shown == {"blocked_by": [{"id": b, "title": "b", "status": "open"}], "blocking": []}
    shown = (await room.do("get_task", task_id=b))["dependencies"]
    assert shown == {"blocked_by": [], "blocking": [{"id": a, "title": "a", "status": "open"}]}
    removed = await room.do("remove_dependency", task_id=a, depends_on=b)
    assert removed == {"removed": True, "task_id": a, "depends_on": b, "dep_types": ["blocks"]}
    assert (await room.do("remove_dependency", task_id=a, depends_on=b))["removed"] is False
    assert (await room.do("get_task", task_id=b))["dependencies"]["blocking"] == []


async def test_only_what_blocks_blocks(room: Workroom) -> None:
    a, b = await room.task("a"), await room.task("b")
    await room.after(a, b, "related")
    await room.after(a, b, "discovered-from")
    assert await room.listed("list_ready_tasks") == [a, b]
    shown = (await room.do("get_task", task_id=a))["dependencies"]
    line = [{"id": b, "title": "b", "status": "open"}]
    assert shown == {"blocked_by": [], "blocking": [], "related": line, "discovered_from": line}
    shown = (await room.do("get_task", task_id=b))["dependencies"]
    assert (shown["related"], shown["discovered"]) == ([{"id": a, "title": "a", "status": "open"}],) * 2
    removed = await room.do("remove_dependency", task_id=a, depends_on=b)
    assert removed["dep_types"] == ["discovered-from", "related"]


async def test_no_task_waits_for_itself_over_whatever_is_between(room: Workroom) -> None:
    ids = await chain(room, 5)
    for last in ids[1:]:
        fault = await room.refused("add_dependency", task_id=last, depends_on=ids[0])
        assert f"{last} cannot wait for {ids[0]}, which waits for {last} already" in fault.message
        assert "get_dependency_tree" in fault.hint
    assert (await room.after(ids[-1], ids[0], "related"))["added"] is True
    assert (await room.do("check_dependency_cycles")) == {"has_cycles": False, "cycles": []}


async def test_what_nothing_waits_for_costs_nothing_to_look_at_however_long_the_chain_is(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await chain(room, 30)
    monkeypatch.setattr(circles, "MOST_LOOKED_AT", 5)
    new = await room.task()
    assert (await room.after(new, ids[0]))["added"] and (await room.after(ids[-1], await room.task()))["added"]
    fault = await room.refused("add_dependency", task_id=ids[15], depends_on=ids[17])
    assert "too many to check for a cycle" in fault.message


async def test_a_task_has_so_many_dependencies_and_no_more(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "MOST_OF_ONE", 2)
    ids = [await room.task() for _ in range(5)]
    for id in ids[1:3]:
        await room.after(ids[0], id)
    assert "2 dependencies already" in (await room.refused("add_dependency", task_id=ids[0], depends_on=ids[3])).message
    for id in ids[2:]:
        await room.after(id, ids[1])  # of those on one there may be more
    shown = (await room.do("get_task", task_id=ids[1]))["dependencies"]
    assert (len(shown["blocking"]), shown["truncated"]) == (2, True)


async def test_what_came_in_by_other_ways_may_have_circles_which_are_found(room: Workroom) -> None:
    a, b, c, d, e = [await room.task() for _ in range(5)]
    for task, depends_on in ((a, b), (b, c), (c, b), (c, d), (e, e), (d, "gt-gone")):
        await room.run("INSERT INTO task_dependency VALUES (?, ?, 'blocks', '')", task, depends_on)
    told = await room.do("check_dependency_cycles")
    assert told["has_cycles"] is True
    assert sorted(map(sorted, told["cycles"])) == sorted([sorted([b, c]), [e]])
    assert (await room.after(d, a, "related"))["added"] is True
    tree = await room.do("get_dependency_tree", task_id=b)
    assert tree["blockers"][0]["blockers"][0] == tree["blockers"][0]["blockers"][0] | {"id": b, "repeated": True}


# Trees.


def outline(node: Json, way: str) -> Any:
    return [node["id"], *(outline(each, way) for each in node.get(way, ()))]


async def test_a_tree_shows_what_a_task_waits_for_and_what_waits_for_it(room: Workroom) -> None:
    top, a, b, low = [await room.task() for _ in range(4)]
    urgent = await room.task(priority=0)
    for task, depends_on in ((top, a), (top, b), (a, low), (b, low), (top, urgent)):
        await room.after(task, depends_on)
    tree = await room.do("get_dependency_tree", task_id=top, direction="blockers")
    assert outline(tree, "blockers") == [top, [urgent], [a, [low]], [b, [low]]]
    assert [each["blockers"][0].get("repeated") for each in tree["blockers"][1:]] == [None, True]
    assert "blocking" not in tree and tree["truncated"] is False
    both = await room.do("get_dependency_tree", task_id=a)
    assert (outline(both, "blockers"), outline(both, "blocking")) == ([a, [low]], [a, [top]])
    assert (await room.do("get_dependency_tree", task_id=low, direction="blockers"))["blockers"] == []


async def test_a_tree_has_ten_levels_and_says_where_it_was_cut(room: Workroom) -> None:
    ids = await chain(room, 12)
    tree = await room.do("get_dependency_tree", task_id=ids[0], direction="blockers")
    node, depth = tree, 0
    while node.get("blockers"):
        node, depth = node["blockers"][0], depth + 1
    assert (depth, node["id"], node["truncated"], tree["truncated"]) == (10, ids[10], True, True)
    whole = await room.do("get_dependency_tree", task_id=ids[1], direction="blockers")
    assert whole["truncated"] is False


async def test_a_tree_has_so_many_tasks_and_says_where_it_was_cut(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "MOST_NODES", 4)
    hub = await room.task()
    for _ in range(5):
        await room.after(hub, await room.task())
    tree = await room.do("get_dependency_tree", task_id=hub)
    assert (len(tree["blockers"]), tree["truncated"]) == (3, True)
    monkeypatch.setattr(dependencies, "MOST_NODES", 6)
    tree = await room.do("get_dependency_tree", task_id=hub)
    assert (len(tree["blockers"]), tree["truncated"]) == (5, False)


# Any sequence of edits.

TASKS = st.integers(0, 5)
EDITS = st.one_of(
    st.tuples(st.just("wait"), TASKS, TASKS),
    st.tuples(st.just("forget"), TASKS, TASKS),
    st.tuples(st.just("part"), TASKS, TASKS),
    st.tuples(st.just("new"), TASKS, TASKS),
    st.tuples(st.just("status"), TASKS, st.sampled_from(["open", "in_progress", "failed", "escalated", "closed"])),
    st.tuples(st.just("close"), TASKS, st.sampled_from(["completed", "obsolete"])),
    st.tuples(st.just("delete"), TASKS, st.booleans()),
)


class Model:
    """What the tasks are, said in another way."""

    def __init__(self) -> None:
        self.status: dict[str, str] = {}
        self.waits: set[tuple[str, str]] = set()
        self.parent: dict[str, str] = {}

    def leads(self, start: str, goal: str, edges: set[tuple[str, str]]) -> bool:
        seen, left = {start}, [start]
        while left:
            here = left.pop()
            if here == goal:
                return True
            fresh = {end for begin, end in edges if begin == here} - seen
            seen |= fresh
            left += fresh
        return False

    def blocked(self, task: str) -> bool:
        return any(self.status[end] != "closed" for begin, end in self.waits if begin == task)

    def open_below(self, task: str) -> bool:
        return any(self.status[id] != "closed" for id, parent in self.parent.items() if parent == task)

    def remove(self, task: str) -> None:
        for child in [id for id, parent in self.parent.items() if parent == task]:
            self.remove(child)
        del self.status[task]
        self.parent.pop(task, None)
        self.waits = {pair for pair in self.waits if task not in pair}


async def edit(room: Workroom, model: Model, kind: str, one: str, other: Any) -> None:
    """The same to both; they agree on whether it can be done."""
    if kind == "wait":
        may = not model.leads(other, one, model.waits)
        done = await tried(room, "add_dependency", task_id=one, depends_on=other)
        model.waits |= {(one, other)} if may else set()
    elif kind == "forget":
        may = True
        done = await tried(room, "remove_dependency", task_id=one, depends_on=other)
        model.waits -= {(one, other)}
    elif kind == "part":
        may = not model.leads(other, one, set(model.parent.items()))
        done = await tried(room, "update_task", task_id=one, parent_task_id=other)
        model.parent |= {one: other} if may else {}
    elif kind == "new":
        may, done = True, True
        id = await room.task(parent_task_id=one, blocks=[other])
        model.status[id] = "open"
        model.parent[id] = one
        model.waits.add((other, id))
    elif kind == "delete":
        may = other or one not in model.parent.values()
        done = await tried(room, "delete_task", task_id=one, cascade=other)
        if may:
            model.remove(one)
    else:
        closes = kind == "close" or (other == "closed" and model.status[one] != "closed")
        may = not closes or other == "obsolete" or not model.open_below(one)
        may = may and not (kind == "close" and model.status[one] == "closed")
        given = {"reason": other} if kind == "close" else {"status": other}
        done = await tried(room, "close_task" if kind == "close" else "update_task", task_id=one, **given)
        if may:
            model.status[one] = "closed" if kind == "close" else other
    assert done == may, (kind, one, other)


async def tried(room: Workroom, tool: str, **given: Any) -> bool:
    try:
        await room.do(tool, **given)
    except Fault as fault:
        assert fault.code == "INVALID_ARGS"
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(st.lists(EDITS, max_size=30))
def test_whatever_is_done_no_circle_comes_of_it_and_each_open_task_is_either_ready_or_blocked(
    edits: list[tuple[str, int, Any]],
) -> None:
    async def conversation() -> None:
        room, model = Workroom(), Model()
        for _ in range(6):
            model.status[await room.task()] = "open"
        for kind, one, other in edits:
            ids = list(model.status)
            if not ids:
                break
            second = ids[other % len(ids)] if kind in ("wait", "forget", "part", "new") else other
            await edit(room, model, kind, ids[one % len(ids)], second)
        assert (await room.do("check_dependency_cycles"))["has_cycles"] is False
        ready = await room.listed("list_ready_tasks", limit=None)
        blocked = (await room.do("list_blocked_tasks", limit=None))["tasks"]
        opened = {id for id, status in model.status.items() if status == "open"}
        assert set(ready) == {id for id in opened if not model.blocked(id)}
        assert {task["id"] for task in blocked} == opened - set(ready)
        assert len(ready) + len(blocked) == len(opened)
        for task in blocked:
            assert {each["id"] for each in task["blockers"]} == {
                end for begin, end in model.waits if begin == task["id"] and model.status[end] != "closed"
            }
        for id in model.status:
            assert (await room.do("get_task", task_id=id))["parent_task_id"] == model.parent.get(id)

    play(conversation())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 40))
def test_from_both_ends_the_same_is_found_as_from_one(seed: int, count: int) -> None:
    chance, model = random.Random(seed), Model()
    ids = [f"gt-{number}" for number in range(count)]
    edges = {(chance.choice(ids), chance.choice(ids)) for _ in range(count * 2)}

    async def conversation() -> None:
        room = Workroom()
        for pair in edges:
            await room.run("INSERT INTO task_dependency VALUES (?, ?, 'blocks', '')", *pair)
        for _ in range(20):
            one, other = chance.sample(ids, 2)
            found = await room.store.query(lambda connection: circles.waits(connection, one, other))
            assert found == model.leads(one, other, edges)

    play(conversation())
