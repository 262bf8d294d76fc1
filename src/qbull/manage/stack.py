"""Stack: where the task of a running job is, as its worker reports it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from qbull.core.ids import new_token
from qbull.errors import Conflict, ResultTimeout, job_not_found
from qbull.store.verbs import stacks
from qbull.store.verbs.stacks import StackReport

if TYPE_CHECKING:
    from qbull.queue import Queue

STACK_TIMEOUT_SECONDS = 5.0
STACK_POLL_SECONDS = 0.1


async def read_stack(queue: Queue, id: str, timeout: float = STACK_TIMEOUT_SECONDS) -> StackReport:
    """Ask the worker that runs a job for the stack of its task.

    Raises Conflict if the job is not running, and ResultTimeout if its worker does not answer.

    Args:
        queue: the queue of the job.
        id: the id of the job.
        timeout: maximum number of seconds to wait.
    """
    client, token = queue.app._client(), new_token()
    deadline = asyncio.get_running_loop().time() + timeout
    while True:
        there = await client.find(queue.settings, id)
        if there is None:
            raise job_not_found(queue.name, id)
        partition, found = there
        if found.state != "active":
            raise Conflict(
                f'queue "{queue.name}": job {id} is {found.state}, and only a running job has a stack'
            )
        report = await stacks.ask(partition, id, token)
        if report is not None:
            return report
        if asyncio.get_running_loop().time() > deadline:
            raise ResultTimeout(
                f'queue "{queue.name}": worker {found.worker} has not answered within {timeout:g} s. '
                "Its process may be stopped, it may be older than this command, or the job may wait to start."
            )
        await asyncio.sleep(STACK_POLL_SECONDS)
