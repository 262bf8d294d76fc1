"""Outcomes: what became of a batch of jobs, gathered by the worker's settler, as lua/settle.lua takes it."""

from __future__ import annotations

from typing import NamedTuple


class JobPosition(NamedTuple):
    """Which job of a delivery: `lane` is empty and `number` 0 where it is alone in its entry."""

    place: bytes
    lane: bytes
    number: int
    last: bool

    @property
    def state(self) -> bytes:
        """What a train must be at for this job to be settled."""
        if not self.lane:
            return b""
        return b"%s %d" % (self.place, self.number) if self.number else self.place


class PartitionOutcomes:
    """What became of some jobs of a partition, to be written down in one call."""

    __slots__ = ("broken", "count", "ended", "others", "singles", "trains")

    def __init__(self) -> None:
        self.count = 0
        self.singles: dict[str, tuple[list[bytes], list[bytes]]] = {}
        self.trains: dict[bytes, tuple[JobPosition, list[bytes]]] = {}
        self.ended: dict[bytes, bytes] = {}  # trains, and "-" where the rest goes back
        self.broken: set[bytes] = (
            set()
        )  # those with a dead or cancelled one: what comes after is settled after it
        self.others: list[bytes | str | int] = []

    def done(self, band: str, entry: bytes, id: bytes, sealed: bytes) -> None:
        """A job that was alone in its entry is done."""
        self.count += 1
        singles = self.singles.get(band)
        if singles is None:
            singles = self.singles[band] = ([], [])
        singles[0].append(entry)
        singles[1].extend((id, sealed))

    def done_in_train(self, at: JobPosition, id: bytes, record: bytes, seal: bytes) -> None:
        self.count += 1
        if at.place in self.broken:
            self._other(at, id, "done", record, seal)
            return
        train = self.trains.get(at.place)
        if train is None:
            self.trains[at.place] = at, [id, record + seal]
        else:
            train[1].extend((id, record + seal))
        if at.last:
            self.ended[at.place] = b""

    def give_way(self, place: bytes) -> bool:
        """A train ends with what was done of it, and the rest goes back: others shall have their turn."""
        if place not in self.trains or place in self.broken:
            return False
        self.ended.setdefault(place, b"-")
        return True

    def dead(self, at: JobPosition, id: bytes, record: bytes, seal: bytes) -> None:
        self.count += 1
        self.broken.add(at.place)
        self._other(at, id, "dead", record, seal)

    def cancelled(self, at: JobPosition, id: bytes, record: bytes, seal: bytes) -> None:
        self.count += 1
        self.broken.add(at.place)
        self._other(at, id, "cancel", record, seal)

    def delay(self, at: JobPosition, id: bytes, record: bytes, milliseconds: int) -> None:
        self.count += 1
        self._other(at, id, "delay", record, milliseconds)

    def later(self, at: JobPosition, id: bytes, record: bytes, milliseconds: int) -> None:
        self.count += 1
        self._other(at, id, "later", record, milliseconds)

    def _other(self, at: JobPosition, id: bytes, word: str, record: bytes, detail: bytes | int) -> None:
        self.others += (at.place, at.lane, at.state, id, word, "1" if at.last else "0", record, detail)

    def arguments(self) -> list[bytes | str | int]:
        singles: list[bytes | str | int] = []
        for band, (entries, jobs) in self.singles.items():
            singles += (band, len(entries), *entries, *jobs)
        members: list[bytes | str | int] = []
        for place, (first, jobs) in self.trains.items():
            many = len(jobs) // 2
            following = self.ended.get(place)
            if following is None:
                following = b"%s %d" % (place, first.number + many)
            members += (first.lane, first.state, following, many, *jobs)
        return [len(singles), len(members), *singles, *members, *self.others]
