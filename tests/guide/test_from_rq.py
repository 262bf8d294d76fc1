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
from qbull.compat.rq import (
    Dependency,
    Job,
    Queue,
    Repeat,
    Retry,
    cancel_job,
    cron,
    get_current_job,
    requeue_job,
)
from qbull.compat.rq.decorators import job as rq_job
from qbull.compat.rq.exceptions import DuplicateJobError, NoSuchJobError
from qbull.compat.rq.job import Callback, JobStatus
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
    program, decorated, dependent, with_meta, grouped, refused = page.code("The smallest change")
    shop = page.module("shop", program, decorated)
    closing.append(shop.app)

    shop.place_order(7)
    shell.start("worker", "shop:app")
    thanked = shop.app.run_sync(shop.app.job("mail", "thanks-ann").result(60))
    exec(dependent, vars(shop))
    exec(with_meta, vars(shop))
    exec(grouped, vars(shop))
    exec(refused, vars(shop))

    assert thanked == "thank you, ann (thanks-ann)"
    assert shop.done.get_status() == "finished"
    assert Job.fetch("reminder-7", connection=shop.app).get_status() == "scheduled"
    assert capsys.readouterr().out.startswith("enqueue(on_stopped=…): use qbull.Middleware")
    mail = shop.app.queues["mail"]
    ended = seen(
        lambda: [j for j in shop.app.run_sync(mail.jobs("completed")) if j.result == "receipt 7 for ann"],
        within=60,
    )
    assert len(ended) == 1
    assert seen(lambda: shop.thanks.is_finished, within=60)
    assert shop.importing.get_meta() == {"tenant": "ann"}, (
        "its function was registered after the worker started"
    )
    assert len(shop.monday.get_jobs()) == 2


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
        ({"depends_on": "x"}, "depends_on: job x: no queue of this app has it"),
        ({"result_ttl": -1}, r'queue "mail" does not keep jobs forever.*keep=qbull.Keep\('),
        ({"failure_ttl": 90 * 86400}, "does not keep jobs for 7776000 seconds"),
        ({"meta": [1]}, "give a dictionary"),
        ({"group_id": "g"}, "unexpected keyword argument 'group_id'"),
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
    with pytest.raises(qbull.ConfigError, match="job_class=…"):
        Queue("mail", connection=mail.app, job_class=Job)
    with pytest.raises(ImportError, match="SpawnWorker: run: qbull worker MODULE:APP"):
        from qbull.compat.rq import SpawnWorker  # noqa: F401
    with pytest.raises(qbull.NotFound, match=r"add queue.register_callbacks\(function\)"):
        mail.enqueue(note, "x", on_failure=print)
    with pytest.raises(qbull.DeclarationError, match="methods and lambda functions"):
        mail.register(lambda: None)
    assert get_current_job() is None


def test_a_call_runs_after_the_jobs_that_it_depends_on(mail: Queue) -> None:
    other = Queue("other", connection=mail.app)
    other.register(note)
    first, second = mail.enqueue(note, "first"), other.enqueue(note, "second")
    both = mail.enqueue(note, "both", depends_on=[first, second.id])
    last = mail.enqueue(note, "last", job_id="last", depends_on=both)

    assert (both.get_status(), last.is_deferred, mail.count) == ("deferred", True, 1)
    assert mail.deferred_job_registry.get_job_ids() == [both.id, "last"]
    assert mail.scheduled_job_registry.count == 0
    assert (both.dependency_ids, both.dependency) == ([first.id, second.id], first)
    assert (first.dependent_ids, last.fetch_dependencies()) == ([both.id], [both])
    run_all(mail.app)

    assert sorted(ran[:2]) == ["first", "second"]
    assert ran[2:] == ["both", "last"]
    assert (last.return_value(), mail.deferred_job_registry.count) == ("last 0", 0)


def test_a_job_that_has_finished_before_does_not_delay_a_call(mail: Queue) -> None:
    first = mail.enqueue(note, "first")
    run_all(mail.app)

    then = mail.enqueue(note, "then", depends_on=first)
    run_all(mail.app)

    assert (ran, then.is_finished) == (["first", "then"], True)


def test_a_failure_stops_a_call_unless_it_allows_it(mail: Queue) -> None:
    failing = mail.enqueue(break_down)
    stopped = mail.enqueue(note, "stopped", depends_on=failing)
    allowed = mail.enqueue(note, "allowed", depends_on=Dependency(failing, allow_failure=True))
    front = mail.enqueue(
        note, "front", depends_on=Dependency([failing.id], allow_failure=True, enqueue_at_front=True)
    )
    run_all(mail.app)

    assert (stopped.get_status(), allowed.get_status(), front.get_status()) == (
        "failed",
        "finished",
        "finished",
    )
    assert "stopped" not in ran
    assert "ValueError: broken" in (stopped.exc_info or "")


def test_a_dependency_names_jobs(mail: Queue) -> None:
    created = Job.create(note, ("x",))

    with pytest.raises(ValueError, match="give at least one job"):
        Dependency([])
    with pytest.raises(ValueError, match="is neither a job nor the id of one"):
        Dependency([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="is not enqueued yet"):
        mail.enqueue(note, "x", depends_on=created)
    assert mail.enqueue(note, "x", depends_on=[]).get_status() == "queued"


def test_a_signed_app_knows_the_jobs_that_a_call_depends_on(
    server_url: str, page: Page, closing: list[qbull.App]
) -> None:
    closing.append(
        app := qbull.App(server_url, prefix="test", middleware=[qbull.Signed([qbull.Signed.new_key()])])
    )
    queue = Queue("signed", connection=app)
    queue.register(note)
    ran.clear()

    first = queue.enqueue(note, "first")
    then = queue.enqueue(note, "then", depends_on=first)
    run_all(app)

    assert (ran, then.return_value()) == (["first", "then"], "then 0")


def retry_twice() -> Any:
    job = get_current_job()
    assert job is not None
    ran.append((job.attempt, job.retries_left))
    return Retry(max=2) if job.attempt < 3 else "done"


def always_retry() -> Retry:
    ran.append("again")
    return Retry(max=1)


def test_a_function_may_return_a_retry(mail: Queue) -> None:
    mail.register(retry_twice, always_retry)

    done, failed = mail.enqueue(retry_twice), mail.enqueue(always_retry)
    run_all(mail.app)

    assert (done.return_value(), ran.count("again"), failed.is_failed) == ("done", 2, True)
    assert "has had all its retries" in (failed.exc_info or "")
    assert isinstance(always_retry(), Retry)


def test_many_calls_are_checked_before_the_first_is_sent(mail: Queue) -> None:
    good = [Queue.prepare_data(note, (n,), job_id=f"n-{n}") for n in range(5)]

    with pytest.raises(qbull.ArgumentsError, match="missing a required argument"):
        mail.enqueue_many([*good, Queue.prepare_data(note)])
    assert mail.is_empty()
    with pytest.raises(qbull.ArgumentsError, match=r"enqueue_many\(pipeline=…\): use task"):
        mail.enqueue_many(good, pipeline=object())
    jobs = mail.enqueue_many(good)

    assert [job.id for job in jobs] == [f"n-{n}" for n in range(5)]
    assert [mail.get_job_position(job) for job in jobs] == [job.get_position() for job in jobs]
    assert sorted(job.get_position() for job in jobs if job) == [0, 1, 2, 3, 4]
    assert (mail.empty(), mail.is_empty(), mail.get_job_position("n-0")) == (5, True, None)


def test_states_and_names_are_those_of_rq(mail: Queue) -> None:
    created = Job.create(note, ("x",), timeout="1m")
    assert created.get_status() == JobStatus.CREATED
    job = mail.enqueue_job(created)

    assert job.get_status() is JobStatus.QUEUED
    assert (str(mail), sorted([mail, Queue("a", connection=mail.app)])[0].name) == ("<Queue mail>", "a")
    assert (job.timeout, job.connection, mail.connection) == (60, mail.app, mail.app)
    cancel_job(job.id, connection=mail.app)
    assert job.get_status() == JobStatus.CANCELED
    assert requeue_job(job.id, connection=mail.app).is_queued
    with pytest.raises(qbull.ArgumentsError, match="allow_failure=True"):
        job.cancel(enqueue_dependents=True)
    with pytest.raises(TypeError, match="give a tuple or a list"):
        Job.create(note, "x")
    with pytest.raises(AttributeError, match=r"Job.perform: call the function"):
        job.perform()
    assert Callback(note).name == f"{__name__}.note"


def test_retries_and_repeats_that_are_left_are_known(mail: Queue) -> None:
    job = mail.enqueue(note, "x", retry=Retry(max=3), repeat=Repeat(times=2, interval=5), result_ttl=60)

    assert (job.retries_left, job.repeats_left) == (3, 2)
    job.delete()
    with pytest.raises(NoSuchJobError):
        _ = job.retries_left


def test_a_unique_call_is_refused_if_its_id_is_taken(mail: Queue) -> None:
    first = mail.enqueue(note, "x", job_id="one", unique=True)

    with pytest.raises(DuplicateJobError, match="there is a job one already"):
        mail.enqueue(note, "y", job_id="one", unique=True)
    with pytest.raises(ValueError, match="give job_id"):
        mail.enqueue(note, "y", unique=True)
    assert (first.created, mail.count) == (True, 1)


def test_deleting_a_job_deletes_those_that_depend_on_it_if_asked(mail: Queue) -> None:
    first = mail.enqueue(note, "first")
    then = mail.enqueue(note, "then", depends_on=first)

    first.delete(delete_dependents=True)

    assert (first.get_status(), then.get_status(), mail.count) == (None, None, 0)


def test_only_json_is_a_serializer(mail: Queue) -> None:
    class JSONSerializer: ...

    class PickleSerializer: ...

    assert Queue("mail", connection=mail.app, serializer=JSONSerializer).name == "mail"
    assert Queue("mail", connection=mail.app, serializer="json").name == "mail"
    with pytest.raises(qbull.ConfigError, match=r"serializer=PickleSerializer.*nothing is pickled"):
        Queue("mail", connection=mail.app, serializer=PickleSerializer)


def test_the_decorator_is_where_rq_has_it(mail: Queue) -> None:
    declared = rq_job(mail, retry=Retry(max=2))(decorated)

    job = declared.enqueue("x", retry=Retry(max=1))  # type: ignore[attr-defined]

    assert job.retries_left == 1


def decorated(what: str) -> str:
    return what


def test_schedules_of_rq_cron_run_without_a_scheduler(mail: Queue) -> None:
    cron.register(
        note, "mail", ("nightly",), {"more": 2}, cron="30 2 * * *", connection=mail.app, result_ttl=60
    )
    cron.CronScheduler(connection=mail.app).register(
        note, "mail", args=["often"], interval=3600, name="often"
    )

    async def run_once() -> Any:
        async with mail.app.worker():
            await mail.app.schedules.run("often")
            return await mail.app.schedules.list()

    listed = mail.app.run_sync(run_once())
    run_all(mail.app)

    assert {schedule.name: (schedule.cron, schedule.every) for schedule in listed} == {
        f"{__name__}.note": ("30 2 * * *", None),
        "often": (None, 3600),
    }
    assert ran == ["often"]


def test_a_schedule_of_rq_cron_that_cannot_work_is_refused(mail: Queue) -> None:
    for options, says in (
        ({}, "give either interval"),
        ({"interval": 5, "cron": "* * * * *"}, "give either interval"),
        ({"interval": 5, "job_timeout": 5}, "default_timeout="),
        ({"interval": 5, "args": (1, 2, 3)}, "too many positional arguments"),
        ({"interval": 5, "args": ("x",), "result_ttl": -1}, "does not keep jobs forever"),
    ):
        with pytest.raises(qbull.ArgumentsError, match=says):
            cron.register(note, "mail", connection=mail.app, **options)  # type: ignore[arg-type]
    assert mail.app.declared == {}
