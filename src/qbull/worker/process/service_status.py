"""Tell systemd and health checks how `qbull worker` is doing.

With systemd it sends READY=1 when the first worker process runs jobs, WATCHDOG=1 while it lives, and
STOPPING=1 when it stops. For `qbull-alive` it writes its state to a file every few seconds. Neither needs
the server, so a worker that waits for an unavailable server is alive, but not ready.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from qbull.environment import SystemdSettings
from qbull.worker.actor import start_actor, stop_actors
from qbull_alive import status_directory

log = logging.getLogger("qbull.supervisor")

ServiceState: TypeAlias = Literal["starting", "waiting", "ready", "stopping"]

STATUS_SECONDS = 5.0
"""How often the state is written and sent."""
START_EXTENSION_SECONDS = 60
"""By how much each message extends the time that systemd gives a service to start."""
STATUS_TEXTS: dict[ServiceState, str] = {
    "starting": "starting worker processes",
    "waiting": "waiting for the server",
    "ready": "running jobs",
    "stopping": "letting running jobs finish",
}


class ServiceStatus:
    """Reports the state of a service until it is closed: `async with ServiceStatus(…)`.

    Args:
        state: Returns the state now.
        changed: Set when the state has changed.
        systemd: The socket and the watchdog of systemd, if it started this program.
    """

    def __init__(
        self, state: Callable[[], ServiceState], changed: asyncio.Event, systemd: SystemdSettings
    ) -> None:
        self._state = state
        self._changed = changed
        self._socket = systemd.notify_socket
        watchdog = systemd.watchdog_seconds
        self._watches = watchdog is not None
        self._interval = min(STATUS_SECONDS, (watchdog or STATUS_SECONDS) / 3)
        self._file = Path(status_directory()) / f"worker-{os.getpid()}"
        self._writes = True
        self._was_ready = False
        self._actors: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> ServiceStatus:
        self._actors = [start_actor(self._run)]
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_actors(self._actors)
        self._notify("STOPPING=1")
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            self.report(self._state())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._changed.wait()

    def report(self, state: ServiceState) -> None:
        """Send and write the state."""
        lines = [f"STATUS={STATUS_TEXTS[state]}"]
        if state == "ready" and not self._was_ready:
            self._was_ready = True
            lines.append("READY=1")
        elif state == "stopping":
            lines.append("STOPPING=1")
        elif not self._was_ready:
            lines.append(f"EXTEND_TIMEOUT_USEC={START_EXTENSION_SECONDS * 1_000_000}")
        if self._watches:
            lines.append("WATCHDOG=1")
        self._notify("\n".join(lines))
        self._write(state)

    def _notify(self, text: str) -> None:
        if self._socket is None:
            return
        # A leading @ stands for the abstract namespace.
        address = "\0" + self._socket[1:] if self._socket.startswith("@") else self._socket
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), address)
        except OSError as error:
            log.warning("cannot notify systemd at %s: %s", self._socket, error)
            self._socket = None

    def _write(self, state: ServiceState) -> None:
        if not self._writes:
            return
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            written = self._file.with_suffix(".new")
            written.write_text(state + "\n", encoding="ascii")
            written.replace(self._file)
        except OSError as error:
            log.info("qbull-alive cannot see this worker: %s", error)
            self._writes = False
