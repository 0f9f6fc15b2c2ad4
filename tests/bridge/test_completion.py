"""Completion: the server that owns a prompt or a template completes its arguments, under its own names."""

from __future__ import annotations

from typing import Any

import pytest
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, RpcError, Scene, gateway

SERVERS = [LegacyServer, ModernServer]
CLIENTS = ["2024-11-05", "2025-06-18", LATEST, MODERN]


async def plain(scene: Scene) -> str:
    return scene.target


def complete(params: Json) -> Json:
    return {"values": [params["argument"]["value"] + "é"], "total": 1, "hasMore": False, "x-more": [1]}


def a_server(kind: Any, **more: Any) -> Any:
    return kind(prompts={"letter": plain}, templates={"mem://made/{id}": plain}, **{"completes": complete, **more})


PROMPT = {"type": "ref/prompt", "name": "there__letter"}
TEMPLATE = {"type": "ref/resource", "uri": "there+mem://made/{id}"}
ARGUMENT = {"name": "id", "value": "a"}


@pytest.mark.promise("spec.2026.completion")
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize(
    ("ref", "own"),
    [
        (PROMPT, {"type": "ref/prompt", "name": "letter"}),
        (TEMPLATE, {"type": "ref/resource", "uri": "mem://made/{id}"}),
    ],
    ids=["prompt", "template"],
)
async def test_an_argument_is_completed_by_its_server(kind: Any, revision: str, ref: Json, own: Json) -> None:
    there, other = a_server(kind), a_server(LegacyServer, completes=lambda params: {"values": ["wrong"]})
    async with gateway(there=there, other=other) as rig:
        client = await rig.client(revision)
        reply = await client.request("completion/complete", ref=ref, argument=ARGUMENT)
        assert reply.result["completion"] == {"values": ["aé"], "total": 1, "hasMore": False, "x-more": [1]}
        [asked] = there.requests("completion/complete")
        assert (asked["params"]["ref"], asked["params"]["argument"]) == (own, ARGUMENT)
        assert other.requests("completion/complete") == []


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_what_else_a_request_says_reaches_the_server(kind: Any, revision: str) -> None:
    there = a_server(kind)
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        context = {"arguments": {"é": "\u2028"}}
        await client.request(
            "completion/complete",
            ref={**PROMPT, "title": "A letter", "x-more": {"a": 1}},
            argument={**ARGUMENT, "x-more": None},
            context=context,
            unknown=2**60,
        )
        params = there.requests("completion/complete")[0]["params"]
        assert params["ref"] == {"type": "ref/prompt", "name": "letter", "title": "A letter", "x-more": {"a": 1}}
        assert params["argument"] == {**ARGUMENT, "x-more": None}
        assert (params["context"], params["unknown"]) == (context, 2**60)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    "ref", [{"type": "ref/prompt", "name": "letter"}, {"type": "ref/resource", "uri": "mem://made/{id}"}]
)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])
async def test_a_servers_own_name_is_understood_where_it_is_its_only_one(
    kind: Any, revision: str, ref: Json, path: str
) -> None:
    there = a_server(kind)
    async with gateway(there=there, other=LegacyServer(prompts={"else": plain})) as rig:
        client = await rig.client(revision, path=path)
        reply = await client.request("completion/complete", ref=ref, argument=ARGUMENT)
        assert reply.result["completion"]["values"] == ["aé"]
        assert there.requests("completion/complete")[0]["params"]["ref"] == ref


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    "ref",
    [
        {"type": "ref/prompt", "name": "letter"},  # of two servers
        {"type": "ref/prompt", "name": "one__nothing"},
        {"type": "ref/prompt", "name": "nobody__letter"},
        {"type": "ref/prompt", "uri": "one+mem://made/{id}"},
        {"type": "ref/resource", "uri": "mem://nobody/{id}"},
        {"type": "ref/tool", "name": "one__letter"},
        {"type": 1},
        {},
        "letter",
    ],
    ids=str,
)
async def test_what_names_no_prompt_or_template_is_refused(revision: str, ref: Any) -> None:
    async with gateway(one=a_server(LegacyServer), two=a_server(ModernServer)) as rig:
        client = await rig.client(revision)
        assert (await client.request("completion/complete", ref=ref, argument=ARGUMENT)).error["code"] == -32602


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_servers_refusal_is_its_own(kind: Any, revision: str) -> None:
    def refuses(params: Json) -> Json:
        raise RpcError(-32602, "no such argument", {"argument": params["argument"]["name"]})

    async with gateway(there=a_server(kind, completes=refuses), mute=kind(prompts={"letter": plain})) as rig:
        client = await rig.client(revision)
        error = (await client.request("completion/complete", ref=PROMPT, argument=ARGUMENT)).error
        assert error == {"code": -32602, "message": "no such argument", "data": {"argument": "id"}}
        ref = {"type": "ref/prompt", "name": "mute__letter"}
        assert (await client.request("completion/complete", ref=ref, argument=ARGUMENT)).error["code"] == -32601


@pytest.mark.parametrize("revision", CLIENTS)
async def test_more_completions_than_the_newest_revision_allows_are_cut_for_it(revision: str) -> None:
    values = [str(number) for number in range(150)]
    there = a_server(LegacyServer, completes=lambda params: {"values": values, "total": 150})
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        completion = (await client.request("completion/complete", ref=PROMPT, argument=ARGUMENT)).result["completion"]
        shown = {"values": values[:100], "total": 150, "hasMore": True}
        assert completion == (shown if revision == MODERN else {"values": values, "total": 150})


# Templates.


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_templates_are_listed_and_read_in_the_clients_names(kind: Any, revision: str) -> None:
    async with gateway(there=a_server(kind), other=LegacyServer(templates={"mem://other/{id}/x": plain})) as rig:
        client = await rig.client(revision)
        found = (await client.request("resources/templates/list")).result["resourceTemplates"]
        assert [each["uriTemplate"] for each in found] == ["there+mem://made/{id}", "other+mem://other/{id}/x"]
        for uri in ("there+mem://made/7", "mem://made/7", "mem://other/7/x"):
            reply = await client.request("resources/read", uri=uri)
            assert reply.text == uri.removeprefix("there+")
            assert reply.result["contents"][0]["uri"].endswith("+" + reply.text)
        assert (await client.request("resources/read", uri="mem://made-not/7")).error["code"] == (
            -32602 if revision == MODERN else -32002
        )


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_uri_that_two_servers_templates_make_is_refused_with_the_candidates(revision: str) -> None:
    async with gateway(one=a_server(LegacyServer), two=a_server(ModernServer)) as rig:
        client = await rig.client(revision)
        error = (await client.request("resources/read", uri="mem://made/7")).error
        assert error["data"]["candidates"] == ["one+mem://made/7", "two+mem://made/7"]


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("ref", [PROMPT, TEMPLATE], ids=["prompt", "template"])
@pytest.mark.parametrize("name", ["context", "argument", "more"])
async def test_a_completion_that_is_too_large_is_refused(revision: str, ref: Json, name: str) -> None:
    there = a_server(ModernServer)
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        large = {"name": "id", "value": "a", "arguments": {"x": "x" * 256 * 1024}}
        reply = await client.request("completion/complete", **{"ref": ref, "argument": ARGUMENT, name: large})
        assert "262,144 bytes" in reply.error["message"] and there.requests("completion/complete") == []
