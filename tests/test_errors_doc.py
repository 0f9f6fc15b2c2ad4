"""docs/errors.md has each code of `RPC_CODES`, with its number, and shows an error as clients get it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from inmemory import Scripted, Visitor, gateway, tools
from virtualtime import play

from toolgate.core import mcp
from toolgate.core.fault import RETRYABLE, RPC_CODES
from toolgate.eras.modern import HTTP_STATUS

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()
ROWS = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \| (-\d+) \| (yes|no) \|$", PAGE, re.M)
SECTIONS = re.findall(r"^### (\w+)\n\n(.+)", PAGE, re.M)


def test_each_code_has_a_row_with_its_number_and_whether_to_try_again() -> None:
    shown = [(code, int(number), again == "yes") for code, _, number, again in ROWS]
    assert shown == [(code, number, code in RETRYABLE) for code, number in RPC_CODES.items()]
    assert all(link == code.lower() for code, link, _, _ in ROWS)


def test_each_code_has_a_section_in_the_same_order() -> None:
    assert [code for code, _ in SECTIONS] == list(RPC_CODES)


def test_the_error_that_it_shows_is_what_a_client_gets() -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)

    async def conversation() -> None:
        async with gateway(scripts={"clock": Scripted(tools_list=tools("now"))}) as app:
            for ask in (Visitor(app).ask, Visitor(app).ask_modern):
                assert (await ask("tools/call", name="clock__nwo")).error == json.loads(shown)

    play(conversation())


def test_older_clients_get_the_numbers_that_it_says() -> None:
    async def conversation() -> None:
        async with gateway() as app:
            error = (await Visitor(app).ask("resources/read", uri="nope://")).error
        assert error["data"]["code"] == "RESOURCE_NOT_FOUND"
        assert f"get {error['code']} where `resources/read`" in PAGE

    play(conversation())
    text = PAGE.partition("Clients before")[2].partition("###")[0]
    assert all(str(number) in text for number in mcp.MODERN_ONLY_ERRORS)


def test_the_statuses_of_modern_errors_are_those_of_the_code() -> None:
    text = PAGE.partition("## HTTP statuses")[2].partition("| status |")[0]
    bad, missing = text.split("404")[0].split("status 400")
    assert numbers(bad) == {number for number, status in HTTP_STATUS.items() if status == 400}
    assert numbers(missing) == {number for number, status in HTTP_STATUS.items() if status == 404}


def numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"-32\d{3}", text)}
