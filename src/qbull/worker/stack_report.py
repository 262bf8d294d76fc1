"""Stack reports: answer where the task of a running job is. Jobs pay nothing for it until somebody asks.

A coroutine is followed through what it waits for. The thread of a plain function is found by the frame that
called it. A process of `cpu=True` dumps its stack on a signal, even if it is inside of C code.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from qbull.errors import ServerError
from qbull.store.verbs import stacks
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.stacks import StackReport
from qbull.worker.actor import BackgroundTasks
from qbull.worker.call import __file__ as _CALL_FILE
from qbull.worker.current import RunningJob
from qbull.worker.process.stack_dump import MAX_REPORTED_FRAMES, format_frames
from qbull.worker.slot import Slot

MAX_STACK_CHARS = 20_000

StackSource = Callable[[Slot, RunningJob], Awaitable[tuple[str, str]]]
"""Returns how a job runs, and its stack."""


class StackReporter:
    """For one queue."""

    def __init__(self, worker: str, slots: Sequence[Slot]) -> None:
        self._worker = worker
        self._slots = slots
        self._background = BackgroundTasks()
        self._answering: set[str] = set()

    def on_wake_up(self, base: str) -> None:
        """Somebody asks for the stack of a job in a partition; of any if the base is empty."""
        for partition in partitions_of(self._slots):
            if base in (partition.base, "") and partition.base not in self._answering:
                self._answering.add(partition.base)
                self._background.start(self._answer(partition))

    async def close(self) -> None:
        """Answer no more."""
        await self._background.stop()

    async def _answer(self, partition: Partition) -> None:
        try:
            with suppress(ServerError):  # Who asks does so again.
                await answer_questions(self._worker, partition, self._slots, stack_on_loop)
        finally:
            self._answering.discard(partition.base)


def partitions_of(slots: Sequence[Slot]) -> list[Partition]:
    """The partitions of the jobs that run."""
    jobs = [slot.job for slot in slots]
    found = {
        job.partition.base: job.partition for job in jobs if job is not None and job.partition is not None
    }
    return list(found.values())


async def answer_questions(
    worker: str, partition: Partition, slots: Sequence[Slot], source: StackSource
) -> None:
    """Answer the questions about jobs of a partition that run in these slots."""
    asked = await stacks.questions(partition)
    for slot in slots if asked else ():
        job = slot.job
        if job is None or job.partition is None or job.partition.base != partition.base:
            continue
        token = asked.get(job.id)
        if token is not None:
            kind, stack = await source(slot, job)
            if stack:  # A process that is starting has none yet.
                report = StackReport(worker, kind, stack[-MAX_STACK_CHARS:])
                await stacks.answer(partition, job.id, token, report)


async def stack_on_loop(slot: Slot, job: RunningJob) -> tuple[str, str]:
    """The stack of a job, on the event loop of its worker."""
    if job.process_stack is not None:
        return "process", await job.process_stack()
    if (frame := _thread_frame(job)) is not None:
        return "thread", _formatted(traceback.walk_stack(frame), is_innermost_first=True)
    if slot.task is None:
        return "coroutine", ""
    return "coroutine", _formatted(_awaited(slot.task))


def _thread_frame(job: RunningJob) -> FrameType | None:
    """The innermost frame of the thread that runs the function of a job."""
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            code = frame.f_code
            if code.co_filename == _CALL_FILE and code.co_name == "call" and frame.f_locals.get("job") is job:
                return innermost
            frame = frame.f_back
    return None


def _awaited(task: asyncio.Task[Any]) -> Iterator[tuple[FrameType, int]]:
    """The frames of a task that waits, the outermost first; then those of the task that it waits for."""
    seen: set[int] = set()
    waiting: Any = task
    while isinstance(waiting, asyncio.Task) and id(waiting) not in seen:
        seen.add(id(waiting))
        inner: Any = waiting.get_coro()
        while inner is not None and len(seen) < MAX_REPORTED_FRAMES:
            frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
            frame = frame or getattr(inner, "ag_frame", None)
            if frame is not None:
                yield frame, frame.f_lineno
            following = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
            inner = following or getattr(inner, "ag_await", None)
        waiting = getattr(waiting, "_fut_waiter", None)


def _formatted(frames: Iterator[tuple[FrameType, int]], *, is_innermost_first: bool = False) -> str:
    """The frames of a task without those of the worker around it."""
    found = list(traceback.StackSummary.extract(frames))
    if is_innermost_first:
        found.reverse()
    return format_frames(found)
