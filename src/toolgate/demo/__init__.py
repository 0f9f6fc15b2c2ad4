"""Two small MCP servers to try a gateway with: `clock` speaks the handshake revisions, `notes` speaks 2026-07-28.

Each is one script of plain Python that imports nothing of toolgate, as a server of anyone else's would be.
"""

from pathlib import Path
from typing import Final

SERVERS: Final = {name: Path(__file__).with_name(f"{name}.py") for name in ("clock", "notes")}
