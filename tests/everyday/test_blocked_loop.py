"""A task that blocks the event loop holds up only its own jobs: other workers read its partitions meanwhile."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs.workers import RegisteredWorker


@pytest.mark.timeout(180)
async def test_others_run_the_jobs_of_a_worker_whose_event_loop_is_blocked(
    log: Path, store: Store, server_url: str
) -> None:
    options, gate = ("--queues", "spread"), log.with_suffix(".gate")
    environment = {"EVERYDAY_GATE": str(gate)}
    async with (
        WorkerProgram(server_url, log, options, environment) as one,
        WorkerProgram(server_url, log, options, environment) as other,
    ):
        await eventually(lambda: _shares(store), within=30)
        # The blocked worker has fetched some of the others by the time that it starts this one.
        await everyday_app.block_loop.enqueue(number=0)
        await everyday_app.spread_quick.enqueue_many([{"number": n} for n in range(100)])
        await eventually(lambda: has_lines(log, 1, "start", "block"), within=30)
        await everyday_app.spread_quick.enqueue_many([{"number": n} for n in range(100, 200)])

        await eventually(lambda: has_lines(log, 200, "start", "quick"), within=25)
        assert lines(log, "end", "block") == []
        [blocked] = lines(log, "start", "block")
        program = one if blocked.pid in one.children() else other
        await eventually(lambda: _has_said(program, "the event loop has been blocked"))
        gate.touch()
        await eventually(lambda: has_lines(log, 1, "end", "block"), within=30)
        await eventually(lambda: _shares(store), within=30)
        await everyday_app.spread_quick.enqueue_many([{"number": n} for n in range(200, 260)])
        await eventually(lambda: has_lines(log, 260, "start", "quick"), within=30)

    starts = Counter(line.number for line in lines(log, "start", "quick"))
    assert starts == Counter(range(260))
    assert blocked.pid in {line.pid for line in lines(log, "start", "quick") if line.number >= 200}
    text = program.text()
    assert "(block_loop); use a plain function or cpu=True" in text
    assert "in wait_for_gate" in text


async def _shares(store: Store) -> bool:
    """Both workers read their share, and neither counts as blocked."""
    workers = (await store.workers()).values()
    shares = [sorted(worker.queues["spread"].partitions) for worker in workers]
    return sorted(map(len, shares)) == [4, 4] and not any(worker.blocked for worker in workers)


async def _has_said(program: WorkerProgram, text: str) -> bool:
    return text in program.text()


@pytest.mark.timeout(180)
async def test_a_worker_that_holds_the_gil_is_shown_as_blocked_with_its_task(
    log: Path, store: Store, server_url: str
) -> None:
    """No thread of such a process can run: its supervisor sees it."""
    async with WorkerProgram(server_url, log, ("--queues", "spread")) as program:
        job = await everyday_app.hold_gil.enqueue(number=0, seconds=8)
        await eventually(lambda: has_lines(log, 1, "start", "gil"), within=30)

        [(id, worker)] = await eventually(lambda: _blocked(store), within=30)
        why = await job.why()
        await job.result(timeout=60)
        await eventually(lambda: _none_blocked(store), within=30)

    assert worker.blocked_by == ["hold_gil"]
    assert f"the event loop of worker {id} is blocked by hold_gil since " in str(why)
    assert "its event loop is blocked while it runs hold_gil" in program.text()


async def _blocked(store: Store) -> list[tuple[str, RegisteredWorker]]:
    return [(id, worker) for id, worker in (await store.workers()).items() if worker.blocked]


async def _none_blocked(store: Store) -> bool:
    return not await _blocked(store)


async def test_only_a_registered_worker_is_marked_as_blocked(store: Store) -> None:
    await store.register_worker("here", RegisteredWorker("host", 1, "pod"), 30)

    marked = [await store.mark_blocked(worker, 1000, ["a", "b"]) for worker in ("here", "here", "gone")]

    assert marked == [True, True, False]
    assert {id: worker.blocked for id, worker in (await store.workers()).items()} == {"here": True}
    await store.mark_blocked("here", 2000, ["a"])
    known = (await store.workers())["here"]
    assert (known.blocked_since_ms, known.blocked_by) == (1000, ["a"]), "the process knows its task"
    await store.mark_blocked("here", 3000, ["a", "b"])
    assert (await store.workers())["here"] == known
    await store.mark_blocked("here", 0)
    assert (await store.workers())["here"] == RegisteredWorker("host", 1, "pod")
    await store.forget_worker("here", certain=True)
