"""Names of Celery's modules: `celery.X.Y` is `qbull.compat.celery.X.Y`."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from qbull.compat.celery.instead import CELERY_PACKAGE_HINTS
from qbull.compat.celery.support import WORKS, Support, differs, refused

SHIM = "qbull.compat.celery"


def name_support(path: str) -> Support:
    """How far a name is kept that a program imports from Celery or from a package around it.

    Args:
        path: The dotted name, for example "celery.signals.task_prerun".
    """
    for package in _parents(path):
        if package in CELERY_PACKAGE_HINTS:
            return CELERY_PACKAGE_HINTS[package]
    if path.partition(".")[0] != "celery":
        return WORKS
    module, rest = _module_in(path)
    try:
        if not rest or hasattr(module, rest[0]):
            return WORKS
    except ImportError as error:
        # The module refuses the name, and the error has the replacement.
        return refused(str(error).partition(": ")[2])
    shim = importlib.import_module(SHIM)
    if rest[-1] in shim.__all__:
        return differs(f"import it from {SHIM}")
    return refused(f"{SHIM} has no such name; see docs/guides/from_celery.md for what it has")


def _parents(path: str) -> list[str]:
    """The name and the packages that it is in, the innermost first."""
    parts = path.split(".")
    return [".".join(parts[:cut]) for cut in range(len(parts), 0, -1)]


def _module_in(path: str) -> tuple[ModuleType, list[str]]:
    """The innermost module of the drop-in API on the way to a name, and the rest of the name."""
    rest = path.split(".")[1:]
    module = importlib.import_module(SHIM)
    while rest and hasattr(module, "__path__") and find_spec(f"{module.__name__}.{rest[0]}") is not None:
        module = importlib.import_module(f"{module.__name__}.{rest.pop(0)}")
    return module, rest
