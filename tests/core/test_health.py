"""The verdict is a pure function of facts: what is a problem, how severe it is, and in which order it is told."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from qbull.core.health import HealthLimits, find_problems
from qbull.core.health_facts import (
    BlockedLane,
    HaltedLanes,
    HealthFacts,
    LateSchedule,
    LostWorker,
    MinuteOutcomes,
    PartitionFacts,
    Pause,
    QueueFacts,
    ServingFacts,
    UnknownTask,
)
from qbull.core.health_problem import (
    ALL_HEALTHY,
    PROBLEM_SEVERITIES,
    HealthProblem,
    status_of,
    summarize,
    unavailable,
)
from qbull.core.problems import AlertState, OpenProblem, Problem, ProblemKind

NOW_MS = 1_800_000_000_000
READER = ServingFacts(5, frozenset({0}), {0: NOW_MS - 600_000})


def ago(seconds: float) -> int:
    return NOW_MS - int(seconds * 1000)


def waiting(seconds: float, number: int = 0, jobs: int = 3) -> PartitionFacts:
    return PartitionFacts(number, jobs, ago(seconds))


def problems(*queues: QueueFacts, **facts: object) -> tuple[HealthProblem, ...]:
    return find_problems(HealthFacts(NOW_MS, queues, **facts))  # type: ignore[arg-type]


def kinds(*queues: QueueFacts, **facts: object) -> list[ProblemKind]:
    return [one.kind for one in problems(*queues, **facts)]


def test_every_kind_has_a_severity() -> None:
    assert set(PROBLEM_SEVERITIES) == set(get_args(ProblemKind))


def test_no_facts_are_no_problems() -> None:
    assert problems(QueueFacts("mail", workers={"w": READER}, partitions=(waiting(5),))) == ()
    assert (status_of(()), summarize(())) == ("healthy", ALL_HEALTHY)


def test_the_status_follows_the_most_severe_problem() -> None:
    halted = QueueFacts("pay", halted=HaltedLanes(2, 3, ago(60)))
    paused = QueueFacts("mail", pause=Pause(ago(60), "ann"), partitions=(waiting(60),))
    unserved = QueueFacts("sync", partitions=(waiting(60),))

    assert status_of(problems(paused)) == "healthy"
    assert status_of(problems(paused, halted)) == "degraded"
    assert status_of(problems(paused, halted, unserved)) == "unhealthy"
    assert [one.severity for one in problems(paused, halted, unserved)] == ["critical", "warning", "info"]
    assert status_of([unavailable()]) == "unhealthy"


def test_the_oldest_of_equally_severe_problems_comes_first() -> None:
    queues = [QueueFacts(name, partitions=(waiting(age),)) for name, age in (("a", 20), ("b", 90), ("c", 40))]

    assert [one.queue for one in problems(*queues)] == ["b", "c", "a"]


def test_a_partition_is_unread_without_a_reader_or_with_one_that_has_free_slots_and_does_not_read() -> None:
    busy = replace(waiting(60), idle_ms={"w": 60_000}, deliveries={"w": 5})
    hung = replace(waiting(60), idle_ms={"w": 60_000}, deliveries={"w": 1})
    reads = replace(waiting(60), idle_ms={"w": 20}, deliveries={"w": 1})
    never = replace(waiting(60), deliveries={"w": 1})
    just_came = {"w": replace(READER, since_ms={0: ago(2)})}
    elsewhere = {"w": replace(READER, partitions=frozenset({1}))}

    def told(partition: PartitionFacts, workers: dict[str, ServingFacts]) -> list[ProblemKind]:
        return kinds(QueueFacts("mail", partitions=(partition,), workers=workers))

    assert told(hung, {"w": READER}) == told(never, {"w": READER}) == told(reads, elsewhere) == ["unread"]
    assert told(busy, {"w": READER}) == told(reads, {"w": READER}) == told(never, just_came) == []
    limited = QueueFacts("mail", partitions=(hung,), workers={"w": READER}, limited=True)
    assert kinds(limited) == [], "a limit keeps its jobs waiting"
    blocked = {"w": replace(READER, blocked=True)}
    assert told(busy, blocked) == kinds(replace(limited, workers=blocked)) == ["unread"]


def test_slots_are_counted_over_all_partitions_of_the_queue() -> None:
    other = PartitionFacts(1, deliveries={"w": 4})
    hung = replace(waiting(60), idle_ms={"w": 60_000}, deliveries={"w": 1})

    assert kinds(QueueFacts("mail", partitions=(hung, other), workers={"w": READER})) == []


def test_partitions_of_an_earlier_generation_have_the_number_that_people_see() -> None:
    [one] = problems(QueueFacts("mail", partitions=(waiting(60, 4096 + 3),), workers={"w": READER}))

    assert one.partitions == (3,) and "in partition 3, and no worker reads it" in one.fact


def test_a_stale_queue_is_judged_by_its_own_limit() -> None:
    served = QueueFacts(
        "mail", partitions=(replace(waiting(60), deliveries={"w": 5}),), workers={"w": READER}
    )

    assert kinds(served) == []
    assert kinds(replace(served, stale_after=30.0)) == ["stale"]
    found = find_problems(HealthFacts(NOW_MS, (served,)), HealthLimits(stale_after=50))
    assert [one.values for one in found] == [{"seconds": 60}]


def test_a_paused_queue_is_not_stale_but_its_schedules_and_lanes_count() -> None:
    paused = QueueFacts(
        "mail",
        pause=Pause(ago(600), "ann"),
        partitions=(waiting(600),),
        late=(LateSchedule("digest", ago(90)), LateSchedule("soon", ago(5))),
        halted=HaltedLanes(1, 0, ago(30)),
        blocked=(BlockedLane(ago(300), 2),),
    )

    assert kinds(paused) == ["overdue", "halted", "paused"]
    assert kinds(QueueFacts("mail", pause=Pause(ago(600), "ann"))) == []


def test_a_task_that_nobody_knows_is_critical_after_a_while() -> None:
    queue = QueueFacts("mail", workers={"w": READER}, unknown=(UnknownTask("digest", 4, ago(20)),))

    [one] = problems(queue)
    assert (one.kind, one.severity, one.task, one.since_ms) == ("unknown", "critical", "digest", ago(20))
    assert one.fact == '4 jobs wait for task "digest", which no worker knows'
    assert kinds(replace(queue, unknown=(UnknownTask("digest", 4, ago(5)),))) == []


@pytest.mark.parametrize(
    ("failed", "succeeded", "usual", "told"),
    [
        (9, 0, 0.0, False),
        (10, 90, 0.01, True),
        (10, 91, 0.01, False),
        (30, 70, 0.07, False),
        (30, 70, 0.05, True),
        (60, 40, 0.6, True),
    ],
)
def test_a_failure_rate_is_compared_with_the_usual(
    failed: int, succeeded: int, usual: float, told: bool
) -> None:
    minutes = (MinuteOutcomes(ago(90), 0, 0), MinuteOutcomes(ago(30), succeeded, failed))
    before = 10_000
    queue = QueueFacts(
        "mail",
        minutes=minutes,
        failed=failed + int(before * usual),
        succeeded=succeeded + before - int(before * usual),
    )

    assert kinds(queue) == (["failing"] if told else [])


@pytest.mark.parametrize(
    ("kept", "kept_seconds", "told"),
    [
        (10_000, 86_400.0, True),
        (600_000, 86_400.0, False),
        (10_000, None, False),
        (None, 86_400.0, False),
        (10_000, 9.0, False),
    ],
)
def test_results_that_their_count_removes_long_before_their_age_are_named(
    kept: int | None, kept_seconds: float | None, told: bool
) -> None:
    minutes = (MinuteOutcomes(ago(90), 60_000), MinuteOutcomes(ago(30), 60_000))
    queue = QueueFacts("mail", minutes=minutes, kept=kept, kept_seconds=kept_seconds)

    found = problems(queue)

    assert [one.kind for one in found] == (["retention"] if told else [])
    if told:
        assert found[0].severity == "info"
        assert found[0].since_ms == ago(90)
        assert found[0].fact == (
            "completed jobs, their results and their ids stay for about 10 s, because only 10,000 are kept"
        )


def test_a_paused_queue_names_who_paused_it_since_when() -> None:
    [one] = problems(QueueFacts("mail", pause=Pause(ago(60), "ann"), partitions=(waiting(60),)))

    assert (one.by, one.since_ms) == ("ann", ago(60))


def test_an_unavailable_server_is_so_since_it_did_not_answer() -> None:
    assert (unavailable().since_ms, unavailable(ago(9)).since_ms) == (None, ago(9))


def test_failures_last_since_the_first_minute_without_a_gap() -> None:
    minutes = tuple(MinuteOutcomes(ago(60 * n), 0, many) for n, many in ((4, 9), (3, 0), (2, 9), (1, 9)))

    [one] = problems(QueueFacts("mail", minutes=minutes))
    assert one.since_ms == ago(120)


def test_each_later_worker_replaces_one_that_was_lost() -> None:
    lost = (LostWorker("a", "h1", ago(300)), LostWorker("b", "h2", ago(200)))

    [one] = problems(lost=lost, started_ms={"before": ago(900)})
    assert (one.fact, one.since_ms, one.worker) == ("2 workers were lost and not replaced", ago(300), "b")
    assert one.workers == ("a", "b")
    [one] = problems(lost=lost, started_ms={"before": ago(900), "after": ago(100)})
    assert one.fact == "1 worker was lost and not replaced"
    assert kinds(lost=lost, started_ms={"c": ago(100), "d": ago(220)}) == []
    assert kinds(lost=(LostWorker("a", "h1", ago(4000)),)) == [], "after an hour it is no news"


def test_firing_alerts_about_events_are_problems_and_levels_are_not_told_twice() -> None:
    state = AlertState(
        open={
            "failed mail": OpenProblem(Problem("failed", "mail", count=2), ago(60), NOW_MS, NOW_MS),
            "repeated mail x": OpenProblem(
                Problem("repeated", "mail", "x", count=12), ago(50), NOW_MS, NOW_MS, over=True
            ),
            "stale mail": OpenProblem(Problem("stale", "mail", count=400), ago(40), NOW_MS, NOW_MS),
            "lost": OpenProblem(Problem("lost", count=1), ago(30), NOW_MS, NOW_MS),
        }
    )

    assert [(one.kind, one.text) for one in problems(alerts=state)] == [
        ("failed", 'queue "mail": 2 jobs failed permanently'),
        ("lost", "workers: 1 worker was lost"),
    ]
    [lost] = [
        one for one in problems(alerts=state, lost=(LostWorker("a", "h", ago(9)),)) if one.kind == "lost"
    ]
    assert lost.fact == "1 worker was lost and not replaced"
