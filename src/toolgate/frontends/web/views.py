"""What stands on each of the operator's pages, and what their forms do: each asks the admin API, and changes nothing by
itself.

A page is a row in `VIEWS` and a template; a form is a row for POST, whose view returns `Done`. Nothing can be done on a
page that cannot be done by a command, which the page names.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from toolgate.auth.credential_states import SOON
from toolgate.catalog.poisoning import visible
from toolgate.config import dialects
from toolgate.core import mcp, plain
from toolgate.frontends.web import tool_fields
from toolgate.provision.choosing import Lacking, server_of
from toolgate.telemetry.traffic import KINDS, Wanted

TRAFFIC = "/traffic"
LONGEST_AT = 8  # digits
MOST_COLUMNS = 30  # servers in the matrix of access
LONGEST_RESULT = 1024 * 1024  # bytes of a tool's answer that are shown: decoded, they may take thirty times as much

Ask: TypeAlias = Callable[..., Awaitable[Any]]
Outcome: TypeAlias = "Shown | Done"


class PageRequest(NamedTuple):
    """One request of somebody who is signed in. `name` is what its path names. `ask` raises `Failed`."""

    ask: Ask
    name: str
    form: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def at(self) -> int:
        """Behind how many items of a long list the page begins."""
        said = self.query.get("at", "")
        return int(said) if said.isdecimal() and len(said) < LONGEST_AT else 0

    @property
    def cursor(self) -> str:
        """Of a list that is longer than one answer of the admin API."""
        return self.query.get("cursor", "")


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
    waiting = _undecided(await request.ask("GET", "/approvals"))
    held = [each for each in (await request.ask("GET", "/pins"))["servers"] if each["held"]]
    now = status["started"] + status["uptime"]
    credentials = [each for each in status.get("credentials", ()) if _is_pressing(each, now)]
    needs = {"broken": broken, "waiting": waiting, "held": held, "credentials": credentials, "now": now}
    usage = await request.ask("GET", "/usage")
    return Shown("overview.html", {"nav": "/", "status": status, "figures": figures, "usage": usage, **needs})


def _is_pressing(credential: Mapping[str, Any], now: float) -> bool:
    ends = credential.get("expires") if not credential.get("renews") else None
    return bool(credential.get("failing_since")) or (ends is not None and ends - now < SOON)


def _undecided(approvals: Any) -> list[Any]:
    return [each for each in approvals["requests"] if each["state"] == "undecided"]


async def servers(request: PageRequest) -> Outcome:
    status = await request.ask("GET", "/status")
    now = status["started"] + status["uptime"]
    return Shown("servers.html", {"nav": "/servers", "servers": status["servers"], "now": now})


async def server(request: PageRequest) -> Outcome:
    found = await request.ask("GET", f"/servers/{quote(request.name, safe='')}")
    return Shown("server.html", {"nav": "/servers", "server": found})


async def add_server(request: PageRequest) -> Outcome:
    try:
        table = plain.read(request.form.get("config", "") or "{}", dict[str, Any])
    except (msgspec.DecodeError, ValueError) as error:
        raise Failed(400, f"The configuration must be a JSON object: {error}") from None
    added = await request.ask("POST", "/servers", {**table, "name": request.form.get("name", "").strip()})
    return Done(_of_server(added["id"]), f"Added {added['name']}.")


async def check_server(request: PageRequest) -> Outcome:
    checked = await request.ask("POST", f"{_of_server(request.name)}/check")
    if fault := checked.get("fault"):
        raise Failed(502, fault["error"], fault.get("hint", ""))
    return Done(_of_server(request.name), f"It is {checked['state']} and lists {len(checked.get('tools', ()))} tools.")


async def stop_server(request: PageRequest) -> Outcome:
    await request.ask("POST", f"{_of_server(request.name)}/stop")
    return Done(_of_server(request.name), "Stopped. The next call starts it.")


async def restart_server(request: PageRequest) -> Outcome:
    await request.ask("POST", f"{_of_server(request.name)}/stop")
    return await check_server(request)


async def remove_server(request: PageRequest) -> Outcome:
    await request.ask("DELETE", _of_server(request.name))
    return Done("/servers", f"Removed {request.name}.")


async def traffic(request: PageRequest) -> Outcome:
    """What comes then is streamed, by the same query."""
    wanted = {name: request.query.get(name, "") for name in Wanted.__struct_fields__}
    status = await request.ask("GET", "/status")
    values = {"wanted": wanted, "query": urlencode(wanted), "servers": [each["id"] for each in status["servers"]]}
    return Shown("traffic.html", {"nav": TRAFFIC, "kinds": KINDS, **values})


async def approvals(request: PageRequest) -> Outcome:
    found = await request.ask("GET", "/approvals")
    decided = [each for each in found["requests"] if each["state"] != "undecided"]
    now = time.time()
    values = {"waiting": _undecided(found), "decided": decided, "grants": found["grants"], "now": now}
    return Shown("approvals.html", {"nav": "/approvals", **values})


async def approval(request: PageRequest) -> Outcome:
    found = await request.ask("GET", f"/approvals/{quote(request.name, safe='')}")
    return Shown("approval.html", {"nav": "/approvals", "call": found, "now": time.time(), "titles": _LASTING})


_LASTING = {
    "once": "this one call",
    "session": "this tool, with any arguments, until that session ends",
    "hour": "this tool, with any arguments, for an hour",
    "always": "this tool, with any arguments, until you revoke it",
}


async def decide(request: PageRequest) -> Outcome:
    """Arguments that were not edited are those of the caller, secrets of theirs too, which the page does not show."""
    form = request.form
    edited = form.get("arguments", "").replace("\r\n", "\n")
    is_edited = bool(edited.strip()) and edited != form.get("shown", "").replace("\r\n", "\n")
    body = {
        "decision": form.get("decision", ""),
        "sha256": form.get("sha256", ""),
        "lasts": form.get("lasts", "once"),
        "arguments": edited if is_edited and form.get("decision") == "allow" else "",
    }
    done = await request.ask("POST", f"/approvals/{quote(request.name, safe='')}", body)
    return Done("/approvals", f"The call was {done['decided']}{' with other arguments' if body['arguments'] else ''}.")


async def revoke(request: PageRequest) -> Outcome:
    await request.ask("DELETE", f"/grants/{quote(request.name, safe='')}")
    return Done("/approvals", "Revoked: the tool asks again.")


async def tools(request: PageRequest) -> Outcome:
    """What clients get, or what the ranker finds of it."""
    listed = await request.ask("POST", "/list", {})
    found: list[Any] = listed["listing"]["tools"]
    wanted = request.query.get("q", "").strip()
    if wanted:
        shown = {each["name"]: each for each in found}
        found = [shown[name] for name in await _ranked(request, wanted) if name in shown]
    return Shown("tools.html", {"nav": "/tools", "tools": found, "wanted": wanted, "is_whole": listed["is_whole"]})


async def _ranked(request: PageRequest, words: str) -> list[str]:
    """Names as clients know them, the best first."""
    found = await _found(request, words, source="local")
    return [f"{each['server']}__{each['tool']}" for each in found.get("tools", ())]


async def _found(request: PageRequest, words: str, **more: Any) -> Mapping[str, Any]:
    """What the control tool says that finds tools and servers."""
    called = await request.ask("POST", "/call", {"tool": "mcp_provision", "arguments": {"intent": words, **more}})
    text = ""
    try:
        text = called["result"]["content"][0]["text"]
        return plain.read(text, dict[str, Any])
    except (KeyError, IndexError, TypeError):
        return {}
    except (msgspec.DecodeError, ValueError):
        return {"notes": [text]}


async def registry(request: PageRequest) -> Outcome:
    """With words, what could do it: a tool that is here, or servers with their gates and what they would run."""
    wanted, anyway = request.query.get("q", "").strip(), "anyway" in request.query
    further = {"source": "registry"} if anyway else {}
    found: Mapping[str, Any] = await _found(request, wanted, dryRun=True, **further) if wanted else {}
    return Shown("registry.html", {"nav": "/servers", "wanted": wanted, "found": found, "anyway": anyway})


async def provision(request: PageRequest) -> Outcome:
    """Add what was shown, whose form has it, with the variables that were given."""
    form = request.form
    given = {name.removeprefix("env."): value for name, value in form.items() if name.startswith("env.") and value}
    try:
        table = server_of(plain.read(form.get("match", ""), dict[str, Any]), given)
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError):
        raise Failed(400, "The form does not say which server") from None
    except Lacking as lacking:
        raise Failed(400, str(lacking), "Store it with `toolgate secrets set`, and name it as ${secret:NAME}") from None
    kept, why = await _kept(request, table)
    added = await request.ask("POST", "/servers", {**table, **kept})
    checked = await request.ask("POST", f"/servers/{quote(added['id'], safe='')}/check")
    if fault := checked.get("fault"):
        raise Failed(502, f"Added, and it did not start: {fault['error']}", fault.get("hint", ""))
    told = f"Added {added['name']}. It lists {len(checked.get('tools', ()))} tools."
    return Done(_of_server(added["id"]), f"{told}{why}")


async def _kept(request: PageRequest, table: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """By what the server starts the file of its package that is there now; where there is no such file, why."""
    if "command" not in table:
        return {}, ""
    try:
        return await request.ask("POST", "/packages", {"command": table["command"], "args": table["args"]}), ""
    except Failed as failed:
        return {}, f" Its file was not kept, so {table['command']} fetches it at each start: {failed}"


async def tool(request: PageRequest) -> Outcome:
    return Shown("tool.html", await _of_tool(request, request.query.get("name", "")))


async def _of_tool(request: PageRequest, name: str) -> dict[str, Any]:
    listed = await request.ask("POST", "/list", {})
    found = next((each for each in listed["listing"]["tools"] if each.get("name") == name), None)
    if not found:
        raise Failed(404, f"There is no tool {name}", "toolgate list shows those that clients get")
    fields = tool_fields.fields(found.get("inputSchema"))
    return {"nav": "/tools", "tool": found, "fields": fields, "form": {}, "pending": await _pending(request, name)}


async def _pending(request: PageRequest, name: str) -> Mapping[str, Any]:
    """What is said of a tool that has changed since it was trusted, and of which server it is; else nothing."""
    for server in (await request.ask("GET", "/pins"))["servers"]:
        for each in server["pending"]:
            if f"{server['id']}__{each['name']}" == name:
                return {**each, "server": server["id"]}
    return {}


async def try_tool(request: PageRequest) -> Outcome:
    about = await _of_tool(request, request.form.get("name", ""))
    try:
        arguments = tool_fields.arguments(about["fields"], request.form)
    except tool_fields.Wrong as wrong:
        return Shown("tool.html", {**about, "form": request.form, "wrong": str(wrong)}, 400)
    params = {"name": about["tool"]["name"], "arguments": arguments}
    sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    try:
        told = await request.ask("POST", "/call", {"tool": params["name"], "arguments": arguments}, LONGEST_RESULT)
    except Failed as failed:
        name = about["tool"]["name"]
        large = {
            "code": "TOO_LARGE",
            "error": str(failed),
            "hint": f"toolgate call {name} prints it",
            "outcome": "executed",
        }
        told = failed.answer or large
    return Shown("tool.html", {**about, "form": request.form, "sent": sent, "told": told})


async def pins(request: PageRequest) -> Outcome:
    found = await request.ask("GET", "/pins")
    servers = sorted(found["servers"], key=lambda each: (-each["held"], -len(each["pending"])))
    return Shown("pins.html", {"nav": "/pins", "servers": servers})


async def pins_of(request: PageRequest) -> Outcome:
    return Shown("pins_of.html", {"nav": "/pins", "tool": request.query.get("tool", ""), **await _differences(request)})


async def _differences(request: PageRequest) -> dict[str, Any]:
    """Of several tools each may be cut: it is approved where it stands alone."""
    body = {"tool": request.query.get("tool", "")}
    return {"server": await request.ask("POST", f"/pins/{quote(request.name, safe='')}/diff", body)}


async def approve_pins(request: PageRequest) -> Outcome:
    """Tools are chosen by their numbers: a browser may not give back a name as it was."""
    tools = (await _differences(request))["server"]["tools"]
    chosen = [each["name"] for at, each in enumerate(tools) if f"tool{at}" in request.form and each["is_whole"]]
    if not chosen:
        raise Failed(400, "No tool was chosen")
    body = {"tools": chosen, "seen": request.form.get("seen", "")}
    done = await request.ask("POST", f"/pins/{quote(request.name, safe='')}", body)
    return Done("/pins", f"Trusted as shown: {', '.join(done['approved'])}.")


async def access(request: PageRequest) -> Outcome:
    found = await request.ask("GET", "/access")
    servers = list(dict.fromkeys(id for client in found["clients"] for id in client["servers"]))
    return Shown("access.html", {"nav": "/access", "access": found, "servers": servers, "most_columns": MOST_COLUMNS})


async def access_of(request: PageRequest) -> Outcome:
    found = await request.ask("GET", f"/access/{quote(request.name, safe='')}")
    verdicts = {
        mcp.KINDS[kind].title: [
            (server, name, each["verdict"], each["rule"])
            for server, names in servers.items()
            for name, each in names.items()
        ]
        for kind, servers in found["verdicts"].items()
    }
    return Shown("access_of.html", {"nav": "/access", "client": found, "verdicts": verdicts})


async def rule(request: PageRequest) -> Outcome:
    """One button of many: its value says for which tool it is."""
    try:
        server, tool, verdict = msgspec.json.decode(request.form.get("set", ""), type=tuple[str, str, str])
    except (msgspec.DecodeError, ValueError):
        raise Failed(400, "The form does not say for which tool") from None
    place = f"/access/{quote(request.name, safe='')}"
    await request.ask("POST", place, {"server": server, "tool": tool, "verdict": verdict})
    said = {"allow": "is allowed", "ask": "is asked for", "off": "is off"}.get(verdict, "is as its server")
    return Done(place, f"{tool} of {server} {said} for {request.name}.")


async def board(request: PageRequest) -> Outcome:
    wanted = {"project": request.query.get("project"), "cursor": request.cursor}
    return Shown("board.html", {"nav": "/tasks", "board": await request.ask("POST", "/tasks", wanted)})


async def task(request: PageRequest) -> Outcome:
    found = await request.ask("GET", f"/tasks/{quote(request.name, safe='')}")
    texts = {name: value for name, value in found.items() if isinstance(value, str) and "\n" in value}
    tied = found.pop("dependencies")
    shown = {name: value for name, value in found.items() if value not in (None, "", [], False) and name not in texts}
    return Shown("task.html", {"nav": "/tasks", "task": shown, "texts": texts, "tied": tied})


async def sessions(request: PageRequest) -> Outcome:
    found = await request.ask("POST", "/sessions", {"cursor": request.cursor})
    return Shown("sessions.html", {"nav": "/sessions", **found})


async def session(request: PageRequest) -> Outcome:
    found = await request.ask("GET", f"/sessions/{quote(request.name, safe='')}")
    return Shown("session.html", {"nav": "/sessions", "session": found})


async def audit(request: PageRequest) -> Outcome:
    wanted = request.query.get("q", "")[:200]
    found = await request.ask("POST", "/audit", {"number": 200, "holding": wanted, "cursor": request.cursor})
    lines = found["lines"][::-1]
    return Shown("audit.html", {"nav": "/audit", "audit": found, "lines": lines, "wanted": wanted})


async def verify_audit(request: PageRequest) -> Outcome:
    return Shown("verified.html", {"nav": "/audit", "found": await request.ask("POST", "/audit/verify")})


async def configuration(request: PageRequest) -> Outcome:
    return Shown("configuration.html", await _of_configuration(request))


async def _of_configuration(request: PageRequest) -> dict[str, Any]:
    found = await request.ask("GET", "/configuration")
    return {"nav": "/configuration", "configuration": found, "text": "", "format": "toml"}


async def check_configuration(request: PageRequest) -> Outcome:
    text, format = request.form.get("text", "").replace("\r\n", "\n"), request.form.get("format", "")
    found = await request.ask("POST", "/configuration/check", {"text": text, "format": format})
    return Shown(
        "configuration.html", {**await _of_configuration(request), "text": text, "format": format, "found": found}
    )


async def edit_configuration(request: PageRequest) -> Outcome:
    """Where it cannot be edited here, it is said why."""
    values: dict[str, Any] = {"nav": "/configuration", "problem": ""}
    try:
        found = await request.ask("GET", "/configuration/file")
    except Failed as failed:
        return Shown("edit.html", {**values, "file": {}, "problem": failed.error})
    return Shown("edit.html", {**values, "file": found, "is_plain": _is_plain(found["text"])})


def _is_plain(text: str) -> bool:
    """What could not be seen, or turns the order of reading, could be saved without being meant."""
    return all(each in "\n\r\t" or visible(each) == each for each in text)


async def save_configuration(request: PageRequest) -> Outcome:
    form = request.form
    confirmed = [value for name, value in form.items() if name.startswith("confirmed")]
    edited = {"text": form.get("text", "").replace("\r\n", "\n"), "sha256": form.get("sha256", "")}
    try:
        await request.ask("PUT", "/configuration/file", {**edited, "confirmed": confirmed})
    except Failed as failed:
        told = {"problem": failed.error, "losses": failed.answer.get("unconfirmed", ())}
        file = {**edited, "path": form.get("path", "")}
        return Shown("edit.html", {"nav": "/configuration", "file": file, "is_plain": True, **told}, failed.status)
    return Done("/configuration", "Saved, and served.")


async def importing(request: PageRequest) -> Outcome:
    return Shown("import.html", await _of_import(request))


async def _of_import(request: PageRequest) -> dict[str, Any]:
    found = await request.ask("GET", "/configuration")
    known = sorted({each.name for each in dialects.DIALECTS})
    return {"nav": "/servers", "file": found["source"], "dialects": known, "sent": {}}


async def import_servers(request: PageRequest) -> Outcome:
    """What would be added, and what that would run, is shown first."""
    sent = {name: request.form.get(name, "") for name in ("text", "name", "dialect", "sha256")}
    sent["text"] = sent["text"].replace("\r\n", "\n")
    confirmed = [value for name, value in request.form.items() if name.startswith("confirmed")]
    try:
        found = await request.ask("POST", "/import", {**sent, "confirmed": confirmed})
    except Failed as failed:
        return Shown("import.html", {**await _of_import(request), "sent": sent, "problem": failed.error}, failed.status)
    if found["is_done"]:
        return Done("/servers", f"Added: {', '.join(each['name'] for each in found['plan']['servers'])}.")
    return Shown("import.html", {**await _of_import(request), "sent": sent, "plan": found["plan"]})


async def reload_configuration(request: PageRequest) -> Outcome:
    """What takes guards away is shown and confirmed first, sentence by sentence."""
    confirmed = [value for name, value in request.form.items() if name.startswith("confirmed")]
    try:
        served = await request.ask("POST", "/reload", {"confirmed": confirmed})
    except Failed as failed:
        losses = failed.answer.get("unconfirmed", ())
        if not losses:
            raise
        return Shown("configuration.html", {**await _of_configuration(request), "losses": losses}, 409)
    return Done("/configuration", f"Served: {', '.join(served['servers']) or 'no servers'}.")


def _of_server(id: str) -> str:
    return f"/servers/{quote(id, safe='')}"


# Behind the prefix of the pages, by method. `{name}` is one part of a path.
VIEWS: Mapping[str, Mapping[str, View]] = {
    "/": {"GET": overview},
    "/servers": {"GET": servers, "POST": add_server},
    "/servers/{name}": {"GET": server},
    "/servers/{name}/check": {"POST": check_server},
    "/servers/{name}/stop": {"POST": stop_server},
    "/servers/{name}/restart": {"POST": restart_server},
    "/servers/{name}/remove": {"POST": remove_server},
    "/tools": {"GET": tools},
    "/tools/tool": {"GET": tool},
    "/tools/try": {"POST": try_tool},
    TRAFFIC: {"GET": traffic},
    "/pins": {"GET": pins},
    "/pins/{name}": {"GET": pins_of, "POST": approve_pins},
    "/access": {"GET": access},
    "/access/{name}": {"GET": access_of, "POST": rule},
    "/tasks": {"GET": board},
    "/tasks/{name}": {"GET": task},
    "/sessions": {"GET": sessions},
    "/sessions/{name}": {"GET": session},
    "/audit": {"GET": audit},
    "/audit/verify": {"POST": verify_audit},
    "/configuration": {"GET": configuration},
    "/configuration/edit": {"GET": edit_configuration, "POST": save_configuration},
    "/registry": {"GET": registry, "POST": provision},
    "/import": {"GET": importing, "POST": import_servers},
    "/configuration/check": {"POST": check_configuration},
    "/configuration/reload": {"POST": reload_configuration},
    "/approvals": {"GET": approvals},
    "/approvals/{name}": {"GET": approval, "POST": decide},
    "/grants/{name}/revoke": {"POST": revoke},
}
_patterns = [(re.compile(re.sub(r"{\w+}", "([^/]+)", path)), methods) for path, methods in VIEWS.items()]


def find(method: str, path: str) -> tuple[View | None, str]:
    """What answers, and what the path names."""
    for pattern, methods in _patterns:
        if found := pattern.fullmatch(path):
            return methods.get(method), found[1] if pattern.groups else ""
    return None, ""
