"""Fetches the source distributions of other projects, whose own tests run against qbull's doors.

`python tests/suites/sdists.py` puts them into .venv/.suites, pinned by version and SHA-256. Nothing of them is
part of this repository.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SUITES = ROOT / ".venv" / ".suites"
DOWNLOAD_TIMEOUT_SECONDS = 600


class Sdist(NamedTuple):
    """A pinned source distribution."""

    name: str
    version: str
    sha256: str

    @property
    def directory(self) -> Path:
        return SUITES / f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def is_there(self) -> bool:
        return (self.directory / "PKG-INFO").exists()


RQ = Sdist("rq", "2.12.0", "78116d0c860f6285817b52d7d6d0b16a726372073ce8ea1d229732ce74ef9378")
DJANGO = Sdist("django", "6.1.3", "b5d2d9e35295065d13b1927b3f19a59bd119f737aa6299def14ccca1ae3c8c0d")
CELERY = Sdist("celery", "5.7.0", "6a5dfcf6662287204f009a02002b9e66c83d4105e47ebabdc7079108772fc6f0")
ALL = (RQ, DJANGO, CELERY)


def fetch(sdist: Sdist) -> None:
    """Download, check and unpack a distribution, unless it is there."""
    if sdist.is_there:
        return
    SUITES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SUITES) as directory:
        pins = Path(directory, "pins.txt")
        pins.write_text(f"{sdist.name}=={sdist.version} --hash=sha256:{sdist.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--ignore-requires-python"]  # the tests of Django 6 run on Python 3.11 too
        command += ["--no-binary", sdist.name, "--dest", directory, "--requirement", str(pins)]
        subprocess.run(command, check=True, timeout=DOWNLOAD_TIMEOUT_SECONDS)
        [archive] = Path(directory).glob("*.tar.gz")
        if hashlib.sha256(archive.read_bytes()).hexdigest() != sdist.sha256:
            raise SystemExit(f"{archive.name}: its SHA-256 is not the pinned one")
        with tarfile.open(archive) as opened:
            opened.extractall(SUITES, filter="data")


def main() -> None:
    for sdist in ALL:
        try:
            fetch(sdist)
        except subprocess.SubprocessError as error:
            print(f"{sdist.name} {sdist.version} was not fetched, its tests will be skipped: {error}")


if __name__ == "__main__":
    main()
