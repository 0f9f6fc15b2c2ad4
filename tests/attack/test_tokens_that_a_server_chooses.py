"""An authorization server chooses its tokens, and a server its authorization server: what they choose takes no word out
of what others say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peers import LATEST, METERED, MODERN, LegacyServer, RpcError, Scene, gateway
from virtualtime import FakeClock, VirtualTimeLoop

from toolgate.config import Audit, Config
from toolgate.core import escapes, redaction
from toolgate.core.redaction import GONE, MOST_TOKENS, PIECE_OF_TOKEN, Redactor, Secrets
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore

CHOSEN = ["rows_of_2025", "structured9content", "tables__rows_of_2025", "Which rows of 2025?", "no-such-row-2025"]


async def rows_of_2025(scene: Scene) -> str:
    return f"rows_of_2025: {json.dumps(scene.arguments)}"


async def fails(scene: Scene) -> str:
    raise RpcError(-32602, "no-such-row-2025", {"row": "no-such-row-2025"})


async def told(server: str, revision: str, folder: Path, tokens: list[str]) -> list[Any]:
    """All that is heard of one server, and noted of its calls, where another, `mail`, was given these tokens."""
    redactor, clock = Redactor(), FakeClock()
    redactor.learn_tokens("mail", tokens)
    tools = {"rows_of_2025": rows_of_2025, "fails": fails}
    servers = {"mail": LegacyServer(tools), "tables": LegacyServer(tools)}
    trail = Trail(folder / "audit.jsonl", clock, MemoryStore(clock), redactor)
    on = Config(limits=METERED, audit=Audit(enabled=True))
    async with gateway(config=on, audit=trail, **servers) as rig:
        client = await rig.client(revision)
        tools = (await client.request("tools/list")).message["result"]["tools"]
        heard = [tool for tool in tools if tool["name"].startswith(f"{server}__")]
        for tool in ("rows_of_2025", "fails"):
            answer = (await client.call(f"{server}__{tool}", arguments={"of": "rows_of_2025"})).message
            heard.append({name: answer.get(name) for name in ("result", "error")})
        await trail.close()
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_bytes().splitlines()]
    return [*heard, *((line["target"], line.get("reason")) for line in lines if line["event"] == "call")]


@pytest.mark.promise("b.attacks.tokens")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_tokens_of_one_server_change_nothing_that_another_says(revision: str, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    without = await told("tables", revision, tmp_path / "without", [])
    assert len(without) == 2 + 2 + 2
    assert await told("tables", revision, tmp_path / "with", CHOSEN) == without


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_what_a_server_says_is_without_its_own(revision: str, tmp_path: Path) -> None:
    heard = json.dumps(await told("mail", revision, tmp_path, CHOSEN))
    assert GONE in heard and "no-such-row-2025" not in heard


class _Never:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"re.{name}: a token is made a pattern")


def _escaped(token: str, every: int) -> str:
    return "".join(f"\\u{ord(each):04x}" if place % every == 0 else each for place, each in enumerate(token))


@pytest.mark.parametrize("every", [1, 2, PIECE_OF_TOKEN])
@pytest.mark.parametrize("is_nested", [False, True])
def test_long_tokens_that_are_repeated_with_escapes_are_read_once_and_no_patterns(
    monkeypatch: pytest.MonkeyPatch, every: int, is_nested: bool
) -> None:
    """To compile one of 4,096 characters took 0.2 s, on the event loop."""
    tokens = [f"x{number}-" + "aB3" * ((PIECE_OF_TOKEN - 4) // 3) for number in range(10, 10 + MOST_TOKENS)]
    redactor = Redactor()
    redactor.learn_tokens("mail", tokens)
    looked, take = list[int](), escapes.Looks.take

    def counted(looks: escapes.Looks, many: int) -> None:
        looked.append(many)
        take(looks, many)

    monkeypatch.setattr(escapes.Looks, "take", counted)
    for module in (redaction, escapes):
        monkeypatch.setattr(module, "re", _Never())
    body = json.dumps({"a": "TOKEN, and TOKEN"})
    body = (json.dumps({"json": body}) if is_nested else body).encode()
    for token in tokens[:4]:
        written = _escaped(token, every).encode()
        shown = redactor.of("mail").body(body.replace(b"TOKEN", written))
        assert shown == body.replace(b"TOKEN", GONE.encode())
        written_in = len(shown) + 2 * len(written)
        assert sum(looked) <= 2 * written_in
        looked.clear()
    many = b'{"content":["%b"]}' % b" ".join(_escaped(each, every).encode() for each in tokens)
    assert b"aB3" not in redactor.of("mail").body(many)
    assert sum(looked[:-1]) <= redaction.MOST_SEARCHED


@pytest.mark.parametrize("written", [r"ab\u\u0063", r"\u\u12", r"\\\u\u0041 \users"])
def test_half_an_escape_before_another_does_not_end_the_call(written: str) -> None:
    redactor = Redactor(["another-secret-7"])
    body = json.dumps({"a": written + " another-secret-\u0037"}).encode().replace(b"-7", b"-\\u0037")
    assert json.loads(redactor.body(body))["a"].endswith(GONE)


@pytest.mark.parametrize(
    ("secret", "written"),
    [
        ("line one-1\nline two-2", r"l\u0069ne one-1\nline two-2"),
        ("line one-1\nline two-2\n", r"line one-1\u000aline\u0020two-2\n"),
        ("C:\\keys\\of-7\\x", r"C:\\keys\u005cof-7\\x"),
        ("\\begins-with-7", r"\\begins\u002dwith-7"),
    ],
)
def test_what_json_has_short_escapes_for_is_known_in_any_mixture(secret: str, written: str) -> None:
    body = b'{"a":"<%b>","b":"\\n"}' % written.encode()
    assert secret in json.loads(body)["a"]
    shown = json.loads(Redactor([secret]).body(body))["a"]
    assert GONE in shown and "7" not in shown and "two" not in shown and shown.endswith(">")


@pytest.mark.parametrize(("many", "is_aside"), [(1, False), (MOST_TOKENS, True)])
async def test_results_that_many_tokens_are_looked_for_in_are_scrubbed_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, many: int, is_aside: bool
) -> None:
    async def tells(scene: Scene) -> str:
        return "plain words " * 30_000

    redactor, clock = Redactor(), FakeClock()
    redactor.learn_tokens("there", [f"+/{number}" + "+a" * 300 for number in range(many)])
    scrubbed, may_be_in = list[bool](), Secrets.may_be_in

    def noting(secrets: Secrets, shown: bytes) -> bool:
        scrubbed.append(VirtualTimeLoop.is_aside)
        return may_be_in(secrets, shown)

    monkeypatch.setattr(Secrets, "may_be_in", noting)
    trail = Trail(None, clock, MemoryStore(clock), redactor)
    async with gateway(audit=trail, there=LegacyServer({"tells": tells})) as rig:
        await (await rig.client(LATEST)).call("there__tells")
    assert any(scrubbed) is is_aside
