"""The templates as users get them from a wheel: written by `qbull init`, installed from their own requirements, tested."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clean_runs import run

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ("orders", "schedulers", "platform", "chat", "agent")


@contextmanager
def databases() -> Iterator[Callable[[], str]]:
    """A PostgreSQL; each call gives the URL of a new, empty database."""
    sys.path.append(str(ROOT / "tests"))
    from database import Postgres

    server = Postgres().start()
    try:
        yield lambda: server.url(server.make_database())
    finally:
        server.remove()


def run_tests(directory: Path, env: Mapping[str, str]) -> str:
    """Run the tests of a template as its README says; gives the summary of pytest."""
    (directory / ".env").write_text((directory / ".env.example").read_text())
    output = run("python", "-m", "pytest", "-p", "no:cacheprovider", env=env, cwd=directory)
    summary = output.strip().splitlines()[-1].strip("= ")
    if not re.fullmatch(r"\d+ passed in .+", summary):
        raise AssertionError(f"{directory.name}: not all of its tests ran, or there are warnings: {output}")
    return summary
