"""Servers that the configuration puts into boxes: what each level allows, what it is given, what is told of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.ground import CHILDREN, Client, Served, child, failure, gateway, real, settings, until

from toolgate import config as configs
from toolgate.core.clock import SystemClock
from toolgate.frontends import operator
from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]


async def does(client: Client, code: str, server: str = "one") -> str:
    return await client.call(f"{server}__do", code=code)


def own(served: Served, name: str = "one") -> Path:
    return Path(served.app._given.environ["HOME"], ".local/state/toolgate/boxes", name)


WRITES = "open({!r}, 'w').write('x'); print('wrote')"
READS = "print('read', open({!r}).read())"


def connects(port: int) -> str:
    return f"import socket; socket.create_connection(('127.0.0.1', {port})); print('connected')"


@pytest.mark.promise("b.attacks.user")
@real
async def test_a_strict_server_reads_its_program_writes_its_own_folder_and_reaches_nobody(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    async with gateway(settings(one=child("doing", box="strict"))) as served:
        client = served.client()
        assert "PermissionError" in await does(client, READS.format(str(secret)))
        assert "PermissionError" in await does(client, WRITES.format(str(tmp_path / "new")))
        assert "PermissionError" in await does(client, connects(served.port))
        assert "wrote" in await does(client, WRITES.format(str(own(served) / "new")))
        told = await does(client, "import os; print(os.getcwd(), os.environ['HOME'], os.environ['TMPDIR'])")
        assert told.split() == [str(own(served)), str(own(served)), str(own(served) / "tmp")]
        assert "True" in await does(client, "import json, ssl, tempfile; print(bool(tempfile.mkdtemp()))")
    assert not (tmp_path / "new").exists()


OPENS = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
opened = []
try:
    while len(opened) < 5000: opened.append(os.eventfd(0))
except OSError as error:
    print(error.strerror)
print(len(opened))
for each in opened: os.close(each)
"""


@pytest.mark.parametrize(("files", "most"), [(None, 256), (1000, 1000)])
@real
async def test_a_process_of_a_box_has_few_open_files(files: int | None, most: int) -> None:
    """What the kernel keeps for them it counts by user: all that the gateway may have were taken."""
    box = {"level": "strict"} | ({"files": files} if files else {})
    async with gateway(settings(one=child("doing", box=box))) as served:
        why, opened = (await does(served.client(), OPENS)).splitlines()
        assert why == "Too many open files" and most - 50 < int(opened) < most


@pytest.mark.parametrize(
    "leaves", ["os.symlink('/nowhere', tmp)", "os.symlink(tmp, tmp)", "os.symlink('/usr', tmp)", "open(tmp, 'w')"]
)
@real
async def test_a_server_starts_again_whatever_it_has_left_in_place_of_its_folder(leaves: str) -> None:
    async with gateway(settings(one=child("doing", box="strict"))) as served:
        client = served.client()
        await does(client, f"import os, shutil; tmp = os.environ['TMPDIR']; shutil.rmtree(tmp); {leaves}")
        assert await failure(does(client, "import os; os._exit(1)"))
        assert "True" in await does(
            client, "import os, tempfile; print(tempfile.mkdtemp().startswith(os.environ['TMPDIR']))"
        )
        assert (own(served) / "tmp").is_dir() and not (own(served) / "tmp").is_symlink()


@real
async def test_a_server_without_network_writes_where_its_user_may(tmp_path: Path) -> None:
    async with gateway(settings(one=child("doing", box="no-net"))) as served:
        client = served.client()
        assert "wrote" in await does(client, WRITES.format(str(tmp_path / "new")))
        assert "PermissionError" in await does(client, connects(served.port))


@real
async def test_a_server_that_may_not_write_reads_and_has_the_network(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a text")
    async with gateway(settings(one=child("doing", box="no-write"))) as served:
        client = served.client()
        assert "a text" in await does(client, READS.format(str(tmp_path / "text")))
        assert "PermissionError" in await does(client, WRITES.format(str(tmp_path / "new")))
        assert "connected" in await does(client, connects(served.port))
        assert "wrote" in await does(client, "import tempfile; tempfile.mkdtemp(); print('wrote')")


@real
async def test_a_table_adds_paths_ports_and_limits_to_a_level(tmp_path: Path) -> None:
    for name in ("notes", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text("a text")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        box = {"read": [str(tmp_path / "notes")], "write": [str(tmp_path / "data")], "net": [port], "memory": "256MiB"}
        async with gateway(settings(one=child("doing", box={**box, "processes": 4, "cpu": 100}))) as served:
            client = served.client()
            assert "a text" in await does(client, READS.format(str(tmp_path / "notes" / "text")))
            assert "PermissionError" in await does(client, WRITES.format(str(tmp_path / "notes" / "text")))
            assert "wrote" in await does(client, WRITES.format(str(tmp_path / "data" / "text")))
            assert "connected" in await does(client, connects(port))
            assert "PermissionError" in await does(client, connects(served.port))
            assert "MemoryError" in await does(client, "bytearray(1 << 29)")


@real
async def test_its_environment_is_an_allow_list_and_what_its_configuration_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gateway(settings(one=child("doing", box="strict", env={"GIVEN": "1"}))) as served:
        environ: Any = served.app._given.environ
        environ |= {"SECRET_OF_THE_GATEWAY": "x", "HTTPS_PROXY": "http://me:password@proxy", "npm_config_x": "y"}
        told = await does(served.client(), "import os; print(sorted(os.environ))")
        assert "GIVEN" in told and "PATH" in told
        assert not any(word in told for word in ("SECRET", "PROXY", "npm_config"))


@real
async def test_the_gateways_state_is_put_into_no_box(tmp_path: Path) -> None:
    config = settings({"HOME": "/"}, one=child("doing", box={"read": ["/"]}), two=child("doing", box={"write": ["~/"]}))
    async with gateway(config) as served:
        for server in ("one", "two"):
            error = await failure(served.client().call(f"{server}__do", code="print(1)"))
            assert "holds the gateway's own state" in str(error.message)


@real
async def test_what_a_server_of_one_principal_writes_no_other_principals_reads() -> None:
    config = settings(one=child("doing", box="strict", scope="session"))
    async with gateway(config) as served:
        told = await does(served.client(), "import os; print(os.getcwd())")
        assert told.strip().startswith(f"{own(served)}-")


@real
async def test_the_default_is_for_all_servers_that_say_nothing_else() -> None:
    text = json.dumps({"mcpServers": {"one": child("doing"), "two": child("doing", box="off")}, "box": "strict"})
    config = configs.read(text, file="toolgate.json", environ={}, format="json")
    async with gateway(config) as served:
        client = served.client()
        for server, has_one in (("one", True), ("two", False)):
            told = await does(client, "print(open('/proc/self/status').read())", server)
            assert ("Seccomp:\t2" in told) == has_one


@real
async def test_where_the_kernel_lacks_it_a_server_is_refused_unless_the_operator_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old = confinement.Layers("Linux", os.uname().machine, 0, True)
    monkeypatch.setattr(confinement, "layers", lambda: old)
    config = settings(one=child("doing", box="strict"))
    async with gateway(config) as served:
        error = await failure(served.client().call("one__do", code="print(1)"))
        assert "lacks landlock" in str(error.message)
    text = json.dumps({"mcpServers": {"one": child("doing", box="strict")}, "sandbox": {"require_boxes": False}})
    async with gateway(configs.read(text, file="toolgate.json", environ={}, format="json")) as served:
        assert await does(served.client(), "print(1)") == "1\n"
    assert "a box that is not whole" in caplog.text


@real
async def test_changes_of_modes_owners_and_times_do_nothing_and_fail_no_server(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(0o600)
    before = file.stat()
    code = f"import os; os.chmod({str(file)!r}, 0o644); os.utime({str(file)!r}, (1, 1)); print('done')"
    async with gateway(settings(one=child("doing", box={"write": [str(tmp_path)]}))) as served:
        assert await does(served.client(), code) == "done\n"
    assert file.stat() == before


OF_THE_OPERATOR = """
import os, socket
def ask():
    it = socket.socket(socket.AF_UNIX)
    it.connect({place!r})
    try:
        head = "GET /admin/status HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"
        it.sendall("\\r\\n".join((*head, "", "")).encode())
        print(it.recv(100))
    except OSError as error:
        print(type(error).__name__)
ask()
if not os.fork():
    ask(); os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(("box", "is_let_in"), [("off", True), ({"sockets": True}, False)])
def test_a_server_in_a_box_is_not_the_operator_though_it_has_sockets(box: Any, is_let_in: bool) -> None:
    @real
    async def ask() -> None:
        config = settings(one=child("doing", box=box))
        async with gateway(config) as served:
            place = operator.place(config, served.app._given.environ)
            async with operator.listening(served.app.http, place, SystemClock()):
                await until(place.exists)
                said = await does(served.client(), OF_THE_OPERATOR.format(place=str(place)))
        assert ("200 OK" in said) == is_let_in, said

    ask()


OTHER_GATEWAY = """
import socket, sys
from toolgate.frontends import peers
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
connection, _ = listener.accept()
print(peers.is_in_a_box(connection))
connection.close()
"""


@pytest.mark.parametrize(("box", "is_seen"), [("off", False), ({"sockets": True}, True)])
def test_a_server_in_a_box_is_not_the_operator_of_another_gateway(box: Any, is_seen: bool, tmp_path: Path) -> None:
    """Each agent has a gateway of its own, of one user and one state folder."""

    @real
    async def ask() -> None:
        place, connects = tmp_path / "s", "import socket; s = socket.socket(socket.AF_UNIX); s.connect(%r); s.recv(1)"
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OTHER_GATEWAY, str(place)), stdout=asyncio.subprocess.PIPE
        )
        assert other.stdout
        async with gateway(settings(one=child("doing", box=box))) as served:
            await until(place.exists)
            await does(served.client(), connects % str(place))
            assert (await other.stdout.read()).decode() == f"{is_seen}\n"
        await other.wait()

    ask()


@real
async def test_a_script_that_is_named_from_the_gateways_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHILDREN)
    entry = {"command": sys.executable, "args": ["-S", "doing.py"], "box": "strict"}
    async with gateway(settings(one=entry)) as served:
        assert await does(served.client(), "import os; print(os.getcwd())") == f"{own(served)}\n"
