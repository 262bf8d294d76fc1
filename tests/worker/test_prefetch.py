"""The hand: what a worker holds, in which order it is begun, and what must not come into it twice."""

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
    hand = PrefetchBuffer()
    hand.put([delivery("1-0", "a"), delivery("2-0"), delivery("3-0", "0"), delivery("4-0")])

    taken = [hand.take() for _ in range(5)]

    assert [one.entry if one else None for one in taken] == [b"3-0", b"2-0", b"4-0", b"1-0", None]


def test_what_is_held_is_not_taken_up_again() -> None:
    hand = PrefetchBuffer()
    hand.put([delivery("1-0")])
    hand.take()

    hand.put([delivery("1-0"), delivery("1-0", partition=1)])

    assert (hand.waiting, len(hand)) == (1, 2)


def test_what_was_settled_while_the_server_was_asked_is_known() -> None:
    hand = PrefetchBuffer()
    settled, running = delivery("1-0"), delivery("2-0")
    hand.put([settled, running])

    with hand.recall() as left:
        hand.drop(settled)

    assert left == {delivery_key(settled)}


def test_two_may_ask_at_once() -> None:
    hand = PrefetchBuffer()
    one = delivery("1-0")
    hand.put([one])

    with hand.recall() as outer:
        with hand.recall() as inner:
            pass
        hand.drop(one)

    assert (outer, inner) == ({delivery_key(one)}, set())


def test_what_could_not_be_given_away_waits_again() -> None:
    hand = PrefetchBuffer()
    hand.put([delivery("1-0"), delivery("2-0", partition=1)])

    hand.put_back(hand.take_all([1]))

    assert hand.waiting == 2
    assert [one.entry for one in (hand.take(), hand.take()) if one] == [b"1-0", b"2-0"]
