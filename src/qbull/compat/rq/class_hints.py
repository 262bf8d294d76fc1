"""Hints for names of RQ that are used on a class, such as `Queue.prepare_data`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class HintingClass(type):
    """The class of classes whose `_class_hints` name the replacement of unsupported class methods."""

    _class_hints: ClassVar[Mapping[str, str]] = {}

    def __getattr__(cls, name: str) -> Any:
        hints = cls.__dict__.get("_class_hints", {})
        if name in hints:
            raise AttributeError(f"{cls.__name__}.{name}: {hints[name]}", name=name, obj=cls)
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)
