"""Traces, metrics and logs over OTLP/HTTP, by OpenTelemetry's SDK (the extra `telemetry`), which is loaded here alone.

The rules this file keeps: no call waits for a collector, so what it does not take in time is dropped; and a collector
that is not there keeps the gateway from neither starting nor ending. Nor is more read of its answer than an error has.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from toolgate.config import Config
from toolgate.telemetry import names
from toolgate.telemetry.access_log import LOGGER
from toolgate.telemetry.recorder import Recorder
from toolgate.telemetry.spans import Attributes, Tracer, module
from toolgate.telemetry.usage import BY_KIND, COUNTED, Called, Durations, Usage

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds for a collector's answer, and for what is left at the end
MOST_READ = 4096  # bytes of an answer
NEEDED = "`telemetry.endpoint` needs the extra `telemetry`: pip install 'toolgate[telemetry]'"
SCOPE = "toolgate"


@asynccontextmanager
async def opened(config: Config, version: str, recorder: Recorder) -> AsyncGenerator[None]:
    """Has all that the configuration wants sent to its collector, for as long as the block. Nothing is sent without
    the extra; the log says so."""
    if not config.telemetry.endpoint:
        yield
        return
    try:
        sender = Sender(config, version, recorder)
    except ImportError:
        log.warning("nothing is sent to %s: %s", config.telemetry.endpoint, NEEDED)
        yield
        return
    try:
        yield
    finally:
        await sender.close()


def session() -> Any:
    """Of the library `requests`, which would read all of an answer, however long it is and whatever it decodes to."""
    found = importlib.import_module("requests").Session()
    adapter = importlib.import_module("requests.adapters").HTTPAdapter()
    whole = adapter.send

    def send(request: Any, **more: Any) -> Any:
        response = whole(request, **more)
        response._content = response.raw.read(MOST_READ, decode_content=False)
        response._content_consumed = True
        response.raw.close()  # the connection stays where that was all
        return response

    adapter.send = send
    found.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        found.mount(scheme, adapter)
    return found


class Sender:
    """What sends, each kind in a thread of its own."""

    def __init__(self, config: Config, version: str, recorder: Recorder) -> None:
        wanted = config.telemetry
        base = wanted.endpoint.rstrip("/")
        about = {"service.name": wanted.service, "service.version": version}
        about["service.instance.id"] = secrets.token_hex(8)
        resource = module("sdk.resources").Resource.create(about)
        self._closers: list[Callable[[], object]] = []
        self._recorder = recorder
        if wanted.traces:
            exporter = module("exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter
            self._trace(exporter(f"{base}/v1/traces", timeout=PATIENCE, session=session()), resource, wanted.sample)
        if wanted.metrics:
            exporter = module("exporter.otlp.proto.http.metric_exporter").OTLPMetricExporter
            metrics = Metrics(
                exporter(f"{base}/v1/metrics", timeout=PATIENCE, session=session()), resource, recorder.usage
            )
            self._closers.append(Pushing(metrics.push, wanted.interval).close)
        if wanted.logs:
            exporter = module("exporter.otlp.proto.http._log_exporter").OTLPLogExporter
            self._log(exporter(f"{base}/v1/logs", timeout=PATIENCE, session=session()), resource)
        log.info("traces, metrics and logs are sent to %s", base)

    def _trace(self, exporter: Any, resource: Any, sample: int) -> None:
        trace, sampling = module("sdk.trace"), module("sdk.trace.sampling")
        sampler = sampling.ParentBased(sampling.TraceIdRatioBased(sample / 100))
        provider = trace.TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(module("sdk.trace.export").BatchSpanProcessor(exporter))
        self._closers.append(provider.shutdown)
        self._recorder.tracer = Tracer(provider.get_tracer(SCOPE))

    def _log(self, exporter: Any, resource: Any) -> None:
        logs = module("sdk._logs")
        provider = logs.LoggerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_log_record_processor(module("sdk._logs.export").BatchLogRecordProcessor(exporter))
        handler = Logs(provider)
        loggers = [logging.getLogger("toolgate"), logging.getLogger(LOGGER)]
        for logger in loggers if not loggers[1].propagate else loggers[:1]:
            logger.addHandler(handler)
            self._closers.append(lambda logger=logger: logger.removeHandler(handler))
        self._closers.append(provider.shutdown)

    async def close(self) -> None:
        """What is left is sent, if that goes fast."""
        self._recorder.tracer = None
        threads = [threading.Thread(target=close, daemon=True) for close in self._closers]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(_join, threads)


def _join(threads: Iterable[threading.Thread]) -> None:
    until = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


# Metrics: what `Usage` has counted, as it is.


class Pushing:
    """A thread that does something every so many seconds, and once more at the end."""

    def __init__(self, push: Callable[[], object], seconds: float) -> None:
        self._push, self._seconds = push, seconds
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ends.wait(self._seconds):
            self._push()
        self._push()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


class Metrics:
    def __init__(self, exporter: Any, resource: Any, usage: Usage) -> None:
        self._exporter, self._resource, self._usage = exporter, resource, usage
        self._sdk = module("sdk.metrics.export")
        self._scope = module("sdk.util.instrumentation").InstrumentationScope(SCOPE)
        self._since = time.time_ns()

    def push(self) -> None:
        try:
            self._exporter.export(self._found())
        except Exception as error:  # noqa: BLE001  the rescue: another push follows
            log.warning("metrics could not be sent: %s", type(error).__name__)

    def _found(self) -> Any:
        sdk = self._sdk
        metrics = [*self._counts(), *self._durations()]
        scoped = sdk.ScopeMetrics(self._scope, metrics, "")
        return sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scoped], "")])

    def _counts(self) -> Iterator[Any]:
        lines = [(_attributes(called), line) for called, line in self._usage.lines().items()]
        for name, unit, about, of in COUNTED:
            yield self._sum(name, unit, about, ((labels, of(line)) for labels, line in lines))
        for name, about, kind, counts_of in BY_KIND:
            samples = (
                ({**labels, kind: each}, count) for labels, line in lines for each, count in counts_of(line).items()
            )
            yield self._sum(name, "{call}", about, samples)

    def _sum(self, name: str, unit: str, about: str, samples: Iterable[tuple[Attributes, float]]) -> Any:
        sdk, now = self._sdk, time.time_ns()
        points = [sdk.NumberDataPoint(labels, self._since, now, value) for labels, value in samples]
        return sdk.Metric(name, about, unit, sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, True))

    def _durations(self) -> Iterator[Any]:
        timed = list(self._usage.timed())
        of_served = [(called, served) for called, served, _ in timed]
        of_sent = [(called, sent) for called, _, sent in timed]
        for name, found in ((names.SERVED, of_served), (names.SENT, of_sent)):
            points = [
                self._point({**_attributes(called), **({names.ERROR: error} if error else {})}, durations)
                for called, by_error in found
                for error, durations in by_error.items()
            ]
            data = self._sdk.Histogram(points, self._sdk.AggregationTemporality.CUMULATIVE)
            yield self._sdk.Metric(name, "", "s", data)

    def _point(self, attributes: Attributes, durations: Durations) -> Any:
        counts, extremes = list(durations.counts), (None, None)
        spread = (sum(counts), durations.seconds, counts, names.BOUNDS, *extremes)
        return self._sdk.HistogramDataPoint(attributes, self._since, time.time_ns(), *spread)


def _attributes(called: Called) -> Attributes:
    told = {names.PRINCIPAL: called.principal, names.METHOD: called.method, names.SERVER: called.server}
    told[names.TOOL] = called.tool
    return {name: value for name, value in told.items() if value}


# Logs.


class Logs(logging.Handler):
    """Hands on what is logged, as it was written for people; `redaction.quiet_logs` takes secrets out of it before."""

    def __init__(self, provider: Any) -> None:
        super().__init__()
        self._logger = provider.get_logger(SCOPE)
        self._severities = module("_logs").SeverityNumber

    def emit(self, record: logging.LogRecord) -> None:
        severity = self._severities(max(1, min(24, record.levelno // 10 * 4 + 1)))
        self._logger.emit(
            timestamp=int(record.created * 1e9),
            severity_number=severity,
            severity_text=record.levelname,
            body=record.getMessage(),
            attributes={"logger": record.name},
        )
