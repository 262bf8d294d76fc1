"""Offload: results that are too large for the server go elsewhere, and the job keeps a reference.

`App(results=…)` takes a ResultStore. Workers put large results into it, and `job.result()` reads them from
it. FileResults keeps them in a directory. Without a ResultStore, a job whose result is over the limit fails.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from qbull.core.digits import whole_number
from qbull.errors import ConfigError, NotFound

RESULT_SWEEP_SECONDS = 600.0
"""Seconds between two sweeps of old results."""


@runtime_checkable
class ResultStore(Protocol):
    """A store for large results. Its author decides how long it keeps them: as long as the jobs, or longer.

    A result is encoded JSON. A job that runs again puts its result again, under a new reference.
    """

    over: int
    """Results of more bytes than this are put here; smaller ones stay with the job."""

    async def put(self, queue: str, id: str, result: bytes) -> str:
        """Store a result and return a reference, a short text.

        An exception counts as a failed attempt of the job.

        Args:
            queue: the name of the queue.
            id: the id of the job.
            result: the encoded result.
        """
        ...

    async def get(self, reference: str) -> bytes:
        """The bytes of a result. Raises NotFound if they are no longer stored.

        Args:
            reference: the text that `put` returned.
        """
        ...


class StoredResult(msgspec.Struct, frozen=True):
    """A result that is kept elsewhere."""

    reference: str


class FileResults:
    """Results in a directory that workers and the callers of `result()` share: `FileResults("/srv/results")`.

    Only the user that wrote a result can read it: files have mode 0600, directories that are made here 0700.
    Workers and callers therefore run as the same user.

    Args:
        directory: the directory. It is made with mode 0700 if it does not exist.
        over: results of more bytes go there; 0 puts all of them there.
        keep_for: seconds after which a result is deleted; 30 days by default.
    """

    def __init__(self, directory: str | Path, *, over: int = 65_536, keep_for: float = 30 * 86_400) -> None:
        if over < 0:
            raise ConfigError(f"FileResults(over={over}): must not be negative; 0 keeps all results there")
        if not keep_for > 0:
            raise ConfigError(f"FileResults(keep_for={keep_for}): must be more than 0 seconds")
        self.over = over
        self._directory = Path(directory).absolute()
        self._keep_for = keep_for
        self._swept = float("-inf")

    async def put(self, queue: str, id: str, result: bytes) -> str:
        """Write a result and flush it to the disk, under a new name.

        Args:
            queue: the name of the queue, which the file name starts with.
            id: the id of the job.
            result: the encoded result.
        """
        return await asyncio.to_thread(self._write, queue, result)

    async def get(self, reference: str) -> bytes:
        """A result. Raises NotFound if it is not in the directory.

        Args:
            reference: the text that `put` returned.
        """
        return await asyncio.to_thread(self._read, reference)

    def _write(self, queue: str, result: bytes) -> str:
        # A directory for each hour: old results are deleted with it, and no directory grows without bound.
        hour = int(time.time() // 3600)
        folder = self._directory / str(hour)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{queue}-{secrets.token_hex(16)}"
        partial = folder / f".{name}"
        with open(partial, "xb", opener=open_private) as file:
            file.write(result)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(folder / name)
        sync_folder(folder)
        if time.monotonic() - self._swept > RESULT_SWEEP_SECONDS:
            self._swept = time.monotonic()
            self._sweep(hour)
        return f"{hour}/{name}"

    def _read(self, reference: str) -> bytes:
        hour, _, name = reference.partition("/")
        path = self._directory / hour / name
        if whole_number(hour) is None or not name or "/" in name or name.startswith("."):
            raise NotFound(f'result "{reference}": is no reference of {self._directory}')
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise NotFound(
                f'result "{reference}": is not in {self._directory}; '
                f"it is kept there for {self._keep_for:g} s"
            ) from None

    def _sweep(self, hour: int) -> None:
        oldest = hour - int(self._keep_for // 3600) - 1
        for folder in self._directory.iterdir():
            folder_hour = whole_number(folder.name)
            if folder_hour is not None and folder_hour < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, whatever the umask is."""
    return os.open(path, flags, mode=0o600)


def sync_folder(folder: Path) -> None:
    """Flush a directory, so that the names in it are on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_result_store(results: ResultStore | None) -> ResultStore | None:
    """Refuse an object that cannot store results."""
    if results is not None and not isinstance(results, ResultStore):
        raise ConfigError(
            f"results={results!r}: give something with over, put and get, as qbull.FileResults has"
        )
    return results
