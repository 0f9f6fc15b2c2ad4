"""The certificate of the listener: what cannot be used is told with what is wrong, and what changes is read anew."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import certificates
import pytest
from virtualtime import FakeClock

from toolgate.frontends import tls
from toolgate.frontends.tls import Certificate, Unusable


def test_a_certificate_with_its_key_is_shown_from_tls_1_2_on(tmp_path: Path) -> None:
    shown = Certificate(*certificates.make(tmp_path))
    assert shown.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert shown.remarks() == []


def missing(certificate: Path, key: Path) -> None:
    certificate.unlink()


def swapped(certificate: Path, key: Path) -> None:
    text = certificate.read_bytes()
    certificate.write_bytes(key.read_bytes())
    key.write_bytes(text)


def of_another(certificate: Path, key: Path) -> None:
    shutil.copy(certificates.make(certificate.parent, "other")[1], key)


def sealed(certificate: Path, key: Path) -> None:
    shutil.copy(certificates.make(certificate.parent, "sealed", passphrase="secret")[1], key)


def cut_off(certificate: Path, key: Path) -> None:
    certificate.write_bytes(certificate.read_bytes()[:-60])


def pipe(certificate: Path, key: Path) -> None:
    key.unlink()
    os.mkfifo(key)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (missing, "the TLS certificate {0} cannot be read (No such file or directory)"),
        (swapped, "the TLS certificate {0} has no certificate in PEM form: convert it with openssl"),
        (of_another, "the TLS key {1} does not belong to the certificate {0}"),
        (sealed, "the TLS key {1} is encrypted: give one without a passphrase"),
        (cut_off, "the TLS certificate {0} cannot be used with the key {1} ("),
        (pipe, "the TLS key {1} cannot be read (not a regular file)"),
    ],
)
def test_files_that_cannot_be_used_are_told_with_what_is_wrong(
    tmp_path: Path, spoil: Callable[[Path, Path], None], says: str
) -> None:
    files = certificates.make(tmp_path)
    spoil(*files)
    with pytest.raises(Unusable) as raised:
        Certificate(*files)
    assert str(raised.value).startswith(says.format(*files))


@pytest.mark.parametrize(("days", "says"), [(13, "ends on"), (-1, "has ended on"), (15, "")])
def test_a_certificate_that_ends_soon_is_told(tmp_path: Path, days: float, says: str) -> None:
    found = Certificate(*certificates.make(tmp_path, days=days)).remarks()
    assert [says in each for each in found] == ([True] if says else [])


def test_a_key_that_everybody_can_read_is_told(tmp_path: Path) -> None:
    certificate, key = certificates.make(tmp_path)
    key.chmod(0o644)
    assert ["readable by every user" in each for each in Certificate(certificate, key).remarks()] == [True]


async def test_other_files_are_shown_when_they_are_whole_and_the_old_ones_until_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, tls.log.name)
    files, others = certificates.make(tmp_path), certificates.make(tmp_path, "other")
    shown = Certificate(*files)
    first = shown.context
    following = asyncio.create_task(shown.follow(FakeClock()))
    await asyncio.sleep(10 * tls.LOOK)
    assert shown.context is first and not caplog.messages

    shutil.copy(others[0], files[0])
    await asyncio.sleep(3 * tls.LOOK)
    assert shown.context is first
    [said] = caplog.messages
    assert "does not belong" in said and "still serving the previous certificate" in said

    shutil.copy(others[1], files[1])
    await asyncio.sleep(3 * tls.LOOK)
    assert shown.context is not first
    assert caplog.messages[1:] == ["the TLS certificate was read again"]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
