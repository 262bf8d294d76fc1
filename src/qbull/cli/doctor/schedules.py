"""Schedule checks of `qbull doctor`: is the data consistent, and do the runs happen?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.core.schedule_info import ScheduleInfo
from qbull.errors import QbullError
from qbull.schedules import Schedules
from qbull.store.read.integrity import check_schedules_integrity
from qbull.store.store import Store


async def check_schedules(schedules: Schedules, store: Store) -> AsyncIterator[Finding]:
    """Check all schedules of the app."""
    try:
        infos = await schedules.list()
        faults = await check_schedules_integrity(store)
    except QbullError as error:
        yield problem("schedules", str(error), "see the checks of the queues above")
        return
    for fault in faults:
        subject, _, fact = fault.partition(": ")
        name = subject.removeprefix("schedule ").strip('"')
        yield problem(subject, fact, f'run "qbull schedules remove {name}" and create it again')
    findings = [finding for info in infos for finding in _check_schedule(info)]
    for finding in findings:
        yield finding
    if infos and not findings and not faults:
        yield ok("schedules", f"the data of all {len(infos)} is consistent")


def _check_schedule(info: ScheduleInfo) -> list[Finding]:
    subject = f'schedule "{info.name}"'
    findings = []
    if info.problem is not None and not info.paused and info.next:
        step = f'run "qbull worker MODULE:APP --queues {info.queue}", or "qbull schedules remove {info.name}"'
        findings.append(note(subject, info.problem, step))
    if info.last is not None and info.last.state == "failed":
        step = f'see "qbull job {info.queue} {info.last.job_id}"'
        findings.append(note(subject, f"its last run failed: {info.last.error}", step))
    if info.missed:
        step = f'see catch_up in "qbull schedules --json"; it has catch_up="{info.catch_up}"'
        findings.append(note(subject, f"{info.missed} of its runs were missed", step))
    return findings
