"""Names of arguments that are stored elsewhere. A name has the id of its job and the time of its enqueue.

    <queue>-<token>/<id in base64>-<seconds since 1970>-<random>

The token belongs to the queue of one server, so that two servers can share a store: neither deletes the
arguments of the other. A long id spans several folders.
"""

from __future__ import annotations

import base64
import re
import secrets
from typing import NamedTuple

MAX_NAME_PART_CHARS = 150

_ARGUMENT_NAME_PATTERN = re.compile(r"[\w.-]+-[0-9a-f]{32}/([\w/-]+)-([0-9a-f]+)-[0-9a-f]{16}", re.ASCII)


class NamedArguments(NamedTuple):
    """The parts of a name.

    Attributes:
        id: The id of the job.
        seconds: The time of the enqueue, in seconds since 1970.
    """

    id: str
    seconds: int


def argument_folder(queue: str, token: str) -> str:
    """The folder of a queue's arguments."""
    return f"{queue}-{token}"


def argument_name(folder: str, id: str, seconds: float) -> str:
    """A new name for the arguments of a job."""
    text = base64.urlsafe_b64encode(id.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    parts = [text[at : at + MAX_NAME_PART_CHARS] for at in range(0, len(text), MAX_NAME_PART_CHARS)]
    return f"{folder}/{'/'.join(parts)}-{int(seconds):x}-{secrets.token_hex(8)}"


def read_argument_name(name: str) -> NamedArguments | None:
    """The parts of a name; None if no qbull has made it."""
    found = _ARGUMENT_NAME_PATTERN.fullmatch(name)
    if found is None or "//" in name:
        return None
    text = found.group(1).replace("/", "")
    try:
        id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "surrogateescape")
    except ValueError:
        return None
    return NamedArguments(id, int(found.group(2), 16))
