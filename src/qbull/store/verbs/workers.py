"""The worker registry: the live workers, and the partitions that each of them reads."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from qbull.config import QueueSettings
from qbull.core.config_warnings import WorkerDeclaration
from qbull.core.layout import Generation
from qbull.core.parking import TaskSignatures


def new_worker_id() -> str:
    """A new id, under which one process registers as a worker."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class ServedQueue(msgspec.Struct, frozen=True):
    """The work of a worker for one queue. `sharing` tells how it got its partitions.

    A worker that is leaving reads no partitions and takes no more jobs, but its started jobs still run.
    """

    concurrency: int
    partitions: list[int] = []
    sharing: str = "auto"
    most: int | None = None
    instance: int | None = None
    instances: int | None = None
    take_over: float | None = None
    """Seconds after which it reads the partitions of a static instance that is gone; None for never."""
    since: dict[int, int] = {}
    """The server's time in milliseconds at which it started to read each of its partitions."""
    settings: str = ""
    leaving: bool = False
    schedules: str = ""
    """The version of the schedules in its code."""
    tasks: list[str] = []
    signatures: list[str] = []
    """The digests of the signatures of these tasks, in the same order."""
    demands: dict[str, str] = {}
    """The labels and resources that tasks of its code ask for. It runs a task only if `tasks` has it."""

    @property
    def code(self) -> TaskSignatures:
        """The tasks that it can run. A worker of a release without digests takes no parked jobs."""
        return dict(zip(self.tasks, self.signatures, strict=False))


class ProcessUsage(msgspec.Struct, frozen=True):
    """The memory and CPU of a worker process and its child processes, as of its last heartbeat."""

    memory_bytes: int
    cpu_percent: float | None = None
    """Of one core, since the heartbeat before; None with the first one."""


class RegisteredWorker(msgspec.Struct, frozen=True):
    """A live worker. `pod` is the parent that it shares with others, or itself."""

    host: str = "?"
    pid: int = 0
    pod: str = ""
    queues: dict[str, ServedQueue] = {}
    blocked: bool = False
    """Its event loop stands still: others read its partitions until it runs again."""
    blocked_since_ms: int = 0
    """The server's time at which its event loop last ran, while it is blocked."""
    blocked_by: list[str] = []
    """The task that blocks its event loop, or all tasks that run there if nobody knows which it is."""
    version: str = ""
    """The version of qbull that it runs; empty if an older release runs it."""
    started_ms: int = 0
    """When its process started, by its own clock; 0 if an older release runs it."""
    limits: dict[str, str] = {}
    """The shared limits in its code, with their values as text (core/limits.py)."""
    labels: dict[str, str] = {}
    resources: dict[str, int] = {}
    """How many tokens of each resource its host has."""


def pack_worker(member: RegisteredWorker) -> bytes:
    return msgspec.json.encode(member)


def pack_usage(usage: ProcessUsage | None) -> bytes:
    return b"" if usage is None else msgspec.json.encode(usage)


def unpack_usage(packed: bytes | None) -> ProcessUsage | None:
    try:
        return msgspec.json.decode(packed or b"null", type=ProcessUsage | None)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # A newer version wrote it.
        return None


def unpack_worker(packed: bytes) -> RegisteredWorker:
    try:
        return msgspec.json.decode(packed, type=RegisteredWorker)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Another version wrote it, or the worker has only sent heartbeats so far.
        return RegisteredWorker()


def mark_blocked(member: RegisteredWorker, since_ms: int, tasks: Sequence[str]) -> RegisteredWorker | None:
    """The registration with the mark, or without it if `since_ms` is 0. None if it stays as it is."""
    # The process itself knows the task, its supervisor may not.
    says_more = len(tasks) == 1 and member.blocked_by != list(tasks)
    if member.blocked == (since_ms > 0) and not says_more:
        return None
    return replace(
        member,
        blocked=since_ms > 0,
        blocked_since_ms=min(since_ms, member.blocked_since_ms or since_ms),
        blocked_by=sorted(tasks),
    )


class RegistryReader:
    """Unpacks the worker registry, again and again. An entry that has not changed is unpacked once.

    Each entry names all queues of its worker, which may be a hundred.
    """

    def __init__(self) -> None:
        self._unpacked: dict[bytes, RegisteredWorker] = {}

    def unpack(self, flat: Sequence[bytes]) -> dict[str, RegisteredWorker]:
        """The workers by their ids, from the alternating ids and entries of the registry."""
        known = self._unpacked
        self._unpacked = {packed: known.get(packed) or unpack_worker(packed) for packed in flat[1::2]}
        return {id.decode(): self._unpacked[packed] for id, packed in zip(flat[::2], flat[1::2], strict=True)}


def worker_declarations(
    members: Mapping[str, RegisteredWorker], queue: str, generation: Generation
) -> list[WorkerDeclaration]:
    """The workers that read the partitions of one generation, or would, by the partitions' index in it."""
    return [
        WorkerDeclaration(
            worker=id,
            pod=member.pod or id,
            sharing=serving.sharing,
            partitions=generation.indices_of(serving.partitions),
            most=serving.most,
            instance=serving.instance,
            instances=serving.instances,
            settings=serving.settings,
        )
        for id, member in sorted(members.items())
        if (serving := member.queues.get(queue)) is not None and not serving.leaving
    ]


def settings_digest(settings: QueueSettings) -> str:
    """Equal for two workers whose code declares the queue in the same way.

    Settings that may differ between them are left out.
    """
    read_back = msgspec.json.decode(msgspec.json.encode(settings), type=QueueSettings)  # 5 and 5.0 are equal
    alike = replace(read_back, partitions=1, concurrency=1)
    return hashlib.sha256(msgspec.json.encode(alike)).hexdigest()[:12]
