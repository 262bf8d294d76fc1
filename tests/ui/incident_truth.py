"""The truth about an incident, counted by the tasks themselves, and what the overview says of it at the same moment."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from datetime import time as dt_time
from pathlib import Path
from threading import Event, Thread
from zoneinfo import ZoneInfo

from playwright.async_api import Page

ERRORS = {
    "template": "KeyError: 'first_name'",
    "refused": "ConnectionError: smtp.example.com refused the connection",
    "busy": "TimeoutError: 421 the mail server is busy",
}
"""The first line of each kind of error, as the overview shows it."""
BEHIND_SECONDS = 9
"""The overview shows a failure at the latest after so many seconds: workers report once a second, the API keeps an answer
for two, the page asks every three, and a busy machine takes as long again for an answer."""
LOST_SECONDS = 60
"""A worker that was killed is in the verdict at the latest after so many seconds."""
OVERDUE_SECONDS = 75
"""A schedule that stands still is in the verdict at the latest after so many seconds: after 60, and as late as a failure."""
CLOCK_SECONDS = 2.5
"""How exact a time in the verdict is: schedules run every second, and a lost worker is dated by its last heartbeat."""
HEARTBEAT_SECONDS = 15
NOTICED_SECONDS = 4.5
"""A frozen server is noticed within three seconds, and a busy machine takes a little longer."""
ZONE = ZoneInfo("Europe/Madrid")
"""Of the browser."""

Counts = dict[str, int]

SAMPLE = """() => {
    window.samples = [];
    const number = (text) => Number(text.replaceAll(",", ""));
    setInterval(() => window.samples.push({
        at: Date.now() / 1000,
        live: document.querySelector(".side .live")?.textContent ?? "",
        as_of: document.querySelector(".stale b")?.textContent ?? "",
        counts: [...document.querySelectorAll(".failing li")].map((one) => [
            one.querySelector(".error-text").textContent,
            number(one.querySelector(".row-count").textContent),
        ]),
        problems: [...document.querySelectorAll(".verdict .problems li")].map((one) => ({
            subject: one.querySelector(".problem-subject")?.textContent ?? "",
            text: one.querySelector(".problem-text")?.textContent ?? "",
            since: one.querySelector("time")?.getAttribute("datetime") ?? "",
            is_firing: !one.classList.contains("info"),
        })),
        badge: number(document.querySelector("nav a[href$=alerts] .nav-count")?.textContent ?? "0"),
    }), 1000);
}"""
"""What the overview says, once a second, by the clock of the machine."""


@dataclass
class Problem:
    """A line of the verdict."""

    subject: str
    text: str
    since: str
    is_firing: bool

    def seconds_from(self, moment: float) -> float:
        """By how many seconds the line says that its problem started after a moment."""
        return datetime.fromisoformat(self.since).timestamp() - moment


@dataclass
class Sample:
    """What the overview said at one moment."""

    at: float
    live: str
    as_of: str
    counts: Counts
    problems: list[Problem]
    badge: int

    @property
    def known_at(self) -> float:
        """The moment for which the page says that its numbers are true."""
        return self.at if not self.as_of else moment_of(self.as_of, self.at)

    def line(self, words: str) -> Problem | None:
        return next((one for one in self.problems if words in f"{one.subject} {one.text}"), None)


@dataclass
class Truth:
    """What was the case: how often each error was raised by when, and when something was done to the system."""

    directory: Path
    raised: list[tuple[float, Counts]] = field(default_factory=list)
    killed_at: float = 0.0
    lost_worker: str = ""
    frozen: tuple[float, float] = (0.0, 0.0)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Look ten times a second."""
        over = Event()
        thread = Thread(target=self._record, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def until(self, moment: float) -> Counts:
        """The failures up to a moment, as they were counted last before it."""
        before = [counts for at, counts in self.raised if at <= moment]
        return before[-1] if before else dict.fromkeys(ERRORS, 0)

    def soon_after(self, moment: float) -> Counts:
        """The failures up to a moment, and those up to the next look."""
        return next((counts for at, counts in self.raised if at >= moment), self.raised[-1][1])

    def _record(self, over: Event) -> None:
        while not over.wait(0.1):
            counts = {kind: _size(self.directory / kind) for kind in ERRORS}
            self.raised.append((time.time(), counts))


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


async def samples_of(page: Page) -> list[Sample]:
    """What the page has said until now."""
    found = []
    for one in await page.evaluate("window.samples"):
        shown = dict(one.pop("counts"))
        problems = [Problem(**line) for line in one.pop("problems")]
        counts = {kind: int(shown.get(error, 0)) for kind, error in ERRORS.items()}
        found.append(Sample(**one, counts=counts, problems=problems))
    return found


def moment_of(as_of: str, near: float) -> float:
    """The moment that "As of 13:27:48" means, in the time zone of the browser."""
    said = dt_time.fromisoformat(as_of.removeprefix("As of "))
    there = datetime.fromtimestamp(near, UTC).astimezone(ZONE)
    moment = datetime.combine(there.date(), said, there.tzinfo)
    days = (moment + timedelta(days=n) for n in (-1, 0, 1))
    return min(days, key=lambda one: abs(one - there)).timestamp()


def lies(truth: Truth, sample: Sample) -> list[str]:
    """What the overview said at one moment, and was not the case."""
    return [*_wrong_counts(truth, sample), *_wrong_problems(truth, sample), *_wrong_age(truth, sample)]


def _wrong_counts(truth: Truth, sample: Sample) -> Iterator[str]:
    most, fewest = truth.soon_after(sample.at), truth.until(sample.known_at - BEHIND_SECONDS)
    for kind, n in sample.counts.items():
        if not fewest[kind] <= n <= most[kind]:
            yield f"{n} failures of {kind}; there were {fewest[kind]} to {most[kind]}"
    failing = sample.line("attempts failed")
    if failing is not None:
        failed, attempts = map(int, re.findall(r"\d+", failing.text.replace(",", ""))[:2])
        if not sum(fewest.values()) <= failed <= sum(most.values()) or failed > attempts:
            yield f"{failing.text}; there were {sum(fewest.values())} to {sum(most.values())}"


def _wrong_problems(truth: Truth, sample: Sample) -> Iterator[str]:
    firing = sum(one.is_firing for one in sample.problems)
    if sample.badge != firing:
        yield f"the badge says {sample.badge} and the verdict has {firing} lines that are firing"
    lost, overdue = sample.line("lost and not replaced"), sample.line("It has not run for")
    dead_for = sample.at - truth.killed_at if truth.killed_at else -1.0
    for line, latest in ((lost, LOST_SECONDS), (overdue, OVERDUE_SECONDS)):
        if line is not None and dead_for < 0:
            yield f"{line.subject}: {line.text} before anything was killed"
        if line is None and dead_for > latest:
            yield f"a worker was killed {dead_for:.0f} s ago and nothing says what is wrong"
    if overdue is not None and overdue.subject != "every-second":
        yield f"{overdue.subject} is said to be overdue"
    if lost is not None and dead_for >= 0:
        if lost.subject != truth.lost_worker:
            yield f"{lost.subject} is said to be lost, not {truth.lost_worker}"
        if not -HEARTBEAT_SECONDS <= lost.seconds_from(truth.killed_at) <= LOST_SECONDS:
            yield f"lost since {lost.since}, killed {dead_for:.0f} s ago"
    if overdue is not None and dead_for >= 0 and abs(overdue.seconds_from(truth.killed_at)) > CLOCK_SECONDS:
        yield f"overdue since {overdue.since}, killed {dead_for:.0f} s ago"


def _wrong_age(truth: Truth, sample: Sample) -> Iterator[str]:
    """While the server does not answer, no number may pass for a present one."""
    began, ended = truth.frozen
    if began and began + NOTICED_SECONDS <= sample.at <= ended:
        if not sample.as_of or sample.live == "Live":
            yield f"{sample.live}, {sample.as_of!r}, {sample.at - began:.1f} s after the server froze"
        elif not -4.0 <= sample.known_at - began <= 1.0:
            yield f"{sample.as_of}, {sample.known_at - began:.1f} s after the server froze"
