"""The part of a gateway that shows servers its tokens, as a process: on the store in the folder that it is given.

It says `ready`, waits for a line, and then says the token that it shows, or that it has none; and so on for each line.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from toolgate.auth.oauth import vault
from toolgate.auth.oauth.credentials import OAuth
from toolgate.auth.safe_net import SafeNet
from toolgate.config import Server, ServerAuth
from toolgate.core.clock import SystemClock
from toolgate.core.redaction import Redactor
from toolgate.state import opened

KEY = b"k" * 32


async def main(folder: str, url: str, lease: str) -> None:
    vault.LEASE = float(lease)
    async with opened(Path(folder)) as store:
        oauth = OAuth(store, [KEY], SystemClock(), SafeNet(), Redactor(), lambda: "")
        credential = oauth.credential(Server(id="docs", name="docs", type="http", url=url, auth=ServerAuth()), "ann")
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(await credential.shown() or "nothing", flush=True)
        await oauth.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
