"""The run of a function of RQ in a worker: retries, callbacks and repeats, as the call has asked for them.

They travel with the job as headers. Callbacks must be registered, as all functions that workers run.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from qbull.app import App
from qbull.compat.rq.current import running_in
from qbull.compat.rq.exceptions import RqArgumentsError
from qbull.compat.rq.functions import Function, name_of
from qbull.compat.rq.job import Job
from qbull.compat.rq.job_limit import count_run
from qbull.compat.rq.job_options import FAILURE_HEADER, SUCCESS_HEADER
from qbull.compat.rq.retry import REPEAT_HEADER, Retry, raise_retry, raise_returned, waits_in
from qbull.compat.rq.signature import RqSignature
from qbull.compat.sending import enqueue_with_headers
from qbull.core.options import Options
from qbull.errors import Fail, NotFound, PayloadError, RetryAfter
from qbull.queue import Queue
from qbull.worker.current import current_job, running


class Callback:
    """`Callback(report)`: a registered function that is called when the job has ended.

    Args:
        func: The function, or its name.
        timeout: Ignored: the callback runs within the timeout of the job.
    """

    def __init__(self, func: Function, timeout: int | str | None = None) -> None:
        if not (isinstance(func, str) or inspect.isfunction(func) or inspect.isbuiltin(func)):
            raise RqArgumentsError(f"Callback({func!r}): give a function, or its name")
        self.func = func
        self.name = name_of(func)


class Repeat:
    """`Repeat(times=3, interval=[60, 300])`: enqueue the call again after each success.

    Args:
        times: How often it runs again.
        interval: Seconds before each run. If there are fewer than `times`, the last one is repeated.
    """

    def __init__(self, times: int, interval: int | Iterable[int] = 0) -> None:
        intervals = [interval] if isinstance(interval, int) else list(interval)
        if any(not isinstance(each, int) for each in intervals):
            raise TypeError(f"Repeat(interval={interval!r}): give seconds")
        if times < 1 or not intervals or min(intervals) < 0:
            raise RqArgumentsError(
                f"Repeat(times={times}, interval={interval!r}): give at least one time, and seconds from 0"
            )
        self.times = times
        self.intervals = intervals

    @staticmethod
    def get_interval(count: int, intervals: Sequence[int]) -> int:
        """The seconds before a repeat.

        Args:
            count: The number of the repeat, from 0.
            intervals: Seconds before each repeat. If there are fewer, the last one is repeated.
        """
        return intervals[min(count, len(intervals) - 1)]

    def header(self) -> str:
        last = self.intervals[-1]
        waits = (self.intervals + [last] * self.times)[: self.times]
        return ",".join(map(str, waits))


_CALLBACKS: WeakKeyDictionary[App, dict[str, Callable[..., Any]]] = WeakKeyDictionary()


def callbacks_of(app: App) -> dict[str, Callable[..., Any]]:
    """The registered callbacks of an app, by name. They are no tasks: their arguments do not travel."""
    return _CALLBACKS.setdefault(app, {})


def callback_headers(
    queue: Queue, success: Callback | Function | None, failure: Callback | Function | None
) -> dict[str, str]:
    """The headers for the callbacks of a call. Refuses functions that workers do not know."""
    headers = {}
    for header, given in ((SUCCESS_HEADER, success), (FAILURE_HEADER, failure)):
        if given is None:
            continue
        name = (given if isinstance(given, Callback) else Callback(given)).name
        name = name if "." in name else f"builtins.{name}"
        if name not in callbacks_of(queue.app):
            raise NotFound(
                f'queue "{queue.name}": the callback "{name}" is not registered, so no worker would call it; '
                "add queue.register_callbacks(function) in the module that workers load"
            )
        headers[header] = name
    return headers


def wrapped(queue: Queue, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function for a worker. A direct call of the wrapped function is a plain call."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            with running_in(queue):
                await asyncio.to_thread(count_run, queue.app)
                try:
                    result = await function(*args, **kwargs)
                    sent = _result_to_send(queue, result)
                except Exception as error:
                    await asyncio.to_thread(_failed, queue, error)
                    raise
                if _headers():
                    await asyncio.to_thread(_succeeded, queue, result, args, kwargs)
                return sent
    else:

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with running_in(queue):
                count_run(queue.app)
                try:
                    result = function(*args, **kwargs)
                    sent = _result_to_send(queue, result)
                except Exception as error:
                    _failed(queue, error)
                    raise
                if _headers():
                    _succeeded(queue, result, args, kwargs)
                return sent

    _WRAPPED.add(run)
    return run


_WRAPPED: WeakSet[Callable[..., Any]] = WeakSet()


def is_wrapped_function(function: Callable[..., Any]) -> bool:
    """Whether a task's function heeds retries, callbacks and repeats of a call."""
    return function in _WRAPPED


def _result_to_send(queue: Queue, result: Any) -> Any:
    """The result of a job in the form in which it is encoded. A function may return Retry(…) to run again."""
    if running.get() is None:
        return result
    if isinstance(result, Retry):
        raise_returned(result)
    task = queue.tasks.get(current_job().task)
    if task is None or not isinstance(task.signature, RqSignature):
        return result
    try:
        return task.signature.result_to_send(result)
    except PayloadError as error:
        raise Fail(f"its result: {error}") from None


def _headers() -> dict[str, str]:
    """The headers of the running job; none if the function was called directly."""
    try:
        return dict(current_job().headers)
    except NotFound:
        return {}


def _failed(queue: Queue, error: Exception) -> None:
    headers = _headers()
    if not headers or isinstance(error, RetryAfter):
        return
    if not isinstance(error, Fail):
        raise_retry(error)
    _call_back(queue, headers.get(FAILURE_HEADER), type(error), error, error.__traceback__)


def _succeeded(queue: Queue, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    headers = _headers()
    _call_back(queue, headers.get(SUCCESS_HEADER), result)
    waits = waits_in(headers, REPEAT_HEADER)
    if waits:
        _repeat(queue, headers, waits, args, kwargs)


def _call_back(queue: Queue, name: str | None, *outcome: Any) -> None:
    """Call a callback with the job, the app and the outcome, as RQ does."""
    if name is None:
        return
    callback = callbacks_of(queue.app).get(name)
    if callback is None:
        raise Fail(f'the callback "{name}" is not registered in this worker')
    callback(Job(queue.app, queue.job(current_job().id)), queue.app, *outcome)


def _repeat(
    queue: Queue, headers: dict[str, str], waits: list[int], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Enqueue the next run. Its id follows from this one, so a redelivery of this job adds nothing."""
    job, state = current_job(), running.get()
    timeout = state.body.timeout if state is not None else None
    first, _, count = job.id.partition("~")
    rest = ",".join(map(str, waits[1:]))
    following = {name: value for name, value in headers.items() if name != REPEAT_HEADER}
    if rest:
        following[REPEAT_HEADER] = rest
    spec = queue.tasks[job.task]
    options = Options(delay=waits[0], id=f"{first}~{int(count or 1) + 1}", timeout=timeout)
    queue.app.run_sync(enqueue_with_headers(queue, spec, options, following, args, kwargs))
