"""Broker: the addresses in Celery's settings, as addresses of qbull."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from qbull.compat.celery.instead import CELERY_CONF_HINTS, CELERY_GUIDE
from qbull.compat.refusal import refuse
from qbull.errors import ConfigError

SERVER_SCHEMES = (
    "redis",
    "rediss",
    "redis+socket",
    "redis+sentinel",
    "redis+cluster",
    "unix",
    "valkey",
    "valkeys",
)


def broker_in_environment() -> str | None:
    """Return CELERY_BROKER_URL, which Celery prefers to the settings; None if QBULL_URL names the server."""
    return None if os.environ.get("QBULL_URL") else os.environ.get("CELERY_BROKER_URL") or None


def address_of(broker: str) -> str:
    """Convert the URL of a Celery broker to an address of qbull."""
    if not isinstance(broker, str) or ";" in broker:
        raise ConfigError(
            "conf.broker_url: several brokers are not supported; give one address, "
            "or name all nodes in it: redis+sentinel://… or redis+cluster://…"
        )
    if broker.startswith("redis+socket://"):
        return "unix://" + broker.removeprefix("redis+socket://").replace("virtual_host=", "db=")
    scheme = broker.partition("://")[0]
    if scheme == "sentinel":
        raise ConfigError('broker "sentinel://…": write redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB')
    if scheme in ("amqp", "amqps", "pyamqp", "sqs", "memory", "filesystem", "mongodb", "kafka"):
        raise ConfigError(
            f'broker "{scheme}://…": qbull stores jobs on Redis or Valkey; use redis://HOST:PORT/DB'
        )
    return broker


def check_backend(backend: str) -> None:
    """Raise if results are wanted in another kind of storage than Redis or Valkey."""
    if backend.partition("://")[0] not in SERVER_SCHEMES:
        refuse("conf", {"result_backend": backend}, CELERY_CONF_HINTS, ConfigError, CELERY_GUIDE)


def server_in(address: str) -> str:
    """Return the server that an address names, without its database, credentials and options."""
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return parts.path
    nodes = parts.netloc.rpartition("@")[2].replace("localhost", "127.0.0.1").split(",")
    return ",".join(node if ":" in node else f"{node}:6379" for node in nodes)
