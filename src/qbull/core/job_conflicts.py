"""Job conflicts: why the state of a job does not allow an action, as the end of an error message."""

from __future__ import annotations

from collections.abc import Mapping

from qbull.errors import Conflict, NotFound, job_not_found

MAX_CANCEL_REASON_CHARS = 2000

CANCEL_CONFLICTS = {
    "completed": "has completed; there is nothing to cancel",
    "failed": "has failed; there is nothing to cancel, remove() deletes it",
}
RETRY_CONFLICTS = {
    "waiting": "is waiting and will run",
    "delayed": "is delayed; promote() lets it run now",
    "active": "is running; wait for its end, or cancel() it first",
    "completed": "has completed; enqueue it again to run it a second time",
}
PROMOTE_CONFLICTS = {
    "waiting": "is waiting already",
    "active": "is running already",
    "completed": "has completed; enqueue it again to run it a second time",
    "failed": "has failed; retry() runs it again",
    "cancelled": "was cancelled; retry() runs it again",
}
REMOVE_CONFLICTS = {"active": "is running; cancel() it first"}
CHANGE_CONFLICTS = {
    "active": "is running, so it cannot be changed; cancel() it, and enqueue another one",
    "completed": "has completed; enqueue it again to run it a second time",
    "failed": "has failed; retry(payload=…) runs it again with other arguments",
    "cancelled": "was cancelled; retry(payload=…) runs it again with other arguments",
    "dependent": "waits for other jobs of its flow, which decide when it runs",
}
FORK_CONFLICTS = {
    "waiting": "is waiting and will run; fork it when it has ended",
    "delayed": "is delayed; fork it when it has ended, or cancel() it first",
    "active": "is running; fork it when it has ended, or cancel() it first",
}
SIGNAL_CONFLICTS = {
    "completed": "has completed; no task takes the signal",
    "failed": "has failed; retry() it first, then its task can take the signal",
    "cancelled": "was cancelled; retry() it first, then its task can take the signal",
    "full": "has too many signals that its task has not taken; wait until it takes some",
}


def conflict(queue: str, id: str, word: str, instead: Mapping[str, str]) -> Conflict | NotFound:
    """The error for a job whose state does not allow an action. `word` is the answer of the verb."""
    if word == "unknown":
        return job_not_found(queue, id)
    fact = instead.get(word, "is on its way to another partition; try again in a moment")
    return Conflict(f'queue "{queue}": job {id} {fact}', state=word)


def unreadable(queue: str, id: str, action: str, error: Exception, state: str) -> Conflict:
    """The error for a job whose record cannot be read. `action` is what it cannot be: "run" or "changed"."""
    return Conflict(f'queue "{queue}": job {id} cannot be {action}: {error}; remove() it', state=state)


def cancel_reason(reason: str) -> str:
    """The reason as it is stored: not too long, and without lone surrogates, which UTF-8 cannot encode."""
    return reason[:MAX_CANCEL_REASON_CHARS].encode("utf-8", "replace").decode() or "cancelled"
