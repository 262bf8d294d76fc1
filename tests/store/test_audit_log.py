"""The chain of the audit log: a removed, changed or inserted entry shows, and writers do not wait for each other."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import qbull.store
from qbull.store.store import Store
from qbull.store.verbs import audit_log
from qbull.store.verbs.audit_log import AuditLogEntry

ENTRIES = [AuditLogEntry("ada", "admin", "token", "pause queue", f"q{n}") for n in range(6)]
OTHER = AuditLogEntry("bob", "admin", "token", "resume queue")
SHA256 = (Path(qbull.store.__path__[0]) / "lua/lib/sha256.lua").read_text()


async def test_the_server_hashes_as_everybody_does(store: Store) -> None:
    texts = [bytes(range(length)) for length in (*range(70), 119, 120, 128, 183, 184, 255)]

    for text in texts:
        found = await store.server.call("EVAL", f"{SHA256}\nreturn sha256(ARGV[1])", 0, text)
        assert found.decode() == hashlib.sha256(text).hexdigest(), len(text)


async def write_six(store: Store) -> list[bytes]:
    """Six entries; returns their ids, the oldest first."""
    await audit_log.write(store, ENTRIES[:2])
    for entry in ENTRIES[2:]:
        await audit_log.write(store, [entry])
    return [id for id, _ in await store.server.call("XRANGE", store.names.trail, "-", "+")]


async def test_a_log_that_nobody_touched_is_complete(store: Store) -> None:
    await write_six(store)

    report = await audit_log.verify(store, "trail")

    assert (report.entries, report.unchained, report.faults) == (6, 0, ())


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ([0], "entry 1 is missing before entry 2"),
        ([2], "entry 3 is missing before entry 4"),
        ([2, 3], "entries 3 to 4 are missing before entry 5"),
        ([5], "the log ends with entry 5, but entry 6 was written last"),
        ([0, 1, 2, 3, 4, 5], "the log ends with entry 0, but entry 6 was written last"),
    ],
)
async def test_a_removed_entry_shows(store: Store, removed: list[int], said: str) -> None:
    ids = await write_six(store)

    await store.server.call("XDEL", store.names.trail, *(ids[n] for n in removed))

    report = await audit_log.verify(store, "trail")
    assert len(report.faults) == 1 and report.faults[0].startswith(said)


async def test_a_changed_and_an_inserted_entry_show(store: Store) -> None:
    ids = await write_six(store)
    rows = await store.server.call("XRANGE", store.names.trail, "-", "+")
    await store.server.call("UNLINK", store.names.trail)
    for n, (id, fields) in enumerate(rows):
        if n == 3:
            fields[1] = msgspec.json.encode(ENTRIES[0])
        await store.server.call("XADD", store.names.trail, id, *fields)
    await store.server.call("XADD", store.names.trail, "*", "e", msgspec.json.encode(ENTRIES[0]))
    await store.server.call("EXPIRE", store.names.trail, 3600)

    report = await audit_log.verify(store, "trail")

    assert len(report.faults) == 2, report.faults
    assert report.faults[0] == f"entry 4 ({ids[3].decode()}) was changed"
    assert "is not part of the chain" in report.faults[1]


@pytest.mark.parametrize("number", ["9" * 5000, "²", "x"])
async def test_a_planted_number_shows_and_stops_no_check(store: Store, number: str) -> None:
    await write_six(store)
    fields = ("e", msgspec.json.encode(OTHER), "n", number, "p", "\xff", "h", "0" * 64)

    await store.server.call("XADD", store.names.trail, "*", *fields)

    assert [record.entry.who for record in await audit_log.read(store, 3)] == ["bob", "ada", "ada"]
    report = await audit_log.verify(store, "trail")
    assert any("was changed" in fault for fault in report.faults), report.faults


@pytest.mark.parametrize("number", ["9" * 5000, "²", "x"])
async def test_a_planted_head_shows_and_stops_no_check(store: Store, number: str) -> None:
    await write_six(store)

    await store.server.call("HSET", f"{store.names.trail}:chain", "number", number, "oldest", number)

    assert (await audit_log.verify(store, "trail")).faults


async def test_entries_that_are_too_many_or_written_by_an_earlier_version_are_no_fault(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.server.call("XADD", store.names.trail, "*", "e", msgspec.json.encode(ENTRIES[0]))
    await audit_log.write(store, ENTRIES)
    earlier = await audit_log.verify(store, "trail")
    monkeypatch.setitem(audit_log.MAX_AUDIT_ENTRIES, "trail", 4)
    await audit_log.write(store, ENTRIES[:1])
    trimmed = await audit_log.verify(store, "trail")

    assert (earlier.entries, earlier.unchained, earlier.faults) == (6, 1, ())
    assert (trimmed.entries, trimmed.faults) == (4, ())


async def test_a_removed_entry_still_shows_after_the_next_one(store: Store) -> None:
    ids = await write_six(store)

    await store.server.call("XDEL", store.names.trail, ids[0])
    await audit_log.write(store, [OTHER])

    [fault] = (await audit_log.verify(store, "trail")).faults
    assert fault.startswith("entry 1 is missing before entry 2")


async def test_a_check_while_others_write_finds_no_fault(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(audit_log.MAX_AUDIT_ENTRIES, "trail", 20)
    await audit_log.write(store, ENTRIES)

    async def write_many() -> None:
        for n in range(60):
            await audit_log.write(store, [ENTRIES[n % 6]])

    writing = asyncio.create_task(write_many())
    faults = []
    while not writing.done():
        faults += (await audit_log.verify(store, "trail")).faults
    await writing

    assert faults == []


async def test_a_writer_sends_one_call_however_many_others_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, sent = store.server.script, []

    async def counted(*call: Any) -> Any:
        sent.append(call[0])
        return await script(*call)

    monkeypatch.setattr(store.server, "script", counted)
    await asyncio.gather(*(audit_log.write(store, [ENTRIES[n % 6]]) for n in range(40)))

    report = await audit_log.verify(store, "trail")
    assert (sent.count("audit_log"), report.entries, report.faults) == (40, 40, ())


async def test_an_entry_whose_reply_is_lost_is_there_once_even_if_others_write_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, losing = store.server.script, [True]

    async def lose_one(*call: Any) -> Any:
        reply = await script(*call)
        if losing:
            losing.clear()
            await audit_log.write(store, [OTHER])
            raise qbull.ServerAway("the reply is lost")
        return reply

    monkeypatch.setattr(store.server, "script", lose_one)
    await audit_log.write(store, ENTRIES[:2])

    written = [record.entry for record in await audit_log.read(store, 100)]
    assert written == [OTHER, ENTRIES[1], ENTRIES[0]] and not losing
