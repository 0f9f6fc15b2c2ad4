"""A server whose reader minds no case, and takes the last member, reads what was decided on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import ENVELOPE, LATEST, MODERN, Scripted, Visitor, gateway, said, tools

from toolgate.core import mcp
from toolgate.core.model import Call, Client
from toolgate.eras import calls

PROMPTS = {"prompts": [{"name": "p1"}, {"name": "secretp"}]}
REF = {"type": "ref/prompt", "name": "there__p1"}
COMPLETION = {"ref": REF, "argument": {"name": "a", "value": ""}}


def there() -> Scripted:
    completion = {"completion": {"values": []}}
    return Scripted(
        tools_list=tools("take"), tools_call=said("taken"), prompts_list=PROMPTS, completion_complete=completion
    )


async def asked(revision: str, method: str, params: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The answer, and what the server heard of this method."""
    scripts = {"there": there()}
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        if revision == LATEST:
            await visitor.initialize()
            response = await visitor.post(visitor.request(method, **params))
        else:
            headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
            headers |= {"mcp-name": params["name"]} if "name" in params else {}
            response = await visitor.post(visitor.modern_request(method, **params), headers=headers)
        return response.last, [each for each in scripts["there"].requests if each["method"] == method]


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    "params",
    [
        {**COMPLETION, "Ref": {"type": "ref/prompt", "name": "secretp"}},
        {**COMPLETION, "ref": {**REF, "Name": "secretp"}},
        {**COMPLETION, "ref": {"NAME": "secretp", **REF}},
        {**COMPLETION, "ref": {**REF, "Type": "ref/resource"}},
        {**COMPLETION, "ref": {**REF, "Uri": "file:///private"}},
        {**COMPLETION, "_Meta": {}},
        {**COMPLETION, "_ref": {"type": "ref/prompt", "name": "secretp"}},
        {**COMPLETION, "ref": {"_name": "secretp", **REF}},
        {**COMPLETION, "ref": {"-NAME": "secretp", **REF}},
        {**COMPLETION, "__meta": {}},
        {**COMPLETION, "ref": {"name\0": "secretp", **REF}},
        {**COMPLETION, "ref\0x": {"type": "ref/prompt", "name": "secretp"}},
    ],
)
async def test_a_completion_is_asked_for_what_was_decided_on(revision: str, params: dict[str, Any]) -> None:
    answer, heard = await asked(revision, "completion/complete", params)
    assert answer["error"]["data"]["code"] == "INVALID_ARGS"
    assert "looks like" in answer["error"]["message"]
    assert not heard


@pytest.mark.parametrize("name", ["there__take\0", "there__take\0x", "there__\0take"])
async def test_a_tool_is_not_called_by_a_name_that_ends_at_a_zero_for_some(name: str) -> None:
    answer, heard = await asked(LATEST, "tools/call", {"name": name, "arguments": {}})
    assert "error" in answer and not heard


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_what_names_something_by_another_type_of_reference_does_not_go_on(revision: str) -> None:
    ref = {**REF, "uri": "file:///private", "title": "P", "x": 1}
    answer, heard = await asked(revision, "completion/complete", {**COMPLETION, "ref": ref})
    assert "result" in answer
    assert heard[0]["params"]["ref"] == {"type": "ref/prompt", "name": "p1", "title": "P", "x": 1}


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    "name",
    [
        *("Name", "NAME", "Arguments", "argument\N{LATIN SMALL LETTER LONG S}", "_META", "Task", "URI"),
        *("Input_Responses", "request-state", "Tas\N{KELVIN SIGN}"),
    ],
)
async def test_a_call_has_no_member_that_can_be_taken_for_another(revision: str, name: str) -> None:
    answer, heard = await asked(revision, "tools/call", {"name": "there__take", "arguments": {}, name: {}})
    assert answer["error"]["data"]["code"] == "INVALID_ARGS"
    assert not heard


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_the_arguments_are_the_tools_and_unknown_members_go_on(revision: str) -> None:
    arguments = {"Name": 1, "name": 2, "NAME": 3, "_Meta": 4}
    params = {"name": "there__take", "arguments": arguments, "com.example/more": {"Name": 1}, "names": 1}
    answer, heard = await asked(revision, "tools/call", params)
    assert "result" in answer
    assert heard[0]["params"]["arguments"] == arguments
    assert heard[0]["params"]["com.example/more"] == {"Name": 1}


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("key", ["ProgressToken", "progress_token", mcp.RELATED_TASK_KEY.upper()])
async def test_nor_has_its_meta_one_that_belongs_to_the_hop(revision: str, key: str) -> None:
    meta = {key: "another's"}
    if revision == MODERN:
        meta = {**ENVELOPE, **meta}
    answer, heard = await asked(revision, "tools/call", {"name": "there__take", "arguments": {}, "_meta": meta})
    assert answer["error"]["code"] == -32602
    assert not heard


async def test_a_method_that_is_not_defined_keeps_its_members() -> None:
    params = {"Name": "x", "name": "y", "Arguments": {}}
    _, heard = await asked(LATEST, "example/method", params)
    assert not heard or {**heard[0]["params"], **params} == heard[0]["params"]


def test_a_retry_repeats_all_that_goes_to_the_server() -> None:
    def digest(**more: Any) -> bytes:
        params = {name: json.dumps(each).encode() for name, each in {"name": "t", "arguments": {}, **more}.items()}
        raw = {name: calls.Raw(each) for name, each in params.items()}
        call: Call = calls.read_call("tools/call", raw, calls.read_meta(None), Client(), calls.Notes(), None)
        return calls.digest(call)

    assert digest(more={"a": 1, "b": 2}) == digest(more={"b": 2, "a": 1})
    assert digest(more={"a": 1}) != digest(more={"a": 2})
    assert digest() != digest(more=None)
    assert digest(inputResponses={}, requestState="x") == digest()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("_name", "name"),
        ("--Name", "name"),
        ("n_a-me", "name"),
        ("meta", "meta"),
        ("_Meta", "_meta"),
        ("__m-eta", "_meta"),
    ],
)
def test_signs_are_passed_over_wherever_they_stand_but_meta_is_not_meta_of_the_protocol(name: str, meant: str) -> None:
    assert calls.folded(name) == calls.folded(meant)
    assert calls.folded("meta") != calls.folded("_meta")


@pytest.mark.parametrize("name", ["\u0130" * 300, "x" * 65, "\u0149", "\u00e9" * 64, "Name" + "\u0149"])
def test_a_name_that_can_mean_nothing_is_not_folded_which_takes_long(name: str) -> None:
    assert calls.folded(name) is name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("argument\N{LATIN SMALL LETTER LONG S}", "arguments"),
        ("tas\N{KELVIN SIGN}", "task"),
        ("ur\N{LATIN SMALL LETTER DOTLESS I}", "uri"),
        ("UR\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "uri"),
        ("me\N{LATIN SMALL LETTER SHARP S}age", "message"),
        ("\N{LATIN SMALL LIGATURE FI}eld", "field"),
        ("_" * 1000 + "NAME" + "-" * 1000, "name"),
    ],
)
def test_whatever_is_ascii_without_case_is(name: str, meant: str) -> None:
    assert calls.folded(name) == meant


def test_nothing_beyond_ascii_means_one_of_ours_but_what_is_looked_at() -> None:
    found = {chr(code) for code in range(0x80, 0x110000) if chr(code).casefold().isascii()}
    assert all(calls.folded(each) == each.casefold() for each in found)


def test_no_name_of_ours_is_as_long_as_what_is_not_looked_at() -> None:
    assert max(map(len, mcp.HOP_KEYS)) < calls.LONGEST_OF_OURS
