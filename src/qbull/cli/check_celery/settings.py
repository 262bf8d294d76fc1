"""Settings: `app.conf`, `Celery(…)`, settings modules of Django, celeryconfig modules and classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qbull.cli.check_celery.declarations import value_of
from qbull.cli.check_celery.project import CELERY_APP, Project, SourceModule
from qbull.cli.check_celery.report import CheckReport
from qbull.compat.celery.broker import address_of, check_backend
from qbull.compat.celery.conf import CELERY_DEFAULTS, OLD_SETTING_NAMES, routes_of, setting_support
from qbull.compat.celery.instead import CELERY_APP_HINTS, CELERY_CONF_HINTS
from qbull.compat.celery.periodic import entry_option_support
from qbull.compat.celery.support import UNREADABLE, Support, refused
from qbull.errors import ConfigError

CONSTRUCTOR_ARGUMENTS = {"broker": "broker_url", "backend": "result_backend"}
OTHER_CONSTRUCTOR_ARGUMENTS = frozenset(("main", "include", "task_cls"))
SETTINGS_FILES = ("settings", "config", "conf")
"""Words in the paths of files with settings."""

Setting = tuple[str, ast.expr, ast.AST]


class SettingCheck:
    """Checks the settings of a project.

    Args:
        project: The project.
        report: Gets the findings.
    """

    def __init__(self, project: Project, report: CheckReport) -> None:
        self._project = project
        self._report = report
        self._namespaces: set[str] = set()
        self._named_modules: set[str] = set()

    def run(self) -> None:
        """Check all settings in the project."""
        for module in self._project.modules:
            for call in module.of(ast.Call):
                if isinstance(call.func, ast.Attribute) and call.func.attr == "config_from_object":
                    self._learn_source(call)
        for module in self._project.modules:
            for name, value, place in (*self._of_app(module), *self._of_module(module)):
                self._check(module, name, value, place)
            self._check_crontabs(module)

    def _learn_source(self, call: ast.Call) -> None:
        given = {each.arg: value_of(each.value) for each in call.keywords}
        namespace = given.get("namespace")
        source = value_of(call.args[0]) if call.args else None
        if isinstance(namespace, str):
            self._namespaces.add(namespace)
        elif isinstance(source, str):
            self._named_modules.add(source.replace(":", "."))

    def _of_app(self, module: SourceModule) -> Iterator[Setting]:
        """Yield the settings that a module gives to an app."""
        for node in (*module.of(ast.Assign), *module.of(ast.Call)):
            match node:
                case ast.Assign([ast.Attribute(owner, name)], value) if self._is_conf(module, owner):
                    yield name, value, node
                case ast.Assign([ast.Subscript(owner, ast.Constant(str(name)))], value) if self._is_conf(
                    module, owner
                ):
                    yield name, value, node
                case ast.Call(ast.Attribute(owner, "update")) if self._is_conf(module, owner):
                    yield from _given(node)
                case ast.Call() if self._project.origin(module, node) == CELERY_APP:
                    for name, value, place in _given(node):
                        if name not in OTHER_CONSTRUCTOR_ARGUMENTS:
                            yield CONSTRUCTOR_ARGUMENTS.get(name, name), value, place

    def _is_conf(self, module: SourceModule, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "conf"
            and self._project.is_app(module, node.value)
        )

    def _of_module(self, module: SourceModule) -> Iterator[Setting]:
        """Yield the settings in a settings module."""
        own = ".".join(module.parts)
        is_named = own.endswith(tuple(self._named_modules))
        is_celeryconfig = is_named or module.parts[-1:] in (("celeryconfig",), ("celeryconf",))
        is_settings = any(word in part.lower() for part in module.parts for word in SETTINGS_FILES)
        for name, value, node, owner in _assignments(module.tree):
            namespace = next((each for each in self._namespaces if name.startswith(f"{each}_")), None)
            if is_settings and namespace is not None and name.isupper():
                yield name.removeprefix(f"{namespace}_").lower(), value, node
            elif is_celeryconfig or "celery" in owner.lower():
                known = OLD_SETTING_NAMES.get(name, name)
                if known in CELERY_DEFAULTS or known in CELERY_CONF_HINTS:
                    yield known, value, node

    def _check(self, module: SourceModule, given: str, value: ast.expr, place: ast.AST) -> None:
        name = OLD_SETTING_NAMES.get(given, given)
        if name in CELERY_APP_HINTS:
            self._add(module, f"Celery({name}=…)", refused(CELERY_APP_HINTS[name]), place)
            return
        literal = value_of(value)
        support = setting_support(name, literal)
        try:
            if name == "broker_url" and isinstance(literal, str) and literal:
                address_of(literal)
            elif name == "result_backend" and isinstance(literal, str) and literal:
                check_backend(literal)
            elif name == "task_routes" and literal is not UNREADABLE:
                list(routes_of(literal))
        except ConfigError as error:
            support = refused(str(error))
        self._add(module, f"conf.{name}", support, place)
        if name == "beat_schedule" and isinstance(value, ast.Dict):
            self._check_entries(module, value)

    def _check_entries(self, module: SourceModule, schedule: ast.Dict) -> None:
        """Check the options of the entries of beat_schedule."""
        for entry in schedule.values:
            for key, value in _items(entry):
                for option, _ in _items(value) if key.value == "options" else ():
                    name = str(option.value)
                    self._add(module, f"beat_schedule: options: {name}", entry_option_support(name), option)

    def _check_crontabs(self, module: SourceModule) -> None:
        for node in module.of(ast.Call):
            if not (self._project.origin(module, node.func) or "").endswith(".crontab"):
                continue
            days = [each for each in node.keywords if each.arg in ("day_of_week", "day_of_month")]
            if len([each for each in days if value_of(each.value) != "*"]) > 1:
                note = "cron means either; give one, and check the other inside the task"
                self._add(module, "crontab(day_of_week=…, day_of_month=…)", refused(note), node)

    def _add(self, module: SourceModule, what: str, support: Support, node: ast.AST) -> None:
        self._report.add(what, support, module.file, node.lineno)  # type: ignore[attr-defined]


def _given(call: ast.Call) -> Iterator[Setting]:
    """Yield the keywords of a call, and the items of dictionaries in it."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value, keyword.value
    for argument in call.args:
        for key, value in _items(argument):
            if isinstance(key.value, str):
                yield key.value, value, key


def _items(node: ast.AST) -> Iterator[tuple[ast.Constant, ast.expr]]:
    """Yield the items of a dictionary whose keys are literals."""
    match node:
        case ast.Dict(keys, values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant):
                    yield key, value
        case ast.Call(ast.Name("dict"), _, keywords):
            for keyword in keywords:
                if keyword.arg is not None:
                    yield ast.copy_location(ast.Constant(keyword.arg), keyword.value), keyword.value


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr, ast.stmt, str]]:
    """Yield the assignments of a module and of its classes, also those under a condition."""
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        parent, owner = todo.pop()
        for node in ast.iter_child_nodes(parent):
            match node:
                case (
                    ast.Assign([ast.Name(name)], value)
                    | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
                ):
                    yield name, value, node, owner
                case ast.ClassDef(name=name):
                    todo.append((node, name))
                case ast.If() | ast.Try() | ast.With():
                    todo.append((node, owner))
