"""A host, a port or a drive written in another form is the same place to readers that follow WHATWG URL, as those of
the official SDKs do: what is off under one spelling is off under all."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from typing import Any

import pytest
from bridge.test_permissions import client, clients
from peers import LATEST, MODERN, LegacyServer, Scene, gateway

from toolgate.auth import hosts, uri_readings
from toolgate.auth.access import Rules
from toolgate.config.access import KnownClient, Permissions

# Closed, and what Node 20 and pydantic 2.12 read as what is closed.
SPELLINGS = {
    "https://wiki.example/private/*": [
        "https://WIKI.example:443/private/plan",
        "https://wiki.example:0443/private/plan",
        "https://wiki.example:/private/plan",
        "https://u:p@wiki.example:00443/private/plan",
        "https://wiki\u3002example/private/plan",
        "https://wiki\uff0eexample/private/plan",
        "https://wiki\uff61example/private/plan",
        "https://wiki%E3%80%82example/private/plan",
        "https://\uff57iki.example/private/plan",
        "https://wi\u00adki.example/private/plan",
        "https://wi\u200bki.example/private/plan",
        "https://wi\u2060ki.example/private/plan",
        "https://wi\ufeffki.example/private/plan",
        "https://wi\ufe0fki.example/private/plan",
        "https://\u24e6iki.example/private/plan",
        "https://wiki%2eexample/private/plan",
        "https:\\\\wiki\u3002example\\private\\plan",
        "https://wiki\u3002example:443/a/%2e%2e/private/plan",
    ],
    "https://xn--caf-dma.example/*": [
        "https://caf\u00e9.example/1",
        "https://cafe\u0301.example/1",
        "https://CAF\u00c9.example/1",
        "https://caf%C3%A9.example/1",
        "https://XN--CAF-DMA.example/1",
        "https://\uff58n--caf-dma.example/1",
        "https://caf\u00e9.example#/1",
    ],
    "https://caf\u00e9.example/*": ["https://xn--caf-dma.example/1", "https://xn-%2dcaf-dma.example/1"],
    "https://caf\u00e9*/*": ["https://xn--caf-dma.example/1"],
    "https://xn--*/*": ["https://u@caf\u00e9.example/1"],
    "http://10.0.0.5/*": [
        "http://10.5/notes",
        "http://167772165/notes",
        "http://0xa.0.0.5/notes",
        "http://0XA000005/notes",
        "http://012.0.0.5/notes",
        "http://10.0.0.5./notes",
        "http://10.0.0.5:080/notes",
        "http://10%2e0%2e5/notes",
        "http://\uff11\uff10.5/notes",
        "http://[::ffff:10.0.0.5]/notes",
        "http://[::ffff:a00:5]/notes",
    ],
    "http://10.0.0.*": ["http://0xa000007/notes"],
    "http://[::1]/x/*": [
        "http://[0:0::1]/x/1",
        "http://[::0001]/x/1",
        "http://[0:0:0:0:0:0:0:1]/x/1",
        "http://[::0.0.0.1]:080/x/1",
    ],
    "file:///C:/w/*": [
        "file:///C|/w/x",
        "file:///c:/w/x",
        "file:c|/w/x",
        "file:///C%7C/w/x",
        "file://C:/w/x",
        "file://c|/w/x",
        "file:/C:\\w\\x",
        "file:///./C|/w/x",
        "file:///C:/../w/x",
        "file:///C:/a/../../w/x",
        "file:///C\n:/.%2e/w/x",
    ],
    "file:///private/*": ["file://\uff4cocalhost/private/plan", "file://loc\u00adalhost/private/plan"],
    "ws://h.example:8080/x/*": ["ws://h.example:08080/x/y", "ws://h.example:8080/\\..\\x/"],
}
ALL = [(closed, uri) for closed, uris in SPELLINGS.items() for uri in uris]


def rules(*closed: str) -> Rules:
    said: Any = {f"docs+{each}": "off" for each in closed}
    return Rules(KnownClient(id="ci", name="ci", servers="all", permissions=Permissions(resources=said)))


def is_closed(uri: str, *closed: str) -> bool:
    return rules(*closed).verdict("docs", "resources", uri) == "off"


@pytest.mark.promise("b.attacks.uris")
@pytest.mark.parametrize(("closed", "uri"), ALL)
def test_a_host_is_closed_in_all_its_spellings(closed: str, uri: str) -> None:
    assert is_closed(uri, closed)


HONEST = [
    "https://wiki.example/public/guide",
    "https://wiki.example:8443/private/plan",
    "https://wiki2.example/private/plan",
    "https://b\u00fccher.example/private",
    "http://10.0.0.6/notes",
    "http://10.0.0.5.example/notes",
    "http://[::2]/x/1",
    "file:///D:/w/x",
    "file:///w/\u6b4c\U0001f3b5.txt",
    "memo://1.2.3/x",
    "urn:isbn:1",
    "postgres://db:5432/t",
    "notes://\u65e5\u672c\u8a9e/\u30e1\u30e2",
    "ws://h.example:8081/x/y",
]


@pytest.mark.parametrize("uri", HONEST)
def test_other_hosts_stay_open(uri: str) -> None:
    closed = [each for each in SPELLINGS if each not in ("https://xn--*/*", "http://10.0.0.*")]
    assert not is_closed(uri, *closed)


def test_a_host_of_characters_that_are_not_known_here_is_closed_where_anything_is() -> None:
    """A newer Unicode may take them for any others."""
    assert is_closed("https://wiki\U000e0fff.example/open", "https://other.example/*")
    assert not is_closed("https://wiki.example/\U000e0fff", "https://other.example/*")


async def text(scene: Scene) -> str:
    return scene.target


URIS = ["https://wiki\u3002example:0443/private/plan", "http://0xa.5/notes", "file:///C|/w/x"]


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("uri", URIS)
async def test_nothing_closed_is_read_or_watched_by_another_spelling(revision: str, uri: str) -> None:
    closed = ("https://wiki.example/private/*", "http://10.0.0.5/*", "file:///C:/w/*")
    docs = LegacyServer(resources={uri: text}, tells=True)
    config = clients(client(resources={f"docs+{each}": "off" for each in closed}))
    async with gateway(config=config, docs=docs) as rig:
        ann = await rig.client(revision)
        here = await rig.client(revision, path="/mcp/servers/docs")
        for asked, name in ((ann, "docs+" + uri), (ann, uri), (here, uri)):
            assert (await asked.request("resources/read", uri=name)).error["data"]["code"] == "ACCESS_DENIED"
            if revision == LATEST:
                assert (await asked.request("resources/subscribe", uri=name)).error["data"]["code"] == "ACCESS_DENIED"
        by_tool = await ann.call("read_mcp_resource", arguments={"server_name": "docs", "resource_uri": uri})
        assert "PermissionError" in by_tool.text
        assert not [each for each in docs.received if each["method"] in ("resources/read", "resources/subscribe")]


# Node as the oracle: what it reads as one place is closed in all of its spellings.

NODE = """
const lines = require("fs").readFileSync(0, "utf8").split("\\n");
console.log(JSON.stringify(lines.map(line => {
  try { const found = new URL(JSON.parse(line)); return [found.href, found.hostname]; } catch { return null; }
})));
"""
needs_node = pytest.mark.skipif(not shutil.which("node"), reason="there is no Node here")


def as_node_reads(uris: list[str]) -> list[list[str] | None]:
    lines = "\n".join(map(json.dumps, uris))
    ended = subprocess.run(["node", "-e", NODE], input=lines, capture_output=True, text=True, timeout=300)
    return json.loads(ended.stdout)


@needs_node
def test_the_recorded_spellings_are_what_node_reads_as_closed() -> None:
    """But those that only fetchers and other readers take so."""
    reads = as_node_reads([uri for _, uri in ALL])
    assert sum(read is None for read in reads) == 0


PLACES = {
    "file:///private/plan": "file:///private/",
    "https://int.example/private/plan": "https://int.example/private/",
    "http://127.0.0.1/x/y": "http://127.0.0.1/x/",
    "ws://h.example:8080/x/y": "ws://h.example:8080/x/",
    "db://users/rows/1": "db://users/rows/",
    "urn:x:private:1": "urn:x:private:",
    "app:///private/1": "app:///private/",
    "db3://caf%C3%A9/1": "db3://caf%C3%A9/",
    "https://xn--caf-dma.example/1": "https://xn--caf-dma.example/",
    "file:///c:/x/1": "file:///c:/x/",
    "http://[::1]/x/1": "http://[::1]/x/",
}
# fmt: off
INSERTED = [
    "\t", "\n", "\r", "\u0000", "\u001f", "/", "\\", ".", "..", "/./", "/../", "/x/../", "%2e", "%2E%2e/", "%2f", ":",
    ":0", "0", "00", "@", "u@", "u:p@", "?", "#", "\u00ad", "\u200b", "\u3002", "\ufeff", "\u2060", "|", "%", "%25",
    "%7c", "%09", ";", "[", "]", "\u0301", ":443", ":80", ":0080", ":00443", ".:", "//", "///", "\\..\\", ".%2e/",
    "/C:/../", " ",
]
# fmt: on
LOOKS = {"1": "\u2460", "x": "\u2179", "i": "\u24d8", "e": "\u212f", "s": "\u017f", "h": "\u210e", ":": "|"}
OTHERWISE = {
    "127.0.0.1": ["127.1", "0x7f.1", "2130706433", "0177.0.0.1"],
    "%C3%A9": ["\u00e9", "e\u0301", "%c3%a9"],
    "[::1]": ["[0:0::1]", "[::0001]", "[0:0:0:0:0:0:0:1]", "[::0.0.0.1]"],
    "xn--caf-dma": ["caf\u00e9", "cafe\u0301", "CAF\u00c9", "XN--caf-dma", "caf%C3%A9"],
}


def varied(chance: random.Random, uri: str) -> str:
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3])):
        kind, at = chance.randrange(6), chance.randrange(len(uri))
        here = uri[at]
        if kind <= 1:
            uri = uri[:at] + chance.choice(INSERTED) + uri[at:]
        elif kind == 2:
            uri = f"{uri[:at]}%{ord(here) & 255:02x}{uri[at + 1 :]}"
        elif kind == 3:
            wide = chr(ord(here) + 0xFEE0) if "!" <= here <= "~" else here
            uri = uri[:at] + chance.choice([here.upper(), wide, LOOKS.get(here, wide)]) + uri[at + 1 :]
        elif kind == 4:
            uri = uri[:at] + uri[at + 1 :]
        else:
            for usual, forms in OTHERWISE.items():
                uri = uri.replace(usual, chance.choice(forms))
        if not uri:
            return "x"
    return uri


def held_against_node(seed: int, each: int) -> None:
    chance = random.Random(seed)
    uris = sorted({varied(chance, uri) for uri in PLACES for _ in range(each)})
    said = rules(*(place + "*" for place in PLACES.values()))
    found = [(uri, read[0]) for uri, read in zip(uris, as_node_reads(uris), strict=True) if read]
    closed = [(uri, href) for uri, href in found if href.startswith(tuple(PLACES.values()))]
    assert len(closed) > each / 4
    open_still = [(uri, href) for uri, href in closed if said.verdict("docs", "resources", uri) != "off"]
    assert not open_still


@needs_node
@pytest.mark.promise("b.attacks.uris")
def test_what_node_reads_as_closed_is_closed() -> None:
    held_against_node(1, 400)


@pytest.mark.parametrize("behind", ["\n", "x", "x:80", ":", "::", ":80:x", ""])
def test_whatever_stands_behind_a_bracket_is_read(behind: str) -> None:
    assert hosts.readings(f"[::1]{behind}", "80")


@pytest.mark.attack
@needs_node
@pytest.mark.parametrize("seed", range(2, 8))
def test_what_node_reads_as_closed_is_closed_at_length(seed: int) -> None:
    held_against_node(seed, 8000)


def held_for_characters(codes: range, template: str) -> None:
    names = [template.replace("?", chr(code)) for code in codes if not 0xD800 <= code < 0xE000]
    reads = as_node_reads([f"http://{name}/" for name in names])
    assert any(reads)
    for name, read in zip(names, reads, strict=True):
        if read and not hosts.is_unknown(name):
            assert set(hosts.readings(name, "80")) == set(hosts.readings(read[1], "80")), ascii(name)


@needs_node
@pytest.mark.parametrize("template", ["a?b.example", "1?.example"])
def test_each_letter_of_a_host_is_read_as_node_reads_it(template: str) -> None:
    held_for_characters(range(0x80, 0x3400), template)


@pytest.mark.attack
@needs_node
@pytest.mark.parametrize("template", ["a?b.example", "1?.example", "?.x"])
def test_each_character_of_a_host_is_read_as_node_reads_it(template: str) -> None:
    held_for_characters(range(0x80, 0x110000), template)


HARD_HOSTS = {
    "many in one label": "".join(chr(0x4E00 + each) for each in range(2000)),
    "many labels": ".".join(chr(0x4E00 + each) * 60 for each in range(33)),
    "Punycode without end": "xn--a-" + "z" * 2000,
    "numbers": "1." * 1000,
    "a long number": "9" * 2000,
    "IPv6": "[" + "0:" * 1000 + "]",
}


@pytest.mark.parametrize("host", HARD_HOSTS.values(), ids=HARD_HOSTS)
def test_a_host_without_end_is_read_a_few_times_and_not_written_in_ascii(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """What Python writes in Punycode takes the square of its length."""
    looked = list[int]()
    as_is = hosts._in_ascii  # pyright: ignore[reportPrivateUsage]

    def counted(name: str) -> str:
        looked.append(len(name))
        found = as_is(name)
        assert len(name) <= 253 or found == name
        return found

    monkeypatch.setattr(hosts, "_in_ascii", counted)
    hosts.readings.cache_clear()
    assert len(uri_readings.forms(f"https://{host}/a"[: uri_readings.LONGEST_URI])) <= 6
    assert sum(looked) <= 4 * 2048
