"""Host tokens: the tokens of resources that all workers on a host share, such as its GPUs.

A token is a file, and the process that has locked the file holds the token. The system frees the lock when
the process ends in any way. So no token is lost, and none is held twice.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from qbull.core.digits import whole_number
from qbull.errors import ConfigError

TOKEN_FILE_MODE_BITS = 0o666
ZOMBIE_STATE = "Z"


def token_directory(chosen: str | None) -> Path:
    """The directory of the token files: the chosen one, or one of this user."""
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"qbull-{os.getuid()}"


class HeldToken:
    """A locked token file."""

    def __init__(self, fd: int, number: int) -> None:
        self._fd = fd
        self.number = number

    def runs_in(self, pid: int) -> None:
        """Another process uses the token. The token is not free while it lives, even if this one dies."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{pid} {_start_of(pid)}".encode(), 0)

    def release(self) -> None:
        # A forked child may have the file open too. It must not keep the lock.
        os.ftruncate(self._fd, 0)
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


class HeldTokens:
    """The tokens of one run. `numbers` has them by resource."""

    def __init__(self, tokens: Mapping[str, list[HeldToken]]) -> None:
        self._tokens = [token for some in tokens.values() for token in some]
        self.numbers = {name: [token.number for token in some] for name, some in tokens.items()}

    def runs_in(self, pid: int) -> None:
        """This process uses the tokens."""
        for token in self._tokens:
            token.runs_in(pid)

    def release(self) -> None:
        for token in self._tokens:
            token.release()
        self._tokens = []


class HostTokens:
    """Locks the tokens of a host.

    Args:
        resources: How many tokens of each resource the host has.
        directory: The directory of the files; one of this user if None.
    """

    def __init__(self, resources: Mapping[str, int], directory: str | None = None) -> None:
        self._resources = resources
        self._directory = token_directory(directory)
        self._is_shared = directory is not None

    def open(self) -> None:
        """Make the directory, if this worker has resources. Raises ConfigError if it cannot be used."""
        if not self._resources:
            return
        try:
            for name in self._resources:
                os.close(self._file(name, 0))
            owner = self._directory.lstat().st_uid
        except OSError as error:
            raise ConfigError(
                f"resources: cannot write to {self._directory}: {error.strerror}. "
                "Set QBULL_RESOURCE_DIR to a directory that the workers of this host can write to."
            ) from None
        if not self._is_shared and owner != os.getuid():
            raise ConfigError(
                f"resources: {self._directory} belongs to another user. "
                "Set QBULL_RESOURCE_DIR to a directory that the workers of this host can write to."
            )

    def acquire(self, wanted: Mapping[str, int]) -> HeldTokens | None:
        """Take all of these tokens, or none of them. Returns None if they are not free."""
        held: dict[str, list[HeldToken]] = {}
        for name, count in wanted.items():
            held[name] = []
            for number in range(self._resources.get(name, 0)):
                if len(held[name]) == count:
                    break
                token = self._lock(name, number)
                if token is not None:
                    held[name].append(token)
            if len(held[name]) < count:
                HeldTokens(held).release()
                return None
        return HeldTokens(held)

    def are_free(self, wanted: Mapping[str, int]) -> bool:
        """Whether these tokens were free a moment ago."""
        held = self.acquire(wanted)
        if held is not None:
            held.release()
        return held is not None

    def _lock(self, name: str, number: int) -> HeldToken | None:
        try:
            fd = self._file(name, number)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been deleted and made again, and its user may have outlived the worker.
            is_current = os.path.samestat(os.fstat(fd), os.stat(self._path(name, number)))
            if is_current and not _is_used(os.pread(fd, 100, 0)):
                os.utime(fd)
                return HeldToken(fd, number)
        except OSError:
            pass
        os.close(fd)
        return None

    def _path(self, name: str, number: int) -> Path:
        return self._directory / f"{name}.{number}"

    def _file(self, name: str, number: int) -> int:
        path = self._path(name, number)
        try:
            # Without O_CREAT: in a directory of many users, the system refuses it for the files of others.
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            self._directory.mkdir(mode=0o777 if self._is_shared else 0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, TOKEN_FILE_MODE_BITS)
            if self._is_shared:
                with suppress(OSError):
                    os.fchmod(fd, TOKEN_FILE_MODE_BITS)
            return fd


def _is_used(content: bytes) -> bool:
    """Whether the process that a worker has given the token to is still alive."""
    pid, _, start = content.decode("ascii", "replace").partition(" ")
    number = whole_number(pid)
    return number is not None and _start_of(number) == start != ""


def _start_of(pid: int) -> str:
    """The time at which a process started, which no later process of this id has; empty if it has ended."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == ZOMBIE_STATE else rest[18]
