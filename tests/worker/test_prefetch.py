"""The buffer: what a worker holds, in which order it is begun, and what must not come into it twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from qbull.store.delivery import Delivery
from qbull.worker.prefetch import PrefetchBuffer, delivery_key


class Anywhere:
    """Stands for a partition; the buffer only asks for its number."""

    def __init__(self, number: int) -> None:
        self.number = number


def delivery(entry: str, level: str = "5", partition: int = 0, jobs: str = "") -> Delivery:
    """A delivery of these jobs, separated by spaces; by default one of its own."""
    position = f"{level}{entry}".encode()
    ids = jobs.split() or [f"{partition} {entry}"]
    fields = [part for id in ids for part in (id.encode(), b"record")]
    return Delivery(cast(Any, Anywhere(partition)), level, entry.encode(), fields, position, 0.0)


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


def test_there_is_room_whenever_fewer_deliveries_wait() -> None:
    """A reader that wants nothing more waits for it, and nobody else reads its partitions."""
    buffer = PrefetchBuffer()
    first, second, third = delivery("1-0"), delivery("2-0"), delivery("3-0", jobs="same")
    buffer.put([delivery("4-0", jobs="same")])
    for one in (first, second, third):
        assert buffer.put_unconfirmed(one)

    def makes_room(change: Callable[[], object]) -> bool:
        buffer.room.clear()
        change()
        return buffer.room.is_set()

    assert makes_room(lambda: buffer.drop(first)), "it was released, or another worker has it"
    assert makes_room(lambda: buffer.confirm(third, 0.0)), "it waits for another delivery of its job"
    assert makes_room(buffer.take_all), "all of them are released"
    assert not makes_room(buffer.take_all)


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


def test_a_job_that_is_here_is_not_started_again_until_its_earlier_delivery_has_left() -> None:
    buffer = PrefetchBuffer()
    first, second, third = (delivery(entry, jobs="a") for entry in ("1-0", "2-0", "3-0"))
    buffer.put([first])
    buffer.take()

    buffer.put([second, third])
    started = [(buffer.take(), buffer.resumed.is_set())]
    for ended in (first, second):
        buffer.drop(ended)
        started.append((buffer.take(), buffer.resumed.is_set()))

    assert started == [(None, False), (second, True), (third, True)]


def test_a_train_waits_for_all_earlier_deliveries_of_its_jobs() -> None:
    buffer = PrefetchBuffer()
    one, other, train = delivery("1-0", jobs="a"), delivery("2-0", jobs="b c"), delivery("3-0", jobs="a b c")
    buffer.put([one, other, train])
    taken = [buffer.take(), buffer.take(), buffer.take()]

    buffer.drop(one)
    still_waiting = buffer.take()
    buffer.drop(other)

    assert taken == [one, other, None]
    assert still_waiting is None
    assert buffer.take() == train


def test_a_delivery_that_waits_for_an_abandoned_run_is_not_released_either() -> None:
    buffer = PrefetchBuffer()
    running, again, free = delivery("1-0", jobs="a"), delivery("2-0", jobs="a"), delivery("3-0", jobs="b")
    buffer.put([running, again, free])
    buffer.take()

    buffer.abandon(0, running.position)

    assert [buffer.is_abandoned(one) for one in (running, again, free)] == [True, True, False]
    assert buffer.abandoned == 2


def test_a_deferred_delivery_that_could_not_be_released_still_waits() -> None:
    buffer = PrefetchBuffer()
    running, again = delivery("1-0", jobs="a"), delivery("2-0", jobs="a")
    buffer.put([running])
    buffer.take()

    buffer.put_back(buffer.hold_for_release([again]))

    assert buffer.take() is None
    buffer.drop(running)
    assert buffer.take() == again
