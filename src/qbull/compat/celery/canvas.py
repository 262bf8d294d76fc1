"""Canvas: chains, groups and chords of Celery tasks, and tasks that are called for each item of a list.

canvas_flow.py turns a canvas into a flow of jobs when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from qbull.compat.celery.instead import CELERY_MODULE_HINTS
from qbull.compat.celery.signature import (
    SIGNATURE_TYPES,
    Signature,
    is_composite,
    listed,
    maybe_signature,
    signature,
    subtask,
)
from qbull.compat.refusal import refuse_name
from qbull.errors import ArgumentsError

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery
    from qbull.compat.celery.group_result import GroupResult
    from qbull.compat.celery.result import AsyncResult


__all__ = [
    "Signature",
    "chain",
    "chord",
    "chunks",
    "group",
    "maybe_signature",
    "signature",
    "subtask",
    "xmap",
]


class CompositeSignature(Signature):
    """Several signatures. `tasks` has them in order."""

    def _keep(self, tasks: Sequence[Any]) -> None:
        if len(tasks) == 1 and not isinstance(tasks[0], Mapping):
            if isinstance(tasks[0], str) or not isinstance(tasks[0], Iterable):
                raise ArgumentsError(f"{self.subtask_type}: {tasks[0]!r:.80} is no signature; use task.s(…)")
            tasks = list(tasks[0])
        self.kwargs["tasks"] = [signature(each, app=self._app) for each in tasks]

    def _from_mapping(self, given: Mapping[str, Any]) -> None:
        self["kwargs"] = {**given["kwargs"]}
        self._keep([list(given["kwargs"]["tasks"])])

    @property
    def tasks(self) -> list[Any]:
        return self.kwargs["tasks"]  # type: ignore[no-any-return]

    def clone(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        copy = super().clone(**options)
        first = 1 if isinstance(self, chain) else len(self.tasks)
        copy.kwargs["tasks"] = [each.clone(args, kwargs) for each in self.tasks[:first]]
        copy.kwargs["tasks"] += [each.clone() for each in self.tasks[first:]]
        return copy

    @property
    def app(self) -> Celery:
        found = next((each._app for each in self.tasks if each._app is not None), None)
        if self._app is None and found is not None:
            return found  # type: ignore[no-any-return]
        return super().app

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Enqueue it with further arguments.

        Args:
            args: Positional arguments, which come first.
            options: Options of `apply_async`.
        """
        return self.apply_async(args, **options) if self.tasks else None

    def __len__(self) -> int:
        return len(self.tasks)

    def __bool__(self) -> bool:
        return True


class chain(CompositeSignature):
    """Tasks that run one after the other, each with the result of the one before: `chain(a.s(1), b.s())`.

    Args:
        tasks: The signatures, or one list of them.
        app: The app.
        options: Options of `apply_async`.
    """

    subtask_type = "chain"

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        if len(tasks) == 1 and is_composite(tasks[0], "chain"):
            super().__init__(tasks[0], app=app)
            self._from_mapping(tasks[0])
            return
        super().__init__("celery.chain", options=options, app=app)
        self._keep(tasks)
        self.kwargs["tasks"] = [part for each in self.tasks for part in _unchained(each)]

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))

    def freeze(self, _id: str | None = None) -> Any:
        """Give the last task its id. Returns its result.

        Args:
            _id: The id, if the task has none yet; by default a new one.
        """
        if not self.tasks:
            return None
        result = self.tasks[-1].freeze(self.options.get("task_id") or _id)
        self.options["task_id"] = result.id
        return result


class group(CompositeSignature):
    """Tasks that run at the same time: `group(add.s(n, n) for n in range(9))`.

    Args:
        tasks: The signatures, or one iterable of them.
        app: The app.
        options: Options of `apply_async` for all of them.
    """

    subtask_type = "group"

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        if len(tasks) == 1 and is_composite(tasks[0], "group"):
            super().__init__(tasks[0], app=app)
            self._from_mapping(tasks[0])
            return
        super().__init__("celery.group", options=options, app=app)
        self._keep(tasks)

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"

    def __call__(self, *args: Any, **options: Any) -> GroupResult:
        """Enqueue the tasks with further arguments.

        Args:
            args: Positional arguments for each task, which come first.
            options: Options of `apply_async` for each task.
        """
        return self.apply_async(args, **options)  # type: ignore[no-any-return]

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Signature):
            return NotImplemented
        return chord(self, other, app=self._app)

    def freeze(self, _id: str | None = None) -> GroupResult:
        """Give each task its id. Returns their results.

        Args:
            _id: The id of the group, if it has none yet; by default a new one.
        """
        from qbull.compat.celery.group_result import GroupResult

        id = self.options.setdefault("task_id", _id or str(uuid4()))
        return GroupResult(id, [each.freeze() for each in self.tasks], app=self.app)

    def set_immutable(self, immutable: bool) -> None:
        for each in self.tasks:
            each.set_immutable(immutable)

    def link(self, callback: Any) -> Any:
        """Run another task after the first one of the group, as in Celery. Use a chord to wait for all.

        Args:
            callback: The signature of the other task. It gets no result.
        """
        if not self.tasks:
            raise ArgumentsError("group.link: the group is empty, so no task comes before the callback")
        return self.tasks[0].link(signature(callback).clone().set(immutable=True))

    def link_error(self, errback: Any) -> Any:
        for each in self.tasks:
            each.link_error(errback)
        return errback

    def skew(self, start: float = 1.0, stop: float | None = None, step: float = 1.0) -> group:
        """Let the tasks start one after the other. Returns the group.

        Args:
            start: Seconds until the first one starts.
            stop: The maximum.
            step: Seconds between two of them.
        """
        for number, each in enumerate(self.tasks):
            countdown = start + number * step
            each.set(countdown=countdown if stop is None else min(countdown, stop))
        return self


class chord(Signature):
    """A group and a task that gets the list of its results: `chord([a.s(1), a.s(2)])(b.s())`.

    Args:
        header: The signatures of the group.
        body: The signature of the task.
        app: The app.
        options: Options of `apply_async`.
    """

    subtask_type = "chord"

    def __init__(self, header: Any, body: Any = None, *, app: Celery | None = None, **options: Any) -> None:
        if is_composite(header, "chord"):
            super().__init__(header, app=app)
            header, body = self.kwargs["header"], self.kwargs["body"]
        else:
            super().__init__("celery.chord", options=options, app=app)
        if is_composite(header, "chain"):
            raise ArgumentsError(
                "chord: its header is a chain; give a list of tasks that run at the same time"
            )
        tasks = [signature(each).clone() for each in ([header] if isinstance(header, Mapping) else header)]
        self["kwargs"] = {
            "header": header if isinstance(header, group) else group(tasks, app=app),
            "body": None if body is None else signature(body, app=app),
        }

    def __repr__(self) -> str:
        return f"chord({self.tasks!r}, {self.body!r})"

    @property
    def tasks(self) -> list[Any]:
        return self.header.tasks

    @property
    def header(self) -> group:
        return self.kwargs["header"]  # type: ignore[no-any-return]

    @property
    def body(self) -> Any:
        return self.kwargs["body"]

    @property
    def app(self) -> Celery:
        if self._app is None and self.body is not None:
            return self.body.app  # type: ignore[no-any-return]
        return super().app

    def __call__(self, body: Any = None, **options: Any) -> AsyncResult:
        """Enqueue the header, and the body after it.

        Args:
            body: The signature of the body, unless the chord has one.
            options: Options of `apply_async`.
        """
        whole = self if body is None else chord(self.header, body, app=self._app, **self.options)
        return whole.apply_async(**options)  # type: ignore[no-any-return]

    def clone(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> chord:
        header = self.header.clone()
        header.kwargs["tasks"] = [each.clone(args, kwargs) for each in self.tasks]
        body = None if self.body is None else self.body.clone()
        return chord(header, body, app=self._app, **{**deepcopy(self.options), **options})

    def freeze(self, _id: str | None = None) -> Any:
        """Give the body its id. Returns its result.

        Args:
            _id: The id, if the body has none yet; by default a new one.
        """
        return self.body.freeze(_id)

    def set_immutable(self, immutable: bool) -> None:
        self.header.set_immutable(immutable)

    def link(self, callback: Any) -> Any:
        return self.body.link(callback)

    def link_error(self, errback: Any) -> Any:
        if self.app.conf.task_allow_error_cb_on_chord_header:
            for each in self.tasks:
                each.link_error(errback.clone())
        return self.body.link_error(errback)


class EachItem(Signature):
    """A task that is called for each item of a list, in one job."""

    def __init__(
        self, task: Any, it: Iterable[Any] = (), *, app: Celery | None = None, **options: Any
    ) -> None:
        if is_composite(task, self.subtask_type):
            super().__init__(task, app=app)
            return
        task = task if isinstance(task, Signature) else signature(task)
        super().__init__(task["task"], (), {"it": list(it)}, options, immutable=True, app=app or task._app)

    def __call__(self, **options: Any) -> Any:
        """Enqueue it.

        Args:
            options: Options of `apply_async`.
        """
        return self.apply_async(**options)


class xmap(EachItem):
    """`add.map(items)`: call the task with each item.

    Args:
        task: The task or its signature.
        it: The items.
        app: The app.
        options: Options of `apply_async`.
    """

    subtask_type = "map"


class xstarmap(EachItem):
    """`add.starmap(items)`: call the task with the arguments in each item.

    Args:
        task: The task or its signature.
        it: Lists of arguments.
        app: The app.
        options: Options of `apply_async`.
    """

    subtask_type = "starmap"


class ChunkedCalls(group):
    """The group that `add.chunks(…)` returns."""

    def group(self) -> group:
        """Return it as a group, as Celery's chunks do."""
        return group(self.tasks, app=self._app)


def chunks(task: Any, it: Iterable[Any], n: int, *, app: Celery | None = None) -> ChunkedCalls:
    """`add.chunks(items, 10)`: a group of jobs, each of which calls the task for up to `n` items.

    Args:
        task: The task or its signature.
        it: Lists of arguments.
        n: Items for each job.
        app: The app.
    """
    if n < 1:
        raise ArgumentsError(f"chunks: n={n}: give at least 1")
    rest = iter(it)
    parts = iter(lambda: list(islice(rest, n)), [])
    return ChunkedCalls([xstarmap(task, part, app=app) for part in parts], app=app)


SIGNATURE_TYPES.update(chain=chain, group=group, chord=chord, map=xmap, starmap=xstarmap)


def _unchained(part: Signature) -> list[Any]:
    """The tasks of a chain within a chain, with its callbacks; other signatures as they are."""
    if not isinstance(part, chain) or not part.tasks:
        return [part]
    tasks = [each.clone() for each in part.tasks]
    for callback in listed(part.options.get("link")):
        tasks[-1].link(callback)
    for errback in listed(part.options.get("link_error")):
        for each in tasks:
            each.link_error(errback)
    return tasks


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, CELERY_MODULE_HINTS)
