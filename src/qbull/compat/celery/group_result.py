"""GroupResult: the results of the tasks of a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from qbull.compat.celery.result import AsyncResult, check_get_options
from qbull.compat.refusal import refuse_attribute
from qbull.errors import ResultTimeout

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

CELERY_GROUP_RESULT_HINTS = {
    "save": "keep the ids of its results",
    "restore": "make it of the ids: GroupResult(id, [AsyncResult(id) for id in ids])",
    "delete": "use forget()",
    "backend": "results are stored with the jobs",
    "then": "use chord(group, callback)",
}
"""Methods of a GroupResult that are not supported."""


class ResultSet:
    """Several results that are waited for together.

    Args:
        results: Results of tasks and groups.
        app: The app.
    """

    def __init__(self, results: Sequence[Any], app: Celery | None = None) -> None:
        self.results = list(results)
        self.app = app

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_GROUP_RESULT_HINTS)

    def __len__(self) -> int:
        return len(self.results)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, number: int) -> Any:
        return self.results[number]

    @property
    def children(self) -> list[Any]:
        return self.results

    def add(self, result: Any) -> None:
        """Add a result, unless it is there.

        Args:
            result: A result of a task or a group.
        """
        if result not in self.results:
            self.results.append(result)

    def ready(self) -> bool:
        return all(result.ready() for result in self.results)

    def successful(self) -> bool:
        return all(result.successful() for result in self.results)

    def failed(self) -> bool:
        return any(result.failed() for result in self.results)

    def waiting(self) -> bool:
        return not self.ready()

    def completed_count(self) -> int:
        """Return how many of the tasks have succeeded."""
        return sum(
            result.completed_count() if isinstance(result, ResultSet) else result.successful()
            for result in self.results
        )

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        callback: Callable[[str, Any], Any] | None = None,
        **others: Any,
    ) -> list[Any]:
        """Wait for all results. Returns them in the order of the tasks.

        Args:
            timeout: Seconds to wait for all of them together.
            propagate: Whether to raise the error of a failed task. If False, it takes the place of the
                result.
            callback: Called with the id and the value of each result; then an empty list is returned.
            others: Options of Celery that have no effect here.
        """
        check_get_options(others)
        until = None if timeout is None else time.monotonic() + timeout
        values: list[Any] = []
        for result in self.results:
            left = None if until is None else max(until - time.monotonic(), 0)
            value = result.get(left, propagate)
            if callback is None:
                values.append(value)
            else:
                callback(result.id, value)
        return values

    join = join_native = get

    def iterate(self, timeout: float | None = None, propagate: bool = True) -> Iterator[Any]:
        """Yield each result as soon as it is there.

        Args:
            timeout: Seconds to wait for all of them together.
            propagate: Whether to raise the error of a failed task.
        """
        until = None if timeout is None else time.monotonic() + timeout
        left = list(self.results)
        while left:
            ended = [result for result in left if result.ready()]
            for result in ended:
                left.remove(result)
                yield result.get(propagate=propagate)
            if left and not ended:
                if until is not None and time.monotonic() > until:
                    raise ResultTimeout(
                        f"{len(left)} of {len(self)} tasks have not ended within {timeout:g} s"
                    )
                time.sleep(RESULT_POLL_SECONDS)

    def forget(self) -> None:
        """Delete all jobs with their results."""
        for result in self.results:
            result.forget()

    def revoke(self, terminate: bool = False, **others: Any) -> None:
        """Cancel all jobs.

        Args:
            terminate: Whether to stop running jobs too.
            others: As for `AsyncResult.revoke`.
        """
        for result in self.results:
            result.revoke(terminate, **others)


RESULT_POLL_SECONDS = 0.1


class GroupResult(ResultSet):
    """The results of a group.

    Args:
        id: The id of the group.
        results: The results of its tasks.
        app: The app.
        parent: The result of the part of the canvas before the group.
    """

    def __init__(
        self,
        id: str,
        results: Sequence[Any] = (),
        *,
        app: Celery | None = None,
        parent: AsyncResult | Self | None = None,
    ) -> None:
        super().__init__(results, app)
        self.id = id
        self.parent = parent

    def as_tuple(self) -> tuple[tuple[str, Any], list[Any]]:
        """Return the ids of the group and of its results. `result_from_tuple` makes a result of them."""
        parent = None if self.parent is None else self.parent.as_tuple()
        return (self.id, parent), [result.as_tuple() for result in self.results]

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(str(result) for result in self.results)}]>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupResult) and (other.id, other.results) == (self.id, self.results)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def state(self) -> str:
        if self.failed():
            return "FAILURE"
        return "SUCCESS" if self.successful() else "PENDING"


def result_from_tuple(given: Any, app: Celery | None = None) -> Any:
    """Make the AsyncResult or GroupResult that `as_tuple` has described.

    Args:
        given: The tuple, or the list that JSON has made of it.
        app: The app.
    """
    if not isinstance(given, Sequence) or isinstance(given, str):
        return given
    own, members = given
    id, before = (own, None) if isinstance(own, str) else own
    parent = None if before is None else result_from_tuple(before, app)
    if members is None:
        return AsyncResult(id, app, parent=parent)
    return GroupResult(id, [result_from_tuple(each, app) for each in members], app=app, parent=parent)
