"""The modules that an app imports when it is loaded: those of the settings, and `tasks` of some packages."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.util import find_spec


def import_modules(*given: str | Iterable[str] | None) -> None:
    """Import modules. Each argument is a name, several names, or None."""
    for names in given:
        for name in [names] if isinstance(names, str) else names or ():
            importlib.import_module(name)


def import_related(packages: Iterable[str], related: str | None) -> None:
    """Import a module of each package that has it.

    Args:
        packages: The names of the packages.
        related: The name of the module; None for the package itself.
    """
    for package in packages:
        importlib.import_module(package)
        if related is not None and find_spec(f"{package}.{related}") is not None:
            importlib.import_module(f"{package}.{related}")
