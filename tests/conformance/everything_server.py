#!/usr/bin/env python
"""The official SDK's own example of a server that has everything, from its source distribution (`install.py`).

    everything_server.py --stdio
    everything_server.py --port 0    # says the URL

It speaks both eras, and asks as servers of the handshake do. Its own command line listens on HTTP only.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--source", type=Path, required=True, help="the folder that holds its package")
parser.add_argument("--stdio", action="store_true")
parser.add_argument("--port", type=int, default=0)
given = parser.parse_args()
sys.path.insert(0, str(given.source))
logging.basicConfig(level=logging.INFO, stream=sys.stderr)

from mcp_everything_server import server  # noqa: E402  # type: ignore[reportMissingImports]

if given.stdio:
    server.mcp.run(transport="stdio")
else:
    server.mcp.run(transport="streamable-http", port=given.port, event_store=server.event_store, retry_interval=100)
