"""Tokens of an identity provider of another maker, npm's oidc-provider: its words, its keys, and its tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import installed
import pytest
from doors.issuers import encoded
from inmemory import LATEST, Visitor, gateway

from toolgate.auth import issuer as issuers
from toolgate.config import Auth, Config, KnownClient
from toolgate.core.clock import SystemClock

pytestmark = pytest.mark.interop

NAME = "oidc-provider-9.13"
AUDIENCE = "https://gate.example"
HELLO = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
CALL = {"name": "greeter__greet", "arguments": {"name": "Ada"}}


class Provider:
    def __init__(self, url: str) -> None:
        self.url = url

    def token(self, path: str = "/mcp", scope: str = "mcp", client: str = "ada", audience: str = AUDIENCE) -> str:
        wanted = {"grant_type": "client_credentials", "resource": audience + path, "scope": scope}
        credentials = base64.b64encode(f"{client}:{client}-secret".encode()).decode()
        request = urllib.request.Request(
            f"{self.url}/token", urllib.parse.urlencode(wanted).encode(), {"Authorization": f"Basic {credentials}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["access_token"]

    def withdraw_key(self) -> None:
        with urllib.request.urlopen(f"{self.url}/withdraw", timeout=30):
            pass

    @property
    def config(self) -> Config:
        auth = Auth(self.url, AUDIENCE, ("mcp",), {"greeter__*": ("write",)})
        return Config(clients=(KnownClient(id="ada", name="ada", servers="all", claims={"sub": "ada"}),), auth=auth)


@pytest.fixture(scope="module", params=["RS256", "ES256", "PS256", "EdDSA"])
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    if reason := installed.missing_program(NAME):
        pytest.skip(reason)
    node = shutil.which("node")
    assert node
    command = [node, str(Path(__file__).with_name("provider.mjs")), str(installed.program(NAME)), request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin and child.stdout
        yield Provider(child.stdout.readline().decode().strip())
        child.stdin.close()
        child.wait(timeout=30)


def tried(provider: Provider, tokens: Mapping[str, tuple[str, str]]) -> dict[str, int]:
    """What each of these (a path, and a token that is shown there) is answered with, at one gateway."""

    async def all_of_them() -> dict[str, int]:
        async with gateway(config=provider.config, clock=SystemClock()) as app:
            return {
                name: (await Visitor(app, path, authorization=f"Bearer {token}").ask("initialize", **HELLO)).status
                for name, (path, token) in tokens.items()
            }

    return asyncio.run(all_of_them())


def with_claims(token: str, **more: Any) -> str:
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    return f"{head}.{encoded(claims | more)}.{signature}"


def test_its_tokens_open_what_they_are_for_and_nothing_else(provider: Provider) -> None:
    good = provider.token()
    head, body, signature = good.split(".")
    found = tried(
        provider,
        {
            "good": ("/mcp", good),
            "another path's": ("/mcp/meta", good),
            "for another path": ("/mcp", provider.token("/mcp/meta")),
            "its own path": ("/mcp/meta", provider.token("/mcp/meta")),
            "another gateway's": ("/mcp", provider.token(audience="https://other.example")),
            "without the scope": ("/mcp", provider.token(scope="write")),
            "of nobody known": ("/mcp", provider.token(client="zoe")),
            "opaque": ("/mcp", provider.token(audience="https://opaque.example")),
            "with other claims": ("/mcp", with_claims(good, sub="root")),
            "that lasts longer": ("/mcp", with_claims(good, exp=2**40)),
            "alg none": ("/mcp", f"{encoded({'alg': 'none', 'typ': 'at+jwt'})}.{body}."),
            "without a signature": ("/mcp", f"{head}.{body}."),
            "with another's signature": ("/mcp", f"{head}.{body}.{provider.token().split('.')[2]}"),
            "cut": ("/mcp", good[:-8]),
        },
    )
    allowed = {"good": 200, "its own path": 200}
    forbidden = {"without the scope": 403, "of nobody known": 403}
    assert found == dict.fromkeys(found, 401) | allowed | forbidden
    assert signature


def test_a_step_up_is_met_by_another_token(provider: Provider) -> None:
    async def stepping() -> tuple[int, str, int]:
        async with gateway(config=provider.config, clock=SystemClock()) as app:
            visitor = Visitor(app, authorization=f"Bearer {provider.token()}")
            await visitor.initialize()
            refused = await visitor.ask("tools/call", **CALL)
            visitor.headers["authorization"] = f"Bearer {provider.token(scope='mcp write')}"
            return refused.status, refused.headers["www-authenticate"], (await visitor.ask("tools/call", **CALL)).status

    before, challenge, after = asyncio.run(stepping())
    assert (before, after) == (403, 200)
    assert 'error="insufficient_scope"' in challenge and 'scope="mcp write"' in challenge


def test_a_new_key_of_the_issuer_is_found(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuers, "PAUSE", 0.0)

    async def rotating() -> list[int]:
        async with gateway(config=provider.config, clock=SystemClock()) as app:
            old = provider.token()
            statuses: list[int] = []
            for shown in (old, "", old):
                if not shown:
                    provider.withdraw_key()
                    shown = provider.token()
                visitor = Visitor(app, authorization=f"Bearer {shown}")
                statuses.append((await visitor.ask("initialize", **HELLO)).status)
            return statuses

    assert asyncio.run(rotating()) == [200, 200, 401]
