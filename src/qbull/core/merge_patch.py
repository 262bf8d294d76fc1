"""JSON merge patch (RFC 7396): an object with the new values of another one. null deletes a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbull.errors import ArgumentsError


def merge_patch(target: Any, patch: Any) -> Any:
    """The patched copy of a JSON value. Objects merge by name; everything else is replaced."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def check_patch(patch: Any) -> dict[str, Any]:
    """Check that a patch is an object with at least one change."""
    if not isinstance(patch, Mapping) or not patch:
        raise ArgumentsError(
            f'patch={patch!r:.80}: give a JSON object with the changes, such as {{"amount": 6}}; '
            "null deletes an argument"
        )
    if unnamed := next((name for name in patch if not isinstance(name, str)), None):
        raise ArgumentsError(f"patch: {unnamed!r:.40} is not the name of an argument")
    return dict(patch)
