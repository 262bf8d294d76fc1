"""Job ids: made by the producer before anything is sent, so that sending twice is harmless.

An id is a UUIDv7 without hyphens: 32 hexadecimal digits that sort by time and that any UUID library reads.
The 12 bits after the version hold the partition, so one lookup finds a job. Ids that users choose name no
partition, so finding them takes a search. The id of a schedule's tick consists of the schedule and the
planned instant.
"""

from __future__ import annotations

import os
import random
import re
import time
from datetime import datetime

from qbull.core.route import digest, partition_of_digest
from qbull.errors import ArgumentsError, ConfigError

# Seeded from the system in every process, a forked one too; an id must be unlike others, it need not be a
# secret.
_source = random.Random()  # noqa: S311
_random = _source.getrandbits
os.register_at_fork(after_in_child=_source.seed)

_NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,100}")
_GENERATED_ID = re.compile(r"[0-9a-f]{12}7([0-9a-f]{3})[89ab][0-9a-f]{15}")


_UUID7_BITS = 7 << 76 | 1 << 63


def new_id(partition: int) -> str:
    now_ms = time.time_ns() // 1_000_000
    return f"{now_ms << 80 | (partition & 0xFFF) << 64 | _random(62) | _UUID7_BITS:032x}"


def new_token() -> str:
    """Names a call before it is sent for the first time, so that sending it again is harmless."""
    return f"{_random(64):016x}"


def partition_in(id: str) -> int | None:
    """The partition that an id was made for; None for an id that was not made here."""
    match = _GENERATED_ID.fullmatch(id)
    return int(match.group(1), 16) if match else None


def partition_of_id(id: str, partitions: int) -> int:
    """The partition of a job without a lane: the one in its id, otherwise one by its digest.

    A tick is where its schedule is.
    """
    number = partition_in(id)
    if number is not None and number < partitions:
        return number
    return partition_of_digest(digest(schedule_in(id) or id), partitions)


def schedule_in(id: str) -> str | None:
    """The schedule that a job's id names; None if no schedule made the id."""
    name, at, rest = id.rpartition("@")
    return name if at and len(rest) >= 20 and rest[10] == "T" and rest.endswith("Z") else None


def planned_ms_in(id: str) -> datetime | None:
    """The planned instant that a tick's id names."""
    if schedule_in(id) is None:
        return None
    try:
        return datetime.fromisoformat(id.rpartition("@")[2].replace("Z", "+00:00"))
    except ValueError:
        return None


def check_key(key: str) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 1000 or not _is_text(key):
        raise ArgumentsError(f"key={key!r}: give a text that is not empty and has at most 1,000 characters")
    return key


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def partition_of(key: str, partitions: int) -> int:
    """The partition of a key in a queue with so many partitions: the same number in every language.

    It is the first eight bytes of SHA-256 over the key in UTF-8, as a big-endian number, modulo `partitions`.

    Args:
        key: the key, for example a phone number.
        partitions: how many partitions the queue has.
    """
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise ArgumentsError(f"partitions={partitions!r}: give a whole number from 1")
    return partition_of_digest(digest(check_key(key)), partitions)


def check_id(id: str) -> str:
    if not isinstance(id, str) or not 1 <= len(id) <= 200 or not id.isprintable():
        raise ArgumentsError(f"job id {id!r}: use 1 to 200 printable characters")
    return id


def check_name(what: str, name: str) -> str:
    """Refuse a name that a queue, task, schedule or limit cannot have."""
    if not _NAME_PATTERN.fullmatch(name):
        raise ConfigError(f"{what} name {name!r}: use 1 to 100 letters, digits, dots, hyphens or underscores")
    return name
