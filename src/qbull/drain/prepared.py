"""Jobs and schedules of another library that were checked and are ready to be delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qbull.core.options import EncodedArguments, Options
from qbull.core.schedule_rule import ScheduleOptions
from qbull.drain.message import ForeignFailure
from qbull.queue import Queue


@dataclass(frozen=True)
class PreparedJob:
    """A job with its queue, and with arguments that its task accepts."""

    queue: Queue
    task: str
    arguments: EncodedArguments
    options: Options
    headers: Mapping[str, str]
    failure: ForeignFailure | None = None

    @property
    def id(self) -> str:
        assert self.arguments.id is not None
        return self.arguments.id

    @property
    def taken_reason(self) -> str:
        return (
            f'queue "{self.queue.name}" has a job with its id already; '
            "remove that, or let the old workers run this one"
        )


@dataclass(frozen=True)
class PreparedSchedule:
    """A schedule of a task. `path` is "queue/task"."""

    name: str
    path: str
    args: Mapping[str, Any]
    rule: ScheduleOptions
    cron: str | None

    @property
    def id(self) -> str:
        """The schedule's name, in a form that no job has as its id."""
        return f"schedule\n{self.name}"

    @property
    def task(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def taken_reason(self) -> str:
        return f'there is a schedule "{self.name}" already; remove one of the two'
