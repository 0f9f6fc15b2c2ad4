"""What works in this process behind the gateway's own tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from toolgate.config import Config, Server, state_folder
from toolgate.core import names
from toolgate.core.inflow import IntakeQueue
from toolgate.core.redaction import Redactor
from toolgate.gateway.installing import gives_orders
from toolgate.provision.clients import PackageClients
from toolgate.provision.provisioning import Provisioning
from toolgate.sandbox.script_tools import ScriptTools
from toolgate.sandbox.services import MakeEngine, Sandbox
from toolgate.sandbox.stored import StoredScripts
from toolgate.state.base import Store
from toolgate.upstreams.inprocess.tools import InProcessTools
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.process.boxes import PACKAGES
from toolgate.upstreams.providers.services import Providers
from toolgate.workspace.services import WorkspaceServices

LONGEST = 24 * 3600.0  # seconds of a call that has a limit of its own, or waits for a person
_HAVE_LIMITS = (names.OWN, names.SCRIPTS)  # the code that they run, Codex, and the calls that they make
OF_CODE = 0.0005  # seconds in each round of the event loop for what processes that run code write
OF_SCRIPTS = (names.SCRIPTS, "", ("tools",))  # the list of stored scripts, as a place in the catalog
MakeWorkspace: TypeAlias = Callable[[LinkDeps, Providers], WorkspaceServices]


class OwnWork(NamedTuple):
    workspace: WorkspaceServices
    sandbox: Sandbox
    providers: Providers
    scripts: ScriptTools
    provisioning: Provisioning

    def offers(self, config: Config) -> frozenset[str]:
        """What clients of this configuration have of all that a control tool may need (`Control.needs`)."""
        codex = {"codex"} if self.workspace.codex.is_offered(config.codex) else set[str]()
        return self.sandbox.offered(config) | codex

    @property
    def servers(self) -> Mapping[str, InProcessTools]:
        """The gateway's own servers, by id; that of stored scripts while there are any."""
        scripts = {names.SCRIPTS: self.scripts.as_server} if self.scripts.are_some else {}
        return {**self.workspace.internal, **scripts}


def own_work(
    config: Config,
    store: Store,
    make_workspace: MakeWorkspace,
    engines: Mapping[str, MakeEngine],
    link_deps: LinkDeps,
    redactor: Redactor,
) -> OwnWork:
    """Wired to each other. Scripts were approved for the place where the configuration lies."""
    providers = Providers(config, link_deps.clock, link_deps.outside, redactor)
    clock, results = link_deps.clock, link_deps.results
    sandbox = Sandbox(config, link_deps.supervisor, clock, IntakeQueue(OF_CODE), engines, results)
    scripts = ScriptTools(StoredScripts(store, config.source), sandbox.missing)
    folder = state_folder(config, link_deps.supervisor.environ).absolute() / PACKAGES
    clients = PackageClients(link_deps.supervisor, clock, folder)
    reach = (link_deps.outside, link_deps.clock, clients, link_deps.supervisor.environ)
    provisioning = Provisioning(config, store, *reach, gives_orders=gives_orders)
    return OwnWork(make_workspace(link_deps, providers), sandbox, providers, scripts, provisioning)


def own_server(id: str) -> Server:
    usual = Server(id=id, name=id, type="registry")
    return msgspec.structs.replace(usual, timeout=LONGEST) if id in _HAVE_LIMITS else usual
