"""A job's record: what is packed comes back, and bytes from anywhere raise Garbage and nothing else."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.record import (
    RECORD_VERSION,
    Attempt,
    Body,
    Ending,
    ExtendedBody,
    UnreadableRecord,
    append_ending,
    body_of,
    crashes_of,
    created_ms_of,
    lane_of,
    pack,
    priority_of,
    record_for_retry,
    repack,
    split_ending,
    to_datetime,
)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50)
numbers = st.integers(0, 2**40)
attempts = st.builds(Attempt, numbers, numbers, st.floats(0, 1e9), texts, texts)
bodies = st.builds(
    Body,
    task=texts,
    payload=st.binary(max_size=200),
    key=st.none() | texts,
    attempt=st.integers(1, 1000),
    attempts=st.integers(0, 1000),
    timeout=st.none() | st.floats(0.001, 1e6),
    history=st.lists(attempts, max_size=4),
)
priorities = st.integers(1, 10)
lanes = st.just(b"") | st.binary(min_size=8, max_size=8)


def as_read(body: Body) -> ExtendedBody:
    """What is read may be a tick's; what is not has no schedule."""
    return ExtendedBody(*(getattr(body, name) for name in Body.__struct_fields__))


@given(bodies, texts)
def test_a_tick_knows_its_schedule_and_nobody_else_pays_for_it(body: Body, schedule: str) -> None:
    tick = as_read(body)
    tick.schedule = schedule

    assert body_of(pack(tick, priority=5, lane=b"")) == tick
    assert len(msgspec.msgpack.decode(pack(body, priority=5, lane=b"")[11:])) == len(Body.__struct_fields__)


@given(bodies, priorities, lanes)
def test_what_is_packed_comes_back(body: Body, priority: int, lane: bytes) -> None:
    record = pack(body, priority=priority, lane=lane)

    assert body_of(record) == as_read(body)
    assert priority_of(record) == priority
    assert lane_of(record) == lane
    assert crashes_of(record) == 0
    assert created_ms_of(record) == 0


@given(bodies, bodies, priorities, lanes, st.binary(min_size=8, max_size=8))
def test_repacking_changes_the_body_and_nothing_else(
    first: Body, second: Body, priority: int, lane: bytes, written_by_the_server: bytes
) -> None:
    record = pack(first, priority=priority, lane=lane)
    stored = record[:2] + written_by_the_server + record[10:]

    again = repack(stored, second)

    assert body_of(again) == as_read(second)
    assert again[: 11 + len(lane)] == stored[: 11 + len(lane)]
    assert repack(again, first) == stored


@given(st.integers(0, 2**48 - 1))
def test_the_time_of_enqueueing_is_six_bytes_of_milliseconds(ms: int) -> None:
    record = pack(Body("t", b"{}"), priority=5, lane=b"")

    stored = record[:4] + ms.to_bytes(6, "big") + record[10:]

    assert created_ms_of(stored) == ms
    assert body_of(stored) == as_read(Body("t", b"{}"))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_body_or_garbage(noise: bytes) -> None:
    with contextlib.suppress(UnreadableRecord):
        assert isinstance(body_of(noise), Body)


def test_a_record_nested_beyond_measure_is_garbage() -> None:
    header = pack(Body("t", b""), priority=5, lane=b"")[:11]
    known = b"\x98" + msgspec.msgpack.encode(["t", b"", None, 1, 0, None, []])[1:]

    with pytest.raises(UnreadableRecord):
        body_of(header + known + b"\x91" * 100_000 + b"\x01")


@given(bodies, lanes, st.data())
def test_a_damaged_record_is_a_body_or_garbage(body: Body, lane: bytes, data: st.DataObject) -> None:
    record = bytearray(pack(body, priority=5, lane=lane))
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(record[: data.draw(st.integers(0, len(record)))])

    with contextlib.suppress(UnreadableRecord):
        assert isinstance(body_of(damaged), Body)

    assert crashes_of(damaged) >= 0
    assert isinstance(lane_of(damaged), bytes)


@pytest.mark.parametrize("newer", range(RECORD_VERSION + 1, 32))
def test_a_record_of_a_later_version_says_to_upgrade(newer: int) -> None:
    record = bytes((newer,)) + pack(Body("t", b"{}"), priority=5, lane=b"")[1:]

    with pytest.raises(
        UnreadableRecord, match=f"layout {newer}, this qbull reads up to {RECORD_VERSION}; upgrade the worker"
    ):
        body_of(record)


@pytest.mark.parametrize("noise", [b"", b"\x01", b"hello, world", b'{"task": "t"}', bytes(40)])
def test_what_never_was_a_record_is_shown_and_not_longer_than_needed(noise: bytes) -> None:
    with pytest.raises(UnreadableRecord, match="record cannot be read") as refused:
        body_of(noise * 1000)

    assert len(str(refused.value)) < 300


def test_a_later_version_may_add_fields_at_the_end() -> None:
    known = msgspec.structs.astuple(ExtendedBody("t", b"{}", "key", 2, 3, 1.5, []))
    later = msgspec.msgpack.encode([*known, "new", 7])
    record = pack(Body("t", b""), priority=5, lane=b"")[:11] + later

    assert body_of(record) == as_read(Body("t", b"{}", "key", 2, 3, 1.5, []))


def test_an_earlier_version_may_have_written_fewer_fields() -> None:
    earlier = msgspec.msgpack.encode(["t", b"{}"])
    record = pack(Body("t", b""), priority=5, lane=b"")[:11] + earlier

    assert body_of(record) == as_read(Body("t", b"{}"))


def test_two_bodies_share_no_history() -> None:
    first, second = Body("t", b""), Body("t", b"")

    first.history.append(Attempt(1, 0, 0.0, "x", "w"))

    assert second.history == []


@given(
    st.builds(
        Ending,
        st.integers(1, 1000),
        st.floats(0, 1e9),
        texts,
        st.none() | st.binary(max_size=50),
        st.none() | texts,
        st.none() | texts,
    )
)
def test_an_ending_comes_back(ending: Ending) -> None:
    assert split_ending(b"record" + append_ending(ending)) == (b"record", ending)


def test_a_moment_has_a_time_zone() -> None:
    assert to_datetime(1_767_225_600_123).isoformat() == "2026-01-01T00:00:00.123000+00:00"


endings = st.builds(
    Ending, st.integers(0, 100), st.floats(0, 1e9), texts, error=st.none() | texts, created_ms=numbers
)


@given(bodies, priorities, lanes, endings, numbers, st.integers(0, 255))
def test_going_round_again_keeps_all_but_the_count_of_attempts(
    body: Body, priority: int, lane: bytes, ending: Ending, finished_ms: int, crashes: int
) -> None:
    record = pack(body, priority=priority, lane=lane)
    record = record[:3] + bytes((crashes,)) + record[4:]

    renewed = record_for_retry(record, ending, finished_ms)

    after = body_of(renewed)
    assert (after.task, after.payload, after.key, after.attempts, after.timeout) == (
        *(body.task, body.payload, body.key, body.attempts, body.timeout),
    )
    assert after.attempt == 1
    assert after.history[:-1] == body.history[-19:]
    assert after.history[-1].attempt == (ending.attempt or body.attempt)
    assert (priority_of(renewed), lane_of(renewed)) == (priority, lane)
    assert created_ms_of(renewed) == ending.created_ms
    assert crashes_of(renewed) == crashes


def test_going_round_again_with_another_payload() -> None:
    record = pack(Body("task", b"1"), priority=5, lane=b"")

    assert body_of(record_for_retry(record, Ending(1, 0.0, "w"), 0, b"2")).payload == b"2"
