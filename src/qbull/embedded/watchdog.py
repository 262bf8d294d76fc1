"""Watchdog: the small process between an embedded server and the processes that use it.

embedded/server.py runs this file by its path, with the standard library alone. The watchdog is the parent of
the server. Each user holds one connection to the watchdog as its claim, and the kernel closes that connection
however the user ends. So the server runs exactly as long as it has users: when the last claim is gone, the
watchdog sends SIGTERM, waits for the server and ends. If the server ends by itself, the watchdog restarts it,
quickly at first and then every five seconds.

The watchdog answers a claim with "claimed", and then sends one line for each exit of the server. A user that
leaves shuts down its side only and waits: the watchdog closes the connection at once if others stay, and
otherwise when the server has stopped.

The lock on the directory comes from the process that started the watchdog, and the server inherits it. While
either of them lives, no process can start a second server on the same files; no pid has to be trusted.
The watchdog's socket is called keeper.sock, after its name in the first release.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import sys
import time

# Waits before the first restarts, and before all later ones: a full disk must not become a busy loop.
QUICK_RESTART_DELAYS_SECONDS = (0.0, 0.2)
SLOW_RESTART_DELAY_SECONDS = 5.0
# A server that ran for this long is restarted quickly again.
STABLE_AFTER_SECONDS = 10.0
# From SIGTERM to SIGKILL. With appendfsync always, SIGKILL loses nothing that was acknowledged.
SERVER_STOP_GRACE_SECONDS = 10.0
LOG_LIMIT_BYTES = 1_000_000
NO_LAST_LINE = "it left no word"


class ServerWatchdog:
    """Runs one server for the users that claim it."""

    def __init__(self, listener: socket.socket, binary: str, allocator: str, directory: str) -> None:
        self.listener, self.binary, self.allocator, self.directory = listener, binary, allocator, directory
        self.claims: set[socket.socket] = set()
        self.leaving: list[socket.socket] = []
        self.told_to_stop = False
        # The pid of the server; 0 while none runs.
        self.server = 0
        self.started = self.start_at = 0.0
        self.exits = 0
        self.log_path = os.path.join(directory, "server.log")
        # Where the log of this run of the server starts.
        self.log_offset = 0
        self.selector = selectors.DefaultSelector()
        self.signals = catch_signals(signal.SIGTERM, signal.SIGCHLD)

    def run(self) -> None:
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.signals, selectors.EVENT_READ)
        self.accept()
        while self.claims and not self.told_to_stop:
            if not self.server and time.monotonic() >= self.start_at:
                self.start()
            self.wait_for_events()
            self.reap()
            # A new user may have come while the last one left.
            self.accept()
            if self.claims:
                self.hang_up()
        self.stop()

    def wait_for_events(self) -> None:
        timeout = None if self.server else max(0.0, self.start_at - time.monotonic())
        for key, _ in self.selector.select(timeout):
            if key.fileobj is self.signals:
                self.told_to_stop |= signal.SIGTERM in self.signals.recv(4096)
            elif key.fileobj in self.claims:
                self.read_claim(key.fileobj)

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                claim, _ = self.listener.accept()
                claim.setblocking(False)
                self.selector.register(claim, selectors.EVENT_READ)
                self.claims.add(claim)
                send_line(claim, "claimed")

    def read_claim(self, claim: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if claim.recv(4096):
                return
        self.selector.unregister(claim)
        self.claims.remove(claim)
        self.leaving.append(claim)

    def hang_up(self) -> None:
        for claim in self.leaving:
            claim.close()
        self.leaving.clear()

    def start(self) -> None:
        self.log_offset = open_log(self.log_path)
        self.started = time.monotonic()
        watchdog = os.getpid()
        self.server = os.fork()
        if self.server:
            return
        try:
            terminate_with_parent(watchdog)
            settings = os.path.join(self.directory, "server.conf")
            # If the server keeps failing, the allocator may be the reason.
            allocator = self.allocator if self.exits < 2 else ""
            os.execve(self.binary, [self.binary, settings], server_environment(allocator))  # noqa: S606
        except OSError as error:
            log(f"{self.binary} cannot be executed: {error.strerror}")
        finally:
            os._exit(126)

    def reap(self) -> None:
        """If the server has exited, tell the users why and plan the restart."""
        if not self.server:
            return
        pid, status = os.waitpid(self.server, os.WNOHANG)
        if not pid:
            return
        now = time.monotonic()
        self.server = 0
        self.exits = 1 if now - self.started > STABLE_AFTER_SECONDS else self.exits + 1
        pause = (
            QUICK_RESTART_DELAYS_SECONDS[self.exits - 1]
            if self.exits <= len(QUICK_RESTART_DELAYS_SECONDS)
            else SLOW_RESTART_DELAY_SECONDS
        )
        self.start_at = now + pause
        code = os.waitstatus_to_exitcode(status)
        reason = f"killed by signal {-code}" if code < 0 else last_line(self.log_path, self.log_offset)
        for claim in self.claims:
            send_line(claim, reason)
        log(f"the server ended ({reason}); starting it again in {pause:g} s")

    def stop(self) -> None:
        sockets = os.path.dirname(self.listener.getsockname())
        self.listener.close()
        if self.server:
            self.end_server()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(sockets, "keeper.sock"))
            # This only succeeds on the directory that replaces a path that is too long.
            os.rmdir(sockets)

    def end_server(self) -> None:
        os.kill(self.server, signal.SIGTERM)
        deadline = time.monotonic() + SERVER_STOP_GRACE_SECONDS
        while os.waitpid(self.server, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                log(f"the server did not stop within {SERVER_STOP_GRACE_SECONDS:g} s; killing it")
                os.kill(self.server, signal.SIGKILL)
                os.waitpid(self.server, 0)
                return
            time.sleep(0.005)


def send_line(claim: socket.socket, line: str) -> None:
    # A user that is gone, or does not read, misses the line.
    with contextlib.suppress(OSError):
        claim.send(line.replace("\n", " ").encode(errors="replace")[:500] + b"\n")


def server_environment(allocator: str) -> dict[str, str]:
    """The environment of the server: with this allocator, unless LD_PRELOAD is set already."""
    return {**({"LD_PRELOAD": allocator} if allocator else {}), **os.environ}


def catch_signals(*signals: signal.Signals) -> socket.socket:
    """A socket that receives the number of each signal, so that one select waits for everything."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach())
    for number in signals:
        signal.signal(number, lambda *_: None)
    # The process that started us may have blocked some.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return ours


def terminate_with_parent(watchdog: int) -> None:
    """In the new server: get SIGTERM when the watchdog dies, even by SIGKILL (Linux; see server.py)."""
    if sys.platform != "linux":
        return
    # Some Pythons are built without ctypes.
    with contextlib.suppress(ImportError):
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, ctypes.c_ulong(signal.SIGTERM))
    # The watchdog may have died before we asked.
    if os.getppid() != watchdog:
        os._exit(0)


def open_log(path: str) -> int:
    """Make the log our output, which the server inherits. Returns its length."""
    # A full disk must not end the watchdog.
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > LOG_LIMIT_BYTES:
            os.replace(path, path + ".1")
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    return os.fstat(1).st_size


def log(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{os.getpid()}:watchdog {time.strftime('%d %b %Y %H:%M:%S')} # {line}\n".encode())


def last_line(path: str, offset: int) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(offset)
        lines = file.read().decode(errors="replace").strip().splitlines()
        # A line with * reports a success. If the disk was full, the log ends with such a line or in the
        # middle of one; neither is a reason.
        if not lines or re.fullmatch(r"\d+:?(\w( [^*#]*(\* .*)?)?)?", lines[-1]):
            return NO_LAST_LINE
        return lines[-1].rpartition(" # ")[2]
    return "its log cannot be read"


if __name__ == "__main__":
    # The process that started us waits for this one, so the watchdog itself is the child of no user.
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    lock, listening, binary, allocator, directory = sys.argv[1:]
    os.set_inheritable(int(lock), True)
    # A server that has the socket would look like a watchdog.
    os.set_inheritable(int(listening), False)
    ServerWatchdog(socket.socket(fileno=int(listening)), binary, allocator, directory).run()
