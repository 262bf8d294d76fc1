"""TaskDescription: a task as programs without its code know it.

Workers publish the descriptions of their tasks. A producer checks arguments by them, and makes the key, the
id and the unique window of a job as the code would. `qbull stub` writes functions from them.
"""

from __future__ import annotations

import inspect
import string
from typing import Any, Literal

import msgspec

from qbull.core.codec import ArgumentTemplate
from qbull.core.ids import check_id, check_key
from qbull.core.options import EncodedArguments, Options
from qbull.core.schema_check import SchemaCheck, SchemaError, parameters_in
from qbull.core.task import TaskSpec
from qbull.core.type_schema import type_schema
from qbull.core.unique import Unique
from qbull.errors import ArgumentsError

MAX_DESCRIPTION_BYTES = 65_536
"""A larger description is not published: the task then has a name and no schema."""
MAX_HELP_LETTERS = 1000

CodeOnly = Literal["key", "id", "unique"]
"""Values that only the code of the task can make."""

_SAME_IN_JSON: tuple[Any, ...] = (str, int, bool, str | None, int | None, bool | None)
"""Types whose values are the same in JSON as in the code."""


class TaskDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arguments and the result of a task, and how its jobs get key, id, expiry and unique window.

    Args:
        arguments: a JSON Schema of the arguments.
        result: a JSON Schema of the result; None if nobody knows it.
        help: the docstring of the function.
        key: a template of the job's key.
        id: a template of the job's id.
        code_only: values that only the code of the task can make.
        plain: parameters whose values are the same in JSON as in the code.
        defaults: the defaults of these parameters.
        unique: which one counts of several calls that ask for the same thing.
        start_within: seconds within which a job must start.
    """

    arguments: dict[str, Any]
    result: dict[str, Any] | None = None
    help: str = ""
    key: str = ""
    id: str = ""
    code_only: list[CodeOnly] = []
    plain: list[str] = []
    defaults: dict[str, Any] = {}
    unique: Unique | None = None
    start_within: float | None = None

    def call(self, task: str, payload: bytes, options: Options, laned: bool) -> EncodedArguments:
        """Check the arguments of a call. Raises ArgumentsError if they do not fit.

        Args:
            task: the name of the task.
            payload: the arguments as JSON.
            options: the options of the call, with the defaults of the task.
            laned: whether the key decides the lane of the job.
        """
        arguments = msgspec.json.decode(payload)
        self.check(task, arguments)
        complete = {**self.defaults, **arguments}
        key, id, window = options.key, options.id, None
        if key is None:
            key = check_key(self.key.format(**complete)) if self.key else None
            self._refuse_missing(task, "key", key)
        if id is None and options.unique is None:
            id = check_id(self.id.format(**complete)) if self.id else None
            self._refuse_missing(task, "id", id)
        if options.unique is not None:
            self._check_unique(task, options.unique)
            window = options.unique.of(task, msgspec.json.encode(complete), key if laned else None)
        return EncodedArguments(payload, key, id, window)

    def check(self, task: str, arguments: dict[str, Any]) -> None:
        """Check the arguments of a call. Raises ArgumentsError if they do not fit."""
        try:
            SchemaCheck(self.arguments)(arguments)
        except SchemaError as error:
            raise ArgumentsError(f'task "{task}": {error}; expected: {self.signature(task)}') from None

    def check_change(self, task: str, before: dict[str, Any], after: dict[str, Any], key: str | None) -> None:
        """Check new arguments of a job that exists. They must not change the key that the task has made.

        Args:
            task: the name of the task.
            before: the arguments that the job has.
            after: its new arguments.
            key: the key of the job.
        """
        self.check(task, after)
        if "key" in self.code_only:
            raise ArgumentsError(
                f'task "{task}": its code makes the key of a job, and this app does not have the code; '
                "use an app that has it (--app)"
            )
        if self.key and key == self._made_key(before) != (made := self._made_key(after)):
            raise changed_key(task, made, key)

    def _made_key(self, arguments: dict[str, Any]) -> str | None:
        try:
            return self.key.format(**{**self.defaults, **arguments})
        except (KeyError, IndexError, AttributeError):  # the arguments of a job that cannot run
            return None

    def signature(self, task: str) -> str:
        """The task with its parameters in one line, such as `book(id: uuid, note: string = …)`."""
        check = SchemaCheck(self.arguments)
        parameters = [
            f"{name}: {check.expected(schema)}{'' if required else ' = …'}"
            for name, schema, required in parameters_in(check)
        ]
        return f"{task}({', '.join(parameters)})"

    def _refuse_missing(self, task: str, what: CodeOnly, made: str | None) -> None:
        if made is None and what in self.code_only:
            raise ArgumentsError(
                f'task "{task}": its code makes the {what} of a job, and this app does not have the code; '
                f"give {what}=…"
            )

    def _check_unique(self, task: str, unique: Unique) -> None:
        parameters = [name for name, _, _ in parameters_in(SchemaCheck(self.arguments))]
        for name in unique.by or ():
            if name not in parameters:
                known = ", ".join(parameters) or "none"
                raise ArgumentsError(
                    f'task "{task}": unique by "{name}", but it has no argument "{name}"; it has: {known}'
                )
        unknown = sorted({*(parameters if unique.by is None else unique.by)} - {*self.plain})
        if unknown:
            raise ArgumentsError(
                f'task "{task}": unique: only its code knows which values of {", ".join(unknown)} are the '
                "same; enqueue it from an app that has the code, or name other arguments in by="
            )


def changed_key(task: str, made: str | None, key: str | None) -> ArgumentsError:
    """New arguments of a job have another key than the job."""
    return ArgumentsError(
        f'task "{task}": these arguments have the key "{made}", the job has "{key}"; '
        "enqueue a new job, and remove() this one"
    )


def describe_task(spec: TaskSpec) -> TaskDescription | None:
    """The description of a task; None if its arguments have no schema, or one that is too large."""
    arguments = spec.signature.schema()
    if arguments is None:
        return None
    plain, defaults = _plain_parameters(spec)
    code_only: list[CodeOnly] = []
    templates: dict[str, str] = {}
    for what, template in (("key", spec.key), ("id", spec.id)):
        if template is not None:
            rule = _portable(template, plain)
            templates[what] = rule
            if not rule:
                code_only.append(what)  # type: ignore[arg-type]
    unique = spec.defaults.unique
    description = TaskDescription(
        arguments=arguments,
        result=type_schema(spec.signature.result_type, spec.signature.hooks),
        help=(inspect.getdoc(getattr(spec.function, "function", spec.function)) or "")[:MAX_HELP_LETTERS],
        key=templates.get("key", ""),
        id=templates.get("id", ""),
        code_only=code_only,
        plain=plain,
        defaults=defaults,
        unique=unique,
        start_within=spec.defaults.expires if isinstance(spec.defaults.expires, int | float) else None,
    )
    return description if len(msgspec.json.encode(description)) <= MAX_DESCRIPTION_BYTES else None


def _plain_parameters(spec: TaskSpec) -> tuple[list[str], dict[str, Any]]:
    """The parameters whose values are the same in JSON as in the code, and their defaults."""
    kinds, given = spec.signature.kinds, spec.signature.defaults
    plain = [
        name
        for name, kind in kinds.items()
        if kind in _SAME_IN_JSON
        and (name not in given or given[name] is None or isinstance(given[name], str | int))
    ]
    return plain, {name: given[name] for name in plain if name in given}


def _portable(template: ArgumentTemplate, plain: list[str]) -> str:
    """The template, if a program without the code makes the same text of it; else an empty text."""
    if not isinstance(template.rule, str):
        return ""
    for _, name, form, conversion in string.Formatter().parse(template.rule):
        if name is not None and (name not in plain or form or conversion):
            return ""
    return template.rule
