"""A terminal in which the commands of a page run, with a `qbull` that reaches the server of the tests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection
from pathlib import Path

COMMANDS_WITHIN_SECONDS = 120.0


class Terminal:
    """A shell in a directory.

    Args:
        directory: where commands run and modules are found.
        url: the server.
        failing: the commands that end with 1.
    """

    def __init__(self, directory: Path, url: str, failing: Collection[str] = ()) -> None:
        self.directory = directory
        self.failing = failing
        (directory / "bin").mkdir()
        command = directory / "bin/qbull"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qbull.cli.main "$@"\n')
        command.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(directory),
            "QBULL_URL": url,
            "QBULL_PREFIX": "test",
        }

    async def start(self, script: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "sh", "-uc", script, cwd=self.directory, env=self.environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip

    async def types(self, commands: str) -> str:
        """Run commands line by line, and return what they print."""
        printed = ""
        for command in commands.splitlines():
            process = await self.start(command)
            async with asyncio.timeout(COMMANDS_WITHIN_SECONDS):
                out, _ = await process.communicate()
            assert process.returncode == int(command in self.failing), f"{command}\n{out.decode()}"
            printed += out.decode()
        return printed
