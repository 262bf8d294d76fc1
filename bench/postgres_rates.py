"""Rates of the rows that need PostgreSQL: tracking, outbox, inbox, and Procrastinate on the same server.

Each measurement has a new database. Procrastinate runs in an environment of its own, as the peers do.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

import qbull.postgres
from bench import feature_rates
from bench.contestant import Call
from bench.features import CHUNK, Feature
from bench.peers import PATIENCE, environment, version_of
from bench.postgres_server import PostgresServer
from bench.server import Server

ADAPTER = Path(__file__).parent / "durable_peers" / "procrastinate.py"
PACKAGES = ("procrastinate", "psycopg[binary]")


class PeerProblem(RuntimeError):
    """Procrastinate did not do what it was asked to."""


def outbox_enqueue(
    postgres: PostgresServer, server: Server, name: str, feature: Feature, calls: Sequence[Call]
) -> float:
    with database(postgres) as url:
        return len(calls) / asyncio.run(_commit(url, server, feature, calls))


def outbox(
    postgres: PostgresServer, server: Server, name: str, feature: Feature, calls: Sequence[Call]
) -> float:
    """From the first job that has run to the last one: a worker relays and runs."""
    with database(postgres) as url:
        asyncio.run(_commit(url, server, feature, calls))
        with feature_rates.worker_process(server, name, url):
            return feature_rates.drained(
                lambda: len(calls) - feature_rates.completed(server.redis), len(calls)
            )


def inbox(
    postgres: PostgresServer, server: Server, name: str, feature: Feature, calls: Sequence[Call]
) -> float:
    with database(postgres) as url:
        rate = feature_rates.drain(server, name, feature, calls, url)
        _check_effects(url, len(calls))
        return rate


def track(
    postgres: PostgresServer, server: Server, name: str, feature: Feature, calls: Sequence[Call]
) -> float:
    """Until the last job has its row, which says that it is completed."""
    with database(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        asyncio.run(feature_rates.fill(server, feature, calls, url))

        def left() -> int:
            if running := feature_rates.left(server.redis):
                return running
            return len(calls) - _count(connection, "qbull_jobs WHERE status = 'completed'")

        with feature_rates.worker_process(server, name, url):
            return feature_rates.drained(left, len(calls))


MEASURES: dict[str, Callable[[PostgresServer, Server, str, Feature, Sequence[Call]], float]] = {
    "outbox_enqueue": outbox_enqueue,
    "outbox": outbox,
    "inbox": inbox,
    "track": track,
}


def procrastinate(postgres: PostgresServer, name: str, calls: Sequence[Call]) -> float:
    """Jobs a second that it defers in bulk, runs, or runs with an effect in PostgreSQL."""
    python = environment("procrastinate", PACKAGES)
    task = "has_effect" if name == "procrastinate_effect" else "noop"
    with database(postgres) as url:
        command = [python, "-W", "ignore", ADAPTER]
        variables = {**os.environ, "BENCH_DATABASE": url}
        enqueue = [*command, "enqueue", str(len(calls)), task]
        done = subprocess.run(
            enqueue, env=variables, check=True, capture_output=True, text=True, timeout=PATIENCE
        )
        if name == "procrastinate_enqueue":
            return float(done.stdout.split()[-1])
        worker = subprocess.Popen(
            [*command, "work"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            rate = _procrastinate_drained(url, worker, len(calls))
        finally:
            worker.kill()
            worker.wait()
        if task == "has_effect":
            _check_effects(url, len(calls))
        return rate


def procrastinate_version() -> str:
    return version_of(environment("procrastinate", PACKAGES), "procrastinate")


@contextmanager
def database(postgres: PostgresServer) -> Iterator[str]:
    """The address of a new database with the tables of qbull and one for effects."""
    name = postgres.make_database()
    url = postgres.url(name)
    try:
        qbull.postgres.migrate(url)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE effects (n integer)")
        yield url
    finally:
        postgres.drop_database(name)


async def _commit(url: str, server: Server, feature: Feature, calls: Sequence[Call]) -> float:
    """Seconds for rows of all jobs, in transactions of 1,000."""
    app, task = feature.declare(server.url, url)
    async with app, await psycopg.AsyncConnection.connect(url) as connection:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for start in range(0, len(calls), CHUNK):
            async with connection.transaction():
                await task.options(transaction=connection).enqueue_many(calls[start : start + CHUNK])
        await connection.commit()
        return loop.time() - began


def _procrastinate_drained(url: str, worker: subprocess.Popen[bytes], jobs: int) -> float:
    with psycopg.connect(url, autocommit=True) as connection:

        def left() -> int:
            if worker.poll() is not None:
                raise PeerProblem(f"Procrastinate's worker ended with {worker.returncode}")
            return _count(connection, "procrastinate_jobs WHERE status IN ('todo', 'doing')")

        rate = feature_rates.drained(left, jobs)
        if failed := jobs - _count(connection, "procrastinate_jobs WHERE status = 'succeeded'"):
            raise PeerProblem(f"{failed} jobs of Procrastinate failed")
        return rate


def _check_effects(url: str, jobs: int) -> None:
    with psycopg.connect(url) as connection:
        if (effects := _count(connection, "effects")) != jobs:
            raise RuntimeError(f"{jobs} jobs had {effects} effects")


def _count(connection: psycopg.Connection, rows: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {rows}").fetchone()
    assert row is not None
    return int(row[0])
