"""The roster: the workers that live, and which partitions each of them reads."""

from __future__ import annotations

import msgspec


class Serving(msgspec.Struct, frozen=True):
    """What a worker does for one queue. `sharing` says how it came to its partitions."""

    concurrency: int
    partitions: list[int] = []
    sharing: str = "auto"
    most: int | None = None
    instance: int | None = None
    instances: int | None = None


class Member(msgspec.Struct, frozen=True):
    """A live worker. `pod` is the parent that it shares with others, or itself."""

    host: str = "?"
    pid: int = 0
    pod: str = ""
    queues: dict[str, Serving] = {}


def pack_member(member: Member) -> bytes:
    return msgspec.json.encode(member)


def member_of(packed: bytes) -> Member:
    try:
        return msgspec.json.decode(packed, type=Member)
    except msgspec.MsgspecError:  # another version wrote it, or it has only beaten so far
        return Member()
