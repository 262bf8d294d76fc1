"""What every test gets: a real server, an app of its own on it, and a check afterwards that nothing is out of place."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import qbull
from database import Postgres
from needed_tools import check_tools
from patience import pause_after
from qbull.embedded.server import EmbeddedServer
from qbull.store.read.integrity import check_integrity, check_schedules_integrity
from qbull.store.store import Store

settings.register_profile(
    "patient", deadline=None
)  # how long an example takes says something of the machine only
settings.load_profile("patient")

# Tests start hundreds of processes. Each one imports compiled code, and no library that only the tests need.
LEAN = str(Path(__file__).parent / "lean")
if sys.modules.get("opentelemetry.sdk", LEAN) is None:
    # A process of the test run itself, which another one has started.
    del sys.modules["opentelemetry.sdk"]
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if LEAN not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [LEAN, os.environ.get("PYTHONPATH")]))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background lets them ignore Ctrl-C, and what they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


FIRST = (
    "chaos",
    "ui",
    "bench",
    "everyday",
    "worker",
    "cli",
    "deploy",
    "examples",
    "drain",
    "docs",
    "postgres",
    "api",
    "store",
    "house",
    "tests",
    "guide",
)
"""The directories with long tests, the longest first: all workers but one would wait for a long test that starts last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run groups first, because each occupies one worker from its first test to its last, then the long tests."""
    items.sort(key=lambda item: (item.get_closest_marker("xdist_group") is None, _turn(item)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    check_tools(item)


def _turn(item: pytest.Item) -> int:
    room = item.path.parent.name
    return FIRST.index(room) if room in FIRST else len(FIRST)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """One real Valkey for the whole run of one test process."""
    embedded = EmbeddedServer.open(tmp_path_factory.mktemp("valkey"))
    yield embedded
    embedded.close()


@pytest.fixture(scope="session")
def server_url(server: EmbeddedServer) -> str:
    return f"unix://:{server.password}@{server.socket}?db=0"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One real PostgreSQL for the whole run of one test process, with a database that the others are copies of."""
    server = Postgres().start()
    server.template = server.make_database()
    qbull.postgres.migrate(server.url(server.template))
    yield server
    server.remove()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """A new database with qbull's tables."""
    name = postgres.make_database(postgres.template or "template1")
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A developer's own settings must not decide what a test does."""
    for name in (
        "QBULL_URL",
        "REDIS_URL",
        "QBULL_PREFIX",
        "REDIS_PREFIX",
        "TOTAL_PARTITIONS",
        "PARTITIONS",
        "MIN_IDLE_TIME_MS",
        "QBULL_SHARING",
        "PARTITIONS_PER_POD",
        "INSTANCE_ID",
        "INSTANCE_COUNT",
        "QBULL_DATABASE_URL",
        "DATABASE_URL",
        "QUEUES_UI_PASS",
        "ADMIN_PASSWORD",
        "QBULL_ADMIN_TOKEN",
        "QBULL_OPERATOR_TOKEN",
        "QBULL_VIEWER_TOKEN",
        "QBULL_ALLOWED_HOSTS",
        "QBULL_HIDE_PAYLOADS",
        "QBULL_REDACT",
        "QBULL_PUBLIC_METRICS",
        "QBULL_ENVIRONMENT",
        "QBULL_DURABILITY",
        "SLACK_WEBHOOK_URL",
        "QBULL_ALERT_URLS",
        "QBULL_ALERT_SECRET",
        "QBULL_ALERT_ALLOW",
        "QBULL_PUBLIC_URL",
        "QBULL_PARTITIONS",
        "QBULL_MIN_IDLE_TIME_MS",
        "QBULL_PARTITIONS_PER_POD",
        "QBULL_INSTANCE_ID",
        "QBULL_INSTANCE_COUNT",
        "QBULL_PASSWORD",
        "QBULL_SLACK_WEBHOOK_URL",
        "QBULL_TIMEZONE",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def store(server_url: str) -> AsyncIterator[Store]:
    """The store of a server that is empty; afterwards every job must be in exactly one place."""
    store = Store(server_url, "test")
    await store.open()
    await store.server.call("FLUSHALL")
    yield store
    faults = await every_fault(store)
    stray = await strays(store)
    await store.close()
    assert faults == []
    assert stray == []


@pytest.fixture
async def app(server_url: str, store: Store) -> AsyncIterator[qbull.App]:
    """An app on an empty server; afterwards nothing is left running and nothing is out of place."""
    app = qbull.App(server_url, prefix="test")
    yield app
    await app.close()
    await asyncio.to_thread(app.close_sync)
    left = [
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task() and "fixture" not in repr(task)
    ]
    assert left == [], "tasks were left running"


async def every_fault(store: Store) -> list[str]:
    return [
        fault
        for queue in await store.queues()
        for partition in await store.partitions(await store.settings(queue))
        for fault in await check_integrity(partition)
    ] + await check_schedules_integrity(store)


async def strays(store: Store) -> list[str]:
    """Names that should have gone with what they were for."""
    known = (
        "index",
        "trains",
        "delayed",
        "lanes",
        "completed",
        "failed",
        "cancelled",
        "bands",
        "stats",
        "ready:",
        "settings",
        "live",
        "expiring",
        "changes",
        "queues",
        "limits",
        "limited",
        "moving",
        "totals",
        "ranked",
        "workers",
        "roster",
        "kept",
        "lease",
        "extras",
        "followed",
        "schedules",
        "cancelling",
        "tokens",
        "reports",
        "figures",
        "arrivals",
        "ahead",
        "held",
        "leaving",
        "outgoing",
        "losses",
        "alerts",
        "parked",
    )
    stray = []
    cursor = b"0"
    while True:
        cursor, names = await store.server.call("SCAN", cursor, "COUNT", 500)
        for name in names:
            text = name.decode("utf-8", "replace")
            short = text.rpartition("}:")[2]
            if short.startswith(known) and not short.startswith("stats:"):
                continue
            if short.startswith(("lane:", "schedule:")):
                continue  # the audit looks at these
            if short.startswith(("job:", "log:")):
                base, _, id = text.partition(f"}}:{short[:4]}")
                if await store.server.call("SISMEMBER", base + "}:extras", id):
                    continue
            if await store.server.call("PTTL", name) == -1:
                stray.append(text)
        if cursor == b"0":
            return stray


async def eventually(look: Callable[[], Awaitable[Any]], within: float = 20.0) -> Any:
    """Wait until `look` gives something true, and give it back."""
    began = time.monotonic()
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() > began + within:
            raise AssertionError(f"did not happen within {within} s; last seen: {found!r}")
        await asyncio.sleep(pause_after(time.monotonic() - began))
