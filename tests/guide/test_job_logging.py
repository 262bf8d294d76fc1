"""Logging: lines of tasks name their job, in any program, and the job log has a logger of its own."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import qbull

FORMAT = "%(name)s %(message)s job=%(job_id)s task=%(task)s queue=%(queue)s trace=%(trace_id)s"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The lines of a handler of the application with the filter."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(qbull.JobLogFilter())
    loggers = [logging.getLogger("shop"), logging.getLogger("qbull.jobs"), logging.getLogger("qbull.worker")]
    for logger in loggers:
        logger.addHandler(handler)
    logging.getLogger("shop").setLevel(logging.INFO)
    yield stream
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_a_filter_adds_the_job_to_the_lines_of_any_program(
    app: qbull.App, lines: io.StringIO, kind: str
) -> None:
    shop = logging.getLogger("shop")
    reports = app.queue("reports")

    async def on_the_loop() -> None:
        shop.info("inside")

    def in_a_thread() -> None:
        shop.info("inside")

    task = reports.task(name="render")(on_the_loop if kind == "coroutine" else in_a_thread)
    job = await task.enqueue()
    async with app.worker():
        await job.result(timeout=10)
    shop.info("outside")

    assert lines.getvalue().splitlines() == [
        f"shop inside job={job.id} task=render queue=reports trace=None",
        "shop outside job=None task=None queue=None trace=None",
    ]


async def test_the_job_log_obeys_the_level_of_its_logger(app: qbull.App, lines: io.StringIO) -> None:
    @app.queue("reports").task
    async def render() -> None:
        pass

    async with app.worker() as worker:
        quiet = await render.enqueue()
        await worker.drain()
        logging.getLogger("qbull.jobs").setLevel(logging.INFO)
        loud = await render.enqueue()
        await worker.drain()

    assert quiet.id not in lines.getvalue()
    assert [line.split(": ")[2].split(",")[0] for line in lines.getvalue().splitlines()] == [
        f"attempt 1 job={loud.id} task=render queue=reports trace=None".split(",")[0],
        "completed",
    ]


async def test_a_handler_that_fails_does_not_fail_the_job(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("the disk is full")

    @app.queue("reports").task
    async def render() -> str:
        return "done"

    for name in ("qbull.jobs", "qbull.worker"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [Broken()])
    logging.getLogger("qbull.jobs").setLevel(logging.INFO)
    job = await render.enqueue()
    try:
        async with app.worker():
            assert await job.result(timeout=10) == "done"
    finally:
        logging.getLogger("qbull.jobs").setLevel(logging.NOTSET)


async def test_a_line_has_the_trace_of_the_run_or_of_the_enqueue(
    app: qbull.App, server_url: str, lines: io.StringIO
) -> None:
    provider = TracerProvider()
    seen: list[int] = []

    @app.queue("reports").task
    async def render() -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)
        logging.getLogger("shop").info("inside")

    traced = qbull.App(server_url, prefix="test", trace=True)
    assert traced.tracing is not None
    traced.tracing._tracer = provider.get_tracer("test")
    app.tracing, app._chain = traced.tracing, traced._chain
    await render.enqueue()
    async with app.worker() as worker:
        await worker.drain()
    app.tracing = None
    with trace.use_span(provider.get_tracer("test").start_span("request")) as request:
        await render.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    first, second = lines.getvalue().splitlines()
    assert first.endswith(f"trace={trace.format_trace_id(seen[0])}")
    assert second.endswith(f"trace={trace.format_trace_id(request.get_span_context().trace_id)}")


async def test_a_thread_of_the_task_knows_no_job(app: qbull.App, lines: io.StringIO) -> None:
    @app.queue("reports").task
    def render() -> None:
        thread = threading.Thread(target=logging.getLogger("shop").info, args=["elsewhere"])
        thread.start()
        thread.join()

    job = await render.enqueue()
    async with app.worker():
        await job.result(timeout=10)

    assert "elsewhere job=None" in lines.getvalue()
