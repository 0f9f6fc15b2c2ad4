"""docs/proxy.md: a gateway with its configuration lets in what its proxies send, and nothing by another name."""

from __future__ import annotations

import re
from pathlib import Path

from inmemory import Scripted, Visitor, gateway, tools
from virtualtime import FakeClock, play

from toolgate import config
from toolgate.auth import keys
from toolgate.auth.cross_checks import problems
from toolgate.cli import serve
from toolgate.state.memory import MemoryStore

PAGE = (Path(__file__).parents[1] / "docs" / "proxy.md").read_text()
EXAMPLE, ENCRYPTED = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)


def test_its_configuration_has_no_slip() -> None:
    found = config.read(EXAMPLE, file="toolgate.toml", environ={}, format="toml")
    assert not found.warnings and not problems(found)


def test_without_a_proxy_nothing_is_open_and_nothing_is_warned_of_but_the_files() -> None:
    found = config.read(ENCRYPTED, file="toolgate.toml", environ={}, format="toml")
    assert not found.warnings and not problems(found)
    assert not serve.unguarded(found) and not list(serve.remarks(found))
    assert found.http.url("gate.example.com", found.http.port) == f"https://{found.http.allowed_hosts[0]}"


def test_a_client_behind_the_proxy_comes_in_by_the_public_name_and_no_other() -> None:
    found = config.read(EXAMPLE, file="toolgate.toml", environ={}, format="toml")

    async def conversation() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        _, key = await keys.create(store, "ann", clock.wall())
        scripts = {"notes": Scripted(tools_list=tools("list_notes"))}
        async with gateway(config=found, scripts=scripts, clock=clock, store=store) as app:
            keyed = Visitor(app, host="gate.example.com", authorization=f"Bearer {key}")
            assert [tool["name"] for tool in (await keyed.ask("tools/list")).result["tools"]] == ["notes__list_notes"]
            asked = keyed.request("tools/list")
            assert (await keyed.post(asked, headers={"authorization": None})).status == 401
            refused = await keyed.post(asked, headers={"host": "other.example.com"})
            assert refused.status == 403
            (shown,) = re.findall(r"^\| 403 `(.*?)` \|", PAGE, re.M)
            assert shown.replace("gate", "other") in refused.error["message"]

    play(conversation())


def test_both_proxies_lead_to_the_port_of_the_configuration() -> None:
    found = config.read(EXAMPLE, file="toolgate.toml", environ={}, format="toml")
    assert found.http.trusted_proxies == (found.http.host,)
    address = f"{found.http.host}:{found.http.port}"
    assert f"reverse_proxy {address}" in PAGE and f"proxy_pass http://{address};" in PAGE
    assert f"client_max_body_size {found.http.body_limit // 2**20}m;" in PAGE
