"""How a server is, in the words of each seed (behaviour.md section 4)."""

from __future__ import annotations

from collections.abc import Mapping

from toolgate.upstreams.base import State

IN_000: Mapping[State, str] = {
    "configured": "stopped",
    "starting": "starting",
    "ready": "running",
    "busy": "running",
    "failed": "failed",
    "stopped": "stopped",
}
IN_002: Mapping[State, str] = {
    "configured": "idle",
    "starting": "connecting",
    "ready": "idle",
    "busy": "active",
    "failed": "failed",
    "stopped": "closed",
}
IN_004: Mapping[State, str] = {
    "configured": "disconnected",
    "starting": "connecting",
    "ready": "connected",
    "busy": "connected",
    "failed": "failed",
    "stopped": "disconnected",
}
