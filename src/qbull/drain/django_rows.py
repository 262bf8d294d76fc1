"""Rows of a Django database as jobs and schedules: the tables of the packages around Celery.

A row is marked as moved when the new server has its job or schedule. If the command is killed in between, the
next run finds what it has made, and marks the row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from types import ModuleType
from typing import Any

from qbull.app import App
from qbull.compat.celery.django_project import is_django_project, set_up_django
from qbull.drain.deliver import JobImporter
from qbull.drain.message import CannotMove, ForeignJob, ForeignSchedule
from qbull.drain.move import DrainReport
from qbull.drain.prepared import PreparedJob, PreparedSchedule
from qbull.errors import ConfigError, NotFound


class RowSource(ABC):
    """A table whose rows are moved."""

    @abstractmethod
    async def rows(self) -> list[Any]:
        """The rows to move, in their order."""

    @abstractmethod
    def names(self, row: Any) -> tuple[str, str, str]:
        """The queue, the task and the name of a row, for the report."""

    @abstractmethod
    def foreign(self, row: Any) -> ForeignSchedule | ForeignJob:
        """The row in qbull's terms. Raises CannotMove with the reason."""

    @abstractmethod
    async def moved(self, row: Any) -> None:
        """Mark a row as moved."""


class RowMove:
    """Moves the rows of a table.

    Args:
        app: The app with the tasks.
        importer: Checks and delivers schedules and jobs.
        source: The table.
        dry: Whether to report only.
    """

    def __init__(self, app: App, importer: JobImporter, source: RowSource, *, dry: bool) -> None:
        self._app = app
        self._importer = importer
        self._source = source
        self._dry = dry
        self.report = DrainReport()

    async def run(self) -> DrainReport:
        for row in await self._source.rows():
            queue, task, name = self._source.names(row)
            try:
                prepared = await self._importer.prepare(self._source.foreign(row))
                await self._check_name(prepared)
            except CannotMove as why:
                self.report.leave(queue, task, str(why), name)
                continue
            if not self._dry:
                await self._importer.deliver([prepared])
                await self._source.moved(row)
            self.report.moved[_queue_of(prepared)] += 1
        return self.report

    async def _check_name(self, prepared: PreparedJob | PreparedSchedule) -> None:
        """Raise CannotMove if another schedule has the name. One that an earlier run has made is the same."""
        if not isinstance(prepared, PreparedSchedule):
            return
        try:
            there = await self._app.schedules.get(prepared.name)
        except NotFound:
            return
        ours = (prepared.path, prepared.cron, prepared.rule.get("every"), dict(prepared.args))
        if (f"{there.queue}/{there.task}", there.cron, there.every, there.args) != ours:
            raise CannotMove(prepared.taken_reason)


def models_of(package: str) -> ModuleType:
    """Import the models of a package of the Django project."""
    if not is_django_project():
        raise ConfigError("DJANGO_SETTINGS_MODULE is not set; set it to the settings of the project")
    set_up_django()
    try:
        return import_module(f"{package}.models")
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"{package} cannot be imported: {error}; install it, and name it in INSTALLED_APPS"
        ) from None


def _queue_of(prepared: PreparedJob | PreparedSchedule) -> str:
    if isinstance(prepared, PreparedJob):
        return prepared.queue.name
    return prepared.path.rpartition("/")[0]
