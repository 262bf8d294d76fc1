"""Each oracle of a campaign can fail: it accepts a history in which every promise was kept, and sees each kind of fault in another.

An oracle that could not see a fault would prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest
from circumstances import SECOND, Circumstances
from loads import (
    cancels,
    chunks,
    cpu,
    deploys,
    durable,
    expiry,
    flows,
    halts,
    limits,
    priorities,
    rates,
    same_ids,
    schedules,
    threads,
    unique,
)  # fmt: skip
from loads.keyed import lot
from loads.record import Event

CALM = Circumstances([])
A, B = 101, 102
"""Two worker processes."""


def at(
    seconds: float, what: str, job: str = "j", key: str = "", n: int = 0, process: int = A, **facts: Any
) -> Event:
    return Event(int(seconds * SECOND), "", what, job, process, key, n, facts)


def sent(
    job: str, key: str = "", n: int = 0, seconds: float = 0.0, created: bool = True, **facts: Any
) -> list[Event]:
    return [
        at(seconds, "asked", job, key, n, 1, **facts),
        at(seconds + 0.001, "told", job, key, n, 1, created=created, **facts),
    ]


def ran(
    job: str,
    began: float,
    ended: float,
    key: str = "",
    n: int = 0,
    process: int = A,
    how: str = "done",
    **facts: Any,
) -> list[Event]:
    facts = {"attempt": 1, **facts}
    return [at(began, "began", job, key, n, process, **facts), at(ended, how, job, key, n, process, **facts)]


def judged(load: ModuleType, events: Iterable[Event], circumstances: Circumstances = CALM) -> list[str]:
    faults: list[str] = load.check(sorted(events, key=lambda event: event.at), circumstances).faults
    return faults


KEYED = [
    (threads, {}),
    (halts, {}),
    (cpu, {"worker": 7}),
    (deploys, {"version": 2, "extra": 7}),
]


def keyed(load: ModuleType, n: int, began: float, ended: float, **more: Any) -> list[Event]:
    return ran(f"{load.NAME}:k:{n}", began, ended, "k", n, **more)


@pytest.mark.parametrize(("load", "facts"), KEYED, ids=lambda value: getattr(value, "NAME", ""))
def test_ordered_loads_see_losses_disorder_and_two_at_once(load: ModuleType, facts: dict[str, Any]) -> None:
    two = [event for n in (0, 1) for event in sent(f"{load.NAME}:k:{n}", "k", n)]
    first, second = keyed(load, 0, 1.0, 1.1, **facts), keyed(load, 1, 2.0, 2.1, **facts)

    assert judged(load, [*two, *first, *second]) == []
    assert "is lost" in judged(load, [*two, *first])[0]
    assert any("nobody asked" in fault for fault in judged(load, [*first, *second]))
    assert any(
        "began before" in fault for fault in judged(load, [*two, *keyed(load, 1, 0.5, 0.6, **facts), *first])
    )
    again = keyed(load, 0, 3.0, 3.1, process=B, **facts)
    assert any("ran again after 1" in fault for fault in judged(load, [*two, *first, *second, *again]))
    beside = keyed(load, 0, 1.05, 1.2, **facts)
    assert any(
        "twice at once in process" in fault for fault in judged(load, [*two, *first, *beside, *second])
    )
    other = keyed(load, 0, 1.05, 1.2, process=B, **facts)
    assert any("while 0 ran" in fault for fault in judged(load, [*two, *first, *other, *second]))


def test_only_a_worker_that_was_really_frozen_or_cut_off_is_excused() -> None:
    two = [event for n in (0, 1) for event in sent(f"threads:k:{n}", "k", n)]
    history = [
        *two,
        *keyed(threads, 0, 1.0, 1.1),
        *keyed(threads, 1, 2.0, 2.1),
        *keyed(threads, 0, 9.0, 9.1, process=B),
    ]

    def disturbed(began: float, ended: float, word: str, process: int) -> Circumstances:
        return Circumstances([{"began": int(began * SECOND), "ended": int(ended * SECOND), word: [process]}])

    assert judged(threads, history, disturbed(2.2, 7.0, "frozen", A)) == []
    assert judged(threads, history, disturbed(2.2, 7.0, "cut_off", A)) == []
    assert judged(threads, history, disturbed(2.2, 2.5, "frozen", A)) != [], "it was not frozen for long"
    assert judged(threads, history, disturbed(2.2, 7.0, "frozen", 77)) != [], "another one was frozen"
    assert judged(threads, history, disturbed(60.0, 70.0, "frozen", A)) != [], "it was frozen long after that"


def test_a_failover_excuses_no_run_after_a_later_one() -> None:
    two = [event for n in (0, 1) for event in sent(f"threads:k:{n}", "k", n)]
    history = [
        *two,
        *keyed(threads, 0, 1.0, 1.1),
        *keyed(threads, 1, 2.0, 2.1),
        *keyed(threads, 0, 3.0, 3.1, process=B),
    ]
    looks = [
        {"owners": [1], "before": 0, "since": 0},
        {"owners": [2], "before": 2 * SECOND, "since": 3 * SECOND},
    ]

    assert any("ran again" in fault for fault in judged(threads, history, Circumstances(looks)))


def test_the_process_of_a_job_must_not_outlive_its_worker() -> None:
    killed = Circumstances([{"pids": [7], "at_ns": 2 * SECOND}])
    one = [*sent("cpu:k:0", "k", 0)]

    assert judged(cpu, [*one, *ran("cpu:k:0", 1.0, 1.5, "k", worker=7)], killed) == []
    assert (
        "after the death of its worker"
        in judged(cpu, [*one, *ran("cpu:k:0", 1.0, 9.0, "k", worker=7)], killed)[0]
    )
    assert any(
        "after the death" in fault
        for fault in judged(cpu, [*one, *ran("cpu:k:0", 5.0, 5.1, "k", worker=7)], killed)
    )


def test_nothing_runs_behind_a_job_that_halts_its_lane() -> None:
    two = [event for n in (0, 1) for event in sent(f"halts:k:{n}", "k", n)]
    failed = keyed(halts, 0, 1.0, 1.1, how="dead")

    assert judged(halts, [*two, *failed, *keyed(halts, 0, 5.0, 5.1), *keyed(halts, 1, 6.0, 6.1)]) == []
    assert judged(halts, [*two, *failed, *keyed(halts, 1, 2.0, 2.1), *keyed(halts, 0, 5.0, 5.1)]) != []


def test_a_deploy_uses_up_no_attempt_and_runs_nothing_on_code_that_lacks_it() -> None:
    n = next(n for n in range(100) if lot("k", n) % 3 == 1)
    events = [event for m in range(n) for event in (*sent(f"deploys:k:{m}", "k", m), *keyed(deploys, m, m, m + 0.1, version=2, extra=7))]  # fmt: skip
    events += sent(f"deploys:k:{n}", "k", n)

    assert judged(deploys, [*events, *keyed(deploys, n, 200, 201, version=2, extra=7)]) == []
    assert (
        "used up"
        in judged(deploys, [*events, *keyed(deploys, n, 200, 201, version=2, extra=7, attempt=2)])[0]
    )
    assert "does not have" in judged(deploys, [*events, *keyed(deploys, n, 200, 201, version=1)])[0]
    assert (
        "without its argument"
        in judged(deploys, [*events, *keyed(deploys, n, 200, 201, version=2, extra=0)])[0]
    )


@pytest.mark.parametrize("load", [chunks, rates, limits, same_ids])
def test_plain_loads_see_losses_and_jobs_that_nobody_asked_for(load: ModuleType) -> None:
    n = next(n for n in range(100) if lot(chunks.NAME, n) % 10)
    run = ran("j", 1.0, 1.1, n=n, size=3)

    assert judged(load, [*sent("j", n=n), *run]) == []
    assert judged(load, sent("j", n=n)) == ["j is lost"]
    assert "nobody asked" in judged(load, run)[0]
    assert "twice at once" in judged(load, [*sent("j", n=n), *run, *ran("j", 1.05, 1.2, n=n, size=3)])[0]


@pytest.mark.parametrize("load", [chunks, rates, limits, threads, cancels, expiry])
def test_somebody_is_told_that_a_job_is_new(load: ModuleType) -> None:
    n = next(n for n in range(100) if lot(chunks.NAME, n) % 10)
    events = [*sent("j", "k", created=False, n=0 if load is threads else n)]
    events += ran("j", 1.0, 1.1, "k", n=0 if load is threads else n, size=1)

    assert judged(load, events) == ["j: nobody was told that it was created"]
    assert judged(load, [*events, at(0.0005, "error", "j", "k")]) == [], "the call that raised has created it"


def test_of_all_callers_of_an_id_exactly_one_is_told_that_it_is_new() -> None:
    run = ran("j", 1.0, 1.1)

    assert judged(same_ids, [*sent("j"), *sent("j", created=False), *run]) == []
    assert judged(same_ids, [*sent("j"), *sent("j"), *run]) == ["j was created 2 times"]
    assert judged(same_ids, [*sent("j", created=False), *sent("j", created=False), *run]) != []
    unknown = [at(0.0, "asked", "j"), at(0.1, "error", "j")]
    assert judged(same_ids, [*sent("j", created=False), *unknown, *run]) == []


def test_ticks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "BELLS", 2)
    ticks = [at(n, "done", f"{bell}-{n}", str(bell), n) for bell in range(2) for n in range(1, 6)]
    until = Circumstances([], ticks_until=5)

    assert judged(schedules, ticks, until) == []
    assert judged(schedules, ticks[:2] + ticks[3:], until) == ["bell 0 did not ring at 3"]
    assert judged(schedules, [*ticks, at(3, "done", "other", "1", 3)], until) == ["bell 1 rang twice for 3"]


def test_a_chunk_is_as_large_as_it_may_be_and_each_job_has_its_own_arguments() -> None:
    n = next(n for n in range(100) if lot(chunks.NAME, n) % 10)
    fails = next(n for n in range(100) if lot(chunks.NAME, n) % 10 == 0)

    assert "a chunk of 21 jobs" in judged(chunks, [*sent("j", n=n), *ran("j", 1, 2, n=n, size=21)])
    assert (
        "arguments of another"
        in judged(chunks, [*sent("j", n=n), *ran("j", 1, 2, n=fails, size=1, attempt=2)])[0]
    )
    assert "second attempt" in judged(chunks, [*sent("j", n=fails), *ran("j", 1, 2, n=fails, size=1)])[0]


def flow(
    *leave_out: str, fails: bool = False, got: list[int] | None = None, total_at: float = 4.0
) -> list[Event]:
    parts = {
        "flow": sent("total", "f", fails=fails),
        "first": ran("first", 1.0, 1.1, "f", part="first"),
        "total": ran("total", total_at, total_at + 0.1, "f", part="total", got=got or [10, 11, 12]),
        "fallback": ran("fallback", 5.0, 5.1, "f", part="fallback"),
    }
    for n in range(flows.WIDTH):
        parts[f"beside {n}"] = ran(f"beside {n}", 2.0, 3.0, "f", n, part="beside", got=[1])
    return [event for name, events in parts.items() if name not in leave_out for event in events]


def test_a_flow_runs_wholly_and_in_order() -> None:
    assert judged(flows, flow("fallback")) == []
    assert judged(flows, flow("total", fails=True)) == []
    assert "no total" in judged(flows, flow("fallback", "total"))[0]
    assert "no fallback" in judged(flows, flow("fallback", "total", fails=True))[0]
    assert "fallback ran" in judged(flows, flow())[0]
    assert "before all steps" in judged(flows, flow("fallback", total_at=2.5))[0]
    assert "before all steps" in judged(flows, flow("fallback", "beside 1"))[0]
    assert "the sum got" in judged(flows, flow("fallback", got=[10, 12]))[0]
    assert "without the result of the first" in judged(flows, flow("fallback", "first"))[0]
    assert "nobody asked" in judged(flows, flow("fallback", "flow"))[0]


def called(subject: str, value: int, seconds: float, created: bool = True) -> list[Event]:
    return sent(f"{subject}:{value}", subject, value, seconds, created)


def test_unique_windows_are_kept_and_the_newest_arguments_run() -> None:
    first = [*called("first-a", 0, 0.0), *called("first-a", 1, 0.5, False), *called("first-a", 2, 3.0)]
    runs = [*ran("x", 0.6, 0.7, "first-a", 0), *ran("y", 3.1, 3.2, "first-a", 2)]
    assert judged(unique, [*first, *runs]) == []
    assert "call 2 is lost" in judged(unique, [*first, *runs[:2]])[0]
    both = [
        *called("first-a", 0, 0.0),
        *called("first-a", 1, 0.5),
        *runs[:2],
        *ran("y", 3.1, 3.2, "first-a", 1),
    ]
    assert "within one window" in judged(unique, both)[0]

    last = [*called("last-a", 0, 0.0), *called("last-a", 1, 0.5, False)]
    assert judged(unique, [*last, *ran("x", 1.0, 1.1, "last-a", 1)]) == []
    assert "the newest that ran is 0" in judged(unique, [*last, *ran("x", 1.0, 1.1, "last-a", 0)])[0]

    n = next(n for n in range(9) if unique.delay_of("reschedule-a", n) > 0.3)
    due = unique.delay_of("reschedule-a", n)
    moved = called("reschedule-a", n, 0.0)
    assert judged(unique, [*moved, *ran("x", due, due + 0.1, "reschedule-a", n)]) == []
    assert "before it was due" in judged(unique, [*moved, *ran("x", due - 0.1, due, "reschedule-a", n)])[0]

    late = [*called("debounce-a", 0, 0.0), *ran("x", 0.8, 0.9, "debounce-a", 0)]
    early = [*called("debounce-a", 0, 0.0), *ran("x", 0.4, 0.5, "debounce-a", 0)]
    assert judged(unique, late) == [] and "400 ms after" in judged(unique, early)[0]

    after = [*called("after-a", 0, 0.0), *called("after-a", 1, 0.5), *ran("x", 0.6, 0.9, "after-a", 0)]
    assert judged(unique, [*after, *ran("y", 1.0, 1.1, "after-a", 1)]) == []
    assert (
        "at a time instead of 1" in judged(unique, [*after, *ran("y", 0.7, 1.1, "after-a", 1, process=B)])[0]
    )


def test_a_cancelled_job_does_not_start() -> None:
    def answered(word: str) -> list[Event]:
        return [*sent("j"), at(1.0, "cancelling"), at(1.1, "answer", word=word)]

    assert judged(cancels, answered("cancelled")) == []
    assert judged(cancels, sent("j")) == ["j is lost"]
    assert judged(cancels, answered("unknown")) != []
    assert "is lost: it was completed" in judged(cancels, answered("completed"))[0]
    assert (
        "9.9 s after it was cancelled" in judged(cancels, [*answered("cancelled"), *ran("j", 11.0, 11.1)])[0]
    )
    assert "after it was cancelling" in judged(cancels, [*answered("cancelling"), *ran("j", 11.0, 11.1)])[0]
    assert judged(cancels, [*answered("cancelling"), *ran("j", 0.5, 1.5, how="left")]) == []


def test_an_expired_job_does_not_start() -> None:
    assert judged(expiry, sent("j")) == []
    assert judged(expiry, [*sent("j"), *ran("j", 0.9, 1.0)]) == []
    assert "after it had expired" in judged(expiry, [*sent("j"), *ran("j", 4.0, 4.1)])[0]
    killed = Circumstances([{"pids": [B], "at_ns": SECOND}])
    assert judged(expiry, [*sent("j"), *ran("j", 4.0, 4.1)], killed) == [], "it may have started there"
    assert judged(expiry, [*sent("j"), *ran("j", 0.9, 1.0, how="failed")]) == ["j is lost after its start"]


def test_a_rate_is_kept_in_every_window() -> None:
    jobs = [f"j{n}" for n in range(21)]
    events = [event for job in jobs for event in sent(job)]

    def starts(distance: float) -> list[Event]:
        return [
            event for n, job in enumerate(jobs) for event in ran(job, 1 + n * distance, 1.01 + n * distance)
        ]

    assert judged(rates, [*events, *starts(0.05)]) == []
    assert "21 starts within" in judged(rates, [*events, *starts(0.04)])[0]


@pytest.mark.parametrize(("key", "limit"), [("", limits.MAX_ACTIVE), ("lane1", limits.LANE)])
def test_limits_hold_at_every_moment(key: str, limit: int) -> None:
    def beside(many: int) -> list[Event]:
        jobs = [f"j{n}" for n in range(many)]
        return [event for job in jobs for event in (*sent(job, key), *ran(job, 1.0, 2.0, key))]

    assert judged(limits, beside(limit)) == []
    assert f"{limit + 1} at a time instead of {limit}" in judged(limits, beside(limit + 1))[0]
    killed = Circumstances([{"pids": [A], "at_ns": int(1.5 * SECOND)}])
    without_end = [event for event in beside(limit) if event.what != "done"]
    after = [*sent("next", key), *ran("next", 1.8, 1.9, key, process=B)]
    faults = judged(limits, [*without_end, *after], killed)
    assert not any("at a time" in fault for fault in faults), "its process had died"


def test_urgent_jobs_start_first() -> None:
    def bursts(first: int, second: int) -> list[Event]:
        events = []
        for burst in range(priorities.ENOUGH):
            for n in range(10):
                job, priority = f"{burst}-{n}", first if n < 5 else second
                events += [*sent(job, str(burst), priority), *ran(job, burst + n / 100, burst + n / 100 + 0.001, str(burst), priority)]  # fmt: skip
        return events

    assert judged(priorities, bursts(1, 9)) == []
    assert "the wrong way round" in judged(priorities, bursts(9, 1))[0]


def test_durable_steps_run_once_and_signals_are_seen_once() -> None:
    job = next(
        name
        for name in (f"durable:{n}" for n in range(10_000))
        if sum(stage.signals for stage in durable.stages_of(name)) == 1
        and any(stage.sleeps for stage in durable.stages_of(name)[1:])
        and not durable.stages_of(name)[0].sleeps
        and not any(
            stage.loops or stage.calls or stage.books or stage.starts_over
            for stage in durable.stages_of(name)
        )
    )
    stages = durable.stages_of(job)
    total = sum(durable.value_of(n, place) for n, stage in enumerate(stages) for place in range(stage.width))

    def steps(first: int = 0, began: float = 2.0, process: int = A) -> list[Event]:
        return [
            at(began + n, "step", job, n=n, process=process, place=place)
            for n, stage in enumerate(stages)
            if n >= first
            for place in range(stage.width)
        ]

    def history(some: list[Event], got: Iterable[int] = (0,), returned: int = total) -> list[Event]:
        [waiting] = [n for n, stage in enumerate(stages) if stage.signals]
        [sleeping, *_] = [n for n, stage in enumerate(stages) if stage.sleeps]
        waits = [at(2.0 + waiting - 0.1, "waits", job, n=0, stage=waiting)]
        sleeps = [at(1.4 + sleeping, "sleeps", job, n=sleeping)]
        end = at(90.0, "returns", job, total=returned, got=list(got))
        signal = at(1.5, "signalled", job, n=0, process=1)
        return [*sent(job), *ran(job, 1.9, 91.0), *waits, *sleeps, *some, signal, end]

    whole = history(steps())
    assert judged(durable, whole) == []
    again = at(89.0, "step", job, n=0, process=B, place=0)
    assert "ran again although it was recorded" in judged(durable, [*whole, again])[0]
    frozen = Circumstances([{"began": 3 * SECOND, "ended": 88 * SECOND, "frozen": [B]}])
    assert judged(durable, [*whole, again], frozen) == []
    [sleeping, *_] = [n for n, stage in enumerate(stages) if stage.sleeps]
    before_sleep = at(1.95 + sleeping, "step", job, n=sleeping - 1, process=B, place=0)
    assert "although it was recorded" in judged(durable, [*whole, before_sleep])[0], "its job sleeps already"
    assert "was skipped" in judged(durable, history(steps(first=1)))[0]
    assert "instead of" in judged(durable, history(steps(), returned=7))[0]
    assert "saw the signals [0, 0]" in judged(durable, history(steps(), (0, 0)))[0]
    assert "timed out although" in judged(durable, history(steps(), (-1,)))[0]
    [doubled, *_] = steps()
    assert any("ran twice in one run" in fault for fault in judged(durable, [*whole, doubled]))
    early = [
        at(event.at / SECOND - 0.59, "step", job, n=event.n, place=event.facts["place"]) for event in steps()
    ]
    assert any("too early" in fault for fault in judged(durable, history(early)))
    assert judged(durable, [event for event in whole if event.what != "done"]) == [f"{job} is lost"]


def test_durable_calls_transactions_and_new_starts_happen_once() -> None:
    job = next(
        name
        for name in (f"durable:{n}" for n in range(10_000))
        if all(
            sum(getattr(stage, word) for stage in durable.stages_of(name)) == 1
            for word in ("calls", "books", "starts_over")
        )
        and not any(stage.signals or stage.sleeps for stage in durable.stages_of(name))
    )
    stages = durable.stages_of(job)
    [calling], [booking], [starting] = (
        [n for n, stage in enumerate(stages) if getattr(stage, word)]
        for word in ("calls", "books", "starts_over")
    )
    total = durable.value_of(booking, durable.BOOKING)
    total += sum(durable.value_of(n, place) for n, stage in enumerate(stages) for place in stage.places)

    def step(n: int, place: int, began: float) -> Event:
        if place < durable.FIRST_CALL:
            return at(began, "step", job, n=n, place=place)
        return at(began, "called", job, n=n, place=place, id="child")

    def judged_with(events: list[Event], rows: int | None = 1, crashed: Iterable[str] = ()) -> list[str]:
        effects = None if rows is None else {f"{job} {booking}": rows}
        return judged(durable, events, Circumstances([], crashed=crashed, effects=effects))

    steps = [
        step(n, place, 2.0 + n + place / 100) for n, stage in enumerate(stages) for place in stage.places
    ]
    runs = [*sent(job), *ran(job, 1.9, 2.95 + starting, how="left"), *ran(job, 2.99 + starting, 91.0)]
    whole = [*runs, *steps, at(90.0, "returns", job, total=total, got=[], books=True)]
    assert judged_with(whole) == []
    assert "happened 2 times" in judged_with(whole, rows=2)[0]
    assert "left no row" in judged_with(whole, rows=0)[0]
    other = at(80.0, "called", job, n=calling, place=durable.FIRST_CALL, id="another")
    assert "enqueued 2 jobs" in judged_with([*whole, other])[0]
    assert judged_with([*whole, other], crashed=["child"]) == []
    assert "was skipped" in judged_with([event for event in whole if event.what != "called"])[0]
    beside_call = at(2.0 + calling + 0.6, "step", job, n=calling, process=B, place=0)
    assert any("although it was recorded" in fault for fault in judged_with([*whole, beside_call]))
    over_again = at(89.0, "step", job, n=0, place=0)
    assert any("although it was recorded" in fault for fault in judged_with([*whole, over_again]))
