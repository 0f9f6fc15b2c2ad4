"""What calls are told to: one for a gateway, whatever configurations it has."""

from __future__ import annotations

from toolgate.telemetry.spans import Tracer
from toolgate.telemetry.traffic import Traffic
from toolgate.telemetry.usage import Usage


class Recorder:
    """`tracer` is there while traces are sent somewhere."""

    def __init__(self) -> None:
        self.usage, self.traffic = Usage(), Traffic()
        self.tracer: Tracer | None = None
