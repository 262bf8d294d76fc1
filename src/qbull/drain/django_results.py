"""The failed tasks of django-celery-results: each becomes a dead letter, which can be redriven."""

from __future__ import annotations

import asyncio
from ast import literal_eval
from typing import Any

import msgspec

from qbull.drain.deliver import JobImporter
from qbull.drain.django_rows import RowSource, models_of
from qbull.drain.message import CannotMove, ForeignFailure, ForeignJob


class FailedResultSource(RowSource):
    """The results of tasks that have failed. One that was moved is deleted.

    Args:
        importer: Knows the queues of the tasks.
        default_queue: The queue of tasks that are in several.
    """

    def __init__(self, importer: JobImporter, default_queue: str) -> None:
        self._importer = importer
        self._default_queue = default_queue
        self._results = models_of("django_celery_results").TaskResult.objects

    async def rows(self) -> list[Any]:
        return await asyncio.to_thread(list, self._results.filter(status="FAILURE").order_by("pk"))

    def names(self, row: Any) -> tuple[str, str, str]:
        return "", row.task_name or "?", row.task_id

    async def moved(self, row: Any) -> None:
        await asyncio.to_thread(self._results.filter(pk=row.pk).delete)

    def foreign(self, row: Any) -> ForeignJob:
        if not row.task_name:
            raise CannotMove("the row has no task; only results of result_extended=True have it")
        queue = self._importer.home_of(row.task_name, self._default_queue)
        created_ms = int(row.date_created.timestamp() * 1000)
        failure = ForeignFailure(_error(row), 1, row.traceback, created_ms)
        args, kwargs = _value(row, "task_args", ()), _value(row, "task_kwargs", {})
        return ForeignJob(
            row.task_id, str(created_ms), queue.name, row.task_name, args, kwargs, failure=failure
        )


def _value(row: Any, name: str, default: Any) -> Any:
    """The arguments, which the table has as the text that Python prints for them."""
    text = getattr(row, name)
    if not text:
        return default
    try:
        decoded = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        decoded = text
    try:
        value = literal_eval(decoded) if isinstance(decoded, str) else decoded
    except (ValueError, SyntaxError):
        raise CannotMove(f"its {name} are only the text {text:.80}; enqueue it with values") from None
    if not isinstance(value, list | tuple if isinstance(default, tuple) else dict):
        raise CannotMove(f"its {name} are {text:.80}, which are no arguments")
    return value


def _error(row: Any) -> str:
    """The error as qbull writes it: the class and the text."""
    try:
        told = msgspec.json.decode(row.result or "")
        message = told["exc_message"]
        text = str(message[0] if isinstance(message, list) and len(message) == 1 else message)
        return f"{told['exc_type']}: {text}"
    except (msgspec.MsgspecError, LookupError, TypeError):
        return str(row.result or "it failed in Celery")
