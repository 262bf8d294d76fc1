"""A job in the user's hand: its id, and what can be asked about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from qbull.client import Client
from qbull.config import QueueSettings
from qbull.core.codec import plain
from qbull.core.job import JobInfo, State
from qbull.errors import JobCancelled, JobFailed, NotFound, ResultTimeout
from qbull.store.inspect import Found

R = TypeVar("R")


class Job(Generic[R]):
    """`created` is False where a job with this id was there already, and nothing was added."""

    def __init__(
        self,
        client: Callable[[], Client],
        settings: QueueSettings,
        id: str,
        *,
        created: bool = False,
        attempts: Callable[[str], int] | None = None,
        decode: Callable[[bytes], Any] = plain,
    ) -> None:
        self.id = id
        self.created = created
        self._client = client
        self._settings = settings
        self._attempts = attempts
        self._decode = decode

    def __repr__(self) -> str:
        return f"<Job {self.id} in {self._settings.name}>"

    @property
    def queue(self) -> str:
        return self._settings.name

    async def state(self) -> State | None:
        """Where the job is in its life; None for an unknown job."""
        found = await self._find()
        return found.state if found is not None else None

    async def info(self) -> JobInfo | None:
        """Everything that is known about the job; None for an unknown job."""
        found = await self._find()
        if found is None:
            return None
        attempts = (
            self._attempts(found.body().task) if self._attempts is not None else self._settings.retry.attempts
        )
        return found.info(self._settings.name, attempts)

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the job has finished and give what its task returned, as annotated there."""
        client = self._client()
        there = await client.find(self._settings, self.id)
        if there is None:
            raise NotFound(
                f'queue "{self.queue}": no job {self.id}; it never was there, or is not kept any more'
            )

        async def look() -> Found | NotFound | None:
            found = await client.find(self._settings, self.id)
            if found is None:
                return NotFound(
                    f'queue "{self.queue}": job {self.id} has finished, but the queue does not keep it'
                )
            return found[1] if found[1].ending is not None else None

        finished: Found | NotFound | None = await client.results.until(there[0], self.id, look, timeout)
        if finished is None:
            raise ResultTimeout(f'queue "{self.queue}": job {self.id} has not finished within {timeout:g} s')
        if isinstance(finished, NotFound):
            raise finished
        return self._outcome(finished)

    def _outcome(self, found: Found) -> R:
        ending = found.ending
        assert ending is not None
        if found.state == "cancelled":
            raise JobCancelled(f'queue "{self.queue}": job {self.id} was cancelled')
        if found.state == "failed":
            error = ending.error or "no reason was given"
            raise JobFailed(
                f'queue "{self.queue}": job {self.id} failed: {error}',
                error=error,
                stacktrace=ending.stacktrace,
            )
        value: R = self._decode(ending.result or b"null")
        return value

    async def _find(self) -> Found | None:
        found = await self._client().find(self._settings, self.id)
        return found[1] if found is not None else None
