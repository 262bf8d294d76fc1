"""`qbull stub`: write a module with a typed function for each task that workers have published."""

from __future__ import annotations

import click

from qbull.cli.stub_types import UNSET_TYPE, UNSET_VALUE, StubTypes, identifier
from qbull.cli.target import Target, on_target
from qbull.core.schema_check import SchemaCheck, parameters_in
from qbull.core.task_description import TaskDescription
from qbull.errors import NotFound
from qbull.store.verbs.descriptions import KnownTask, TaskDescriptions

_HEAD = '''"""Tasks of {queues}, for programs without their code.

Written by "qbull stub". Do not edit it; write it anew when the tasks change.
"""

# ruff: noqa
from __future__ import annotations

{imports}from typing import Any, Literal

import msgspec
import qbull

__all__ = [{names}]

_NO_OPTIONS: qbull.JobOptions = {{}}


def _given(arguments: dict[str, object]) -> dict[str, object]:
    """The arguments without those that are not given: the worker has their defaults."""
    return {{name: value for name, value in arguments.items() if value is not msgspec.UNSET}}
'''


@click.command()
@click.argument("queue_names", metavar="[QUEUE]...", nargs=-1)
@on_target
def stub(target: Target, queue_names: tuple[str, ...]) -> None:
    """Write a typed module for programs that enqueue by name.

    \b
    Example:
      qbull stub --url redis://localhost:6379 > tasks_stub.py
      qbull stub email orders > tasks_stub.py

    The module has a class for each queue and a typed function for each task, as the workers have published
    them. Without QUEUE it has all queues of the server.
    """

    async def main() -> None:
        queues: dict[str, list[KnownTask]] = {}
        silent: list[str] = []
        for queue in [await target.queue(name) for name in queue_names] or await target.queues():
            names = await target.store.tasks(queue.name)
            found = await TaskDescriptions(target.store).of(queue.name, names)
            silent += [f"{queue.name}/{task.name}" for task in found if not task.versions]
            described = [task for task in found if task.versions]
            if described:
                queues[queue.name] = described
        if not queues:
            raise NotFound("no worker has published a task on this server; start a worker first")
        if silent:
            click.echo(
                f"qbull: left out, because no worker has described them: {', '.join(silent)}; "
                "start a worker, then write the stub again",
                err=True,
            )
        click.echo(write_stub(queues), nl=False)

    target.run(main)


def write_stub(queues: dict[str, list[KnownTask]]) -> str:
    """The source of the module for these tasks."""
    classes: dict[str, str] = {}
    for queue in queues:
        classes[queue] = identifier(queue, classes.values())
    types = StubTypes(classes.values())
    parts = [_queue_class(types, classes[queue], queue, tasks) for queue, tasks in queues.items()]
    body = "\n\n".join(["", *types.classes.values(), *parts])
    modules = ("datetime", "decimal", "pathlib", "uuid")
    head = _HEAD.format(
        queues=", ".join(f'queue "{queue}"' for queue in queues),
        imports="".join(f"import {module}\n" for module in modules if f"{module}." in body),
        names=", ".join(f'"{name}"' for name in sorted([*types.classes, *classes.values()])),
    )
    return head + body


def _queue_class(types: StubTypes, name: str, queue: str, tasks: list[KnownTask]) -> str:
    lines = [f"class {name}:", f'    """The tasks of queue "{queue}"."""']
    taken: set[str] = set()
    for task in tasks:
        for is_sync in (False, True):
            function = identifier(f"{task.name}_sync" if is_sync else task.name, taken)
            taken.add(function)
            lines += ["", *_function(types, function, queue, task, is_sync)]
    return "\n".join(lines) + "\n"


def _function(types: StubTypes, function: str, queue: str, task: KnownTask, is_sync: bool) -> list[str]:
    description = task.versions[0]
    parameters = list(parameters_in(SchemaCheck(description.arguments)))
    names = [name for name, _, _ in parameters]
    app, options = identifier("app", names), identifier("options", names)
    definitions = description.arguments.get("$defs", {})
    result = _result_type(types, description)
    lines = ["    @staticmethod", f"    {'def' if is_sync else 'async def'} {function}("]
    lines += [
        f"        {app}: qbull.App,",
        f"        {options}: qbull.JobOptions = _NO_OPTIONS,",
        "        /,",
    ]
    lines += ["        *,"] if parameters else []
    for name, schema, is_required in parameters:
        annotation = types.annotation(schema, definitions)
        if is_required:
            lines.append(f"        {name}: {annotation},")
        else:
            lines.append(f"        {name}: {annotation} | {UNSET_TYPE} = {UNSET_VALUE},")
    lines.append(f"    ) -> qbull.Job[{result}]:")
    lines.append(f"        {_docstring(description.help or f'Enqueue task {task.name}.')}")
    given = ", ".join(f'"{name}": {name}' for name in names)
    lines.append(f"        arguments = _given({{{given}}})")
    returns = "" if result in ("Any", "None") else f"returns={result}, "
    call = "app.send_sync" if is_sync else "await app.send"
    call = call.replace("app.", f"{app}.")
    lines.append(f"        return {call}({queue!r}, {task.name!r}, arguments, {returns}**{options})")
    return lines


def _result_type(types: StubTypes, description: TaskDescription) -> str:
    if description.result is None:
        return "Any"
    return types.annotation(description.result, description.result.get("$defs", {}))


def _docstring(text: str) -> str:
    """The docstring of a function of a class; its text comes from the code of the task."""
    escaped = text.replace("\\", "\\\\").replace('"""', "'''").rstrip('"')
    first, *rest = escaped.splitlines()
    if not rest:
        return f'"""{first}"""'
    return "\n".join([f'"""{first}', *(f"        {line}" if line else "" for line in rest), '        """'])
