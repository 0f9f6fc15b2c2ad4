"""What `mcp_provision` says of servers that are not there yet, and how one that passed every gate comes to be.

The rules this file keeps: nothing is installed but where the operator said so (`provision.auto`), this client may have
servers added, and every gate is passed by what its package's own registry says now; it is added the way of every other
server; the operator's word and the client's rights hold at that moment; and one that does not start is taken out again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from toolgate.catalog import poisoning
from toolgate.config import Config
from toolgate.config.provision import Provision
from toolgate.core import jsonrpc, names
from toolgate.core.concurrency import Shared
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.provision import provisioning
from toolgate.provision.entries import Entry, Package, package_of
from toolgate.provision.gates import Gate
from toolgate.provision.packages import Unknown
from toolgate.provision.provisioning import Match, Provisioning, Report
from toolgate.state.audit import Trail

log = logging.getLogger(__name__)

AT_ONCE = 2  # installations
MOST_WAITING = 8  # of one principal


class Wanted(msgspec.Struct, frozen=True):
    """`judges`: whether the gates are wanted too. `is_dry`: nothing is installed, and all is looked up."""

    intent: str
    judges: bool = False
    is_dry: bool = False


class Means(msgspec.Struct, frozen=True):
    """What one caller works with. `config` is what is served now, `refused` says why the caller may not have
    servers installed now. `add` takes a name, a table, what raises where it is not to be added after all, and what is
    told when it is, and gives the id; `remove` what raises where it is not to be removed; `tools` starts a server and
    gives the names of its tools. All raise `Fault`."""

    config: Callable[[], Config]
    principal: Principal
    refused: Callable[[], str]
    add: Callable[[str, Mapping[str, Any], Callable[[], None], Callable[[], None]], Awaitable[str]]
    remove: Callable[[str, Callable[[], None]], Awaitable[None]]
    tools: Callable[[str], Awaitable[Sequence[str]]]


class Installing:
    def __init__(self, provisioning: Provisioning, audit: Trail) -> None:
        self._provisioning = provisioning
        self._audit = audit
        self._turns = Shared(AT_ONCE, most=MOST_WAITING, what="installations of servers")

    async def answer(self, wanted: Wanted, means: Means) -> Mapping[str, Any]:
        """What `mcp_provision` answers where no tool here does. Raises `Fault`."""
        whose, config = means.principal.counted_as, means.config()
        found = await self._provisioning.find(wanted.intent, whose)
        notes = {"notes": found.notes} if found.notes else {}
        if not found.matches:
            return {"source": "none", "matches": [], **notes}
        if not wanted.judges and not wanted.is_dry:
            return {"source": "registry", "matches": [_told(match) for match in found.matches], **notes}
        reports = await self._provisioning.reports(found.matches, means.refused(), wanted.is_dry, whose)
        said: dict[str, Any] = {
            "source": "registry",
            "matches": [_judged(report, _taken(config)) for report in reports],
            **notes,
        }
        best = reports[0]
        if wanted.is_dry:
            return {**said, "dryRun": True, "provisioned": False}
        if not best.is_passed:
            return {**said, "hint": _next(best)}
        if not config.provision.auto:
            return {**said, "hint": _OFF}
        await self._turns.turn(whose)
        try:
            return {**said, **await self._installed(best.match, means, config.provision)}
        finally:
            self._turns.give_back(whose)

    async def keep(self, command: Sequence[str], principal: Principal) -> str:
        """Keep the file of the package that a command starts: the hash, by which it is started then. Raises `Fault`."""
        package, whose = package_of(command), principal.counted_as
        if not package:
            raise Fault("INVALID_ARGS", "This is no `npx -y NAME@VERSION` or `uvx NAME==VERSION`", reach="not_sent")
        await self._turns.turn(whose)
        try:
            return await self._provisioning.keep(package, whose)
        except Unknown as why:
            raise Fault("SERVER_FAILED", str(why), reach="not_sent") from None
        finally:
            self._turns.give_back(whose)

    async def _installed(self, match: Match, means: Means, provision: Provision) -> Mapping[str, Any]:
        """`provision` is what the operator had said when it was asked for."""

        def check() -> None:
            why = means.refused() or ("" if means.config().provision == provision else _CHANGED)
            if why:
                raise Fault("ACCESS_DENIED", f"Nothing was installed: {why}", reach="not_sent")

        package = match.entry.package
        assert package
        check()  # it has waited for its turn
        if already := _already(means.config(), package):
            return {
                "provisioned": False,
                "server": already,
                "hint": f"{already} runs this package already: call its tools",
            }
        report = await self._provisioning.report(match, means.refused(), means.principal.counted_as)
        if not report.is_passed or not report.facts:
            return {"provisioned": False, "gates": told_gates(report.gates), "hint": _next(report)}
        try:
            hash = await self._provisioning.take(report)
        except (Unknown, Fault) as error:
            why = error.message if isinstance(error, Fault) else str(error)
            failed = Gate("hashed", False, why, "do not install it: the package may have been exchanged")
            gates = tuple(failed if gate.name == "hashed" else gate for gate in report.gates)
            return {"provisioned": False, "gates": told_gates(gates), "hint": f"hashed: {why}"}
        name = provisioning.name_of(match.entry, _taken(means.config()))
        how = {"package_hash": hash, "pinning": "quarantine", "by_operator": bool(report.references)}
        table = {**provisioning.table_of(report), **how}
        about = {"name": name, "package": " ".join(package.command), "package_hash": hash}
        whence = {"source": match.entry.source or "bundled", "gates": [gate.name for gate in report.gates]}
        is_added = False

        def added() -> None:
            nonlocal is_added
            is_added = True
            self._audit.note_change("servers.provision", means.principal, **about, **whence)

        def check_added() -> None:
            if not is_added:
                raise Fault("INVALID_STATE", f"{name} was not installed", reach="not_sent")

        try:
            await means.add(name, table, check, added)
            return {"provisioned": True, "server": name, "tools": list(await means.tools(names.slug(name)))}
        except Fault as fault:
            if not is_added:
                raise
            log.warning("the server %s was installed and did not start; it is removed again: %s", name, fault.message)
            await means.remove(name, check_added)
            hint = fault.hint or "see the log of the gateway"
            return {"provisioned": False, "error": fault.message, "hint": hint}
        except asyncio.CancelledError:
            with contextlib.suppress(Fault):  # it was not installed, and who is served by this name is another
                await means.remove(name, check_added)  # behind what adds it, which goes on to its end
                log.warning("the server %s was installed, had not started when its client left, and was removed", name)
            raise


def gives_orders(text: str) -> bool:
    """Whether a text speaks to the model that reads it rather than to its user."""
    return bool(poisoning.of(msgspec.Raw(jsonrpc.encode({"name": "server", "description": text}))))


def _told(match: Match) -> dict[str, Any]:
    entry = match.entry
    return {
        "name": entry.name,
        "description": entry.description,
        "confidence": match.confidence,
        "installCommand": provisioning.command_of(entry),
        **({"status": entry.status, "message": entry.message} if entry.status != "active" else {}),
    }


def _judged(report: Report, taken: Mapping[str, str]) -> dict[str, Any]:
    entry = report.match.entry
    return {
        **_told(report.match),
        "trusted": report.is_trusted,
        "autoProvisionable": report.is_passed,
        "gates": told_gates(report.gates),
        "source": entry.source or "bundled",
        "server": {"name": provisioning.name_of(entry, taken), **provisioning.table_of(report)},
        **_needs(entry),
    }


def _needs(entry: Entry) -> dict[str, Any]:
    variables = entry.package.variables if entry.package else ()
    needed = {each.name: each.description for each in variables if each.required}
    return {"needs": needed} if needed else {}


def told_gates(gates: Sequence[Gate]) -> list[dict[str, Any]]:
    """As they are told to clients."""
    return [
        {"gate": gate.name, "passed": gate.passed, "why": gate.why} | ({} if gate.passed else {"fix": gate.fix})
        for gate in gates
    ]


def _next(report: Report) -> str:
    """What its reader can do about the gates that are not passed."""
    failed = [gate for gate in report.gates if not gate.passed]
    return "; ".join(f"{gate.name}: {gate.why}" + (f" ({gate.fix})" if gate.fix else "") for gate in failed)


_OFF = (
    "provision.auto is off, so nothing was installed. A person can install it with `toolgate provision`; "
    "or call add_mcp_server with `server`, which asks a person"
)


_CHANGED = "`provision` was changed meanwhile; make the same call again"


def _taken(config: Config) -> Mapping[str, str]:
    """Names by id."""
    return {server.id: server.name for server in config.servers}


def _already(config: Config, package: Package) -> str:
    """The name of a server that starts this package, whichever version."""
    starts = tuple(f"{package.name}{sign}" for sign in ("@", "=="))
    for server in config.servers:
        if any(each == package.name or each.startswith(starts) for each in server.args):
            return server.name
    return ""
