"""From RQ: the code of the page runs, as a program that was written for RQ and as one of qbull's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from blocks import Page, close_apps  # noqa: F401 - one is a fixture
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

import qbull
from qbull.compat.rq import Job, Queue, Retry, get_current_job
from qbull.store.store import Store


@pytest.fixture
def page(server_url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.setenv("QBULL_URL", server_url)
    return Page("from_rq", tmp_path, server_url)


@pytest.fixture
def mail(page: Page, closing: list[qbull.App]) -> Queue:
    closing.append(app := qbull.App())
    app.queue("mail", concurrency=1, retry=qbull.Retry(attempts=1), timeout=180)
    queue = Queue("mail", connection=app)
    queue.register(note, break_down)
    ran.clear()
    return queue


def run_all(app: qbull.App) -> None:
    async def drain() -> None:
        async with app.worker() as worker:
            await worker.drain()

    app.run_sync(drain())


ran: list[Any] = []


def note(what: Any, more: int = 0) -> str:
    ran.append(what)
    return f"{what} {more}"


def show_headers() -> dict[str, str]:
    return dict(qbull.current_job().headers)


def break_down() -> None:
    job = get_current_job()
    assert job is not None
    ran.append(job.attempt)
    raise ValueError("broken")


def test_the_smallest_change_runs_with_a_worker_of_its_own(
    page: Page, shell: Shell, closing: list[qbull.App], capsys: pytest.CaptureFixture[str]
) -> None:
    program, decorated, refused = page.code("The smallest change")
    shop = page.module("shop", program, decorated)
    closing.append(shop.app)

    shop.place_order(7)
    shell.start("worker", "shop:app")
    thanked = shop.app.run_sync(shop.app.job("mail", "thanks-ann").result(60))
    exec(refused, vars(shop))

    assert thanked == "thank you, ann (thanks-ann)"
    assert shop.done.get_status() == "finished"
    assert Job.fetch("reminder-7", connection=shop.app).get_status() == "scheduled"
    assert capsys.readouterr().out.startswith("enqueue(depends_on=…): use qbull.chain(")
    mail = shop.app.queues["mail"]
    ended = seen(
        lambda: [j for j in shop.app.run_sync(mail.jobs("completed")) if "receipt" in j.task], within=60
    )
    [receipt] = ended
    assert receipt.result == "receipt 7 for ann"


def test_what_is_written_for_rq_there_is_what_rq_takes(page: Page) -> None:
    [before] = page.code("The smallest change", old=True)

    module: ModuleType = page.module("shop_before", before)
    module.place_order(7)

    assert module.mail.count == 1
    module.mail.connection.flushdb()
    module.mail.connection.close()


def test_the_idiomatic_form_runs(page: Page, closing: list[qbull.App]) -> None:
    shop = page.module("shop", *page.code("The idiomatic form"))
    closing.append(shop.app)

    flow = shop.place_order(7)
    shop.app.run_sync(shop.app.job("mail", "reminder-7").cancel())
    run_all(shop.app)

    assert shop.app.run_sync(flow.result(timeout=10)) == "ann has receipt 7 for ann"


def test_a_call_that_fails_runs_again_as_often_as_it_said(mail: Queue) -> None:
    twice = mail.enqueue(break_down, retry=Retry(max=2))
    run_all(mail.app)
    once = mail.enqueue(break_down)
    run_all(mail.app)

    assert ran == [1, 2, 3, 1]
    assert (twice.is_failed, once.is_failed) == (True, True)
    assert "ValueError: broken" in (once.exc_info or "")


def test_middleware_sends_along_what_it_has_beside_the_retries(mail: Queue) -> None:
    class Tenant(qbull.Middleware):
        @contextmanager
        def around_enqueue(self, call: qbull.Enqueueing) -> Iterator[None]:
            call.headers["tenant"] = call.task.rpartition(".")[2]
            yield

    app = qbull.App(middleware=[Tenant()])
    app.queue("mail", retry=qbull.Retry(attempts=1))
    queue = Queue("mail", connection=app)
    queue.register(show_headers)

    job = queue.enqueue(show_headers, retry=Retry(max=1, interval=5))
    run_all(app)

    assert job.return_value() == {"rq.retry": "5", "tenant": "show_headers"}
    app.close_sync()


@pytest.mark.parametrize(("most", "interval"), [(3, [10, 30, 60]), (5, [10, 30]), (2, 7), (1, [1, 2, 3])])
def test_waits_between_runs_are_those_of_rq(most: int, interval: Any) -> None:
    from rq.job import Job as Theirs

    old = Theirs.__new__(Theirs)
    ours = Retry(max=most, interval=interval)
    old.retry_intervals = ours.intervals
    waits = []
    for left in range(most, 0, -1):
        old.retries_left = left
        waits.append(old.get_retry_interval())

    assert ours.header() == ",".join(map(str, waits))


def test_options_of_a_call_arrive(mail: Queue) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

    later = mail.enqueue_at(at, note, "later", ttl=7200)
    local = mail.enqueue_at(at.astimezone().replace(tzinfo=None), note, "local")
    mail.enqueue(note, "b", job_id="b", job_timeout="1h")
    mail.enqueue(f"{__name__}.note", args=("c",), kwargs={"more": 3})
    front = mail.enqueue(note, "first", at_front=True)
    again = mail.enqueue(note, "b", job_id="b")
    due = [mail.app.run_sync(mail.app.job("mail", job.id).info()) for job in (later, local)]
    later.cancel(), local.cancel()
    waiting = len(mail)
    run_all(mail.app)

    assert [info and info.due_at for info in due] == [at, at]
    assert ran == ["first", "b", "c"]
    assert (waiting, again.created, later.get_status(), front.result) == (3, False, "canceled", "first 0")
    fetched = mail.fetch_job("b")
    assert fetched is not None
    assert fetched.kwargs == {"what": "b"}
    assert mail.fetch_job("nobody") is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"depends_on": "x"}, r"enqueue\(depends_on=…\): use qbull.chain\("),
        ({"result_ttl": 5}, r"keep=qbull.Keep\("),
        ({"meta": {}}, "progress_sync"),
        ({"on_stopped": print}, "qbull.Middleware"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"job_timeout": "soon"}, 'job_timeout="soon": give seconds'),
        ({"retry": 3}, r"use Retry\(…\) of qbull.compat.rq"),
    ],
)
def test_what_a_call_cannot_have_is_refused_by_name(mail: Queue, options: dict[str, Any], says: str) -> None:
    with pytest.raises(qbull.ArgumentsError, match=says):
        mail.enqueue(note, "x", **options)

    assert mail.count == 0


def test_what_is_not_there_says_what_to_use(mail: Queue) -> None:
    with pytest.raises(qbull.NotFound, match="is not registered, so no worker would run it"):
        mail.enqueue("os.system", "true")
    with pytest.raises(qbull.ConfigError, match=r"pass the app: connection=qbull.App"):
        Queue("mail", connection=object())  # type: ignore[arg-type]
    with pytest.raises(qbull.ConfigError, match="is_async=…"):
        Queue("mail", connection=mail.app, is_async=False)
    with pytest.raises(ImportError, match="Worker: run: qbull worker MODULE:APP"):
        from qbull.compat.rq import Worker  # noqa: F401
    with pytest.raises(AttributeError, match=r"Queue.deferred_job_registry: use the command line"):
        _ = mail.deferred_job_registry
    with pytest.raises(qbull.NotFound, match=r"add queue.register_callbacks\(function\)"):
        mail.enqueue(note, "x", on_failure=print)
    with pytest.raises(qbull.DeclarationError, match="methods and inner functions"):
        mail.register(lambda: None)
    assert get_current_job() is None
