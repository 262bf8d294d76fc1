"""All figures of a run: measured round by round, the contestants taking turns, then medians, ratios and bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from bench import measure
from bench.contestant import Contestant
from bench.contestants import CONTESTANTS
from bench.quiet import DISTURBED, Repeater
from bench.server import Server

FIGURES = (
    "enqueue_bulk",
    "enqueue_concurrent",
    "drain",
    "drain_2",
    "drain_keyed",
    "drain_distinct",
    "drain_one_key",
    "drain_16",
    "drain_64",
    "latency_p50_ms",
    "latency_p99_ms",
    "bytes_per_job",
    "server_us_per_job",
    "worker_us_per_job",
    "idle_commands_per_s",
    "idle_cpu_percent",
    "idle_64_commands_per_s",
    "flat_1m",
    "flat_1m_enqueue",
    "look_1m_ms",
)


@dataclass(frozen=True)
class Bar:
    """What is asked of a ratio to the floor's figure `of`, to qbull's own where `own`, or of qbull's figure where `of` is None."""

    figure: str
    of: str | None
    kind: Literal["at least", "at most"]
    value: float
    own: bool = False

    def verdict(self, reached: float) -> Literal["ok", "below"]:
        good = reached >= self.value if self.kind == "at least" else reached <= self.value
        return "ok" if good else "below"


BARS = {
    "drain": Bar("drain", "drain", "at least", 0.75),
    "drain_keyed": Bar("drain_keyed", "drain_keyed", "at least", 0.75),
    "drain_distinct": Bar("drain_distinct", "drain_distinct", "at least", 0.45),
    "drain_one_key": Bar("drain_one_key", "drain_one_key", "at least", 0.25),
    "drain_64": Bar("drain_64", "drain", "at least", 0.8, own=True),
    "enqueue_concurrent": Bar("enqueue_concurrent", "enqueue_bulk", "at least", 0.5),
    "latency_p50": Bar("latency_p50_ms", "latency_p50_ms", "at most", 1.5),
    "bytes_per_job": Bar("bytes_per_job", None, "at most", 200),
    # With jemalloc or tbbmalloc: with the C library's allocator the floor grows to 1.5 and more, and so does everybody.
    "flat_1m": Bar("flat_1m", None, "at most", 1.1),
    "idle_commands_per_s": Bar("idle_commands_per_s", None, "at most", 2),
    "idle_64_commands_per_s": Bar("idle_64_commands_per_s", None, "at most", 2),
    "idle_cpu_percent": Bar("idle_cpu_percent", None, "at most", 1),
    "look_1m_ms": Bar("look_1m_ms", None, "at most", 50),
}


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    rounds: int = 3
    jobs: int = 50_000
    keys: int = 10_000
    pings: int = 300
    idle_seconds: float = 12.0
    few: int = 10_000
    many: int = 1_000_000
    repeat: int = 5
    tries: int = 3

    @staticmethod
    def quick() -> Plan:
        """Enough to see that everything works; its figures mean nothing."""
        return Plan(
            rounds=1, jobs=1_000, keys=100, pings=30, idle_seconds=0.5, few=500, many=5_000, repeat=1, tries=1
        )


Figures = dict[str, list[float]]


@dataclass
class Run:
    """What was measured: for each contestant and figure one number for each round, or only one."""

    server: Server
    plan: Plan
    say: Callable[[str], None]
    figures: dict[str, Figures] = field(default_factory=lambda: {name: {} for name in CONTESTANTS})
    others: list[tuple[str, float]] = field(default_factory=list)
    repeater: Repeater = field(init=False)

    def __post_init__(self) -> None:
        self.repeater = Repeater(self.plan.tries)

    def all(self) -> None:
        for number in range(self.plan.rounds):
            self._round(number)
        self._each("memory", 0, self._memory)
        self._each("idle", 0, self._idle)
        self._each("idle with 64 partitions", 0, self._idle_64)
        self._each("many waiting", 0, self._flat)

    def disturbed(self) -> list[str]:
        """What was never measured on a machine of our own."""
        return [what for what, others in self.others if others > DISTURBED]

    def medians(self) -> dict[str, dict[str, float]]:
        return {
            name: {what: median(figures[what]) for what in FIGURES} for name, figures in self.figures.items()
        }

    def ratios(self) -> dict[str, float]:
        """The median over the rounds of the ratio within a round; qbull's own figure where nothing is compared."""
        ours, floor = self.figures["qbull"], self.figures["floor"]
        return {
            name: median(ours[bar.figure])
            if bar.of is None
            else median(
                a / b for a, b in zip(ours[bar.figure], (ours if bar.own else floor)[bar.of], strict=True)
            )
            for name, bar in BARS.items()
        }

    def _round(self, number: int) -> None:
        where = f"round {number + 1} of {self.plan.rounds}: "
        plan = self.plan
        self._each(where + "enqueue in bulk", number, self._enqueue_bulk)
        self._each(where + "enqueue concurrently", number, self._enqueue_concurrent)
        self._each(where + "drain", number, self._drain)
        self._each(where + "two processes", number, self._drain_rate("drain_2", "plain", plan.jobs, 1, 2))
        self._each(
            where + "keys", number, self._drain_rate("drain_keyed", "keyed", plan.keys * 10, plan.keys)
        )
        self._each(
            where + "distinct keys", number, self._drain_rate("drain_distinct", "keyed", plan.jobs, plan.jobs)
        )
        self._each(where + "one key", number, self._drain_rate("drain_one_key", "keyed", plan.jobs, 1))
        for partitions in (16, 64):
            figure, kind = f"drain_{partitions}", f"plain-{partitions}"
            self._each(
                f"{where}{partitions} partitions", number, self._drain_rate(figure, kind, plan.jobs, 1)
            )
        self._each(where + "latency", number, self._latency)

    def _each(self, what: str, number: int, figure: Callable[[Contestant], Mapping[str, float]]) -> None:
        """One figure of both contestants, right after each other; who begins changes with the round.

        Where others used the machine meanwhile, the pair is measured again; the least disturbed one counts.
        """
        turns = list(CONTESTANTS.values())
        order = turns if number % 2 == 0 else turns[::-1]

        def pair() -> dict[str, Mapping[str, float]]:
            return {contestant.name: figure(contestant) for contestant in order}

        def say(pair: dict[str, Mapping[str, float]], others: float) -> None:
            said = (
                f"{name} " + ", ".join(f"{v:,.4g}" for v in found.values()) for name, found in pair.items()
            )
            self.say(f"{what}: {'; '.join(said)}; others {others:.2f} cores")

        others, best = self.repeater.least_disturbed(self.server, pair, say)
        self.others.append((what, others))
        for name, found in best.items():
            for part, value in found.items():
                self.figures[name].setdefault(part, []).append(value)

    def _enqueue_bulk(self, contestant: Contestant) -> dict[str, float]:
        return {"enqueue_bulk": measure.enqueue_bulk(self.server, contestant, self.plan.jobs)}

    def _enqueue_concurrent(self, contestant: Contestant) -> dict[str, float]:
        jobs = (
            self.plan.jobs if contestant.name == "qbull" else self.plan.jobs // 5
        )  # one call for each takes long
        return {"enqueue_concurrent": measure.enqueue_concurrent(self.server, contestant, jobs)}

    def _drain(self, contestant: Contestant) -> dict[str, float]:
        drained = measure.drain(self.server, contestant, "plain", self.plan.jobs)
        return {
            "drain": drained.rate,
            "server_us_per_job": drained.server_us,
            "worker_us_per_job": drained.worker_us,
        }

    def _drain_rate(
        self, figure: str, kind: str, jobs: int, keys: int, processes: int = 1
    ) -> Callable[[Contestant], dict[str, float]]:
        """Processor times go along, unshown: where a rate looks wrong, they say whether it can be true."""

        def one(contestant: Contestant) -> dict[str, float]:
            drained = measure.drain(self.server, contestant, kind, jobs, keys, processes)
            return {
                figure: drained.rate,
                f"{figure}_server_us": drained.server_us,
                f"{figure}_worker_us": drained.worker_us,
            }

        return one

    def _latency(self, contestant: Contestant) -> dict[str, float]:
        p50, p99 = measure.latency(self.server, contestant, self.plan.pings)
        return {"latency_p50_ms": p50, "latency_p99_ms": p99}

    def _memory(self, contestant: Contestant) -> dict[str, float]:
        return {"bytes_per_job": measure.bytes_per_job(self.server, contestant, self.plan.jobs)}

    def _idle(self, contestant: Contestant) -> dict[str, float]:
        found = measure.idle(self.server, contestant, "plain", self.plan.idle_seconds)
        return {"idle_commands_per_s": found.commands_per_s, "idle_cpu_percent": found.cpu_percent}

    def _idle_64(self, contestant: Contestant) -> dict[str, float]:
        found = measure.idle(self.server, contestant, "plain-64", self.plan.idle_seconds)
        return {"idle_64_commands_per_s": found.commands_per_s}

    def _flat(self, contestant: Contestant) -> dict[str, float]:
        found = measure.flat(self.server, contestant, self.plan.few, self.plan.many, self.plan.repeat)
        return {"flat_1m": found.drain, "flat_1m_enqueue": found.enqueue, "look_1m_ms": found.look_ms}
