"""Users and their verification tokens, in SQLite. Writing the same twice changes nothing."""

import secrets
import sqlite3
import time
import uuid
from contextlib import closing
from typing import Any

DATABASE = "ceres.db"
TOKEN_FOR = 86_400
"""Seconds for which a verification token is good."""

TABLES = """
CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY, municipality TEXT, email TEXT, first_name TEXT, verified INTEGER DEFAULT 0, cv TEXT, picture TEXT
);
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, user_id TEXT, expires_at REAL);
"""


def add_user(municipality: str, email: str, first_name: str) -> tuple[str, str]:
    """The new user's id and token."""
    user_id, token = str(uuid.uuid4()), secrets.token_urlsafe(16)
    with closing(connect()) as connection, connection:
        connection.execute(
            "INSERT INTO users (id, municipality, email, first_name) VALUES (?, ?, ?, ?)",
            (user_id, municipality, email, first_name),
        )
        connection.execute("INSERT INTO tokens VALUES (?, ?, ?)", (token, user_id, time.time() + TOKEN_FOR))
    return user_id, token


def token_is_open(token: str) -> bool:
    return bool(rows("SELECT 1 FROM tokens WHERE token = ? AND expires_at > ?", token, time.time()))


def use_token(token: str) -> dict[str, Any] | None:
    """The user whose token it is, verified from now on."""
    with closing(connect()) as connection, connection:
        used = connection.execute(
            "DELETE FROM tokens WHERE token = ? AND expires_at > ? RETURNING user_id", (token, time.time())
        ).fetchone()
        if used is None:
            return None
        connection.execute("UPDATE users SET verified = 1 WHERE id = ?", (used["user_id"],))
    return user(used["user_id"])


def remove_old_tokens() -> int:
    with closing(connect()) as connection, connection:
        return connection.execute("DELETE FROM tokens WHERE expires_at <= ?", (time.time(),)).rowcount


def user(user_id: str) -> dict[str, Any] | None:
    found = rows("SELECT * FROM users WHERE id = ?", user_id)
    return found[0] if found else None


def verified_users(municipality: str) -> list[dict[str, Any]]:
    return rows("SELECT * FROM users WHERE municipality = ? AND verified ORDER BY id", municipality)


def users_by_municipality() -> list[tuple[str, int]]:
    found = rows("SELECT municipality, count(*) AS users FROM users GROUP BY 1 ORDER BY 1")
    return [(row["municipality"], row["users"]) for row in found]


def set_field(user_id: str, field: str, value: str) -> None:
    assert field in ("cv", "picture")
    with closing(connect()) as connection, connection:
        connection.execute(f"UPDATE users SET {field} = ? WHERE id = ?", (value, user_id))


def rows(query: str, *arguments: object) -> list[dict[str, Any]]:
    with closing(connect()) as connection:
        return [dict(row) for row in connection.execute(query, arguments)]


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE, timeout=20)
    connection.row_factory = sqlite3.Row
    connection.executescript(TABLES)
    return connection
