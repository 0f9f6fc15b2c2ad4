"""The order of the policies: one test for each reason that `chain` gives. Move a policy, and the test of its reason
fails."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from virtualtime import FakeClock

from toolgate.auth.access import Access
from toolgate.config import Auth, Config, Guard, Limits
from toolgate.config.access import KnownClient, Permissions, Rate, Rates
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done, NeedInput, Outcome, Principal, ToolInfo
from toolgate.core.redaction import Redactor
from toolgate.gateway.changes import Changes
from toolgate.policy import chain
from toolgate.policy.base import Policy
from toolgate.policy.limits import Meters
from toolgate.policy.overflow import OverflowStore, at_once
from toolgate.policy.run import PolicyRun, compiled
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore

SECRET = "hunter2-hunter2-hunter2"
SCHEMA = b'{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}'
RIGHT, WRONG = b'{"a":"b"}', b"{}"
ONCE = Limits(rates=Rates(principal=Rate(1, 3600.0)))
FORMS = {"elicitation": {"form": {}}}


class Noted(Trail):
    """What is put into it stands in `lines`."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(None, clock, None, Redactor())
        self.lines: list[Any] = []

    def put(self, entry: Any) -> None:
        self.lines.append(entry)


class Judges:
    """The policies of a configuration, for calls of the client `ann`."""

    def __init__(self, permissions: Permissions | None = None, *, is_own: bool = False, **config: Any) -> None:
        self.clock = FakeClock()
        self.audit = Noted(self.clock)
        ann = KnownClient(id="ann", name="ann", permissions=permissions or Permissions(), servers="all", admin=True)
        self.config = Config(clients=(ann,), **config)
        redactor = Redactor()
        redactor.learn([SECRET])
        self.overflow = OverflowStore(self.clock, at_once(self.config))
        deps = chain.PolicyDeps(
            self.clock,
            MemoryStore(self.clock),
            self.overflow,
            redactor,
            Access(self.config),
            self.audit,
            Meters(self.clock),
            lambda _request: None,
        )
        self.hooks = compiled(
            chain.build(self.config, deps, changes=Changes(self.config, deps.access) if is_own else None)
        )

    async def before(self, arguments: bytes = RIGHT, **more: Any) -> Call | Outcome:
        """Raises `Fault`, as the policies do; the round is over then."""
        run = PolicyRun(call(arguments, **more), self.hooks, self.clock)
        try:
            return await run.before(_never)
        except Fault as fault:
            run.ended(fault)
            raise

    async def code(self, arguments: bytes = RIGHT, **more: Any) -> str:
        with pytest.raises(Fault) as raised:
            await self.before(arguments, **more)
        return raised.value.code

    async def through(self, body: bytes) -> bytes:
        run = PolicyRun(call(RIGHT), self.hooks, self.clock)
        assert isinstance(await run.before(_never), Call)
        outcome = run.after(Done(body))
        assert isinstance(outcome, Done)
        return bytes(outcome.body)


async def _never(_call: Call) -> Outcome:
    raise AssertionError("nothing asked")


def call(arguments: bytes, held: str = "", **more: Any) -> Call:
    principal = Principal("ann", is_admin=True, client="ann", via="key", scopes=more.pop("scopes", None))
    tool_info = ToolInfo(schema=SCHEMA, listed=b'{"name":"tool"}', held=held)
    client = Client(principal, capabilities=FORMS)
    made = Call("tools/call", "tool", client, msgspec.Raw(arguments), server="there", tool_info=tool_info)
    return msgspec.structs.replace(made, **more)


async def test_the_audit_sees_what_is_refused_behind_it() -> None:
    judges = Judges(Permissions(everything="off"))
    assert await judges.code() == "ACCESS_DENIED"
    assert [(line.decision, line.code) for line in judges.audit.lines] == [("deny", "ACCESS_DENIED")]


async def test_nobody_learns_by_wrong_arguments_of_what_they_may_not_call() -> None:
    assert await Judges(Permissions(everything="off")).code(WRONG) == "ACCESS_DENIED"


async def test_nobody_learns_of_a_quarantine_of_what_they_may_not_call() -> None:
    with pytest.raises(Fault) as raised:
        await Judges(Permissions(everything="off")).before(held="it has changed")
    assert "quarantine" not in raised.value.message


async def test_what_is_in_quarantine_says_nothing_of_its_arguments() -> None:
    with pytest.raises(Fault, match="quarantine"):
        await Judges().before(WRONG, held="it has changed")


async def test_nothing_is_charged_for_a_call_that_cannot_be_right() -> None:
    judges = Judges(limits=ONCE)
    assert await judges.code(WRONG) == "INVALID_ARGS"
    assert isinstance(await judges.before(RIGHT), Call)
    assert await judges.code(RIGHT) == "RATE_LIMITED"


async def test_nobody_is_asked_about_a_call_that_cannot_be_right() -> None:
    assert await Judges(Permissions(everything="ask")).code(WRONG) == "INVALID_ARGS"


async def test_no_scope_is_asked_for_by_a_call_that_cannot_be_right() -> None:
    judges = Judges(auth=Auth(step_up={"there__*": ("write",)}))
    assert await judges.code(WRONG, scopes=frozenset[str]()) == "INVALID_ARGS"
    assert await judges.code(RIGHT, scopes=frozenset[str]()) == "INSUFFICIENT_SCOPE"


async def test_what_a_token_may_not_do_is_charged_nowhere() -> None:
    judges = Judges(auth=Auth(step_up={"there__*": ("write",)}), limits=ONCE)
    assert await judges.code(RIGHT, scopes=frozenset[str]()) == "INSUFFICIENT_SCOPE"
    assert isinstance(await judges.before(RIGHT, scopes=frozenset({"write"})), Call)


async def test_whoever_calls_too_often_has_no_configuration_read() -> None:
    judges = Judges(is_own=True, limits=ONCE, add_servers="allow")
    added = b'{"name":"x","transport":"nonsense"}'
    own = {"server": names.OWN, "target": "add_mcp_server", "tool_info": ToolInfo()}
    assert await judges.code(added, **own) == "INVALID_ARGS"  # by what it would add
    assert await judges.code(added, **own) == "RATE_LIMITED"


async def test_nobody_is_asked_about_a_change_that_cannot_be_made() -> None:
    judges = Judges(is_own=True, add_servers="ask")
    own = {"server": names.OWN, "target": "add_mcp_server", "tool_info": ToolInfo()}
    assert await judges.code(b'{"name":"x","transport":"nonsense"}', **own) == "INVALID_ARGS"


async def test_nobody_is_asked_about_a_call_that_comes_too_often() -> None:
    judges = Judges(Permissions(everything="ask"), limits=ONCE)
    assert isinstance(await judges.before(), NeedInput)
    assert await judges.code() == "RATE_LIMITED"


async def test_what_is_cut_and_kept_has_lost_its_secrets_before() -> None:
    judges = Judges(limits=Limits(result_limit=200), guard=Guard(scrub="known"))
    text = "\n".join([f"line {number}" for number in range(50)] + [SECRET] * 50)
    shown = await judges.through(json.dumps({"content": [{"type": "text", "text": text}]}).encode())
    kept = [bytes(repr(each), "utf-8") for each in vars(judges.overflow).values()]
    assert b"mcp://results/" in shown
    assert SECRET.encode() not in shown and not any(SECRET.encode() in each for each in kept)


async def test_a_policy_that_fails_behind_its_server_is_told_to_all_that_let_the_call_go_on() -> None:
    told: list[str] = []

    class Told(Policy):
        name = "told"

        def ended(self, call: Call, ending: Outcome | BaseException, ticket: Any) -> None:
            told.append(type(ending).__name__)

    class Fails(Policy):
        name = "fails"

        def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
            raise ZeroDivisionError

    run = PolicyRun(call(RIGHT), compiled((Told(), Fails())), FakeClock())
    await run.before(_never)
    with pytest.raises(ZeroDivisionError):
        run.after(Done(b"{}"))
    assert told == ["ZeroDivisionError"]
