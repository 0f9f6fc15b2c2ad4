"""What a worker is told: at once, and in as few pieces as a round of the event loop allows."""

from __future__ import annotations

import asyncio

from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox.bridge import Broken
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.worker import PIECE, Worker


def started() -> tuple[Worker, list[bytes]]:
    worker, written = Worker(Limits(), IntakeQueue()), list[bytes]()
    worker.started(0, written.append, lambda: None, None)
    return worker, written


async def test_what_is_said_in_one_round_goes_in_two_pieces_and_the_first_at_once() -> None:
    worker, written = started()
    for number in range(5):
        worker.write(b"%d\n" % number)
    assert written == [b"0\n"]
    await asyncio.sleep(0)
    assert written == [b"0\n", b"1\n2\n3\n4\n"]
    worker.write(b"5\n")
    assert written[-1] == b"5\n"


async def test_what_is_large_is_not_kept_and_comes_in_its_order() -> None:
    worker, written = started()
    large = b"x" * PIECE + b"\n"
    said = [b"0\n", b"1\n", large, b"2\n", b"3\n", large, b"4\n"]
    for each in said:
        worker.write(each)
    assert written.count(large) == 2
    await asyncio.sleep(0)
    assert b"".join(written) == b"".join(said)


async def test_what_nobody_reads_is_counted_and_what_is_said_to_one_that_has_ended_is_lost() -> None:
    worker, _ = started()
    worker.full()
    for _ in range(3):
        worker.write(b"abc\n")
    await asyncio.sleep(0)
    assert worker.unread == 12

    def ended(_: bytes) -> None:
        raise Fault("SESSION_ERROR", "it has ended")

    worker.started(0, ended, lambda: None, None)
    worker.write(b"a")
    worker.write(b"b")
    worker.exited(Broken("it has ended"))
    await asyncio.sleep(0)
