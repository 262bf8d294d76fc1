"""The inbox: a job's effect and the mark that it has happened are one transaction, so it happens once.

Tasks call it: `async with once(pool) as conn`. The mark is the first statement of the transaction. A second
run of the job waits there for the end of the first, finds the mark, and ends at once as completed. If the job
was delivered again meanwhile, the fence refuses the earlier run, even if the later one has failed.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple, get_type_hints

import msgspec

from qbull.core.codec import decode_result, encode_result
from qbull.core.ids import partition_in
from qbull.core.outcome import AlreadyDone
from qbull.core.record import crashes_of, created_ms_of
from qbull.core.values import DEFAULT_HOOKS, ValueHooks
from qbull.errors import ConfigError, NotFound, ServerError, TakenOver
from qbull.postgres import transaction as callers
from qbull.store.names import RETURNED_LEVEL
from qbull.worker.current import RunningJob, entry_ms, fence_of, running

_PARAMETERS_CTE = f"""\
WITH given AS (
    SELECT * FROM json_to_record({callers.JSON_PARAMETER})
    AS given(app text, queue text, job_id text, origin bigint, step text, fence bigint, result text)
)"""
_SAME_MARK = """\
(i.app, i.queue, i.job_id, i.origin, i.step)
    = (given.app, given.queue, given.job_id, given.origin, given.step)"""
INSERT_MARK_SQL = f"""{_PARAMETERS_CTE}
INSERT INTO qbull_inbox AS i (app, queue, job_id, origin, step, fence, done)
SELECT app, queue, job_id, origin, step, fence, true FROM given
ON CONFLICT (job_id, queue, app, origin, step)
DO UPDATE SET fence = excluded.fence, done = true, marked_at = clock_timestamp()
WHERE NOT i.done AND i.fence <= excluded.fence
RETURNING 'marked'"""
SELECT_MARK_SQL = f"""{_PARAMETERS_CTE}
SELECT json_build_object('done', i.done, 'fence', i.fence, 'result', i.result::text)::text
FROM qbull_inbox i, given WHERE {_SAME_MARK}"""
STORE_RESULT_SQL = f"""{_PARAMETERS_CTE}
UPDATE qbull_inbox i SET result = CAST(given.result AS json) FROM given WHERE {_SAME_MARK} RETURNING 'kept'"""
RAISE_FENCE_SQL = f"""{_PARAMETERS_CTE}
INSERT INTO qbull_inbox AS i (app, queue, job_id, origin, step, fence, done)
SELECT app, queue, job_id, origin, step, fence, false FROM given
ON CONFLICT (job_id, queue, app, origin, step)
DO UPDATE SET fence = greatest(i.fence, excluded.fence), marked_at = clock_timestamp()
WHERE NOT i.done RETURNING 'fenced'"""


class ExistingMark(msgspec.Struct):
    """A row that another run wrote."""

    done: bool
    fence: int
    result: str | None = None


class MarkKey(NamedTuple):
    """The key of a mark, and the delivery that sets it."""

    app: str
    queue: str
    job_id: str
    origin: int
    step: str
    fence: int
    again: bool
    """Whether the job may have been delivered before."""

    @classmethod
    def of(cls, job: RunningJob, step: str) -> MarkKey:
        app = job.partition.app if job.partition is not None else job.app
        again = (
            job.position[:1] == RETURNED_LEVEL.encode() or job.body.attempt > 1 or crashes_of(job.record) > 0
        )
        return cls(app, job.queue, job.id.decode(), _origin(job), step, fence_of(job.position), again)

    def packed(self, result: bytes | None = None) -> str:
        given = self._asdict() | {"result": None if result is None else result.decode()}
        return msgspec.json.encode(given).decode()

    def refuse(self, found: str | None) -> None:
        """Raise the reason why the mark could not be set, which ends the run.

        The mark may have the fence of this run. Its commit was done, but its reply was lost; or a failover
        has lost the delivery, and another worker has the same one.
        """
        there = msgspec.json.decode(found or '{"done": false, "fence": 0}', type=ExistingMark)
        if there.done:
            raise AlreadyMarked(there.result)
        raise TakenOver(
            f'queue "{self.queue}": job {self.job_id} was delivered again meanwhile; '
            "this run must have no effect"
        )


class AlreadyMarked(AlreadyDone):
    """The mark of an earlier run, and its stored result."""

    def __init__(self, result: str | None) -> None:
        super().__init__("an earlier run of this job has had its effect")
        self.result = result


def once(pool: Any, *, step: str = "") -> Once:
    """The effect of the running job, once: `async with once(pool) as conn`, or `@once(pool)` on a function.

    Statements on `conn` are committed together with the mark of the job. A job that already has its mark ends
    at the `async with`, as completed. A decorated function returns its first result again, so a task may have
    several of them, each with its own `step`.

    Args:
        pool: opens transactions: a pool of psycopg or asyncpg, an engine or sessionmaker of SQLAlchemy, or
            Django's connection.
        step: the name of the step, if a task has several decorated functions.
    """
    return Once(pool, step)


class Once:
    """The result of `once(pool)`: a context manager of either kind, and a decorator.

    `is_step`: it is a recorded step of a durable task, `job.transaction(…)`.
    """

    def __init__(self, pool: Any, step: str, *, is_step: bool = False) -> None:
        self._pool = pool
        self._step = step
        self._is_step = is_step
        self._entered: Any = None

    async def __aenter__(self) -> Any:
        self._refuse_block()
        self._entered = self._open()
        return await self._entered.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        entered, self._entered = self._entered, None
        ended: bool | None = await entered.__aexit__(*error)
        return ended

    def __enter__(self) -> Any:
        self._refuse_block()
        self._entered = self._open_sync()
        return self._entered.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        entered, self._entered = self._entered, None
        ended: bool | None = entered.__exit__(*error)
        return ended

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function, which gets the connection as its first argument.

        Args:
            function: the function.
        """
        shown = inspect.signature(function)
        first = next(iter(shown.parameters), None)
        if first is None:
            raise ConfigError(f"once(): {function!r} must take the connection as its first argument")

        @wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            try:
                async with self._open() as connection:
                    result = await function(connection, *args, **kwargs)
                    if result is not None:
                        await callers.run(connection, STORE_RESULT_SQL, self._packed_result(result))
                    return result
            except AlreadyMarked as found:
                return _stored_result(function, found.result)

        @wraps(function)
        def run_sync(*args: Any, **kwargs: Any) -> Any:
            try:
                with self._open_sync() as connection:
                    result = function(connection, *args, **kwargs)
                    if result is not None:
                        callers.run_sync(connection, STORE_RESULT_SQL, self._packed_result(result))
                    return result
            except AlreadyMarked as found:
                return _stored_result(function, found.result)

        wrapped: Any = run if inspect.iscoroutinefunction(function) else run_sync
        wrapped.__signature__ = shown.replace(parameters=list(shown.parameters.values())[1:])
        wrapped.__annotations__ = {
            name: kind for name, kind in function.__annotations__.items() if name != first
        }
        return wrapped  # type: ignore[no-any-return]

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        job, name = _running_job(), self._name()
        with _entered_scope(name):
            await _refuse_stale(job, name)
            if name.again:
                await self._fence(name)
            try:
                async with callers.open_transaction(self._pool) as connection:
                    if await callers.run(connection, INSERT_MARK_SQL, name.packed()) is None:
                        self._refuse_second(job, name)
                        name.refuse(await callers.run(connection, SELECT_MARK_SQL, name.packed()))
                    job.marks |= {name.step}
                    yield connection
            except TakenOver:
                raise
            except Exception:
                found = None
                with suppress(Exception):  # The user's error must be seen, not ours.
                    found = await self._fence(name)
                if found is not None and self._is_step:
                    name.refuse(found)
                raise

    @contextmanager
    def _open_sync(self) -> Iterator[Any]:
        job, name = _running_job(), self._name()
        with _entered_scope(name):
            if name.again:
                self._fence_sync(name)
            try:
                with callers.open_transaction_sync(self._pool) as connection:
                    if callers.run_sync(connection, INSERT_MARK_SQL, name.packed()) is None:
                        self._refuse_second(job, name)
                        name.refuse(callers.run_sync(connection, SELECT_MARK_SQL, name.packed()))
                    job.marks |= {name.step}
                    yield connection
            except TakenOver:
                raise
            except Exception:
                found = None
                with suppress(Exception):
                    found = self._fence_sync(name)
                if found is not None and self._is_step:
                    name.refuse(found)
                raise

    async def _fence(self, name: MarkKey) -> str | None:
        """Keep earlier deliveries of the job from setting the mark. Waits for one that is about to.

        Returns the mark if it is set already.
        """
        async with callers.open_transaction(self._pool) as connection:
            if await callers.run(connection, RAISE_FENCE_SQL, name.packed()) is not None:
                return None
            found: str | None = await callers.run(connection, SELECT_MARK_SQL, name.packed())
            return found

    def _fence_sync(self, name: MarkKey) -> str | None:
        with callers.open_transaction_sync(self._pool) as connection:
            if callers.run_sync(connection, RAISE_FENCE_SQL, name.packed()) is not None:
                return None
            found: str | None = callers.run_sync(connection, SELECT_MARK_SQL, name.packed())
            return found

    def _refuse_second(self, job: RunningJob, name: MarkKey) -> None:
        if name.step in job.marks and not self._is_step:
            raise _used_twice(name)

    def _packed_result(self, result: Any) -> str:
        return self._name().packed(encode_result(result, hooks=_hooks()))

    def _name(self) -> MarkKey:
        return MarkKey.of(_running_job(), self._step)

    def _refuse_block(self) -> None:
        if self._step:  # A later run would end at the first of them, and the others would never run.
            raise ConfigError(
                f'once(pool, step="{self._step}"): steps are for decorated functions: @once(pool, step=…)'
            )
        if self._entered is not None:
            raise ConfigError(
                "this once() is in use; make a new one for each use: async with once(pool) as conn"
            )


_entered: ContextVar[frozenset[MarkKey]] = ContextVar("qbull_once", default=frozenset())


@contextmanager
def _entered_scope(name: MarkKey) -> Iterator[None]:
    """Refuse a once() inside another one, which would wait for itself for ever."""
    if name in _entered.get():
        raise _used_twice(name)
    token = _entered.set(_entered.get() | {name})
    try:
        yield
    finally:
        _entered.reset(token)


def _used_twice(name: MarkKey) -> ConfigError:
    return ConfigError(
        f"job {name.job_id}: once() was used twice in one run; use one transaction, "
        'or decorated functions with a step each: @once(pool, step="…")'
    )


def _stored_result(function: Callable[..., Any], result: str | None) -> Any:
    """The value that the function returned in an earlier run, in the annotated type."""
    if result is None:
        return None
    try:
        kind = get_type_hints(function).get("return", Any)
    except NameError:  # A type that is imported only for the type checker.
        kind = Any
    return decode_result(result.encode(), kind, _hooks())


def _hooks() -> ValueHooks:
    """How the app encodes values that have no JSON form."""
    job = _running_job()
    return DEFAULT_HOOKS if job.progress_sink is None else job.progress_sink.hooks_of(job)


def _origin(job: RunningJob) -> int:
    """The origin of a job, which tells jobs with the same id apart.

    A generated id names one job; one that a user chose may have been used before. A row of the outbox keeps
    its origin, however often it is shipped.
    """
    if partition_in(job.id.decode()) is not None:
        return 0
    return -job.body.row or created_ms_of(job.record) or entry_ms(job.position)


def _running_job() -> RunningJob:
    job = running.get()
    if job is None:
        raise NotFound("no job is running here; once() is for code inside a task")
    return job


async def _refuse_stale(job: RunningJob, name: MarkKey) -> None:
    """Ask the queue whether the job was delivered again; it knows before the database does.

    If the queue is unavailable, the database decides alone.
    """
    if job.partition is None:
        return
    with suppress(ServerError):
        if not await job.partition.holds(job.id, job.position, job.lane):
            name.refuse(None)
