"""Programs for the model of durable tasks, and the plain function that says how each of them ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from hypothesis import strategies as st

Program = Any
old_paths = st.tuples(st.just("step"), st.just("o"), st.integers(0, 1), st.just(False))
"""The code before a change."""
parts: st.SearchStrategy[Program] = st.recursive(
    st.tuples(
        st.sampled_from(["step", "step", "call", "transaction"]),
        st.sampled_from("abc"),
        st.integers(0, 1),
        st.sampled_from([False] * 4 + [True]),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("sleep"), st.integers(1, 3), inner),
        st.tuples(st.just("wait"), inner),
        st.tuples(st.just("publish"), inner),
        st.tuples(st.just("emit"), st.integers(0, 1), inner),
        st.tuples(st.just("patched"), inner, old_paths),
        st.tuples(st.just("sequence"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("parallel"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("try"), inner, inner),
    ),
    max_leaves=7,
)


def words_in_parallel(part: Program, *, is_inside: bool = False) -> set[str]:
    """The kinds of parts that run beside others."""
    if isinstance(part, list):
        return {word for one in part for word in words_in_parallel(one, is_inside=is_inside)}
    if not isinstance(part, tuple):
        return set()
    found = {part[0]} if is_inside and isinstance(part[0], str) else set[str]()
    for one in part:
        found |= words_in_parallel(one, is_inside=is_inside or part[0] == "parallel")
    return found


programs = st.tuples(
    parts, st.none() | st.tuples(st.integers(1, 3), parts), st.sampled_from([0, 0, 0, 1, 2])
).filter(lambda program: "patched" not in words_in_parallel(program))
"""A part, and then perhaps a loop with a checkpoint: how many times, and its body. Then how often the job starts over."""
EVERYTHING: Program = (
    ("sequence", [
        ("step", "a", 0, False),
        ("parallel", [
            ("step", "b", 0, False),
            ("step", "c", 0, False),
            ("call", "a", 1, False),
            ("sleep", 1, ("transaction", "a", 0, False)),
        ]),
        ("emit", 0, ("publish", ("wait", ("emit", 0, ("step", "a", 0, False))))),
        ("try", ("step", "b", 1, True), ("transaction", "b", 1, False)),
        ("try", ("call", "b", 0, True), ("step", "c", 1, False)),
        ("patched", ("step", "c", 0, False), ("step", "o", 0, False)),
    ]),
    (2, ("sequence", [
        ("emit", 1, ("step", "a", 1, False)),
        ("patched", ("transaction", "c", 0, False), ("step", "o", 1, False)),
    ])),
    1,
)  # fmt: skip
"""A program with every part, a loop, and a new start."""

AnswerKey = tuple[int, int | None, int]
"""A question of `patched`: how often the job has started over, the round of the loop, and the question's number there."""


class Broken(Exception):
    """What a failing step raises."""


class Calls(Protocol):
    """The calls that a program makes: those of a durable run, or those of a plain function."""

    async def step(self, name: str, argument: int, fails: bool) -> Any: ...
    async def call(self, name: str, argument: int, fails: bool) -> Any: ...
    async def transaction(self, name: str, argument: int, fails: bool) -> Any: ...
    async def checkpoint(self, value: int) -> int: ...
    async def sleep(self, hours: int) -> None: ...
    async def wait(self) -> None: ...
    async def publish(self) -> None: ...
    async def emit(self, value: int) -> None: ...
    async def patched(self) -> bool: ...


class Questions:
    """Gives each question of `patched` in one run of a program its key."""

    def __init__(self, continued: int) -> None:
        self._continued = continued
        self._round: int | None = None
        self._asked = 0

    def start_round(self, number: int) -> None:
        self._round, self._asked = number, 0

    def next(self) -> AnswerKey:
        self._asked += 1
        return self._continued, self._round, self._asked


async def interpret(program: Program, calls: Calls) -> Any:
    """Run a program with the given calls."""

    async def run(part: Program) -> Any:
        match part:
            case ("step", name, argument, fails):
                return await calls.step(name, argument, fails)
            case ("call", name, argument, fails):
                return await calls.call(name, argument, fails)
            case ("transaction", name, argument, fails):
                return await calls.transaction(name.upper(), argument, fails)
            case ("sleep", hours, after):
                await calls.sleep(hours)
                return await run(after)
            case ("wait", after):
                await calls.wait()
                return await run(after)
            case ("publish", after):
                await calls.publish()
                return await run(after)
            case ("emit", value, after):
                await calls.emit(value)
                return await run(after)
            case ("patched", after, before):
                return await run(after if await calls.patched() else before)
            case ("sequence", several):
                return [await run(one) for one in several]
            case ("parallel", several):
                found = await asyncio.gather(*map(run, several), return_exceptions=True)
                for one in found:
                    if isinstance(one, BaseException):
                        raise one
                return found
            case ("try", body, handler):
                try:
                    return await run(body)
                except Broken as error:
                    return [str(error), await run(handler)]

    first, loop, _ = program
    results = [await run(first)]
    if loop is not None:
        rounds, body = loop
        n = await calls.checkpoint(0)
        while n < rounds:
            with suppress(Broken):
                await run(body)
            n = await calls.checkpoint(n + 1)
        results.append(n)
    return results


class Expected(NamedTuple):
    """How a program ends."""

    result: Any
    calls: Counter[tuple[str, int]]
    """How often it calls each step."""
    commits: Counter[tuple[str, int]]
    """How often each transaction commits."""
    emitted: list[int]


class _PlainCalls:
    """The calls of a plain function. `patched` answers as the durable task was answered."""

    def __init__(self, expected: Expected, questions: Questions, answers: Mapping[AnswerKey, bool]) -> None:
        self._expected = expected
        self._questions = questions
        self._answers = answers

    async def step(self, name: str, argument: int, fails: bool) -> Any:
        self._expected.calls[name, argument] += 1
        if fails:
            raise Broken(f"{name}{argument}")
        return [name, argument]

    async def call(self, name: str, argument: int, fails: bool) -> Any:
        self._expected.calls[name + "()", argument] += 1
        if fails:
            raise Broken(f"{name}{argument}")
        return [name, argument]

    async def transaction(self, name: str, argument: int, fails: bool) -> Any:
        self._expected.commits[name, argument] += not fails
        return await self.step(name, argument, fails)

    async def checkpoint(self, value: int) -> int:
        self._questions.start_round(value)
        return value

    async def sleep(self, hours: int) -> None: ...

    async def wait(self) -> None: ...

    async def publish(self) -> None:
        self._expected.calls["publish", 0] += 1

    async def emit(self, value: int) -> None:
        self._expected.emitted.append(value)

    async def patched(self) -> bool:
        self._expected.calls["patched", 0] += (answer := self._answers[self._questions.next()])
        return answer


async def run_plain_function(program: Program, answers: Mapping[AnswerKey, bool]) -> Expected:
    """Run a program without steps."""
    expected = Expected(None, Counter(), Counter(), [])
    found = None
    for continued in range(program[2] + 1):
        calls = _PlainCalls(expected, Questions(continued), answers)
        found = await outcome(interpret(program, calls))
        if isinstance(found, str):
            break
    return expected._replace(result=found, commits=+expected.commits)


async def outcome(run: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await run
    except Broken as error:
        return f"failed: {error}"
