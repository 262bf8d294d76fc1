"""Uses: imports from Celery, attributes of the app, and the options of calls."""

from __future__ import annotations

import ast

from qbull.cli.check_celery.project import APP_STAND_INS, CELERY_APP, Project, SourceModule
from qbull.cli.check_celery.report import CheckReport
from qbull.compat.celery.call_options import call_option_support
from qbull.compat.celery.control import control_support
from qbull.compat.celery.instead import CELERY_APP_ATTRIBUTE_HINTS
from qbull.compat.celery.names import SHIM, name_support
from qbull.compat.celery.support import Support, refused

CALLS_WITH_OPTIONS = frozenset(("apply_async", "apply_async_on_commit", "send_task"))
SIGNATURE_CALLS = frozenset(("s", "si", "signature", "subtask"))
NEIGHBOUR_PACKAGES = ("celery", "django_celery_beat", "django_celery_results", "kombu", "flower")


class UseCheck:
    """Checks the imports and calls of one module.

    Args:
        project: The project.
        module: The module.
        report: Gets the findings.
    """

    def __init__(self, project: Project, module: SourceModule, report: CheckReport) -> None:
        self._project = project
        self._module = module
        self._report = report

    def run(self) -> None:
        """Check all imports and calls in the module."""
        for plain in self._module.of(ast.Import):
            for each in plain.names:
                self._check_name(each.name, plain)
        for node in self._module.of(ast.ImportFrom):
            for each in node.names if node.module and not node.level else ():
                self._check_name(f"{node.module}.{each.name}", node)
        attributes = self._module.of(ast.Attribute)
        inner = {id(attribute.value) for attribute in attributes}
        for attribute in attributes:
            if id(attribute) not in inner:
                self._check_attribute(attribute)
        for call in self._module.of(ast.Call):
            if isinstance(call.func, ast.Attribute):
                self._check_call(call, call.func, call.func.attr)

    def _check_name(self, path: str, node: ast.AST) -> None:
        """Check a name that is imported."""
        if path.startswith(f"{SHIM}."):
            path = path.removeprefix("qbull.compat.")
        if path.partition(".")[0] in NEIGHBOUR_PACKAGES:
            self._add(path.removesuffix(".*"), name_support(path.removesuffix(".*")), node)

    def _check_attribute(self, node: ast.Attribute) -> None:
        """Check a name such as `celery.signals.task_prerun` or `app.control.inspect`."""
        origin = self._project.origin(self._module, node)
        if origin is None:
            return
        for stand_in in APP_STAND_INS:
            origin = origin.replace(stand_in, CELERY_APP)
        if origin.startswith(f"{CELERY_APP}."):
            first, _, rest = origin.removeprefix(f"{CELERY_APP}.").partition(".")
            if first == "control" and rest:
                method = rest.partition(".")[0].removesuffix("()")
                self._add(f"app.control.{method}", control_support(method), node)
            elif first in CELERY_APP_ATTRIBUTE_HINTS:
                self._add(f"app.{first}", refused(CELERY_APP_ATTRIBUTE_HINTS[first]), node)
        elif "(" not in origin and self._module.origins.get(_root_name(node)) in ("celery", SHIM):
            self._add(origin, name_support(origin), node)

    def _check_call(self, node: ast.Call, called: ast.Attribute, method: str) -> None:
        is_signature = (
            method == "set"
            and isinstance(called.value, ast.Call)
            and isinstance(called.value.func, ast.Attribute)
            and called.value.func.attr in SIGNATURE_CALLS
        )
        if method in CALLS_WITH_OPTIONS or is_signature:
            self._add(method, Support("works"), node)
            for keyword in node.keywords:
                if keyword.arg is not None and keyword.arg not in ("args", "kwargs", "name", "immutable"):
                    self._add(f"{method}({keyword.arg}=…)", call_option_support(keyword.arg), keyword.value)

    def _add(self, what: str, support: Support, node: ast.AST) -> None:
        self._report.add(what, support, self._module.file, node.lineno)  # type: ignore[attr-defined]


def _root_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
