"""docs/guides/streams.md: readers get the values of a job as they come, each once and in order, until the job ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cpu_tasks
import pytest

import qbull
from conftest import eventually
from qbull import testing
from qbull.core.streams import EmittedKey, StreamEntry, StreamLimits
from qbull.errors import ServerAway
from qbull.store.store import Store
from qbull.store.verbs import streams as verbs
from qbull.worker import cpu_pool, streams
from qbull.worker.cpu_process import ProcessReply

AT_ONCE = qbull.Retry(attempts=3, delay=0)


@dataclass
class Token:
    text: str


async def values_of(job: qbull.Job[Any], after: int = 0) -> list[Any]:
    async with asyncio.timeout(30):
        return [value async for value in job.stream(after=after)]


async def test_a_reader_gets_each_value_while_the_job_runs(app: qbull.App) -> None:
    seen = asyncio.Event()

    @app.queue("chat").task
    async def answer() -> str:
        job = qbull.current_job()
        await job.emit({"text": "Hel"})
        await seen.wait()
        await job.emit({"text": "lo"})
        return "done"

    job = await answer.enqueue()
    found = []
    async with app.worker(), asyncio.timeout(30):
        async for value in job.stream():
            found.append(value)
            seen.set()
    assert found == [{"text": "Hel"}, {"text": "lo"}]
    assert await job.result(timeout=20) == "done"


async def test_a_stream_starts_at_a_position_and_has_types(app: qbull.App) -> None:
    @app.queue("chat").task
    async def answer() -> None:
        for text in ("a", "b", "c"):
            await qbull.current_job().emit(Token(text))

    job = await answer.enqueue()
    async with app.worker():
        first = job.stream(type=Token)
        assert await anext(first) == Token("a")
        assert first.position == 1
        await first.aclose()
        rest = job.stream(after=first.position, type=Token)
        assert [token.text async for token in rest] == ["b", "c"]
    assert (rest.position, rest.missed) == (3, 0)
    assert await values_of(job) == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    with pytest.raises(qbull.ArgumentsError, match="give the position of a stream"):
        job.stream(after=-1)


async def test_plain_functions_and_threads_emit(app: qbull.App) -> None:
    @app.queue("chat").task
    def answer() -> None:
        job = qbull.current_job()
        job.emit_sync(1)
        asyncio.run(job.emit(2))

    @app.queue("other", retry=qbull.Retry(attempts=1)).task
    async def refused() -> None:
        qbull.current_job().emit_sync(1)

    job, wrong = await answer.enqueue(), await refused.enqueue()
    async with app.worker():
        assert await values_of(job) == [1, 2]
        with pytest.raises(qbull.JobFailed, match="would block the running event loop"):
            await wrong.result(timeout=20)


async def test_a_stream_ends_with_a_job_that_fails_or_is_cancelled_or_is_not_kept(app: qbull.App) -> None:
    @app.queue("chat", retry=qbull.Retry(attempts=1)).task
    async def fail() -> None:
        await qbull.current_job().emit("before")
        raise ValueError("no")

    @app.queue("silent", keep=qbull.Keep(completed=0, failed=0)).task
    async def forgotten() -> None:
        await go.wait()

    go = asyncio.Event()
    failing, waiting = await fail.enqueue(), await fail.options(delay=3600).enqueue()
    gone = await forgotten.enqueue()
    readers = [asyncio.create_task(values_of(job)) for job in (failing, waiting, gone)]
    async with app.worker():
        await eventually(lambda: is_active(gone))
        go.set()
        await waiting.cancel()
        assert await asyncio.gather(*readers) == [["before"], [], []]
    with pytest.raises(qbull.NotFound):
        await values_of(gone)


async def is_active(job: qbull.Job[Any]) -> bool:
    return await job.state() == "active"


async def test_a_retried_job_emits_again_and_a_durable_one_does_not(app: qbull.App) -> None:
    queue = app.queue("chat", retry=AT_ONCE)

    async def work() -> list[Any]:
        job = qbull.current_job()
        await job.emit("start")
        await job.emit("start")
        if job.attempt == 1:
            raise ConnectionError
        await job.emit("end")
        return []

    plain = await queue.task(name="plain")(work).enqueue()
    durable = await queue.task(name="durable", durable=True)(work).enqueue()
    async with app.worker():
        assert await values_of(plain) == ["start", "start", "start", "start", "end"]
        assert await values_of(durable) == ["start", "start", "end"]


async def test_values_of_a_recorded_step_are_not_repeated(app: qbull.App) -> None:
    async def tokens(word: str) -> str:
        for letter in word:
            await qbull.current_job().emit(letter)
        return word

    def in_a_thread() -> None:
        qbull.current_job().emit_sync("plain")

    @app.queue("chat", retry=AT_ONCE).task(durable=True)
    async def answer() -> str:
        job = qbull.current_job()
        word = await job.step(tokens, "ab")
        await job.emit("between")
        await job.step(in_a_thread)
        if job.attempt < 3:
            raise ConnectionError
        return word

    job = await answer.enqueue()
    async with app.worker():
        assert await values_of(job) == ["a", "b", "between", "plain"]


async def test_parallel_branches_repeat_and_lose_nothing_in_another_run(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run dies when one branch has emitted and the other has not."""
    real, runs = streams.StreamWriter.emit, 0

    async def dies(self: Any, job: Any, content: bytes) -> bool:
        if runs == 1 and content in (b'"left 2"', b'"right 2"'):
            raise ConnectionError
        return await real(self, job, content)

    monkeypatch.setattr(streams.StreamWriter, "emit", dies)

    async def branch(name: str) -> None:
        for number in (1, 2, 3):
            await qbull.current_job().emit(f"{name} {number}")

    @app.queue("chat", retry=AT_ONCE).task(durable=True)
    async def answer() -> None:
        nonlocal runs
        runs += 1
        await asyncio.gather(branch("left"), branch("right"))

    job = await answer.enqueue()
    async with app.worker():
        values = await values_of(job)
    assert sorted(values) == [f"{name} {number}" for name in ("left", "right") for number in (1, 2, 3)]
    assert [one for one in values if one.startswith("left")] == ["left 1", "left 2", "left 3"]


async def test_a_loop_with_checkpoints_may_emit_the_same_value_each_time(app: qbull.App) -> None:
    died: set[tuple[int, int]] = set()

    @app.queue("chat", retry=qbull.Retry(attempts=20, delay=0)).task(durable=True)
    async def poll() -> None:
        """Each turn dies once, after it has emitted."""
        job = qbull.current_job()
        await job.emit("start")
        turn = await job.checkpoint(0)
        while turn < 3:
            await job.emit("tick")
            inner = await job.checkpoint(0, name="inner")
            while inner < 2:
                await job.emit("tock")
                if (turn, inner) not in died:
                    died.add((turn, inner))
                    raise ConnectionError
                inner = await job.checkpoint(inner + 1, name="inner")
            turn = await job.checkpoint(turn + 1)

    job = await poll.enqueue()
    async with app.worker():
        assert await values_of(job) == ["start", *["tick", "tock", "tock"] * 3]
    partition, _ = await job._there()
    fields = await partition.server.call("HKEYS", f"{partition.base}job:{job.id}")
    assert len([field for field in fields if field.startswith(b"emit:")]) <= 3


async def test_too_many_values_of_one_durable_run_are_an_error(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.core.streams.MAX_REMEMBERED_VALUES", 3)

    @app.queue("chat").task(durable=True)
    async def answer() -> None:
        for number in range(5):
            await qbull.current_job().emit(number)

    job = await answer.enqueue()
    async with app.worker():
        assert await values_of(job) == [0, 1, 2]
        with pytest.raises(qbull.JobFailed, match="emitted values outside of steps"):
            await job.result(timeout=20)


async def test_a_stream_has_bounds_and_a_late_reader_learns_what_it_missed(app: qbull.App) -> None:
    @app.queue("chat", stream=StreamLimits(max_values=3, keep_seconds=60)).task
    async def by_number() -> None:
        for number in range(7):
            await qbull.current_job().emit(number)

    @app.queue("bytes", stream=StreamLimits(max_bytes=250)).task
    async def by_size() -> None:
        for letter in "abcd":
            await qbull.current_job().emit(letter * 98)

    first, second = await by_number.enqueue(), await by_size.enqueue()
    async with app.worker():
        await asyncio.gather(first.result(timeout=20), second.result(timeout=20))
    stream = first.stream()
    assert ([value async for value in stream], stream.missed, stream.position) == ([4, 5, 6], 4, 7)
    assert await values_of(second) == ["c" * 98, "d" * 98]
    partition, _ = await first._there()
    assert 0 < await partition.server.call("PTTL", f"{partition.base}stream:{first.id}") <= 60_000


async def test_the_stream_is_deleted_with_its_job(app: qbull.App) -> None:
    @app.queue("chat").task
    async def answer() -> None:
        await qbull.current_job().emit(1)

    job = await answer.enqueue()
    async with app.worker():
        await job.result(timeout=20)
    partition, _ = await job._there()
    assert await partition.server.call("EXISTS", f"{partition.base}stream:{job.id}") == 1
    await job.remove()
    assert await partition.server.call("EXISTS", f"{partition.base}stream:{job.id}") == 0


async def test_values_that_are_on_their_way_end_with_their_worker(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    async def is_away(*arguments: Any) -> list[bool]:
        tried.set()
        raise ServerAway("the server is away")

    monkeypatch.setattr(streams, "emit", is_away)

    @app.queue("chat").task
    async def answer() -> None:
        await asyncio.gather(*(qbull.current_job().emit(number) for number in range(3)))

    await answer.enqueue()
    worker = app.worker()
    await worker.start()
    await tried.wait()
    await worker.stop(grace=0)

    assert not [task for task in asyncio.all_tasks() if "Batcher" in repr(task.get_coro())]


async def test_a_lost_reply_adds_no_value_twice(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = 0

    async def loses_the_reply(*arguments: Any) -> list[bool]:
        nonlocal lost
        answer = await verbs.emit(*arguments)
        lost += 1
        if lost % 2:
            raise ServerAway("the reply was lost")
        return answer

    monkeypatch.setattr(streams, "emit", loses_the_reply)

    async def work() -> None:
        for number in (1, 1, 2):
            await qbull.current_job().emit(number)

    queue = app.queue("chat")
    plain = await queue.task(name="plain")(work).enqueue()
    durable = await queue.task(name="durable", durable=True)(work).enqueue()
    async with app.worker():
        assert await values_of(plain) == [1, 1, 2]
        assert await values_of(durable) == [1, 1, 2]
    assert lost > 3


async def test_a_worker_that_has_lost_the_job_adds_nothing(app: qbull.App) -> None:
    @app.queue("chat").task
    async def answer() -> str:
        job = qbull.current_job()
        await job.emit("mine")
        ours, job._running.position = job._running.position, b"51-1"
        try:
            with pytest.raises(qbull.TakenOver, match="given to another worker"):
                await job.emit("not mine")
        finally:
            job._running.position = ours
        return "refused"

    job = await answer.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "refused"
    assert await values_of(job) == ["mine"]


async def test_a_value_without_a_json_form_or_too_large_is_refused(app: qbull.App) -> None:
    @app.queue("chat", retry=qbull.Retry(attempts=1)).task
    async def answer(large: bool) -> None:
        await qbull.current_job().emit("x" * 300_000 if large else object())

    jobs = [await answer.enqueue(large) for large in (True, False)]
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="takes more than 262,144 bytes; emit it in parts"):
            await jobs[0].result(timeout=20)
        with pytest.raises(qbull.JobFailed, match="it emits a value that cannot be encoded"):
            await jobs[1].result(timeout=20)


async def test_values_are_encrypted_and_bound_to_their_job(server_url: str, store: Store) -> None:
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    app = qbull.App(server_url, prefix="test", middleware=[encrypted])
    try:

        @app.queue("chat").task
        async def answer() -> None:
            await qbull.current_job().emit("secret")

        job, other = await answer.enqueue(), await answer.enqueue()
        async with app.worker():
            assert await values_of(job) == ["secret"]
            await other.result(timeout=20)
        partition, _ = await job._there()
        (entry,) = await verbs.read_stream(partition, job.id, 0)
        assert b"secret" not in entry.content
        name = f"{partition.base}stream:{other.id}"
        await partition.server.call("XADD", name, "2-0", "k", entry.key, "v", entry.content)
        with pytest.raises(qbull.PayloadError):
            await values_of(other)
    finally:
        await app.close()


async def test_inline_jobs_have_streams(app: qbull.App) -> None:
    @app.queue("chat", retry=AT_ONCE).task(durable=True)
    async def answer() -> None:
        job = qbull.current_job()
        await job.emit("a")
        await job.sleep(hours=1)
        await job.emit("b")

    @app.queue("other").task
    def plain() -> None:
        qbull.current_job().emit_sync([1])

    with testing.inline(app) as jobs:
        job = await answer.enqueue()
        stream = job.stream()
        assert await anext(stream) == "a"
        with pytest.raises(qbull.ResultTimeout, match="run_due"):
            await anext(stream)
        await jobs.advance(3600)
        assert await values_of(job) == ["a", "b"]
        assert await values_of(job, after=1) == ["b"]
        assert await values_of(await plain.enqueue()) == [[1]]


async def test_a_stream_moves_with_its_job_and_its_readers_follow(app: qbull.App) -> None:
    queue = app.queue("chat", partitions=2)

    @queue.task(durable=True)
    async def answer() -> None:
        job = qbull.current_job()
        await job.emit("before")
        await job.wait_for("go")
        await job.emit("before")
        await job.emit("after")

    jobs = [await answer.enqueue() for _ in range(4)]
    async with app.worker(), app.worker():
        for job in jobs:
            await eventually(lambda job=job: waits(job))
        readers = [asyncio.create_task(values_of(job)) for job in jobs]
        await queue.repartition(3)
        for job in jobs:
            assert await job.state() == "delayed"
            await job.signal("go")
        assert await asyncio.gather(*readers) == [["before", "before", "after"]] * 4
    for job in jobs:
        assert await values_of(job) == ["before", "before", "after"]
        assert await values_of(job, after=1) == ["before", "after"]


async def waits(job: qbull.Job[Any]) -> bool:
    return (await job.why()).reasons[0].code == "signal"


async def test_a_process_of_cpu_tasks_emits(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    emit_numbers = app.queue("numbers").task(cpu=True)(cpu_tasks.emit_numbers.spec.function)
    job = await emit_numbers.enqueue(50)
    async with app.worker():
        assert await values_of(job) == list(range(50))


async def test_values_that_come_together_with_the_result_of_a_process_are_kept(app: qbull.App) -> None:
    """The worker reads the last values and the result of a process in one turn of its event loop."""

    @app.queue("numbers").task
    async def work() -> None:
        running = qbull.current_job()._running
        running.has_output = True
        for number in range(3):
            cpu_pool._pass_progress_on(running, ProcessReply(word="emit", result=b"%d" % number))

    job = await work.enqueue()
    async with app.worker():
        assert await values_of(job) == [0, 1, 2]


def test_a_key_recognises_a_value_in_every_run() -> None:
    assert EmittedKey("1.2:ab", 3).text(b"51-1") == b"1.2:ab:3"
    assert EmittedKey("", 3).text(b"51-1") == b"51-1:3"
    assert StreamEntry(1, b"k", b"v").number == 1


@pytest.mark.parametrize(
    "limits", [{"max_values": 0}, {"max_bytes": True}, {"keep_seconds": 0}, {"max_values": "9"}]
)
def test_wrong_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(qbull.ConfigError, match=r"StreamLimits\("):
        StreamLimits(**limits)
