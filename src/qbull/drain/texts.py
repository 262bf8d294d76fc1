"""Arguments that are texts, as in the fields of a stream, converted to the types that a task asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from qbull.core.codec import Signature


def from_texts(signature: Signature, texts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the texts of parameters that are annotated with another type.

    A text that does not fit stays a text. Then the task's signature refuses it by name.
    """
    kinds = signature.kinds
    return {name: _converted(text, kinds.get(name, Any)) for name, text in texts.items()}


def _converted(text: Any, kind: Any) -> Any:
    if kind is Any or kind is str or not isinstance(text, str):
        return text
    try:
        return msgspec.to_builtins(msgspec.convert(text, kind, strict=False))
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
