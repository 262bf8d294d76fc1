"""Keeper: the small process between an embedded server and the processes that use it.

embedded.py runs this file by its path, with the standard library alone. The keeper is the parent of the
server. Each user holds one connection to the keeper as its claim, and the kernel closes that connection
however the user ends. So the server lives as long as somebody wants it, and not longer: with the last
claim gone it gets SIGTERM, is waited for, and the keeper ends. A server that ends by itself is started
again, quickly at first and then every five seconds.

On a claim the keeper says "claimed", then one line for each end of the server. A user that lets go shuts
down its side only and waits: the keeper hangs up at once while others stay, and otherwise when the server
has stopped.

The lock on the directory came from the process that started the keeper, and the server inherits it. While
either of them lives nobody can start a second server on the same files; no pid has to be trusted.
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

QUICK_RESTART_DELAYS_SECONDS = (0.0, 0.2)  # seconds to wait before the first restarts …
SLOW_RESTART_DELAY_SECONDS = 5.0  # … and before all later ones: a full disk must not become a busy loop
STABLE_AFTER_SECONDS = 10.0  # a server that lived this long starts over with the quick ones
SERVER_STOP_GRACE_SECONDS = (
    10.0  # from SIGTERM to SIGKILL; nothing acknowledged is lost by it under appendfsync always
)
LOG_LIMIT_BYTES = 1_000_000
NO_LAST_LINE = "it left no word"


class ServerKeeper:
    def __init__(self, listener: socket.socket, binary: str, allocator: str, directory: str) -> None:
        self.listener, self.binary, self.allocator, self.directory = listener, binary, allocator, directory
        self.claims: set[socket.socket] = set()
        self.leaving: list[socket.socket] = []
        self.told_to_stop = False
        self.server = 0  # its pid; 0 while none runs
        self.started = self.start_at = 0.0
        self.ends = 0
        self.log_path = os.path.join(directory, "server.log")
        self.log_offset = 0  # where the words of this run of the server begin
        self.news = selectors.DefaultSelector()
        self.signals = catch_signals(signal.SIGTERM, signal.SIGCHLD)

    def run(self) -> None:
        self.listener.setblocking(False)
        self.news.register(self.listener, selectors.EVENT_READ)
        self.news.register(self.signals, selectors.EVENT_READ)
        self.accept()
        while self.claims and not self.told_to_stop:
            if not self.server and time.monotonic() >= self.start_at:
                self.start()
            self.wait_for_news()
            self.reap()
            self.accept()  # somebody may have come while the last one left
            if self.claims:
                self.hang_up()
        self.stop()

    def wait_for_news(self) -> None:
        timeout = None if self.server else max(0.0, self.start_at - time.monotonic())
        for key, _ in self.news.select(timeout):
            if key.fileobj is self.signals:
                self.told_to_stop |= signal.SIGTERM in self.signals.recv(4096)
            elif key.fileobj in self.claims:
                self.hear(key.fileobj)

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                claim, _ = self.listener.accept()
                claim.setblocking(False)
                self.news.register(claim, selectors.EVENT_READ)
                self.claims.add(claim)
                send_line(claim, "claimed")

    def hear(self, claim: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if claim.recv(4096):
                return
        self.news.unregister(claim)
        self.claims.remove(claim)
        self.leaving.append(claim)

    def hang_up(self) -> None:
        for claim in self.leaving:
            claim.close()
        self.leaving.clear()

    def start(self) -> None:
        self.log_offset = open_log(self.log_path)
        self.started = time.monotonic()
        keeper = os.getpid()
        self.server = os.fork()
        if self.server:
            return
        try:
            terminate_with_parent(keeper)
            settings = os.path.join(self.directory, "server.conf")
            allocator = self.allocator if self.ends < 2 else ""  # it may be what fails
            os.execve(self.binary, [self.binary, settings], server_environment(allocator))  # noqa: S606
        except OSError as error:
            log(f"{self.binary} cannot be executed: {error.strerror}")
        finally:
            os._exit(126)

    def reap(self) -> None:
        """Notice that the server has ended, say so, and plan the next start."""
        if not self.server:
            return
        pid, status = os.waitpid(self.server, os.WNOHANG)
        if not pid:
            return
        now = time.monotonic()
        self.server = 0
        self.ends = 1 if now - self.started > STABLE_AFTER_SECONDS else self.ends + 1
        pause = (
            QUICK_RESTART_DELAYS_SECONDS[self.ends - 1]
            if self.ends <= len(QUICK_RESTART_DELAYS_SECONDS)
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
            os.rmdir(sockets)  # only succeeds on the directory that stands in for a long path

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
    with contextlib.suppress(OSError):  # gone, or not listening: its own loss
        claim.send(line.replace("\n", " ").encode(errors="replace")[:500] + b"\n")


def server_environment(allocator: str) -> dict[str, str]:
    """The server's: with this allocator, unless somebody has chosen what it begins with."""
    return {**({"LD_PRELOAD": allocator} if allocator else {}), **os.environ}


def catch_signals(*wanted: signal.Signals) -> socket.socket:
    """A socket that receives the number of each signal, so that one select waits for everything."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach())
    for number in wanted:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the process that started us may have blocked some
    return ours


def terminate_with_parent(keeper: int) -> None:
    """In the new server: get SIGTERM when the keeper dies, SIGKILL included (Linux; see embedded.py for macOS)."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError):  # some Pythons are built without it
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != keeper:  # it died before we asked
        os._exit(0)


def open_log(path: str) -> int:
    """Make the log our output, which the server inherits; say how long it is already."""
    with contextlib.suppress(OSError):  # a full disk must not end the keeper
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
        os.write(1, f"{os.getpid()}:keeper {time.strftime('%d %b %Y %H:%M:%S')} # {line}\n".encode())


def last_line(path: str, offset: int) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(offset)
        lines = file.read().decode(errors="replace").strip().splitlines()
        # A line with * tells what went well. Where a full disk took no more, that is the last one, or one without an end: no reason.
        if not lines or re.fullmatch(r"\d+:?(\w( [^*#]*(\* .*)?)?)?", lines[-1]):
            return NO_LAST_LINE
        return lines[-1].rpartition(" # ")[2]
    return "its log cannot be read"


if __name__ == "__main__":
    if os.fork():  # the process that started us waits for this one; the keeper is nobody's child
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    lock, listening, binary, allocator, directory = sys.argv[1:]
    os.set_inheritable(int(lock), True)
    os.set_inheritable(int(listening), False)  # a server with it would look like a keeper
    ServerKeeper(socket.socket(fileno=int(listening)), binary, allocator, directory).run()
