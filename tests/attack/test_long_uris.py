"""A client, or a server, has URIs judged whose meaning takes long to look for, and many of them at once."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from bridge.test_permissions import client, clients
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from peers import MODERN, LegacyServer, Scene, gateway
from virtualtime import settle

from toolgate.auth import uri_readings
from toolgate.auth.access import Rules
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.model import Call, Client, Event, Principal

TEMPLATE = "file:///{dir}/{name}"
CLOSED = {"there+file:///private/*": "off"}
HARD = "/%25%32%35\\..@:"  # each reader takes it for something else
HARD_URI = "file:///" + HARD * 100
WATCHED = "file:///" + "a/./%41/" * 150


async def text(scene: Scene) -> str:
    return scene.target


class Looked:
    """How many characters of URIs were looked into, and whether others waited meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = self.aside = 0
        self.is_aside = False
        self.uris: list[str] = []
        forms = uri_readings.forms

        def counted(uri: str) -> tuple[str, ...]:
            self.uris.append(uri)
            if self.is_aside:
                self.aside += len(uri)
            else:
                self.here += len(uri)
            return forms(uri)

        monkeypatch.setattr(uri_readings, "forms", counted)

    def from_now_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tell what is done in threads: with a clock that jumps, these do their work at once."""
        self.here = self.aside = 0
        loop = asyncio.get_running_loop()
        in_thread = loop.run_in_executor

        def marked(*args: Any) -> Any:
            self.is_aside = True
            try:
                return in_thread(*args)
            finally:
                self.is_aside = False

        monkeypatch.setattr(loop, "run_in_executor", marked)


async def completed(monkeypatch: pytest.MonkeyPatch, looked: Looked, given: str, values: list[str]) -> Any:
    there = LegacyServer(templates={TEMPLATE: text}, completes=lambda _params: {"values": values})
    async with gateway(config=clients(client(resources=CLOSED)), there=there) as rig:
        ann = await rig.client(MODERN)
        looked.from_now_on(monkeypatch)
        ref = {"type": "ref/resource", "uri": f"there+{TEMPLATE}"}
        asked = {"argument": {"name": "name", "value": "v"}, "context": {"arguments": {"dir": given}}}
        return await ann.request("completion/complete", ref=ref, **asked)


@pytest.mark.parametrize("times", [1, 20, 45, 120, 540])
async def test_what_is_judged_of_a_completion_has_an_end(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    looked = Looked(monkeypatch)
    await completed(monkeypatch, looked, HARD * times, [f"v{each}" for each in range(100)])
    assert looked.aside <= 64 * 1024
    assert looked.here <= 4 * 2048, "of the request: four URIs"


async def test_long_values_have_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch)
    reply = await completed(monkeypatch, looked, "public", [f"{each}/" + HARD * 100 for each in range(100)])
    assert 0 < len(reply.result["completion"]["values"]) < 100
    assert looked.aside <= 64 * 1024


async def test_the_values_of_a_completion_are_judged_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch)
    values = [f"v{each}" for each in range(100)]
    reply = await completed(monkeypatch, looked, "public", values)
    assert reply.result["completion"]["values"] == values
    assert looked.aside >= 100 * len("file:///public/v")
    assert looked.here <= 4 * len("file:///public/{name}"), "of the request alone"


async def test_what_a_long_context_closes_is_still_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch)
    values = ["a", "../private/key", "b", "x" * 3000]
    reply = await completed(monkeypatch, looked, "public", values)
    assert reply.result["completion"]["values"] == ["a", "b"]


def test_many_names_of_a_context_count_as_well() -> None:
    context = {"arguments": {"n" * 8000 + str(each): "" for each in range(9)}}
    extra = {"argument": Raw(b'{"name":"name","value":""}'), "context": Raw(json.dumps(context).encode())}
    call = Call(
        "completion/complete", TEMPLATE, Client(Principal()), server="there", reference="ref/resource", extra=extra
    )
    assert not rules(CLOSED).completed(call, ["a"])


# What is too long to be looked into.


def rules(said: Any, **more: Any) -> Rules:
    return Rules(KnownClient(id="ci", name="ci", servers="all", permissions=Permissions(resources=said, **more)))


LONG = "file:///public/" + "x" * uri_readings.LONGEST_URI


@pytest.mark.parametrize(
    "said",
    [
        {"there+file:///private/*": "off"},
        {"there+file:///private/*": "ask"},
        {"there+file:///private/a": "off"},
        {"there*": "off", "there+file:///public/*": "allow"},
        {"*secret*": "off"},
        {"THERE+file:///private/*": "off"},
    ],
    ids=str,
)
def test_a_long_uri_is_off_where_anything_of_its_server_is_closed(said: Any) -> None:
    assert rules(said).verdict("there", "resources", LONG) == "off"


def test_elsewhere_a_long_uri_is_what_its_server_is() -> None:
    said = {"other+file:///private/*": "off", "there+file:///public/*": "allow"}
    assert rules(said).verdict("there", "resources", LONG) == "allow"
    assert rules(said, servers={"there": "ask"}).verdict("there", "resources", LONG) == "ask"
    assert rules(said, everything="off").verdict("there", "resources", LONG) == "off"


def test_no_readings_of_a_long_uri_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    found, looked = rules(CLOSED), Looked(monkeypatch)
    found.verdict("there", "resources", LONG)
    assert not looked.uris


def test_a_uri_is_judged_once_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found, looked = rules(CLOSED), Looked(monkeypatch)
    assert {found.verdict("there", "resources", HARD_URI) for _ in range(100)} == {"allow"}
    assert found.verdict("there", "resources", "file:///private/" + HARD * 100) == "off"
    assert looked.uris.count(HARD_URI) == 1


LETTERS = "\ufdfa"  # each becomes eighteen
COSTLY = [
    "file:///" + LETTERS * 1900,
    "FILE:%255c%255x+" + LETTERS * 1900,
    "\t\tFILE:%255c%255x+tp:" + "http://" * 4 + "%00" * 10 + ":x" * 11 + "%66ile" + ":x" * 40 + LETTERS * 900,
    "\t\ufb03x+\tFILE:\u2100@%2e%2e/%5c%5c" + "/a/./b" * 20 + "\uff11" * 10 + "/a/./b" * 200,
    "\tx+\tFILE:\u2100" + "http://" * 20 + ("\u0301" * 31 + "urn:") * 15,
    "file:///" + "%EF%B7%BA" * 220,
    "file:///" + "\u3300" * 500,
    "file:///" + "%uFDFA" * 340,
    "file:///" + "%uFF21" * 340,
    "x+FILE:%u005c%u002f" + "http://" * 4 + "%u0000" * 10 + "%u0066ile:" * 5 + "%FF/a" * 400,
    "file:///" + "%uD835" * 340,
    "file:%3b&%2e%00@notes://%2e" + "/c:// /./\\c:/c:/c:" * 100,
]


@pytest.mark.parametrize("uri", COSTLY, ids=range(len(COSTLY)))
def test_what_a_uri_costs_has_an_end_whatever_it_holds(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """Many leniencies on top of each other make many readings, and some letters become many."""
    looked: list[int] = []
    folded, resolved = uri_readings.as_a_lenient_reader, uri_readings._resolved

    def counted(text: str) -> str:
        looked.append(len(text) if text.isascii() else 24 * len(text))
        return folded(text)

    def counted_too(text: str, *args: Any, **named: Any) -> str:
        looked.append(len(text))
        return resolved(text, *args, **named)

    monkeypatch.setattr(uri_readings, "as_a_lenient_reader", counted)
    monkeypatch.setattr(uri_readings, "_resolved", counted_too)
    rules(CLOSED).verdict("there", "resources", uri[: uri_readings.LONGEST_URI])
    assert sum(looked) <= 1_000_000


@pytest.mark.parametrize(
    "uri",
    [
        "file:///home/j%C3%BCrgen/Dokumente/%C3%9Cbersicht%20der%20Kosten/Anh%C3%A4nge/f%C3%BCr%20den%20Vorstand.md",
        "file:///home/\u5f20\u4f1f/\u6587\u6863/\u9879\u76ee/\u8868\u683c.xlsx",
        "file:///home/ann/a/../b.txt",
        "https://h/a?next=/b",
        "notes://gr\u00f6\u00dfe/p\u00e4th?x=1",
        "file:///home/j%FCrgen/Gr%F6%DFe.txt",
        "notes://%u4F60%u597D/%u006Eew",
    ],
)
def test_an_honest_uri_in_any_script_is_read(uri: str) -> None:
    assert rules(CLOSED).verdict("there", "resources", uri) == "allow"


@pytest.mark.parametrize("uri", ["file:///a%20b/100%used/%u00", "file:///j%C3%BCrgen/%E0%A4%95", "notes://a/b"])
def test_what_can_be_decoded_in_one_way_only_has_no_further_reading(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = uri_readings.forms(uri)
    monkeypatch.setattr(uri_readings, "_unquote", unquote)
    uri_readings._unquoted.cache_clear()
    assert uri_readings.forms(uri) == found


def test_each_reading_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same text: each costs what the URI is long."""
    made: list[tuple[Any, ...]] = []
    resolved = uri_readings._resolved
    monkeypatch.setattr(uri_readings, "_resolved", lambda *args, **named: made.append(args) or resolved(*args, **named))
    uri_readings.forms("file:///" + "a/" * 900)
    assert len(made) <= 8


@pytest.mark.parametrize("uri", ["file:///Users/ann/Notes/a.txt", "file:///Users/ann/My%20Notes/a.txt", "notes://a/b"])
def test_an_honest_uri_costs_little_more_for_what_may_be_found_in_it(uri: str) -> None:
    """Of a list no more is judged than takes half a second, and the rest is off."""
    assert uri_readings.work_of(uri) <= 1.1 * len(uri) * (64 if "%" in uri else 4)


# What a server tells of.


@pytest.mark.parametrize("count", [1, 40])
async def test_what_many_streams_watch_is_judged_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    there = LegacyServer({"read": text}, resources={}, templates={"file:///{any}": text}, tells=True)
    async with gateway(config=clients(client(resources=CLOSED)), there=there) as rig:
        ann = await rig.client(MODERN)
        ears = [await ann.listen(f"there+{WATCHED}") for _ in range(count)]
        rig.app.gateway.access.clients["ann"]._known.clear()
        looked = Looked(monkeypatch)
        rig.app.events.tell(Event("there", "updated", uri=WATCHED))
        await settle()
        assert looked.uris.count(WATCHED) == 1
        assert all(len(ear.updated) == 1 for ear in ears)


async def test_what_nobody_watches_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    there = LegacyServer({"read": text}, resources={}, templates={"file:///{any}": text}, tells=True)
    async with gateway(config=clients(client(resources=CLOSED)), there=there) as rig:
        ann = await rig.client(MODERN)
        for _ in range(10):
            await ann.listen("there+file:///public/a")
        looked = Looked(monkeypatch)
        for number in range(100):
            rig.app.events.tell(Event("there", "updated", uri=f"{WATCHED}{number}"))
        assert not looked.uris


async def test_what_is_told_of_a_uri_without_end_is_not_heard() -> None:
    there = LegacyServer({"read": text}, resources={"file:///public": text}, tells=True)
    async with gateway(config=clients(client(resources=CLOSED)), there=there) as rig:
        events: list[Event] = []
        stop = rig.app.events.listen(events.append)
        ear = await (await rig.client(MODERN)).listen("there+file:///public")
        there.connections[0].updated("file:///public/" + "x" * 16 * 1024)
        there.connections[0].updated("file:///public/a")
        await settle()
        assert ear.updated == ["there+file:///public/a"]
        assert [each.uri for each in events if each.kind == "updated"] == ["file:///public/a"]
        stop()


segments = st.lists(
    st.sampled_from([";", "%3b", "%253B", "%u003b", "/", "?", "#", "a", ":", "%", "25", "\n"]), max_size=12
)


@given(segments)
def test_the_parameters_of_a_last_segment_are_found_segment_by_segment(parts: list[str]) -> None:
    """As by the plain pattern, which looks through the whole segment anew at each `;` of it."""
    plain = re.compile(r"(?:;|%(?:25)*(?:u00)?3b)[^/?#]*(?=[?#]|$)", re.IGNORECASE)
    uri = "".join(parts)
    assert uri_readings._parameters.sub(r"\1", uri) == plain.sub("", uri)  # pyright: ignore[reportPrivateUsage]
