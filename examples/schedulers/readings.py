"""Readings: asked of a provider over HTTP, saved in SQLite. Saving what is there already changes nothing."""

import json
import os
import sqlite3
import urllib.parse
import urllib.request
from contextlib import closing
from datetime import datetime
from typing import Any

PROVIDERS = os.environ.get("PROVIDERS_URL", "http://127.0.0.1:3010")
DATABASE = "readings.db"
MAX_ANSWER_BYTES = 10_000_000
TABLES = """
CREATE TABLE IF NOT EXISTS readings (provider TEXT, at TEXT, value REAL, PRIMARY KEY (provider, at));
CREATE TABLE IF NOT EXISTS runs (provider TEXT, planned_at TEXT, new INTEGER, at TEXT DEFAULT CURRENT_TIMESTAMP);
"""


def last(provider: str) -> str:
    """When the newest reading was taken that we have; at first, ages ago."""
    with closing(connect()) as connection:
        query = "SELECT coalesce(max(at), '1970-01-01T00:00:00Z') FROM readings WHERE provider = ?"
        return str(connection.execute(query, (provider,)).fetchone()[0])


def fetch(provider: str, since: str) -> list[dict[str, Any]]:
    url = f"{PROVIDERS}/{provider}?{urllib.parse.urlencode({'since': since})}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        body = answer.read(MAX_ANSWER_BYTES + 1)
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"{provider}: an answer of more than {MAX_ANSWER_BYTES:,} bytes")
    return list(json.loads(body))


def save(provider: str, found: list[dict[str, Any]], planned_at: datetime | None) -> int:
    """How many of them were new."""
    with closing(connect()) as connection, connection:
        before = connection.total_changes
        connection.executemany(
            "INSERT OR IGNORE INTO readings VALUES (?, ?, ?)",
            [(provider, reading["at"], reading["value"]) for reading in found],
        )
        new = connection.total_changes - before
        planned = planned_at and planned_at.isoformat()
        connection.execute(
            "INSERT INTO runs (provider, planned_at, new) VALUES (?, ?, ?)", (provider, planned, new)
        )
        return new


def forget_runs(older_than_days: int) -> int:
    with closing(connect()) as connection, connection:
        return connection.execute(
            "DELETE FROM runs WHERE at < datetime('now', ?)", (f"-{older_than_days} days",)
        ).rowcount


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE, timeout=20)
    connection.executescript(TABLES)
    return connection
