"""A small campaign, and one that must show losses: a checker that could not see them would prove nothing.

`make chaos` runs the long ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign import Orders, run
from checker import Checker
from circumstances import Circumstances
from history import BEGUN, DEAD, DONE, FAILED
from key_order import Judge
from loads import SMALL_LOADS, durable, same_ids, schedules
from nemesis import Pace
from recheck import found_in

ALL_LOADS = {load.NAME for load in (same_ids, schedules, *SMALL_LOADS)}
OFTEN = (Pace(0.8, 100), Pace(0.6, 100), Pace(2.0, 200))

pytestmark = [pytest.mark.xdist_group("campaign"), pytest.mark.timeout(300)]


def test_every_promise_is_kept_while_anything_fails(tmp_path: Path) -> None:
    orders = Orders(
        seed=7, seconds=6, faults=8, pods=2, senders=2, database=False, behind=1500, drain=200.0, paces=OFTEN,
        loads=tuple(ALL_LOADS),
    )  # fmt: skip

    outcome = run(orders, tmp_path)

    assert outcome.verdict.broken() == [], outcome.table
    assert outcome.verdict.acknowledged > 0, outcome.table
    assert {report.load for report in outcome.verdict.reports} - {durable.CALLED} == ALL_LOADS, outcome.table
    history = tmp_path / "history"
    found, kept = found_in(history)
    again = Checker(history, found).check()
    assert kept and again == outcome.verdict, "a history says the same when it is checked again"
    (history / "found.json").unlink()
    assert Checker(history, found_in(history)[0]).check().broken() == []


def test_losses_with_less_durability_are_seen(tmp_path: Path) -> None:
    orders = Orders(
        seed=7, seconds=3, faults=2, durability="fast", pods=1, senders=2, database=False, behind=1500, drain=60.0,
        only=("power cut",), paces=OFTEN, loads=("chunks",),
    )  # fmt: skip

    outcome = run(orders, tmp_path)

    # If the workers keep up with the senders, a power cut takes no job, only the outcomes of those that have
    # run. These run again, some of them after a later job of their key.
    verdict = outcome.verdict
    assert verdict.lost or verdict.books or verdict.disorder, outcome.table


def judged(
    *events: tuple[float, int, int, int], deaths: dict[int, int] | None = None, runs_ahead: bool = False
) -> list[str]:
    killed = [{"pids": [process], "at_ns": at} for process, at in (deaths or {}).items()]
    judge = Judge(Circumstances(killed, runs_ahead=runs_ahead))
    judge.look_at(1, [(int(at * 1e6), process, kind, number) for at, process, kind, number in events])
    return judge.faults


def test_order_is_judged_as_it_is_promised() -> None:
    quick = [(0, 1, BEGUN, 0), (1, 1, DONE, 0), (1.1, 1, BEGUN, 1), (1.2, 1, DONE, 1)]
    slow = [(0, 1, BEGUN, 0), (4, 1, DONE, 0), (4.1, 1, BEGUN, 1), (4.2, 1, DONE, 1)]
    again = [(900, 2, BEGUN, 0), (901, 2, DONE, 0), (901.1, 2, BEGUN, 1), (901.2, 2, DONE, 1)]

    assert judged(*quick) == []
    assert judged(*quick, *again, deaths={1: 2_000_000}, runs_ahead=True) == [], (
        "they ended in the last moments of their process"
    )
    assert judged(*quick, *again, deaths={1: 2_000_000}) != [], (
        "every outcome is written down before the next begins"
    )
    assert judged(*slow, *again, deaths={1: 5_000_000}, runs_ahead=True) != [], (
        "a slow job is written down before the next begins"
    )
    assert judged(*quick, *again) != [], "their process lives"
    assert judged((0, 1, BEGUN, 0), (1, 1, FAILED, 0), (2, 1, BEGUN, 1)) != [], (
        "the one before has its retry yet"
    )
    assert judged((0, 1, BEGUN, 0), (1, 1, DEAD, 0), (2, 1, BEGUN, 1), (3, 1, DONE, 1)) == []
    assert judged((0, 1, BEGUN, 0), (1, 1, DONE, 0), (2, 1, BEGUN, 2)) != [], "one was left out"
    assert judged((0, 1, BEGUN, 0), (1, 2, BEGUN, 0), (2, 1, DONE, 0), (3, 2, DONE, 0)) != [], "both at once"
