"""Ask npm and PyPI, as they are set up here, whether entries of the bundled list are what the list says.

    python tests/interop/check_catalogue.py ID…     these entries
    python tests/interop/check_catalogue.py --all   each one: some hundred questions, one after the other

It is run by hand before a new list is committed; nothing of the packages is run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from toolgate.auth.safe_net import SafeNet
from toolgate.core.clock import SystemClock
from toolgate.provision.catalogue import bundled
from toolgate.provision.clients import PackageClients
from toolgate.provision.entries import Entry
from toolgate.provision.packages import Packages, Unknown
from toolgate.upstreams.process.supervisor import Supervisor


async def problem(entry: Entry, packages: Packages) -> str:
    """What is another than the list says; empty where nothing is."""
    assert entry.package
    try:
        facts = await packages.facts(entry.package)
    except Unknown as why:
        return str(why)
    if entry.package.hash not in (facts.hash, *facts.others):
        return f"its hash is {facts.hash}"
    return f"it was withdrawn: {facts.withdrawn}" if facts.withdrawn else ""


async def main(ids: list[str]) -> int:
    known = {entry.id: entry for entry in bundled() if entry.package}
    wanted = list(known) if ids == ["--all"] else ids
    if unknown := [id for id in wanted if id not in known]:
        print(f"not in the list: {', '.join(unknown)}", file=sys.stderr)
        return 2
    clock = SystemClock()
    supervisor, folder = Supervisor(clock, os.environ), tempfile.mkdtemp()
    packages = Packages(SafeNet(("0.0.0.0/0",)), PackageClients(supervisor, clock, Path(folder)).base)
    bad = 0
    try:
        for id in wanted:
            said = await problem(known[id], packages)
            bad += bool(said)
            print(f"{id}: {said or 'as the list says'}", flush=True)
    finally:
        await supervisor.close()
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])) if sys.argv[1:] else __doc__)
