"""Stores on any file system of fsspec: S3, Google Cloud Storage, Azure, SFTP, memory, a directory.

`pip install "qbull[fsspec]"`, and the package of the file system, such as s3fs.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import Any

from qbull.codecs.offload import RESULT_SWEEP_SECONDS
from qbull.core.digits import whole_number
from qbull.errors import ConfigError, NotFound


class FsspecFolder:
    """A folder of a file system of fsspec. The calls block, so they run in threads.

    Args:
        url: the address of the folder, such as `s3://bucket/results`.
        storage_options: the options of its file system.
    """

    def __init__(self, url: str, storage_options: dict[str, Any]) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ConfigError(f'"{url}" needs fsspec; pip install "qbull[fsspec]"') from None
        try:
            self._fs, root = url_to_fs(url, **storage_options)
        except (ImportError, ValueError, TypeError) as error:
            raise ConfigError(f'"{url}" cannot be used: {error}') from None
        self._root = root.rstrip("/")
        self.url = url

    async def write(self, name: str, content: bytes) -> None:
        """Write a file that does not exist yet."""
        await asyncio.to_thread(self._write, name, content)

    async def read(self, name: str) -> bytes:
        """The content of a file. Raises NotFound if there is none."""
        content: bytes = await asyncio.to_thread(self._read, name)
        return content

    async def remove(self, name: str) -> None:
        """Delete a file or a folder, if it is there."""
        await asyncio.to_thread(self._remove, name)

    async def names(self, folder: str = "", *, deep: bool = False) -> list[str]:
        """The names in a folder, without those of the folders above it; with `deep` all files below it."""
        found = await asyncio.to_thread(self._names, folder, deep)
        return [name for name in found if name]

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if any(part in ("", ".", "..") or part.startswith(".") for part in parts) or "\\" in name:
            raise NotFound(f'"{name}" is no name in {self.url}')
        return f"{self._root}/{name}"

    def _write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        # A store of objects has no folders, and a file system needs them.
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(path, content)

    def _read(self, name: str) -> Any:
        path = self._path(name)
        try:
            return self._fs.cat_file(path)
        except FileNotFoundError:
            raise NotFound(f'"{name}" is not in {self.url}') from None

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(name), recursive=True)

    def _names(self, folder: str, deep: bool) -> list[str]:
        base = self._path(folder) if folder else self._root
        self._fs.invalidate_cache(base)
        try:
            found = self._fs.find(base) if deep else self._fs.ls(base, detail=False)
        except FileNotFoundError:
            return []
        start = len(self._fs._strip_protocol(base).rstrip("/")) + 1
        return [self._fs._strip_protocol(path).rstrip("/")[start:] for path in found]


class FsspecResults:
    """Large results on a file system of fsspec: `FsspecResults("s3://bucket/results")`.

    Args:
        url: the address of the folder.
        over: results of more bytes go there; 0 puts all of them there.
        keep_for: seconds after which a result is deleted; 30 days by default.
        storage_options: the options of the file system, such as `endpoint_url` or `key`.
    """

    def __init__(
        self, url: str, *, over: int = 65_536, keep_for: float = 30 * 86_400, **storage_options: Any
    ) -> None:
        if over < 0:
            raise ConfigError(f"FsspecResults(over={over}): must not be negative; 0 keeps all results there")
        if not keep_for > 0:
            raise ConfigError(f"FsspecResults(keep_for={keep_for}): must be more than 0 seconds")
        self.over = over
        self._keep_for = keep_for
        self._folder = FsspecFolder(url, storage_options)
        self._swept = float("-inf")

    async def put(self, queue: str, id: str, result: bytes) -> str:
        """Write a result under a new name.

        Args:
            queue: the name of the queue, which the file name starts with.
            id: the id of the job.
            result: the encoded result.
        """
        # A folder for each hour: old results are deleted with it.
        hour = int(time.time() // 3600)
        name = f"{hour}/{queue}-{secrets.token_hex(16)}"
        await self._folder.write(name, result)
        if time.monotonic() - self._swept > RESULT_SWEEP_SECONDS:
            self._swept = time.monotonic()
            await self._sweep(hour)
        return name

    async def get(self, reference: str) -> bytes:
        """A result. Raises NotFound if it is not there.

        Args:
            reference: the text that `put` returned.
        """
        hour, _, name = reference.partition("/")
        if whole_number(hour) is None or not name or "/" in name:
            raise NotFound(f'result "{reference}": is no reference of {self._folder.url}')
        return await self._folder.read(reference)

    async def _sweep(self, hour: int) -> None:
        oldest = hour - int(self._keep_for // 3600) - 1
        for name in await self._folder.names():
            folder_hour = whole_number(name)
            if folder_hour is not None and folder_hour < oldest:
                await self._folder.remove(name)
