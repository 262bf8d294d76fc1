"""Flows: jobs that wait for other jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import qbull
from conftest import eventually
from qbull.manage.flow_walk import flow_exits, walk_flow

ONCE = qbull.Retry(attempts=1, backoff="fixed", delay=0.01)


class MediaApp:
    """Two queues of several partitions, and what was run."""

    def __init__(self, app: qbull.App, **settings: Any) -> None:
        self.ran: list[str] = []
        self.broken = {"break"}
        self.begun = asyncio.Event()
        self.media = app.queue("media", partitions=3, retry=ONCE, **settings)
        self.mail = app.queue("mail", partitions=2, retry=ONCE)

        @self.media.task
        async def make(what: str) -> str:
            self.ran.append(what)
            if what in self.broken:
                raise ValueError(f"no {what}")
            return what

        @self.mail.task
        async def tell(what: str = "tell") -> Any:
            self.ran.append(what)
            return [
                str(result) if isinstance(result, Exception) else result
                for result in qbull.current_job().results
            ]

        @self.media.task
        async def hang() -> None:
            self.begun.set()
            await asyncio.Event().wait()

        self.make, self.tell, self.hang = make, tell, hang


async def test_a_chain_runs_one_after_the_other(app: qbull.App) -> None:
    media_app = MediaApp(app)

    flow = await qbull.chain(
        media_app.make.step("a"), media_app.make.step("b"), media_app.tell.step()
    ).enqueue()
    async with app.worker():
        result = await flow.result(timeout=10)

    assert media_app.ran == ["a", "b", "tell"]
    assert result == ["b"]
    assert [await job.state() for job in flow.jobs] == ["completed"] * 3


async def test_a_group_is_run_at_once_and_then_what_waits_for_all_of_it(app: qbull.App) -> None:
    media_app = MediaApp(app)

    flow = await qbull.group(
        *(media_app.make.step(f"part {n}") for n in range(20)), then=media_app.tell.step()
    ).enqueue()
    async with app.worker():
        result = await flow.result(timeout=10)

    assert result == [f"part {n}" for n in range(20)]
    assert sorted(media_app.ran[:-1]) == sorted(result)
    assert media_app.ran[-1] == "tell"


async def test_chains_and_groups_are_parts_of_each_other(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell

    flow = await qbull.chain(
        make.step("first"),
        qbull.group(qbull.chain(make.step("left"), tell.step("left 2")), make.step("right")),
        tell.step("last"),
    ).enqueue()
    async with app.worker():
        result = await flow.result(timeout=10)

    assert result == [["left"], "right"]
    assert (media_app.ran[0], media_app.ran[-1]) == ("first", "last")
    assert media_app.ran.index("left") < media_app.ran.index("left 2")


async def test_results_are_there_for_plain_functions_and_after_a_failed_attempt(app: qbull.App) -> None:
    media_app = MediaApp(app)
    seen: list[Any] = []

    @media_app.mail.task(retry=qbull.Retry(attempts=2, backoff="fixed", delay=0))
    def add_up() -> int:
        seen.append(qbull.current_job().results)
        if len(seen) == 1:
            raise ValueError("not yet")
        return len(seen[-1])

    flow = await qbull.group(media_app.make.step("a"), media_app.make.step("b"), then=add_up.step()).enqueue()
    async with app.worker():
        assert await flow.result(timeout=10) == 2

    assert seen == [["a", "b"], ["a", "b"]]


async def test_a_job_that_waits_says_what_for(app: qbull.App) -> None:
    media_app = MediaApp(app)

    flow = await qbull.group(
        media_app.make.step("a"), media_app.make.step("b"), then=media_app.tell.step()
    ).enqueue()
    why = await flow.last.why()
    info = await flow.last.info()

    assert info is not None
    assert (info.state, info.due_at, info.flow) == ("delayed", None, flow.id)
    assert why.reasons[-1].code == "flow"
    assert why.reasons[-1].job == flow.jobs[0].id


async def test_when_a_job_fails_those_that_wait_for_it_end_too(app: qbull.App) -> None:
    media_app = MediaApp(app)

    flow = await qbull.chain(
        media_app.make.step("break"), media_app.make.step("b"), media_app.tell.step()
    ).enqueue()
    async with app.worker():
        with pytest.raises(
            qbull.JobFailed, match=r"job \S+ \(make\) of queue \"media\" failed: ValueError: no break"
        ):
            await flow.result(timeout=10)

    assert media_app.ran == ["break"]
    assert [await job.state() for job in flow.jobs] == ["failed"] * 3


async def test_with_continue_the_next_one_runs_all_the_same(app: qbull.App) -> None:
    media_app = MediaApp(app)

    flow = await qbull.group(
        media_app.make.step("a"),
        media_app.make.step("break"),
        then=media_app.tell.step(),
        on_failed="continue",
    ).enqueue()
    async with app.worker():
        result = await flow.result(timeout=10)

    assert result[0] == "a"
    assert "failed: ValueError: no break" in result[1]


async def test_a_fallback_stands_in_for_what_did_not_come_to_its_end(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make = media_app.make

    async with app.worker():
        broken = await qbull.chain(
            qbull.chain(make.step("break"), make.step("b"), fallback=make.step("instead")),
            media_app.tell.step("after"),
        ).enqueue()
        result = await broken.result(timeout=10)
        whole = await qbull.chain(make.step("c"), make.step("d"), fallback=make.step("not needed")).enqueue()
        other = await whole.result(timeout=10)

        async def forgotten() -> bool:
            return await whole.jobs[-1].state() is None

        await eventually(forgotten)

    assert (result, other) == (["instead"], "d")
    assert media_app.ran == ["break", "instead", "after", "c", "d"]


async def test_the_result_of_a_flow_is_its_fallbacks_where_that_was_needed(app: qbull.App) -> None:
    media_app = MediaApp(app)

    flow = await qbull.chain(media_app.make.step("break"), fallback=media_app.tell.step("instead")).enqueue()
    async with app.worker():
        [reason] = await flow.result(timeout=10)

    assert "no break" in reason


async def test_the_time_for_a_result_is_that_of_its_fallbacks_too(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    media_app, given, result = MediaApp(app), list[float | None](), qbull.Job.result

    async def noted(job: qbull.Job[Any], timeout: float | None = None) -> Any:
        given.append(timeout)
        return await result(job, timeout)

    monkeypatch.setattr(qbull.Job, "result", noted)
    flow = await qbull.chain(media_app.make.step("break"), fallback=media_app.make.step("b")).enqueue()
    async with app.worker():
        assert await flow.result(timeout=20) == "b"
        assert await flow.result() == "b"

    first, second, *unlimited = given
    assert first is not None and second is not None and second < first <= 20
    assert unlimited == [None, None]


async def test_a_failed_job_that_is_retried_takes_its_flow_up_again(app: qbull.App) -> None:
    media_app = MediaApp(app)
    flow = await qbull.chain(
        qbull.group(media_app.make.step("a"), media_app.make.step("break")),
        media_app.tell.step("b"),
        media_app.tell.step("c"),
    ).enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed):
            await flow.result(timeout=10)

        media_app.broken.clear()
        await flow.jobs[1].retry()

        async def came_to_its_end() -> bool:
            return await flow.last.state() == "completed"

        await eventually(came_to_its_end)

    assert sorted(media_app.ran[:2]) == ["a", "break"]
    assert media_app.ran[2:] == ["break", "b", "c"]
    assert await flow.result() == [["a", "break"]]


async def test_redriving_all_dead_letters_does_no_harm(app: qbull.App) -> None:
    media_app = MediaApp(app)
    flow = await qbull.chain(media_app.make.step("break"), media_app.tell.step()).enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed):
            await flow.result(timeout=10)

        await flow.last.retry()
        waits = await flow.last.why()
        media_app.broken.clear()
        await flow.jobs[0].retry()
        result = await flow.result(timeout=10)

    assert "did not complete" in str(waits)
    assert result == ["break"]
    assert media_app.ran == ["break", "break", "tell"]


async def test_cancelling_and_removing_are_ends_too(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell
    cancelled = await qbull.chain(make.options(delay=3600).step("a"), tell.step()).enqueue()
    removed = await qbull.chain(make.options(delay=3600).step("b"), tell.step()).enqueue()
    async with app.worker():
        await cancelled.jobs[0].cancel("no need")
        await removed.jobs[0].remove()

        with pytest.raises(qbull.JobCancelled, match="was cancelled: no need"):
            await cancelled.result(timeout=10)
        with pytest.raises(qbull.JobCancelled, match="was removed"):
            await removed.result(timeout=10)

    assert media_app.ran == []


async def test_cancelling_a_flow_cancels_all_that_has_not_ended(app: qbull.App) -> None:
    media_app = MediaApp(app)
    flow = await qbull.chain(media_app.make.step("a"), media_app.hang.step(), media_app.tell.step()).enqueue()
    async with app.worker():
        await media_app.begun.wait()

        await flow.cancel()

        async def ended() -> bool:
            return [await job.state() for job in flow.jobs] == ["completed", "cancelled", "cancelled"]

        await eventually(ended)


async def test_a_step_has_options_and_a_delay_counts_from_when_it_could_run(app: qbull.App) -> None:
    media_app = MediaApp(app, order="key")
    flow = await qbull.chain(
        media_app.make.options(key="k", priority=1).step("a"),
        media_app.make.options(key="k", delay=3600).step("b"),
    ).enqueue()
    async with app.worker():
        await flow.jobs[0].result(timeout=10)

        async def has_a_time() -> Any:
            info = await flow.last.info()
            return info is not None and info.due_at

        due = await eventually(has_a_time)
        info = await flow.jobs[0].info()
        assert info is not None and info.finished_at is not None
        assert 3590 < (due - info.finished_at).total_seconds() < 3610

        await flow.last.promote()
        assert await flow.result(timeout=10) == "b"


async def test_a_flow_whose_last_job_has_an_id_is_enqueued_once(app: qbull.App) -> None:
    media_app = MediaApp(app)

    async def order() -> qbull.Flow[Any]:
        return await qbull.chain(
            media_app.make.step("a"), media_app.tell.options(id="order 7").step()
        ).enqueue()

    first, second = await order(), await order()
    async with app.worker():
        await first.result(timeout=10)

    assert (first.created, second.created) == (True, False)
    assert media_app.ran == ["a", "tell"]


async def test_the_id_of_another_step_that_is_taken_counts_as_failed(app: qbull.App) -> None:
    media_app = MediaApp(app)
    await media_app.make.options(id="taken", delay=3600).enqueue("z")

    flow = await qbull.chain(media_app.make.options(id="taken").step("a"), media_app.tell.step()).enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="its id is taken by another job"):
            await flow.result(timeout=10)


async def test_a_flow_works_while_queues_keep_nothing(app: qbull.App) -> None:
    ran: list[str] = []
    quick = app.queue("quick", keep=qbull.Keep(completed=0))

    @quick.task
    async def make(what: str) -> str:
        ran.append(what)
        return what

    @quick.task
    async def tell() -> None:
        ran.append("+".join(qbull.current_job().results))

    await qbull.group(make.step("a"), make.step("b"), then=tell.step()).enqueue()
    async with app.worker() as worker:
        await worker.drain()

    assert ran[-1] == "a+b"
    assert (await quick.stats()).total == 0


def test_a_flow_is_enqueued_from_synchronous_code(app: qbull.App) -> None:
    media_app = MediaApp(app)

    flow = qbull.chain(media_app.make.step("a"), media_app.tell.step()).enqueue_sync()

    assert (flow.created, len(flow.jobs)) == (True, 2)


async def test_what_cannot_be_a_flow_is_refused_before_anything_is_sent(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make = media_app.make
    wrong = [
        (lambda: qbull.chain(), "at least one step"),
        (lambda: qbull.chain(make.enqueue), "is no step"),  # type: ignore[arg-type]
        (
            lambda: qbull.group(make.step("a"), make.step("b")).enqueue_sync(),
            "ends with one job, this one with 2",
        ),
        (lambda: qbull.chain(make.step("a"), on_failed="go on"), 'use "stop" or "continue"'),  # type: ignore[arg-type]
        (lambda: make.options(unique=qbull.Unique(window=5)).step("a"), "unique is not for steps"),
        (lambda: make.step(7), "what"),  # type: ignore[arg-type]
        (
            lambda: qbull.chain(
                make.options(id="x").step("a"), media_app.tell.step(), make.options(id="x").step("b")
            ).enqueue_sync(),
            "2 steps of a flow have the id 'x'",
        ),
    ]

    for make_it, fact in wrong:
        with pytest.raises(qbull.ArgumentsError, match=fact):
            make_it()
    assert (await media_app.media.stats()).total == 0


async def test_a_fallback_may_be_a_chain_or_have_a_fallback_itself(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make = media_app.make
    instead = qbull.chain(make.step("break"), make.step("never"), fallback=make.step("last resort"))

    needed = await qbull.chain(make.step("break"), fallback=instead).enqueue()
    spared = await qbull.chain(make.step("a"), fallback=instead).enqueue()
    async with app.worker():
        results = [await needed.result(timeout=10), await spared.result(timeout=10)]

        async def forgotten() -> bool:
            return [await job.state() for job in spared.jobs] == ["completed", None, None, None]

        await eventually(forgotten)

    assert results == ["last resort", "a"]
    assert sorted(media_app.ran) == ["a", "break", "break", "last resort"]


async def test_a_flow_is_found_again_from_any_of_its_jobs(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell
    parts = qbull.group(make.step("b"), make.step("c"))
    enqueued = await qbull.chain(make.step("a"), parts, tell.step(), fallback=tell.step("x")).enqueue()

    found = [await app.flow(job.queue, job.id) for job in enqueued.jobs]
    waiting = await found[0].counts()
    async with app.worker():
        result = await found[1].result(timeout=10)
        again = await app.flow("mail", enqueued.last.id)
        await eventually(lambda: has_counts(again, {"completed": 4}))

    assert {flow.id for flow in found} == {enqueued.id}
    assert {flow.last.id for flow in (*found, again)} == {enqueued.last.id}
    assert {len(flow.jobs) for flow in found} == {5}
    assert waiting == {"waiting": 1, "delayed": 4}
    assert result == ["b", "c"]


async def test_the_handle_of_a_found_flow_knows_its_fallbacks(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell
    inner = qbull.chain(make.step("break"), fallback=make.step("instead"))
    enqueued = await qbull.chain(
        inner, make.step("break"), fallback=qbull.chain(make.step("d"), tell.step())
    ).enqueue()

    flow = await app.flow("media", enqueued.jobs[0].id)
    async with app.worker():
        result = await flow.result(timeout=10)

    assert flow.last.id == enqueued.last.id
    assert result == ["d"]
    assert media_app.ran == ["break", "instead", "break", "d", "tell"]


async def test_a_fallback_that_just_left_the_flow_is_not_its_last_job(app: qbull.App) -> None:
    """Between the end of the last job and the removal of the fallback, the fallback waits for nobody."""
    media_app = MediaApp(app)
    enqueued = await qbull.chain(media_app.make.step("a"), fallback=media_app.make.step("b")).enqueue()
    last, spared = [(job.queue, job.id) for job in enqueued.jobs]
    walked = await walk_flow(app._client(), app._find_queue, last, 10)
    assert walked is not None
    left = msgspec.structs.replace(walked.seen[spared], awaits=[], fallback=False)

    assert flow_exits({spared: left, last: walked.seen[last]}) == [last, spared]


async def test_a_job_without_a_flow_has_none(app: qbull.App) -> None:
    media_app = MediaApp(app)
    job = await media_app.make.enqueue("a")

    with pytest.raises(qbull.NotFound, match=f'queue "media": job {job.id} belongs to no flow'):
        await app.flow("media", job.id)
    with pytest.raises(qbull.NotFound, match="unknown"):
        await app.flow("media", "unknown")


async def test_a_completed_job_and_all_behind_it_run_again(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell
    flow = await qbull.chain(
        make.step("a"), qbull.group(make.step("b"), make.step("c")), tell.step(), make.step("d")
    ).enqueue()
    async with app.worker():
        await flow.result(timeout=10)
        [b] = [job for job in flow.jobs if (await info_of(job)).payload == {"what": "b"}]
        media_app.ran.clear()

        again = await flow.rerun(b)
        result = await again.result(timeout=10)

    assert media_app.ran == ["b", "tell", "d"]
    assert result == "d"
    [told] = [job for job in again.jobs if job.queue == "mail"]
    assert (await info_of(told)).result == ["b", "c"]
    assert await flow.counts() == {"completed": 5}
    assert again.id != flow.id and len(again.jobs) == 3
    assert await again.counts() == {"completed": 3}


async def test_a_flow_runs_again_from_its_failed_job_with_its_order(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell
    flow = await qbull.chain(make.step("a"), make.step("break"), tell.step()).enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed):
            await flow.result(timeout=10)
        media_app.broken.clear()
        again = await flow.rerun(flow.jobs[1])
        result = await again.result(timeout=10)

    assert result == ["break"]
    assert media_app.ran == ["a", "break", "break", "tell"]
    assert await flow.counts() == {"completed": 1, "failed": 2}


async def test_a_rerun_whose_fallback_was_not_needed_fails_without_one(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell
    inner = qbull.chain(make.step("b"), fallback=make.step("instead"))
    flow = await qbull.chain(make.step("a"), inner, tell.step()).enqueue()
    async with app.worker():
        await flow.result(timeout=10)
        media_app.broken.add("b")
        again = await (await app.flow("mail", flow.last.id)).rerun(flow.jobs[1])
        with pytest.raises(qbull.JobFailed, match="no b"):
            await again.result(timeout=10)


async def test_only_ended_jobs_are_rerun(app: qbull.App) -> None:
    media_app = MediaApp(app)
    make, tell = media_app.make, media_app.tell
    flow = await qbull.chain(make.step("break"), tell.step(), fallback=tell.step("x")).enqueue()

    with pytest.raises(qbull.Conflict, match="has not ended; wait for it, or cancel the flow first"):
        await flow.rerun(flow.jobs[0])
    with pytest.raises(qbull.ArgumentsError, match="is a fallback; rerun the job that it stands in for"):
        await flow.rerun(flow.jobs[2])
    async with app.worker():
        await flow.result(timeout=10)
    with pytest.raises(qbull.Conflict, match="which has not completed; rerun that one"):
        await flow.rerun(flow.jobs[1])


async def has_counts(flow: qbull.Flow[Any], counts: dict[str, int]) -> bool:
    return {state: many for state, many in (await flow.counts()).items() if state != "removed"} == counts


async def info_of(job: qbull.Job[Any]) -> Any:
    info = await job.info()
    assert info is not None
    return info


@pytest.mark.parametrize("codec", [qbull.Signed, qbull.Encrypted])
async def test_a_rerun_is_protected_like_its_flow(codec: Any, server_url: str) -> None:
    protection = codec([qbull.Encrypted.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[protection]) as app:
        media_app = MediaApp(app)
        make, tell = media_app.make, media_app.tell
        flow = await qbull.chain(
            make.step("a"), qbull.group(make.step("b"), make.step("c")), tell.step()
        ).enqueue()
        async with app.worker():
            await flow.result(timeout=10)
            again = await flow.rerun(flow.jobs[2])
            result = await again.result(timeout=10)
            last = await again.rerun(again.last)
            result_of_last = await last.result(timeout=10)

    assert result == result_of_last == ["b", "c"]
    assert media_app.ran.count("a") == 1 and media_app.ran.count("tell") == 3


async def test_a_rerun_keeps_the_keys_of_its_jobs(app: qbull.App) -> None:
    ordered, ran = app.queue("ordered", partitions=3, order="key"), []

    @ordered.task(key="{account}")
    async def book(account: str, number: int) -> int:
        ran.append((account, number, qbull.current_job().key))
        return number

    flow = await qbull.chain(book.step("ann", 1), book.step("bob", 2), book.step("ann", 3)).enqueue()
    async with app.worker():
        await flow.result(timeout=10)
        ran.clear()
        again = await flow.rerun(flow.jobs[0])
        await again.result(timeout=10)

    assert ran == [("ann", 1, "ann"), ("bob", 2, "bob"), ("ann", 3, "ann")]


async def test_a_cancelled_flow_is_retried_in_order(app: qbull.App) -> None:
    queue, ran, go = app.queue("q"), [], asyncio.Event()

    @queue.task
    async def step(name: str) -> str:
        await go.wait()
        ran.append((name, len(qbull.current_job().results)))
        return name

    async def ended() -> bool:
        return (await flow.counts()).get("cancelled") == 4

    flow = await qbull.chain(
        step.step("a"), qbull.group(step.step("b"), step.step("c")), step.step("d")
    ).enqueue()
    async with app.worker():
        await flow.cancel()
        await eventually(ended)
        go.set()

        assert await flow.retry() == 4
        assert await flow.result(timeout=10) == "d"

    assert ran[0] == ("a", 0) and ran[-1] == ("d", 2) and len(ran) == 4
    assert await flow.retry() == 0
