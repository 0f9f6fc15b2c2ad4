"""A call that a person is to decide on: how it is shown, what may be answered, and what becomes of other arguments.

The rules this file keeps: what is shown is exactly what would be sent, save for secrets that are known; nothing that
the caller or the server wrote can pass for a part of the question (`auth/safe_text`); who changes arguments changes
what the caller could have given, and nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.auth.safe_text import Ambiguous, Tree
from toolgate.config import masking
from toolgate.core import jsonrpc, mcp
from toolgate.core.asks import answer_value
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Ask, Call
from toolgate.core.redaction import GONE, Redactor
from toolgate.policy.approvals import Lasts, Place, is_change, key, runs_codex

MOST_SHOWN = 16_000  # characters of a question; what is longer no form shows whole
LARGEST = 64 * 1024  # bytes of arguments
KEY = "approval"  # of the question in its answers
METHOD = "elicitation/create"

_IDS = frozenset(  # headers that are the id of a request or of its trace, as long as they say no more than an id does
    {
        *("traceparent", "uber-trace-id", "sentry-trace", "x-cloud-trace-context", "b3"),
        *("x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-datadog-trace-id", "x-datadog-parent-id"),
        *("x-request-id", "request-id", "x-client-request-id", "x-correlation-id", "correlation-id"),
        *("cf-ray", "x-amz-cf-id", "x-azure-ref", "x-vercel-id", "fly-request-id"),
    }
)
_id = re.compile(r"[A-Za-z0-9._:;=/+-]{0,128}")

_TITLES: dict[Lasts | str, str] = {
    "once": "Allow this one call",
    "session": "Allow this tool, with any arguments, until this session ends",
    "hour": "Allow this tool, with any arguments, for an hour",
    "always": "Allow this tool, with any arguments, until you revoke it",
    "deny": "Deny",
}


class Unsendable(Exception):
    """What a person wrote instead of the arguments cannot be sent. `str()` says why."""


class ApprovalRequest(msgspec.Struct, frozen=True):
    """`arguments` as they are, `shown` without the secrets that are known; `beside` is what else goes to the server,
    shown likewise. `digest` is of all of it as it is, which has `size` bytes."""

    call: Call
    place: Place
    digest: str
    arguments: Tree
    shown: Tree
    beside: Tree
    size: int

    @property
    def key(self) -> str:
        """What a decision on it is bound to."""
        return key(self.place, self.digest)

    @property
    def session(self) -> str:
        return session_of(self.call)

    @property
    def named(self) -> str:
        """For a sentence that programs and people read."""
        return f"{self.call.shown} of {self.call.server}"


def of(call: Call, place: Place, redactor: Redactor, passed: Collection[str] = ()) -> ApprovalRequest:
    """`passed` are the headers of its client that its server gets. Raises `Fault` for arguments that one reader takes
    for something else than another, or that are too long."""
    more = _beside(call)
    if len(memoryview(call.arguments)) + sum(map(len, more.values())) > LARGEST:
        message = f"Invalid arguments for {call.shown}: more than {LARGEST:,} bytes cannot be approved"
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    try:
        arguments = safe_text.read(bytes(call.arguments or b"{}"))
        beside = {name: safe_text.read(raw) for name, raw in more.items()}
    except Ambiguous as why:
        message = f"Invalid arguments for {call.shown}: they cannot be shown for approval: {why}"
        raise Fault("INVALID_ARGS", message, reach="not_sent") from None
    if headers := _headers(call, passed):
        place_of_headers = "HTTP headers"
        while place_of_headers in beside:  # a caller may call anything so
            place_of_headers += "'"
        beside[place_of_headers] = headers
    given = safe_text.canonical(arguments)
    if beside:
        given += b"\0" + safe_text.canonical(beside)
    digest = hashlib.sha256(given).hexdigest()
    shown = masked(arguments, redactor)
    shown = _without_credentials(shown) if is_change(place) else shown
    for name in headers:
        headers[name] = "(not shown)" if masking.is_secret_name(name) else headers[name]
    return ApprovalRequest(call, place, digest, arguments, shown, masked(beside, redactor), len(given))


def _beside(call: Call) -> dict[str, bytes]:
    """What a caller sends to the server beside the arguments, save for what only names the call."""
    found = {name: bytes(raw) for name, raw in call.extra.items()}
    if meta := {name: raw for name, raw in call.meta.items() if name not in mcp.LABELS}:
        found["_meta"] = jsonrpc.encode(meta)
    if call.volunteered:
        found["inputResponses"] = bytes(call.volunteered)
    return found


def _headers(call: Call, passed: Collection[str]) -> dict[str, Tree]:
    """Those that go to the server as the client has sent them, save for ids of the request."""
    found = {name: value for name, value in call.passed_on.items() if name in passed}
    return {name: value for name, value in found.items() if name not in _IDS or not _id.fullmatch(value)}


def session_of(call: Call) -> str:
    """The client's session, so that it can be compared and not used; empty where it has none."""
    session = call.client.session
    return hashlib.sha256(session.encode()).hexdigest() if session else ""


def masked(tree: Tree, redactor: Redactor) -> Tree:
    """Without what is certainly a secret. What stands in the clear in a configuration is shown: whoever chose it could
    hide from a person what is decided on."""
    if isinstance(tree, str):
        return redactor.certain.text(tree)
    if isinstance(tree, dict):
        return {name: masked(each, redactor) for name, each in cast("dict[str, Tree]", tree).items()}
    return [masked(each, redactor) for each in cast("list[Tree]", tree)] if isinstance(tree, list) else tree


def _without_credentials(shown: Tree) -> Tree:
    """A server that is to be added without what goes by the name of a secret: who decides needs to know that it is
    there, and the request is kept in the store."""
    if not isinstance(shown, dict):
        return shown
    found = dict(cast("dict[str, Tree]", shown))
    for part in ("env", "headers"):
        if isinstance(table := found.get(part), dict):
            found[part] = {
                name: GONE if isinstance(each, str) and masking.is_secret_name(name) else each
                for name, each in cast("dict[str, Tree]", table).items()
            }
    return found


# The question.


def question(case: ApprovalRequest, problem: str) -> Ask | None:
    """None where it would be too long. `problem` is what was wrong with the answer before."""
    if safe_text.is_longer([case.shown, case.beside], MOST_SHOWN):
        return None
    message = text(case, problem)
    if len(message) > MOST_SHOWN:
        return None
    choices = [{"const": choice, "title": _TITLES[choice]} for choice in offered(case)]
    properties: dict[str, Any] = {"decision": {"type": "string", "title": "Decision", "oneOf": choices}}
    if case.call.kind not in mcp.BY_URI:  # what is read has no arguments
        title = "The arguments as JSON, sent as written here"
        properties["arguments"] = {"type": "string", "title": title, "default": safe_text.written(case.shown)}
    schema = {"type": "object", "properties": properties, "required": ["decision"]}
    return Ask(KEY, METHOD, Raw(jsonrpc.encode({"message": message, "requestedSchema": schema})))


def text(case: ApprovalRequest, problem: str = "") -> str:
    call = case.call
    known_as = call.shown if call.shown != call.target else ""
    lines = facts(case.place, call.via, known_as)
    before = [safe_text.plain(problem), ""] if problem else []
    first = "toolgate asks for your approval. Nothing has been sent yet."
    told = (*lines, *consequence(case.place, case.shown), *arguments(case.shown), *beside(case.beside))
    return "\n".join((*before, first, "", *told))


def facts(place: Place, via: str, known_as: str) -> Sequence[str]:
    """What is called, as far as it is not arguments."""
    found = [
        f"- Server: {safe_text.named(place.server)}",
        f"- {mcp.KINDS[place.kind].noun}: {safe_text.named(place.target)}",
    ]
    found += [f"- Known to the caller as: {safe_text.named(known_as)}"] if known_as else []
    return [*found, f"- Called through: {safe_text.named(via)}"] if via else found


def consequence(place: Place, shown: Tree) -> Sequence[str]:
    """What follows from a control tool that asks first, in words for who has never heard of MCP."""
    if runs_codex(place):
        return _OF_CODEX[place.target]
    if not is_change(place) or not isinstance(shown, dict):
        return []
    given = cast("dict[str, Tree]", shown)
    if place.target != "add_mcp_server":
        return ["- This removes the server from the gateway, for all of its clients."]
    if (url := given.get("url")) is not None:
        return [f"- This connects the gateway to: {safe_text.quoted(str(url))}", *_names(given, "headers", "Headers")]
    args = given.get("args")
    words = [given.get("command"), *(cast("list[Tree]", args) if isinstance(args, list) else [])]
    command = " ".join(safe_text.quoted(word) if isinstance(word, str) else "?" for word in words)
    return [
        "- This starts a program with all rights of the user who runs the gateway, now and at each start:",
        f"    {command}",
        *_names(given, "env", "Environment variables"),
    ]


_OF_CODEX: Mapping[str, Sequence[str]] = {
    "codex": [
        "- This runs Codex, an agent that runs commands and changes files with the rights of the user who runs the "
        "gateway, as far as the sandbox below lets it."
    ],
    "codex_list_threads": ["- This shows what the user who runs the gateway has asked Codex, and where."],
    "codex_archive_thread": ["- This archives a thread of the user who runs the gateway: Codex no longer lists it."],
}


def _names(given: Mapping[str, Tree], key: str, title: str) -> Sequence[str]:
    found = given.get(key)
    named = ", ".join(map(safe_text.named, cast("dict[str, Tree]", found))) if isinstance(found, dict) else ""
    return [f"- {title} it sets: {named}"] if named else []


def arguments(shown: Tree) -> Sequence[str]:
    """Indented, so that Markdown leaves them as they are."""
    return ["- Arguments:", "", *safe_text.laid_out(shown, "    ")] if shown else ["- Arguments: none"]


def beside(shown: Tree) -> Sequence[str]:
    """Nothing where nothing else is sent."""
    return ["- Sent with the arguments:", "", *safe_text.laid_out(shown, "    ")] if shown else []


def offered(case: ApprovalRequest) -> Sequence[str]:
    if is_change(case.place):
        return ["once", "deny"]
    return [choice for choice in _TITLES if choice != "session" or case.session]


# The answer.

LONGEST_ANSWER = 1024 * 1024  # bytes: so many characters as escapes, of 12 bytes at most, and the rest of a form
_TOO_LONG = f"they have more than {LARGEST:,} characters"


def read_answer(answer: Answer) -> tuple[str, object]:
    """What was decided (`deny` where nothing was), and what stands where the arguments were to be edited; None where
    that was left out. Raises `Unsendable` for more than a form can be answered with, before it is read."""
    if len(memoryview(answer.result or b"")) > LONGEST_ANSWER:
        raise Unsendable(_TOO_LONG)
    said = answer_value(answer)
    content = said.get("content")
    if said.get("action") != "accept" or not isinstance(content, dict):
        return "deny", None
    given = cast("dict[str, Any]", content)
    decision = given.get("decision")
    return decision if isinstance(decision, str) else "deny", given.get("arguments")


def edited(case: ApprovalRequest, given: object) -> Raw | None:
    """Other arguments; None where they are the same, or nothing was given. Raises `Unsendable`. They are not held
    against the schema here."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise Unsendable("they are not a text with JSON in it")
    if not given.strip():
        raise Unsendable("the text is empty; none at all are {}")
    tree = read_edited(given)
    if tree == case.shown:
        return None
    found = _restored(tree, case.shown, case.arguments)
    if _count(found) > _count(case.arguments):
        raise Unsendable(f"{GONE} stands for a secret and must stay where it is")
    _check_own(case.call, case.arguments, found)
    return Raw(safe_text.written(found).encode())


def read_edited(text: str) -> dict[str, Tree]:
    """Raises `Unsendable`."""
    if len(text) > LARGEST:  # before it is read: a text is one value of the answer, whatever stands in it
        raise Unsendable(_TOO_LONG)
    try:
        tree = safe_text.read(text)
    except Ambiguous as why:
        raise Unsendable(str(why)) from None
    if not isinstance(tree, dict):
        raise Unsendable("it is not a JSON object")
    return cast("dict[str, Tree]", tree)


def _count(tree: Tree) -> int:
    return safe_text.written(tree).count(safe_text.plain(GONE))


def _restored(written: Tree, shown: Tree, arguments: Tree) -> Tree:
    """What was written, with the secrets where they stood and were left."""
    if written == shown:
        return arguments
    if not (isinstance(written, dict) and isinstance(shown, dict)):
        return cast(Tree, written)
    members, before = cast("dict[str, Tree]", written), cast("dict[str, Tree]", shown)
    return {
        name: _restored(each, before[name], arguments[name]) if name in before else each
        for name, each in members.items()
    }


class _Properties(msgspec.Struct):
    properties: dict[str, Raw] = {}


def _properties(schema: bytes) -> Mapping[str, Raw]:
    try:
        return jsonrpc.read(schema, type=_Properties).properties
    except jsonrpc.UNREADABLE:
        return {}


def _check_own(call: Call, before: dict[str, Tree], after: dict[str, Tree]) -> None:
    """What an operator's overlay sends by itself, or lets no caller give, is not changed here either."""
    tool_info = call.tool_info
    if not tool_info or not tool_info.shown_schema:
        return
    visible = _properties(tool_info.shown_schema)
    for name in before.keys() | after.keys():
        is_same = name in before and name in after and before[name] == after[name]
        if not is_same and tool_info.parameters.get(name, name) not in visible:
            raise Unsendable(f"{name} cannot be given by the caller")
