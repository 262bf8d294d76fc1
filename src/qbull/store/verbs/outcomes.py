"""Outcomes of a batch of jobs, collected by the worker's settler in the form that lua/settle.lua takes."""

from __future__ import annotations

from typing import NamedTuple

from qbull.core.failures import kind_of_ending


class JobPosition(NamedTuple):
    """A job of a delivery. For a job that is alone in its entry, `lane` is empty and `number` is 0."""

    delivery: bytes
    lane: bytes
    number: int
    last: bool

    @property
    def state(self) -> bytes:
        """The state that the train must have for this job to be settled."""
        if not self.lane:
            return b""
        return b"%s %d" % (self.delivery, self.number) if self.number else self.delivery


class DeliveryState(NamedTuple):
    """A delivery as a worker has it, for lua/holds.lua: a train, or a job that is alone in its entry."""

    lane: bytes
    name: bytes
    state: bytes


class PartitionOutcomes:
    """The outcomes of some jobs of a partition, written in one call."""

    __slots__ = ("broken", "count", "ended", "others", "singles", "trains")

    def __init__(self) -> None:
        self.count = 0
        self.singles: dict[str, tuple[list[bytes], list[bytes]]] = {}
        self.trains: dict[bytes, tuple[JobPosition, list[bytes]]] = {}
        self.ended: dict[bytes, bytes] = {}  # trains, and "-" if the rest goes back
        # Trains with a job that did not complete. The outcomes of its later jobs are settled after it.
        self.broken: set[bytes] = set()
        self.others: list[bytes | str | int] = []

    def done(self, level: str, entry: bytes, id: bytes, record_with_ending: bytes) -> None:
        """Record that a job which was alone in its entry has completed."""
        self.count += 1
        singles = self.singles.get(level)
        if singles is None:
            singles = self.singles[level] = ([], [])
        singles[0].append(entry)
        singles[1].extend((id, record_with_ending))

    def done_next(self, delivery: bytes, id: bytes, record_with_ending: bytes, is_last: bool) -> bool:
        """Record that the next job of a train has completed. Returns False if its train is not here yet, or
        if a job before it did not complete.
        """
        train = self.trains.get(delivery)
        if train is None or delivery in self.broken:
            return False
        self.count += 1
        train[1].extend((id, record_with_ending))
        if is_last:
            self.ended[delivery] = b""
        return True

    def done_in_train(self, position: JobPosition, id: bytes, record: bytes, ending: bytes) -> None:
        self.count += 1
        if position.delivery in self.broken:
            self._other(position, id, "done", record, ending)
            return
        train = self.trains.get(position.delivery)
        if train is None:
            self.trains[position.delivery] = position, [id, record + ending]
        else:
            train[1].extend((id, record + ending))
        if position.last:
            self.ended[position.delivery] = b""

    def yield_train(self, delivery: bytes) -> bool:
        """End a train after its completed jobs and give the rest back, so that other lanes get their turn."""
        if delivery not in self.trains or delivery in self.broken:
            return False
        self.ended.setdefault(delivery, b"-")
        return True

    def dead(self, position: JobPosition, id: bytes, record: bytes, ending: bytes) -> None:
        self.count += 1
        self.broken.add(position.delivery)
        self._other(position, id, b"dead " + kind_of_ending(ending), record, ending)

    def cancelled(self, position: JobPosition, id: bytes, record: bytes, ending: bytes) -> None:
        self.count += 1
        self.broken.add(position.delivery)
        self._other(position, id, "cancel", record, ending)

    def delay(self, position: JobPosition, id: bytes, record: bytes, milliseconds: int) -> None:
        self.count += 1
        self.broken.add(position.delivery)
        self._other(position, id, "delay", record, milliseconds)

    def postpone(self, position: JobPosition, id: bytes, record: bytes, milliseconds: int) -> None:
        self.count += 1
        self._other(position, id, "later", record, milliseconds)

    def suspend(
        self, position: JobPosition, id: bytes, record: bytes, until: int | str, *, hold_lane: bool
    ) -> None:
        """Record that a durable job sleeps until a time of the server's clock, or waits for a signal."""
        self.count += 1
        if not hold_lane:
            self.broken.add(position.delivery)
        self._other(position, id, "sleep" if hold_lane else "pass", record, until)

    def start_anew(self, position: JobPosition, id: bytes, record: bytes) -> None:
        """Record that a durable job starts over, with this record and an empty history."""
        self.count += 1
        self.broken.add(position.delivery)
        self._other(position, id, "anew", record, "")

    def park(self, position: JobPosition, id: bytes, record: bytes, need: str) -> None:
        self.count += 1
        self.broken.add(position.delivery)
        self._other(position, id, "park", record, need)

    def _other(
        self, position: JobPosition, id: bytes, word: str | bytes, record: bytes, detail: bytes | str | int
    ) -> None:
        self.others += (
            position.delivery,
            position.lane,
            position.state,
            id,
            word,
            "1" if position.last else "0",
            record,
            detail,
        )

    def arguments(self) -> list[bytes | str | int]:
        singles: list[bytes | str | int] = []
        for level, (entries, jobs) in self.singles.items():
            singles += (level, len(entries), *entries, *jobs)
        members: list[bytes | str | int] = []
        for delivery, (first, jobs) in self.trains.items():
            many = len(jobs) // 2
            following = self.ended.get(delivery)
            if following is None:
                following = b"%s %d" % (delivery, first.number + many)
            members += (first.lane, first.state, following, many, *jobs)
        return [len(singles), len(members), *singles, *members, *self.others]
