"""A real supervisord that runs a configuration until the test is done with it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from configparser import RawConfigParser
from contextlib import contextmanager
from pathlib import Path

SUPERVISORD = Path(sys.executable).with_name("supervisord")
START_SECONDS = 60


def read_configuration(text: str) -> RawConfigParser:
    configuration = RawConfigParser(inline_comment_prefixes=(" ;",))
    configuration.read_string(text)
    return configuration


class Supervisord:
    """What it has said, and the programs that it has running."""

    def __init__(self, process: subprocess.Popen[str], wanted: int) -> None:
        self.process = process
        self.said = ""
        self.running: set[str] = set()
        self._wanted = wanted
        self._started = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if found := re.search(r"success: (\S+) entered RUNNING state", line):
                self.running.add(found[1])
            if len(self.running) == self._wanted:
                self._started.set()
        self._started.set()

    def wait(self) -> None:
        self._started.wait(START_SECONDS)
        assert len(self.running) == self._wanted, self.said

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._reader.join()


@contextmanager
def supervised(configuration: Path, environment: Mapping[str, str], wanted: int) -> Iterator[Supervisord]:
    """supervisord in the directory of its configuration, once so many programs have started. It ends at the end."""
    process = subprocess.Popen(
        [SUPERVISORD, "--nodaemon", "--configuration", configuration],
        cwd=configuration.parent, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    supervisord = Supervisord(process, wanted)
    try:
        supervisord.wait()
        yield supervisord
    finally:
        supervisord.stop()
