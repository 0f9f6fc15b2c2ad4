"""Programs in boxes: what they may do works, the rest is refused, and none is started whose box is not whole."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from attack.sandboxes.server_attempts import box_of
from processes.ground import alive, family_of, real, until
from sandboxing import boxed, supervising

from toolgate.core.fault import Fault
from toolgate.sandbox.javascript import ENVIRONMENT
from toolgate.upstreams.process import confinement, seccomp
from toolgate.upstreams.process.confinement import MIB, Box, box_for_deno

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(Box())), reason="this kernel cannot put on a box"),
]

READ, EXECUTE = confinement.of_python()


def strict(own: Path, **more: Any) -> Box:
    given: dict[str, Any] = {"read": READ, "execute": EXECUTE, "write": (str(own),), "open_files": 64, **more}
    return Box(**given)


async def said(box: Box | None, code: str, **more: Any) -> str:
    async with supervising() as supervisor:
        ended = await boxed(supervisor, box, ["-I", "-S", "-c", code], **more)
        return ended.output + ended.errors


@real
async def test_a_server_works_in_its_own_folder_and_with_what_was_given_to_it(tmp_path: Path) -> None:
    code = f"""if True:
        import os, subprocess, sys
        os.makedirs({str(tmp_path)!r} + "/a/b")
        with open({str(tmp_path)!r} + "/a/f", "w") as file: file.write("x" * 10)
        os.truncate({str(tmp_path)!r} + "/a/f", 3)
        os.rename({str(tmp_path)!r} + "/a/f", {str(tmp_path)!r} + "/a/b/g")
        child = subprocess.run([sys.executable, "-I", "-S", "-c", "print('a child')"], capture_output=True, text=True)
        print(child.stdout, sorted(os.environ))
        open("/dev/null", "w").write("x"), os.urandom(3)
    """
    output = await said(strict(tmp_path, inherits=("LANG_OF_NOBODY",)), code, env={"GIVEN": "1"})
    assert "a child" in output, output
    assert "GIVEN" in output
    assert "PATH" not in output
    assert (tmp_path / "a" / "b" / "g").read_text() == "xxx"


@real
async def test_a_program_in_a_box_has_three_descriptors_no_new_privileges_and_few_capabilities(tmp_path: Path) -> None:
    code = """if True:
        import os
        print([fd for fd in range(3, 1000) if os.path.exists(f"/proc/self/fd/{fd}")], open("/proc/self/status").read())
    """
    status = await said(strict(tmp_path, read=(*READ, "/proc")), code)
    assert status.startswith("[]")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    kept = confinement._CAPABILITIES["server"]
    assert int(fields["CapEff"], 16) & ~kept == 0
    assert int(fields["CapPrm"], 16) & ~kept == 0


@real
async def test_it_connects_to_the_ports_that_it_may_and_to_no_other(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [each.getsockname()[1] for each in (one, other)]
        code = f"""if True:
            import socket
            for port in {ports}:
                try: socket.create_connection(("127.0.0.1", port)); print("connected")
                except OSError as error: print(error)
        """
        tcp = await said(strict(tmp_path, network="tcp", ports=ports[:1]), code)
        assert tcp.splitlines() == ["connected", "[Errno 13] Permission denied"]
        assert (await said(strict(tmp_path, network="all"), code)).splitlines() == ["connected"] * 2
        assert "connected" not in await said(strict(tmp_path), code)


@real
async def test_sockets_of_other_programs_are_a_grant_of_their_own(tmp_path: Path) -> None:
    place = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({place!r}); print('connected')"
        assert "Permission denied" in await said(strict(tmp_path, network="all"), code)
        assert "connected" in await said(strict(tmp_path, unix=True), code)


@real
async def test_modes_are_changed_where_the_box_says_so(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch(0o600)
    code = f"import os; os.chmod({str(file)!r}, 0o640)"
    assert "Operation not permitted" in await said(strict(tmp_path), code)
    assert await said(strict(tmp_path, modes=True), code) == ""
    assert file.stat().st_mode & 0o777 == 0o640


@real
async def test_a_script_with_an_interpreter_runs_in_its_box(tmp_path: Path) -> None:
    script = tmp_path / "run"
    script.write_text(f"#!{os.path.realpath(sys.executable)} -IS\nprint('it runs')\n")
    script.chmod(0o755)
    async with supervising() as supervisor:
        box = Box(read=READ, execute=(*EXECUTE, str(script)))
        assert (await boxed(supervisor, box, [], command=str(script))).output == "it runs\n"
        with pytest.raises(Fault) as refused:
            await boxed(supervisor, Box(read=(*READ, str(script)), execute=EXECUTE), [], command=str(script))
        assert "Permission denied" in refused.value.message


@real
async def test_more_processes_than_it_may_have_end_it(tmp_path: Path) -> None:
    code = "import os, time\nfor _ in range(12):\n    if not os.fork(): time.sleep(60); os._exit(0)\ntime.sleep(60)"
    async with supervising() as supervisor:
        ended = await boxed(supervisor, strict(tmp_path, processes=5), ["-I", "-S", "-c", code])
        assert "it was ended: its box allows 5 processes and 320 threads together" in ended.end
        assert (await boxed(supervisor, strict(tmp_path, processes=5), ["-I", "-S", "-c", "print(1)"])).output == "1\n"


@real
async def test_more_threads_than_so_many_processes_have_end_it(tmp_path: Path) -> None:
    code = """if True:
        import threading, time
        threading.stack_size(65536)
        for _ in range({}):
            threading.Thread(target=time.sleep, args=({},), daemon=True).start()
        time.sleep({})
        print(1)"""
    async with supervising() as supervisor:
        ended = await boxed(supervisor, strict(tmp_path, processes=2), ["-I", "-S", "-c", code.format(200, 60, 60)])
        assert "it was ended: its box allows 2 processes and 128 threads together" in ended.end
        ended = await boxed(supervisor, strict(tmp_path, processes=2), ["-I", "-S", "-c", code.format(100, 60, 0.5)])
        assert ended.output == "1\n"


@real
async def test_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""if True:
        import os, signal, time
        for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
        if not os.fork():
            os.setsid()
            if not os.fork():
                for fd in range(3): os.close(fd)
                with open({str(pids)!r} + "~", "w") as file: file.write(str(os.getpid()))
                os.rename({str(pids)!r} + "~", {str(pids)!r})
                while True: time.sleep(60)
            os._exit(0)
        while not os.path.exists({str(pids)!r}): time.sleep(0.01)
    """
    async with supervising() as supervisor:
        await boxed(supervisor, strict(tmp_path), ["-I", "-S", "-c", code])
        (daemon,) = family_of(pids)
        await until(lambda: not alive(daemon))


@real
async def test_a_box_that_this_machine_cannot_put_on_is_refused_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = confinement.Layers("Linux", "x86_64", 2, True)
    monkeypatch.setattr(confinement, "layers", lambda: old)
    with pytest.raises(Fault) as refused:
        await said(strict(tmp_path, network="tcp"), "print(1)")
    assert refused.value.code == "SERVER_FAILED"
    assert "landlock v4" in refused.value.message
    assert "this kernel has v2" in refused.value.message
    assert await said(strict(tmp_path, network="tcp", lenient=True), "print(1)") == "1\n"


@real
async def test_a_part_that_fails_when_it_is_put_on_stops_the_start_unless_the_box_is_lenient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp, "program", lambda *_: b"\xff" * 16)
    with pytest.raises(Fault) as refused:
        await said(strict(tmp_path), "print(1)")
    assert "its box cannot be put on: seccomp: Invalid argument" in refused.value.message.replace("[Errno 22] ", "")
    assert await said(strict(tmp_path, lenient=True), "print(1)") == "1\n"


@real
async def test_a_command_that_cannot_be_run_is_told_as_without_a_box(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"\x7fELF nothing")
    text.chmod(0o755)
    async with supervising() as supervisor:
        with pytest.raises(Fault) as refused:
            await boxed(supervisor, Box(execute=(str(text),)), [], command=str(text))
        assert "Cannot start" in refused.value.message
        assert (await boxed(supervisor, None, ["-c", "print(1)"])).output == "1\n"


@real
async def test_deno_runs_in_the_box_that_is_meant_for_it(tmp_path: Path) -> None:
    deno = pytest.importorskip("deno", reason="deno is not installed")
    binary = importlib.import_module(f"{deno.__name__}").find_deno_bin()
    flags = ["run", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--cached-only"]
    entry = tmp_path / "entry.js"
    entry.write_text(
        "for await (const each of Deno.stdin.readable) {\n"
        "  console.log('heard', each.length, [1, 2].map((x) => x * 2)); break;\n}"
    )
    async with supervising() as supervisor:
        box = box_for_deno(binary, (str(entry),))
        by_path = await boxed(supervisor, box, [*flags, str(entry)], ENVIRONMENT, stdin=b"four", command=binary)
        assert by_path.output == "heard 4 [ 2, 4 ]\n", by_path
        attempts = (
            "Deno.readTextFileSync('/etc/passwd')", "Deno.writeTextFileSync('/tmp/x', 'x')",
            "await Deno.connect({port: 80})",
            "new Deno.Command('/bin/true').outputSync()", "Deno.kill(1, 'SIGTERM')",
            "Deno.dlopen('/lib/libc.so.6', {})",
        )  # fmt: skip
        entry.write_text(
            "".join(f"try {{ {each}; console.log('out') }} catch {{ console.log('no') }}\n" for each in attempts)
        )
        granted = await boxed(supervisor, box, [*flags, "-A", str(entry)], ENVIRONMENT, command=binary)
        assert granted.output == "no\n" * len(attempts), granted


def test_the_box_of_the_attacks_is_a_strict_one() -> None:
    box = box_of("file: x", {"own": "/own"})
    assert (box.network, box.unix, box.modes, box.write) == ("none", False, False, ("/own",))
    assert box.memory == 256 * MIB
