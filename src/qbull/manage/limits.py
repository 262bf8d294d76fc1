"""Shared limits at run time: how much of them is used, and changes that hold for all workers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from qbull.core.limits import LIMIT_SETTINGS, Limit, check_limit_settings
from qbull.core.rate import Rate
from qbull.errors import ConfigError
from qbull.store.audit import AuditSubject, audited, checked_author, default_author, note
from qbull.store.verbs.live_settings import RESET_SETTING

if TYPE_CHECKING:
    from qbull.app import App
    from qbull.core.limit_status import LimitStatus
    from qbull.store.verbs.shared_limits import LimitUsage


def _of_limits(limits: Limits) -> AuditSubject:
    """The limits of an app. The target is the name that the call gives."""
    return AuditSubject(limits._app._client().store, "")


class LimitValues(TypedDict, total=False):
    """Settings of a limit that can be changed while workers run. None is no limit."""

    rate: Rate | None
    concurrency: int | None
    daily: int | None


class Limits:
    """The shared limits of an app, as `app.limits` has them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared: dict[str, Limit] = {}

    async def all(self) -> list[LimitStatus]:
        """All limits that workers have declared, by name."""
        return await self._statuses()

    async def get(self, name: str, key: str | None = None) -> LimitStatus:
        """One limit, and how much of it is used.

        Args:
            name: the name of the limit.
            key: count only the jobs of this key.
        """
        if key is not None:
            return (await self._usage(name, key)).of_key
        return (await self._statuses([name]))[0]

    @audited("change limit", _of_limits)
    async def configure(self, name: str, *, by: str | None = None, **settings: Unpack[LimitValues]) -> None:
        """Change a limit for all workers until `reset`. The change overrides the code at once.

        Args:
            name: the name of the limit.
            by: who does it, for the audit log; user@host if None.
            rate: the weight that may start in a period; None for no limit.
            concurrency: jobs that run at a time; None for no limit.
            daily: the weight that may start in a day; None for no limit.
        """
        if not settings:
            raise ConfigError(f'limit "{name}": give at least one setting: {", ".join(LIMIT_SETTINGS)}')
        check_limit_settings(name, settings)
        await self._change(name, settings, by)

    @audited("reset limit", _of_limits)
    async def reset(self, name: str, *settings: str, by: str | None = None) -> None:
        """Return these settings of a limit, or all of them, to the values of the code.

        Args:
            name: the name of the limit.
            settings: rate, concurrency or daily.
            by: who does it.
        """
        for setting in settings:
            if setting not in LIMIT_SETTINGS:
                raise ConfigError(
                    f'"{setting}" is no setting of a limit; there are: {", ".join(LIMIT_SETTINGS)}'
                )
        await self._change(name, dict.fromkeys(settings or LIMIT_SETTINGS, RESET_SETTING), by)

    # Programs that only enqueue start faster without the modules that these methods import.

    async def _usage(self, name: str, key: str = "") -> LimitUsage:
        from qbull.store.verbs.shared_limits import usage

        return await usage(self._app._client().store, name, key)

    async def _statuses(self, names: Sequence[str] | None = None) -> list[LimitStatus]:
        from qbull.store.read.health import registered_queues
        from qbull.store.read.limits import limit_statuses

        store = self._app._client().store
        return await limit_statuses(store, (await registered_queues(store))[0], names)

    async def _change(self, name: str, values: Mapping[str, Any], by: str | None) -> None:
        from qbull.store.verbs.shared_limits import change

        who = checked_author(by) if by is not None else default_author()
        before = (await self._usage(name)).status
        await change(self._app._client().store, name, values, who)
        after = (await self._usage(name)).status
        changed = [setting for setting in values if getattr(before, setting) != getattr(after, setting)]
        note(
            before={setting: getattr(before, setting) for setting in changed},
            after={setting: getattr(after, setting) for setting in changed},
        )
