"""A hostile server, and the authorization server that it names: their documents, their names and their challenges hold
nobody else, and bring no token and no way that is not theirs."""

from __future__ import annotations

import asyncio
import datetime
import gc
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from processes.ground import real
from processes.test_outside import Internet, refusal, serving
from unit.auth.test_oauth import Rig
from virtualtime import settle

from toolgate.auth import exchange as exchanges
from toolgate.auth import lookups, safe_net
from toolgate.auth.exchange import Answer, BadAnswer, Request, exchange
from toolgate.auth.lookups import Lookups
from toolgate.auth.oauth import credentials, vault
from toolgate.auth.oauth.base import Offered, Refusal
from toolgate.auth.oauth.grants import LONGEST as LONGEST_GRANT
from toolgate.auth.safe_net import LONGEST, Net, SafeNet
from toolgate.core.fault import Fault
from toolgate.frontends.web import connect

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

WITHOUT_END = {
    "chunks of a byte": (CHUNKED, b"1\r\nx\r\n"),
    "answers before the answer": (b"", b"HTTP/1.1 100 C\r\n\r\n"),
    "headers": (OK, b"a: \r\n"),
    "one header": (OK + b"a: ", b"a"),
    "a reason": (b"HTTP/1.1 200 ", b"a"),
    "trailers": (CHUNKED + b"0\r\n", b"a: \r\n"),
    "chunk extensions": (CHUNKED + b"1", b";a=b"),
    "empty lines": (b"", b"\r\n"),
    "a body": (OK + b"\r\n", b"x"),
}


# Documents.


class Rounds:
    """What was read in each round of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[int] = [0]
        self._is_over = False
        feed = Answer.feed

        def counted(answer: Answer, data: bytes) -> None:
            self.read[-1] += len(data)
            feed(answer, data)

        monkeypatch.setattr(Answer, "feed", counted)

    def begin(self) -> None:
        if not self._is_over:
            self.read.append(0)
            asyncio.get_running_loop().call_soon(self.begin)

    def end(self) -> None:
        self._is_over = True


async def _sent_without_end(head: bytes, more: bytes, turn: asyncio.Lock) -> tuple[BaseException | Answer, int]:
    """How reading it ends, and how many bytes went out until then."""
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    sent = 0

    async def send() -> None:
        nonlocal sent
        piece = more * (16 * 1024 // len(more))
        await asyncio.get_running_loop().sock_sendall(there, head)
        while True:
            await asyncio.get_running_loop().sock_sendall(there, piece)
            sent += len(piece)

    sending = asyncio.create_task(send())
    try:
        ended = await exchange(here, Request(b"GET / HTTP/1.1\r\n\r\n", "a.example"), LONGEST, turn)
    except BadAnswer as bad:
        ended = bad
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    here.close()
    there.close()
    return ended, sent


@pytest.mark.parametrize(("head", "more"), WITHOUT_END.values(), ids=WITHOUT_END)
def test_a_document_without_end_ends_and_is_read_a_piece_in_a_round(
    monkeypatch: pytest.MonkeyPatch, head: bytes, more: bytes
) -> None:
    @real
    async def asked() -> None:
        rounds, turn = Rounds(monkeypatch), asyncio.Lock()
        rounds.begin()
        for ended, sent in await asyncio.gather(*(_sent_without_end(head, more, turn) for _ in range(3))):
            assert isinstance(ended, BadAnswer)
            assert sent < 2 * LONGEST + 1024 * 1024, "what the system keeps of a connection, and no more"
        rounds.end()
        assert max(rounds.read) <= exchanges.PIECE

    asked()


@pytest.mark.parametrize("data", [OK + b"Content-Length: 2\r\n\r\nok", OK + b"\r\nok", b"no HTTP\r\n\r\n"])
def test_an_answer_is_gone_with_who_has_asked_and_not_when_garbage_is_collected(data: bytes) -> None:
    @real
    async def asked() -> None:
        here, there = socket.socketpair()
        here.setblocking(False)
        there.sendall(data)
        there.close()
        with suppress(BadAnswer):
            await exchange(here, Request(b"", "a.example"), LONGEST, asyncio.Lock())
        here.close()

    gc.collect()
    gc.disable()
    try:
        asked()
        assert not [each for each in gc.get_objects() if isinstance(each, Answer)]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (OK + b"Content-Length: 2\r\n\r\nok", b"ok"),
        (CHUNKED + b"1\r\no\r\n1;a=b\r\nk\r\n0\r\nHost: evil\r\n\r\n", b"ok"),
        (b"HTTP/1.1 103 A\r\nLink: a\r\n\r\nHTTP/1.1 100 B\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok", b"ok"),
        (OK + b"Content-Length: 2\r\n\r\nok" + OK + b"Content-Length: 4\r\n\r\nevil", b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_answers_as_servers_give_them_are_read(data: bytes, body: bytes, piece: int) -> None:
    answer = Answer(100)
    for start in range(0, len(data), piece):
        if not answer.is_whole:
            answer.feed(data[start : start + piece])
    if not answer.is_whole:
        answer.end()
    assert bytes(answer.body) == body and "host" not in answer.headers and "link" not in answer.headers


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200", OK + b"Content-Length: 9\r\n\r\nok", CHUNKED + b"1\r\no\r\n"])
def test_an_answer_that_is_cut_off_is_none(data: bytes) -> None:
    answer = Answer(100)
    if data:
        answer.feed(data)
    with pytest.raises(BadAnswer):
        answer.end()


@pytest.mark.parametrize("data", [b"HTTP/1.1 101 S\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n", b"SSH-2.0\r\n"])
def test_what_is_no_answer_is_none(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        Answer(100).feed(data)


@real
async def test_one_server_has_four_documents_at_once_and_takes_none_from_another() -> None:
    began: list[str] = []

    class Watched(SafeNet):
        async def _once(self, asker: str, *args: Any) -> Any:
            began.append(asker)
            if asker == "good":
                return safe_net.Fetched(200, {}, b"", "")
            return await asyncio.get_running_loop().create_future()

    outside = Watched()
    waiting = [asyncio.create_task(outside.fetch("https://a.example/", asker="hostile")) for _ in range(50)]
    await settle()
    assert (await outside.fetch("https://a.example/", asker="good")).status == 200
    assert began == ["hostile"] * safe_net.AT_ONCE + ["good"]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


# TLS.


@contextmanager
def _certified(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A server's context, whose certificate all believe who look for it at the usual place."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    yield context


class Secured:
    """Says the same to everybody over TLS; `asked` is what came."""

    def __init__(self, answers: Callable[[asyncio.StreamWriter], Any]) -> None:
        self.asked: list[bytes] = []
        self._answers = answers
        self._serving: set[asyncio.Task[Any] | None] = set()

    @asynccontextmanager
    async def listening(self, context: ssl.SSLContext) -> AsyncIterator[int]:
        """At this port; nobody is served any more at the end."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            async with asyncio.timeout(30):
                await asyncio.gather(*filter(None, self._serving))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            await self._answers(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("is_right", [True, False])
def test_tls_asks_for_the_name_and_nothing_is_sent_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    async def answers(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000)
        await writer.drain()

    @real
    async def asked() -> None:
        name = "named.example" if is_right else "other.example"
        with _certified(name, tmp_path, monkeypatch) as context:
            there = Secured(answers)
            async with there.listening(context) as port:
                net = Internet({"named.example": [["93.184.216.34"]]}, port)
                fetching = SafeNet(net=net).fetch("https://named.example/a?b", asker="a", headers={"X-A": "b"})
                if is_right:
                    fetched = await fetching
                    assert (fetched.status, len(fetched.body)) == (200, 100_000)
                    assert there.asked[0].startswith(b"GET /a?b HTTP/1.1\r\nHost: named.example\r\nX-A: b\r\n")
                else:
                    assert "CERTIFICATE_VERIFY_FAILED" in (await refusal(fetching)).message
                    assert there.asked == []

    asked()


def test_records_of_a_byte_are_counted_with_all_that_is_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answers(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        while True:
            for _ in range(100):
                writer.write(b"x")  # a record each
            await writer.drain()

    @real
    async def asked() -> None:
        with _certified("named.example", tmp_path, monkeypatch) as context:
            async with Secured(answers).listening(context) as port:
                net = Internet({"named.example": [["93.184.216.34"]]}, port)
                bounds = safe_net.Bounds(longest=64 * 1024)
                fault = await refusal(SafeNet(net=net).fetch("https://named.example/", asker="a", bounds=bounds))
                assert "for one answer" in fault.message, "before the body was too long"

    asked()


# Names.


class SlowNames(Net):
    """Names of `slow.example` are looked up until the test ends."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ends = asyncio.Event()

    async def lookup(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host.endswith("slow.example"):
            await self.ends.wait()
        return ["93.184.216.34"]


@pytest.mark.parametrize("goes_away", [False, True], ids=["all wait", "nobody waits"])
async def test_slow_names_of_one_server_keep_no_other_from_its_own(goes_away: bool) -> None:
    net = SlowNames()
    outside = SafeNet(net=net)
    waiting = [asyncio.create_task(outside.resolve("hostile", f"{n}.slow.example", 443, ())) for n in range(50)]
    await settle()
    if goes_away:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        waiting = [asyncio.create_task(outside.resolve("hostile", f"x{n}.slow.example", 443, ())) for n in range(50)]
        await settle()
    assert len(net.asked) == lookups.AT_ONCE, "the threads of those that nobody waits for go on"
    assert await outside.resolve("good", "good.example", 443, ()) == ["93.184.216.34"]
    net.ends.set()
    assert await asyncio.gather(*waiting) == [["93.184.216.34"]] * len(waiting)


async def test_slow_names_of_many_servers_leave_one_lookup_to_each() -> None:
    net = SlowNames()
    found = Lookups(net.lookup)
    waiting = [
        asyncio.create_task(found.find(f"server {n}", f"{n}-{each}.slow.example", 443))
        for n in range(3 * lookups.MOST)
        for each in range(3)
    ]
    await settle()
    assert len(net.asked) <= 3 * lookups.MOST + lookups.MOST
    assert await found.find("good", "good.example", 443) == ["93.184.216.34"]
    net.ends.set()
    await asyncio.gather(*waiting)


async def test_a_name_is_looked_up_once_for_all_who_want_it_now() -> None:
    net = SlowNames()
    found = Lookups(net.lookup)
    waiting = [asyncio.create_task(found.find("a", "one.slow.example", 443)) for _ in range(50)]
    await settle()
    waiting[0].cancel()
    net.ends.set()
    assert await asyncio.gather(*waiting[1:]) == [["93.184.216.34"]] * 49
    assert net.asked == ["one.slow.example"]
    assert await found.find("a", "one.slow.example", 443) and len(net.asked) == 2, "and anew for who comes later"


async def test_a_name_that_fails_fails_for_each_and_for_nobody_later() -> None:
    fails = True

    async def lookup(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(0)
        if fails:
            raise socket.gaierror(-2, "Name or service not known")
        return ["93.184.216.34"]

    found = Lookups(lookup)
    ended = await asyncio.gather(*(found.find("a", "a.example", 1) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in ended] == [socket.gaierror] * 3
    fails = False
    assert await found.find("a", "a.example", 1) == ["93.184.216.34"]


@real
async def test_the_operators_servers_are_reached_while_others_names_are_looked_up() -> None:
    async with serving(b"") as (port, _):
        net = SlowNames()
        net.place = lambda address, at: ("127.0.0.1", port)  # type: ignore[method-assign]
        outside = SafeNet(net=net)
        slow = [outside.dial_anywhere("hostile"), outside.dial("hostile")]
        waiting = [asyncio.create_task(dial(f"{n}.slow.example", 80)) for n in range(20) for dial in slow]
        await settle()
        connection = await outside.dial_anywhere("good")("good.example", 80)
        connection.close()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


# Challenges.


async def test_challenges_that_differ_each_time_begin_one_search_at_a_time_and_few_wait() -> None:
    rig = Rig()
    asked, answers = 0, asyncio.Event()
    fetch = rig.outside.fetch

    async def fetched(*args: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        await answers.wait()
        return await fetch(*args, **more)

    rig.outside.fetch = fetched  # type: ignore[method-assign]
    of_ann = [
        asyncio.create_task(rig.credential.refused(Refusal(401, f'Bearer scope="s{number}"'))) for number in range(50)
    ]
    await settle()
    assert asked == 1
    of_bob = asyncio.create_task(rig.badge_of("bob").refused(Refusal(401, "Bearer")))
    await settle()
    assert asked == 2, "what keeps ann waiting keeps nobody else"
    gone = [task for task in of_ann if task.done()]
    assert len(gone) == len(of_ann) - credentials.MOST_REFUSALS
    for task in gone:
        with pytest.raises(Fault, match="refuses each request in a different way"):
            await task
    answers.set()
    ended = await asyncio.gather(*of_ann, of_bob, return_exceptions=True)
    assert sum(isinstance(each, Fault) and each.code == "SIGN_IN_REQUIRED" for each in ended) == 5
    assert (await rig.fault(scope="s60")).code == "SIGN_IN_REQUIRED", "there is room again"


# What sign-ins and registrations take in the store.


WORDS = [f"{number:04}" + "w" * 250 for number in range(1023)]


def _kept(rig: Rig, space: str) -> list[bytes]:
    return list(rig.store.items(space).values())


def _of_another_issuer(rig: Rig, number: int) -> None:
    """The server names another authorization server from now on, which lists as much as may be."""
    at = f"https://as{number}.example"
    authority = Authority(issuer=at)
    authority.metadata |= {
        "scopes_supported": WORDS,
        "code_challenge_methods_supported": [*WORDS, "S256"],
        "token_endpoint_auth_methods_supported": [*WORDS, "client_secret_basic"],
    }
    rig.authority.resource["authorization_servers"] = [at]
    rig.outside.authorities.append(authority)


async def test_what_an_authorization_server_lists_is_not_kept_with_each_sign_in() -> None:
    rig = Rig()
    _of_another_issuer(rig, 1)
    begun = await rig.begun(await rig.fault())
    (kept,) = _kept(rig, vault.SIGN_INS)
    assert len(kept) < 8192
    assert await rig.back(begun) == "docs", "nothing is missing that is needed"


async def test_sign_ins_that_differ_each_time_take_the_place_of_each_other_and_are_paced() -> None:
    rig = Rig()
    links: list[str] = []
    for number in range(3 * credentials.MOST_BEGUN):
        _of_another_issuer(rig, number)
        fault = await rig.fault(scope=f"s{number}")
        assert fault.code == "SIGN_IN_REQUIRED", "no failure of the server, which would close it to others"
        links += re.findall(r"/connect/([\w-]{40,})$", fault.message)
        assert len(_kept(rig, vault.SIGN_INS)) <= credentials.MOST_OFFERS
        assert len(_kept(rig, vault.CLIENTS)) <= vault.MOST_CLIENTS
    assert len(links) == credentials.MOST_BEGUN
    assert sum(len(each.asked("/register")) for each in rig.outside.authorities) == credentials.MOST_BEGUN
    assert [bool(rig.oauth.find(link)) for link in links[-5:]] == [False, True, True, True, True]
    assert re.search("/connect/", (await rig.fault(rig.badge_of("bob"), scope="s")).message), "nor bob's page"
    await rig.oauth.clock.sleep(vault.SIGN_IN_LASTS)
    assert re.search("/connect/", (await rig.fault(scope="later")).message)


async def test_operations_that_need_other_scopes_leave_each_other_their_pages() -> None:
    rig = Rig()
    links = [(await rig.fault(scope=scope)).message for _ in range(50) for scope in ("read", "write")]
    assert len(set(links)) == 2
    await rig.begun(await rig.fault(scope="read"))


async def test_a_registration_that_gave_way_is_still_that_of_its_grants() -> None:
    rig = Rig()
    first = await rig.sign_in()
    for number in range(2 * vault.MOST_CLIENTS):
        _of_another_issuer(rig, number)
        await rig.fault(rig.badge_of(f"p{number}"))
    assert len(_kept(rig, vault.CLIENTS)) == vault.MOST_CLIENTS
    rig.authority.resource["authorization_servers"] = [rig.authority.issuer]
    rig.authority.end()
    again = await rig.credential.refused(Refusal(401, "Bearer", first))
    assert again != first and again.removeprefix("Bearer ") in rig.authority.tokens


@pytest.mark.parametrize("said", [1e308, "1e999", "inf", "nan", "NaN", -1, "-inf", 10**18, "a"])
async def test_a_token_lasts_as_long_as_somebody_could_wait(said: Any) -> None:
    rig = Rig()
    rig.authority.gives["expires_in"] = said
    await rig.sign_in()
    expires = rig.grant().expires
    assert expires is None or 0 <= expires - rig.oauth.clock.wall() <= LONGEST_GRANT


# Tokens for a whole host.


TENANT = "https://host.example/tenants/evil/mcp"


def _tenant(**documents: str) -> Rig:
    """A server that stands beside others at its host; `documents` are resources by where they are described."""
    rig = Rig(Authority(server=TENANT))
    answer = rig.authority.answer

    def answered(method: str, url: str, headers: Any, body: bytes) -> Any:
        place = url.removeprefix("https://host.example")
        if url.startswith("https://host.example"):
            found = documents.get(place)
            return (200, {**rig.authority.resource, "resource": found}) if found else (404, {})
        return answer(method, url, headers, body)

    rig.authority.answer = answered  # type: ignore[method-assign]
    return rig


KNOWN = "/.well-known/oauth-protected-resource"
OWN = f"{KNOWN}/tenants/evil/mcp"
NAMED = "/tenants/evil/metadata"


@pytest.mark.parametrize("named", [NAMED, OWN, ""])
@pytest.mark.parametrize(
    "claimed", ["https://host.example", "https://host.example/", "https://host.example/tenants", TENANT + "?tenant=a"]
)
async def test_a_server_cannot_say_itself_that_it_is_a_whole_host(named: str, claimed: str) -> None:
    rig = _tenant(**{named or OWN: claimed})
    wants = {"resource_metadata": f"https://host.example{named}"} if named else {}
    fault = await rig.fault(**wants)
    assert fault.code == "SERVER_FAILED" and not rig.authority.asked("/register")


@pytest.mark.parametrize("claimed", ["https://host.example", "https://host.example/tenants/evil"])
@pytest.mark.parametrize("named", [NAMED, OWN, ""])
async def test_what_a_host_says_of_itself_counts_for_a_server_that_has_nothing_of_its_own(
    named: str, claimed: str
) -> None:
    at = KNOWN + claimed.removeprefix("https://host.example")
    rig = _tenant(**{named or OWN: claimed, at: claimed})
    wants = {"resource_metadata": f"https://host.example{named}"} if named else {}
    begun = await rig.begun(await rig.fault(**wants))
    assert "resource=" + claimed.replace(":", "%3A").replace("/", "%2F") + "&" in begun.url + "&"


async def test_where_a_host_describes_each_server_a_challenge_cannot_name_the_host() -> None:
    rig = _tenant(**{KNOWN: "https://host.example", OWN: TENANT})
    begun = await rig.begun(await rig.fault(resource_metadata=f"https://host.example{KNOWN}"))
    assert "tenants%2Fevil%2Fmcp" in begun.url


# Ports of hosts that the operator has named.


@pytest.mark.parametrize(
    ("written", "url", "is_let_through"),
    [
        ("http://10.0.0.5:{}/mcp", "http://10.0.0.5:{}/token", True),
        ("http://10.0.0.5:1/mcp", "http://10.0.0.5:{}/token", False),
        ("http://inner:1/mcp", "http://inner:{}/token", False),
        ("http://[fd00::5]:1/mcp", "http://[fd00::5]:{}/token", False),
        ("http://10.0.0.5/mcp", "http://10.0.0.5:{}/token", False),
        ("https://10.0.0.5:1/mcp", "http://10.0.0.5:{}/token", False),
        ("http://127.0.0.1:1/mcp", "http://127.0.0.1:{}/token", True),  # beside it, in development
        ("http://localhost:1/mcp", "http://localhost:{}/token", True),
        ("http://127.0.0.1:{}/mcp", "http://localhost:{}/token", False),
    ],
)  # fmt: skip
@real
async def test_a_url_of_the_operators_opens_its_port_alone(written: str, url: str, is_let_through: bool) -> None:
    async with serving(OK + b"Content-Length: 2\r\n\r\nok") as (port, asked):
        outside = SafeNet(net=Internet({"localhost": [["127.0.0.1"]], "inner": [["10.0.0.5"]]}, port))
        fetching = outside.fetch(url.format(port), asker="a", trusted=[written.format(port)])
        if is_let_through:
            assert (await fetching).body == b"ok"
        else:
            assert (await refusal(fetching)).code == "ACCESS_DENIED"
        assert bool(asked) == is_let_through


async def test_beside_that_port_it_is_the_one_of_https() -> None:
    net = Internet({"inner.example": [["10.0.0.5"]]})
    outside = SafeNet(net=net)
    may = outside._may(["https://inner.example:8443/mcp"])
    for port, is_let_through in ((8443, True), (443, True), (6379, False), (80, False)):
        if is_let_through:
            assert await outside.resolve("a", "inner.example", port, may) == ["10.0.0.5"]
        else:
            with pytest.raises(Fault, match="not a public address"):
                await outside.resolve("a", "inner.example", port, may)


# What its page shows of a sign-in.

NAMES = [
    "\u202egnp",
    "a\u200bb",
    "a b",
    "read, of bank",
    "</dd><form action=https://evil.example>",
    "Continue\n\nat:bank",
    "x" * 256,
]


@pytest.mark.parametrize("name", NAMES)
def test_what_others_name_stands_in_quotes_on_the_page_of_a_sign_in(name: str) -> None:
    told = Offered(
        "mail", "mail.example", f"https://as.example/{name}", f"as.example{name}", "ann", ("read", name), "c"
    )
    page = connect._offer(told)
    permissions = page.partition("Requested permissions</dt><dd>")[2].partition("</dd>")[0]
    assert permissions.startswith("read, &quot;") and permissions.endswith("&quot;")
    assert permissions.count("&quot;") == 2 and "<form action" not in page and "\n" not in page
    assert page.isascii()


def test_what_is_a_name_only_stands_there_as_it_is() -> None:
    scopes = ("read", "https://www.example.com/auth/calendar.readonly", "repo:status", "api://3f-1/.default")
    page = connect._offer(Offered("mail", "mail.example", "https://as.example", "as.example", "ann", scopes, "c"))
    assert f"<dd>{', '.join(scopes)}</dd>" in page
