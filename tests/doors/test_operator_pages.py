"""What stands on the operator's pages, and what their forms do. Read as browsers read it: see `reader`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from inmemory import GREETER, Scripted, gateway, said, tools
from reader import Reader, signed_in

from toolgate.app import App
from toolgate.config import Config, Server
from toolgate.core.fault import Fault
from toolgate.frontends.web.views import VIEWS

WEB = Path(__file__).parents[2] / "src" / "toolgate" / "frontends" / "web"
PAGES = [path.replace("{name}", "greeter") for path, methods in VIEWS.items() if "GET" in methods]
HOSTILE = "</pre></textarea><script>alert(1)</script><img src=x onerror=alert(1)>'\" {{ 7 * 7 }} \u202eevil\x1b[31m"


def hostile(answer: Any) -> Any:
    """The same with texts that attack: as if everybody who is quoted there were a stranger."""
    if isinstance(answer, dict):
        return {key: hostile(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [hostile(each) for each in answer]
    return answer + HOSTILE if isinstance(answer, str) else answer


async def among_strangers(app: App) -> Reader:
    """A reader whose pages quote strangers in every place."""
    reader = await signed_in(app)
    pages = app.http.web._pages["/ui"]
    ask = pages._ask

    async def asked(*question: Any) -> tuple[int, bytes]:
        status, body = await ask(*question)
        return status, json.dumps(hostile(json.loads(body))).encode()

    pages._ask = asked
    return reader


@pytest.mark.parametrize("path", PAGES)
async def test_what_servers_and_clients_write_never_becomes_markup(path: str) -> None:
    scripted = Scripted(tools_list=tools("echo", description=HOSTILE, title=HOSTILE), tools_call=said(HOSTILE))
    failing = Fault("SERVER_FAILED", HOSTILE, hint=HOSTILE)
    async with gateway(GREETER, scripts={"scripted": scripted, "failing": failing}) as app:
        reader = await among_strangers(app)
        await reader.send("POST", "/ui/servers/failing/check", {"csrf": reader.page.hidden["csrf"]})
        await reader.open("/ui" + path)
        assert "{{ 7 * 7 }}" in reader.page.text and "\\u{202e}" in reader.page.text
        assert not re.search("[\u202e\x1b]", reader.page.text)


async def test_a_refusal_never_becomes_markup_either() -> None:
    async with gateway(GREETER) as app:
        reader = await among_strangers(app)
        await reader.open("/ui/servers/nobody", 404)
        assert "<script>alert(1)</script>" in reader.page.text


async def test_the_overview_says_what_needs_the_operator() -> None:
    async with gateway(
        GREETER, scripts={"broken": Fault("SERVER_FAILED", "no such program", hint="install it")}
    ) as app:
        reader = await signed_in(app)
        assert "Nothing." in (await reader.open("/ui")).text
        await reader.open("/ui/servers/broken")
        await reader.press("/ui/servers/broken/check", 502)
        assert "no such program" in reader.page.text and "install it" in reader.page.text
        page = await reader.open("/ui")
        assert "broken failed: no such program" in page.text and "Nothing." not in page.text


async def test_servers_are_shown_started_and_stopped() -> None:
    scripted = Scripted(tools_list=tools("echo", "other"))
    async with gateway(scripts={"there": scripted}) as app:
        reader = await signed_in(app)
        assert "there configured –" in (await reader.open("/ui/servers")).text
        await reader.open("/ui/servers/there")
        page = await reader.press("/ui/servers/there/check")
        assert "It is ready and lists 2 tools." in page.text and "2025-11-25" in page.text
        assert "It is ready" not in (await reader.open("/ui/servers/there")).text
        assert "Stopped." in (await reader.press("/ui/servers/there/stop")).text
        assert app.gateway.snapshot.upstreams["there"].status().state == "stopped"


async def test_a_server_is_added_and_removed_and_its_secrets_are_not_shown() -> None:
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        await reader.open("/ui/servers")
        table = '{"command": "no_such_program", "env": {"TOKEN": "sk-very-secret"}}'
        page = await reader.press("/ui/servers", name="New one", config=table)
        assert "Added New one." in page.text and "no_such_program" in page.text
        assert "sk-very-secret" not in page.text
        assert "Removed new-one." in (await reader.press("/ui/servers/new-one/remove")).text
        assert "new-one" not in app.gateway.snapshot.upstreams


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"name": "x", "config": "["}, "must be a JSON object"),
        ({"name": "x", "config": "[]"}, "must be a JSON object"),
        ({"name": "x", "config": '{"comand": "x"}'}, "comand"),
        ({"name": "", "config": '{"command": "x"}'}, ""),
        ({}, ""),
    ],
)
async def test_a_form_that_is_wrong_says_so_and_changes_nothing(form: dict[str, str], says: str) -> None:
    async with gateway(GREETER) as app:
        before = app.gateway.snapshot
        reader = await signed_in(app)
        await reader.open("/ui/servers")
        page = await reader.press("/ui/servers", 400, **form)
        assert "Not done" in page.text and says in page.text and app.gateway.snapshot is before


async def test_a_thousand_servers_make_no_page_without_end() -> None:
    many = [Server(id=f"s{number}", name=f"s{number}", type="registry", enabled=False) for number in range(1000)]
    async with gateway(*many, config=Config()) as app:
        page = await (await signed_in(app)).open("/ui/servers")
        assert "500 more are not shown." in page.text


def test_all_that_browsers_load_is_small_and_from_here() -> None:
    files = [path for folder in ("static", "templates") for path in (WEB / folder).iterdir()]
    assert (WEB / "static" / "ui.js").stat().st_size < 10_000
    assert sum(path.stat().st_size for path in files) < 150_000
    for path in files:
        text = path.read_text()
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|\|\s*safe\b|innerHTML|insertAdjacentHTML|eval\(", text
        ), path
        assert not re.search(r"\son\w+=|\sstyle=|<style", text), path
