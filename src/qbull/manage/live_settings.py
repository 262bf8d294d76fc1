"""Controls: what steers a queue while it runs: pause, resume, live settings."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from qbull.config import QueueSettings
from qbull.core.rate import Rate
from qbull.core.retry import Retry
from qbull.errors import ConfigError
from qbull.produce.client import Client
from qbull.store.verbs import live_settings
from qbull.store.verbs.live_settings import (
    LIVE_SETTING_TYPES,
    PAUSED_SETTING,
    RESET_SETTING,
    LiveSettingChange,
    LiveSettings,
)
from qbull.worker.process.crash_board import board_slots_for


class _Unset:
    def __repr__(self) -> str:
        return "as it is"


UNCHANGED: Any = _Unset()


class ControlsApp(Protocol):
    """What these need of an app."""

    def client(self) -> Client: ...


class QueueControls:
    """A queue's part that operators use."""

    app: ControlsApp
    settings: QueueSettings

    async def pause(self, *, by: str | None = None) -> None:
        """Let nothing more begin, until `resume`. Running jobs end normally; what waits, waits."""
        await self._change({PAUSED_SETTING: True}, by)

    async def resume(self, *, by: str | None = None) -> None:
        """Go on after `pause`, and where a task has asked for a rest of the whole queue."""
        await self._change({PAUSED_SETTING: RESET_SETTING}, by)

    async def configure(
        self,
        *,
        concurrency: int = UNCHANGED,
        max_active: int | None = UNCHANGED,
        rate: Rate | None = UNCHANGED,
        retry: Retry = UNCHANGED,
        by: str | None = None,
    ) -> None:
        """Change settings for all workers, now and until `reset`. They win over the code; None is no limit."""
        given: dict[str, Any] = {
            "concurrency": concurrency,
            "max_active": max_active,
            "rate": rate,
            "retry": retry,
        }
        values = {name: value for name, value in given.items() if value is not UNCHANGED}
        if not values:
            raise ConfigError(f'queue "{self.settings.name}": give what is to be changed: {_setting_names()}')
        wanted = replace(self.settings, **values)
        if wanted.concurrency > board_slots_for(self.settings.concurrency):
            raise ConfigError(
                f'queue "{self.settings.name}": concurrency={concurrency}: a running worker takes up to {board_slots_for(0):,}; '
                "start more processes"
            )
        await self._change(values, by)

    async def reset(self, *settings: str, by: str | None = None) -> None:
        """Back to what the code says: these settings, or all of them. A pause stays."""
        for name in settings:
            if name not in LIVE_SETTING_TYPES:
                raise ConfigError(f'"{name}" is no live setting; there are: {_setting_names()}')
        await self._change(dict.fromkeys(settings or LIVE_SETTING_TYPES, RESET_SETTING), by)

    async def live(self) -> LiveSettings:
        """What is in force now, and who has changed what of it."""
        store = self.app.client().store
        return await live_settings.read(store, self.settings)

    async def changes(self) -> list[LiveSettingChange]:
        """The last 100 changes, the newest first."""
        store = self.app.client().store
        return await live_settings.history(store, self.settings.name)

    async def _change(self, values: Mapping[str, Any], by: str | None) -> None:
        who = _checked_author(by) if by is not None else _default_author()
        client = self.app.client()
        await client.register(self.settings, ())
        await live_settings.change(client.store, self.settings.name, values, who)


def _setting_names() -> str:
    return ", ".join(LIVE_SETTING_TYPES)


def _checked_author(by: str) -> str:
    if not isinstance(by, str) or not by.isprintable() or not 1 <= len(by) <= 200:
        raise ConfigError(f"by={by!r}: give a name of 1 to 200 printable characters")
    return by


def _default_author() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may have no name for its user
        user = "?"
    return f"{user}@{socket.gethostname()}"
