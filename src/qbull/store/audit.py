"""Audit: write an entry to the audit log about each call from Python and the command line that changes
something.

The REST API writes its own entries, which know the caller. A call inside another one that is audited adds
facts to its entry. Nothing is written about jobs that programs enqueue and signals that they send, unless a
program names its author for a signal.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import msgspec

from qbull.errors import ConfigError, QbullError, ServerError
from qbull.store.store import Store
from qbull.store.verbs import audit_log
from qbull.store.verbs.audit_log import AuditLogEntry

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("qbull.audit")

MAX_AUDIT_VALUE_BYTES = 500
"""Longer values are cut."""
MAX_AUDIT_REASON_CHARS = 500
AUDIT_WRITE_SECONDS = 5.0
"""Time to write an entry about a call that failed."""
REDIS_ROLE = "redis"
"""The role of a caller with the rights of a Redis user."""
_HIDDEN_ARGUMENTS = ("payload", "arguments", "args", "value", "patch", "results")
"""Arguments of jobs: the log says that they were given, and not what they are."""


class Actor(NamedTuple):
    """The author of calls. None for `who` stands for the user of this process."""

    who: str | None = None
    reason: str = ""
    how: Literal["python", "cli"] = "python"


_actor: ContextVar[Actor] = ContextVar("qbull_audit_actor", default=Actor())  # noqa: B039 - it is frozen
_facts: ContextVar[dict[str, Any] | None] = ContextVar("qbull_audit_facts", default=None)


class AuditSubject(NamedTuple):
    """The object of a call: the server that has its audit log, its name there, and how to read its state."""

    store: Store
    target: str
    look: Callable[[], Awaitable[dict[str, Any] | None]] | None = None


def of_queue(queue: Any) -> AuditSubject:
    return AuditSubject(queue.app._client().store, queue.name)


def of_job(job: Any) -> AuditSubject:
    async def look() -> dict[str, Any] | None:
        try:
            info = await job.info()
        except QbullError:  # The call itself reports it.
            return None
        if info is None:
            return None
        seen = {"task": info.task, "state": info.state, "due": info.due_at}
        return {name: value for name, value in seen.items() if value is not None}

    return AuditSubject(of_queue(job._queue).store, f"{job.queue}/{job.id}", look)


def of_flow(flow: Any) -> AuditSubject:
    return AuditSubject(flow._app._client().store, flow.id)


def of_schedules(schedules: Any) -> AuditSubject:
    """The schedules of an app. The target is the name that the call gives."""
    return AuditSubject(schedules._app._client().store, "")


@contextmanager
def acting_as(who: str | None = None, *, reason: str = "") -> Iterator[None]:
    """Name the author and the reason of the changes in this block, for the audit log.

    Args:
        who: the author; user@host if None.
        reason: why, in a few words.
    """
    actor = _actor.get()
    author = checked_author(who) if who is not None else actor.who
    with _set(_actor, Actor(author, checked_reason(reason), actor.how)):
        yield


@contextmanager
def on_the_command_line(who: str | None, reason: str) -> Iterator[None]:
    with _set(_actor, Actor(who, checked_reason(reason), "cli")):
        yield


@contextmanager
def within_entry(facts: dict[str, Any]) -> Iterator[None]:
    """Let audited calls add to `facts` instead of writing entries: somebody writes one about all of them."""
    with _set(_facts, facts):
        yield


@contextmanager
def own_entry() -> Iterator[None]:
    """Let audited calls write entries of their own, although they are part of a call that is audited."""
    with _set(_facts, None):
        yield


@contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def note(**facts: Any) -> None:
    """Add facts to the entry about the present call: `before` and `after`, for example."""
    there = _facts.get()
    if there is not None:
        there.update(facts)


def audited(
    action: str, subject_of: Callable[[Any], AuditSubject], *, only_named: bool = False
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Write an entry about each call that changes something. Refused calls change nothing.

    Args:
        action: the name of the call in the log.
        subject_of: finds the subject in the first argument of the call.
        only_named: write nothing about calls of programs outside of `acting_as`.
    """

    def declare(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        signature = inspect.signature(method)
        parameter = signature.parameters.get("reason")

        @functools.wraps(method)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if only_named and _facts.get() is None and _actor.get() == Actor():
                return await method(*args, **kwargs)
            first, *others = signature.bind(*args, **kwargs).arguments.items()
            subject, given = subject_of(first[1]), dict(others)
            if parameter is not None and given.get("reason") == parameter.default:
                given.pop("reason", None)  # Nobody gave one.
            target, by = str(subject.target or given.pop("name", "")), given.pop("by", None)
            async with entry(subject.store, action, target, by=by, **_facts_in(given)):
                is_logged = subject.store.has_audit_log
                before = await subject.look() if subject.look is not None and is_logged else None
                result = await method(*args, **kwargs)
                if isinstance(result, str):
                    note(before=before, after={"state": result})
                elif isinstance(result, int):
                    note(jobs=result)
                return result

        return call

    return declare


@asynccontextmanager
async def entry(
    store: Store, action: str, target: str, *, by: str | None = None, **facts: Any
) -> AsyncIterator[None]:
    """Write an entry about a block when it ends. There is none if it was refused and has changed nothing."""
    if _facts.get() is not None or not store.has_audit_log:
        note(**facts)
        yield
        return
    with within_entry(facts):
        try:
            yield
        except BaseException as error:
            is_refused = isinstance(error, QbullError) and not isinstance(error, ServerError)
            if is_refused and "after" not in facts:
                raise
            facts["error"] = type(error).__name__
            try:
                async with asyncio.timeout(AUDIT_WRITE_SECONDS):
                    await _write(store.without_retry, action, target, by, 500, facts)
            except TimeoutError:
                log.error("audit entry not written in time: %s %s", action, target)
            raise
    await _write(store, action, target, by, 200, facts)


async def _write(
    store: Store, action: str, target: str, by: str | None, status: int, facts: Mapping[str, Any]
) -> None:
    actor = _actor.get()
    facts = dict(facts)
    reason = facts.pop("reason", "")
    made = AuditLogEntry(
        by or actor.who or default_author(),
        REDIS_ROLE,
        actor.how,
        action,
        target[:300],
        status,
        {name: short(value) for name, value in facts.items()},
        socket.gethostname(),
        reason=actor.reason or checked_reason(str(reason)),
    )
    try:
        await audit_log.write(store, [made], "programs" if actor.how == "python" else "trail")
    except QbullError as error:
        log.error("audit entry not written: %s: %s", error, msgspec.json.encode(made).decode())


def _facts_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call that belong into the log."""
    # Imported here: only a process that changes jobs or queues needs the rules of filters.
    from qbull.core.job_filter import JOB_FILTERS, JobFilter

    facts: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, JobFilter):
            chosen = filter_facts({field: getattr(value, field) for field in JOB_FILTERS})
            facts |= {"filter": chosen} if chosen else {}
        elif name in ("when", "given"):
            facts |= _facts_in(value)
        elif name in _HIDDEN_ARGUMENTS:
            facts |= {name: True} if value is not None else {}
        elif isinstance(value, str | int | float | datetime) or (isinstance(value, tuple) and value):
            facts[name] = value
    return facts


def filter_facts(given: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of a call for the log: arguments of jobs have their names there, and not their values."""
    facts = {name: value for name, value in given.items() if value is not None}
    if "payload" in facts:
        facts["payload"] = sorted(facts["payload"])
    if "query" in facts:
        from qbull.core.job_query import without_values

        facts["query"] = without_values(str(facts["query"]))
    return facts


def short(value: Any) -> Any:
    """A value for the log: as JSON, and cut if it is long."""
    plain = msgspec.to_builtins(value, enc_hook=repr, str_keys=True)
    text = msgspec.json.encode(plain)
    if len(text) <= MAX_AUDIT_VALUE_BYTES:
        return plain
    return text[:MAX_AUDIT_VALUE_BYTES].decode("utf-8", "replace") + "…"


def checked_reason(reason: str) -> str:
    """A reason as it is stored: not too long, and in one line."""
    return "".join(one if one.isprintable() else " " for one in reason[:MAX_AUDIT_REASON_CHARS])


def checked_author(by: str) -> str:
    if not isinstance(by, str) or not by.isprintable() or not 1 <= len(by) <= 200:
        raise ConfigError(f"by={by!r}: give a name of 1 to 200 printable characters")
    return by


def default_author() -> str:
    import getpass  # Here, because it loads the library for terminals.

    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # A container may have no name for its user.
        user = "?"
    return f"{user}@{socket.gethostname()}"
