"""Signature: a call of a Celery task that is not made yet.

It is a dictionary, as in Celery, so it can be an argument of a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from qbull.compat.refusal import refuse_attribute
from qbull.errors import ArgumentsError

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery
    from qbull.compat.celery.task import CeleryTask

CELERY_SIGNATURE_HINTS = {
    "stamp": "use qbull.Middleware: around_enqueue() sets call.headers",
    "election": "use a schedule, or a unique job: task.options(unique=qbull.Unique(…))",
    "unchain_tasks": "use chain.tasks",
}
"""Methods of signatures that are not supported."""
SIGNATURE_TYPES: dict[str | None, Any] = {}
"""The classes of chains, groups and others by the name that their dictionaries have (canvas.py)."""


class SignatureItem:
    """An item of a signature that is an attribute too: `sig.args` is `sig["args"]`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else owner[self._name]

    def __set__(self, owner: Any, value: Any) -> None:
        owner[self._name] = value


class Signature(dict[str, Any]):
    """A call of a task that is not made yet: `add.s(2, 3)`.

    Args:
        task: The task or its name, or a signature as a dictionary.
        args: The positional arguments that are known.
        kwargs: The named arguments that are known.
        options: The options of `apply_async`.
        immutable: Whether the call ignores the result of the task before it.
        app: The app of the task; the newest one by default.
        others: Further options.
    """

    subtask_type: ClassVar[str | None] = None
    task, args, kwargs = SignatureItem(), SignatureItem(), SignatureItem()
    options, immutable = SignatureItem(), SignatureItem()

    def __init__(
        self,
        task: Any = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        app: Celery | None = None,
        **others: Any,
    ) -> None:
        if isinstance(task, Mapping):
            super().__init__(task)
        else:
            super().__init__(
                task=getattr(task, "name", task),
                args=list(args or ()),
                kwargs=dict(kwargs or {}),
                options={**(options or {}), **others},
                subtask_type=self.subtask_type,
                immutable=immutable,
            )
        self._app = app or getattr(task, "app", None)
        self.is_called = False
        """Whether the task's own `apply_async` has made this call."""

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_SIGNATURE_HINTS)

    def __repr__(self) -> str:
        parts = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self['task']}({', '.join(parts)})"

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Signature):
            return NotImplemented
        return SIGNATURE_TYPES["chain"](self, other, app=self._app)

    __ior__ = __or__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now, without a job."""
        call = self.clone(args, kwargs)
        return self.type(*call.args, **call.kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.clone()

    def __reduce__(self) -> Any:
        return signature, (dict(self),)

    def __invert__(self) -> Any:
        return self.apply_async().get()

    @property
    def app(self) -> Celery:
        from qbull.compat.celery.app import newest_app

        return self._app or newest_app("signature")

    @property
    def type(self) -> CeleryTask:
        return self.app.task_named(self["task"])

    @property
    def name(self) -> str:
        return str(self.task)

    @property
    def id(self) -> str | None:
        id: str | None = self.options.get("task_id")
        return id

    @classmethod
    def from_dict(cls, d: Mapping[str, Any], app: Celery | None = None) -> Any:
        """Return the signature, chain, group or chord that travelled as a dictionary.

        Args:
            d: The dictionary.
            app: The app of the task.
        """
        return signature(d, app=app)

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue it with further arguments, which come first."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Enqueue it. Returns an AsyncResult, or a GroupResult if it ends with a group.

        Args:
            args: Positional arguments, which come before those of the signature.
            kwargs: Named arguments, which are added to those of the signature.
            options: The options of the task's `apply_async`.
        """
        from qbull.compat.celery.canvas_flow import enqueue_canvas

        given = {name: value for name, value in options.items() if value is not None}
        if self.subtask_type is None and self.type._has_own_apply_async:
            call = self.clone(args, kwargs, **given)
            return self.type.apply_async(tuple(call.args), call.kwargs, **call.options)
        return enqueue_canvas(self.app, self, args or (), kwargs or {}, given)

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Run it here, without a job. Returns an EagerResult, or a GroupResult if it ends with a group.

        Args:
            args: Positional arguments, which come before those of the signature.
            kwargs: Named arguments, which are added to those of the signature.
            options: `task_id`, `link` and `link_error`; others have no effect here.
        """
        from qbull.compat.celery.canvas_options import with_options
        from qbull.compat.celery.eager import apply_canvas

        return apply_canvas(with_options(self, args or (), kwargs or {}, options))

    def freeze(self, _id: str | None = None) -> Any:
        """Give the call its id before it is made. Returns its result.

        Args:
            _id: The id, if the signature has none yet; by default a new one.
        """
        from qbull.compat.celery.result import AsyncResult

        id = self.options.setdefault("task_id", _id or str(uuid4()))
        return AsyncResult(id, self.app)

    def clone(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Return a copy with further arguments and options.

        Args:
            args: Positional arguments, which come before those of the signature.
            kwargs: Named arguments.
            options: Options of `apply_async`.
        """
        copy = type_of(self)(self)
        copy._app, copy.is_called = self._app, self.is_called
        copy["options"] = {**deepcopy(self.options), **options}
        copy["args"], copy["kwargs"] = list(self.args), dict(self.kwargs)
        if not self.immutable:
            copy["args"] = [*(args or ()), *self.args]
            copy["kwargs"].update(kwargs or {})
        return copy

    partial = clone

    def set(self, immutable: bool | None = None, **options: Any) -> Any:
        """Set options of `apply_async`. Returns the signature.

        Args:
            immutable: Whether the call ignores the result of the task before it.
            options: The options.
        """
        self["options"] = {**self.options, **options}
        if immutable is not None:
            self.set_immutable(immutable)
        return self

    def set_immutable(self, immutable: bool) -> None:
        """Set whether the call ignores the result of the task before it.

        Args:
            immutable: True to ignore it.
        """
        self["immutable"] = immutable

    def link(self, callback: Any) -> Any:
        """Run another task with the result of this one. Returns the callback.

        Args:
            callback: The signature of the other task.
        """
        return self._add("link", callback)

    def link_error(self, errback: Any) -> Any:
        """Run another task if this one fails. Returns the errback.

        Args:
            errback: The signature of the other task. It gets the id of the failed job, or, if it takes more
                than one argument, the request, the exception and the traceback.
        """
        return self._add("link_error", errback)

    def on_error(self, errback: Any) -> Any:
        """`link_error` that returns this signature.

        Args:
            errback: As for `link_error`.
        """
        self.link_error(errback)
        return self

    def _add(self, option: str, callback: Any) -> Any:
        callbacks = listed(self.options.get(option))
        if callback not in callbacks:
            self.options[option] = [*callbacks, callback]
        return callback


def type_of(given: Mapping[str, Any]) -> Any:
    return SIGNATURE_TYPES.get(given.get("subtask_type"), Signature)


def signature(
    task: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    app: Celery | None = None,
    **options: Any,
) -> Any:
    """Make a signature of a task, of its name, or of a signature that travelled as a dictionary.

    Args:
        task: The task, its name, or a dictionary.
        args: Positional arguments.
        kwargs: Named arguments.
        app: The app of the task.
        options: `immutable`, `options`, and the options of `apply_async`.
    """
    if isinstance(task, Signature):
        return task
    if isinstance(task, Mapping):
        if not {"task", "args", "kwargs", "options"} <= task.keys():
            raise ArgumentsError(f"signature: {dict(task)!r:.80} is no signature; use task.s(…)")
        return type_of(task)({"subtask_type": None, "immutable": False, **task}, app=app)
    if not isinstance(task, str) and not hasattr(task, "apply_async"):
        raise ArgumentsError(f"signature: {task!r:.80} is no signature; use task.s(…)")
    return Signature(task, args, kwargs, app=app, **options)


subtask = maybe_signature = signature


def is_composite(given: Any, kind: str | None) -> bool:
    return isinstance(given, Mapping) and given.get("subtask_type") == kind


def listed(callbacks: Any) -> list[Any]:
    """Return one callback or several as a list."""
    if callbacks is None:
        return []
    return [callbacks] if isinstance(callbacks, Mapping) else list(callbacks)
