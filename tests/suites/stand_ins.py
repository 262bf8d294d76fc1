"""Modules under the names of another project, which have the names of a door."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from outcomes import NotInTheDoor


class Absent:
    """A name that the door does not have. It may be imported, and raises when it is used."""

    def __init__(self, name: str, why: str | None = None) -> None:
        self._name, self._why = name, why

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotInTheDoor(self._name, self._why)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotInTheDoor(f"{self._name}.{name}", self._why)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()


def stand_in(name: str, real: object | None) -> ModuleType:
    """A module of the other project with the names of the door's module, or of an object.

    Args:
        name: The name of the module in the other project.
        real: The door's module; None if it has none.
    """
    module = ModuleType(name)
    module.__path__ = []

    def missing(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        try:
            return getattr(real, wanted) if real is not None else Absent(f"{name}.{wanted}")
        except (AttributeError, ImportError) as error:
            is_hint = isinstance(error, ImportError)
            return Absent(f"{name}.{wanted}", str(error) if is_hint else None)

    module.__getattr__ = missing  # type: ignore[method-assign]
    return module
