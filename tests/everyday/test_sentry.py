"""Sentry: failed attempts arrive at a real receiver, sent by the real SDK."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

import qbull
from conftest import eventually
from qbull.contrib.sentry import SentryReports

Event = dict[str, Any]


class Receiver:
    """The part of Sentry that takes events: an HTTP server on loopback."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                _, *items = body.split(b"\n")
                for head, content in zip(items[::2], items[1::2], strict=False):
                    if head and json.loads(head)["type"] == "event":
                        receiver.events.append(json.loads(content))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.dsn = f"http://key@127.0.0.1:{self._server.server_port}/1"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(name="receiver")
def open_receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "*")
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(name="sentry")
def init_sentry(receiver: Receiver) -> Iterator[Receiver]:
    """The SDK as an application sets it up, with all its default integrations."""
    sentry_sdk.init(receiver.dsn, _experiments={"transport_compression_algo": "gzip"})
    yield receiver
    sentry_sdk.get_client().close(timeout=5)
    sentry_sdk.get_global_scope().set_client(None)


def reporting(server_url: str, *middleware: qbull.Middleware) -> qbull.App:
    return qbull.App(server_url, prefix="test", middleware=middleware)


async def run(app: qbull.App, enqueue: Callable[[], Any]) -> str:
    """Run one job to its end; its id."""
    async with app, app.worker() as worker:
        job = await enqueue()
        await worker.drain()
        await eventually(lambda: ended(job))
        return str(job.id)


async def ended(job: qbull.Job[Any]) -> bool:
    return await job.state() in ("completed", "failed", "cancelled")


def sent(receiver: Receiver) -> list[Event]:
    sentry_sdk.flush(timeout=20)
    return sorted(receiver.events, key=lambda event: event["timestamp"])


def raised(event: Event) -> tuple[str, str]:
    last = event["exception"]["values"][-1]
    return last["type"], last["value"]


@pytest.mark.usefixtures("store")
async def test_each_failed_attempt_is_an_event_with_its_job(server_url: str, sentry: Receiver) -> None:
    app = reporting(server_url, SentryReports())
    email = app.queue("email", retry=qbull.Retry(delays=(0.01,)))

    @email.task(key="{to}")
    def send(to: str) -> None:
        logging.getLogger("shop").warning("sending to %s", to)
        raise ConnectionError("the mail server is down")

    id = await run(app, lambda: send.enqueue("ada"))

    first, last = sent(sentry)
    assert (first["level"], last["level"]) == ("warning", "error")
    assert raised(first) == raised(last) == ("ConnectionError", "the mail server is down")
    tags = {"qbull.queue": "email", "qbull.task": "send", "qbull.job_id": id}
    assert first["tags"] == tags | {"qbull.state": "delayed"}
    assert last["tags"] == tags | {"qbull.state": "failed"}
    job = {"id": id, "queue": "email", "task": "send", "key": "ada"}
    for attempt, event in enumerate((first, last), 1):
        assert event["contexts"]["job"].items() >= (job | {"attempt": attempt}).items()
    frames = last["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames[-1]["function"] == "send"
    assert last["exception"]["values"][-1]["mechanism"] == {"type": "qbull", "handled": False}
    assert "sending to ada" in [crumb["message"] for crumb in last["breadcrumbs"]["values"]]


@pytest.mark.usefixtures("store")
async def test_retries_are_left_out_if_asked(server_url: str, sentry: Receiver) -> None:
    app = reporting(server_url, SentryReports(retries=False))
    email = app.queue("email", retry=qbull.Retry(delays=(0.01, 0.01)))

    @email.task
    async def send() -> None:
        raise ConnectionError("down")

    await run(app, send.enqueue)

    [event] = sent(sentry)
    assert event["contexts"]["job"]["attempt"] == 3
    assert event["level"] == "error"


@pytest.mark.usefixtures("store")
async def test_no_success_and_no_wish_to_run_later_is_reported(server_url: str, sentry: Receiver) -> None:
    app = reporting(server_url, SentryReports())
    email = app.queue("email")
    tries = 0

    @email.task
    async def send() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise qbull.RetryAfter(0.01, "too many requests")
        return "sent"

    await run(app, send.enqueue)

    assert tries == 2
    assert sent(sentry) == []


@pytest.mark.usefixtures("store")
async def test_a_timeout_is_reported_with_the_line_at_which_the_task_hung(
    server_url: str, sentry: Receiver
) -> None:
    app = reporting(server_url, SentryReports())
    email = app.queue("email", retry=qbull.Retry(attempts=1), timeout=0.05)

    @email.task
    async def hang() -> None:
        await asyncio.Event().wait()

    await run(app, hang.enqueue)

    [event] = sent(sentry)
    kind, text = raised(event)
    assert kind == "TimeoutError" and "longer than its timeout of 0.05 s" in text
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert "hang" in [frame["function"] for frame in frames]


@pytest.mark.usefixtures("store")
async def test_two_jobs_at_a_time_do_not_share_their_log_lines(server_url: str, sentry: Receiver) -> None:
    app = reporting(server_url, SentryReports())
    email = app.queue("email", retry=qbull.Retry(attempts=1))
    both = asyncio.Barrier(2)

    @email.task
    async def send(to: str) -> None:
        logging.getLogger("shop").warning("sending to %s", to)
        await both.wait()
        raise ValueError(to)

    async with app, app.worker() as worker:
        await send.enqueue_many([{"to": "ada"}, {"to": "bob"}])
        await worker.drain()

    events = {raised(event)[1]: event for event in sent(sentry)}
    for name, event in events.items():
        lines = [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
        assert [line for line in lines if line.startswith("sending")] == [f"sending to {name}"]
    assert set(events) == {"ada", "bob"}


PROGRAM = """
import os
import sentry_sdk
import qbull
from qbull.contrib.sentry import SentryReports

sentry_sdk.init(os.environ["SENTRY_DSN"], _experiments={"transport_compression_algo": "gzip"})
app = qbull.App(middleware=[SentryReports()])
email = app.queue("email", retry=qbull.Retry(attempts=1))


@email.task
def send(to: str) -> None:
    raise ConnectionError(f"no route to {to}")


@email.task(cpu=True)
def compute(n: int) -> None:
    raise ValueError(f"{n} is odd")
"""


@pytest.mark.usefixtures("store")
async def test_a_worker_program_reports_from_its_processes(
    server_url: str, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "mail.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "QBULL_URL": server_url,
        "QBULL_PREFIX": "test",
        "SENTRY_DSN": receiver.dsn,
        "PYTHONPATH": str(tmp_path),
    }
    async with qbull.App(server_url, prefix="test") as app:
        email = app.queue("email", retry=qbull.Retry(attempts=1))

        @email.task
        def send(to: str) -> None: ...

        @email.task
        def compute(n: int) -> None: ...

        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "qbull.cli.main", "worker", "mail:app", cwd=tmp_path, env=environment
        )
        try:
            first, second = await send.enqueue("ada"), await compute.enqueue(3)
            await eventually(lambda: both_arrived(receiver), within=60)
        finally:
            program.terminate()
            await program.wait()

    by_id = {event["tags"]["qbull.job_id"]: event for event in receiver.events}
    assert raised(by_id[first.id]) == ("ConnectionError", "no route to ada")
    assert raised(by_id[second.id]) == ("ValueError", "3 is odd")
    assert "compute" in by_id[second.id]["extra"]["traceback"]
    assert len(receiver.events) == 2


async def both_arrived(receiver: Receiver) -> bool:
    return len(receiver.events) >= 2
