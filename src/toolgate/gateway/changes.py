"""What a tool call may change of the gateway's servers, or have Codex do, judged before a person is asked about it.

The rules this file keeps: nobody is asked for what is not theirs to have, or could not be done; and what a person is
shown is what is added, in one spelling, or what Codex is to do, with all that it may do meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolgate import config as configs
from toolgate.auth.access import WHO_ADMINISTERS, Access
from toolgate.auth.unasked import RUNS_CODEX, asks_first
from toolgate.config import Config, ConfigError
from toolgate.config.variables import has_pattern
from toolgate.core import jsonrpc, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Done, Principal
from toolgate.policy.base import Policy, Wait
from toolgate.surfaces import controls
from toolgate.surfaces.controls import base, daemon
from toolgate.workspace import codex_folder
from toolgate.workspace.codex import Caller, Codex


class Changes(Policy):
    """In front of `Approval`, on the way of the gateway's own tools."""

    name = "changes"

    def __init__(self, config: Config, access: Access, codex: Codex) -> None:
        self._config = config
        self._access = access
        self._codex = codex

    def applies(self, call: Call) -> bool:
        return call.server == names.OWN

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Done | Wait:
        if call.server != names.OWN or not asks_first(call):
            return call
        if call.target in RUNS_CODEX:
            return self._for_codex(call, waited)
        check_may_request(self._access, call.client.principal)
        verdict = self._access.judge(call)
        if verdict == "off":
            raise Fault("ACCESS_DENIED", "Access denied: `add_servers` is off", reach="not_sent")
        control = controls.CONTROLS[call.target]
        given = base.read(control, call)
        if call.target == "add_mcp_server":
            self._check_addable(given["name"], daemon.table_of_new(given))
            if given.get("dryRun"):
                return Done(jsonrpc.encode(base.say(control, daemon.planned(given, asks=verdict == "ask"))))
        else:
            base.find_server(given["name"], self._removable(call.client.principal))
        return _in_one_spelling(call, given)

    def _for_codex(self, call: Call, folder: codex_folder.Folder | None) -> Call | Wait:
        """With all that the call has left out, so that it is seen; once its folder was looked at."""
        self._codex.check_offered(call.target)
        if self._access.judge(call) == "off":
            message = "Access denied: this client may not use Codex"
            raise Fault("ACCESS_DENIED", message, reach="not_sent")
        given = base.read(controls.CONTROLS[call.target], call)
        if call.target != "codex":
            return call
        who = caller(self._config, self._access, call.client.principal)
        prompt = self._codex.prompt(given, who)
        if not folder:
            return Wait(lambda: self._codex.folder_at(prompt.cwd, who))
        arguments = Raw(jsonrpc.encode(msgspec.structs.replace(prompt, cwd=folder.cwd)))
        extra = {**call.extra, codex_folder.FOLDER: Raw(jsonrpc.encode(folder))}
        return msgspec.structs.replace(call, arguments=arguments, extra=extra)

    def recheck(self, call: Call, ticket: Any) -> None:
        self.before(call, was_passed=True)

    def _check_addable(self, name: str, table: Mapping[str, Any]) -> None:
        """By what is served now; when it is added it is held against what is written then."""
        check_no_patterns(table)
        try:
            configs.with_own(self._config, {name: table}, {})
        except ConfigError as error:
            raise Fault("INVALID_ARGS", f"The server {name} was not added: {error}", reach="not_sent") from None

    def _removable(self, principal: Principal) -> Mapping[str, str]:
        known = {server.id: server.name for server in self._config.servers}
        rules = self._access.rules(principal)
        return known if rules is None else {id: name for id, name in known.items() if rules.sees(id)}


def caller(config: Config, access: Access, principal: Principal) -> Caller:
    """Who has Codex work. Where nobody has to show who they are, what a client says of its user is no decision."""
    decides = bool(principal.client) and "client" in config.approvals.by
    return Caller(principal, access.is_here(principal), decides)


def check_may_request(access: Access, principal: Principal) -> None:
    if not access.may_request_change(principal):
        message = "Only an administrator may change the servers of this gateway"
        raise Fault("ACCESS_DENIED", message, reach="not_sent", hint=WHO_ADMINISTERS)


def check_no_patterns(table: Mapping[str, Any]) -> None:
    """Else a model could have a secret of the environment sent to a place of its choice."""
    if has_pattern(table):
        raise Fault("INVALID_ARGS", _NO_PATTERNS, reach="not_sent", hint=_WHO_WRITES_PATTERNS)


def _in_one_spelling(call: Call, given: base.Given) -> Call:
    """Objects that were written as texts as the objects that they are read as."""
    members = jsonrpc.members(call.arguments or b"{}")
    texts = [name for name, raw in members.items() if bytes(raw)[:1] == b'"']
    read = {name: given[name] for name in texts if isinstance(given.get(name), Raw)}
    if not read:
        return call
    return msgspec.structs.replace(call, arguments=Raw(jsonrpc.encode({**members, **read})))


_NO_PATTERNS = "A tool call cannot use the gateway's variables (`${`) in a server"
_WHO_WRITES_PATTERNS = (
    "write the value itself; or let the operator add the server, in the configuration or with `toolgate servers add`, "
    "where ${NAME} and ${secret:NAME} are allowed"
)
