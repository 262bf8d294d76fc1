"""Replay: the order in which the steps of one run go on.

Results are returned to the code in the order of their numbers, one at a time. That holds in the run that
records them, too: the writes of parallel steps may end in another order. After each result the code gets some
turns of the event loop, if other steps are outstanding. So it sees them one by one in every run, and a race
between parallel steps ends the same way. A step without a record waits until all records are returned: if the
code still fits its history, it asks for all of them without that step's result.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from qbull.core.durable import History, StepRecord
from qbull.errors import HistoryMismatch

TURNS_PER_RESULT = 8
"""Turns of the event loop between two results: enough for a chain of gather, wait and task groups."""
HELD_STEP_SECONDS = 5.0
"""A step that has waited so long for the replay, while the code asked for nothing, does not fit."""


@dataclass(slots=True, eq=False)
class _HeldStep:
    """A step that waits for its turn. A step without a record waits for the end of the replay."""

    name: str
    record: StepRecord | None
    turn: asyncio.Future[None]


class Replay:
    """The turns of one run.

    Args:
        task: the name of the task, for messages.
        history: the records of the job.
    """

    def __init__(self, task: str, history: History) -> None:
        self._task = task
        self._history = history
        self._held: list[_HeldStep] = []
        self._pacing = False
        self._moves = 0
        # The numbers of the records that are on their way to the server.
        self._writing: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.outstanding = 0
        """The steps that were asked for and have not returned."""
        self.mismatch: HistoryMismatch | None = None

    def asked(self) -> None:
        """The code has asked for a step."""
        self.outstanding += 1
        self._moves += 1

    def returned(self) -> None:
        """The code has the outcome of a step."""
        self.outstanding -= 1

    def writing(self, number: int) -> None:
        """A record with this number is on its way. Records with higher numbers are returned after it."""
        self._writing.add(number)

    def written(self, record: StepRecord) -> bool:
        """The record is on the server. Returns whether the code may have its outcome at once."""
        self._left(record.number)
        if self._history.unplayed or self._pacing or self._is_early(record):
            self._history.unplayed_next(record)
            return False
        self._went_on()
        return True

    def lost(self, number: int) -> None:
        """The record with this number will not be on the server."""
        self._left(number)

    def _left(self, number: int) -> None:
        self._writing.remove(number)
        if self._held:
            self._pace()

    def take_turn(self, record: StepRecord | None) -> bool:
        """Return this record at once if it is its turn. Without a record: whether the step may run."""
        unplayed = self._history.unplayed
        if record is None:
            return not unplayed
        if unplayed[0] is not record or self._pacing or self._is_early(record):
            return False
        self._play(record)
        return True

    async def turn(self, name: str, record: StepRecord | None) -> None:
        """Wait until this record may be returned; without a record, until the step may run."""
        if self.take_turn(record):
            return
        held = _HeldStep(name, record, asyncio.get_running_loop().create_future())
        self._held.append(held)
        self._pace()
        self._watch()
        try:
            await held.turn
        except asyncio.CancelledError:
            if record is not None and held.turn.cancelled():
                # The code no longer waits for it.
                self._history.played(record)
            raise
        finally:
            self._held.remove(held)
            if self._held:
                self._pace()
            elif self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def check_complete(self) -> None:
        """The task has returned: it must have asked for everything that is recorded."""
        if self.mismatch is None and self._history.unplayed:
            self.mismatch = self._make_mismatch("ends without it")
        if self.mismatch is not None:
            raise self.mismatch

    def close(self) -> None:
        """The run is over. Steps that still wait are cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        for held in self._held:
            held.turn.cancel()

    def _play(self, record: StepRecord) -> None:
        self._history.played(record)
        self._went_on()

    def _went_on(self) -> None:
        """The code gets an outcome. With other steps outstanding, the next one comes some turns later."""
        self._moves += 1
        if self.outstanding > 1:
            self._pace()

    def _pace(self) -> None:
        if not self._pacing:
            self._pacing = True
            asyncio.get_running_loop().call_soon(self._spin, TURNS_PER_RESULT)

    def _spin(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._spin, turns - 1)
            return
        self._pacing = False
        unplayed = self._history.unplayed
        first = unplayed[0] if unplayed else None
        if first is not None and self._is_early(first):
            return
        for held in self._held:
            if held.record is first and not held.turn.done():
                held.turn.set_result(None)
                if first is not None:
                    self._play(first)
                    return

    def _is_early(self, record: StepRecord) -> bool:
        """Whether a record with a lower number is still on its way: a replay would return that one first."""
        return bool(self._writing) and min(self._writing) < record.number

    def _watch(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HELD_STEP_SECONDS, self._look, self._moves)

    def _look(self, moves: int) -> None:
        """Fail the steps that wait, if nothing has moved since."""
        self._timer = None
        unplayed = self._history.unplayed
        if self._moves != moves or not unplayed or any(held.record is unplayed[0] for held in self._held):
            self._watch()
            return
        for held in self._held:
            if not held.turn.done():
                self.mismatch = self._make_mismatch(_asks_for(held.name, unplayed[0].name))
                held.turn.set_exception(self.mismatch)

    def _make_mismatch(self, code: str) -> HistoryMismatch:
        recorded = self._history.unplayed[0]
        return HistoryMismatch(
            f'task "{self._task}": number {recorded.number} of the recorded steps is "{recorded.name}", '
            f"but the code {code}; it has changed since the job started, so run the code that started it"
        )


def _asks_for(name: str, recorded: str) -> str:
    return f'asks for "{name}"' if name != recorded else f'asks for "{name}" with other arguments'
