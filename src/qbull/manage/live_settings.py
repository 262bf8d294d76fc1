"""Live settings: pause, resume and reconfigure a queue while it runs. Methods of `Queue` call this."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from msgspec.structs import replace

from qbull.config import Keep
from qbull.core.rate import Rate
from qbull.core.retry import Retry
from qbull.errors import MAX_DELAY_SECONDS, ConfigError, ResultTimeout
from qbull.store.audit import audited, checked_author, default_author, note, of_queue
from qbull.store.verbs import live_settings
from qbull.store.verbs.live_settings import (
    LIVE_SETTING_TYPES,
    PAUSED_SETTING,
    RESET_SETTING,
    LiveSettingChange,
    LiveSettings,
)
from qbull.worker.process.crash_board import board_slots_for

if TYPE_CHECKING:
    from qbull.queue import Queue


class LiveSettingValues(TypedDict, total=False):
    """Settings that can be changed while workers run.

    Args:
        concurrency: jobs that one worker runs at a time.
        max_active: jobs that run at a time in all workers; None for no limit.
        rate: jobs that start in a period, in all workers; None for no limit.
        retry: the retry policy of all tasks.
        timeout: seconds that one run of any task may take; None for no limit.
        keep: how long finished jobs stay.
    """

    concurrency: int
    max_active: int | None
    rate: Rate | None
    retry: Retry
    timeout: float | None
    keep: Keep


PAUSE_NOTICE_SECONDS = 1.0
"""Within this time all workers have noticed a pause."""
IDLE_POLL_SECONDS = 0.1


@audited("pause queue", of_queue)
async def pause(queue: Queue, by: str | None, wait: float | None = None) -> None:
    """Start no more jobs of a queue until it is resumed, and wait until none is running."""
    await _change(queue, {PAUSED_SETTING: True}, by)
    if wait is not None:
        await _until_idle(queue, wait)


async def _until_idle(queue: Queue, wait: float) -> None:
    """Wait until no worker has a job of a paused queue.

    Workers learn of a pause within PAUSE_NOTICE_SECONDS, so that they may start a job until then.
    """
    if not 0 <= wait <= MAX_DELAY_SECONDS:
        raise ConfigError(f"wait={wait!r}: give a number of seconds from 0")
    loop = asyncio.get_running_loop()
    paused_at = loop.time()
    while True:
        active = (await queue.stats()).active
        passed = loop.time() - paused_at
        if not active and passed >= PAUSE_NOTICE_SECONDS:
            return
        if active and passed >= wait:
            raise ResultTimeout(
                f'queue "{queue.name}" is paused, but {active} of its jobs still run after {wait:g} s. '
                "Wait longer, or cancel them."
            )
        await asyncio.sleep(IDLE_POLL_SECONDS)


@audited("resume queue", of_queue)
async def resume(queue: Queue, by: str | None) -> None:
    """Start jobs again."""
    await _change(queue, {PAUSED_SETTING: RESET_SETTING}, by)


@audited("change settings", of_queue)
async def configure(queue: Queue, given: Mapping[str, Any], by: str | None) -> None:
    """Change live settings of a queue."""
    settings, values = queue.settings, dict(given)
    unknown = sorted(set(values) - set(LIVE_SETTING_TYPES))
    if not values or unknown:
        fault = f"{unknown[0]} is no live setting; give some of" if unknown else "give at least one setting"
        raise ConfigError(f'queue "{settings.name}": {fault}: {_setting_names()}')
    changed = replace(settings, **values)
    if changed.concurrency > board_slots_for(settings.concurrency):
        raise ConfigError(
            f'queue "{settings.name}": concurrency={changed.concurrency}: a running worker takes up to '
            f"{board_slots_for(0):,}; start more processes"
        )
    await _change(queue, values, by)


@audited("reset settings", of_queue)
async def reset(queue: Queue, settings: Sequence[str], by: str | None) -> None:
    """Return these settings, or all of them, to the values of the code."""
    for name in settings:
        if name not in LIVE_SETTING_TYPES:
            raise ConfigError(f'"{name}" is no live setting; there are: {_setting_names()}')
    await _change(queue, dict.fromkeys(settings or LIVE_SETTING_TYPES, RESET_SETTING), by)


async def read(queue: Queue) -> LiveSettings:
    """The settings in force, and who changed them."""
    store = queue.app._client().store
    return await live_settings.read(store, queue.settings)


async def history(queue: Queue) -> list[LiveSettingChange]:
    """The last 100 changes, the newest first."""
    store = queue.app._client().store
    return await live_settings.history(store, queue.name)


async def _change(queue: Queue, values: Mapping[str, Any], by: str | None) -> None:
    who = checked_author(by) if by is not None else default_author()
    client = queue.app._client()
    await client.router.register(queue.settings, ())
    before = await live_settings.read(client.store, queue.settings)
    await live_settings.change(client.store, queue.name, values, who)
    after = {name: None if value is RESET_SETTING else value for name, value in values.items()}
    known = {name: before.changed[name].value if name in before.changed else None for name in values}
    changed = [name for name in values if known[name] != after[name]]
    note(before={name: known[name] for name in changed}, after={name: after[name] for name in changed})


def _setting_names() -> str:
    return ", ".join(LIVE_SETTING_TYPES)
