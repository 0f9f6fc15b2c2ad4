"""The order of the policies: one test for each reason that `chain` gives. Move a policy, and the test of its reason
fails."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from virtualtime import FakeClock

from toolgate.auth.access import Access
from toolgate.config import Audit, Auth, Config, Guard, Limits, Server
from toolgate.config.access import KnownClient, Permissions, Rate, Rates
from toolgate.core import names
from toolgate.core.excerpts import Ends
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done, NeedInput, Outcome, Principal, ToolInfo
from toolgate.core.redaction import Redactor
from toolgate.gateway.changes import Changes
from toolgate.policy import chain
from toolgate.policy.approvals import Approvals
from toolgate.policy.base import Policy
from toolgate.policy.limits import Meters
from toolgate.policy.overflow import OverflowStore, at_once
from toolgate.policy.run import PolicyRun, compiled
from toolgate.policy.truncate import Limit
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore
from toolgate.telemetry.traffic import Wanted

_NO_CODEX: Any = None  # nothing here is for it
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

    def __init__(
        self,
        permissions: Permissions | None = None,
        *,
        is_own: bool = False,
        is_transparent: bool = False,
        **config: Any,
    ) -> None:
        self.clock = FakeClock()
        self.audit = Noted(self.clock)
        ann = KnownClient(id="ann", name="ann", permissions=permissions or Permissions(), servers="all", admin=True)
        self.config = Config(clients=(ann,), **config)
        redactor = Redactor()
        redactor.learn([SECRET])
        self.overflow = OverflowStore(self.clock, at_once(self.config))
        deps = chain.PolicyDeps(
            self.clock,
            store := MemoryStore(self.clock),
            self.overflow,
            redactor,
            Access(self.config),
            self.audit,
            Meters(self.clock),
            Approvals(store, self.clock),
        )
        self.traffic = deps.recorder.traffic
        changes = Changes(self.config, deps.access, _NO_CODEX) if is_own else None
        self.hooks = compiled(chain.build(self.config, deps, is_transparent=is_transparent, changes=changes))

    async def before(self, arguments: bytes = RIGHT, **more: Any) -> Call | Outcome:
        """Raises `Fault`, as the policies do; the round is over then."""
        run = PolicyRun(call(arguments, **more), self.hooks, self.clock)
        try:
            return await run.before()
        except Fault as fault:
            run.ended(fault)
            raise

    async def code(self, arguments: bytes = RIGHT, **more: Any) -> str:
        with pytest.raises(Fault) as raised:
            await self.before(arguments, **more)
        return raised.value.code

    async def through(self, body: bytes) -> bytes:
        run = PolicyRun(call(RIGHT), self.hooks, self.clock)
        assert isinstance(await run.before(), Call)
        outcome = run.after(Done(body))
        assert isinstance(outcome, Done)
        return bytes(outcome.body)


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


async def test_a_result_keeps_its_secrets_where_the_configuration_says_so() -> None:
    result = json.dumps({"content": [{"type": "text", "text": SECRET}]}).encode()
    assert await Judges(guard=Guard(scrub="off")).through(result) == result
    assert SECRET.encode() not in await Judges(guard=Guard(scrub="known")).through(result)


async def test_what_only_the_gateway_says_is_left_to_the_server_of_a_transparent_path_alone() -> None:
    result = json.dumps({"content": [], "_meta": {"toolgate/server": "another"}}).encode()
    assert await Judges(is_transparent=True).through(result) == result
    assert b"another" not in await Judges().through(result)


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
    await run.before()
    with pytest.raises(ZeroDivisionError):
        run.after(Done(b"{}"))
    assert told == ["ZeroDivisionError"]


# Which there are, and what each is made of.

ANN = KnownClient(id="ann", name="ann")
ASKED = msgspec.structs.replace(ANN, permissions=Permissions(everything="ask"))


class Made:
    """What a configuration's policies are made of."""

    def __init__(self, config: Config, **more: Any) -> None:
        clock = FakeClock()
        self.deps = chain.PolicyDeps(
            clock,
            store := MemoryStore(clock),
            OverflowStore(clock, at_once(config)),
            Redactor(),
            Access(config),
            Trail(None, clock, None, Redactor()),
            Meters(clock),
            Approvals(store, clock),
        )
        self.policies = chain.build(config, self.deps, **more)
        self.names = [policy.name for policy in self.policies]

    def __getitem__(self, name: str) -> Any:
        """A policy's own attributes."""
        return vars(self.policies[self.names.index(name)])


USUAL = ["quarantine", "validate", "scrub"]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (Config(), USUAL),
        (Config(validate_arguments=False), ["quarantine", "scrub"]),
        (Config(audit=Audit(enabled=True)), ["audit", *USUAL]),
        (Config(clients=(ANN,)), ["audit", "access", *USUAL]),
        (Config(clients=(ANN,), audit=Audit(enabled=False)), ["access", *USUAL]),
        (
            Config(auth=Auth(step_up={"a__*": ("write",)}), audit=Audit(enabled=False)),
            ["quarantine", "validate", "step-up", "scrub"],
        ),
        (
            Config(limits=ONCE),
            ["quarantine", "validate", "limits", "scrub"],
        ),
        (Config(limits=Limits(result_limit=1000)), ["quarantine", "validate", "truncate", "scrub"]),
        (Config(clients=(ASKED,)), ["audit", "access", "quarantine", "validate", "approval", "scrub"]),
    ],
)
async def test_a_policy_that_has_nothing_to_do_is_not_there(config: Config, names: list[str]) -> None:
    assert Made(config).names == ["traffic", *names]  # which passes all calls by while nobody watches


async def test_who_watches_sees_what_is_refused_behind_it() -> None:
    judges = Judges(Permissions(everything="off"))
    watcher = judges.traffic.watch(Wanted())
    assert await judges.code() == "ACCESS_DENIED"
    portion = watcher.portion(())
    assert portion and [(each.decision, each.code) for each in portion.calls] == [("deny", "ACCESS_DENIED")]


async def test_a_route_that_leaves_arguments_to_its_server_does_not_look_at_them() -> None:
    assert Made(Config(), is_transparent=True).names == ["traffic", "quarantine", "scrub"]


@pytest.mark.parametrize(
    ("permissions", "is_asked"),
    [
        (Permissions(), False),
        (Permissions(everything="off", tools={"a__x": "allow"}), False),
        (Permissions(servers={"a": "ask"}), True),
        (Permissions(tools={"a__x": "ask"}), True),
        (Permissions(resources={"a+x:y": "ask"}), True),
        (Permissions(prompts={"a__x": "ask"}), True),
        (Permissions(read_only="ask"), True),
    ],
)
async def test_somebody_is_asked_where_any_permission_says_so(permissions: Permissions, is_asked: bool) -> None:
    made = Made(Config(clients=(ANN, KnownClient(id="bob", name="bob", permissions=permissions))))
    assert ("approval" in made.names) is is_asked
    assert made["access"]["_is_asked_behind"] is is_asked


async def test_on_an_open_gateway_somebody_is_asked_only_about_changes_of_its_servers() -> None:
    config = Config()
    assert "approval" not in Made(config).names
    assert "approval" in Made(config, changes=Changes(config, Access(config), _NO_CODEX)).names


async def test_an_approval_is_made_of_what_is_shared_by_all_routes() -> None:
    servers = (
        Server(id="a", name="a", type="stdio", command="x"),
        Server(id="b", name="b", type="http", url="https://b"),
    )
    made = Made(Config(clients=(ASKED,), servers=servers))
    approval = made["approval"]
    assert approval["_audit"] is made.deps.audit and approval["_asking"] is made.deps.meters.asking
    assert approval["_checks"][0] == made.policies[made.names.index("validate")].check  # type: ignore[attr-defined]
    assert approval["_redactor"] is made.deps.redactor and approval["_clock"] is made.deps.clock
    assert approval["_approvals"] is made.deps.approvals
    unchecked = Made(Config(clients=(ASKED,), validate_arguments=False))["approval"]
    assert len(unchecked["_checks"]) == 1


async def test_a_server_is_another_when_it_is_reached_in_another_way_and_the_same_with_other_credentials() -> None:
    def printed(**more: Any) -> str:
        server = Server(**({"id": "a", "name": "a", "type": "stdio", "command": "x"} | more))
        return Made(Config(clients=(ASKED,), servers=(server,)))["approval"]["_prints"]["a"]

    same = [printed(), printed(name="b"), printed(env={"TOKEN": "t"})]
    others = [
        printed(command="y"),
        printed(args=("z",)),
        printed(cwd="/"),
        printed(type="http"),
        printed(url="https://a"),
    ]
    assert len(set(same)) == 1 and len({*same, *others}) == 6
    assert len(same[0]) == 64


async def test_an_approval_is_for_the_headers_that_its_server_gets_and_that_it_is_not_sent_anyhow() -> None:
    one = Server(id="one", name="one", type="http", url="http://h", forward_headers=("x-team", "x-tenant"))
    two = Server(
        id="two", name="two", type="http", url="http://h", headers={"X-Team": "ours"}, forward_headers=("x-team",)
    )
    made = Made(Config(clients=(ASKED,), servers=(one, two)))
    assert made["approval"]["_passed"] == {"one": ["x-team", "x-tenant"], "two": []}


async def test_a_server_that_judges_its_arguments_itself_is_trusted_with_them() -> None:
    servers = (
        Server(id="there", name="there", type="stdio", validate_arguments=False),
        Server(id="b", name="b", type="stdio"),
    )
    made = Made(Config(servers=servers))
    assert made["validate"]["_trusted"] == {"there"}
    assert made["validate"]["_checker"] is made.deps.checker


async def test_a_server_has_its_own_limits_where_it_says_so_and_the_common_ones_elsewhere() -> None:
    limits = Limits(result_limit=1000, result_tokens=300, head=5, tail=7)
    servers = (
        Server(id="plain", name="plain", type="stdio"),
        Server(id="large", name="large", type="stdio", result_limit=5000),
        Server(id="many", name="many", type="stdio", result_tokens=900),
    )
    made = Made(Config(limits=limits, servers=servers))
    ends = Ends(5, 7)
    assert made["truncate"]["_limit"] == Limit(1000, 300, ends)
    assert made["truncate"]["_limits"] == {"large": Limit(5000, 300, ends), "many": Limit(1000, 900, ends)}
    assert made["truncate"]["_overflow"] is made.deps.overflow


@pytest.mark.parametrize("own", [{"result_limit": 10}, {"result_tokens": 10}])
async def test_where_one_server_alone_has_a_limit_results_are_looked_at(own: Any) -> None:
    server = Server(id="a", name="a", type="stdio", **own)
    assert "truncate" in Made(Config(servers=(server,))).names
    assert "truncate" in Made(Config(limits=Limits(**own))).names


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(), 64 * 1024),
        (Limits(result_limit=30_000), 30_000),
        (Limits(result_limit=100_000), 64 * 1024),
        (Limits(result_tokens=5_000), 20_000),
        (Limits(result_tokens=50_000), 64 * 1024),
        (Limits(result_limit=19_000, result_tokens=5_000), 19_000),
        (Limits(result_limit=100_000, result_tokens=50_000), 64 * 1024),
    ],
)
async def test_as_much_is_read_at_once_of_what_was_cut_as_a_result_may_have(limits: Limits, most: int) -> None:
    config = Config(limits=limits)
    assert at_once(config) == OverflowStore(FakeClock(), at_once(config)).at_once == most
