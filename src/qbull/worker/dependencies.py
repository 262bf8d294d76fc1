"""Dependencies: the jobs that a job of a flow has waited for, read before its task is called.

Results in a result store are fetched from there, and encoded results are decoded.
"""

from __future__ import annotations

from functools import partial

import msgspec

from qbull.codecs.chain import CodecChain
from qbull.codecs.offload import ResultStore
from qbull.core.flow import Dependency
from qbull.core.outcome import Undeliverable
from qbull.core.wrapped_payload import is_wrapped
from qbull.errors import PayloadError
from qbull.store.verbs.flow_messages import dependencies_of
from qbull.worker.current import RunningJob
from qbull.worker.outage import Outage


class DependencyLoader:
    def __init__(self, results: ResultStore | None, codecs: CodecChain, outage: Outage) -> None:
        self._results = results
        self._codecs = codecs
        self._outage = outage

    async def __call__(self, job: RunningJob) -> list[tuple[str, Dependency]]:
        assert job.partition is not None
        found = await self._outage.retry_until_up(partial(dependencies_of, job.partition, job.id))
        return [(letter, await self._whole(told)) for letter, told in found]

    async def _whole(self, told: Dependency) -> Dependency:
        result = told.result
        if told.stored:
            if self._results is None:
                raise Undeliverable(
                    f'the result of job {told.id} is kept elsewhere, as "{told.stored}"; '
                    "give this app the same results=… that its worker has"
                )
            result = await self._results.get(told.stored)
        if result is not None and is_wrapped(result):
            try:
                result = self._codecs.decode("result", told.queue, told.task, result)
            except PayloadError as error:
                raise Undeliverable(f"the result of job {told.id}: {error}") from None
        return msgspec.structs.replace(told, result=result)
