"""What stands on each of the operator's pages, and what their forms do: each asks the admin API, and changes nothing by
itself.

A page is a row in `VIEWS` and a template; a form is a row for POST, whose view returns `Done`. Nothing can be done on a
page that cannot be done by a command, which the page names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

Ask: TypeAlias = Callable[..., Awaitable[Any]]
Outcome: TypeAlias = "Shown | Done"


class PageRequest(NamedTuple):
    """One request of somebody who is signed in. `name` is what its path names. `ask` raises `Failed`."""

    ask: Ask
    name: str
    form: Mapping[str, str]
    query: Mapping[str, str]


class Shown(NamedTuple):
    """A page."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


class Done(NamedTuple):
    """What was asked for is done; what it says is shown on the page at `path`."""

    path: str
    says: str


class Failed(Exception):
    """What the admin API has refused, or a form that cannot be understood."""

    def __init__(self, status: int, error: str, hint: str = "", answer: Mapping[str, Any] = {}) -> None:
        super().__init__(error)
        self.status, self.error, self.hint, self.answer = status, error, hint, answer


View: TypeAlias = Callable[[PageRequest], Awaitable[Outcome]]


async def overview(request: PageRequest) -> Outcome:
    status = await request.ask("GET", "/status")
    servers = status["servers"]
    figures = {
        **Counter(each["state"] for each in servers),
        "calls in progress": sum(each.get("calls", 0) for each in servers),
        "tools": sum(each.get("tools", 0) for each in servers),
    }
    broken = [each for each in servers if each["state"] == "failed"]
    return Shown("overview.html", {"nav": "/", "status": status, "figures": figures, "broken": broken})


async def servers(request: PageRequest) -> Outcome:
    status = await request.ask("GET", "/status")
    now = status["started"] + status["uptime"]
    return Shown("servers.html", {"nav": "/servers", "servers": status["servers"], "now": now})


async def server(request: PageRequest) -> Outcome:
    found = await request.ask("GET", f"/servers/{quote(request.name, safe='')}")
    return Shown("server.html", {"nav": "/servers", "server": found})


async def add_server(request: PageRequest) -> Outcome:
    try:
        table = msgspec.json.decode(request.form.get("config", "") or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, ValueError) as error:
        raise Failed(400, f"The configuration must be a JSON object: {error}") from None
    added = await request.ask("POST", "/servers", {**table, "name": request.form.get("name", "").strip()})
    return Done(_of_server(added["id"]), f"Added {added['name']}.")


async def check_server(request: PageRequest) -> Outcome:
    checked = await request.ask("POST", f"/servers/{request.name}/check")
    if fault := checked.get("fault"):
        raise Failed(502, fault["error"], fault.get("hint", ""))
    return Done(_of_server(request.name), f"It is {checked['state']} and lists {len(checked.get('tools', ()))} tools.")


async def stop_server(request: PageRequest) -> Outcome:
    await request.ask("POST", f"/servers/{request.name}/stop")
    return Done(_of_server(request.name), "Stopped. The next call starts it.")


async def remove_server(request: PageRequest) -> Outcome:
    await request.ask("DELETE", f"/servers/{request.name}")
    return Done("/servers", f"Removed {request.name}.")


def _of_server(id: str) -> str:
    return f"/servers/{quote(id, safe='')}"


# Behind the prefix of the pages, by method. `{name}` is one part of a path.
VIEWS: Mapping[str, Mapping[str, View]] = {
    "/": {"GET": overview},
    "/servers": {"GET": servers, "POST": add_server},
    "/servers/{name}": {"GET": server},
    "/servers/{name}/check": {"POST": check_server},
    "/servers/{name}/stop": {"POST": stop_server},
    "/servers/{name}/remove": {"POST": remove_server},
}
_patterns = [(re.compile(re.sub(r"{\w+}", "([^/]+)", path)), methods) for path, methods in VIEWS.items()]


def find(method: str, path: str) -> tuple[View | None, str]:
    """What answers, and what the path names."""
    for pattern, methods in _patterns:
        if found := pattern.fullmatch(path):
            return methods.get(method), found[1] if pattern.groups else ""
    return None, ""
