"""What RQ's users keep with a job: `meta`, descriptions, results and groups; and their own worker scripts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import qbull
from qbull.compat.rq import Group, Job, Queue, Retry, SimpleWorker, Worker, get_current_job
from qbull.compat.rq.exceptions import NoSuchGroupError, NoSuchJobError
from qbull.compat.rq.registry import ScheduledJobRegistry
from qbull.compat.rq.results import Result
from qbull.store.store import Store

ran: list[Any] = []


def count_up(step: int = 1) -> int:
    job = get_current_job()
    assert job is not None
    job.meta["count"] = job.meta.get("count", 0) + step
    job.save_meta()
    return int(job.meta["count"])


def fail_after_count() -> None:
    count_up()
    raise ValueError("broken")


async def count_in_a_coroutine() -> str:
    job = get_current_job()
    assert job is not None
    try:
        job.save_meta()
    except qbull.QbullError as error:
        await asyncio.to_thread(job.save_meta)
        return str(error)
    return "no error"


def note(*args: Any, **kwargs: Any) -> list[Any]:
    ran.append((args, kwargs))
    return [*args, *sorted(kwargs)]


def show_itself() -> list[Any]:
    job = get_current_job()
    assert job is not None
    return [
        job.id,
        job.origin,
        job.func_name,
        str(job.get_status()),
        job.description,
        job.worker_name is not None,
    ]


@pytest.fixture
def app(server_url: str, store: Store) -> Iterator[qbull.App]:
    ran.clear()
    app = qbull.App(server_url, prefix="test")
    yield app
    app.close_sync()


@pytest.fixture
def queue(app: qbull.App) -> Queue:
    return open_queue(app)


def open_queue(app: qbull.App, **options: Any) -> Queue:
    queue = Queue("default", connection=app, **options)
    queue.register(count_up, fail_after_count, count_in_a_coroutine, note, show_itself)
    return queue


def test_meta_travels_with_the_call_and_the_function_changes_it(queue: Queue) -> None:
    sent = queue.enqueue(count_up, 2, meta={"count": 40, "tenant": "ann"})
    plain = queue.enqueue(note, 1)
    assert (sent.meta, plain.meta) == ({"count": 40, "tenant": "ann"}, {})

    assert Worker([queue]).work(burst=True) is True

    assert sent.meta == {"count": 40, "tenant": "ann"}, "it is read once"
    sent.refresh()
    assert sent.meta == Job.fetch(sent.id, connection=queue.app).get_meta() == {"count": 42, "tenant": "ann"}
    assert queue.app.run_sync(queue.queue.job(sent.id).published("rq.meta")) == sent.meta


def test_meta_can_be_saved_in_any_state_and_survives_a_retry(queue: Queue) -> None:
    failing = queue.enqueue(fail_after_count, retry=Retry(max=2))
    failing.meta = {"count": 5}
    failing.save_meta()
    Worker([queue]).work(burst=True)

    assert (failing.get_meta(), failing.get_status()) == ({"count": 8}, "failed")
    failing.meta["seen"] = True
    failing.save()
    assert Job.fetch(failing.id, connection=queue.app).meta == {"count": 8, "seen": True}
    failing.delete()
    with pytest.raises(NoSuchJobError):
        failing.save_meta()


def test_meta_that_has_no_json_form_is_refused(queue: Queue) -> None:
    with pytest.raises(qbull.PayloadError, match=r"rq\.meta.*annotate it, or use plain values"):
        queue.enqueue(note, meta={"handle": object()})
    with pytest.raises(qbull.TooLarge, match="65,536 bytes"):
        queue.enqueue(note, meta={"text": "x" * 70_000})
    with pytest.raises(qbull.ArgumentsError, match="give a dictionary"):
        queue.enqueue(note, meta=["a"])


def test_an_app_that_encrypts_encrypts_meta_too(server_url: str, store: Store) -> None:
    app = qbull.App(server_url, prefix="test", middleware=[qbull.Encrypted([qbull.Encrypted.new_key()])])
    queue = open_queue(app)
    try:
        sent = queue.enqueue(count_up, meta={"count": 1, "name": "plainly readable"})
        stored = app.run_sync(sent._handle._there())[1].record
        assert b"plainly readable" not in stored
        assert sent.meta["name"] == "plainly readable"

        Worker([queue]).work(burst=True)
        assert b"plainly readable" not in saved_meta(sent)
        assert sent.get_meta() == {"count": 2, "name": "plainly readable"}
    finally:
        app.close_sync()


def saved_meta(job: Job) -> bytes:
    async def read() -> bytes:
        partition, _ = await job._handle._there()
        return (await job.connection._client().read_published(partition, job.id, "rq.meta"))["rq.meta"]

    return job.connection.run_sync(read())


def test_a_coroutine_is_told_how_to_save_meta(queue: Queue) -> None:
    sent = queue.enqueue(count_in_a_coroutine, meta={"a": 1})
    SimpleWorker(queue).work(burst=True)

    assert "await asyncio.to_thread(job.save_meta)" in sent.return_value()


def test_the_current_job_is_a_job(queue: Queue) -> None:
    sent = queue.enqueue(show_itself, description="looks at itself")
    Worker("default", connection=queue.app).work(burst=True)

    name = f"{__name__}.show_itself"
    assert sent.return_value() == [sent.id, "default", name, "started", "looks at itself", True]
    assert (sent.description, queue.enqueue(note, 7, to="ann").description) == (
        "looks at itself",
        f"{__name__}.note(7, to='ann')",
    )


def test_a_task_that_is_not_registered_has_a_small_current_job(app: qbull.App, queue: Queue) -> None:
    @queue.queue.task(name="own")
    def own() -> list[Any]:
        job = get_current_job()
        assert job is not None
        with pytest.raises(qbull.QbullError, match=r'task "own" is not registered.*qbull\.current_job'):
            _ = job.meta
        return [job.id, job.func_name, job.attempt, job.retries_left]

    sent = own.enqueue_sync()
    Worker(queue).work(burst=True)

    assert app.run_sync(sent.result()) == [sent.id, "own", 1, 0]


def test_arguments_and_results_have_the_form_of_rq(queue: Queue) -> None:
    good = queue.enqueue(note, 1, 2, x=3)
    bad = queue.enqueue(fail_after_count, retry=Retry(max=1))
    assert (good.args, good.kwargs, good.latest_result(), good.results()) == ((1, 2), {"x": 3}, None, [])
    assert (good.timeout, queue.enqueue(note, job_timeout="1m").timeout) == (180, 60)

    Worker(queue).work(burst=True)

    latest = good.latest_result(timeout=5)
    assert latest is not None
    assert (latest.type, latest.return_value, latest.job_id) == (Result.Type.SUCCESSFUL, [1, 2, "x"], good.id)
    failed, retried = bad.results()
    assert (failed.type, retried.type, bad.number_of_retries) == (
        Result.Type.FAILED,
        Result.Type.RETRIED,
        1,
    )
    assert "ValueError: broken" in str(failed.exc_string)


def test_each_queue_object_has_its_own_default_timeout(queue: Queue) -> None:
    patient = open_queue(queue.app, default_timeout="10m")

    sent = [patient.enqueue(note), patient.enqueue(note, job_timeout=5), queue.enqueue(note)]
    [many] = patient.enqueue_many([Queue.prepare_data(note)])

    assert [job.timeout for job in (*sent, many)] == [600, 5, 180, 600]


def test_a_group_finds_its_jobs_in_several_queues(app: qbull.App, queue: Queue) -> None:
    other = Queue("other", connection=app)
    other.register(note)
    group = Group.create(connection=app, name="monday")
    assert Group.all(app) == []
    with pytest.raises(NoSuchGroupError):
        Group.fetch("monday", connection=app)

    first = group.enqueue_many(queue, [Queue.prepare_data(note, (n,), job_id=f"a{n}") for n in (1, 2)])
    second = group.enqueue_many(other, [Queue.prepare_data(note, (3,))])

    assert sorted(job.id for job in group.get_jobs()) == sorted(job.id for job in [*first, *second])
    assert {job.group_id for job in Group.fetch("monday", connection=app).get_jobs()} == {"monday"}
    assert queue.enqueue(note).group_id is None
    assert [each.name for each in Group.all(app)] == ["monday"]

    first[0].delete()
    group.delete_job("a2")
    assert [job.id for job in group.get_jobs()] == [second[0].id]
    second[0].delete()
    group.cleanup()
    assert Group.all(app) == []
    assert Job.exists("a2", app)


def test_a_group_refuses_all_calls_if_one_does_not_fit(app: qbull.App, queue: Queue) -> None:
    group = Group.create(connection=app)

    with pytest.raises(qbull.ArgumentsError):
        group.enqueue_many(queue, [Queue.prepare_data(note), Queue.prepare_data(count_up, (1, 2, 3))])

    assert (group.get_jobs(), queue.count, Group.all(app)) == ([], 0, [])


def test_a_burst_ends_before_jobs_that_are_due_later(queue: Queue) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    later = queue.enqueue_at(due, note, "later")
    first = queue.enqueue(note, "first")
    then = queue.enqueue(note, "then", depends_on=first)

    assert Worker([queue]).work(burst=True) is True
    assert Worker([queue]).work(burst=True) is False

    assert [args for args, _ in ran] == [("first",), ("then",)]
    assert (then.is_finished, later.get_status()) == (True, "scheduled")
    assert abs(ScheduledJobRegistry(queue=queue).get_scheduled_time(later) - due) < timedelta(seconds=1)


def test_a_queue_that_is_not_asynchronous_runs_a_call_at_once(app: qbull.App) -> None:
    queue = open_queue(app, is_async=False)

    good, bad = queue.enqueue(note, 1), queue.enqueue(fail_after_count)
    [many] = queue.enqueue_many([Queue.prepare_data(note, (2,))])

    assert (good.return_value(), many.return_value(), bad.is_failed) == ([1], [2], True)
    assert queue.enqueue_in(timedelta(hours=1), note).get_status() == "scheduled"


def test_a_worker_refuses_what_it_cannot_do(app: qbull.App, queue: Queue) -> None:
    with pytest.raises(qbull.ConfigError, match=r"Worker\(exception_handlers=…\): use qbull\.Middleware"):
        Worker([queue], exception_handlers=[print])
    with pytest.raises(qbull.ArgumentsError, match=r"work\(max_jobs=1\): give one queue"):
        Worker([queue, Queue("other", connection=app)]).work(burst=True, max_jobs=1)
    with pytest.raises(qbull.ConfigError, match="at least one queue"):
        Worker([], connection=app)
    with pytest.raises(qbull.ConfigError, match=r'Queue\("x", connection=Redis\(…\)\): pass the app'):
        Queue("x", connection=type("Redis", (), {})())


def test_a_worker_script_runs_until_sigterm(server_url: str, store: Store, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, qbull\n"
        "from qbull.compat.rq import Queue, Worker\n"
        "app = qbull.App(os.environ['QBULL_URL'], prefix='test')\n"
        "queue = Queue('default', connection=app)\n"
        "def double(n): return 2 * n\n"
        "queue.register(double)\n"
        "if __name__ == '__main__':\n"
        "    queue.enqueue(double, 21, job_id='it')\n"
        "    print(Worker(['default'], connection=app).work(with_scheduler=True))\n"
    )
    script = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "QBULL_URL": server_url},
        stdout=subprocess.PIPE,
        text=True,
    )
    watcher = qbull.App(server_url, prefix="test")
    watcher.queue("default")
    try:
        while watcher.run_sync(watcher.job("default", "it").state()) is None:
            assert script.poll() is None
        assert watcher.run_sync(watcher.job("default", "it").result(60)) == 42
        script.send_signal(signal.SIGTERM)
        assert script.communicate(timeout=60)[0].strip() == "True"
        assert script.returncode == 0
    finally:
        script.kill()
        script.wait()
        watcher.close_sync()
