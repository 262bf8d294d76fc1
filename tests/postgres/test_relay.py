"""The relay: what is committed is shipped, in order for each key, whatever dies, freezes or goes away meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from psycopg import AsyncConnection

import qbull
from conftest import eventually
from database import Postgres
from qbull.core.options import Options
from qbull.observe.trace import Tracing
from qbull.postgres import relay
from qbull.postgres.relay import OutboxRow, Relay, ShipResult
from qbull.produce.chain import EnqueueChain
from qbull.produce.shipping import OutboxShipping, _options
from qbull.worker.actor import start_actor, stop_actors
from topology import COMMON, Node, wait_for

Note = qbull.Task[[str, int], None]


class NotesApp:
    """An app with an ordered queue, and a connection of its user's."""

    def __init__(self, app: qbull.App, database: str, connection: AsyncConnection) -> None:
        self.app, self.database, self.connection = app, database, connection
        self.queue = app.queue("notes", order="key", partitions=2)
        self.note: Note = self.queue.task(key="{key}")(note)

    async def write(self, key: str, *numbers: int, connection: AsyncConnection | None = None) -> None:
        """Rows in one transaction; on a connection of its own it stays open."""
        calls = [{"key": key, "number": number} for number in numbers]
        await self.note.options(transaction=connection or self.connection).enqueue_many(calls)
        if connection is None:
            await self.connection.commit()

    async def enqueued(self) -> dict[str, list[int]]:
        """What is in the queue, in the order in which it will run."""
        found: dict[str, list[int]] = {}
        async with self.app.worker() as worker:
            seen.clear()
            await worker.drain()
        for key, number in seen:
            found.setdefault(key, []).append(number)
        return found

    async def left(self) -> int:
        cursor = await self.connection.execute("SELECT count(*) FROM qbull_outbox")
        count = (await cursor.fetchone() or (0,))[0]
        await self.connection.rollback()
        return int(count)

    async def is_empty(self) -> bool:
        return await self.left() == 0


seen: list[tuple[str, int]] = []


async def note(key: str, number: int) -> None:
    seen.append((key, number))


@pytest.fixture(name="notes_app")
async def open_notes_app(app: qbull.App, database: str) -> AsyncIterator[NotesApp]:
    async with await AsyncConnection.connect(database) as connection:
        notes_app = NotesApp(app, database, connection)
        await app._client().router.register(notes_app.queue.settings, notes_app.queue.tasks)
        yield notes_app


@asynccontextmanager
async def relaying(notes_app: NotesApp, ship: relay.ShipRows | None = None) -> AsyncIterator[None]:
    running = start_actor(Relay(notes_app.database, "test", ship or OutboxShipping(notes_app.app)).run)
    try:
        yield
    finally:
        await stop_actors([running])


async def step(notes_app: NotesApp, ship: relay.ShipRows | None = None) -> tuple[int, int]:
    """One turn of a relay."""
    async with await AsyncConnection.connect(notes_app.database, autocommit=True) as connection:
        return await Relay(notes_app.database, "test", ship or OutboxShipping(notes_app.app)).step(connection)


async def test_a_row_that_commits_late_is_not_skipped(notes_app: NotesApp) -> None:
    async with await AsyncConnection.connect(notes_app.database) as late, relaying(notes_app):
        await notes_app.write("slow", 1, connection=late)
        await notes_app.write("quick", 1)
        await eventually(notes_app.is_empty)
        await late.commit()
        await eventually(lambda: enqueued_so_far(notes_app, 2))

    assert await notes_app.enqueued() == {"quick": [1], "slow": [1]}


async def test_later_rows_of_a_key_wait_for_those_in_the_hands_of_another_relay(notes_app: NotesApp) -> None:
    await notes_app.write("ana", 1, 2)
    await notes_app.write("bob", 1)
    await notes_app.write("ana", 3)
    async with await AsyncConnection.connect(notes_app.database) as other:
        await other.execute("SELECT * FROM qbull_outbox ORDER BY seq LIMIT 1 FOR UPDATE")
        claimed, sent = await step(notes_app)
        meanwhile = await notes_app.left()
        await other.rollback()

    assert (claimed, sent, meanwhile) == (3, 1, 3)
    assert await step(notes_app) == (3, 3)
    assert await notes_app.enqueued() == {"bob": [1], "ana": [1, 2, 3]}


async def test_rows_that_were_shipped_but_not_marked_are_shipped_again_and_add_nothing(
    notes_app: NotesApp,
) -> None:
    await notes_app.write("ana", 1, 2, 3)

    async def ship_and_die(rows: Sequence[OutboxRow]) -> ShipResult:
        await OutboxShipping(notes_app.app)(rows)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await step(notes_app, ship_and_die)
    kept = await notes_app.left()

    assert kept == 3
    assert await step(notes_app) == (3, 3)
    assert await notes_app.enqueued() == {"ana": [1, 2, 3]}
    assert (await notes_app.queue.stats()).totals["enqueued"] == 3


async def test_many_relays_at_a_time_keep_every_key_in_order(notes_app: NotesApp) -> None:
    keys, each = 20, 50
    async with relaying(notes_app), relaying(notes_app), relaying(notes_app):
        for number in range(each):
            for key in range(keys):
                await notes_app.note.options(transaction=notes_app.connection).enqueue(f"k{key}", number)
            await notes_app.connection.commit()
        await eventually(notes_app.is_empty)

    assert await notes_app.enqueued() == {f"k{key}": list(range(each)) for key in range(keys)}


async def test_rows_of_a_key_that_ask_for_different_durabilities_stay_in_order(notes_app: NotesApp) -> None:
    for number, durability in enumerate(("durable", "fast", "durable", "fast", "fast", "durable")):
        asked = notes_app.note.options(transaction=notes_app.connection, durability=durability)
        await asked.enqueue("ana", number)
    await notes_app.connection.commit()

    assert await step(notes_app) == (6, 6)
    assert await notes_app.enqueued() == {"ana": [0, 1, 2, 3, 4, 5]}


async def test_a_queue_that_nobody_knows_waits_and_holds_up_nobody(
    notes_app: NotesApp, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = qbull.App(notes_app.app.url, prefix="test").queue("unknown")
    strange = unknown.task(note)
    calls = [{"key": "x", "number": n} for n in range(relay.RELAY_BATCH_SIZE * 2)]
    await strange.options(transaction=notes_app.connection).enqueue_many(calls)
    await notes_app.write("ana", 1)

    with caplog.at_level(logging.ERROR, "qbull"):
        async with relaying(notes_app):
            await eventually(lambda: so_many_are_left(notes_app, len(calls)))
            said = [record.message for record in caplog.records]
            await unknown.app._client().router.register(unknown.settings, unknown.tasks)
            await eventually(notes_app.is_empty)
    await unknown.app._client().close()

    assert len(said) == 1 and 'queue "unknown" is not known to the server' in said[0]
    assert (await unknown.stats()).waiting == len(calls)
    await unknown.app._client().close()


async def test_a_row_that_can_never_be_shipped_is_left_with_its_reason(notes_app: NotesApp) -> None:
    await notes_app.write("ana", 1, 2)
    await notes_app.connection.execute(
        """UPDATE qbull_outbox SET options = '{"priority": 99}' WHERE seq = 1"""
    )
    await notes_app.connection.commit()

    async with relaying(notes_app):
        await eventually(lambda: so_many_are_left(notes_app, 1))
    cursor = await notes_app.connection.execute("SELECT seq, error_message FROM qbull_outbox")

    assert await cursor.fetchall() == [(1, "priority=99: give a whole number from 1 (first) to 10 (last)")]
    assert await notes_app.enqueued() == {"ana": [2]}


async def test_everything_that_was_said_travels(notes_app: NotesApp) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    said: list[dict[str, Any]] = [
        {"delay": 60, "priority": 1, "timeout": 2.5, "expires": 90},
        {"at": soon, "expires": soon + timedelta(seconds=1)},
        {"durability": "strict"},
        {"durability": "outbox"},
        {},
    ]
    for options in said:
        await notes_app.note.options(transaction=notes_app.connection, **options).enqueue("ana", 1)
    cursor = await notes_app.connection.execute("SELECT options::text FROM qbull_outbox ORDER BY seq")
    rows = [_options(row[0]) for row in await cursor.fetchall()]
    await notes_app.connection.rollback()

    assert rows == [Options(**options) for options in said]
    later = rows[0].after(50)
    assert (later.delay, later.expires, later.priority) == (10, 40, 1)


async def test_the_context_of_a_trace_travels(notes_app: NotesApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_app.app, "_chain", EnqueueChain(Tracing(), notes_app.app.middleware))
    parent = NonRecordingSpan(SpanContext(0xABC, 0xDEF, False, TraceFlags(1)))
    with use_span(parent):
        await notes_app.note.options(transaction=notes_app.connection).enqueue("ana", 1)
    cursor = await notes_app.connection.execute("SELECT options::text FROM qbull_outbox")
    [[row]] = await cursor.fetchall()
    await notes_app.connection.rollback()

    assert f"{0xABC:032x}" in (_options(row).trace or "")


async def test_another_apps_rows_are_left_alone(notes_app: NotesApp) -> None:
    await notes_app.write("ana", 1)
    await notes_app.connection.execute("UPDATE qbull_outbox SET app = 'other'")
    await notes_app.connection.commit()

    assert await step(notes_app) == (0, 0)
    assert await notes_app.left() == 1


async def test_a_frozen_relay_is_cut_off_and_its_rows_are_shipped_by_another(
    notes_app: NotesApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "IDLE_TRANSACTION_TIMEOUT", "200ms")
    held = asyncio.Event()

    async def freeze(rows: Sequence[OutboxRow]) -> ShipResult:
        held.set()
        await asyncio.sleep(3600)
        raise AssertionError

    await notes_app.write("ana", 1, 2)
    async with relaying(notes_app, freeze):
        await held.wait()
        async with relaying(notes_app):
            await eventually(notes_app.is_empty)

    assert await notes_app.enqueued() == {"ana": [1, 2]}


async def test_a_database_without_tables_is_said_once_and_looked_at_again(
    notes_app: NotesApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay, "UNMIGRATED_POLL_SECONDS", 0.01)
    await notes_app.connection.execute("ALTER TABLE qbull_outbox RENAME TO elsewhere")
    await notes_app.connection.commit()

    with caplog.at_level(logging.INFO, "qbull"):
        async with relaying(notes_app):
            await eventually(lambda: says(caplog, "has no table qbull_outbox"))
            await notes_app.connection.execute("ALTER TABLE elsewhere RENAME TO qbull_outbox")
            await notes_app.write("ana", 1)
            await eventually(notes_app.is_empty)

    assert sum("has no table qbull_outbox" in record.message for record in caplog.records) == 1
    assert await notes_app.enqueued() == {"ana": [1]}


async def test_rows_wait_while_redis_is_away(
    notes_app: NotesApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path / "node", COMMON + "appendonly yes\n")
    node.start()
    wait_for(node.answers)
    other = qbull.App(f"redis://:{node.password}@{node.place}/0", prefix="test")
    there = NotesApp(other, notes_app.database, notes_app.connection)

    async with relaying(there):
        await there.write("ana", 1)
        await eventually(there.is_empty)
        node.kill()
        await there.write("ana", 2)
        await there.write("ana", 3)
        await eventually(lambda: says(caplog, "work goes on when it is back"))
        waiting = await there.left()
        node.start()
        await eventually(there.is_empty)
    found = await there.enqueued()
    await other.close()
    node.kill()

    assert waiting == 2
    assert found == {"ana": [1, 2, 3]}
    assert sum("is back after" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restarted_database_is_found_again(
    notes_app: NotesApp, postgres: Postgres, how: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    async with relaying(notes_app):
        await notes_app.write("ana", 1)
        await eventually(notes_app.is_empty)
        postgres.stop(how)
        await eventually(lambda: says(caplog, "work goes on when it is back"))
        postgres.start()
        async with await AsyncConnection.connect(notes_app.database) as notes_app.connection:
            await notes_app.write("ana", 2)
            await eventually(notes_app.is_empty)

    assert await notes_app.enqueued() == {"ana": [1, 2]}
    assert sum("PostgreSQL is back after" in record.message for record in caplog.records) == 1


async def test_a_frozen_database_does_not_hold_the_relay(
    notes_app: NotesApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay, "RELAY_STEP_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(relay, "RELAY_POLL_SECONDS", 0.1)

    async with relaying(notes_app):
        await notes_app.write("ana", 1)
        await eventually(notes_app.is_empty)
        backends = await eventually(lambda: relay_backends(notes_app))
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: says(caplog, "work goes on when it is back"))
        await notes_app.write("ana", 2)
        await eventually(notes_app.is_empty)
        for pid in backends:
            os.kill(pid, signal.SIGCONT)

    assert await notes_app.enqueued() == {"ana": [1, 2]}


async def test_commit_to_start_takes_milliseconds_when_idle(notes_app: NotesApp) -> None:
    """No timed test: it must only not wait for the next look, which is a second away."""
    relay_looks = relay.RELAY_POLL_SECONDS
    async with notes_app.app.worker(), relaying(notes_app):
        await notes_app.write("warm", 0)
        await eventually(notes_app.is_empty)
        seen.clear()
        began = time.monotonic()
        for number in range(10):
            await notes_app.write("ana", number)
            await eventually(lambda number=number: ran(number))
        took = time.monotonic() - began

    assert took < 10 * relay_looks / 2


async def ran(number: int) -> bool:
    return ("ana", number) in seen


async def enqueued_so_far(notes_app: NotesApp, count: int) -> bool:
    return (await notes_app.queue.stats()).totals.get("enqueued", 0) >= count


async def so_many_are_left(notes_app: NotesApp, count: int) -> bool:
    return await notes_app.left() == count


async def says(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in record.message for record in caplog.records)


async def relay_backends(notes_app: NotesApp) -> list[int]:
    """The processes of the database that serve the relay."""
    cursor = await notes_app.connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'qbull relay' AND datname = current_database()"
    )
    found = [row[0] for row in await cursor.fetchall()]
    await notes_app.connection.rollback()
    return found
