"""Trace: OpenTelemetry spans and metrics for the enqueue of a job and for each of its runs.

The spans are linked to each other. Needs `pip install "qbull[otel]"` and App(trace=True). The context
travels in the job's record; without tracing it costs nothing. A run is linked to its enqueue, not a child of
it: it may come much later, and several times. Without an SDK, spans and metrics are dropped. Names and units
are those of OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from qbull.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Link, Span

MESSAGING_SYSTEM = "qbull"
METRIC_ATTRIBUTES = {
    "messaging.system",
    "messaging.destination.name",
    "messaging.operation.name",
    "qbull.task",
}
"""The attributes of spans that metrics have too: those with few values."""


def error_type(error: Exception) -> str:
    """The full name of an exception's class, as OpenTelemetry wants it in `error.type`."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class Tracing:
    def __init__(self) -> None:
        try:
            from opentelemetry import metrics, trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ModuleNotFoundError as error:
            raise ConfigError(f'tracing needs {error.name}; pip install "qbull[otel]"') from None
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("qbull", version("qbull"))
        meter = metrics.get_meter("qbull", version("qbull"))
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that this program has enqueued."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Runs of jobs that this program has started."
        )
        self._send_duration = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Time that an enqueue takes."
        )
        self._process_duration = meter.create_histogram(
            "messaging.process.duration", "s", "Time that a run takes."
        )

    @contextmanager
    def send(self, queue: str, task: str, many: int = 1) -> Iterator[str]:
        """The span around an enqueue; yields the trace context for the jobs' records."""
        attributes = self._attributes("send", queue, task)
        if many != 1:
            attributes["messaging.batch.message_count"] = many
        kind = self._trace.SpanKind.PRODUCER
        with (
            self._tracer.start_as_current_span(f"send {queue}", kind=kind, attributes=attributes) as span,
            self._measured(span, self._sent, self._send_duration, attributes, many),
        ):
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            yield "\n".join(value for name in ("traceparent", "tracestate") if (value := carrier.get(name)))

    @contextmanager
    def process(self, queue: str, task: str, id: str, attempt: int, carried: str) -> Iterator[str]:
        """The span around a run; yields the id of its trace, if there is one.

        Spans of the task itself become its children.
        """
        attributes = self._attributes("process", queue, task)
        attributes |= {"messaging.message.id": id, "qbull.attempt": attempt}
        kind = self._trace.SpanKind.CONSUMER
        with (
            self._tracer.start_as_current_span(
                f"process {queue}", kind=kind, attributes=attributes, links=self._links(carried)
            ) as span,
            self._measured(span, self._consumed, self._process_duration, attributes, 1),
        ):
            trace = span.get_span_context().trace_id
            yield self._trace.format_trace_id(trace) if trace else ""

    def step(self, name: str, queue: str, task: str, id: str) -> AbstractContextManager[object]:
        """The span around a step of a durable task that runs. It is a child of the run's span."""
        attributes = {
            "messaging.destination.name": queue,
            "messaging.message.id": id,
            "qbull.task": task,
            "qbull.step": name,
        }
        return self._tracer.start_as_current_span(f"step {name}", attributes=attributes)

    @contextmanager
    def _measured(
        self,
        span: Span,
        counter: Counter,
        duration: Histogram,
        attributes: Mapping[str, str | int],
        many: int,
    ) -> Iterator[None]:
        """Count and time what happens inside. The class of an exception becomes `error.type`."""
        labels = {name: value for name, value in attributes.items() if name in METRIC_ATTRIBUTES}
        start = time.perf_counter()
        try:
            yield
        except Exception as error:
            labels["error.type"] = error_type(error)
            span.set_attribute("error.type", error_type(error))
            raise
        finally:
            counter.add(many, labels)
            duration.record(time.perf_counter() - start, labels)

    def _attributes(self, operation: str, queue: str, task: str) -> dict[str, str | int]:
        return {
            "messaging.system": MESSAGING_SYSTEM,
            "messaging.destination.name": queue,
            "messaging.operation.type": operation,
            "messaging.operation.name": operation,
            "qbull.task": task,
        }

    def _links(self, carried: str) -> list[Link]:
        if not carried:
            return []
        parent, _, state = carried.partition("\n")
        carrier = {"traceparent": parent} | ({"tracestate": state} if state else {})
        span = self._trace.get_current_span(self._propagator.extract(carrier))
        context = span.get_span_context()
        return [self._trace.Link(context)] if context.is_valid else []
