"""Measure the rows of bench/features.py round by round, each right after the row that it is compared with."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from bench import feature_rates, postgres_rates, rest
from bench.contestant import Call
from bench.features import FEATURES, Feature
from bench.peers import problem_of
from bench.postgres_server import PostgresServer, open_postgres
from bench.quiet import DISTURBED, Repeater
from bench.server import Server, open_replicated_server

PROCRASTINATE_JOBS = 1_000
"""It runs some dozens or hundreds a second, so it gets at most this many."""


@dataclass(frozen=True)
class Pair:
    """What one measurement of a row has found."""

    rate: float
    beside: float | None
    wait_ms: float | None = None


@dataclass
class FeatureRun:
    """The rates of every row, one for each round, and of the row beside it."""

    server: Server
    jobs: int
    rounds: int
    say: Callable[[str], None]
    only: Sequence[str] = ()
    repeater: Repeater = field(default_factory=Repeater)
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    disturbed: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    """Of the other systems that rows are compared with."""
    _servers: ExitStack = field(default_factory=ExitStack)
    _wait_ms: float | None = None

    def __enter__(self) -> FeatureRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def all(self) -> None:
        for number in range(self.rounds):
            for name in FEATURES:
                if not self.only or name in self.only:
                    self._row(number, name)

    def rate_of(self, name: str) -> float:
        """The median rate of a row, which is measured now if it was not."""
        if name not in self.pairs:
            self._row(0, name)
        return median(pair.rate for pair in self.pairs[name])

    def figures(self) -> dict[str, dict[str, Any]]:
        """For bench/out.json: the median rate and ratio of each row, and its goals."""
        found = {name: self._figures(name, FEATURES[name]) for name in FEATURES if name in self.pairs}
        return found | {name: {"problem": problem} for name, problem in self.problems.items()}

    def _figures(self, name: str, feature: Feature) -> dict[str, Any]:
        pairs = self.pairs[name]
        rate = median(pair.rate for pair in pairs)
        ratio = median(pair.rate / pair.beside if pair.beside else 1.0 for pair in pairs)
        verdicts = [
            reached >= goal
            for reached, goal in ((ratio, feature.goal), (rate, feature.goal_per_s))
            if goal is not None
        ]
        waits = [pair.wait_ms for pair in pairs if pair.wait_ms is not None]
        found = {"jobs_per_s": rate, "ratio": ratio, "beside": feature.beside, "goal": feature.goal}
        if feature.goal_per_s is not None:
            found["goal_jobs_per_s"] = feature.goal_per_s
        if waits:
            found["p50_ms"] = median(waits)
        if waits and feature.goal_p50_ms is not None:
            found["goal_p50_ms"] = feature.goal_p50_ms
            verdicts.append(found["p50_ms"] <= feature.goal_p50_ms)
        return {**found, "verdict": ("ok" if all(verdicts) else "below") if verdicts else None}

    @cached_property
    def _replicated(self) -> Server:
        return self._servers.enter_context(open_replicated_server())

    @cached_property
    def _postgres(self) -> PostgresServer:
        return self._servers.enter_context(open_postgres())

    def _row(self, number: int, name: str) -> None:
        feature = FEATURES[name]
        server = self._replicated if feature.with_replica else self.server

        def measure() -> Pair:
            self._wait_ms = None
            beside = self._rate(feature.beside, server, feature) if feature.beside != name else None
            return Pair(self._rate(name, server, feature), beside, self._wait_ms)

        def say(pair: Pair, others: float) -> None:
            ratio = f", {pair.rate / pair.beside:.2f} of {feature.beside}" if pair.beside else ""
            self.say(f"round {number + 1}: {name}: {pair.rate:,.0f}/s{ratio}; others {others:.2f} cores")

        if name in self.problems:
            return
        try:
            others, best = self.repeater.least_disturbed(server, measure, say)
        except (subprocess.SubprocessError, postgres_rates.PeerProblem) as error:
            self.problems[name] = problem_of(error)
            self.say(f"round {number + 1}: {name}: {self.problems[name]}")
            return
        self.pairs.setdefault(name, []).append(best)
        if others > DISTURBED:
            self.disturbed.append(f"{name} ({others:.1f} cores)")

    def _rate(self, name: str, server: Server, row: Feature) -> float:
        """Jobs a second of this row; the floor and other systems get the jobs of the row that is compared with them."""
        server.clear()
        calls = FEATURES.get(name, row).calls(self.jobs)
        match name:
            case "floor":
                return feature_rates.drain_floor(server, calls)
            case "floor_enqueue":
                return feature_rates.enqueue_floor(server, calls)
            case "rest_empty":
                return rest.rate_of(server, "empty", len(calls))
            case name if name.startswith("procrastinate"):
                self.versions["procrastinate"] = postgres_rates.procrastinate_version()
                self.versions["postgres"] = f"PostgreSQL {self._postgres.version}"
                return postgres_rates.procrastinate(self._postgres, name, calls[:PROCRASTINATE_JOBS])
        return self._own_rate(name, server, calls)

    def _own_rate(self, name: str, server: Server, calls: Sequence[Call]) -> float:
        feature = FEATURES[name]
        match feature.what:
            case "enqueue":
                return len(calls) / asyncio.run(feature_rates.fill(server, feature, calls))
            case "await":
                rate, self._wait_ms = feature_rates.await_all(server, name, feature, calls)
                return rate
            case "http":
                return rest.rate_of(server, "enqueue", len(calls))
            case "outbox_enqueue" | "outbox" | "inbox" | "track":
                return postgres_rates.MEASURES[feature.what](self._postgres, server, name, feature, calls)
        return feature_rates.drain(server, name, feature, calls)
