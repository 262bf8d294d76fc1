"""Declarations: the tasks of a project, their options, and the handlers of task classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qbull.cli.check_celery.project import Project, SourceModule
from qbull.cli.check_celery.report import CheckReport, DeclaredTask
from qbull.compat.celery.call_options import retry_option_support
from qbull.compat.celery.instead import (
    CELERY_REQUEST_ATTRIBUTE_HINTS,
    CELERY_TASK_ATTRIBUTE_HINTS,
    request_change_hint,
)
from qbull.compat.celery.support import UNREADABLE, WORKS, Support, differs, refused
from qbull.compat.celery.task_classes import TASK_OPTION_NAMES
from qbull.compat.celery.task_options import task_option_support

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

SHARED_TASK = frozenset(("celery.shared_task", "celery.app.shared_task", "celery.task", "celery.task.task"))
USUAL_APP_NAMES = frozenset(("app", "celery", "celery_app"))
"""Names that are taken for an app if the project does not show where they come from."""


def value_of(node: ast.AST | None) -> object:
    """Return the value of a literal; UNREADABLE for anything else."""
    try:
        return ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError):
        return UNREADABLE


class DeclarationCheck:
    """Checks the tasks of one module.

    Args:
        project: The project.
        module: The module.
        report: Gets the tasks and findings.
    """

    def __init__(self, project: Project, module: SourceModule, report: CheckReport) -> None:
        self._project = project
        self._module = module
        self._report = report

    def run(self) -> None:
        """Check all declarations in the module."""
        functions: list[FunctionNode] = [
            *self._module.of(ast.FunctionDef),
            *self._module.of(ast.AsyncFunctionDef),
        ]
        for node in functions:
            for decorator in node.decorator_list:
                if self._declares(decorator):
                    self._check_function(node, decorator)
        for kind in self._module.of(ast.ClassDef):
            if any(self._project.is_task_class(self._module, base) for base in kind.bases):
                self._check_class(kind)

    def _declares(self, node: ast.expr) -> bool:
        called = node.func if isinstance(node, ast.Call) else node
        if self._project.origin(self._module, called) in SHARED_TASK:
            return True
        return isinstance(called, ast.Attribute) and called.attr == "task" and self._is_app(called.value)

    def _is_app(self, node: ast.expr) -> bool:
        if self._project.is_app(self._module, node):
            return True
        return (
            isinstance(node, ast.Name)
            and node.id in USUAL_APP_NAMES
            and self._project.origin(self._module, node) is None
            and "elery" in ".".join((self._module.origins.get(node.id, ""), *self._module.parts))
        )

    def _check_function(self, node: FunctionNode, decorator: ast.expr) -> None:
        task = DeclaredTask(node.name, self._module.file, decorator.lineno)
        self._report.tasks.append(task)
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        self._add("@app.task", WORKS, decorator)
        for keyword in keywords:
            if keyword.arg is None:
                note = "the options are known only when the program runs"
                self._add("@app.task(**…)", differs(note), keyword.value)
                continue
            support = task_option_support(keyword.arg, value_of(keyword.value))
            self._add(f"@app.task({keyword.arg}=…)", support, keyword.value)
            task.accepted &= support.level != "refused"
        is_bound = any(each.arg == "bind" and value_of(each.value) is True for each in keywords)
        parameters = [*node.args.posonlyargs, *node.args.args]
        if is_bound and parameters:
            self._check_self(node, parameters[0].arg)

    def _check_class(self, node: ast.ClassDef) -> None:
        methods = {each.name for each in node.body if isinstance(each, FunctionNode)}
        task = DeclaredTask(node.name, self._module.file, node.lineno)
        if "run" in methods:
            self._report.tasks.append(task)
        self._add("class …(Task)", WORKS, node)
        for name, value, place in _attributes(node):
            if name in TASK_OPTION_NAMES:
                support = task_option_support(name, value_of(value))
                self._add(f"Task.{name}", support, place)
                task.accepted &= support.level != "refused"
        for method in node.body:
            if isinstance(method, FunctionNode):
                if method.name in CELERY_TASK_ATTRIBUTE_HINTS:
                    self._add(
                        f"Task.{method.name}", refused(CELERY_TASK_ATTRIBUTE_HINTS[method.name]), method
                    )
                if method.args.args:
                    self._check_self(method, method.args.args[0].arg)

    def _check_self(self, function: FunctionNode, name: str) -> None:
        """Check the uses of `self` in a task."""
        for node in ast.walk(function):
            match node:
                case ast.Call(ast.Attribute(ast.Name(owner), "retry"), _, keywords) if owner == name:
                    for keyword in keywords:
                        if keyword.arg is not None:
                            self._add(
                                f"self.retry({keyword.arg}=…)",
                                retry_option_support(keyword.arg),
                                keyword.value,
                            )
                case ast.Attribute(ast.Attribute(ast.Name(owner), "request"), used, ast.Store()) if (
                    owner == name
                ):
                    self._add(f"self.request.{used} = …", refused(request_change_hint(used)), node)
                case ast.Attribute(ast.Attribute(ast.Name(owner), "request"), used) if owner == name:
                    self._add(f"self.request.{used}", _hinted(used, CELERY_REQUEST_ATTRIBUTE_HINTS), node)
                case ast.Attribute(ast.Name(owner), used) if (
                    owner == name and used in CELERY_TASK_ATTRIBUTE_HINTS
                ):
                    self._add(f"self.{used}", refused(CELERY_TASK_ATTRIBUTE_HINTS[used]), node)

    def _add(self, what: str, support: Support, node: ast.AST) -> None:
        self._report.add(what, support, self._module.file, node.lineno)  # type: ignore[attr-defined]


def _hinted(name: str, hints: dict[str, str]) -> Support:
    return refused(hints[name]) if name in hints else WORKS


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    for each in node.body:
        match each:
            case (
                ast.Assign([ast.Name(name)], value)
                | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
            ):
                yield name, value, each
