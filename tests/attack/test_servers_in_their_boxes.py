"""Servers that turn hostile in the box that the configuration has put them into.

In the short form one attempt of each family is made; `make attack` makes all, as root and as an ordinary user.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attack.sandboxes import box_attempts, trying
from attack.test_python_that_escapes import first_of_each
from processes.ground import CHILDREN, alive, child, failure, gateway, real, settings, until

from toolgate.upstreams.process import confinement, programs

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

KIND = "server by its configuration"


def test_there_are_enough_attempts() -> None:
    assert sum(len(each) for each in box_attempts.ATTEMPTS.values()) >= 40
    assert len(box_attempts.attempts()) >= 110


@real
async def test_one_attempt_of_each_family_in_a_box_of_the_configuration(tmp_path: Path) -> None:
    assert await trying.try_boxed(tmp_path, first_of_each(box_attempts.attempts())) == {}


@pytest.mark.attack
@pytest.mark.timeout(trying.WHILE)
def test_no_server_leaves_its_box(tmp_path: Path, counted: Callable[[str], None]) -> None:
    trying.none_escapes(KIND, tmp_path, counted)


@pytest.mark.attack
@pytest.mark.timeout(trying.WHILE)
@trying.as_another
def test_no_server_leaves_its_box_as_an_ordinary_user(counted: Callable[[str], None]) -> None:
    trying.none_escapes(KIND, None, counted)


BESIDE = (".env", ".git/config", ".ssh/id_rsa", "others/notes", "toolgate.toml")
READS_BESIDE = """
import os
for name in {names!r}:
    try: print(open(os.path.join({folder!r}, name)).read())
    except OSError: pass
"""


@pytest.mark.parametrize(
    ("program", "files"),
    [
        ("bin/tool", ()),
        ("sbin/tool", ("lib/tool.so",)),
        ("tools/tool", ("package.json",)),
        ("server.py", ("package.json", "package-lock.json")),
        ("bin/tool", ("pyvenv.cfg", "lib/python3.13/os.py")),
        ("bin/tool", ("lib/node_modules/npm/package.json",)),
        ("node_modules/evil/cli.js", ("package.json",)),
    ],
)
def test_a_strict_box_shows_nothing_of_what_lies_around_a_program(
    tmp_path: Path, program: str, files: tuple[str, ...]
) -> None:
    """A project, a folder of projects, or the home of a user who is not the gateway's."""
    doing = child("doing")

    @real
    async def tries() -> None:
        for name in (program, *files, *BESIDE):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("canary" if name in BESIDE else "")
        command = tmp_path / program
        command.write_text(f"#!/bin/sh\nexec {' '.join((doing['command'], *doing['args']))}\n")
        command.chmod(0o755)
        box = {"run": [sys.prefix, sys.base_prefix, str(CHILDREN)]}
        async with gateway(settings(one={"command": str(command), "box": box})) as served:
            code = READS_BESIDE.format(names=BESIDE, folder=str(tmp_path))
            assert await served.client().call("one__do", code=code) == ""

    tries()


SURVIVES = """
import os, signal, time
for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    if not os.fork():
        for fd in range(3): os.close(fd)
        with open("pid~", "w") as file: file.write(str(os.getpid()))
        os.rename("pid~", "pid")
        while True: time.sleep(60)
    os._exit(0)
while not os.path.exists("pid"): time.sleep(0.01)
print(os.getcwd())
"""


@real
async def test_what_a_server_in_a_box_has_started_ends_with_it() -> None:
    async with gateway(settings(one=child("doing", box="strict", lifecycle="ephemeral"))) as served:
        folder = await served.client().call("one__do", code=SURVIVES)
        left = int(Path(folder.strip(), "pid").read_text())
        await until(lambda: not alive(left))


LEADS = (
    "import os, shutil; shutil.rmtree({0!r}, ignore_errors=True); os.symlink({1!r}, {0!r}); print(os.readlink({0!r}))"
)


@pytest.mark.parametrize("box", ["write", "read", "cwd", "program"])
def test_a_server_leads_its_next_start_nowhere_by_a_link_in_a_folder_that_it_may_write(
    box: str, tmp_path: Path
) -> None:
    given, secret = tmp_path / "given", tmp_path / "secret" / "bin"
    inner = given / "inner"
    inner.mkdir(parents=True)
    secret.mkdir(parents=True)
    (secret / "file").write_text("canary")
    entry = child("doing", box={"write": [str(given)]}, lifecycle="ephemeral")
    if box == "cwd":
        entry["cwd"] = str(inner)
    elif box == "program":
        entry["args"] = [*entry["args"][:1], "-B", *entry["args"][1:]]
        (inner / "python").symlink_to(entry["command"])
        (secret / "python").symlink_to(entry["command"])
        entry["command"] = str(inner / "python")
    else:
        entry["box"] = {**entry["box"], box: [*entry["box"].get(box, []), str(inner)]}

    @real
    async def look() -> None:
        async with gateway(settings(one=entry)) as served:
            client = served.client()
            if box == "program":  # which is another one's to begin with: it leads out already
                assert (
                    "leads out of a folder that it may write"
                    in (await failure(client.call("one__do", code=""))).message
                )
                return
            assert str(secret) in await client.call("one__do", code=LEADS.format(str(inner), str(secret)))
            error = await failure(client.call("one__do", code=f"print(open({str(secret / 'file')!r}).read())"))
            assert "leads out of a folder that it may write" in error.message

    look()


LISTENS = """
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for act in ("listen", "accept"):
        with socket.socket(family) as each:
            try:
                getattr(each, act)()
            except OSError as error:
                print(act, error.errno)
with socket.create_connection(("127.0.0.1", {port})) as each:
    print("connected")
"""


@real
async def test_who_may_connect_to_ports_does_not_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        async with gateway(settings(one=child("doing", box={"net": [port]}))) as served:
            told = await served.client().call("one__do", code=LISTENS.format(port=port))
    assert told.splitlines() == ["listen 1", "accept 1"] * 2 + ["connected"]


WRITES = """
import os
def write(): open("large", "wb").write(b"x" * 70000)
def append(): [open("more", "ab").write(b"x" * 10000) for _ in range(9)]
def stretch(): os.truncate(os.open("long", os.O_CREAT | os.O_WRONLY), 70000)
for each in (write, append, stretch):
    try:
        each()
    except OSError as error:
        print(error.errno)
print(max(os.path.getsize(each) for each in ("large", "more", "long")))
"""


@real
async def test_a_file_that_a_server_writes_has_a_limit() -> None:
    async with gateway(settings(one=child("doing", box={"filesize": "64KiB"}))) as served:
        told = await served.client().call("one__do", code=WRITES)
    *errors, largest = map(int, told.split())
    assert errors == [errno.EFBIG] * 3 and largest <= 65536


KEYS = """
import os
for each in ("/etc/ssl", "/etc/ssl/private", "/etc/pki", "/etc/pki/tls/private"):
    try:
        print(each, os.listdir(each))
    except (PermissionError, FileNotFoundError):
        pass
import ssl
print(len(ssl.create_default_context().get_ca_certs()) >= 0)
"""


@real
@pytest.mark.skipif(not os.path.isdir("/usr/local/etc"), reason="this machine has no such folder")
async def test_of_usr_local_no_configuration_is_shown() -> None:
    async with gateway(settings(one=child("doing", box="strict"))) as served:
        client = served.client()
        assert "bin" in await client.call("one__do", code="import os; print(os.listdir('/usr/bin') and 'bin')")
        told = await client.call("one__do", code="import os; print(os.listdir('/usr/local/etc'))")
        assert told == "PermissionError: [Errno 13] Permission denied: '/usr/local/etc'\n"


def test_what_the_system_has_is_all_but_its_configuration(tmp_path: Path) -> None:
    for name in ("bin", "etc", "lib", "local/bin", "local/etc", "local/lib"):
        (tmp_path / name).mkdir(parents=True)
    found = [each for each in programs.system(str(tmp_path)) if each.startswith(str(tmp_path))]
    assert found == [str(tmp_path / name) for name in ("bin", "lib", "local/bin", "local/lib")]
    assert [each for each in programs.system(str(tmp_path / "nowhere")) if str(tmp_path) in each] == []


@real
async def test_of_certificates_no_keys_are_shown() -> None:
    async with gateway(settings(one=child("doing", box="strict"))) as served:
        assert await served.client().call("one__do", code=KEYS) == "True\n"
