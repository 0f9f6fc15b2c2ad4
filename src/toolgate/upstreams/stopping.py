"""How a call ends whose server is stopped: on purpose, which is no crash, so nothing is sent again for it."""

from __future__ import annotations

from toolgate.core.fault import Fault, Reach

MARK = "stopped"  # in the `extra` of such a fault


def stopped(server: str, name: str, reach: Reach) -> Fault:
    return marked(Fault("SERVER_FAILED", f"{name} was stopped", server=server, reach=reach))


def marked(fault: Fault) -> Fault:
    """The same as one of a server that was stopped."""
    fault.extra = {**fault.extra, MARK: True}
    return fault


def was_stopped(fault: Fault) -> bool:
    return MARK in fault.extra
