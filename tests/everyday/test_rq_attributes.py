"""Attributes and methods of RQ's documentation: what a call was made with, jobs that are made first, limits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import qbull
from qbull.compat.rq import Callback, Job, Queue, Repeat, Retry, Worker, job
from qbull.compat.rq.exceptions import DuplicateJobError, InvalidJobOperation
from qbull.compat.rq.serializers import JSONSerializer
from qbull.store.store import Store

ran: list[Any] = []


def note(what: Any = None) -> Any:
    ran.append(what)
    return what


async def note_in_a_coroutine(what: Any) -> Any:
    ran.append(what)
    return what


def report(*_: Any) -> None: ...


@pytest.fixture
def app(server_url: str, store: Store) -> Iterator[qbull.App]:
    ran.clear()
    app = qbull.App(server_url, prefix="test")
    yield app
    app.close_sync()


@pytest.fixture
def queue(app: qbull.App) -> Queue:
    queue = Queue("default", connection=app)
    queue.register(note, note_in_a_coroutine)
    queue.register_callbacks(report)
    return queue


def test_a_job_knows_the_options_of_its_call(app: qbull.App, queue: Queue) -> None:
    sent = queue.enqueue(
        note,
        job_id="a",
        ttl=60,
        result_ttl=30,
        failure_ttl=40,
        retry=Retry(max=3, interval=[5, 10]),
        repeat=Repeat(times=3, interval=[5, 10]),
        on_success=Callback(report),
        on_failure=report,
    )
    plain = queue.enqueue(note)

    for given in (sent, Job.fetch("a", connection=app)):
        assert (given.ttl, given.get_ttl(), given.result_ttl, given.failure_ttl) == (60, 60, 30, 40)
        assert (given.retries_left, given.retry_intervals, given.get_retry_interval()) == (3, [5, 10], 5)
        assert (given.repeats_left, given.repeat_intervals) == (3, [5, 10])
        assert (given.success_callback, given.failure_callback, given.func) == (report, report, note)
        assert given.should_retry
    assert (plain.ttl, plain.get_ttl(7), plain.result_ttl, plain.get_result_ttl(8)) == (None, 7, None, 8)
    assert (plain.retries_left, plain.retry_intervals, plain.get_retry_interval()) == (None, None, 0)
    assert (plain.repeats_left, plain.repeat_intervals, plain.should_retry) == (None, None, False)
    assert (plain.success_callback, plain.failure_callback) == (None, None)


@pytest.mark.parametrize("intervals", [[7], [1, 2], [1, 2, 3], [5, 5, 9], [9, 5, 5]])
def test_the_intervals_are_those_of_rq(queue: Queue, intervals: list[int]) -> None:
    from rq.job import Retry as TheirRetry
    from rq.repeat import Repeat as TheirRepeat

    sent = queue.enqueue(note, retry=Retry(max=3, interval=intervals), repeat=Repeat(3, intervals))

    for number in range(5):
        assert Retry.get_interval(number, intervals) == TheirRetry.get_interval(number, intervals)
        assert Repeat.get_interval(number, intervals) == TheirRepeat.get_interval(number, intervals)
    assert Retry(max=3, interval=sent.retry_intervals or []).header() == Retry(3, intervals).header()
    assert Repeat(3, sent.repeat_intervals or []).header() == Repeat(3, intervals).header()


def test_a_job_that_is_made_first_follows_what_was_sent(app: qbull.App, queue: Queue) -> None:
    created = queue.create_job(note, ("x",), job_id="one", ttl=30)
    assert (created.get_status(), created.ttl, created.get_ttl(), created.func) == ("created", 30, 30, note)

    queue.schedule_job(created, datetime.now(UTC) + timedelta(hours=1), unique=True)

    assert created.get_status() == "scheduled"
    assert created == Job.fetch("one", app)
    assert Job.fetch("one", app) == created != queue.create_job(note)
    for send in (
        lambda twin: queue.enqueue_job(twin, unique=True),
        lambda twin: queue.schedule_job(twin, datetime.now(UTC), unique=True),
    ):
        with pytest.raises(DuplicateJobError, match="one"):
            send(queue.create_job(note, job_id="one"))
        with pytest.raises(ValueError, match="give the job an id"):
            send(queue.create_job(note))
    after = queue.enqueue(note, "after", depends_on=queue.enqueue_job(queue.create_job(note, ("first",))))
    Worker([queue]).work(burst=True)
    assert (ran, after.get_status()) == (["first", "after"], "finished")


def test_wrong_arguments_raise_what_rq_raises(queue: Queue) -> None:
    for options in (
        {"job_id": "a:b"},
        {"job_id": "bad id"},
        {"ttl": 0},
        {"job_timeout": 0},
        {"retry": 3},
        {"retry": Retry(max=1, enqueue_at_front=True)},
        {"on_success": queue.empty},
        {"unique": True},
    ):
        with pytest.raises(ValueError):
            queue.enqueue(note, **options)
    for make in (lambda: Retry(max=0), lambda: Retry(max=1, interval=-1), lambda: Repeat(times=0)):
        with pytest.raises(ValueError):
            make()
    with pytest.raises(TypeError):
        queue.enqueue(note, job_id=7)
    with pytest.raises(TypeError):
        Repeat(times=1, interval="soon")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Job.create(42)  # type: ignore[arg-type]
    for compare in (lambda: queue == "default", lambda: queue < "default"):
        with pytest.raises(TypeError, match="can only be compared with a queue"):
            compare()
    assert queue.is_empty()


def test_a_second_cancel_is_an_error(queue: Queue) -> None:
    sent = queue.enqueue(note)
    sent.cancel()

    with pytest.raises(InvalidJobOperation, match="Cannot cancel already canceled job"):
        sent.cancel()


def test_a_function_of_an_app_factory_is_registered(app: qbull.App, queue: Queue) -> None:
    def make(value: str) -> Any:
        @job("default", connection=app)
        def inner() -> None:
            ran.append(value)

        return inner

    inner = make("one")
    assert inner.enqueue().func_name.endswith("test_a_function_of_an_app_factory_is_registered.make.inner")
    Worker([queue]).work(burst=True)

    assert ran == ["one"]
    with pytest.raises(qbull.DeclarationError, match=r"another function .* is registered already"):
        make("two")


@pytest.mark.parametrize("function", [note, note_in_a_coroutine])
def test_a_worker_ends_after_a_number_of_jobs(queue: Queue, function: Any) -> None:
    jobs = [queue.enqueue(function, n) for n in range(5)]

    assert Worker([queue]).work(max_jobs=1) is True
    assert (ran, queue.count) == ([0], 4)
    assert Worker([queue]).work(burst=True, max_jobs=3) is True
    assert (ran, queue.count) == ([0, 1, 2, 3], 1)
    assert Worker([queue]).work(burst=True, max_jobs=3) is True
    assert [job.get_status() for job in jobs] == ["finished"] * 5
    assert [app_job._info().attempt for app_job in jobs] == [1] * 5, "no job was given back after its start"


def test_the_json_serializer_is_where_rq_has_it(app: qbull.App) -> None:
    assert Queue("a", connection=app, serializer=JSONSerializer).serializer is JSONSerializer
    assert Queue("a", connection=app, serializer="json").serializer is JSONSerializer
    assert JSONSerializer.loads(JSONSerializer.dumps({"a": [1]})) == {"a": [1]}
    with pytest.raises(ImportError, match=r"PickleSerializer: .*nothing is pickled"):
        from qbull.compat.rq.serializers import PickleSerializer  # noqa: F401


@pytest.mark.parametrize(
    ("name", "says"), [("Webhook", "use alerts"), ("RateLimit", r"rate=.*docs/guides/rate_limits\.md")]
)
def test_names_that_are_not_there_name_their_replacement(name: str, says: str) -> None:
    import qbull.compat.rq as door

    with pytest.raises(ImportError, match=says):
        getattr(door, name)
