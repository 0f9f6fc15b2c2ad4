"""What a call is for, by itself: with a catalog by script, and real surfaces, rules and plans. Conversations through a
whole gateway are in `tests/bridge`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolgate.auth.access import Access
from toolgate.auth.seal import Seal
from toolgate.catalog import overlays, tool_info
from toolgate.catalog.base import ServerList
from toolgate.catalog.views import CatalogView, Wanted
from toolgate.config import Config, Overlay
from toolgate.config.access import KnownClient, Permissions
from toolgate.core import names
from toolgate.core.concurrency import BySize
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import RpcError
from toolgate.core.model import Asker, Call, Client, Made, Principal, Resumption
from toolgate.gateway import closed
from toolgate.gateway.resolve import Resolver
from toolgate.gateway.snapshot import Route
from toolgate.policy.base import Policy
from toolgate.policy.overflow import Source
from toolgate.surfaces.aggregate import Aggregate
from toolgate.surfaces.handles import Handles

ANN = Client(Principal("ann", client="ann"), "session")
KEPT = "mcp://results/1"
PATIENCE = 7.0


def listed(*tools: str, kind: str = "tools", **members: Any) -> ServerList:
    key = "uriTemplate" if kind == "resourceTemplates" else "uri" if kind == "resources" else "name"
    return ServerList({tool: Raw(msgspec.json.encode({key: tool, "name": tool, **members})) for tool in tools}, memo={})


READS, TASKS = {"annotations": {"readOnlyHint": True}}, {"execution": {"taskSupport": "required"}}


def overlaid(server_list: ServerList, held: Mapping[str, str] | None = None, **said: Overlay) -> ServerList:
    return overlays.apply(server_list, said, held)


class Shown(Aggregate):
    """The surface `aggregate`, with two things of the gateway's own."""

    def needs(self, call: Call, view: Any) -> Iterable[Wanted]:
        return () if self._is_own(call) else super().needs(call, view)

    def enter(self, call: Call, view: Any) -> Call:
        return call.at(names.OWN, call.target) if self._is_own(call) else super().enter(call, view)

    def _is_own(self, call: Call) -> bool:
        return call.target in ("status", KEPT)


class Server:
    """What its connection is to ann: `scope` whose, `is_up` whether it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.print = ""
        self.is_up = True
        self.of_ann = ""

    def scope(self, client: Client) -> str:
        assert client == ANN
        return self.of_ann

    def live_scope(self, client: Client) -> str | None:
        return self.scope(client) if self.is_up else None


class Lists:
    """A catalog of what is `known`; `now` is what the servers would say. `looked` are the looks at them: at which
    lists, for how long, and whether what is known is good for nothing."""

    def __init__(self, known: dict[Wanted, ServerList]) -> None:
        self.lists = known
        self.now: dict[Wanted, ServerList | Fault] = {}
        self.live, self.live_or_stopped = set(known), set(known)
        self.lost: dict[Wanted, ServerList] = {}
        self.held: set[str] = set()
        self.hidden: set[str] = set()
        self.looked: list[tuple[list[Wanted], float | None, bool]] = []
        self.asked_for: list[Wanted] = []
        self.version = 1

    def known(self, server: str, kind: str, client: Client) -> ServerList | None:
        assert client == ANN
        self.asked_for.append((server, kind))
        return self.lists.get((server, kind))

    def remembered(self, client: Client) -> Callable[[str, str], ServerList | None]:
        return lambda server, kind: self.lost.get((server, kind)) or self.known(server, kind, client)

    def is_live(self, server: str, kind: str, client: Client, or_stopped: bool = False) -> bool:
        assert client == ANN
        return (server, kind) in (self.live_or_stopped if or_stopped else self.live)

    def is_held(self, server: str) -> bool:
        return server in self.held

    def hides(self, server: str) -> bool:
        return server in self.hidden

    async def judge(self, wanted: Sequence[Wanted], client: Client, rules: Any) -> bool:
        return False

    async def view(
        self,
        servers: Mapping[str, str],
        wanted: Sequence[Wanted],
        client: Client,
        patience: float | None = None,
        *,
        has_some: bool = False,
        rules: Any = None,
        anew: bool = False,
    ) -> CatalogView:
        self.looked.append((list(wanted), patience, anew))
        found = {each: self.now[each] for each in wanted if each in self.now}
        self.lists |= {each: list for each, list in found.items() if isinstance(list, ServerList)}
        self.live |= self.lists.keys() & found.keys()
        self.live_or_stopped |= self.live
        faults = {each: fault for each, fault in found.items() if isinstance(fault, Fault)}

        def server_list(server: str, kind: str) -> ServerList | None:
            return self.known(server, kind, client)

        return CatalogView(servers, server_list, faults, ()).for_whom(rules)


class Gateway:
    """Servers with the lists that are known of them: `there={"tools": listed("a")}`."""

    def __init__(
        self,
        permissions: Permissions | None = None,
        *,
        policies: tuple[Policy, ...] = (),
        reach: Any = "all",
        is_strict: bool = False,
        **servers: dict[str, ServerList],
    ) -> None:
        known = {(server, kind): each for server, lists in servers.items() for kind, each in lists.items()}
        ann = KnownClient(id="ann", name="ann", servers=reach, permissions=permissions or Permissions())
        self.access = Access(Config(clients=(ann,)) if permissions or reach != "all" else Config())
        self.rules = self.access.rules(ANN.principal)
        self.servers = {server: Server(server.upper()) for server in servers}
        self.lists = Lists(known)
        self.handles = Handles(Seal("handles"))
        self.kept: dict[tuple[str, str], Source] = {}
        self.route = Route("/mcp", Shown(), self.servers, policies, is_strict=is_strict)  # type: ignore[arg-type]
        snapshot: Any = SimpleNamespace(catalog=self.lists, list_timeout=PATIENCE)
        self.resolver = Resolver(
            self.access,
            self.handles,
            lambda who, uri: self.kept.get((who.principal.id, uri)),
            lambda: snapshot,
            BySize(1),
        )

    async def enter(self, target: str, method: str = "tools/call", **more: Any) -> Call:
        """As the gateway enters a call: by a plan, where there is one."""
        self.call = Call(method, target, ANN, **more)
        if plan := self.plan:
            self.hooks = self.route.hooks if self.call.resumption else plan.hooks
            return plan.enter(self.call)
        entered, self.hooks = await self.resolver.enter(self.call, self.route)
        return entered

    async def fault(self, target: str, method: str = "tools/call", **more: Any) -> Fault:
        with pytest.raises(Fault) as raised:
            await self.enter(target, method, **more)
        return raised.value

    @property
    def plan(self) -> Any:
        return self.route.plans.find(self.call, self.rules, self.lists.version)


def there(*tools: str, **members: Any) -> dict[str, ServerList]:
    return {"tools": listed(*tools, **members)}


def info(gateway: Gateway, tool: str, server: str = "there") -> Any:
    return tool_info.of(gateway.lists.lists[server, "tools"], tool)


# By what is known.


async def test_a_name_leads_to_its_server_and_to_what_its_tool_says_of_itself() -> None:
    gateway = Gateway(there=there("a", "b", **READS), other=there("c"))
    entered = await gateway.enter("there__b")
    assert (entered.server, entered.target) == ("there", "b")
    assert entered.tool_info == info(gateway, "b") and entered.tool_info.hints.readOnlyHint
    assert (await gateway.enter("c")).server == "other"
    assert gateway.lists.looked == []


async def test_a_name_that_is_known_is_resolved_once_while_its_server_is_up_and_its_list_is_of_now() -> None:
    gateway = Gateway(there=there("a"))
    first = await gateway.enter("there__a")
    gateway.lists.asked_for.clear()
    assert await gateway.enter("there__a") == first
    assert gateway.lists.asked_for == []
    gateway.servers["there"].is_up = False
    assert await gateway.enter("there__a") == first
    assert gateway.lists.asked_for
    gateway.servers["there"].is_up = True
    gateway.lists.version += 1
    gateway.lists.asked_for.clear()
    await gateway.enter("there__a")
    assert gateway.lists.asked_for


async def test_a_plan_has_those_policies_alone_that_have_to_do_with_its_tool_but_a_later_round_has_all() -> None:
    class Idle(Policy):
        name = "idle"

        def applies(self, call: Call) -> bool:
            return call.target == "b"

    class Busy(Policy):
        name = "busy"

    gateway = Gateway(policies=(Idle(), Busy()), there=there("a", "b"))
    await gateway.enter("there__a")
    assert [each.name for each in gateway.hooks] == ["idle", "busy"]
    await gateway.enter("there__a")
    assert [each.name for each in gateway.hooks] == ["busy"]
    await gateway.enter("there__a", resumption=Resumption(Asker("upstream", "there"), {}))
    assert [each.name for each in gateway.hooks] == ["idle", "busy"]
    await gateway.enter("there__b")
    await gateway.enter("there__b")
    assert [each.name for each in gateway.hooks] == ["idle", "busy"]


async def test_no_plan_is_kept_of_what_may_be_something_else_next_time() -> None:
    asked = Call("tools/call", "mcp_call", ANN, server=names.OWN)
    gateway = Gateway(there=there("a"), other=there("c"))
    await gateway.enter("there__a", asked=asked)
    assert gateway.plan is None  # of a control tool
    gateway.lists.live.discard(("there", "tools"))
    await gateway.enter("there__a")
    assert gateway.plan is None  # of a list that is not of now
    gateway.lists.live.add(("there", "tools"))
    gateway.servers["other"].of_ann = "ann"
    await gateway.enter("a")
    assert gateway.plan is None  # a bare name, where another client has other lists
    await gateway.enter("there__a")
    assert gateway.plan and gateway.plan.scope == ""
    gateway.servers["there"].of_ann = "ann"
    assert gateway.plan is None  # that plan was of another connection
    gateway.lists.asked_for.clear()
    await gateway.enter("there__a")
    assert gateway.lists.asked_for
    gateway.servers["other"].of_ann = gateway.servers["there"].of_ann = ""
    await gateway.enter("a")
    assert gateway.plan and gateway.plan.server == "there"


async def test_a_prompt_or_resource_has_a_plan_of_its_own_where_its_server_lists_it() -> None:
    prompts, resources = listed("a", kind="prompts"), listed("docs://a", kind="resources")
    gateway = Gateway(there={**there("a"), "prompts": prompts, "resources": resources})
    entered = await gateway.enter("there__a", "prompts/get")
    assert (entered.server, entered.target, entered.tool_info) == ("there", "a", None)
    assert gateway.plan and (await gateway.enter("there__a", "prompts/get")) == entered
    assert (await gateway.enter("there__a")).tool_info == info(gateway, "a")
    read = await gateway.enter("there+docs://a", "resources/read")
    assert (read.server, read.target) == ("there", "docs://a") and gateway.plan


async def test_a_bare_name_of_a_prompt_has_no_plan_where_each_client_may_have_other_prompts() -> None:
    lists = {"prompts": listed("p", kind="prompts")}
    gateway = Gateway(there=lists, other={"prompts": listed("q", kind="prompts")})
    assert (await gateway.enter("p", "prompts/get")).server == "there" and gateway.plan
    gateway.route.plans.forget(gateway.lists.version)
    gateway.servers["other"].of_ann = "ann"
    assert (await gateway.enter("p", "prompts/get")).server == "there" and not gateway.plan
    await gateway.enter("there__p", "prompts/get")
    assert gateway.plan


async def test_a_tool_that_is_called_unlisted_has_no_plan() -> None:
    class Open(Shown):
        def needs(self, call: Call, view: Any) -> Iterable[Wanted]:
            return ()

        def enter(self, call: Call, view: Any) -> Call:
            return call.at("there", call.target)

    gateway = Gateway(there=there("a"))
    gateway.route = Route("/servers/there", Open(), gateway.servers, ())  # type: ignore[arg-type]
    assert (await gateway.enter("b")).target == "b" and not gateway.plan
    assert (await gateway.enter("a")).target == "a" and gateway.plan


async def test_a_plan_is_of_the_rules_of_its_client() -> None:
    gateway = Gateway(Permissions(tools={"there__b": "off"}), there=there("a", "b"))
    await gateway.enter("there__a")
    assert gateway.plan
    assert gateway.route.plans.find(gateway.call, None, gateway.lists.version) is None
    gateway.lists.asked_for.clear()
    await gateway.enter("there__a")
    assert gateway.lists.asked_for == []


async def test_a_plan_of_a_connection_of_its_own_says_whose_it_is() -> None:
    gateway = Gateway(there=there("a"), other=there("c"))
    gateway.servers["there"].of_ann = "ann"
    await gateway.enter("there__a")
    assert gateway.plan.scope == "ann" and gateway.plan.tool_info == info(gateway, "a")
    assert gateway.plan.hooks == ()
    another = Call("tools/call", "there__a", Client())
    assert gateway.route.plans.find(another, gateway.rules, gateway.lists.version) is None


async def test_no_plan_is_kept_of_a_list_that_had_to_be_fetched() -> None:
    gateway = Gateway(there={})
    gateway.lists.now["there", "tools"] = listed("a")
    gateway.lists.live.add(("there", "tools"))
    await gateway.enter("there__a")
    assert gateway.plan is None
    await gateway.enter("there__a")
    assert gateway.plan


async def test_no_plan_is_kept_of_what_is_the_gateways_own_or_is_not_listed() -> None:
    gateway = Gateway(there={"resources": listed("docs://a", kind="resources")})
    assert (await gateway.enter("there+docs://b", "resources/read")).target == "docs://b"
    assert gateway.plan is None
    assert (await gateway.enter("status")).server == names.OWN
    assert gateway.plan is None


# What had to be looked for.


async def test_a_list_that_is_not_known_is_waited_for_as_long_as_it_takes() -> None:
    gateway = Gateway(there={}, other=there("a"))
    gateway.lists.now["there", "tools"] = listed("a")
    assert (await gateway.enter("there__a")).server == "there"
    assert gateway.lists.looked == [([("there", "tools")], None, False)]


async def test_for_a_bare_name_servers_are_waited_for_so_long() -> None:
    gateway = Gateway(there={}, other={})
    gateway.lists.now["other", "tools"] = listed("a")
    gateway.lists.live_or_stopped.add(("other", "tools"))
    assert (await gateway.enter("a")).server == "other"
    assert gateway.lists.looked == [([("there", "tools"), ("other", "tools")], PATIENCE, False)]


async def test_what_is_missing_in_an_old_list_is_looked_for_in_a_new_one() -> None:
    gateway = Gateway(there=there("old"))
    gateway.lists.live.clear()
    gateway.lists.now["there", "tools"] = listed("new")
    assert (await gateway.enter("there__new")).target == "new"
    assert gateway.lists.looked == [([("there", "tools")], None, True)]
    assert gateway.plan is None


async def test_what_a_client_may_not_use_leaves_its_name_to_nobody_in_a_new_list_either() -> None:
    gateway = Gateway(Permissions(tools={"there__a": "off"}), there=there("x"), other=there("y"))
    gateway.lists.live_or_stopped.clear()
    gateway.lists.now = {("there", "tools"): listed("a"), ("other", "tools"): listed("a")}
    assert (await gateway.fault("a")).code == "TOOL_NOT_FOUND"
    fetched = Gateway(Permissions(tools={"there__a": "off"}), there={}, other={})
    fetched.lists.now = gateway.lists.now
    assert (await fetched.fault("a")).code == "TOOL_NOT_FOUND"


async def test_a_new_list_suggests_no_name_that_its_client_may_not_use() -> None:
    for permissions, hint in ((None, " (did you mean there__secret?)"), (Permissions(tools={"there__s*": "off"}), "")):
        gateway = Gateway(permissions, there=there("x"), other=there("y"))
        gateway.lists.live.clear()
        gateway.lists.now["there", "tools"] = listed("secret")
        assert (await gateway.fault("there__secre")).message == f"Tool not found: there__secre{hint}"


async def test_a_bare_name_on_a_path_of_one_server_is_of_one_list_and_its_plan_is_kept() -> None:
    gateway = Gateway(there=there("a"))
    gateway.servers["there"].of_ann = "ann/"
    await gateway.enter("a")
    assert gateway.plan and gateway.plan.scope == "ann/"


def test_what_is_known_has_what_was_known_before_and_nothing_that_is_activated() -> None:
    gateway = Gateway(there=there("a"))
    gateway.lists.lost["other", "tools"] = listed("b")
    known = gateway.resolver.known(gateway.route, ANN, gateway.rules)
    assert known.remembered("other", "tools") is gateway.lists.lost["other", "tools"]
    assert (known.server_list("other", "tools"), known.activated) == (None, ())


async def test_what_is_off_in_a_new_list_is_resolved_for_the_policy_that_refuses_it() -> None:
    gateway = Gateway(Permissions(tools={"there__a": "off"}), there=there("x"))
    gateway.lists.live.clear()
    gateway.lists.now["there", "tools"] = listed("a")
    assert (await gateway.enter("there__a")).target == "a"


async def test_what_is_missing_in_a_list_of_now_is_not_there() -> None:
    gateway = Gateway(there=there("a"))
    fault = await gateway.fault("there__b")
    assert (fault.code, fault.tool) == ("TOOL_NOT_FOUND", "there__b")
    assert gateway.lists.looked == []


async def test_for_a_bare_name_that_nobody_has_stopped_servers_are_not_started() -> None:
    gateway = Gateway(there=there("a"), other=there("b"))
    gateway.lists.live.clear()
    assert (await gateway.fault("c")).code == "TOOL_NOT_FOUND"
    assert gateway.lists.looked == []
    gateway.lists.live_or_stopped.remove(("other", "tools"))
    assert (await gateway.fault("c")).code == "TOOL_NOT_FOUND"
    assert gateway.lists.looked == [([("other", "tools")], 7.0, True)]
    gateway.lists.live_or_stopped.clear()
    await gateway.fault("c")
    assert gateway.lists.looked[1:] == [([("there", "tools"), ("other", "tools")], PATIENCE, True)]


async def test_a_server_that_cannot_be_looked_at_is_the_fault() -> None:
    gateway = Gateway(there=there("old"))
    gateway.lists.live.clear()
    gateway.lists.now["there", "tools"] = Fault("SERVER_FAILED", "it does not start", reach="not_sent")
    fault = await gateway.fault("there__new")
    assert (fault.code, fault.message, fault.server, fault.tool) == ("SERVER_FAILED", "it does not start", "there", "")
    several = Gateway(there=there("a"), other=there("b"))
    several.lists.live_or_stopped.clear()
    several.lists.now["there", "tools"] = Fault("SERVER_FAILED", "it does not start", reach="not_sent")
    assert (await several.fault("c")).code == "TOOL_NOT_FOUND"


@pytest.mark.parametrize("code", ["SERVER_FAILED", "ACCESS_DENIED"])
async def test_a_fault_that_no_list_is_to_blame_for_is_not_looked_into(code: Any) -> None:
    class Refuses(Shown):
        def enter(self, call: Call, view: Any) -> Call:
            raise refusal

    for refusal in (Fault(code, "no"), Fault("TOOL_NOT_FOUND", "no", upstream=RpcError(-1, "no"))):
        gateway = Gateway(there=there("a"))
        gateway.route = Route("/mcp", Refuses(), gateway.servers)  # type: ignore[arg-type]
        gateway.lists.live.clear()
        fault = await gateway.fault("there__a")
        assert (fault.code, fault.server, fault.tool) == (refusal.code, "", "there__a")
        assert gateway.lists.looked == []


# A call that an old list would have refused.


class Picky(Policy):
    """Refuses calls of tools that do not say that they only read."""

    def refuses(self, call: Call) -> bool:
        return not (call.tool_info and call.tool_info.hints.readOnlyHint)


@pytest.mark.parametrize(
    ("known", "more", "is_looked_at"),
    [
        ({}, {}, True),
        (READS, {}, False),
        ({**READS, **TASKS}, {}, True),
        ({**READS, **TASKS}, {"task": Raw(b"{}")}, False),
        (READS, {"task": Raw(b"{}")}, True),
        ({**READS, "execution": {"taskSupport": "optional"}}, {}, False),
        ({**READS, "execution": {"taskSupport": "optional"}}, {"task": Raw(b"{}")}, False),
        ({}, {"resumption": Resumption(Asker("upstream", "there"), {})}, False),
    ],
)
async def test_what_an_old_list_refuses_is_looked_at_anew(known: Any, more: Any, is_looked_at: bool) -> None:
    gateway = Gateway(policies=(Policy(), Picky()), there=there("a", **known))
    gateway.lists.live.clear()
    gateway.lists.now["there", "tools"] = listed("a", **READS)
    entered = await gateway.enter("there__a", **more)
    assert gateway.lists.looked == ([([("there", "tools")], None, True)] if is_looked_at else [])
    assert entered.tool_info == info(gateway, "a") and gateway.plan is None


@pytest.mark.parametrize(
    ("said", "is_looked_at"),
    [("allow", False), ("ask", False), ("off", False), ("read-only", True)],
)
async def test_a_list_is_looked_at_anew_where_another_might_permit_more(said: Any, is_looked_at: bool) -> None:
    permissions = Permissions(read_only="ask") if said == "read-only" else Permissions(tools={"there__a": said})
    gateway = Gateway(permissions, there=there("a", "b"))
    gateway.lists.live.clear()
    gateway.lists.now["there", "tools"] = listed("a", "b")
    entered = await gateway.enter("there__a")
    assert (entered.server, entered.target) == ("there", "a")
    assert bool(gateway.lists.looked) is is_looked_at


async def test_what_is_off_is_not_looked_at_whatever_policies_would_say() -> None:
    gateway = Gateway(Permissions(tools={"there__a": "off"}), policies=(Picky(),), there=there("a", "b"))
    gateway.lists.live.clear()
    assert (await gateway.enter("there__a")).target == "a"
    assert gateway.lists.looked == []


async def test_a_task_of_a_tool_that_is_not_listed_is_looked_at_anew() -> None:
    class Knows(Shown):
        def enter(self, call: Call, view: Any) -> Call:
            return call.at("there", "a")

    gateway = Gateway(there=there("other"))
    gateway.route = Route("/mcp", Knows(), gateway.servers)  # type: ignore[arg-type]
    gateway.lists.live.clear()
    await gateway.enter("there__a")
    assert gateway.lists.looked == []
    await gateway.enter("there__a", task=Raw(b"{}"))
    assert gateway.lists.looked == [([("there", "tools")], None, True)]


async def test_a_server_whose_changes_are_held_back_is_looked_at_in_any_case() -> None:
    gateway = Gateway(there=there("a", **READS), other=there("c"))
    gateway.lists.held.add("there")
    await gateway.enter("there__a")
    assert gateway.lists.looked == []  # its list is of now
    gateway.lists.live.clear()
    gateway.route.plans.find(gateway.call, None, -1)
    await gateway.enter("other__c")
    assert gateway.lists.looked == []
    await gateway.enter("there__a")
    assert gateway.lists.looked == [([("there", "tools")], None, True)]


async def test_only_tools_of_servers_are_doubted() -> None:
    gateway = Gateway(policies=(Picky(),), there={"prompts": listed("p", kind="prompts")})
    gateway.lists.live.clear()
    assert (await gateway.enter("there__p", "prompts/get")).target == "p"
    assert (await gateway.enter("status")).target == "status"
    assert gateway.lists.looked == []


# What operators have changed, hidden or held back.


async def test_a_tool_that_was_renamed_is_called_by_its_servers_own_name() -> None:
    gateway = Gateway(there={"tools": overlaid(listed("a", "b"), a=Overlay(name="renamed"))})
    entered = await gateway.enter("there__renamed")
    assert (entered.target, entered.tool_info) == ("a", info(gateway, "a"))
    assert (await gateway.fault("there__a")).code == "TOOL_NOT_FOUND"


async def test_a_tool_in_quarantine_is_found_so_that_a_policy_says_why() -> None:
    gateway = Gateway(there={"tools": overlaid(listed("a", "b"), {"b": "it has changed"})})
    entered = await gateway.enter("there__b")
    assert entered.tool_info and entered.tool_info.held == "it has changed"
    fault = await gateway.fault("there__c")
    assert (fault.code, fault.tool) == ("TOOL_NOT_FOUND", "there__c")


async def test_where_tools_are_hidden_nothing_is_called_by_a_list_that_is_not_known() -> None:
    class Knows(Shown):
        def enter(self, call: Call, view: Any) -> Call:
            return call.at("there", call.target)

    gateway = Gateway(there={}, other={})
    gateway.route = Route("/mcp", Knows(), gateway.servers)  # type: ignore[arg-type]
    assert (await gateway.enter("there__a")).target == "there__a"
    gateway.lists.hidden.add("there")
    fault = await gateway.fault("there__a")
    assert (fault.code, fault.server, fault.tool) == ("SERVER_FAILED", "there", "there__a")
    assert fault.message == "The server's tools are unknown, and some may be hidden"
    gateway.lists.now["there", "tools"] = Fault("TIMEOUT", "too slow", reach="not_sent")
    assert (await gateway.fault("there__a")).code == "TIMEOUT"
    fault = await gateway.fault("x/y", "x/y")
    assert (fault.code, fault.reach) == ("ACCESS_DENIED", "not_sent")
    assert fault.message == "Access denied: the method may reach hidden items"
    assert (await gateway.enter("p", "prompts/get")).target == "p"
    gateway.lists.hidden.clear()
    assert (await gateway.enter("x/y", "x/y")).server == "there"


# What a client may not do.


async def test_what_is_off_is_resolved_for_the_policy_that_refuses_it() -> None:
    gateway = Gateway(Permissions(tools={"there__a": "off"}), there=there("a", "b"))
    entered = await gateway.enter("there__a")
    assert (entered.server, entered.target, entered.tool_info) == ("there", "a", info(gateway, "a"))
    assert (await gateway.fault("there__c")).code == "TOOL_NOT_FOUND"
    renamed = Gateway(
        Permissions(tools={"there__a": "off"}),
        there={"tools": overlaid(listed("a", "b"), a=Overlay(name="renamed"))},
    )
    assert (await renamed.enter("there__renamed")).target == "a"
    prompts = {"prompts": listed("p", "q", kind="prompts")}
    closed = Gateway(Permissions(prompts={"there__p": "off"}), there=prompts)
    assert (await closed.enter("there__p", "prompts/get")).target == "p"
    prompts["tools"] = overlaid(listed("a"), a=Overlay(name="p"))
    closed = Gateway(Permissions(prompts={"there__p": "off"}), there=prompts)
    assert (await closed.enter("there__p", "prompts/get")).target == "p"  # no tool of that name


async def test_nobody_is_told_that_they_mean_what_they_may_not_use() -> None:
    gateway = Gateway(Permissions(tools={"there__secret": "off"}), there=there("secret", "b"))
    fault = await gateway.fault("there__secreet")
    assert fault.code == "TOOL_NOT_FOUND" and "mean there__secret" not in fault.message + fault.hint
    assert "did you mean there__secret" in (await Gateway(there=there("secret")).fault("there__secreet")).message


async def test_of_a_server_that_is_out_of_reach_any_name_is_refused_alike_and_it_is_not_asked() -> None:
    gateway = Gateway(reach=("there",), there=there("a"), other=there("c"), third={})
    for name in ("other__c", "other__no_such_tool", "third__anything", "c"):
        assert gateway.access.judge(await gateway.enter(name)) == "off"
    assert gateway.lists.looked == []
    assert (await gateway.fault("no_such_tool")).code == "TOOL_NOT_FOUND"


class Counts(Policy):
    """Sees what is not found; `refusal` is what it says of it."""

    name = "counts"
    sees_misses = True

    def __init__(self) -> None:
        self.seen: list[Call] = []
        self.ends: list[Any] = []
        self.refusal: Fault | None = None

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        self.seen.append(call)
        if self.refusal:
            raise self.refusal
        return call

    def ended(self, call: Call, ending: Any, ticket: Any) -> None:
        self.ends.append(ending)


async def test_what_is_not_found_is_counted_and_may_be_refused_for_that() -> None:
    counts = Counts()
    gateway = Gateway(policies=(counts,), there=there("a"))
    fault = await gateway.fault("there__b")
    assert closed.missed(gateway.call, fault, gateway.route) is fault
    assert counts.seen == [gateway.call] and counts.ends == [fault]
    counts.refusal = Fault("RATE_LIMITED", "too many")
    assert closed.missed(gateway.call, fault, gateway.route) is counts.refusal


async def test_what_a_control_tool_does_not_find_is_counted_as_a_call_of_that() -> None:
    counts = Counts()
    gateway = Gateway(policies=(counts,), there=there("a"))
    made = Call("tools/call", "mcp_call", ANN)
    closed.missed(made, Fault("TOOL_NOT_FOUND", "Tool not found: b", tool="b"), gateway.route)
    (seen,) = counts.seen
    assert seen.target == "b" and seen.asked == made.at(names.OWN, "mcp_call")


async def test_what_fails_otherwise_was_found_and_is_counted_elsewhere() -> None:
    counts = Counts()
    gateway = Gateway(policies=(counts,), there=there("a"))
    fault = Fault("SERVER_FAILED", "gone")
    assert closed.missed(Call("tools/call", "there__a", ANN), fault, gateway.route) is fault
    assert counts.seen == []


async def test_what_is_off_and_is_not_listed_is_not_there() -> None:
    gateway = Gateway(Permissions(tools={"there__b": "off"}), there=there("a"))
    assert (await gateway.fault("there__b")).code == "TOOL_NOT_FOUND"


async def test_a_path_of_one_server_is_closed_to_who_may_not_know_of_it() -> None:
    gateway = Gateway(reach=("there",), is_strict=True, other=there("c"))
    assert (await gateway.fault("other__c")).code == "ACCESS_DENIED"


@pytest.mark.parametrize(
    ("reach", "server", "shown", "more", "place"),
    [
        ("all", "there", "a", {}, ("there", "renamed")),
        (("other",), "there", "a", {}, ("", "renamed")),
    ],
)
def test_a_refusal_has_the_name_that_was_written(
    reach: Any, server: str, shown: str, more: Any, place: tuple[str, str]
) -> None:
    gateway = Gateway(Permissions(), reach=reach, there=there("a"), other=there("b"))
    call = Call("tools/call", shown, ANN, server=server, **more)
    placed = gateway.resolver.placed(Fault("ACCESS_DENIED", "no"), call, "renamed")
    assert (placed.code, placed.server, placed.tool) == ("ACCESS_DENIED", *place)


def test_any_other_fault_has_its_true_place() -> None:
    gateway = Gateway(Permissions(), reach=("other",), there=there("a"), other=there("b"))
    call = Call("tools/call", "a", ANN, server="there")

    def place(fault: Fault, call: Call = call) -> tuple[str, str]:
        placed = gateway.resolver.placed(fault, call, "written")
        return placed.server, placed.tool

    assert place(Fault("TIMEOUT", "slow")) == ("there", "a")
    assert place(Fault("ACCESS_DENIED", "no", server="there")) == ("there", "a")
    asked = msgspec.structs.replace(call, asked=Call("tools/call", "mcp_call", ANN, server=names.OWN))
    assert place(Fault("ACCESS_DENIED", "no"), asked) == ("", "a")
    task = Call("tasks/get", "1", ANN, server="there")
    assert place(Fault("TIMEOUT", "slow"), task) == ("there", "")
    assert place(Fault("ACCESS_DENIED", "no"), task) == ("", "")
    is_open = Gateway(there=there("a"))
    placed = is_open.resolver.placed(Fault("ACCESS_DENIED", "no"), call, "written")
    assert (placed.server, placed.tool) == ("there", "a")


# What was made by a call: tasks, and what was kept of a result.


def handle(gateway: Gateway, made: Made, path: str = "/mcp") -> str:
    return gateway.handles.write("there", "task-1", made, path, ANN, "")


async def test_a_task_is_known_with_what_the_tool_that_made_it_says_now() -> None:
    gateway = Gateway(policies=(Picky(),), there=there("a"))
    entered = await gateway.enter(handle(gateway, Made("tools/call", "a", "mcp_call")), "tasks/get")
    assert (entered.server, entered.target) == ("there", "task-1")
    assert entered.about and entered.about.tool_info == info(gateway, "a")
    assert (entered.about.server, entered.about.target, entered.about.via) == ("there", "a", "mcp_call")
    assert len(gateway.hooks) == 1
    gone = await gateway.enter(handle(gateway, Made("tools/call", "gone")), "tasks/get")
    assert gone.about and (gone.about.target, gone.about.tool_info) == ("gone", None)
    prompt = await gateway.enter(handle(gateway, Made("prompts/get", "a")), "tasks/get")
    assert prompt.about and prompt.about.tool_info is None
    with pytest.raises(Fault):
        await gateway.enter(handle(gateway, Made("tools/call", "a"), "/mcp/other"), "tasks/get")


async def test_a_task_of_a_tool_that_was_hidden_since_can_only_be_cancelled() -> None:
    gateway = Gateway(there={"tools": overlaid(listed("a", "b"), a=Overlay(hidden=True))})
    id = handle(gateway, Made("tools/call", "a"))
    fault = await gateway.fault(id, "tasks/get")
    assert (fault.code, fault.reach) == ("ACCESS_DENIED", "not_sent")
    assert fault.message == "Access denied: the tool that made it may no longer be used"
    assert (await gateway.enter(id, "tasks/cancel")).target == "task-1"
    assert (await gateway.enter(handle(gateway, Made("tools/call", "b")), "tasks/get")).target == "task-1"
    assert (await gateway.enter(handle(gateway, Made("prompts/get", "a")), "tasks/get")).target == "task-1"
    del gateway.lists.lists["there", "tools"]
    assert (await gateway.enter(id, "tasks/get")).target == "task-1"


async def test_what_was_kept_of_a_result_is_judged_by_the_call_whose_result_it_was() -> None:
    gateway = Gateway(there=there("a"))
    alone = await gateway.enter(KEPT, "resources/read")
    assert (alone.server, alone.about) == (names.OWN, None)
    gateway.kept["ann", KEPT] = Source("there", Made("tools/call", "a", "mcp_call"))
    entered = await gateway.enter(KEPT, "resources/read")
    assert entered.about and (entered.about.server, entered.about.target, entered.about.via) == (
        "there",
        "a",
        "mcp_call",
    )
    assert entered.about.client == ANN and entered.about.tool_info == info(gateway, "a")
    assert (entered.server, entered.target) == (names.OWN, KEPT)
    gateway.kept["ann", "status"] = gateway.kept["ann", KEPT]
    assert (await gateway.enter("status")).about is None
    assert (await gateway.enter(f"there+{KEPT}", "resources/read")).about is None  # a server's own, by that name
