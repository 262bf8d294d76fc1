"""Code as RQ's users write it: facts of RQ's own tests that do not touch its internals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import qbull
from qbull.compat.rq import Callback, Job, Queue, Repeat, Retry, get_current_job, job
from qbull.compat.rq.exceptions import InvalidJobOperation, NoSuchJobError, TimeoutFormatError
from qbull.compat.rq.registry import (
    CanceledJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
)
from qbull.compat.rq.timeouts import JobTimeoutException
from qbull.store.store import Store

ran: list[Any] = []


def say_hello(name: str | None = None) -> str:
    return f"Hi there, {name or 'Stranger'}!"


def note(*args: Any, **kwargs: Any) -> list[Any]:
    ran.append((args, kwargs))
    return [*args, *sorted(kwargs)]


def div_by_zero(x: int) -> float:
    ran.append(x)
    return x / 0


def save_result(job: Job, connection: qbull.App, result: Any) -> None:
    ran.append(("success", job.id, connection, result))


def save_exception(job: Job, connection: qbull.App, kind: type, value: Exception, traceback: Any) -> None:
    ran.append(("failure", job.id, kind, str(value), traceback is not None))


async def wait_a_moment(n: int) -> int:
    await asyncio.sleep(0)
    return n


@pytest.fixture
def app(server_url: str, store: Store) -> Iterator[qbull.App]:
    ran.clear()
    app = qbull.App(server_url, prefix="test")
    yield app
    app.close_sync()


@pytest.fixture
def queue(app: qbull.App) -> Queue:
    queue = Queue("default", connection=app)
    queue.register(say_hello, note, div_by_zero, wait_a_moment)
    queue.register_callbacks(save_result, save_exception)
    return queue


def work(app: qbull.App) -> None:
    async def run() -> None:
        async with app.worker() as worker:
            await worker.drain()

    app.run_sync(run())


def test_a_job_is_created_first_and_enqueued_later(app: qbull.App, queue: Queue) -> None:
    created = Job.create(say_hello, args=("Rick",), connection=app, id="my-id", timeout="1m")

    assert (created.get_id(), created.get_status(), created.func_name) == (
        "my-id",
        "created",
        f"{__name__}.say_hello",
    )
    assert (created.args, created.kwargs, created.is_queued) == (("Rick",), {}, False)
    with pytest.raises(InvalidJobOperation, match="it is stored when it is enqueued"):
        created.save()

    sent = queue.enqueue_job(created)
    assert (sent.id, sent.get_status(), queue.job_ids) == ("my-id", "queued", ["my-id"])
    assert sent == Job.fetch("my-id", connection=app) == queue.jobs[0]
    work(app)
    assert sent.return_value() == "Hi there, Rick!"


def test_queues_are_equal_by_name_and_all_are_listed(app: qbull.App, queue: Queue) -> None:
    other = Queue("other", connection=app)

    assert Queue.all(app) == [queue, other]
    assert queue == Queue("default", connection=app) != other
    assert len({queue, Queue("default", connection=app)}) == 1


def test_a_name_of_a_class_that_is_not_supported_names_its_replacement() -> None:
    with pytest.raises(AttributeError, match=r"Queue\.push_job_id: use enqueue_job"):
        _ = Queue.push_job_id  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="type object 'Job' has no attribute 'nothing'"):
        _ = Job.nothing  # type: ignore[attr-defined]


def test_a_function_with_open_arguments_gets_them_all(app: qbull.App, queue: Queue) -> None:
    sent = queue.enqueue(note, 1, "two", x=[3])
    queue.enqueue_call(note, args=(4,), kwargs={"timeout": 5})
    work(app)

    assert sorted(ran, key=str) == [((1, "two"), {"x": [3]}), ((4,), {"timeout": 5})]
    assert sent.return_value() == [1, "two", "x"]


def test_a_decorated_function_has_delay_and_enqueue(app: qbull.App, queue: Queue) -> None:
    hello: Any = job(queue, timeout=30)(say_hello)

    one, two = hello.delay("Ann"), hello.enqueue("Bob", job_id="bob")
    work(app)

    assert (hello("Cy"), one.result, two.result, two.id) == (
        "Hi there, Cy!",
        "Hi there, Ann!",
        "Hi there, Bob!",
        "bob",
    )


def test_registries_show_the_jobs_of_a_state(app: qbull.App, queue: Queue) -> None:
    from datetime import timedelta

    done, failed = queue.enqueue(say_hello), queue.enqueue(div_by_zero, 1)
    later = queue.enqueue_in(timedelta(hours=1), say_hello)
    cancelled = queue.enqueue(say_hello, job_id="no")
    cancelled.cancel()
    later_ids = ScheduledJobRegistry(queue=queue).get_job_ids()
    later.delete()
    work(app)
    registry = FailedJobRegistry("default", connection=app)

    assert later_ids == [later.id]
    assert FinishedJobRegistry(queue=queue).get_job_ids() == [done.id]
    assert (registry.get_job_ids(), registry.count, len(registry)) == ([failed.id], 1, 1)
    assert queue.failed_job_registry == registry
    assert failed in registry
    assert done not in registry
    assert CanceledJobRegistry(queue=queue).get_job_ids(desc=True) == ["no"]
    registry.requeue(failed)
    work(app)
    assert ran == [1, 1]
    registry.remove(failed)
    assert (registry.count, Job.exists(failed.id, app)) == (0, False)
    assert Job.fetch_many([done.id, failed.id], app) == [done, None]


def test_callbacks_are_called_after_success_and_after_the_last_failure(app: qbull.App, queue: Queue) -> None:
    good = queue.enqueue(say_hello, on_success=save_result, on_failure=Callback(save_exception))
    slow = queue.enqueue(wait_a_moment, 5, on_success=Callback(f"{__name__}.save_result"))
    work(app)
    assert sorted(ran, key=str) == sorted(
        [("success", good.id, app, "Hi there, Stranger!"), ("success", slow.id, app, 5)], key=str
    )
    ran.clear()
    bad = queue.enqueue(div_by_zero, 7, on_failure=save_exception, retry=Retry(max=1))
    work(app)

    assert ran == [7, 7, ("failure", bad.id, ZeroDivisionError, "division by zero", True)]
    with pytest.raises(NoSuchJobError, match="is not registered, so no worker would call it"):
        queue.enqueue(say_hello, on_success=print)


def test_a_call_repeats_after_each_success(app: qbull.App, queue: Queue) -> None:
    queue.enqueue(note, 1, repeat=Repeat(times=2), job_id="again")
    queue.enqueue(div_by_zero, 2, repeat=Repeat(times=3, interval=[0, 1]))
    work(app)

    assert ran.count(((1,), {})) == 3
    assert ran.count(2) == 1
    assert [Job.exists(f"again{end}", app) for end in ("", "~2", "~3", "~4")] == [True, True, True, False]


def test_errors_have_the_names_of_rq(app: qbull.App, queue: Queue) -> None:
    with pytest.raises(NoSuchJobError):
        Job.fetch("nothing", connection=app)
    with pytest.raises(TimeoutFormatError):
        queue.enqueue(say_hello, job_timeout="a while")
    assert issubclass(JobTimeoutException, Exception)
    assert get_current_job() is None
