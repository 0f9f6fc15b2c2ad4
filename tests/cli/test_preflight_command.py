"""`toolgate preflight`: all that a gateway needs, and nothing is changed."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app, preflight
from toolgate.demo import SERVERS

TLS = Path(__file__).parents[1] / "fixtures" / "tls"


def entry(name: str) -> str:
    args = json.dumps(["-I", "-S", str(SERVERS[name])])
    return f"[mcpServers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "toolgate.toml"
    file.write_text(f"http = {{ port = {free_port()} }}\n{entry('clock')}")
    return file


def free_port() -> int:
    """One that the system gives to nobody who asks for any."""
    while True:
        port = random.randint(20_000, 29_999)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["preflight", "--config", str(config), *arguments])


def report(config: Path, *arguments: str) -> dict[str, Any]:
    return json.loads(run(config, "--json", *arguments).stdout)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_all_is_well_and_nothing_is_changed(config: Path, tmp_path: Path) -> None:
    before = files(tmp_path)
    done = run(config)
    assert done.exit_code == 0, done.output
    assert "✓ servers: clock: 4 tools" in done.output and "All is well." in done.output
    said = report(config)
    assert said["ok"] and said["servers"]["clock"]["tools"] == 4 and said["servers"]["clock"]["tokens"] > 0
    assert set(said["surfaces"]) >= {"aggregate", "meta"} and said["surfaces"]["aggregate"]["tools"] == 4
    assert files(tmp_path) == before


def test_the_store_that_is_there_is_not_changed_either(config: Path, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["list", "--config", str(config)]).exit_code == 0
    config.write_text(config.read_text() + entry("notes"))
    before = {name: each for name, each in files(tmp_path).items() if not name.endswith(("-shm", "-wal", ".lock"))}
    assert run(config).exit_code == 0
    assert {
        name: each for name, each in files(tmp_path).items() if not name.endswith(("-shm", "-wal", ".lock"))
    } == before


def test_problems_are_told_each_with_its_fix(config: Path) -> None:
    config.write_text(
        config.read_text()
        + '[mcpServers.gone]\ncommand = "uvx-not-there"\n'
        + '[mcpServers.needs]\ncommand = "sh"\nenv = { A = "${secret:nowhere}" }\n'
    )
    said = report(config)
    problems = {(each["check"], each["about"]) for each in said["checks"] if each["level"] == "problem"}
    assert not said["ok"] and problems == {("commands", "gone"), ("secrets", "needs")}
    assert said["servers"].keys() == {"clock"}  # those that cannot work are not started
    assert run(config).exit_code == 1


def test_a_port_in_use_is_a_problem(config: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config.write_text(f"http = {{ port = {taken.getsockname()[1]} }}\n{entry('clock')}")
        said = report(config, "--no-start")
    assert [each["check"] for each in said["checks"] if each["level"] == "problem"] == ["ports"]


def test_warnings_count_where_that_is_asked_for(config: Path) -> None:
    config.write_text(config.read_text().replace("[mcpServers.clock]", "[mcpServers.clock]\nenv = { EMPTY = '' }"))
    assert run(config, "--no-start").exit_code == 0
    assert run(config, "--no-start", "--strict").exit_code == 1


def test_a_configuration_that_cannot_be_read_is_another_status(config: Path, tmp_path: Path) -> None:
    config.write_text("[mcpServers.x]\nnothing = 1\n")
    assert run(config).exit_code == 2
    done = run(config, "--json")
    assert done.exit_code == 2 and json.loads(done.stdout)["ok"] is False
    assert run(tmp_path / "none.toml").exit_code == 2


def test_no_value_of_a_secret_is_shown(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MINE", "s3cret-value-here")
    config.write_text(config.read_text() + '[mcpServers.gone]\ncommand = "gone"\nargs = ["${secret:mine}"]\n')
    assert "s3cret" not in run(config).output + run(config, "--json").output


def test_a_tool_that_has_changed_since_it_was_pinned_is_told(config: Path, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    source = SERVERS["clock"].read_text()
    script.write_text(source)
    config.write_text(config.read_text().replace(str(SERVERS["clock"]), str(script)))
    assert CliRunner().invoke(app, ["list", "--config", str(config)]).exit_code == 0
    changed = source.replace("Convert a time of today", "Convert any time of today")
    assert changed != source
    script.write_text(changed)
    pins = [each for each in report(config)["checks"] if each["check"] == "pins"]
    assert pins and all(each["level"] == "warning" and "toolgate pins diff" in each["fix"] for each in pins)


def test_a_host_that_cannot_be_reached_is_told(config: Path) -> None:
    config.write_text(config.read_text() + '[mcpServers.far]\nurl = "https://127.0.0.1:9/mcp"\n')
    [check] = [each for each in report(config, "--no-start")["checks"] if each["check"] == "certificates"]
    assert (check["level"], check["about"]) == ("problem", "far") and "127.0.0.1:9 cannot be reached" in check["says"]


@contextlib.contextmanager
def behind_tls(certificate: str) -> Iterator[int]:
    """The port of a server that shakes hands once with this certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / f"{certificate}.pem")

    def serve() -> None:
        with contextlib.suppress(OSError), listening.accept()[0] as peer, context.wrap_socket(peer, server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(30)


@pytest.mark.parametrize(
    ("certificate", "says"),
    [
        ("expired", "the certificate of 127.0.0.1 is not accepted: certificate has expired"),
        ("elsewhere", "the certificate of 127.0.0.1 is not accepted: IP address mismatch"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_told_with_the_reason(
    config: Path, monkeypatch: pytest.MonkeyPatch, certificate: str, says: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
    with behind_tls(certificate) as port:
        config.write_text(config.read_text() + f'[mcpServers.far]\nurl = "https://127.0.0.1:{port}/mcp"\n')
        [check] = [each for each in report(config, "--no-start")["checks"] if each["check"] == "certificates"]
    assert (check["level"], check["about"]) == ("problem", "far") and check["says"].startswith(says), check


def test_an_authority_that_is_not_known_is_told_and_how_to_name_it(config: Path) -> None:
    with behind_tls("good") as port:
        config.write_text(config.read_text() + f'[mcpServers.far]\nurl = "https://127.0.0.1:{port}/mcp"\n')
        [check] = [each for each in report(config, "--no-start")["checks"] if each["check"] == "certificates"]
    assert "unable to get local issuer certificate" in check["says"] and "SSL_CERT_FILE" in check["fix"]


@pytest.mark.parametrize(("left", "found"), [(15, []), (13, ["the certificate of 127.0.0.1 ends on "])])
def test_a_certificate_that_ends_soon_is_a_warning(
    config: Path, monkeypatch: pytest.MonkeyPatch, left: int, found: list[str]
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
    ends = ssl.cert_time_to_seconds("Dec 31 00:00:00 2119 GMT")
    monkeypatch.setattr(preflight.tls, "SOON", (ends - time.time()) / 86_400 + 14 - left)
    with behind_tls("good") as port:
        config.write_text(config.read_text() + f'[mcpServers.far]\nurl = "https://127.0.0.1:{port}/mcp"\n')
        checks = [each for each in report(config, "--no-start")["checks"] if each["check"] == "certificates"]
    assert [each["says"][: len(says)] for each, says in zip(checks, found, strict=True)] == found
    assert all(each["level"] == "warning" for each in checks)
