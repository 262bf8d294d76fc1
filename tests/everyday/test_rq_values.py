"""Values of RQ's calls arrive as what they were, or are refused: nothing changes on the way without a word."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import qbull
from qbull.compat.rq import Job, Queue, Worker
from qbull.store.store import Store

ran: list[Any] = []


def keep(value, more=None):  # type: ignore[no-untyped-def]
    ran.append((value, more))
    return value


def keep_all(*values: Any, **named: Any) -> Any:
    ran.append((values, named))
    return values


def keep_annotated(value: dict) -> Any:  # type: ignore[type-arg]
    ran.append(value)
    return value


def group_of(group_id: int, queue_class: str = "none") -> Any:
    ran.append((group_id, queue_class))
    return group_id


@dataclass
class Order:
    number: int


def make_order(number):  # type: ignore[no-untyped-def]
    ran.append(number)
    return Order(number)


@pytest.fixture
def queue(server_url: str, store: Store) -> Iterator[Queue]:
    ran.clear()
    app = qbull.App(server_url, prefix="test")
    queue = Queue("default", connection=app)
    queue.register(keep, keep_all, keep_annotated, group_of, make_order)
    yield queue
    app.close_sync()


VALUES = [
    datetime(2026, 1, 31, 12, 30, 5, 17, UTC),
    date(2026, 1, 31),
    timedelta(days=1, microseconds=3),
    Decimal("1.10"),
    UUID(int=7),
    b"\x00\xff",
    {1, 2},
    frozenset({"a"}),
    (1, (2,)),
    math.inf,
    {"when": date(2026, 1, 31), "in": [Decimal(3)]},
    {1: "one", (2, 3): "two"},
    {"__type__": "date", "__value__": "2026-01-31"},
    2**70,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{value!r:.20}")
def test_a_value_arrives_as_what_it_was(queue: Queue, value: Any) -> None:
    first = queue.enqueue(keep, value, more=[value])
    second = queue.enqueue(keep_all, value, named=value)
    third = queue.enqueue(keep, 1, meta={"value": value})
    Worker([queue]).work(burst=True)

    expected = [(value, [value]), ((value,), {"named": value}), (1, None)]
    assert sorted(ran, key=repr) == sorted(expected, key=repr)
    assert {type(each[0]) for each in ran if each[1]} == {type(value), tuple}
    for job in (first, Job.fetch(first.id, connection=queue.app)):
        assert job.return_value() == value
        assert type(job.return_value()) is type(value)
        assert job.kwargs == {"value": value, "more": [value]}
    assert second.return_value() == (value,)
    assert third.get_meta() == {"value": value}


def test_no_number_becomes_none(queue: Queue) -> None:
    job = queue.enqueue(keep, math.nan)
    Worker([queue]).work(burst=True)

    assert math.isnan(ran[0][0])
    assert math.isnan(job.return_value())


@pytest.mark.parametrize("value", [Order(7), object(), 1j], ids=lambda value: type(value).__name__)
def test_a_value_that_would_change_is_refused(queue: Queue, value: Any) -> None:
    with pytest.raises(
        qbull.PayloadError, match=rf"{type(value).__name__}.*annotate it, or use plain values"
    ):
        queue.enqueue(keep, value)
    with pytest.raises(qbull.PayloadError, match="annotate it"):
        queue.enqueue(keep_all, value)
    with pytest.raises(qbull.PayloadError, match="annotate it"):
        queue.enqueue(keep, 1, meta={"value": value})
    assert queue.is_empty()


def test_keys_that_would_become_texts_are_refused(queue: Queue) -> None:
    with pytest.raises(qbull.PayloadError, match=r"keys of a dictionary arrive as texts.*dict\[int, str\]"):
        queue.enqueue(keep_annotated, {1: "one"})
    queue.enqueue(keep_annotated, {"one": date(2026, 1, 31)})
    Worker([queue]).work(burst=True)

    assert ran == [{"one": date(2026, 1, 31)}]


def test_a_result_that_would_change_fails_its_job(queue: Queue) -> None:
    job = queue.enqueue(make_order, 7)
    Worker([queue]).work(burst=True)

    assert (ran, job.is_failed) == ([7], True)
    assert "Order(number=7) is of type Order" in (job.exc_info or "")


def test_keywords_that_enqueue_does_not_keep_are_arguments_of_the_function(queue: Queue) -> None:
    """RQ's `enqueue` has its own list of keywords. `group_id` and `queue_class` are not in it."""
    queue.enqueue(group_of, group_id=3, queue_class="x")
    queue.enqueue(group_of, group_id=4, job_id="four")
    Worker([queue]).work(burst=True)

    assert sorted(ran) == [(3, "x"), (4, "none")]


def test_the_keywords_that_enqueue_keeps_are_those_of_rq() -> None:
    from rq import Queue as Theirs

    from qbull.compat.rq.enqueue_options import ENQUEUE_KEYWORDS

    def names(**given: Any) -> set[str]:
        kept = Theirs.parse_args(keep, **given)
        return given.keys() - kept.kwargs.keys()

    asked = {*ENQUEUE_KEYWORDS, "group_id", "queue_class", "timeout", "serializer", "webhook"}

    assert names(**dict.fromkeys(asked)) == ENQUEUE_KEYWORDS
