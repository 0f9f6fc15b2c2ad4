"""What is remembered of tasks, and the places where their ids stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.eras import tasks
from toolgate.eras.tasks import LEAST_LASTS, Task
from toolgate.upstreams.mcp.made_tasks import MOST_TASKS, TaskOwners

KEY = "io.modelcontextprotocol/related-task"
ANN, BOB = Client(Principal("ann"), "s1"), Client(Principal("bob"), "s2")
ANNS, BOBS = Call("tools/call", "act", ANN), Call("tools/call", "act", BOB)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def test_a_book_knows_who_made_a_task_and_forgets_the_oldest_of_whoever_makes_many() -> None:
    book = TaskOwners()
    book.add(Task("bobs"), BOBS, 0.0)
    for number in range(MOST_TASKS + 2):
        book.add(Task(str(number)), ANNS, 0.0)
    assert (book.maker("0"), book.maker("1"), book.maker("2")) == (None, None, ANN.identity)
    assert (len(book.of("ann")), book.of("bob")) == (MOST_TASKS, ["bobs"])


def test_a_task_counts_as_running_until_it_is_over_or_its_time_is() -> None:
    book = TaskOwners()
    book.add(Task("short", ttl=1000), ANNS, 100.0)
    book.add(Task("long", ttl=2 * LEAST_LASTS * 1000), ANNS, 100.0)
    assert book.runs(100.0 + 1.5 * LEAST_LASTS)
    assert not book.runs(100.0 + 2.5 * LEAST_LASTS)
    book.over("long")
    assert book.runs(100.0) and not book.runs(100.0 + 1.5 * LEAST_LASTS)
    assert book.of("ann") == ["short", "long"]


def test_the_times_of_a_task_are_read_by_the_names_of_either_revision() -> None:
    before = tasks.read_task(raw({"taskId": "a", "ttl": 2 * LEAST_LASTS * 1000, "pollInterval": 5000}))
    extended = tasks.read_task(raw({"taskId": "a", "ttlMs": 2 * LEAST_LASTS * 1000, "pollIntervalMs": 5000}))
    assert before.lasts == extended.lasts == 2 * LEAST_LASTS
    assert before.pause == extended.pause == 5.0
    assert tasks.read_task(raw({"taskId": "a", "ttlMs": None})).pause is None


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"task": {"taskId": "a", "x": 1}}, {"task": {"taskId": "b", "x": 1}}),
        ({"taskId": "a", "status": "working"}, {"taskId": "b", "status": "working"}),
        ({"taskId": "a", "result": {"y": 1}}, {"taskId": "b", "result": {"left": True}}),
        ({"resultType": "complete"}, {"resultType": "complete"}),
    ],
)
def test_an_id_is_replaced_where_it_stands_and_a_result_leaves_as_its_calls(body: Any, left: Any) -> None:
    assert json.loads(bytes(tasks.with_id(raw(body), "b", lambda _raw: b'{"left":true}'))) == left


@pytest.mark.parametrize("spelled", [KEY, KEY.replace("/", "\\/")])
def test_the_task_that_something_is_of_is_read_taken_out_and_put_in(spelled: str) -> None:
    given = Raw(b'{"a":1,"_meta":{"%s":{"taskId":"x"},"k":2}}' % spelled.encode())
    assert tasks.related(given) == "x"
    assert json.loads(bytes(tasks.with_related(given, ""))) == {"a": 1, "_meta": {"k": 2}}
    assert tasks.related(tasks.with_related(given, "y")) == "y"


def test_what_is_of_no_task_stays_the_bytes_it_was() -> None:
    given = Raw(b'{ "a" : 1 }')
    assert tasks.related(given) == ""
    assert bytes(tasks.with_related(given, "")) == bytes(given)


@pytest.mark.parametrize("said", ["{}", "[]", '{"task":1}', '{"task":{"taskId":1}}', '{"taskId":null}'])
def test_what_tells_of_no_task_is_a_fault_of_the_server(said: str) -> None:
    for read in (tasks.read_id, tasks.read_made, tasks.read_task):
        with pytest.raises(Fault) as caught:
            read(Raw(said.encode()))
        assert caught.value.code == "UPSTREAM_ERROR"


def test_capabilities_are_merged_of_what_servers_really_have() -> None:
    legacy = {"tasks": {"requests": {"tools": {"call": {}}}}}
    modern = {"extensions": {"io.modelcontextprotocol/tasks": {}, "other": {}}}
    assert tasks.relayed([{}, {"tasks": {"list": {}}}, {"extensions": None}]) == {}
    assert tasks.relayed([legacy]) == {"tasks": {"list": {}, "requests": {"tools": {"call": {}}}}}
    assert tasks.relayed([legacy, modern])["extensions"] == {"io.modelcontextprotocol/tasks": {}}
