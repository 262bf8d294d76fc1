"""Arguments that are too large for the server go elsewhere, and the job keeps their name.

`App(arguments=…)` takes an ArgumentStore. `enqueue` writes large arguments to it before it sends the job, and
workers read them. They are stored as the codecs have made them: compressed, signed or encrypted. Workers
delete them some time after their job is gone from the server (worker/argument_sweeper.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from qbull.codecs.fsspec_store import FsspecFolder
from qbull.codecs.offload import open_private, sync_folder
from qbull.core.argument_names import read_argument_name
from qbull.errors import ConfigError, NotFound


@runtime_checkable
class ArgumentStore(Protocol):
    """A store for large arguments. qbull chooses the names, and deletes what no job needs any more."""

    over: int
    """Arguments of more bytes than this are put here; smaller ones stay with the job."""

    async def put(self, name: str, content: bytes) -> None:
        """Store arguments durably. An exception fails the enqueue.

        Args:
            name: a new name: letters, digits, "-", "_", "." and, between folders, "/".
            content: the encoded arguments.
        """
        ...

    async def get(self, name: str) -> bytes:
        """The stored bytes. Raises NotFound if they are not there.

        Args:
            name: the name that `put` got.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete stored arguments, if they are there.

        Args:
            name: the name that `put` got.
        """
        ...

    async def names(self, folder: str) -> list[str]:
        """The names of all stored arguments below a folder, with the folder.

        Args:
            folder: the first part of the names.
        """
        ...


class FileArguments:
    """Large arguments in a directory that producers and workers share: `FileArguments("/srv/arguments")`.

    Only the user that wrote arguments can read them: files have mode 0600, directories that are made here
    0700. Producers and workers therefore run as the same user.

    Args:
        directory: the directory. It is made with mode 0700 if it does not exist.
        over: arguments of more bytes go there.
    """

    def __init__(self, directory: str | Path, *, over: int = 65_536) -> None:
        self.over = _checked_size("FileArguments", over)
        self._directory = Path(directory).absolute()

    async def put(self, name: str, content: bytes) -> None:
        """Write arguments and flush them to the disk.

        Args:
            name: a new name.
            content: the encoded arguments.
        """
        await asyncio.to_thread(self._write, self._path(name), content)

    async def get(self, name: str) -> bytes:
        """Stored arguments. Raises NotFound if they are not in the directory.

        Args:
            name: the name that `put` got.
        """
        path = self._path(name)
        try:
            return await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            raise NotFound(f'"{name}" is not in {self._directory}') from None

    async def delete(self, name: str) -> None:
        """Delete stored arguments, if they are there.

        Args:
            name: the name that `put` got.
        """
        await asyncio.to_thread(self._path(name).unlink, missing_ok=True)

    async def names(self, folder: str) -> list[str]:
        """The names of all stored arguments below a folder.

        Args:
            folder: the first part of the names.
        """
        return await asyncio.to_thread(self._names, folder)

    def _path(self, name: str) -> Path:
        if read_argument_name(name) is None:
            raise NotFound(f'"{name}" is no name of stored arguments')
        return self._directory / name

    def _write(self, path: Path, content: bytes) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in reversed(path.relative_to(self._directory).parents[:-1]):
            (self._directory / folder).mkdir(mode=0o700, exist_ok=True)
        partial = path.with_name(f".{path.name}")
        with open(partial, "xb", opener=open_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        sync_folder(path.parent)

    def _names(self, folder: str) -> list[str]:
        found: list[str] = []
        for parent, _, files in os.walk(self._directory / folder):
            below = Path(parent).relative_to(self._directory)
            found += [str(below / file) for file in files if not file.startswith(".")]
        return found


class FsspecArguments:
    """Large arguments on a file system of fsspec: `FsspecArguments("s3://bucket/arguments")`.

    Args:
        url: the address of the folder.
        over: arguments of more bytes go there.
        storage_options: the options of the file system, such as `endpoint_url` or `key`.
    """

    def __init__(self, url: str, *, over: int = 65_536, **storage_options: Any) -> None:
        self.over = _checked_size("FsspecArguments", over)
        self._folder = FsspecFolder(url, storage_options)

    async def put(self, name: str, content: bytes) -> None:
        """Write arguments.

        Args:
            name: a new name.
            content: the encoded arguments.
        """
        await self._folder.write(name, content)

    async def get(self, name: str) -> bytes:
        """Stored arguments. Raises NotFound if they are not there.

        Args:
            name: the name that `put` got.
        """
        if read_argument_name(name) is None:
            raise NotFound(f'"{name}" is no name of stored arguments')
        return await self._folder.read(name)

    async def delete(self, name: str) -> None:
        """Delete stored arguments, if they are there.

        Args:
            name: the name that `put` got.
        """
        with contextlib.suppress(NotFound):
            await self._folder.remove(name)

    async def names(self, folder: str) -> list[str]:
        """The names of all stored arguments below a folder.

        Args:
            folder: the first part of the names.
        """
        return [f"{folder}/{name}" for name in await self._folder.names(folder, deep=True)]


def _checked_size(kind: str, over: int) -> int:
    if over < 0:
        raise ConfigError(f"{kind}(over={over}): must not be negative")
    return over


def check_argument_store(arguments: ArgumentStore | None) -> ArgumentStore | None:
    """Refuse an object that cannot store arguments."""
    if arguments is not None and not isinstance(arguments, ArgumentStore):
        raise ConfigError(
            f"arguments={arguments!r}: give something with over, put, get, delete and names, "
            "as qbull.FileArguments has"
        )
    return arguments
