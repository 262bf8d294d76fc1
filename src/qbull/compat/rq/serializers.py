"""`serializer=JSONSerializer` of RQ. Arguments and results travel as JSON with or without it."""

from __future__ import annotations

import json
from typing import Any

from qbull.compat.refusal import refuse_name

_NO_PICKLE = "arguments and results travel as JSON with their types; nothing is pickled. Remove it"


class JSONSerializer:
    """The serializer that RQ's users name for JSON. `Queue` accepts it, and needs none."""

    @staticmethod
    def dumps(*args: Any, **kwargs: Any) -> bytes:
        """The JSON of a value.

        Args:
            args: The value.
            kwargs: Options of `json.dumps`.
        """
        return json.dumps(*args, **kwargs).encode()

    @staticmethod
    def loads(s: bytes, *args: Any, **kwargs: Any) -> Any:
        """The value of some JSON.

        Args:
            s: The JSON.
            args: Options of `json.loads`.
            kwargs: Options of `json.loads`.
        """
        return json.loads(s, *args, **kwargs)


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, dict.fromkeys(("DefaultSerializer", "PickleSerializer"), _NO_PICKLE))
