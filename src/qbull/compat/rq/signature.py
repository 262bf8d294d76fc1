"""The arguments of a registered function: each arrives as what it was, or is refused at the call."""

from __future__ import annotations

from typing import Any

from qbull.compat.exact_arguments import ExactSignature
from qbull.compat.exact_values import strictly_with_types
from qbull.core.codec import PAYLOAD_LIMIT_BYTES
from qbull.errors import PayloadError


class RqSignature(ExactSignature):
    """The arguments and the result of one function. RQ pickles them, so callers rely on their types."""

    def encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = PAYLOAD_LIMIT_BYTES
    ) -> tuple[bytes, Any]:
        payload, call = super().encode(args, kwargs, limit)
        given = self.whole.bind(*args, **kwargs).arguments
        for name in self._loose - self._untyped:
            value = given.get(name)
            if isinstance(value, dict) and set(getattr(call, name)) != set(value):
                raise PayloadError(
                    f'task "{self.name}": {name}: the keys of a dictionary arrive as texts; '
                    "annotate their type, for example dict[int, str]"
                )
        return payload, call

    def _with_types(self, value: Any) -> Any:
        return strictly_with_types(value)
