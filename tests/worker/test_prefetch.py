"""The buffer: what a worker holds, in which order it is begun, and what must not come into it twice."""

from __future__ import annotations

from typing import Any, cast

from qbull.store.delivery import Delivery
from qbull.worker.prefetch import PrefetchBuffer, delivery_key


class Anywhere:
    """Stands for a partition; the hand only asks for its number."""

    def __init__(self, number: int) -> None:
        self.number = number


def delivery(entry: str, band: str = "5", partition: int = 0) -> Delivery:
    place = f"{band}{entry}".encode()
    return Delivery(cast(Any, Anywhere(partition)), band, entry.encode(), [b"id", b"record"], place, 0.0)


def test_the_most_urgent_is_begun_first() -> None:
    buffer = PrefetchBuffer()
    buffer.put([delivery("1-0", "a"), delivery("2-0"), delivery("3-0", "0"), delivery("4-0")])

    taken = [buffer.take() for _ in range(5)]

    assert [one.entry if one else None for one in taken] == [b"3-0", b"2-0", b"4-0", b"1-0", None]


def test_what_is_held_is_not_taken_up_again() -> None:
    buffer = PrefetchBuffer()
    buffer.put([delivery("1-0")])
    buffer.take()

    buffer.put([delivery("1-0"), delivery("1-0", partition=1)])

    assert (buffer.waiting, len(buffer)) == (1, 2)


def test_what_was_settled_while_the_server_was_asked_is_known() -> None:
    buffer = PrefetchBuffer()
    settled, running = delivery("1-0"), delivery("2-0")
    buffer.put([settled, running])

    with buffer.track_departures() as left:
        buffer.drop(settled)

    assert left == {delivery_key(settled)}


def test_two_may_ask_at_once() -> None:
    buffer = PrefetchBuffer()
    one = delivery("1-0")
    buffer.put([one])

    with buffer.track_departures() as outer:
        with buffer.track_departures() as inner:
            pass
        buffer.drop(one)

    assert (outer, inner) == ({delivery_key(one)}, set())


def test_what_could_not_be_given_away_waits_again() -> None:
    buffer = PrefetchBuffer()
    buffer.put([delivery("1-0"), delivery("2-0", partition=1)])

    buffer.put_back(buffer.take_all([1]))

    assert buffer.waiting == 2
    assert [one.entry for one in (buffer.take(), buffer.take()) if one] == [b"1-0", b"2-0"]
