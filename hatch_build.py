"""The build of the dashboard: from ui/ into src/qbull/ui, which git ignores and the wheel carries.

hatchling calls it for wheels, source distributions and editable installs, `make setup` runs it as a program. What was built is stamped with a hash of
its sources: where that fits, Node is not needed, so a wheel can be made from a source distribution without it.

The description on PyPI is README.md with absolute links, because PyPI has none of the files that it links to.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "ui"
BUILT = ROOT / "src" / "qbull" / "ui"
STAMP = BUILT / ".built"
README = ROOT / "README.md"
PAGES = "https://github.com/qbull/qbull/blob/main/"
IMAGES = "https://raw.githubusercontent.com/qbull/qbull/main/"
RELATIVE_PAGE = re.compile(r"(?<!!)(\[[^\]]*\]\()(?![a-z]+:|#)")
RELATIVE_IMAGE = re.compile(r'(!\[[^\]]*\]\(|\b(?:src|srcset)=")(?![a-z]+:)')


class CannotBuild(Exception):
    """Why the dashboard could not be built."""


def build() -> None:
    """Build it, unless that was done already."""
    if not SOURCE.is_dir():
        return
    with _alone():
        _build()


@contextmanager
def _alone() -> Iterator[None]:
    """Two builds at once would write into each other's files: `make -j`, or an install beside a build."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (SOURCE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build() -> None:
    wanted = fingerprint()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        STAMP.touch()
        return
    npm = shutil.which("npm")
    if npm is None:
        raise CannotBuild("npm was not found; install Node.js 20.19 or newer to build the dashboard")
    if not _installed():
        _run(npm, "ci", "--no-audit", "--no-fund", "--loglevel=error")
    _run(npm, "run", "--silent", "build")
    STAMP.write_text(wanted)


def fingerprint() -> str:
    """Of all that the built files are made from."""
    files = [path for path in sorted(SOURCE.rglob("*")) if path.is_file()]
    digest = hashlib.sha256()
    for path in files:
        name = path.relative_to(SOURCE)
        if name.parts[0] != "node_modules":
            digest.update(f"{name.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def description() -> str:
    """README.md for a page that is elsewhere: links lead to the repository, images come from there."""
    text = RELATIVE_IMAGE.sub(rf"\g<1>{IMAGES}", README.read_text())
    return RELATIVE_PAGE.sub(rf"\g<1>{PAGES}", text)


def _installed() -> bool:
    """npm writes down what it has installed; a newer lock file wants another install."""
    there = SOURCE / "node_modules" / ".package-lock.json"
    return there.is_file() and there.stat().st_mtime >= (SOURCE / "package-lock.json").stat().st_mtime


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CannotBuild(f"{' '.join(command[:2])} has failed: " + "\n".join(said[-20:]))


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # run by `make`, with any Python
    pass
else:

    class DashboardHook(BuildHookInterface[Any]):
        """A wheel without Node has no dashboard, and the server says so; one whose build fails is not made."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            try:
                build()
            except CannotBuild as why:
                if version != "editable" and shutil.which("npm") is not None:
                    raise
                self.app.display_warning(f"the dashboard was not built: {why}")

    class DescriptionHook(MetadataHookInterface):
        """The description of the package."""

        PLUGIN_NAME = "custom"

        def update(self, metadata: dict[str, Any]) -> None:
            metadata["readme"] = {"content-type": "text/markdown", "text": description()}


if __name__ == "__main__":
    try:
        build()
    except CannotBuild as why:
        print(f"the dashboard was not built: {why}", file=sys.stderr)  # noqa: T201
        sys.exit(0 if shutil.which("npm") is None else 1)
