"""A completion names nothing that its client may not use: not by what it gives of a template, and not in its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bridge.test_permissions import client, clients
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, Reply, Scene, gateway

from toolgate.auth.access import Access
from toolgate.core import templates
from toolgate.core.model import Call, Principal
from toolgate.core.model import Client as Caller
from toolgate.core.templates import filled

TEMPLATE = "file:///{dir}/{name}"
FILES = {"public": ["a.txt", "abc.txt"], "private": ["alice.key", "keys"], "mixed": ["a.txt", "secret.txt"]}
CLOSED = {"there+file:///private/*": "off", "there+file:///mixed/secret.txt": "off"}
ERAS = pytest.mark.parametrize("revision", [LATEST, MODERN])


async def plain(scene: Scene) -> str:
    return scene.target


def complete(params: Json) -> Json:
    if params["argument"]["name"] == "dir":
        return {"values": list(FILES), "total": len(FILES), "hasMore": False}
    chosen = params.get("context", {}).get("arguments", {}).get("dir", "public")
    return {"values": FILES.get(chosen, ["?"]), "total": 2, "hasMore": False, "x-more": FILES}


async def asked(revision: str, *, uri: str = TEMPLATE, resources: Any = CLOSED, **params: Any) -> tuple[Reply, int]:
    """The answer, and how often the server was asked."""
    there = (LegacyServer if revision == LATEST else ModernServer)(templates={uri: plain}, completes=complete)
    async with gateway(config=clients(client(resources=resources)), there=there) as rig:
        ann = await rig.client(revision)
        ref = {"type": "ref/resource", "uri": f"there+{uri}"}
        reply = await ann.request("completion/complete", ref=ref, **params)
        return reply, len(there.requests("completion/complete"))


def of(name: str, value: str = "", /, **given: str) -> Json:
    return {"argument": {"name": name, "value": value}} | ({"context": {"arguments": given}} if given else {})


@ERAS
@pytest.mark.parametrize(
    "params",
    [
        of("name", dir="private"),
        of("name", "a", dir="private"),
        of("name", dir="%70rivate"),
        of("name", dir="public/../private"),
        of("name", DIR="private"),  # to a server that minds no case
        of("dir", "private"),
        of("dir", "", dir="private"),
        of("name", "secret.txt", dir="mixed"),
        of("other", "x", dir="private"),
        of("name", "x" * 20_000, dir="public"),
    ],
    ids=str,
)
async def test_what_a_completion_has_chosen_is_judged(revision: str, params: Json) -> None:
    reply, times = await asked(revision, **params)
    assert reply.error["code"] == -32600, reply.message
    assert not times


@ERAS
async def test_what_is_closed_is_left_out_of_the_answer(revision: str) -> None:
    reply, _ = await asked(revision, **of("dir"))
    assert reply.result["completion"] == {"values": ["public", "mixed"], "hasMore": False}
    reply, _ = await asked(revision, **of("name", dir="mixed"))
    assert reply.result["completion"] == {"values": ["a.txt"], "hasMore": False}
    reply, _ = await asked(revision, **of("name", dir="public"))
    assert reply.result["completion"]["values"] == FILES["public"]
    assert reply.result["completion"]["total"] == 2


@ERAS
async def test_where_little_is_open_what_is_open_is_completed(revision: str) -> None:
    opened = {"there+file:///public/*": "allow", f"there+{TEMPLATE}": "allow", "there+file:///private/*": "off"}
    reply, _ = await asked(revision, resources=opened, **of("name", "a", dir="public"))
    assert reply.result["completion"]["values"] == FILES["public"]
    reply, _ = await asked(revision, resources=opened, **of("dir", "p"))
    assert reply.result["completion"]["values"] == ["public", "mixed"]


@ERAS
@pytest.mark.parametrize(
    "params",
    [
        {"argument": {"name": "name", "value": ""}, "Context": {"arguments": {"dir": "private"}}},
        {"argument": {"name": "name", "value": ""}, "context": {"Arguments": {"dir": "private"}}},
        {"argument": {"name": "name", "value": "", "Name": "dir"}},
        {"argument": {"name": "name", "value": ""}, "context": {"arguments": {"dir": "public", "Dir": "private"}}},
        {"argument": {"name": "name", "value": ""}, "context": {"arguments": {"dir": ["private"]}}},
        {"argument": {"name": "name", "value": ""}, "context": {"arguments": {str(each): "" for each in range(101)}}},
        {"argument": {"name": 1, "value": ""}},
        {},
    ],
    ids=lambda params: str(params)[:60],
)
async def test_a_completion_that_can_be_read_in_two_ways_is_refused(revision: str, params: Json) -> None:
    reply, times = await asked(revision, **params)
    assert reply.error["code"] == -32602, reply.message
    assert not times


async def test_of_two_members_of_one_name_the_one_that_was_judged_goes_on() -> None:
    there = LegacyServer(templates={TEMPLATE: plain}, completes=complete)
    async with gateway(config=clients(client(resources=CLOSED)), there=there) as rig:
        ann = await rig.client(LATEST)
        twice = b'{"name":"name","value":"","name":"name"}'
        params = {"ref": {"type": "ref/resource", "uri": f"there+{TEMPLATE}"}, "argument": "TWICE"}
        params["context"] = {"arguments": {"dir": "public"}}
        message = {"jsonrpc": "2.0", "id": 77, "method": "completion/complete", "params": params}
        told = json.dumps(message).encode().replace(b'"TWICE"', twice).replace(b'"dir":', b'"dir":"private","dir":')
        await ann.raw(told)
        [sent] = [each for each in there.connections[0].raw if b"completion/complete" in each]
        assert sent.count(b'"name":') == 1 and b"private" not in sent


@ERAS
@pytest.mark.parametrize("values", [[["a"]], "private", ["x" * 2_000_000], None], ids=lambda each: str(each)[:20])
async def test_an_answer_that_cannot_be_looked_through_is_none(revision: str, values: Any) -> None:
    there = LegacyServer(templates={TEMPLATE: plain}, completes=lambda _params: {"values": values})
    async with gateway(config=clients(client(resources=CLOSED)), there=there) as rig:
        ann = await rig.client(revision)
        ref = {"type": "ref/resource", "uri": f"there+{TEMPLATE}"}
        reply = await ann.request("completion/complete", ref=ref, **of("dir"))
        assert "malformed" in reply.error["message"]


@ERAS
async def test_no_more_values_are_looked_at_than_a_completion_has(revision: str) -> None:
    many = [f"d{each}" for each in range(5000)]
    there = LegacyServer(templates={TEMPLATE: plain}, completes=lambda _params: {"values": many})
    async with gateway(config=clients(client(resources=CLOSED)), there=there) as rig:
        ann = await rig.client(revision)
        ref = {"type": "ref/resource", "uri": f"there+{TEMPLATE}"}
        reply = await ann.request("completion/complete", ref=ref, **of("dir"))
        assert reply.result["completion"] == {"values": many[:100], "hasMore": True}


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("x://{a}/{b}", "x://1/{b}"),
        ("x://{+a}{/b,a}", "x://1/{b}/1"),
        ("x://h{?a,b}", "x://h?a=1&b={b}"),
        ("x://h{#a}{.a*}{;a}", "x://h#1.1;a=1"),
        ("x://{b}", "x://{b}"),
        ("x://{A}", "x://1"),
    ],
)
def test_templates_are_filled_as_far_as_they_are_known(template: str, made: str) -> None:
    assert filled(template, {"a": "1"}) == made


def test_what_a_template_cuts_is_read_in_both_ways() -> None:
    completing = templates.Completing("dir", "private", {})
    assert set(completing.completed("file:///{dir:4}/{name}", "private")) == {
        "file:///priv/{name}",
        "file:///private/{name}",
    }


def test_what_a_template_makes_has_an_end() -> None:
    made = filled("x://" + "{a}" * 5000, {"a": "y" * 1_000_000})
    assert templates.LONGEST < len(made) < 4 * templates.LONGEST


def test_where_nothing_is_closed_nothing_is_looked_at() -> None:
    access = Access(clients())
    call = Call("completion/complete", TEMPLATE, Caller(Principal()), server="there", reference="ref/resource")
    assert access.judge(call) == "allow"
