"""Flows of any shape, whatever their jobs come to and wherever those die who plant and tell: what should run runs once, the rest ends, nothing waits.

The oracle is a few lines of Python that walk through what was written. Those who plant and tell die before or after any of their calls, so that a
call has had its effect and nobody knows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbull
from conftest import every_fault, strays
from qbull.core.flow import DependencyFailureMode
from qbull.core.record import Ending, append_ending, body_of
from qbull.flows import Chain, Group, Step
from qbull.store.connection.server import Server
from qbull.store.read import pages
from qbull.store.store import Store
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.partition import Partition

BAD = {"fail": "failed", "cancel": "cancelled", "remove": None}
outcomes = st.sampled_from(["done"] * 5 + list(BAD))
modes = st.sampled_from(["stop", "stop", "continue"])
parts: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.just("step"), st.sampled_from("ab"), outcomes),
    lambda inner: st.one_of(
        st.tuples(st.just("chain"), st.lists(inner, min_size=1, max_size=3), modes, st.none() | inner),
        st.tuples(st.just("group"), st.lists(inner, min_size=1, max_size=3), inner, modes, st.none() | inner),
    ),
    max_leaves=7,
)


class Died(Exception):
    """Here its process ends."""


class Mortal:
    """The server, as somebody sees it who dies after so many calls: before the last of them, or when it has had its effect."""

    def __init__(self, server: Server, calls: int, *, late: bool) -> None:
        self._server = server
        self._left = calls
        self._late = late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def call(self, *command: Any, **options: Any) -> Any:
        return await self._count(self._server.call, command, options)

    async def script(self, *arguments: Any) -> Any:
        return await self._count(self._server.script, arguments, {})

    async def _count(self, method: Any, arguments: Any, options: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._late:
            raise Died
        answer = await method(*arguments, **options)
        if self._left == 0:
            raise Died
        return answer


class FlowSystem:
    """Two queues of several partitions, whose jobs are run by hand."""

    def __init__(self, app: qbull.App, store: Store, deaths: Iterator[tuple[int, bool]]) -> None:
        self.app = app
        self.store = store
        self.deaths = deaths
        self.server = store.server
        self.steps: list[tuple[Step[Any], str]] = []
        self.ran: list[str] = []
        self.tasks = {}
        for name, partitions in (("a", 2), ("b", 3)):
            queue = app.queue(name, partitions=partitions)

            @queue.task(name="work")
            async def work(number: int, outcome: str) -> None: ...

            self.tasks[name] = work

    def write(self, drawn: Any) -> Step[Any] | Chain[Any] | Group[Any]:
        if drawn[0] == "step":
            step = self.tasks[drawn[1]].step(len(self.steps), drawn[2])
            self.steps.append((step, drawn[2]))
            return step
        if drawn[0] == "chain":
            inner = [self.write(part) for part in drawn[1]]
            fallback = self.write(drawn[3]) if drawn[3] is not None else None
            return qbull.chain(*inner, on_failed=drawn[2], fallback=fallback)
        inner = [self.write(part) for part in drawn[1]]
        then = self.write(drawn[2])
        fallback = self.write(drawn[4]) if drawn[4] is not None else None
        return qbull.group(*inner, then=then, on_failed=drawn[3], fallback=fallback)

    async def mortal(self, do: Any) -> Any:
        """Somebody does it, and may die on the way; gives what it gave, or None."""
        calls, late = next(self.deaths, (0, False))
        self.store.server = Mortal(self.server, calls, late=late)  # type: ignore[assignment]
        try:
            return await do()
        except Died:
            return None
        finally:
            self.store.server = self.server

    async def partitions(self) -> list[Partition]:
        return [
            self.store.partition(queue.settings, number)
            for queue in self.app.queues.values()
            for number in range(queue.settings.partitions)
        ]

    async def tell(self) -> None:
        """Couriers go round, die, and others come, until there is nothing to bring."""
        for _ in range(100):
            partitions = await self.partitions()
            for partition in partitions:
                await self.mortal(lambda partition=partition: self._ship(partition))
            left = [await self.server.call("XLEN", partition.base + "outgoing") for partition in partitions]
            if not any(left):
                return
        raise AssertionError("there is always something to bring")

    async def _ship(self, partition: Partition) -> None:
        mine = self.store.partition(partition.settings, partition.number)
        await FlowStore(self.store).dispatch(mine)

    async def run_some(self) -> bool:
        found = False
        for partition in await self.partitions():
            streams = await self.store.streams([partition])
            await self.store.ensure_groups(streams)
            for delivery in await self.store.fetch(streams, "w", 100, None):
                found = True
                job = delivery.job(0)
                id, record = job.id, job.record
                arguments = qbull.core.codec.decode_untyped(body_of(record).payload)  # type: ignore[attr-defined]
                outcome, written = arguments["outcome"], PartitionOutcomes()
                self.ran.append(arguments["number"])
                if outcome == "done":
                    end = append_ending(Ending(1, 1.0, "w", b"%d" % arguments["number"]))
                    written.done(delivery.level, delivery.entry, id, record + end)
                elif outcome == "fail":
                    written.dead(job.position, id, record, append_ending(Ending(1, 1.0, "w", error="broken")))
                else:
                    written.cancelled(
                        job.position, id, record, append_ending(Ending(1, 1.0, "w", error="no"))
                    )
                await partition.settle(written)
                if outcome == "remove":
                    await partition.remove(id.decode(), [(id.decode(), b"")])
        return found


class Oracle:
    """What must become of the jobs: who runs, and in what way each ends ("not needed" for a fallback)."""

    def __init__(self) -> None:
        self.ends: dict[Step[Any], set[str]] = {}
        self.runs: set[Step[Any]] = set()

    def walk(
        self, part: Any, before: list[set[str]], mode: DependencyFailureMode, outcome: dict[Step[Any], str]
    ) -> list[set[str]]:
        if isinstance(part, Step):
            self.ends[part] = self._end(part, before, mode, outcome[part])
            return [self.ends[part]]
        if isinstance(part, Group):
            ends = [end for inner in part.parts for end in self.walk(inner, before, mode, outcome)]
            ends = self.walk(part.then, ends, part.on_failed, outcome)
        else:
            ends = before
            for n, inner in enumerate(part.parts):
                ends = self.walk(inner, ends, part.on_failed if n else mode, outcome)
        if part.fallback is None:
            return ends
        [end] = ends
        instead = self.walk(part.fallback, [end], "rescue", outcome)
        return [{"completed"}] if end == {"completed"} else instead

    def _end(
        self, step: Step[Any], before: list[set[str]], mode: DependencyFailureMode, outcome: str
    ) -> set[str]:
        bad = set[str]().union(*before) - {"completed"}
        if (mode == "rescue" and not bad) or {"not needed"} in before:
            return {"not needed"}
        if mode == "stop" and bad:
            return bad
        self.runs.add(step)
        return {"completed"} if outcome == "done" else {BAD[outcome] or "cancelled"}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=parts, deaths=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=12))
def test_whatever_dies_every_job_of_a_flow_comes_to_the_end_that_it_should(
    server_url: str, drawn: Any, deaths: list[tuple[int, bool]]
) -> None:
    try:
        asyncio.run(_live(server_url, drawn, deaths))
    except AssertionError as error:
        raise AssertionError(f"{error}\nof {drawn}\nwith {deaths}") from error


async def _live(url: str, drawn: Any, deaths: list[tuple[int, bool]]) -> None:
    app = qbull.App(url, prefix="test")
    store = app._client().store
    await store.open()
    await store.server.call("FLUSHALL")
    try:
        system = FlowSystem(app, store, iter(deaths))
        written = system.write(drawn)
        whole = written if not isinstance(written, Step) else qbull.chain(written)

        flow = await system.mortal(whole.enqueue)
        begun = flow is not None or any([await inspect_all(p) for p in await system.partitions()])
        while True:
            await system.tell()
            if not await system.run_some():
                break

        if begun:
            check(system, whole, await states(system))
        assert await every_fault(store) == []
        assert await strays(store) == []
    finally:
        await app.close()


def check(system: FlowSystem, whole: Any, seen: dict[int, str]) -> None:
    oracle = Oracle()
    oracle.walk(whole, [], "stop", dict(system.steps))
    for number, (step, outcome) in enumerate(system.steps):
        expected = oracle.ends[step]
        if (outcome == "remove" and step in oracle.runs) or expected == {"not needed"}:
            assert number not in seen
        elif isinstance(seen.get(number), str):
            assert seen[number] in expected, (number, seen[number], expected)
        else:
            raise AssertionError(f"job {number} is lost; expected {expected}")
    should = {number for number, (step, _) in enumerate(system.steps) if step in oracle.runs}
    assert Counter(system.ran) == Counter(should)


async def inspect_all(partition: Partition) -> list[Any]:
    return [
        job
        for state in ("waiting", "delayed", "completed", "failed", "cancelled")
        for job in await pages.page([partition], state, 0, 100)  # type: ignore[arg-type]
    ]


async def states(system: FlowSystem) -> dict[int, str]:
    found: dict[int, str] = {}
    for partition in await system.partitions():
        for job in await inspect_all(partition):
            found[qbull.core.codec.decode_untyped(job.body().payload)["number"]] = job.state  # type: ignore[attr-defined]
    return found
