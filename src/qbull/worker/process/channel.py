"""The control channel between a supervisor and a worker process: a socket, and messages in both directions.

Every message may be lost with the process that sent it, and nothing depends on one: the supervisor reclaims
whatever a dead process held. If the supervisor dies, the worker notices it through its lifeline.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import msgspec

from qbull.core.sharing import Sharing

log = logging.getLogger("qbull.worker")

_MESSAGE_LENGTH = struct.Struct(">I")


class TakeRole(msgspec.Struct, frozen=True, tag=True):
    """To a worker process, as its first message: which jobs it runs. A spare process waits for it."""

    sharing: Sharing
    quarantine: bool = False
    """It runs only suspects: jobs whose worker crashed."""


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """From a worker: it runs jobs now."""


class ReplacementWanted(msgspec.Struct, frozen=True, tag=True):
    """From a worker: start another process in its place."""

    reason: str


class LeaveNow(msgspec.Struct, frozen=True, tag=True):
    """To a worker: its successor runs. Fetch nothing more, let running jobs end, and end."""


class Leaving(msgspec.Struct, frozen=True, tag=True):
    """From a worker that was told to leave: its running jobs end within so many seconds, if there is a
    limit.
    """

    seconds: float | None


class BeCautious(msgspec.Struct, frozen=True, tag=True):
    """To a worker: a job has crashed a process. For some time every job whose worker crashed is a suspect."""

    seconds: float


class SuspectFound(msgspec.Struct, frozen=True, tag=True):
    """From a worker: it holds a delivery that the quarantine process should run."""

    queue: str
    partition: int
    position: bytes
    crashes: int
    task: str = ""


class TakeSuspect(msgspec.Struct, frozen=True, tag=True):
    """To the quarantine process: take over a suspect from the worker `holder`."""

    suspect: SuspectFound
    holder: str
    rank: int = 0
    """Suspects with a smaller rank run first."""


class SuspectTaken(msgspec.Struct, frozen=True, tag=True):
    """From the quarantine process, passed on to the worker that held the suspect: it holds it no longer."""

    suspect: SuspectFound


class QuarantineIdle(msgspec.Struct, frozen=True, tag=True):
    """From the quarantine process: it has run nothing for a while."""


class TimedOutJob(msgspec.Struct, frozen=True, tag=True):
    """From a worker: the outcome of a plain function that runs on after its timeout.

    The worker records it when the function returns. If the process ends first, the supervisor records it.
    """

    queue: str
    partition: int
    delivery: bytes
    lane: bytes
    number: int
    last: bool
    id: bytes
    record: bytes
    delay_ms: int | None
    """The delay before the next attempt; None if the job has failed permanently."""
    ending: bytes = b""


Message = (
    TakeRole
    | WorkerReady
    | ReplacementWanted
    | LeaveNow
    | Leaving
    | BeCautious
    | SuspectFound
    | TakeSuspect
    | SuspectTaken
    | QuarantineIdle
    | TimedOutJob
)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def pack_message(message: Message) -> bytes:
    """A message as it is sent: its length, then its body."""
    body = msgspec.msgpack.encode(message)
    return _MESSAGE_LENGTH.pack(len(body)) + body


class ControlChannel:
    """One end of the channel. `receive` is called with each message of the other end."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[bytes] = []

    def send(self, message: Message) -> None:
        """Send a message without waiting. A dead receiver loses it."""
        packed = pack_message(message)
        if self._writer is None:
            self._unsent.append(packed)
        else:
            self._writer.write(packed)

    async def run(self, receive: Callable[[Message], None]) -> None:
        """Pass on messages until the other end is gone."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self._writer.writelines(self._unsent)
        self._unsent.clear()
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = _MESSAGE_LENGTH.unpack(await reader.readexactly(4))[0]
                message = _decoder.decode(await reader.readexactly(length))
                try:
                    receive(message)
                except Exception:
                    log.exception("unexpected error while handling %s", type(message).__name__)

    def close(self) -> None:
        """Close this end."""
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()


def open_channel(fd: int) -> ControlChannel:
    """The worker's end of the channel, from the file descriptor that it has inherited."""
    connection = socket.socket(fileno=fd)
    connection.setblocking(False)
    return ControlChannel(connection)
