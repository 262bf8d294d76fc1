"""The chain around every enqueue of an app: first the tracing span, then the hooks of middleware, then
sending.

An app without both has no chain, and its calls pay nothing for it. A flow is several requests that are sent
together: it has one span, and the hooks run once for each of its tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from qbull.core.codec import decode_untyped
from qbull.core.options import EncodedArguments, Options
from qbull.errors import ArgumentsError
from qbull.job import Job
from qbull.middleware import Enqueueing, MiddlewareChain, RunCoroutine
from qbull.observe.trace import Tracing

if TYPE_CHECKING:
    from qbull.queue import Queue


class Request(msgspec.Struct):
    """Calls of one task that are enqueued together.

    Args:
        queue: the queue of the task.
        task: the name of the task.
        calls: the arguments of each call, not yet compressed or encrypted.
        options: the options that all of the calls have.
        decode: how to decode the results.
        headers: values that travel with the jobs; middleware may add to them.
        trace: the trace context that the spans of the runs are linked to.
    """

    queue: Queue
    task: str
    calls: list[EncodedArguments]
    options: Options
    decode: Callable[[bytes], Any] = decode_untyped
    headers: dict[str, str] | None = None
    trace: str | None = None

    def carried(self, options: Options) -> Options:
        """These options with the headers and the trace of the request."""
        if self.headers is None and self.trace is None:
            return options
        headers = {**options.headers, **(self.headers or {})} if options.headers else self.headers
        return replace(options, headers=headers, trace=self.trace)


Send = Callable[[], Awaitable[list[list[Job[Any]]]]]
"""Sends all requests, and returns the jobs of each."""


class EnqueueChain:
    """Tracing and middleware of one app. Both write headers and the trace context into the requests."""

    def __init__(self, tracing: Tracing | None, middleware: MiddlewareChain) -> None:
        self._tracing = tracing
        self._middleware = middleware

    async def run(self, requests: list[Request], send: Send, last: Request) -> list[list[Job[Any]]]:
        """Send requests within the chain; returns the jobs of each. The span is named after `last`."""
        with self._span(requests, last):
            if not self._middleware.around_enqueue:
                return await send()
            return await self._within_hooks(requests, send)

    def run_sync(
        self, request: Request, send: Callable[[], list[Job[Any]]], run: RunCoroutine
    ) -> list[Job[Any]]:
        """Send one request outside of an event loop. `run` runs the coroutines of asynchronous hooks."""
        with self._span([request], request):
            if not self._middleware.around_enqueue:
                return send()
            call = _enqueueing(request)

            def within() -> list[Job[Any]]:
                request.headers = _checked_headers(call)
                return send()

            return self._middleware.enqueue_sync(call, within, run)

    def _span(self, requests: list[Request], last: Request) -> AbstractContextManager[None]:
        return nullcontext() if self._tracing is None else _span(self._tracing, requests, last)

    async def _within_hooks(self, requests: list[Request], send: Send) -> list[list[Job[Any]]]:
        sent: list[list[Job[Any]]] = []

        async def within(position: int) -> None:
            if position == len(requests):
                sent.extend(await send())
                return
            request = requests[position]
            call = _enqueueing(request)

            async def inner() -> list[Job[Any]]:
                request.headers = _checked_headers(call)
                await within(position + 1)
                return sent[position]

            await self._middleware.enqueue(call, inner)

        await within(0)
        return sent


@contextmanager
def _span(tracing: Tracing, requests: list[Request], last: Request) -> Iterator[None]:
    count = sum(len(each.calls) for each in requests)
    with tracing.send(last.queue.name, last.task, count) as carried:
        for request in requests:
            request.trace = carried
        yield


def _enqueueing(request: Request) -> Enqueueing:
    arguments = [decode_untyped(call.payload) for call in request.calls]
    return Enqueueing(request.queue.name, request.task, arguments, dict(request.headers or {}))


def _checked_headers(call: Enqueueing) -> dict[str, str]:
    for name, value in call.headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ArgumentsError(f"header {name!r}: {value!r}: names and values of headers are texts")
    return call.headers
