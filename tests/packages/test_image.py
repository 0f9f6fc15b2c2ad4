"""The image and its compose file, where no Docker runs: what they promise stands in them, and their commands work.

`hadolint` judges the Dockerfile too, where it is installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolgate import config as configs
from toolgate.cli import COMMANDS, serve
from toolgate.config import settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "packaging" / "Dockerfile"
COMPOSE: Any = yaml.safe_load((ROOT / "packaging" / "compose.yaml").read_text())["services"]["toolgate"]
PAGE = (ROOT / "docs" / "container.md").read_text()
HADOLINT = shutil.which("hadolint")


def steps() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.M))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in text.splitlines() if line]


def last_stage() -> list[tuple[str, str]]:
    found = steps()
    begin = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[begin:]


def only(name: str) -> str:
    [value] = [value for each, value in last_stage() if each == name]
    return value


def test_it_runs_as_nobody_in_particular_and_owns_its_state_alone() -> None:
    user = only("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "a number, so that a cluster can see that it is not root"
    order = [name for name, _ in last_stage()]
    assert order.index("USER") < order.index("ENTRYPOINT") and "RUN" not in order[order.index("USER") :]
    assert f"mkdir -m 0700 {only('VOLUME')} && chown {user} {only('VOLUME')}" in only("RUN")


def test_what_it_is_made_of_is_named_and_fetched_by_its_own_package_manager_alone() -> None:
    bases = [value.split()[0] for name, value in steps() if name == "FROM"]
    assert len(set(bases)) == 1 and re.fullmatch(r"python:3\.\d+-slim-\w+", bases[0])
    assert not [name for name, _ in steps() if name == "ADD"]
    run = " ".join(value for name, value in steps() if name == "RUN")
    assert not re.search(r"curl|wget|https?:|sudo|apt", run) and "--no-cache-dir" in run and "-c " in run


def test_nothing_but_the_wheel_and_its_versions_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored == ["*", "!dist/*.whl", "!constraints.txt"]
    [copied] = [value for name, value in steps() if name == "COPY" and not value.startswith("--from")]
    assert copied == "dist/*.whl constraints.txt /tmp/"


def test_its_commands_are_toolgates_and_it_is_asked_whether_it_answers() -> None:
    assert only("ENTRYPOINT") == '["toolgate"]'
    assert only("CMD") == '["serve", "--host", "0.0.0.0"]' and "serve" in COMMANDS
    assert only("HEALTHCHECK").endswith('CMD ["toolgate", "status"]') and "status" in COMMANDS
    assert only("EXPOSE") == str(settings.Http().port)


def test_compose_gives_it_no_right_that_it_can_do_without() -> None:
    assert COMPOSE["read_only"] is True and COMPOSE["cap_drop"] == ["ALL"]
    assert COMPOSE["security_opt"] == ["no-new-privileges:true"] and not COMPOSE.get("privileged")
    assert COMPOSE["pids_limit"] and COMPOSE["mem_limit"]
    assert all(port.startswith("127.0.0.1:") for port in COMPOSE["ports"])
    assert [volume for volume in COMPOSE["volumes"] if "docker.sock" in volume] == []
    seconds = int(COMPOSE["stop_grace_period"].removesuffix("s"))
    assert seconds > configs.Config().drain + 10


def test_an_edit_of_its_configuration_is_heard_of() -> None:
    """A file that is mounted by itself stays the one that it was when an editor puts another in its place."""
    [mounted] = [volume for volume in COMPOSE["volumes"] if volume.startswith("./")]
    source, target, rights = mounted.split(":")
    [config] = [word.partition("=")[2] for word in only("ENV").split() if word.startswith("TOOLGATE_CONFIG=")]
    assert target == str(Path(config).parent) and rights == "ro"
    assert f"packaging/{source.removeprefix('./')}/{Path(config).name}" in PAGE


def test_the_configuration_of_the_page_may_listen_beyond_loopback() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
    found = configs.read(example, file="toolgate.toml", environ={}, format="toml")
    assert not found.warnings and not serve.unguarded(serve.with_address(found, "0.0.0.0", None))


@pytest.mark.skipif(not HADOLINT, reason="hadolint is not here")
def test_hadolint_finds_nothing() -> None:
    assert HADOLINT
    done = subprocess.run([HADOLINT, str(DOCKERFILE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
