"""Prometheus's text format 0.0.4, as far as we use it: a metric is some lines of text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from toolgate.telemetry import names
from toolgate.telemetry.usage import Durations

Labels = Mapping[str, str]
Sample = tuple[Labels, float]  # labels and value

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def gauge(name: str, help: str, samples: Iterable[Sample]) -> str:
    return _metric(name, "gauge", help, (_line(name, *sample) for sample in samples))


def counter(name: str, help: str, samples: Iterable[Sample]) -> str:
    return _metric(name, "counter", help, (_line(name, *sample) for sample in samples))


def histogram(name: str, help: str, samples: Iterable[tuple[Labels, Durations]]) -> str:
    lines = (line for labels, durations in samples for line in _buckets(name, labels, durations))
    return _metric(name, "histogram", help, lines)


def _buckets(name: str, labels: Labels, durations: Durations) -> Iterable[str]:
    counts = list(itertools.accumulate(durations.counts))
    for bound, count in zip((*names.BOUNDS, "+Inf"), counts, strict=True):
        yield _line(f"{name}_bucket", {**labels, "le": str(bound)}, count)
    yield _line(f"{name}_sum", labels, durations.seconds)
    yield _line(f"{name}_count", labels, counts[-1])


def _metric(name: str, type: str, help: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# HELP {name} {help}", f"# TYPE {name} {type}", *lines]) + "\n"


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value + 0}" if shown else f"{name} {value + 0}"
