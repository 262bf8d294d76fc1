"""Reachable code: the code behind a function, found without running any of it.

It follows every name that the code mentions: functions, methods, classes, containers of functions, modules.
Code of the standard library, of qbull and of packages that do not use qbull is not followed. The answer has
too many names rather than too few.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

MAX_FOLLOWED_OBJECTS = 20_000
"""Beyond this the code is not known completely."""
MAX_CONTAINER_ITEMS = 1_000
MAX_NESTING_LEVELS = 4
"""Of containers and attributes in each other."""
RUN_TIME_CHOICES = frozenset(
    (
        "__import__", "attrgetter", "eval", "exec", "getattr", "globals", "import_module", "locals",
        "methodcaller", "vars",
    )
)  # fmt: skip
"""Code that uses one of these may reach a function whose name it does not mention."""
_CONTAINERS = (list, tuple, set, frozenset, dict)
_NO_NAMES: frozenset[str] = frozenset()


class OwnModules:
    """Tells the modules of the user from the standard library, qbull, and packages that do not use qbull.

    Args:
        names: the loaded modules that may be those of the user; all by default.
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._library = sysconfig.get_path("stdlib")
        self._known: dict[str, bool] = {}
        loaded = list(sys.modules.items())
        self._modules = [(name, module) for name, module in loaded if names is None or name in names]
        self._packages = {_package(name) for name, module in self._modules if _uses_qbull(module)}

    def has(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._judge(name)
        return known

    def functions(self) -> Iterator[FunctionType]:
        """The functions and methods of all loaded modules but the standard library and qbull."""
        for name, module in self._modules:
            if not self._is_library(name):
                for value in list(_attributes(module).values()):
                    yield from _functions_of(value, name)

    def _judge(self, name: str) -> bool:
        if self._is_library(name):
            return False
        return not _is_installed(_file_of(name)) or _package(name) in self._packages

    def _is_library(self, name: str) -> bool:
        package, file = _package(name), _file_of(name)
        if package == "qbull":
            return True
        if not file:
            return package in sys.stdlib_module_names
        return file.startswith(self._library) and not _is_installed(file)


class ReachableCode:
    """The code behind some functions.

    Attributes:
        names: the names that it mentions, and the names of the functions that they stand for.
        codes: its code objects by identity.
        is_opaque: some of it cannot be known without running it.
    """

    def __init__(self, modules: OwnModules, functions: Iterable[object]) -> None:
        self.names: set[str] = set()
        self.codes: dict[int, CodeType] = {}
        self.is_opaque = False
        self._modules = modules
        self._seen: dict[tuple[int, int], object] = {}
        self._waiting: list[tuple[object, frozenset[str], int]] = []
        for function in functions:
            self._add(function)
            if type(function) is FunctionType and not modules.has(function.__module__):
                # A package that does not use qbull: its names are enough.
                self.names |= names_in(function.__code__)
        while self._waiting:
            if len(self._seen) > MAX_FOLLOWED_OBJECTS:
                self.is_opaque = True
                return
            self._follow(*self._waiting.pop())

    def _follow(self, value: object, mentioned: frozenset[str], level: int) -> None:
        """Follow an object that code stands for. `mentioned`: the names that this code has."""
        kind = type(value)
        is_module = issubclass(kind, ModuleType)
        seen = (id(value), id(mentioned) if is_module else 0)
        if seen in self._seen or level > MAX_NESTING_LEVELS:
            return
        self._seen[seen] = value, mentioned
        if is_module:
            self._module(value, mentioned)
        elif kind is FunctionType:
            self._function(cast("FunctionType", value))
        elif issubclass(kind, type):
            self._class(cast("type", value))
        elif kind in _CONTAINERS:
            items = cast("dict[Any, Any]", value).values() if kind is dict else cast("list[Any]", value)
            self._add(*list(items)[:MAX_CONTAINER_ITEMS], level=level + 1)
        elif (parts := _parts_of(value)) is not None:
            self._add(*parts, level=level)
        else:
            self._instance(value, level)

    def _add(self, *values: object, mentioned: frozenset[str] = _NO_NAMES, level: int = 0) -> None:
        self._waiting += [(value, mentioned, level) for value in values]

    def _function(self, function: FunctionType) -> None:
        self.names.add(function.__name__)
        self._add(*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        self._add(*function.__dict__.values(), level=1)
        for cell in function.__closure__ or ():
            try:
                self._add(cell.cell_contents)
            except ValueError:  # it has no value yet
                continue
        if self._modules.has(function.__module__):
            self._code(function.__code__, function.__globals__)

    def _class(self, value: type) -> None:
        self.names.add(value.__name__)
        for each in type.mro(value):
            attributes = type.__getattribute__(each, "__dict__")
            if self._modules.has(attributes.get("__module__")):
                self._add(*attributes.values(), level=1)

    def _module(self, module: object, mentioned: frozenset[str]) -> None:
        attributes = _attributes(module)
        if self._modules.has(attributes.get("__name__")):
            self._add(*(attributes[name] for name in mentioned & attributes.keys()), mentioned=mentioned)
        else:
            # The names that its functions have need not be those under which it exports them.
            named = (attributes[name] for name in mentioned & attributes.keys())
            self.names |= {one.__name__ for one in named if type(one) is FunctionType}

    def _instance(self, value: object, level: int) -> None:
        attributes = _attributes(value)
        name = attributes.get("__name__", getattr(value, "__name__", None) if _is_builtin(value) else None)
        if isinstance(name, str):
            self.names.add(name)
        if "__wrapped__" in attributes:
            self._add(attributes["__wrapped__"], level=level)
        if self._modules.has(type(value).__module__):
            self._add(type(value))
            self._add(*attributes.values(), level=level + 1)

    def _code(self, code: CodeType, scope: Mapping[str, Any]) -> None:
        if id(code) in self.codes:
            return
        self.codes[id(code)] = code
        mentioned = frozenset((*code.co_names, *code.co_freevars))
        self.names |= mentioned
        self.is_opaque = self.is_opaque or not RUN_TIME_CHOICES.isdisjoint(code.co_names)
        self._add(*(scope[name] for name in mentioned if name in scope), mentioned=mentioned)
        for name, is_relative in _imports_of(code):
            self._import(name, is_relative, scope, mentioned)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.names.add(constant.co_name)
                self._code(constant, scope)

    def _import(self, name: str, is_relative: bool, scope: Mapping[str, Any], names: frozenset[str]) -> None:
        """Follow an import inside of a function. A module that is not loaded yet is unknown."""
        package = str(scope.get("__package__") or "")
        while is_relative and package:
            found = sys.modules.get(f"{package}.{name}" if name else package)
            if found is not None:
                break
            package = package.rpartition(".")[0]
        else:
            found = sys.modules.get(name)
        if found is not None:
            self._add(found, mentioned=names)
        elif is_relative or _package(name) not in sys.stdlib_module_names:
            self.is_opaque = True


def names_in(code: CodeType) -> set[str]:
    """The names in a code object and in those inside it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= names_in(constant)
    return found


def _parts_of(value: Any) -> tuple[object, ...] | None:
    """The functions in a method or a partial; None if it is neither. Asks for the type only."""
    kind = type(value)
    if kind is MethodType:
        return value.__func__, value.__self__
    if kind in (staticmethod, classmethod):
        return (value.__func__,)
    if kind is property:
        return (value.fget,)
    if kind is partial:
        return value.func, *value.args, *value.keywords.values()
    return None


def _imports_of(code: CodeType) -> Iterator[tuple[str, bool]]:
    """The modules that it imports, and whether their names are relative."""
    before: list[Any] = [0, 0]
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            yield instruction.argval, before[0] != 0
        before = [before[1], instruction.argval]


def _functions_of(value: object, module: str) -> Iterator[FunctionType]:
    """The function, or those of the class, if this module defines it."""
    if type(value) is FunctionType:
        if value.__module__ == module:
            yield value
    elif issubclass(type(value), type):
        attributes = type.__getattribute__(value, "__dict__")
        if attributes.get("__module__") == module:
            for one in list(attributes.values()):
                function = one.__func__ if type(one) in (staticmethod, classmethod) else one
                if type(function) is FunctionType:
                    yield function


def _uses_qbull(module: object) -> bool:
    """Whether a module has imported qbull, or something of it."""
    for value in list(_attributes(module).values()):
        if issubclass(type(value), ModuleType):
            origin = _attributes(value).get("__name__")
        elif type(value) is FunctionType:
            origin = value.__module__
        elif issubclass(type(value), type):
            origin = type.__getattribute__(value, "__dict__").get("__module__")
        else:
            origin = type(value).__module__
        if isinstance(origin, str) and _package(origin) == "qbull":
            return True
    return False


def _attributes(value: object) -> Mapping[str, Any]:
    """The attributes of an object itself. No method of the object is called."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_builtin(value: object) -> bool:
    return type(value).__module__ == "builtins"


def _file_of(module: str) -> str:
    file = _attributes(sys.modules.get(module)).get("__file__")
    return file if isinstance(file, str) else ""


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


def _package(module: str) -> str:
    return module.partition(".")[0]
