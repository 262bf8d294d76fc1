"""The loop watch: shows that the event loop of this worker runs, and warns if a task blocks it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from qbull.errors import ServerError
from qbull.worker.actor import BackgroundTasks
from qbull.worker.blocked_worker import BlockedWorker
from qbull.worker.current import RunningJob
from qbull.worker.job_log import fields_of
from qbull.worker.loop_limits import LOOP_BLOCKED_SECONDS, LOOP_TURN_SECONDS
from qbull.worker.process.crash_board import CrashBoard
from qbull.worker.slot import Slot
from qbull.worker.stack_report import stack_on_loop

log = logging.getLogger("qbull.worker")

GIVE_WAY_SECONDS = 0.5
"""Seconds between two looks for deliveries to release: a read that was on its way may have brought more."""
MAX_STACK_FRAMES = 20
_QBULL_WORKER_DIRECTORY = os.path.dirname(__file__)


class LoopWatch:
    """One for a worker, with a thread of its own.

    Args:
        board: Shows the supervisor that the loop runs; None without a supervisor.
        slots: Returns the slots of the worker.
        blocked: Gives way to other workers while the loop is blocked.
        register: Writes the worker to the registry again when its loop runs again.
        warn_after: Seconds for which a task may block the loop before a warning.
    """

    def __init__(
        self,
        board: CrashBoard | None,
        slots: Callable[[], Sequence[Slot]],
        blocked: BlockedWorker,
        register: Callable[[], Coroutine[Any, Any, None]],
        warn_after: float,
    ) -> None:
        self._board = board
        self._slots = slots
        self._blocked = blocked
        self._register = register
        self._warn_after = warn_after
        self._every = min(LOOP_TURN_SECONDS, warn_after / 4)
        self._ran_at = time.monotonic()
        self._gave_way = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._background = BackgroundTasks()
        self._stop = threading.Event()

    def start(self) -> None:
        """Watch the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._turn()
        threading.Thread(target=self._watch, name="qbull-loop-watch", daemon=True).start()

    async def stop(self) -> None:
        """Stop to watch. The supervisor then takes no notice of the loop either."""
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._board is not None:
            self._board.loop_ran(0.0)
        await self._background.stop()

    def _turn(self) -> None:
        """On the loop: it runs."""
        assert self._loop is not None
        self._ran_at = time.monotonic()
        if self._board is not None:
            self._board.loop_ran(self._ran_at)
        if self._gave_way:
            self._gave_way = False
            self._background.start(self._take_part_again())
        self._timer = self._loop.call_later(self._every, self._turn)

    async def _take_part_again(self) -> None:
        """Take the worker's share of the partitions again. Its next registration does it otherwise."""
        with suppress(ServerError):
            await self._register()

    def _watch(self) -> None:
        """In the thread: warn once for each time that the loop stands still, and give way to others."""
        warned = give_way_at = 0.0
        while True:
            asked = time.monotonic()
            if self._stop.wait(self._every):
                return
            now, ran_at = time.monotonic(), self._ran_at
            if now - asked > self._every + self._warn_after / 2:
                # The whole process stood still, not only its loop.
                continue
            late = now - ran_at - self._every
            with suppress(Exception):
                # Neither the log nor the server may end the watch.
                if late > self._warn_after and warned != ran_at:
                    warned = ran_at
                    self._warn(now - ran_at)
                if late > LOOP_BLOCKED_SECONDS - self._every and now > give_way_at:
                    give_way_at = now + GIVE_WAY_SECONDS
                    self._gave_way = True
                    running = self._running_slot()
                    task = running.job.body.task if running is not None and running.job is not None else None
                    asyncio.run(self._blocked.answer_stacks(self._slots(), self._stack))
                    asyncio.run(self._blocked.give_way(now - ran_at, task))

    async def _stack(self, slot: Slot, job: RunningJob) -> tuple[str, str]:
        """The stack of a job while the loop is blocked; of the job that blocks it, the stack of the loop."""
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None or slot is not self._running_slot():
            return await stack_on_loop(slot, job)
        return "coroutine", stack_of(frame)

    def _warn(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        running = self._running_slot()
        job = running.job if running is not None else None
        who = "a task" if job is None else f"job {job.id.decode('utf-8', 'replace')} ({job.body.task})"
        queue = "" if job is None else f'queue "{job.queue}": '
        text = (
            "%sthe event loop has been blocked for %.1f s by %s; "
            "use a plain function or cpu=True for such work"
        )
        extra: dict[str, Any] = fields_of(job) if job is not None else {}
        stack = None if frame is None else stack_of(frame)
        record = log.makeRecord(
            log.name, logging.WARNING, __file__, 0, text, (queue, seconds, who), None, None, extra, stack
        )
        log.handle(record)

    def _running_slot(self) -> Slot | None:
        """The slot whose job has the loop.

        A job that has started further tasks is known only if it runs alone.
        """
        task = asyncio.current_task(self._loop)
        running = [slot for slot in self._slots() if slot.job is not None]
        for slot in running:
            if slot.task is task:
                return slot
        return running[0] if len(running) == 1 else None


def stack_of(frame: FrameType) -> str:
    """The stack of a task, without the frames of the worker that lead to it."""
    frames = traceback.extract_stack(frame)
    own = [n for n, summary in enumerate(frames) if summary.filename.startswith(_QBULL_WORKER_DIRECTORY)]
    after = frames[own[-1] + 1 :] if own and own[-1] + 1 < len(frames) else frames
    lines = traceback.format_list(after[-MAX_STACK_FRAMES:])
    return "Stack (most recent call last):\n" + "".join(lines).rstrip("\n")
