"""Live settings: changes that an operator makes to a queue at run time. They override the code until reset.

They are stored with the queue, together with author and time. All workers are notified of a change at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from qbull.config import Keep, QueueSettings
from qbull.core.rate import Rate
from qbull.core.record import to_datetime
from qbull.core.retry import Retry
from qbull.errors import ConfigError
from qbull.store.retry import idempotent
from qbull.store.store import Store

LIVE_SETTING_TYPES: dict[str, Any] = {
    "concurrency": int,
    "max_active": int | None,
    "rate": Rate | None,
    "retry": Retry,
    "timeout": float | None,
    "keep": Keep,
}
"""The settings that can be changed, and their types."""
PAUSED_SETTING = "paused"
MAX_SETTING_CHANGES = 100
"""Length of the history of a queue."""


class LiveSetting(msgspec.Struct, frozen=True):
    """A live setting: value, author and time."""

    value: Any
    by: str
    at: datetime


class LiveSettingChange(msgspec.Struct, frozen=True):
    """One entry of the history. None stands for the value in the code."""

    at: datetime
    by: str
    setting: str
    before: Any
    after: Any


class LiveSettings(msgspec.Struct, frozen=True):
    """The settings in force for a queue."""

    settings: QueueSettings
    """The declared settings with the changes applied."""
    paused: bool = False
    held: float = 0.0
    """Seconds for which no job starts, because a task asked for a pause."""
    held_because: str = ""
    changed: Mapping[str, LiveSetting] = msgspec.field(default_factory=dict)

    @property
    def still(self) -> bool:
        """Whether no job may start now."""
        return self.paused or self.held > 0


@idempotent
async def read(store: Store, declared: QueueSettings) -> LiveSettings:
    flat, held_ms, because = await store.server.script("live_settings", store.names.queue(declared.name))
    changed: dict[str, LiveSetting] = {}
    for name, packed in zip(flat[::2], flat[1::2], strict=True):
        setting = name.decode()
        at, by, value = packed.decode("utf-8", "replace").split("\n", 2)
        known, decoded = _decode(setting, value)
        if known:
            changed[setting] = LiveSetting(decoded, by, to_datetime(int(at)))
    values = {name: change.value for name, change in changed.items() if name in LIVE_SETTING_TYPES}
    try:
        settings = replace(declared, **values)
    except ConfigError:  # the changes no longer fit the declared settings
        settings = declared
    return LiveSettings(
        settings, PAUSED_SETTING in changed, held_ms / 1000, because.decode("utf-8", "replace"), changed
    )


@idempotent
async def is_paused(store: Store, queue: str) -> bool:
    return bool(await store.server.call("HEXISTS", store.names.queue(queue) + "live", PAUSED_SETTING))


@idempotent
async def change(store: Store, queue: str, values: Mapping[str, Any], by: str) -> int:
    """Change or reset settings and notify all workers; returns how many have changed."""
    flat = [
        argument
        for setting, value in values.items()
        for argument in (setting, b"" if value is RESET_SETTING else msgspec.json.encode(value))
    ]
    count: int = await store.server.script(
        "configure", store.names.queue(queue), by, MAX_SETTING_CHANGES, *flat
    )
    return count


RESET_SETTING = object()
"""Instead of a value: reset to the value in the code."""


@idempotent
async def hold_queue(store: Store, queue: str, seconds: float, why: str) -> None:
    """Start no job of the queue for some seconds, and notify all workers. A longer hold stays in force."""
    await store.server.script("queue_hold", store.names.queue(queue), math.ceil(seconds * 1000), why)


@idempotent
async def history(store: Store, queue: str) -> list[LiveSettingChange]:
    """The changes, the newest first."""
    lines = await store.server.call(
        "LRANGE", store.names.queue(queue) + "changes", 0, MAX_SETTING_CHANGES - 1
    )
    found = []
    for line in lines:
        at, by, setting, before, after = line.decode("utf-8", "replace").split("\n", 4)
        found.append(
            LiveSettingChange(
                to_datetime(int(at)), by, setting, _decode(setting, before)[1], _decode(setting, after)[1]
            )
        )
    return found


def _decode(setting: str, value: str) -> tuple[bool, Any]:
    """Whether this version knows the setting, and its value; one of another version is left as text."""
    if not value:
        return False, None
    try:
        kind = bool if setting == PAUSED_SETTING else LIVE_SETTING_TYPES[setting]
        return True, msgspec.json.decode(value, type=kind)
    except (KeyError, msgspec.MsgspecError, ConfigError):
        return False, value
