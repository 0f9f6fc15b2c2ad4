"""Who may do what: the one decision for lists, searches, calls, subscriptions, completions and whatever steers us.

The rules this file keeps: it decides by true targets alone, a server and its own name of the thing, and knows of no
surface; what nobody has allowed is off; of two that speak of one thing alike the stricter holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from toolgate.auth import typed_values, uri_readings
from toolgate.auth.unasked import ASKS_FIRST, asks_first, unasked
from toolgate.config import Config, permission_names
from toolgate.config.access import KnownClient, Permissions, Verdict
from toolgate.core import jsonrpc, mcp, names, templates
from toolgate.core.model import Call, Hints, Principal
from toolgate.core.services import Swap
from toolgate.core.spelling import as_a_lenient_reader

OPERATOR: Final = "*"
"""The `Principal.client` of the user who started the gateway on a pipe of their own: no id, so no client can be it."""
THE_OPERATOR: Final = Principal("local", is_admin=True, client=OPERATOR)
WHO_ADMINISTERS: Final = (
    "the user who runs the gateway, with `toolgate servers add`, `toolgate servers remove` and `toolgate reload`; or a "
    "configured client that has `admin = true`, with its key"
)
HARMLESS: Final = Hints(readOnlyHint=True)

KEPT: Final = names.OWN_SCHEME + "results/"
"""What was cut of results: clients that may make the call may read on."""

_STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "off": 2}
_SILENT: Final = Hints()
_MOST_REMEMBERED = 8192  # decisions of one client; names may be anything that somebody sends
_UI = "ui://"
_LONGEST_NAME = 2048  # characters of a tool's or a prompt's; what a longer one may be read as is not looked for
_LONGEST_REMEMBERED = 512  # characters of a name; of a longer one its digest is remembered
_MOST_COMPLETED = 16 * 1024  # characters that are judged of one completion, its template and its names among them


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    return "off" if "off" in found else "ask" if "ask" in found else "allow"


class Access:
    """What every client may do by the configuration that is served now."""

    def __init__(self, config: Config) -> None:
        self.is_open: bool
        self.unasked: Mapping[str, Verdict]
        self.clients: Mapping[str, Rules]
        self._nobody = Rules(_NOBODY)
        self.prepared(config)()

    def prepared(self, config: Config) -> Swap:
        add_servers, codex = config.add_servers, config.codex.calls
        clients = {client.id: Rules(client, add_servers, codex) for client in config.clients if client.enabled}

        def swap() -> None:
            self.is_open, self.unasked, self.clients = config.is_open, unasked(add_servers, codex), clients

        return swap

    def rules(self, principal: Principal) -> Rules | None:
        """Those that hold for somebody; None: everything is allowed."""
        if self.is_open or principal.client == OPERATOR:
            return None
        return self.clients.get(principal.client, self._nobody)

    def verdict(self, principal: Principal, server: str, kind: str, name: str, hints: Hints = _SILENT) -> Verdict:
        """Whether somebody may use this, by the server's own name of it. `hints` are a tool's annotations."""
        rules = self.rules(principal)
        return "allow" if rules is None else rules.verdict(server, kind, name, hints)

    def judge(self, call: Call) -> Verdict:
        """The same for a call whose true target is known. One that came through a control tool needs that as well."""
        rules = self.rules(call.client.principal)
        if call.server == names.OWN and asks_first(call):
            return self._judge_own(call, rules)
        if rules is None:
            return "allow"
        if call.about and call.kind == "tasks" and call.method != mcp.TASK_CANCEL:
            # It was approved, if need be, when it was made.
            return "off" if self.judge(call.about) == "off" else "allow"
        found = rules.verdict(call.server, call.kind, call.target, call.tool_info.hints if call.tool_info else _SILENT)
        if call.asked:
            by, tool = names.place_of(call.via)
            via = rules.verdict(by, "tools", tool, HARMLESS)
            # Whether the script may run was asked before it ran.
            return found if call.by_script and via == "ask" else strictest((found, via))
        return rules.of_completion(call, found) if call.reference else found

    def _judge_own(self, call: Call, rules: Rules | None) -> Verdict:
        """Nobody is asked twice: an administrator who uses the admin frontend has decided."""
        found = (
            self.unasked[call.target]
            if rules is None
            else rules.verdict(names.OWN, "tools", call.target, call.tool_info.hints if call.tool_info else _SILENT)
        )
        return "allow" if found == "ask" and call.is_by_admin else found

    def has_whole(self, principal: Principal, server: str) -> bool:
        """Whether a server is somebody's to stop, and its stderr to read, where other clients' words may stand: of one
        who may use all of it unasked, or who administers the gateway."""
        rules = self.rules(principal)
        return rules is None or rules.has_whole(server) or self.may_administer(principal)

    def may_administer(self, principal: Principal) -> bool:
        """Whether somebody is an administrator: the operator, who comes over a pipe or the operator's socket, or a
        client that is configured as one. One who was let in as such may no longer be it."""
        rules = self.rules(principal)
        return principal.is_admin and (rules is None or rules.is_admin)

    def is_here(self, principal: Principal) -> bool:
        """Whether a folder that somebody names is one of this machine, and theirs to name: programs on it without a key
        or token, the operator, and administrators."""
        return principal.is_here or principal.client == OPERATOR or self.may_administer(principal)

    def may_request_change(self, principal: Principal) -> bool:
        """Whether somebody may have servers added and removed by a tool call, where `add_servers` allows that or a
        person does: administrators, and on an open gateway every program on this machine."""
        return self.may_administer(principal) or (self.is_open and principal.is_here)


class Rules:
    """What one client may do. `add_servers` and `codex` are what the configuration says of all clients."""

    def __init__(self, client: KnownClient, add_servers: Verdict = "ask", codex: Verdict = "ask") -> None:
        permissions = client.permissions
        self.is_admin = client.admin
        self._unasked = unasked(client.add_servers or add_servers, codex)
        self.surface = client.surface
        self._gate = _gate(client)
        self._everything: Verdict | None = permissions.everything
        self._otherwise: Verdict = "off" if client.servers is None else "allow"
        self.read_only: Literal["", "off", "ask"] = permissions.read_only
        self._servers = _Table({permission_names.server(name): each for name, each in permissions.servers.items()})
        self._sections = {section: _things(section, said) for section, said in permissions.things.items()}
        self._things = {name: self._sections[kind.section] for name, kind in mcp.KINDS.items()}
        self.print = repr((self._gate and sorted(self._gate), client.servers is None, permissions, self._unasked))
        self._known: dict[tuple[str, str, str | bytes], Verdict] = {}
        self._seen: dict[str, bool] = {}
        self._routes: dict[int, tuple[Mapping[str, str], Mapping[str, str]]] = {}

    def __repr__(self) -> str:
        return f"<Rules {self.print}>"

    def verdict(self, server: str, kind: str, name: str, hints: Hints = _SILENT) -> Verdict:
        known = name if len(name) <= _LONGEST_REMEMBERED else _digest(name)
        found = self._known.get((server, kind, known)) or self._remembered(known, server, kind, name, hints)
        if self.read_only and kind == "tools" and not hints.readOnlyHint:
            return strictest((found, self.read_only))
        return found

    def _remembered(self, known: str | bytes, server: str, kind: str, name: str, hints: Hints) -> Verdict:
        found = self._decided(server, kind, name, hints)
        if server != names.OWN:  # what it is, matters there
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[server, kind, known] = found
        return found

    def _decided(self, server: str, kind: str, name: str, hints: Hints) -> Verdict:
        if server == names.OWN:
            if kind == "resources" and name.startswith(KEPT):
                return "allow"  # only whose it is can read it, and `GatewayView.kept` goes by what it was cut of
            own = self._thing(server, kind, name) or self._base(server, _SILENT if name in ASKS_FIRST else hints)
            return strictest((own, self._unasked[name])) if name in ASKS_FIRST else own
        if self._gate is not None and server not in self._gate:
            return "off"
        if kind == "methods":
            return self._whole(server)
        if kind == "tasks":  # who has it was let call what made it, and is judged by that: see `judge`
            return "allow" if self.sees(server) else "off"
        return self._thing(server, kind, name) or self._base(server)

    def why(self, server: str, kind: str, name: str, hints: Hints = _SILENT) -> Why:
        """The verdict on a tool, prompt or resource, with the first of the rules that say so: what decides comes
        first."""
        verdict = self.verdict(server, kind, name, hints)
        grounds = self._grounds(server, kind, name)
        return next((each for each in grounds if each.verdict == verdict), Why(verdict, "defaults"))

    def _grounds(self, server: str, kind: str, name: str) -> Iterator[Why]:
        if self._gate is not None and server not in self._gate:
            yield Why("off", "mcp_server_access, which does not name the server")
        where, things = f"mcp_permissions.{mcp.KINDS[kind].section}", self._things[kind]
        spellings = things.spellings(server, name)
        said = things.table.rule(spellings)
        if said:
            yield Why(said[1], f"{where}: {said[0]}")
        if not things.table.exact(spellings):
            for meant, verdict in things.meanings(server, name):
                yield Why(verdict, f"{where}: {meant}, as a server may read the name")
        if not said or things.is_obscure(name):  # it is not known to be what fits it
            yield from self._base_grounds(server)
        if kind == "tools" and self.read_only:
            yield Why(self.read_only, "mcp_permissions.read_only: the tool does not say that it only reads")
        if things.is_obscure(name):
            yield Why("off", f"{where}: a server may read this as another name, of which something is said")

    def _base_grounds(self, server: str) -> Iterator[Why]:
        if of_server := self._servers.rule((server,)):
            yield Why(of_server[1], f"mcp_permissions.servers: {of_server[0]}")
        elif self._everything:
            yield Why(self._everything, "mcp_permissions.global")
        elif self._otherwise == "off":
            yield Why("off", "defaults: without mcp_server_access, what no permission names is off")
        else:
            yield Why("allow", "mcp_server_access, and no permission that says less")

    def of_completion(self, call: Call, found: Verdict) -> Verdict:
        """The verdict on a completion whose reference has the verdict `found`: a template is judged by what its
        arguments make of it, too, as far as they are known."""
        completing = _completing(call)
        made = completing.made(call.target) if completing else ()
        return strictest((found, *(self.verdict(call.server, call.kind, uri) for uri in made)))

    def completed(self, call: Call, values: Sequence[str]) -> Sequence[str]:
        """Those values of a completion that make nothing that is off, as far as they are judged: each costs what it
        makes, and there is an end to that."""
        if not (completing := _completing(call)):
            return values
        each_costs, left = len(call.target) + sum(map(len, completing.given)), _MOST_COMPLETED
        kept: list[str] = []
        for value in values:
            left -= each_costs + len(value)
            if left < 0:
                break
            made = completing.completed(call.target, value)
            left -= sum(len(each) * uri_readings.times(each) for each in made)
            if left < 0:
                break
            if not any(self.is_off(call.server, call.kind, uri) for uri in made):
                kept.append(value)
        return kept

    def _whole(self, server: str) -> Verdict:
        """What a method that MCP does not define may do: whatever its server can. It is for those who may use
        all of that; where less is said of anything there, nobody knows whether the method keeps to it."""
        base = self._base(server)
        is_narrowed = self.read_only or any(each.narrows(server) for each in self._sections.values())
        return "off" if is_narrowed else base

    def has_whole(self, server: str) -> bool:
        return self.verdict(server, "methods", "") == "allow"

    def is_off(self, server: str, kind: str, name: str) -> bool:
        """By its name alone, whatever it says of itself."""
        return self.verdict(server, kind, name, HARMLESS) == "off"

    def sees(self, server: str) -> bool:
        """Whether anything of a server may be permitted. If not, it is as if it were not configured."""
        found = self._seen.get(server)
        if found is None:
            found = self._sees(server)
            if len(self._seen) < _MOST_REMEMBERED and len(server) <= _LONGEST_REMEMBERED:  # it may be anything
                self._seen[server] = found
        return found

    def servers(self, known: Mapping[str, str]) -> Mapping[str, str]:
        """Those that it sees. `known` is remembered, since it is that of a route."""
        before = self._routes.get(id(known))
        if before is None:
            kept = {id: name for id, name in known.items() if self.sees(id)}
            if len(self._routes) >= _MOST_REMEMBERED:
                self._routes.clear()
            before = self._routes[id(known)] = (known, known if len(kept) == len(known) else kept)
        return before[1]

    def _thing(self, server: str, kind: str, name: str) -> Verdict | None:
        """What is said of the thing itself."""
        things = self._things[kind]
        if not things.table.says_anything:
            return None
        spellings, is_own = things.spellings(server, name), server == names.OWN
        found = things.table.find(spellings, is_own)
        if is_own or things.table.exact(spellings):
            return found
        return things.as_read(server, name, found, self._base(server))

    def _base(self, server: str, hints: Hints = _SILENT) -> Verdict:
        """What is said of a server, or of everything. A control tool that only tells, or calls, shows and does what is
        permitted anyhow: it is off where somebody says so, and nobody is asked about it."""
        found = self._servers.find((server,), is_own=server == names.OWN)
        if found is None:
            found = self._everything
            if server == names.OWN and found != "off" and hints.readOnlyHint:
                return "allow"
        return found or self._otherwise

    def _sees(self, server: str) -> bool:
        if server == names.OWN:
            return True
        if self._gate is not None and server not in self._gate:
            return False
        is_open = self._base(server) != "off"
        return any(each.table.opens(each.prefixes(server), is_open) for each in self._sections.values())


class Why(msgspec.Struct, frozen=True):
    """A verdict, and the rule that decides it: where it stands in the configuration, and what it says."""

    verdict: Verdict
    rule: str


def _completing(call: Call) -> templates.Completing | None:
    """The arguments of a completion that are of a URI; None of a prompt's."""
    if call.kind != "resourceTemplates":
        return None
    return templates.completing(call.extra.get("argument", jsonrpc.NOTHING), call.extra.get("context", jsonrpc.NOTHING))


def _as_lenient_readers(permissions: Mapping[str, Verdict]) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for name, verdict in permissions.items():
        loosely = as_a_lenient_reader(permission_names.named(name))
        found[loosely] = strictest((verdict, found.get(loosely, verdict)))
    return found


_NOBODY = KnownClient(id=" ", name=" ", permissions=Permissions(everything="off"))


class _Pattern(msgspec.Struct, frozen=True):
    """A name with `*` in it, taken apart there."""

    parts: tuple[str, ...]
    verdict: Verdict

    @property
    def weight(self) -> int:
        return sum(map(len, self.parts))

    def covers(self, prefixes: Iterable[str]) -> bool:
        """Whether it fits whatever has a name that begins with one of these."""
        return len(self.parts) == 2 and not self.parts[1] and any(each.startswith(self.parts[0]) for each in prefixes)

    def fits(self, name: str) -> bool:
        return names.fits(self.parts, name)


class _Table:
    """What is said of things by their names. A name in full comes before any pattern, the longest pattern before the
    others, and the strictest of those that are as long."""

    def __init__(self, verdicts: Mapping[str, Verdict]) -> None:
        self._exact: dict[str, Verdict] = {}
        self._patterns: list[_Pattern] = []
        for name, verdict in verdicts.items():
            if "*" in name:
                self._patterns.append(_Pattern(tuple(name.split("*")), verdict))
            else:
                self._exact[name] = verdict
        self._patterns.sort(key=lambda each: (each.weight, _STRICTNESS[each.verdict]), reverse=True)
        self.says_anything = bool(verdicts)

    def exact(self, spellings: Iterable[str]) -> Verdict | None:
        found: list[Verdict] = [self._exact[each] for each in spellings if each in self._exact]
        return strictest(found) if found else None

    def find(self, spellings: Sequence[str], is_own: bool = False) -> Verdict | None:
        """`is_own`: of the gateway itself, which only what names it concerns."""
        return self.exact(spellings) or next((each.verdict for each in self._fitting(spellings, is_own)), None)

    def rule(self, spellings: Sequence[str]) -> tuple[str, Verdict] | None:
        """The same with the name that it is said of."""
        if found := self.exact(spellings):
            return next(each for each in spellings if self._exact.get(each) == found), found
        return next((("*".join(each.parts), each.verdict) for each in self._fitting(spellings)), None)

    def _fitting(self, spellings: Sequence[str], is_own: bool = False) -> Iterator[_Pattern]:
        for pattern in self._patterns:
            if is_own and not pattern.parts[0].startswith(names.OWN):
                continue
            if any(map(pattern.fits, spellings)):
                yield pattern

    def narrows(self, server: str) -> bool:
        """Whether anything of a server may be less than allowed."""
        named = [name for name, verdict in self._exact.items() if verdict != "allow"]
        named += [pattern.parts[0] for pattern in self._patterns if pattern.verdict != "allow"]
        return any(_may_begin(name, prefix) for name in named for prefix in _prefixes_of_uris(server))

    def opens(self, prefixes: tuple[str, ...], otherwise: bool) -> bool:
        """Whether anything may be used whose name begins with one of these; `otherwise`: of which nothing is said."""
        if any(verdict != "off" and name.startswith(prefixes) for name, verdict in self._exact.items()):
            return True
        for pattern in self._patterns:
            if pattern.verdict != "off" and any(_may_begin(pattern.parts[0], prefix) for prefix in prefixes):
                return True
            if pattern.verdict == "off" and pattern.covers(prefixes[:2]):
                return False  # all that stands behind it is weaker
        return otherwise


class _Names:
    """What permissions say of the things of a section that are known by their names."""

    def __init__(self, said: Mapping[str, Verdict]) -> None:
        self.table = _Table({permission_names.named(name): each for name, each in said.items()})
        self._loosely = _Table(_as_lenient_readers(said))

    def spellings(self, server: str, name: str) -> Sequence[str]:
        """The names of a thing, as they are looked up."""
        return _spellings(server, name)

    def prefixes(self, server: str) -> tuple[str, ...]:
        """What the names of a server's things begin with: all of them with each of the first two, if there are two."""
        return (server + names.SEPARATOR,)

    def narrows(self, server: str) -> bool:
        """Whether anything of a server may be less than allowed."""
        return self.table.narrows(server)

    def as_read(self, server: str, name: str, found: Verdict | None, base: Verdict) -> Verdict | None:
        """The verdict on what a server may take a name for, of which itself is `found`: it may read names leniently.
        That closes something, and opens nothing."""
        if self.is_obscure(name):
            return "off" if self.table.narrows(server) else found
        loosely = self._loosely.find(_spellings(server, as_a_lenient_reader(name)))
        return strictest((found or base, loosely or "allow"))

    def meanings(self, server: str, name: str) -> Iterator[tuple[str, Verdict]]:
        """What is said of what a server may take a name for."""
        if self.is_obscure(name):
            return
        if meant := self._loosely.rule(_spellings(server, as_a_lenient_reader(name))):
            yield meant

    def is_obscure(self, name: str) -> bool:
        """Whether it may be read as any other: it is too long to be compared with them."""
        return len(name) > _LONGEST_NAME


class _Uris:
    """The same of things that are known by URIs."""

    def __init__(self, said: Mapping[str, Verdict]) -> None:
        meant = _of_uris(said, _meant)
        self.table = _Table(_of_uris(said, _said))
        self._meant = _Table(meant)
        self._meant_loosely = _Table(_as_lenient_readers(meant))
        by_values = _of_uris(said, _meant_by_values)
        self._meant_by_values = _Table(by_values)
        self._has_values = by_values != meant

    def spellings(self, server: str, uri: str) -> Sequence[str]:
        return _uris(server, uri)

    def prefixes(self, server: str) -> tuple[str, ...]:
        return _prefixes_of_uris(server)

    def narrows(self, server: str) -> bool:
        return self._meant.narrows(server)  # what is said is among what is meant

    def as_read(self, server: str, uri: str, found: Verdict | None, base: Verdict) -> Verdict | None:
        """What permissions mean may be more than they say: that closes something, and opens nothing."""
        if self.is_obscure(uri):
            return "off" if self._meant_loosely.narrows(server) else None
        forms = uri_readings.forms(uri)
        files = uri_readings.folded_files(uri, forms)
        if files is None:
            return "off" if self._meant_loosely.narrows(server) else None
        meant: list[Verdict | None] = [self._meant.find(_uris(server, form)) for form in forms]
        meant.extend(loosely for file in files if (loosely := self._meant_loosely.find(_uris(server, file))))
        meant.extend(self._meant_by_values.find(_uris(server, each)) or "allow" for each in self._values(forms))
        whole: list[Verdict] = [each or base for each in (found, *meant)]
        return strictest(whole)

    def meanings(self, server: str, uri: str) -> Iterator[tuple[str, Verdict]]:
        if self.is_obscure(uri):
            return
        forms = uri_readings.forms(uri)
        files = uri_readings.folded_files(uri, forms)
        if files is None:
            return
        found = [self._meant.rule(_uris(server, form)) for form in forms]
        found += [self._meant_loosely.rule(_uris(server, file)) for file in sorted(files)]
        found += [self._meant_by_values.rule(_uris(server, each)) for each in self._values(forms)]
        yield from filter(None, found)

    def _values(self, forms: Iterable[str]) -> Iterable[str]:
        """The forms with their values as numbers and truth values, where that says anything else."""
        read = ((typed_values.as_values(form), form) for form in forms)
        return dict.fromkeys(each for each, form in read if self._has_values or each != form)

    def is_obscure(self, uri: str) -> bool:
        return uri_readings.is_obscure(uri)


def _things(section: str, said: Mapping[str, Verdict]) -> _Names | _Uris:
    return _Uris(said) if mcp.BY_URI.issuperset(mcp.SECTIONS[section]) else _Names(said)


def _may_begin(first: str, prefix: str) -> bool:
    return first.startswith(prefix) or prefix.startswith(first)


def _gate(client: KnownClient) -> frozenset[str] | None:
    """The servers that a client may reach at all; None: any."""
    if client.servers is None or client.servers == "all":
        return None
    return frozenset() if client.servers == "none" else frozenset(map(permission_names.server, client.servers))


# Names of things, as they are written and as they are.


def _spellings(server: str, name: str) -> tuple[str, ...]:
    return server + names.SEPARATOR + name, names.join_name(server, name)


def _prefixes_of_uris(server: str) -> tuple[str, ...]:
    return server + names.SEPARATOR, names.join_uri(server, ""), names.join_uri(server, _UI)


def _uris(server: str, uri: str) -> tuple[str, ...]:
    """The names of a resource on the surface `aggregate`, and what it could be called as well."""
    return names.join_uri(server, uri), server + names.SEPARATOR + uri, names.join_uri(server, "") + uri


def _of_uris(verdicts: Mapping[str, Verdict], spell: Callable[[str], Iterable[str]]) -> Mapping[str, Verdict]:
    """By all names that stand for one that is permission_names."""
    found: dict[str, Verdict] = {}
    for name, verdict in verdicts.items():
        for each in spell(name):
            found[each] = strictest((verdict, found.get(each, verdict)))
    return found


def _said(name: str) -> Iterable[str]:
    """A name in the spelling that is looked up; a template means what it makes, too."""
    whole = "".join(permission_names.split_uri(name))
    return whole, templates.EXPRESSION.sub("*", whole)


def _meant(name: str) -> Iterable[str]:
    server, join, uri = permission_names.split_uri(name)
    for form in uri_readings.forms(uri):
        yield from _said(server + join + form)


def _meant_by_values(name: str) -> Iterable[str]:
    server, join, uri = permission_names.split_uri(name)
    for form in dict.fromkeys(map(typed_values.as_values, uri_readings.forms(uri))):
        yield from _said(server + join + form)


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
