"""Arguments and results: annotate the task, and what you pass is what it gets.

Arguments travel as JSON and are checked against the annotations twice: before anything is sent, and before the
task is called. Results come back as annotated.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pydantic
import pytest

import qbull


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Line:
    article: str
    price: Decimal
    sizes: set[Size] = field(default_factory=set)


class Order(pydantic.BaseModel):
    number: int
    lines: list[str]


async def test_arguments_arrive_as_annotated(app: qbull.App) -> None:
    seen: dict[str, Any] = {}

    @app.queue("orders").task
    async def book(
        id: UUID, when: datetime, line: Line, order: Order, blob: bytes, note: str | None = None
    ) -> None:
        seen.update(id=id, when=when, line=line, order=order, blob=blob, note=note)

    sent = {
        "id": UUID(int=7),
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "line": Line("shirt", Decimal("9.90"), {Size.LARGE}),
        "order": Order(number=1, lines=["a"]),
        "blob": b"\x00\xff",
    }
    job = await book.enqueue(**sent)
    async with app.worker():
        await job.result(timeout=10)

    assert seen == sent | {"note": None}


async def test_a_result_comes_back_as_annotated(app: qbull.App) -> None:
    queue = app.queue("orders")

    @queue.task
    async def cheapest(prices: list[Decimal]) -> Line:
        return Line("shirt", min(prices), {Size.SMALL})

    @queue.task
    async def order(number: int) -> Order:
        return Order(number=number, lines=["a", "b"])

    async with app.worker():
        line = await (await cheapest.enqueue([Decimal("2.50"), Decimal("1.10")])).result(timeout=10)
        model = await (await order.enqueue(5)).result(timeout=10)

    assert line == Line("shirt", Decimal("1.10"), {Size.SMALL})
    assert model == Order(number=5, lines=["a", "b"])


async def test_a_task_is_still_the_function_it_was(app: qbull.App) -> None:
    queue = app.queue("orders")

    @queue.task
    async def double(n: int) -> int:
        return 2 * n

    @queue.task
    def half(n: int) -> float:
        return n / 2

    assert await double(4) == 8
    assert half(5) == 2.5
    assert (await queue.stats()).total == 0


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'article'"),
        (("shirt",), {}, "missing a required argument: 'line'"),
        (("shirt", Line("a", Decimal(1))), {"colour": "red"}, "unexpected keyword argument 'colour'"),
        ((7, Line("a", Decimal(1))), {}, "article: expected str, got int"),
        (("shirt", {"article": "a", "price": "cheap"}), {}, "line.price: "),
        (("shirt", {"article": 1, "price": "1"}), {}, "line.article: expected str, got int"),
    ],
)
async def test_a_wrong_call_is_refused_before_anything_is_sent(
    app: qbull.App, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    queue = app.queue("orders")

    @queue.task
    async def book(article: str, line: Line) -> None: ...

    with pytest.raises(qbull.ArgumentsError, match=f'^task "book": .*{message}'):
        await book.enqueue(*args, **kwargs)

    assert (await queue.stats()).total == 0


async def test_a_payload_beyond_the_limit_is_refused_before_anything_is_sent(
    server_url: str, app: qbull.App
) -> None:
    async with qbull.App(server_url, prefix="test", payload_limit=100) as small:
        queue = small.queue("orders")

        @queue.task
        async def store(text: str) -> None: ...

        with pytest.raises(qbull.TooLarge, match="the limit is 100"):
            await store.enqueue("x" * 200)

        assert (await queue.stats()).total == 0


async def test_a_value_that_cannot_travel_is_refused_before_anything_is_sent(app: qbull.App) -> None:
    queue = app.queue("orders")

    @queue.task
    async def store(value: Any) -> None: ...

    with pytest.raises(qbull.PayloadError, match=r'^task "store": its arguments cannot be encoded: '):
        await store.enqueue(object())

    assert (await queue.stats()).total == 0


class Celsius:
    """A type that qbull does not know."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


def to_plain(value: Any) -> Any:
    if isinstance(value, Celsius):
        return value.degrees
    raise NotImplementedError


def from_plain(kind: type, value: Any) -> Any:
    if kind is Celsius:
        return Celsius(value)
    raise NotImplementedError


async def test_hooks_of_the_app_carry_types_of_your_own(server_url: str, app: qbull.App) -> None:
    async with qbull.App(server_url, prefix="test", enc_hook=to_plain, dec_hook=from_plain) as own:
        readings = own.queue("readings")

        @readings.task
        async def hotter(than: Celsius) -> Celsius:
            return Celsius(than.degrees + 1)

        @readings.task(durable=True)
        async def twice(start: Celsius) -> Celsius:
            job = qbull.current_job()
            kept: Celsius = await job.step(hotter, start)
            return await job.checkpoint(kept)

        plain = await hotter.enqueue(Celsius(20))
        durable = await twice.enqueue(Celsius(30))
        async with own.worker():
            assert (await plain.result(timeout=10)).degrees == 21
            assert (await durable.result(timeout=10)).degrees == 31


async def test_a_task_has_hooks_of_its_own(app: qbull.App) -> None:
    @app.queue("readings").task(enc_hook=to_plain, dec_hook=from_plain)
    def hotter(than: Celsius) -> Celsius:
        return Celsius(than.degrees + 1)

    job = await hotter.enqueue(Celsius(20))
    async with app.worker():
        assert (await job.result(timeout=10)).degrees == 21


async def test_paths_ranges_and_sets_travel(app: qbull.App) -> None:
    @app.queue("files").task
    async def chosen(folder: Path, numbers: range, without: set[int]) -> list:  # type: ignore[type-arg]
        return [folder / f"{n}.csv" for n in numbers if n not in without]

    job = await chosen.enqueue(Path("/data"), range(0, 10, 3), {6})
    async with app.worker():
        assert await job.result(timeout=10) == ["/data/0.csv", "/data/3.csv", "/data/9.csv"]


async def test_a_result_that_cannot_travel_names_its_path_and_the_job_can_run_again(app: qbull.App) -> None:
    price: Any = 1j

    @app.queue("reports").task
    async def report(month: str) -> dict[str, Any]:
        return {"month": month, "rows": [{"price": 1}, {"price": price}]}

    job = await report.enqueue("2026-01")
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match=r"rows\[1\]\.price: a complex has no JSON form"):
            await job.result(timeout=10)
        dead = await job.info()
        price = 2
        await job.retry()
        result = await job.result(timeout=10)

    assert dead is not None
    assert (dead.state, dead.attempt, dead.payload) == ("failed", 1, {"month": "2026-01"})
    assert result == {"month": "2026-01", "rows": [{"price": 1}, {"price": 2}]}


async def test_a_task_that_could_never_be_called_is_refused_when_declared(app: qbull.App) -> None:
    queue = app.queue("orders")

    with pytest.raises(qbull.DeclarationError, match="cannot be carried by name"):

        @queue.task
        async def anything(*args: int) -> None: ...

    with pytest.raises(qbull.DeclarationError, match=r'its id "\{user\}" names'):

        @queue.task(id="{user}")
        async def greet(name: str) -> None: ...
