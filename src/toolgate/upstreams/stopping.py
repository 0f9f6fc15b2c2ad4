"""How a call ends whose server is stopped: on purpose, which is no crash, so nothing is sent again for it."""

from __future__ import annotations

from toolgate.core.fault import Fault, Reach

MARK = "stopped"  # in the `extra` of such a fault


OVER_SHARE = "this client held more servers than its share of the pool (pool.max_live), and others need room"


def stopped(server: str, name: str, reach: Reach, why: str = "") -> Fault:
    """`why` is told where there is more to say than that somebody wanted it."""
    message = f"{name} was stopped: {why}" if why else f"{name} was stopped"
    return marked(Fault("SERVER_FAILED", message, server=server, reach=reach))


def marked(fault: Fault) -> Fault:
    """The same as one of a server that was stopped."""
    fault.extra = {**fault.extra, MARK: True}
    return fault


def was_stopped(fault: Fault) -> bool:
    return MARK in fault.extra
