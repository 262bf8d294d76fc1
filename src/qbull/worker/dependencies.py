"""Dependencies: the jobs that a job of a flow has waited for, read before its task is called.

Results in a result store are fetched from there, and encoded results are decoded.
"""

from __future__ import annotations

from functools import partial

import msgspec

from qbull.codecs.chain import CodecChain
from qbull.codecs.context import result_context
from qbull.codecs.offload import ResultStore
from qbull.core.flow import COMPLETED_LETTER, JOB_DIGEST_BYTES, Dependency, job_digest
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
        if job.body.awaits or self._codecs.requires:
            _check_identities(job, [told for _, told in found])
        return [(letter, await self.whole(letter, told)) for letter, told in found]

    async def whole(self, letter: str, told: Dependency) -> Dependency:
        """The outcome of a job with its result, without the codecs of the app."""
        result = told.result
        if told.stored:
            if self._results is None:
                raise Undeliverable(
                    f'the result of job {told.id} is kept elsewhere, as "{told.stored}"; '
                    "give this app the same results=… that its worker has"
                )
            result = await self._results.get(told.stored)
        if self._needs_opening(letter, result):
            context = result_context(told.queue, told.id, told.task)
            try:
                result = self._codecs.open(context, result or b"null")
            except PayloadError as error:
                raise Undeliverable(f"the result of job {told.id}: {error}") from None
        return msgspec.structs.replace(told, result=result)

    def _needs_opening(self, letter: str, result: bytes | None) -> bool:
        """A job that has completed has a result, which counts only if this app accepts it."""
        if letter == COMPLETED_LETTER and self._codecs.used:
            return True
        return result is not None and is_wrapped(result)


def _check_identities(job: RunningJob, told: list[Dependency]) -> None:
    """The jobs that reported must be those that the flow was enqueued with.

    Their names are part of what protects the payload. Without that, a result of another job, signed in good
    order, could be passed off as the one that this job waits for.
    """
    awaits = job.body.awaits
    known = len(told) == len(awaits) and all(
        job_digest(each.queue, each.task, each.id) in _digests_in(digests)
        for each, digests in zip(told, awaits, strict=True)
    )
    if not known:
        raise Undeliverable(
            "the jobs that it waited for are not those of its flow: somebody has changed them; "
            "enqueue the flow again"
        )


def _digests_in(digests: bytes) -> list[bytes]:
    return [digests[at : at + JOB_DIGEST_BYTES] for at in range(0, len(digests), JOB_DIGEST_BYTES)]
