"""Finding a server for what somebody needs, and what stands between that and installing it.

The rules this file keeps: what was looked at is what is installed, by one value that nobody changes in between; the
gateway's own variables go to servers of the bundled list only, since those names were read by people; no text of a
registry is shown that gives orders to its reader; and what strangers publish hides nothing. Who is vouched for (the
bundled list, `provision.trusted`) is searched apart and comes first. Of strangers none is less of a match because
another answers the same; where several do, the oldest come first, and of each publisher one, and a person chooses.
"""

from __future__ import annotations

import asyncio
import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from toolgate import config as configs
from toolgate.auth.safe_net import SafeNet
from toolgate.config import Config
from toolgate.config.secrets import Lacking
from toolgate.core import names
from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairThreads
from toolgate.core.fault import Fault
from toolgate.core.services import Swap
from toolgate.provision import catalogue, gates
from toolgate.provision.clients import PackageClients
from toolgate.provision.entries import Entry, Package
from toolgate.provision.gates import Gate, Given
from toolgate.provision.lists import Entries, packed
from toolgate.provision.lookups import Lookups
from toolgate.provision.packages import Facts, Packages, Unknown, chosen, wheels_of
from toolgate.provision.registries import Listing, Registries
from toolgate.search import Candidate, Comparison, Document, LongLists, Verdict
from toolgate.state.base import Store

MOST_MATCHES = 5
MOST_LOOKED_UP = 2  # packages for one answer
MOST_WAITING = 8  # searches of one principal
MOST_TOLD = 1500  # characters of the tools of one server that are searched
WITHHELD = "(its description is not shown: it gives orders to its reader)"


class Match(msgspec.Struct, frozen=True):
    """`is_match`: it is what was meant, as far as the ranker can tell. `as_good` are names of others that fit as well
    and have as much to vouch for them: a person chooses between them."""

    entry: Entry
    confidence: float
    is_match: bool
    as_good: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True):
    """`notes` say what is wrong with the lists that were searched."""

    matches: tuple[Match, ...] = ()
    notes: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """An entry with all that was found out about it; `references` are what its variables are set to."""

    match: Match
    gates: tuple[Gate, ...]
    facts: Facts | None = None
    references: Mapping[str, str] = {}

    @property
    def is_passed(self) -> bool:
        return all(gate.passed for gate in self.gates)

    @property
    def is_trusted(self) -> bool:
        return any(gate.name == "trusted" and gate.passed for gate in self.gates)


class Provisioning:
    """`environ` are the gateway's variables; `bundled` the list that needs no network. `gives_orders` says whether a
    text is addressed to a model."""

    def __init__(
        self,
        config: Config,
        store: Store,
        net: SafeNet,
        clock: Clock,
        clients: PackageClients,
        environ: Mapping[str, str],
        bundled: Callable[[], Sequence[Entry]] = catalogue.bundled,
        gives_orders: Callable[[str], bool] = lambda _text: False,
    ) -> None:
        self._config, self._clock, self._environ = config, clock, environ
        self._clients = clients
        self._bundled = bundled
        self._gives_orders = gives_orders
        self.net = net
        self.registries = Registries(config, store, net, clock)
        self.packages = Packages(net, clients.base)
        self._lookups = Lookups(lambda package: self.packages.facts(package), clock)
        self._all = LongLists()
        self._vouched = LongLists()  # the same, without what strangers publish
        self._vouched_by: Sequence[str] = ()  # the patterns that it was made by
        self._lists: dict[str, Entries] = {}  # as they are indexed
        self._own: tuple[Sequence[Entry], Entries] = ((), Entries())  # the list that needs no network
        self._turns = FairThreads(1, most=MOST_WAITING, what="searches for servers")  # of the index

    def prepared(self, config: Config) -> Swap:
        use = self.registries.prepared(config)

        def swap() -> None:
            self._config = config
            use()

        return swap

    async def close(self) -> None:
        await self._lookups.close()
        await self.registries.close()

    # Finding.

    async def find(self, intent: str, whose: str) -> Found:
        """The servers that answer an intent, the best first; none where nothing is likely to. `whose` it is: see
        `Principal.counted_as`. Raises `Fault` where too many searches of this principal wait."""
        listings = await self.registries.listings()
        matches = await self._turns.in_thread(whose, partial(self._searched, intent, listings))
        notes = tuple(f"The registry {each.url} {each.note}." for each in listings if each.note)
        found = [msgspec.structs.replace(match, entry=self._shown(match.entry)) for match in matches]
        if not any(each.is_match for each in found):
            return Found((), notes)
        return Found(tuple(found), (*notes, *_ties(found), *self._order(matches)))

    def _searched(self, intent: str, listings: Sequence[Listing]) -> list[Match]:
        """On a thread of its own: to index ten thousand servers takes seconds."""
        self._put(listings)
        vouched = self._matches(_Answers(self._vouched, self._lists, intent))
        first = [each for each in vouched if each.is_match]
        strangers = self._strangers(_Answers(self._all, self._lists, intent))[: MOST_MATCHES - len(first)]
        last = [each for each in vouched if not each.is_match][: MOST_MATCHES - len(first) - len(strangers)]
        return [*first, *strangers, *last]

    def _put(self, listings: Sequence[Listing]) -> None:
        """What is no longer listed is let go first: a list takes its memory once."""
        own, trusted = self._bundled(), self._config.provision.trusted
        if own is not self._own[0]:
            self._own = own, packed(own)
        lists = {"": self._own[1], **{each.url: each.entries for each in listings}}
        taken = {_key(each) for each in own if each.package}
        for url in [url for url, listed in self._lists.items() if lists.get(url) is not listed]:
            self._all.drop(url)
            self._vouched.drop(url)
            del self._lists[url]

        def counts(entry: Entry) -> bool:
            return entry.is_bundled or _key(entry) not in taken

        for url, listed in lists.items():
            if url not in self._lists:
                self._all.put(url, _numbered(listed, counts))
            if url not in self._lists or self._vouched_by != trusted:
                self._vouched.put(url, _numbered(listed, lambda each: self._is_vouched_for(each) and counts(each)))
        self._lists, self._vouched_by = lists, trusted

    def _is_vouched_for(self, entry: Entry) -> bool:
        """By whoever made the bundled list, or the operator; that it names a package of theirs proves nothing."""
        return entry.is_bundled or gates.is_trusted(entry, self._config.provision.trusted, ())

    def _matches(self, found: _Answers) -> list[Match]:
        return self._judged(found, found.candidates[:MOST_MATCHES], lambda document: bool(document.server))

    def _strangers(self, found: _Answers) -> list[Match]:
        """The best, and those that answer as much by age: a copy is younger than what it was copied from."""
        own = [each for each in found.candidates if not self._is_vouched_for(found.entries[each.document])]
        if not own:
            return []
        alike = {own[0], *found.as_good(own[0])}
        by_age = sorted((each for each in own if each in alike), key=lambda each: _age(found.entries[each.document]))
        publishers = set[str]()
        first: list[Candidate] = []
        for each in by_age:
            publisher = found.entries[each.document].namespace
            if publisher not in publishers:
                first.append(each)
            publishers.add(publisher)
        rest = [each for each in (*by_age, *own) if each not in first]
        return self._judged(found, [*first, *dict.fromkeys(rest)][:MOST_MATCHES], lambda _document: True)

    def _judged(
        self, found: _Answers, candidates: Sequence[Candidate], sets_aside: Callable[[Document], bool]
    ) -> list[Match]:
        """Confidence never rises down the list."""
        matches: list[Match] = []
        least: tuple[float, Verdict] = (1.0, "match")
        for each in candidates:
            least = min(least, found.judged(each), key=lambda judged: judged[0])
            alone = found.alone(each, sets_aside)
            if least[1] == alone == "none":
                continue
            others = (found.entries[other.document] for other in found.as_good(each))
            entry = found.entries[each.document]
            as_good = tuple(
                other.name for other in others if self._is_vouched_for(other) == self._is_vouched_for(entry)
            )
            matches.append(Match(entry, round(least[0], 2), "match" in (least[1], alone), as_good))
        return matches

    def _shown(self, entry: Entry) -> Entry:
        told = f"{entry.title}\n{entry.description}\n{entry.message}"
        if entry.is_bundled or not self._gives_orders(told):
            return entry
        asks_for = (*entry.asks_for, "to give orders to its reader")
        return msgspec.structs.replace(entry, description=WITHHELD, title="", message="", asks_for=asks_for)

    def _order(self, matches: Sequence[Match]) -> Sequence[str]:
        """Why a stranger who is surer comes later; without a name, since that one chose its words itself."""
        strangers = (each.confidence for each in matches if not self._is_vouched_for(each.entry))
        if not self._is_vouched_for(matches[0].entry) or max(strangers, default=0.0) <= matches[0].confidence:
            return ()
        return (
            "Servers of toolgate's own list and of provision.trusted come first, whatever others say of themselves.",
        )

    # Judging.

    async def reports(self, matches: Sequence[Match], refused: str, is_thorough: bool, whose: str) -> list[Report]:
        """Each with its gates. `refused`: why this client may not have servers installed. What is said of a package is
        looked up where that may make a difference; with `is_thorough` for the first one whatever is known of it, but
        for nobody who may not have it. Raises `Fault` where too many lookups of this principal wait."""
        found: list[Report] = []
        looked_up = 0
        for place, match in enumerate(matches):
            looks = self._may_pass(match) or (is_thorough and not place)
            if match.entry.is_bundled and not is_thorough:
                looks = False
            looks = looks and not refused and looked_up < MOST_LOOKED_UP
            looked_up += looks
            found.append(await self._report(match, refused, whose if looks else None))
        return found

    def _may_pass(self, match: Match) -> bool:
        entry = match.entry
        given = Given(match.confidence, self._config.provision.trusted, 0.0, 0.0, as_good=match.as_good)
        needed = ("active", "pinned", "plain", "confident")
        others = (gate for gate in gates.judged(entry, given) if gate.name in needed)
        return gates.is_trusted(entry, given.trusted, (entry.name,)) and all(gate.passed for gate in others)

    async def report(self, match: Match, refused: str, whose: str) -> Report:
        """By what is said of its package now. Raises as `reports` does."""
        return await self._report(match, refused, whose, is_fresh=True)

    async def _report(self, match: Match, refused: str, whose: str | None, is_fresh: bool = False) -> Report:
        """Its package is looked up for `whose` it is, if that is anybody's."""
        facts, unknown, package = None, "", match.entry.package
        if whose is not None and package and package.version:
            try:
                facts = await self._lookups.facts(package, whose, is_fresh)
            except Unknown as why:
                unknown = str(why)
        tells = not refused  # which variables the gateway has is not for everybody
        references = await self._references(match.entry) if tells else dict[str, str]()
        given = Given(
            match.confidence,
            self._config.provision.trusted,
            self._config.provision.minimum_age,
            self._clock.wall(),
            refused,
            facts,
            unknown,
            references,
            match.as_good,
        )
        return Report(match, gates.judged(match.entry, given), facts, references)

    async def _references(self, entry: Entry) -> Mapping[str, str]:
        """What the variables that an entry needs would be set to, by name."""
        if not entry.is_bundled or not entry.package:
            return {}
        needed = [each.name for each in entry.package.variables if each.required]
        return await asyncio.to_thread(self._looked_up, needed) if needed else {}

    def _looked_up(self, needed: Sequence[str]) -> Mapping[str, str]:
        sources, found = configs.sources(self._config, self._environ), dict[str, str]()
        for name in needed:
            if self._environ.get(name):
                found[name] = f"${{{name}}}"
                continue
            try:
                sources.get(name)
            except Lacking:
                continue
            found[name] = f"${{secret:{name}}}"
        return found

    # Installing.

    async def take(self, report: Report) -> str:
        """The file of what was judged: see `keep`."""
        package, facts = report.match.entry.package, report.facts
        assert package and facts
        return await self._taken(package, facts)

    async def keep(self, package: Package, whose: str) -> str:
        """Compare its file with its hash, before anything of it runs, and keep it: the hash, by which it is started.
        Raises `Unknown`, `Fault`."""
        return await self._taken(package, await self._lookups.facts(package, whose, is_fresh=True))

    async def _taken(self, package: Package, facts: Facts) -> str:
        file = facts.file
        if package.kind == "pypi":
            wheels = wheels_of(facts.files, [package.hash] if package.hash else facts.others)
            pinned = f"{package.name}=={package.version}"
            instead = f"install it with `uv tool install {pinned}`, and add a server with its program as the command"
            if not wheels:
                raise Unknown(f"{pinned} has no wheel, and nothing is built here, since that runs its code: {instead}")
            try:
                tags = await self._clients.take(package.name, package.version, [each.hash for each in wheels])
            except Fault as fault:
                said = f"{fault.message}; if it has no wheel for this machine, {instead}"
                raise Fault(fault.code, said, reach="not_sent") from None
            file = chosen(wheels, tags)
        if not file:
            raise Unknown("its registry does not say where the file is that this machine would take")
        data = await self.packages.bytes_of(package, file)
        await asyncio.to_thread(self._clients.keep, file.hash, file.name, data)
        return file.hash


class _Answers(Comparison):
    """What is found, with the entries of the candidates."""

    def __init__(self, index: LongLists, lists: Mapping[str, Entries], intent: str) -> None:
        self.entries: dict[Document, Entry] = {}

        def read(url: str, numbers: Iterable[int]) -> Mapping[int, Document]:
            found = {number: (as_document(entry), entry) for number, entry in lists[url].at(numbers).items()}
            self.entries |= dict(found.values())
            return {number: document for number, (document, _) in found.items()}

        super().__init__(index.ranking(intent, read))


def _numbered(listed: Entries, counts: Callable[[Entry], bool]) -> Iterator[tuple[int, Document, float]]:
    """For an index: of those that fit as well, the oldest are looked at first."""
    return ((at, as_document(each), _age(each)[0]) for at, each in enumerate(listed) if counts(each))


def table_of(report: Report) -> dict[str, Any]:
    """The server as a native file has it."""
    entry = report.match.entry
    if entry.package:
        command, *args = entry.package.command
        table: dict[str, Any] = {"type": "stdio", "command": command, "args": args}
        if report.references:
            table["env"] = dict(report.references)
    elif entry.remote:
        table = {"type": entry.remote.type, "url": entry.remote.url}
    else:
        table = {}
    return table | {"description": entry.description}


def name_of(entry: Entry, taken: Mapping[str, str]) -> str:
    """What its server is called where these ids are taken."""
    id = names.slug(entry.id) or "server"
    return next(each for each in (id, *(f"{id}-{number}" for number in range(2, 1000))) if each not in taken)


def command_of(entry: Entry) -> str:
    """What a person would type to start it, or to add it."""
    if entry.package:
        return shlex.join(entry.package.command)
    if entry.remote:
        table = json.dumps({"url": entry.remote.url, "type": entry.remote.type})
        return shlex.join(["toolgate", "servers", "add", names.slug(entry.id) or "server", table])
    return ""


def _ties(matches: Sequence[Match]) -> Sequence[str]:
    first = matches[0]
    if not first.as_good:
        return ()
    names = ", ".join((first.entry.name, *first.as_good[: MOST_MATCHES - 1]))
    more = len(first.as_good) - MOST_MATCHES + 1
    others = f" and {more} more" if more > 0 else ""
    return (f"{names}{others} fit equally well. A person chooses: compare who publishes them and since when.",)


def _age(entry: Entry) -> tuple[float, str]:
    """The oldest first, and last what does not say its age."""
    return entry.published or math.inf, entry.name


def _key(entry: Entry) -> tuple[str, str]:
    package: Package | None = entry.package
    return (package.kind, package.name) if package else ("", "")


def as_document(entry: Entry) -> Document:
    """What it is found by. A forge is in the name of each server that is kept there, and says nothing."""
    name = entry.name.removeprefix("io.github.").removeprefix("com.github.")
    tools = " ".join(f"{name.replace('_', ' ')}: {about}." for name, about in entry.tools.items())[:MOST_TOLD]
    return Document(
        entry.source,
        name,
        "servers",
        entry.title,
        f"{entry.description.rstrip('.')}. {tools}".strip(),
    )
