"""Trace: OpenTelemetry spans for the enqueue of a job and for each of its runs, linked to each other.

Needs `pip install "qbull[otel]"` and App(trace=True). The context travels in the job's record; without
tracing it costs nothing. A run is linked to its enqueue, not a child of it: it may come much later, and
several times. Without an SDK, spans are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from qbull.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import Link

MESSAGING_SYSTEM = "qbull"


class Tracing:
    def __init__(self) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ModuleNotFoundError as error:
            raise ConfigError(f'tracing needs {error.name}; pip install "qbull[otel]"') from None
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("qbull", version("qbull"))

    @contextmanager
    def send(self, queue: str, task: str, many: int = 1) -> Iterator[str]:
        """The span around an enqueue; yields the trace context for the jobs' records."""
        attributes = self._attributes("send", queue, task)
        if many != 1:
            attributes["messaging.batch.message_count"] = many
        kind = self._trace.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"send {queue}", kind=kind, attributes=attributes):
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
        with self._tracer.start_as_current_span(
            f"process {queue}", kind=kind, attributes=attributes, links=self._links(carried)
        ) as span:
            trace = span.get_span_context().trace_id
            yield self._trace.format_trace_id(trace) if trace else ""

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
