"""Flows: a first step, three beside each other, one that sums up. In one of five a step fails, and the fallback runs instead of the sum."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

from campaign_app import KEEP, RETRY, app
from circumstances import Circumstances

import qbull
from loads.oracle import check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, run_recorded, wait_for_room

NAME = "flows"
WIDTH = 3
queue = app.queue(NAME, partitions=2, concurrency=6, retry=RETRY, keep=KEEP, alert=False)


@queue.task
async def first(flow: str) -> int:
    with run_recorded(NAME, flow, part="first"):
        return 1


@queue.task
async def beside(flow: str, n: int, fails: bool) -> int:
    results = qbull.current_job().results
    with run_recorded(NAME, flow, n, part="beside", got=results):
        if fails:
            raise qbull.Fail("this flow is to fail")
        await asyncio.sleep(0.002)
        return 10 + n


@queue.task
async def total(flow: str) -> int:
    results = qbull.current_job().results
    with run_recorded(NAME, flow, part="total", got=results):
        return sum(results)


@queue.task
async def fallback(flow: str) -> int:
    with run_recorded(NAME, flow, part="fallback"):
        return 0


def _flow(flow: str, fails: bool) -> Any:
    group = qbull.group(*(beside.step(flow=flow, n=n, fails=fails and n == 1) for n in range(WIDTH)))
    last = total.options(id=flow).step(flow=flow)
    return qbull.chain(first.step(flow=flow), group, last, fallback=fallback.step(flow=flow))


async def produce() -> None:
    luck = random.Random()
    while True:
        await wait_for_room(queue)
        flow, fails = fresh_id(NAME), luck.random() < 0.2
        await ask(
            NAME, flow, lambda flow=flow, fails=fails: _flow(flow, fails).enqueue(), key=flow, fails=fails
        )
        await asyncio.sleep(luck.uniform(0.0, 0.8))


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    parts: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    fails: dict[str, bool] = {}
    told: set[str] = set()
    part_of: dict[str, str] = {}
    for event in events:
        match event.what:
            case "asked":
                fails[event.key] = event.facts["fails"]
            case "told":
                told.add(event.key)
            case "began":
                part_of[event.job] = event.facts["part"]
                parts[event.key][f"began {event.facts['part']}"].append(event)
            case "done" | "dead":
                parts[event.key][f"{event.what} {part_of.get(event.job, '')}"].append(event)
    report.counts["flows"] = len(told)
    report.counts["fallbacks"] = sum(bool(some["done fallback"]) for some in parts.values())
    report.faults += [f"{flow} ran, but nobody asked for it" for flow in sorted(parts.keys() - fails.keys())]
    for flow in told:
        _check_flow(report, flow, parts[flow], fails=fails[flow])
    check_never_twice(report, runs_of(events))
    return report


def _check_flow(report: Report, flow: str, parts: dict[str, list[Event]], *, fails: bool) -> None:
    last, other = ("fallback", "total") if fails else ("total", "fallback")
    if not parts[f"done {last}"]:
        report.faults.append(f"{flow} did not come to its end: no {last}")
    if parts[f"began {other}"]:
        report.faults.append(f"{flow}: {other} ran, although it {'fails' if fails else 'succeeds'}")
    firsts, middles = parts["done first"], parts["done beside"]
    for event in parts["began beside"]:
        if not firsts or firsts[0].at > event.at or event.facts["got"] != [1]:
            report.faults.append(f"{flow}: step {event.n} started without the result of the first")
    ended: dict[int, int] = {}
    for event in middles:
        ended[event.n] = min(event.at, ended.get(event.n, event.at))
    for event in parts["began total"]:
        if len(ended) < WIDTH or max(ended.values()) > event.at:
            report.faults.append(f"{flow}: the sum started before all steps had ended")
        if event.facts["got"] != [10 + n for n in range(WIDTH)]:
            report.faults.append(f"{flow}: the sum got {event.facts['got']}")
