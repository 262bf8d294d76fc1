"""stub: a typed module from a running server, which type checkers accept and which enqueues."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Literal
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest
from shell import Shell, open_shell  # noqa: F401 - a fixture

import qbull
from qbull.cli.stub_types import identifier


@dataclass
class Line:
    article: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


class Card(msgspec.Struct, tag=True):
    number: str


class Cash(msgspec.Struct, tag=True):
    amount: int


class Person(pydantic.BaseModel):
    name: str
    born: datetime | None = None
    children: list[Person] = []


class Node(msgspec.Struct, rename={"from_": "from"}):
    from_: str
    next: Node | None = None


@pytest.fixture
def served(app: qbull.App) -> qbull.App:
    orders, odd = app.queue("orders"), app.queue("odd-names", order="key")

    @orders.task
    async def book(
        id: UUID,
        lines: list[Line],
        paid: Card | Cash,
        at: datetime | None = None,
        wait: timedelta = timedelta(seconds=1),
        app: str = "x",
        options: int = 1,
    ) -> list[Line]:
        """Book an order.

        With "quotes" and a \\ in it."""
        return lines

    @orders.task
    async def greet(person: Person, mode: Literal["loud", "soft"] = "soft") -> str:
        return f"hello {person.name} ({mode})"

    @orders.task
    async def walk(start: Node, sizes: tuple[int, str], raw: bytes, count: dict[str, float]) -> Node | None:
        return start

    @orders.task
    async def nothing() -> None: ...

    @odd.task(name="other.tasks.class", key="{key}")
    def other(key: str) -> int:
        return len(key)

    return app


def load(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tasks_stub", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tasks_stub", module)
    spec.loader.exec_module(module)
    return module


def type_check(folder: Path, source: str) -> str:
    (folder / "use.py").write_text(source)
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder / "cache"),
         "--config-file", "mypy.ini", "tasks_stub.py", "use.py"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    return checked.stdout + checked.stderr


USE = """
import asyncio, datetime, decimal, uuid
import qbull
import tasks_stub
from tasks_stub import Card, Line, Node, Person

async def main(app: qbull.App) -> None:
    job = await tasks_stub.orders.book(
        app, {"delay": 1.5}, id=uuid.uuid4(), lines=[Line(article="pen", price=decimal.Decimal(2))],
        paid=Card(number="1"), at=datetime.datetime.now(),
    )
    lines: list[Line] = await job.result(timeout=5)
    text: str = await tasks_stub.orders.greet_sync(app, person=Person(name="x"), mode="loud").result()
    node: Node | None = await (
        await tasks_stub.orders.walk(app, start=Node(from_="a"), sizes=(1, "b"), raw=b"", count={"a": 1.5})
    ).result()
    number: int = await (await tasks_stub.odd_names.other_tasks_class(app, key="k")).result()
"""


async def test_a_strict_type_checker_accepts_the_stub_and_refuses_wrong_calls(
    shell: Shell, served: qbull.App, tmp_path: Path
) -> None:
    async with served.worker():
        (tmp_path / "tasks_stub.py").write_text(shell.ok("stub"))

    assert type_check(tmp_path, USE) == ""
    wrong = type_check(
        tmp_path,
        """
import qbull, tasks_stub

async def main(app: qbull.App) -> None:
    await tasks_stub.orders.greet(app)
    await tasks_stub.orders.greet(app, person=3)
    await tasks_stub.orders.greet(app, person=tasks_stub.Person(name="x"), mode="silent")
    await tasks_stub.orders.greet(app, {"dealy": 1}, person=tasks_stub.Person(name="x"))
    number: int = await (await tasks_stub.orders.greet(app, person=tasks_stub.Person(name="x"))).result()
""",
    )
    assert [line.split(":")[1] for line in wrong.splitlines() if ": error:" in line] == [
        "5",
        "6",
        "7",
        "8",
        "9",
    ]


async def test_its_functions_enqueue_and_give_typed_results(
    shell: Shell, served: qbull.App, app: qbull.App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, producer = tmp_path / "tasks_stub.py", qbull.App(app.url, prefix=app.prefix)
    async with served.worker():
        path.write_text(shell.ok("stub"))
        made = load(path, monkeypatch)
        line = made.Line(article="pen", price=Decimal("1.5"))
        at = datetime(2030, 1, 31, tzinfo=UTC)

        job = await made.orders.book(producer, id=uuid4(), lines=[line], paid=made.Cash(amount=1), at=at)
        greeting = await made.orders.greet(producer, person=made.Person(name="ana"), mode="loud")
        node = await made.orders.walk(
            producer, start=made.Node(from_="a"), sizes=(1, "b"), raw=b"x", count={"a": 1.0}
        )
        other = await made.odd_names.other_tasks_class(producer, key="four")
        nothing = await made.orders.nothing(producer)

        [booked] = await job.result(timeout=10)
        assert isinstance(booked, made.Line) and booked.price == Decimal("1.5")
        assert await greeting.result(timeout=10) == "hello ana (loud)"
        assert (await node.result(timeout=10)).from_ == "a"
        assert (await other.result(timeout=10), await nothing.result(timeout=10)) == (4, None)
        with pytest.raises(qbull.ArgumentsError, match=r"person\.name: expected string, got integer"):
            await made.orders.greet(producer, person=made.Person(name=3))
    await producer.close()


async def test_some_queues_only_and_the_same_text_twice(shell: Shell, served: qbull.App) -> None:
    async with served.worker():
        pass

    one = shell.ok("stub", "odd-names")

    assert "class odd_names:" in one and "class orders:" not in one
    assert shell.ok("stub") == shell.ok("stub")


async def test_without_a_described_task_there_is_nothing_to_write(shell: Shell, served: qbull.App) -> None:
    assert "no worker has published a task" in shell.refused("stub")
    await served.send("orders", "nothing", {})

    assert "no worker has published a task" in shell.refused("stub")


@pytest.mark.parametrize(
    ("text", "name"),
    [("a-b", "a_b"), ("class", "class_"), ("1x", "_1x"), ("ü!", "_"), ("taken", "taken_2"), ("x", "x")],
)
def test_names_of_python(text: str, name: str) -> None:
    assert identifier(text, ["taken"]) == name
