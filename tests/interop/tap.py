"""A wire that listens: passes bytes on between a client and a gateway, unchanged, and writes down what the client sent.

    python tap.py --to http://127.0.0.1:PORT/mcp --record FILE

It serves on loopback, at a port that the system chooses, and prints the URL to use instead. Each line of the record is
one piece as it came: its connection's number, who sent it, and its bytes as Latin-1. `sent` reads the messages again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

CHUNK = 64 * 1024
LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)


def sent(record: Path) -> Iterator[dict[str, Any]]:
    """The messages of the client, connection by connection."""
    streams: dict[int, bytearray] = {}
    for line in record.read_text().splitlines():
        piece = json.loads(line)
        if piece["from"] == "client":
            streams.setdefault(piece["connection"], bytearray()).extend(piece["text"].encode("latin-1"))
    for stream in streams.values():
        rest = bytes(stream)
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            length = int(found[1]) if (found := LENGTH.search(head)) else 0
            body, rest = rest[:length], rest[length:]
            if body:
                yield json.loads(body)


class Tap:
    def __init__(self, host: str, port: int, record: TextIO) -> None:
        self._there = (host, port)
        self._record = record
        self._numbers = itertools.count()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(self._numbers)
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._there)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._pass_on(number, "client", reader, there_writer),
            self._pass_on(number, "gateway", there_reader, writer),
        )

    async def _pass_on(
        self, number: int, sender: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await source.read(CHUNK):
                piece = {"connection": number, "from": sender, "text": data.decode("latin-1")}
                self._record.write(json.dumps(piece) + "\n")
                self._record.flush()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass  # one side has gone: so goes the other
        finally:
            sink.close()


async def serve(url: str, path: str) -> None:
    parts = urlsplit(url)
    with open(path, "a", encoding="utf-8") as record:
        tap = Tap(parts.hostname or "", parts.port or 80, record)
        server = await asyncio.start_server(tap.connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}{parts.path}", flush=True)
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", required=True)
    parser.add_argument("--record", required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.to, options.record))
