"""Tracing: a span for each enqueue and for each run, linked to each other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import qbull

EXPORTER = InMemorySpanExporter()
METRICS = InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def set_up_telemetry() -> None:
    """A process has one provider."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider(metric_readers=[METRICS]))


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    EXPORTER.clear()
    yield EXPORTER
    EXPORTER.clear()


@pytest.fixture(name="traced")
async def open_traced(server_url: str, app: qbull.App) -> qbull.App:
    """An app with tracing beside the one that is looked at afterwards."""
    other = qbull.App(server_url, prefix="test", trace=True)
    app.tracing, app._chain = other.tracing, other._chain
    return app


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


async def test_a_run_is_linked_to_its_enqueue(traced: qbull.App, spans: InMemorySpanExporter) -> None:
    email = traced.queue("email")

    @email.task
    async def verify(user_id: str) -> None:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            pass

    with trace.get_tracer("shop").start_as_current_span("request") as request:
        job = await verify.enqueue("u1")
    async with traced.worker() as worker:
        await worker.drain()

    [sent], [run], [inside] = (
        named(spans, "send email"),
        named(spans, "process email"),
        named(spans, "inside"),
    )
    assert (sent.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent is not None and sent.parent.span_id == request.get_span_context().span_id
    assert [link.context.span_id for link in run.links] == [sent.context.span_id]
    assert run.parent is None and inside.parent is not None and inside.parent.span_id == run.context.span_id
    assert run.attributes is not None
    assert (run.attributes["messaging.message.id"], run.attributes["qbull.task"]) == (job.id, "verify")


async def test_every_attempt_has_its_span_and_its_error(
    traced: qbull.App, spans: InMemorySpanExporter
) -> None:
    email = traced.queue("email", retry=qbull.Retry(delays=(0,)))

    @email.task
    async def bounce() -> None:
        raise ValueError("no mailbox")

    await bounce.enqueue()
    async with traced.worker() as worker:
        await worker.drain()

    runs = named(spans, "process email")
    [sent] = named(spans, "send email")
    assert [run.attributes["qbull.attempt"] for run in runs if run.attributes is not None] == [1, 2]
    assert {run.status.status_code for run in runs} == {StatusCode.ERROR}
    assert all(run.links[0].context.span_id == sent.context.span_id for run in runs)
    assert "no mailbox" in str(runs[0].events[0].attributes)
    assert [run.attributes["error.type"] for run in runs if run.attributes is not None] == ["ValueError"] * 2
    assert sent.attributes is not None and "error.type" not in sent.attributes


async def test_enqueues_and_runs_are_counted_and_timed(traced: qbull.App) -> None:
    metrics_queue = traced.queue("measured", retry=qbull.Retry(attempts=1))

    @metrics_queue.task
    async def verify(n: int) -> None:
        if n == 2:
            raise qbull.Fail("no mailbox")

    await verify.enqueue_many([{"n": n} for n in range(3)])
    async with traced.worker() as worker:
        await worker.drain()

    def points(name: str) -> list[tuple[object, object]]:
        """The value or the count of each series of the queue, by its error."""
        data = METRICS.get_metrics_data()
        assert data is not None
        return sorted(
            (point.attributes.get("error.type", ""), getattr(point, "value", getattr(point, "count", None)))
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if point.attributes["messaging.destination.name"] == "measured"
        )

    assert points("messaging.client.sent.messages") == [("", 3)]
    assert points("messaging.client.operation.duration") == [("", 1)]
    assert points("messaging.client.consumed.messages") == [("", 2), ("qbull.errors.Fail", 1)]
    assert points("messaging.process.duration") == [("", 2), ("qbull.errors.Fail", 1)]


async def test_an_enqueue_that_fails_names_its_error(
    traced: qbull.App, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    email = traced.queue("email")

    @email.task
    async def verify() -> None: ...

    async def refuse(*_: object) -> None:
        raise qbull.ServerRefused("read-only")

    monkeypatch.setattr(email._producer, "send", refuse)
    with pytest.raises(qbull.ServerRefused):
        await verify.enqueue()

    [sent] = named(spans, "send email")
    assert sent.attributes is not None and sent.attributes["error.type"] == "qbull.errors.ServerRefused"


async def test_many_jobs_have_one_span(traced: qbull.App, spans: InMemorySpanExporter) -> None:
    email = traced.queue("email")

    @email.task
    async def verify(n: int) -> None: ...

    await verify.enqueue_many([{"n": n} for n in range(3)])
    async with traced.worker() as worker:
        await worker.drain()

    [sent] = named(spans, "send email")
    assert sent.attributes is not None and sent.attributes["messaging.batch.message_count"] == 3
    assert {run.links[0].context.span_id for run in named(spans, "process email")} == {sent.context.span_id}


async def test_plain_functions_see_their_span_too(traced: qbull.App, spans: InMemorySpanExporter) -> None:
    email = traced.queue("email")

    @email.task
    def render() -> None:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            pass

    await render.enqueue()
    async with traced.worker() as worker:
        await worker.drain()

    [run], [inside] = named(spans, "process email"), named(spans, "inside")
    assert inside.parent is not None and inside.parent.span_id == run.context.span_id


async def test_without_tracing_nothing_is_carried(app: qbull.App, spans: InMemorySpanExporter) -> None:
    email = app.queue("email")

    @email.task
    async def verify() -> None: ...

    with trace.get_tracer("shop").start_as_current_span("request"):
        await verify.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    assert {span.name for span in spans.get_finished_spans()} == {"request"}


async def test_a_retry_by_hand_keeps_the_link(traced: qbull.App, spans: InMemorySpanExporter) -> None:
    email = traced.queue("email", retry=qbull.Retry(attempts=1))

    @email.task
    async def bounce() -> None:
        raise ValueError

    job = await bounce.enqueue()
    async with traced.worker() as worker:
        await worker.drain()
        await job.retry()
        await worker.drain()

    runs = named(spans, "process email")
    assert len(runs) == 2 and len({run.links[0].context.span_id for run in runs}) == 1


async def test_a_job_that_carries_nothing_has_a_span_and_no_link(
    traced: qbull.App, spans: InMemorySpanExporter
) -> None:
    chain, traced._chain = traced._chain, None
    email = traced.queue("email")

    @email.task
    async def verify() -> None: ...

    await verify.enqueue()
    traced._chain = chain
    async with traced.worker() as worker:
        await worker.drain()

    [run] = named(spans, "process email")
    assert not run.links


async def test_what_is_enqueued_from_synchronous_code_is_linked_too(
    traced: qbull.App, spans: InMemorySpanExporter
) -> None:
    email = traced.queue("email")

    @email.task
    async def verify() -> None: ...

    def request() -> None:
        with trace.get_tracer("shop").start_as_current_span("request"):
            verify.enqueue_sync()

    await asyncio.to_thread(request)
    async with traced.worker() as worker:
        await worker.drain()

    [asked], [sent], [run] = (named(spans, name) for name in ("request", "send email", "process email"))
    assert sent.parent is not None and sent.parent.span_id == asked.context.span_id
    assert [link.context.span_id for link in run.links] == [sent.context.span_id]


def test_without_tracing_nothing_of_it_is_imported() -> None:
    propagator = "opentelemetry.trace.propagation.tracecontext"  # the Redis client imports other parts of it
    code = f"import qbull, sys; qbull.App('redis://localhost'); assert '{propagator}' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_installation_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError('no', name='opentelemetry')")
    code = "import qbull; qbull.App('redis://localhost', trace=True)"

    ended = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )

    assert 'tracing needs opentelemetry; pip install "qbull[otel]"' in ended.stderr


async def test_a_step_that_runs_has_a_span_below_its_run_and_a_recorded_one_has_none(
    traced: qbull.App, spans: InMemorySpanExporter
) -> None:
    orders = traced.queue("orders", retry=qbull.Retry(attempts=2, delay=0))
    tries: list[int] = []

    async def charge(order: int) -> int:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            return order

    def ship(order: int) -> int:
        tries.append(order)
        if len(tries) == 1:
            raise ConnectionError("no truck")
        return order

    @orders.task(durable=True)
    async def fulfil(order: int) -> int:
        job = qbull.current_job()
        await job.step(charge, order)
        return await job.step(ship, order)

    @orders.task(durable=True)
    def invoice(order: int) -> int:
        return qbull.current_job().step_sync(ship, order)

    job = await fulfil.enqueue(7)
    async with traced.worker():
        assert await job.result(timeout=20) == 7
        assert await (await invoice.enqueue(8)).result(timeout=20) == 8

    (charged,) = named(spans, "step charge")
    (inside,) = named(spans, "inside")
    first, second, plain = sorted(named(spans, "step ship"), key=lambda span: span.start_time or 0)
    runs = sorted(named(spans, "process orders"), key=lambda span: span.start_time or 0)
    parents = [step.parent.span_id if step.parent else None for step in (charged, first, second, plain)]
    ids = [run.context.span_id for run in runs if run.context]
    assert parents == [ids[0], ids[0], ids[1], ids[2]]
    assert inside.parent is not None and charged.context is not None
    assert inside.parent.span_id == charged.context.span_id
    assert dict(charged.attributes or {}) == {
        "messaging.destination.name": "orders",
        "messaging.message.id": job.id,
        "qbull.task": "fulfil",
        "qbull.step": "charge",
    }
    assert [step.status.status_code for step in (first, second)] == [StatusCode.ERROR, StatusCode.UNSET]
