"""The calls of a shared limit on the server: exact, idempotent, fair between workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import qbull
from qbull.errors import NotFound
from qbull.store.store import Store
from qbull.store.verbs import shared_limits
from qbull.store.verbs.live_settings import RESET_SETTING
from qbull.store.verbs.shared_limits import (
    LimitCall,
    LimitGrant,
    LimitRefusal,
    LimitRequest,
    WeightCorrection,
    acquire,
    usage,
)

NOW = 0


@pytest.fixture(autouse=True)
async def nobody_stays(store: Store) -> AsyncIterator[None]:
    yield
    await shared_limits.free_slots(store, "api", ["w0", "w1", "w2"])


def request(weight: int = 1, *, key: str = "", level: str = "5") -> LimitRequest:
    return LimitRequest(key, weight, level, NOW)


async def ask(
    store: Store, worker: str, *requests: LimitRequest, slots: dict[str, int] | None = None
) -> list[LimitGrant | LimitRefusal]:
    token = f"{worker}-{datetime.now(UTC).timestamp()}"
    return await acquire(store, "api", LimitCall(token, worker, slots or {}, requests))


def granted(answers: list[LimitGrant | LimitRefusal]) -> list[bool]:
    return [isinstance(answer, LimitGrant) for answer in answers]


async def test_weights_count_in_the_window(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", rate=qbull.Rate(10, per=60)))
    assert granted(await ask(store, "w1", request(4), request(4), request(4), request(1))) == [
        True,
        True,
        False,
        False,
    ]
    assert (await usage(store, "api")).status.used == 8


async def test_a_call_that_is_sent_twice_counts_once(store: Store) -> None:
    limit = qbull.Limit("api", rate=qbull.Rate(10, per=60), concurrency=5, daily=100)
    await shared_limits.declare(store, limit)
    call = LimitCall("token", "w1", {}, [request(4)])
    first, again = [await acquire(store, "api", call) for _ in range(2)]
    assert isinstance(first[0], LimitGrant)
    assert isinstance(again[0], LimitGrant)
    assert first[0].noted_ms == again[0].noted_ms
    assert first[0].latest == again[0].latest  # however late the second answer comes
    back = LimitCall("back", "w1", {}, (), [WeightCorrection(first[0], -1)])
    for _ in range(2):
        await acquire(store, "api", back)
    now = (await usage(store, "api")).status
    assert (now.used, now.spent, now.running) == (3, 3, 0)


async def test_slots_are_what_workers_report(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", concurrency=2))
    assert granted(await ask(store, "w1", request(), request(), request())) == [True, True, False]
    assert granted(await ask(store, "w2", request())) == [False]
    # The reply to w1 was lost: it uses none.
    await ask(store, "w1")
    assert granted(await ask(store, "w2", request(), request())) == [True, True]
    assert (await usage(store, "api")).status.running == 2


async def test_the_slots_of_a_dead_worker_are_freed_and_its_weight_stays_spent(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", rate=qbull.Rate(10, per=60), concurrency=1))
    await ask(store, "dead", request(4, key="k"))
    assert granted(await ask(store, "w2", request(4, key="k"))) == [False]
    assert await shared_limits.slot_holders(store, "api") == ["dead"]
    for _ in range(2):
        await shared_limits.free_slots(store, "api", ["dead"])
    assert granted(await ask(store, "w2", request(4, key="k"))) == [True]
    now = (await usage(store, "api", "k")).of_key
    assert (now.running, now.used) == (1, 8)


async def test_each_key_counts_for_itself(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", rate=qbull.Rate(2, per=60), concurrency=2))
    answers = await ask(store, "w1", *(request(2, key=key) for key in ("a", "a", "b", "a")))
    assert granted(answers) == [True, False, True, False]


async def test_the_first_in_line_is_not_overtaken(store: Store) -> None:
    """A heavy job waits for the window; light jobs of another worker must not take its weight for ever."""
    await shared_limits.declare(store, qbull.Limit("api", concurrency=1))
    await ask(store, "w0", request())
    assert granted(await ask(store, "w1", request())) == [False]
    assert granted(await ask(store, "w2", request())) == [False]
    await ask(store, "w0")
    assert granted(await ask(store, "w2", request())) == [False]
    assert granted(await ask(store, "w1", request())) == [True]


async def test_an_urgent_request_comes_before_the_line(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", concurrency=1))
    await ask(store, "w0", request())
    await ask(store, "w1", request(level="9"))
    await ask(store, "w0")
    assert granted(await ask(store, "w2", request(level="1"))) == [True]


async def test_a_weight_is_corrected_up_and_down(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", rate=qbull.Rate(10, per=60), daily=50))
    (grant,) = await ask(store, "w1", request(4))
    assert isinstance(grant, LimitGrant)

    async def correct(change: int) -> int:
        await acquire(store, "api", LimitCall(f"c{change}", "w1", {}, (), [WeightCorrection(grant, change)]))
        return (await usage(store, "api")).status.used

    assert [await correct(-4), await correct(9), await correct(3)] == [0, 9, 12]
    assert (await usage(store, "api")).status.spent == 12
    assert granted(await ask(store, "w1", request(1))) == [False]


async def test_a_budget_ends_with_the_day(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", daily=10))
    first, second, third = await ask(store, "w1", request(6), request(6), request(1))
    assert isinstance(first, LimitGrant)
    assert granted([second, third]) == [False, False]
    now = await usage(store, "api")
    assert (now.status.spent, first.day) == (6, now.now_ms // 86_400_000)


async def test_a_weight_over_the_limit_never_fits(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", rate=qbull.Rate(10, per=60)))
    heavy, light = await ask(store, "w1", request(11), request(10))
    assert isinstance(heavy, LimitRefusal)
    assert heavy.never
    assert isinstance(light, LimitGrant)


async def test_live_settings_override_the_code(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("api", concurrency=1))
    await shared_limits.change(store, "api", {"concurrency": 3, "daily": 2}, "ann")
    assert granted(await ask(store, "w1", *[request()] * 4)) == [True, True, False, False]
    status = (await usage(store, "api")).status
    assert (status.concurrency, status.daily, status.changed) == (3, 2, ("concurrency", "daily"))
    await shared_limits.change(store, "api", {"concurrency": None, "daily": RESET_SETTING}, "ann")
    status = (await usage(store, "api")).status
    assert (status.concurrency, status.daily, status.changed) == (None, None, ("concurrency",))
    await shared_limits.declare(store, qbull.Limit("api", concurrency=7))
    assert (await usage(store, "api")).status.concurrency is None


async def test_an_unknown_limit_is_an_error(store: Store) -> None:
    with pytest.raises(NotFound, match='limit "nothing": no worker has declared it'):
        await usage(store, "nothing")


async def test_all_limits_are_listed(store: Store) -> None:
    for name in ("b", "a"):
        await shared_limits.declare(store, qbull.Limit(name, concurrency=1))
    assert await shared_limits.names(store) == ["a", "b"]
