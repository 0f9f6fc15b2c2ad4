"""URLs that others name lead nowhere inside, by no spelling, by no redirect, and by no name that changes its mind.

Nothing here leaves this machine: names are those of a resolver double, and its internet lies on loopback.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from processes.ground import Json, child, gateway, home, real, settings, toolgate

from toolgate.auth.safe_net import MOST_ADDRESSES, Bounds, Net, SafeNet
from toolgate.config import Guard
from toolgate.core.fault import Fault
from toolgate.upstreams.links.http1 import Target

PUBLIC = "93.184.216.34"

# Names that lead inside; several answers in one row are given at once.
NAMES = {
    "loop.example": ["127.0.0.1"],
    "ten.example": ["10.1.2.3"],
    "meta.example": ["169.254.169.254"],
    "six.example": ["::1"],
    "mapped.example": ["::ffff:10.0.0.1"],
    "some.example": [PUBLIC, "192.168.0.1"],
    "nat64.example": ["64:ff9b::a9fe:a9fe"],
    "127.0.0.1.nip.example": ["127.0.0.1"],
}

REFUSED = [
    # loopback, in each way in which a number is read as an address
    "https://127.0.0.1/", "https://127.1/", "https://127.0.1/", "https://2130706433/", "https://0x7f000001/",
    "https://0x7f.0.0.1/", "https://0177.0.0.1/", "https://017700000001/", "https://127.0.0.1./", "https://0x7f.1/",
    "https://127.000.000.001/", "https://127。0。0。1/", "https://①②⑦.0.0.1/", "https://127.255.255.254:8443/",
    "https://[::1]/", "https://[0:0:0:0:0:0:0:1]/", "https://[::]/", "https://0.0.0.0/", "https://0/", "https://0x0/",
    # IPv4 within IPv6
    "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::ffff:a9fe:a9fe]/", "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/", "https://[64:ff9b::169.254.169.254]/", "https://[64:ff9b:1::1]/",
    "https://[2002:7f00:1::]/", "https://[2002:a00:1::1]/", "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    # inner networks, and what clouds keep there
    "https://10.0.0.1/", "https://172.16.0.1/", "https://172.31.255.255/", "https://192.168.1.1/",
    "https://100.64.0.1/", "https://100.100.100.200/", "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/", "https://0xa9fea9fe/", "https://169.254.170.2/v2/credentials", "https://168.63.129.16/",
    "https://192.0.0.192/", "https://[fd00:ec2::254]/", "https://[fd12:3456::1]/", "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/", "https://[fec0::1]/",
    # addresses that are nobody's
    "https://192.0.2.1/", "https://198.18.0.1/", "https://198.51.100.7/", "https://203.0.113.9/", "https://224.0.0.1/",
    "https://240.0.0.1/", "https://255.255.255.255/", "https://[ff02::1]/", "https://[2001:db8::1]/",
    "https://[3fff::1]/", "https://192.88.99.1/",
    # names
    "https://localhost/", "https://LOCALHOST/", "https://localhost./", "https://a.localhost/", "https://intranet/",
    "https://metadata.google.internal/", "https://metadata.google.internal./", "https://printer.local/",
    "https://nas.lan/", "https://router.home.arpa/", "https://wiki.corp/", "https://hidden.onion/",
    *(f"https://{name}/" for name in NAMES),
    # a host that is not where it seems to be
    f"https://{PUBLIC}@127.0.0.1/", "https://public.example@10.0.0.1/", "https://127.0.0.1#@public.example/",
    "https://public.example:443@127.0.0.1:80/", "https://127.0.0.1\\@public.example/", "https://me:pw@public.example/",
    "https://public.example\\.127.0.0.1/", "https://127.0.0.1\t/", "https://exa mple/", "https://127.0.0.1%00.example/",
    # other schemes, and what is no URL
    "http://public.example/", "file:///etc/passwd", "gopher://127.0.0.1:6379/_INFO", "ftp://public.example/a",
    "dict://127.0.0.1:11211/stats", "ldap://10.0.0.1/", "//127.0.0.1/", "https:///etc/passwd", "https://", "",
    "https://[::1/", "https://public.example:0/", "https://public.example:99999/",
]  # fmt: skip


class Internet(Net):
    """`names` are answers one after the other, the last for good. `where` is the port on which all public addresses
    are found; what was connected to is in `reached`."""

    def __init__(self, names: dict[str, list[list[str]]] | None = None, where: int = 9) -> None:
        self.names = {name: [found] for name, found in NAMES.items()} | {"public.example": [[PUBLIC]]} | (names or {})
        self.where = where
        self.asked: list[str] = []
        self.reached: list[str] = []

    async def lookup(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.names.get(host.rstrip(".").lower())
        if answers:
            return answers.pop(0) if len(answers) > 1 else answers[0]
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        return [str(each[4][0]) for each in found]

    def place(self, address: str, port: int) -> tuple[str, int]:
        self.reached.append(address)
        return "127.0.0.1", self.where


async def refusal(work: Any) -> Fault:
    try:
        found = await work
    except Fault as fault:
        return fault
    raise AssertionError(f"it was let through: {found!r:.200}")


@pytest.mark.promise("b.rulings.11")
@pytest.mark.parametrize("url", REFUSED)
@real
async def test_no_url_leads_inside(url: str) -> None:
    net = Internet()
    assert (await refusal(SafeNet(net=net).fetch(url, asker="a"))).code == "ACCESS_DENIED"
    try:
        target = Target(url.replace("http://public.example", "http://10.0.0.1"))
    except ValueError:
        return
    if "@public.example" not in url and target.host not in ("public.example", "public.example\\.127.0.0.1"):
        try:
            found = await SafeNet(net=net).dial("a")(target.host, target.port)
        except (Fault, OSError):
            pass
        else:
            found.close()
            raise AssertionError("it was connected to")
    assert net.reached == []


@real
async def test_there_are_more_than_forty_and_all_of_the_registries_are_among_them() -> None:
    assert len(set(REFUSED)) == len(REFUSED) >= 40


@pytest.mark.parametrize("url", ["https://public.example/", f"https://{PUBLIC}/", "https://[2606:4700::1111]/"])
@real
async def test_what_is_public_is_let_through(url: str) -> None:
    """Nothing listens there: it is the connection that fails."""
    net = Internet(where=_closed_port())
    assert (await refusal(SafeNet(net=net).fetch(url, asker="a"))).code == "UPSTREAM_ERROR"
    assert len(net.reached) == 1


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server on loopback that says the same to everybody, and what it was asked."""
    asked: list[bytes] = []
    work: set[Any] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        work.add(asyncio.current_task())
        try:
            asked.append(await reader.read(65536))
            if answer:
                writer.write(answer)
                await writer.drain()
            else:
                await reader.read()
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*work)


def moved(to: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


@pytest.mark.promise("b.rulings.11")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "to",
    [
        "https://127.0.0.1/", "http://127.0.0.1/admin/servers", "//169.254.169.254/latest/", "https://loop.example/",
        "https://localhost/", "https://[::ffff:10.0.0.1]/", "file:///etc/passwd", "https://a@127.0.0.1/",
        "http://public.example/", "https://[",
    ],
)  # fmt: skip
@real
async def test_no_redirect_leads_inside(to: str, status: int) -> None:
    async with serving(moved(to, status)) as (port, asked):
        net = Internet({"first.example": [["10.9.9.9"]]}, port)
        outside = SafeNet(["first.example"], net=net)
        fault = await refusal(outside.fetch(f"http://first.example:{port}/start", asker="a"))
        assert fault.code == "ACCESS_DENIED"
        assert net.reached == ["10.9.9.9"] and len(asked) == 1


@real
async def test_redirects_end_and_another_origin_gets_nothing_that_was_meant_for_the_first() -> None:
    async with serving(moved("http://second.example/next")) as (port, asked):
        net = Internet({"first.example": [["10.9.9.9"]], "second.example": [["10.9.9.8"]]}, port)
        outside = SafeNet(["first.example", "second.example"], net=net)
        told = {"Authorization": "Bearer t0p-secret", "X-Key": "t0p-secret", "Accept": "a/b"}
        fault = await refusal(outside.fetch("http://first.example/", asker="a", headers=told))
        assert fault.code == "UPSTREAM_ERROR" and "too many times" in fault.message
        assert b"t0p-secret" in asked[0] and len(asked) == 4
        assert all(b"t0p-secret" not in each and b"a/b" in each for each in asked[1:])
        posted = await outside.fetch("http://first.example/", "POST", asker="a", body=b"code=t0p-secret")
        assert posted.status == 302 and len(asked) == 5


@pytest.mark.promise("b.rulings.11")
@real
async def test_a_name_that_changes_its_mind_is_connected_to_where_it_was_looked_at_or_not_at_all() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (port, asked):
        net = Internet({"rebind.example": [[PUBLIC], ["127.0.0.1"]]}, port)
        dial = SafeNet(net=net).dial("a")
        connection = await dial("rebind.example", 80)
        connection.close()
        assert (net.asked, net.reached) == (["rebind.example"], [PUBLIC])
        for _ in range(2):
            assert (await refusal(dial("rebind.example", 80))).code == "ACCESS_DENIED"
        assert net.reached == [PUBLIC]
        again = Internet({"rebind.example": [[PUBLIC], ["127.0.0.1"]]}, port)
        assert (
            await refusal(SafeNet(net=again).fetch("https://rebind.example/", asker="a"))
        ).code == "UPSTREAM_ERROR"  # no TLS
        assert (again.asked, again.reached) == (["rebind.example"], [PUBLIC])
        assert not any(b"Host" in each for each in asked)


@real
async def test_of_a_name_with_thousands_of_addresses_a_few_are_looked_at_and_tried() -> None:
    many = [f"8.8.{number // 256}.{number % 256}" for number in range(4_000)]
    net, looked_at = Internet({"many.example": [[*many, "127.0.0.1"]]}, where=0), list[str]()
    found = SafeNet(net=net, own=lambda address, _port: bool(looked_at.append(address)))
    with pytest.raises(OSError):
        await found.dial("a")("many.example", 443)
    assert net.reached == looked_at == many[:MOST_ADDRESSES]


@real
async def test_who_never_shakes_hands_is_left_and_nothing_stays_open() -> None:
    async with serving(b"") as (port, asked):
        net, bounds = SafeNet(net=Internet(where=port)), Bounds(seconds=0.2)
        fault = await refusal(net.fetch("https://public.example/", asker="a", bounds=bounds))
        assert fault.code == "UPSTREAM_ERROR"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("allowed", "url"),
    [("127.0.0.0/8", "http://127.0.0.1:{}/"), ("localhost", "http://localhost:{}/"), ("::1", "http://[::1]:{}/")],
)
@real
async def test_the_operator_may_allow_what_is_inside(allowed: str, url: str) -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (port, _):
        net = Internet({"localhost": [["127.0.0.1"]]}, port)
        assert (await SafeNet([allowed], net=net).fetch(url.format(port), asker="a")).body == b"ok"
        assert (await SafeNet(net=net).fetch(url.format(port), asker="a", trusted=[url.format(port)])).body == b"ok"


# Servers that a tool call has added.

ALLOWING = msgspec.structs.replace(settings(), add_servers="allow")


def adding(transport: str, url: str) -> Json:
    return {"name": "inner", "transport": transport, "url": url}


@pytest.mark.promise("b.rulings.11")
@pytest.mark.parametrize(("transport", "scheme"), [("http", "http"), ("sse", "http"), ("websocket", "ws")])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
@real
async def test_a_server_that_a_tool_call_adds_is_not_reached_inside(transport: str, scheme: str, host: str) -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (port, asked), gateway(ALLOWING) as rig:
        said = json.loads(await rig.client().call("add_mcp_server", **adding(transport, f"{scheme}://{host}:{port}/")))
        assert "is refused" in said["error"] and said["tools"] == []
        assert asked == []


@pytest.mark.parametrize(("type", "scheme"), [("http", "http"), ("sse", "http"), ("ws", "ws"), ("component", "http")])
@pytest.mark.parametrize("allowed", [(), ("127.0.0.1",)])
@real
async def test_every_kind_of_server_is_reached_inside_only_where_the_operator_allows_it(
    type: str, scheme: str, allowed: tuple[str, ...]
) -> None:
    async with serving(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as (port, asked):
        inner = {"type": type, "url": f"{scheme}://127.0.0.1:{port}/", "by_operator": False}
        config = msgspec.structs.replace(settings(inner=inner), guard=Guard(allow_hosts=allowed))
        async with gateway(config) as rig:
            said = await rig.client().call("list_tools", server="inner")
        assert ("is refused" in said) == (not allowed)
        assert bool(asked) == bool(allowed)


@real
async def test_that_it_was_a_tool_call_that_added_it_is_known_after_a_restart() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (port, asked):
        with home() as environ:
            for round in range(2):
                async with toolgate(
                    "serve", "--port", "0", config={"one": child("counting")}, environ=environ, add_servers="allow"
                ) as process:
                    client = await process.until_it_serves()
                    if not round:
                        await client.call("add_mcp_server", **adding("http", f"http://127.0.0.1:{port}/"))
                    said = json.loads(await client.call("list_tools", server="inner")) if round else {}
                    assert not round or "is refused" in json.dumps(said)
        assert asked == []


def _closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
