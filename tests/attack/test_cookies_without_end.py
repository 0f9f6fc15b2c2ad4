"""A stranger's cookies are looked at in a time that their length bounds, whatever they are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from inmemory import Visitor, gateway

import toolgate
from toolgate.frontends.web import cookies

NAME = "toolgate-session"
LONG = {
    "backslashes in quotes": f'{NAME}="' + "\\" * 60_000 + '"',
    "escaped quotes": f'{NAME}="' + '\\"' * 30_000 + '"',
    "octal": f'{NAME}="' + "\\101" * 15_000 + '"',
    "another name": 'x="' + "\\" * 60_000 + f'"; {NAME}=',
    "semicolons": ";" * 60_000 + f"{NAME}=",
    "spaces": (";" + " " * 1000) * 60 + f"{NAME}=",
    "many": "a=b;" * 15_000 + f"{NAME}=",
    "names": ("; " + "a" * 100) * 600 + f"{NAME}=",
}


@pytest.mark.parametrize("header", LONG.values(), ids=LONG)
async def test_no_cookie_takes_long_to_look_at(header: str) -> None:
    """In processor time, and far more than it takes."""
    began = time.process_time()
    assert cookies.held({"cookie": header}, NAME) == ""
    async with gateway() as app:
        reply = await Visitor(app).begin("GET", path="/ui", headers={"cookie": header}).response()
        assert reply.status in (200, 303)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("header", "held"),
    [
        (f"{NAME}=abc_-9", "abc_-9"),
        (f"a=1; {NAME}=abc;b=2", "abc"),
        (f"{NAME}=one; {NAME}=two", "two"),
        (f'{NAME}="abc"', ""),
        (f"x{NAME}=abc", ""),
        (f"{NAME}=", ""),
        (f"{NAME}=a b", ""),
        (f"a={NAME}=abc", ""),
        ("", ""),
    ],
)
def test_a_cookie_of_ours_is_found_as_it_was_set(header: str, held: str) -> None:
    assert cookies.held({"cookie": header}, NAME) == held


def test_nothing_takes_cookies_apart_by_the_standard_library() -> None:
    source = Path(toolgate.__file__).parent
    assert not [each for each in source.rglob("*.py") if "from http.cookies" in each.read_text()]
