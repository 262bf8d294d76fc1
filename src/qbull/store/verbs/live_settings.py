"""Live settings: what an operator has changed of a queue at run time. They win over the code until they are reset.

They lie under the queue's own tag, with who said so and when. Every change is told to all workers at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from qbull.config import QueueSettings
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
}
"""What can be changed, and its type."""
PAUSED_SETTING = "paused"
MAX_SETTING_CHANGES = 100
"""Changes of a queue that are kept."""


@dataclass(frozen=True, slots=True)
class LiveSetting:
    """A live setting: what it is, who said so, and when."""

    value: Any
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LiveSettingChange:
    """One line of the history. None is what the code says."""

    at: datetime
    by: str
    setting: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What is in force for a queue."""

    settings: QueueSettings
    """As declared, with what was changed."""
    paused: bool = False
    held: float = 0.0
    """Seconds for which nothing begins, because a task asked for it."""
    held_because: str = ""
    changed: Mapping[str, LiveSetting] = field(default_factory=dict)

    @property
    def still(self) -> bool:
        """Nothing may begin now."""
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
    except ConfigError:  # what was changed no longer fits what is declared now
        settings = declared
    return LiveSettings(
        settings, PAUSED_SETTING in changed, held_ms / 1000, because.decode("utf-8", "replace"), changed
    )


@idempotent
async def is_paused(store: Store, queue: str) -> bool:
    return bool(await store.server.call("HEXISTS", store.names.queue(queue) + "live", PAUSED_SETTING))


@idempotent
async def change(store: Store, queue: str, values: Mapping[str, Any], by: str) -> int:
    """Set these, or RESET them, and tell everybody. Gives how many that has changed."""
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
"""In place of a value: back to what the code says."""


@idempotent
async def hold_queue(store: Store, queue: str, seconds: float, why: str) -> None:
    """Let nothing of the queue begin for so long, and tell everybody. A longer hold that is there stays."""
    await store.server.script("queue_hold", store.names.queue(queue), math.ceil(seconds * 1000), why)


@idempotent
async def history(store: Store, queue: str) -> list[LiveSettingChange]:
    """The newest first."""
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
