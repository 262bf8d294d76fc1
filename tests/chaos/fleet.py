"""The processes of a campaign: pods of workers, producers, payers. Each is started, killed, frozen and started again as asked.

What ends by itself is started again, as a service manager does: its server may have been away at the start. A frozen process
that was killed is gone like any other.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from job_plan import MIN_IDLE, PARTITIONS

from topology import _die_with_parent

HERE = Path(__file__).parent
PROCESSES = 2


@dataclass
class Member:
    """One place in the fleet: a command that is to run, in a process group of its own."""

    name: str
    command: list[str]
    environment: dict[str, str]
    output: Path
    wanted: bool = True
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Not from a thread: it dies with the thread that has started it."""
        self.wanted = True
        self.lives += 1
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip

    def send(self, what: signal.Signals) -> None:
        if self.runs:
            assert self.process is not None
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, what)

    def kill(self) -> None:
        """All of its group at once, as when a machine is gone. It stays away until it is started."""
        self.wanted = False
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def version(self) -> int:
        """Of the code that it runs (loads/deploys.py)."""
        return int(self.environment["CHAOS_VERSION"])

    def children(self) -> list[int]:
        if not self.runs:
            return []
        assert self.process is not None
        with suppress(FileNotFoundError):
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            return [int(child) for child in text.split()]
        return []


@dataclass
class Fleet:
    directory: Path
    url: str
    durability: str
    database: str | None
    seed: int
    behind: int
    loads: tuple[str, ...] = ()
    """The small loads; all of them if there are none."""
    durable_producers: int = 12
    """How many enqueue durable tasks, each one after the other."""
    pods: list[Member] = field(default_factory=list)
    senders: list[Member] = field(default_factory=list)
    payers: list[Member] = field(default_factory=list)
    lacks: dict[str, str] = field(default_factory=dict)

    def assemble(self, pods: int, senders: int, sharing: str) -> None:
        library = self._library()
        for n in range(pods):
            options = [] if sharing == "auto" else ["--sharing", sharing]
            if sharing == "leased":  # so that all but one of them are enough
                options += ["--partitions-per-pod", str(PARTITIONS // max(pods - 1, 1) + 1)]
            if sharing == "static":
                options += ["--instance-id", str(n), "--instance-count", str(pods)]
            command = ["-m", "qbull.cli.main", "worker", "campaign_worker:app", "--processes", str(PROCESSES)]
            self.pods.append(self._member(f"pod-{n}", [*command, *options], library))
            self.pods[n].environment["CHAOS_VERSION"] = "1" if n else "2"
        for n in range(senders):
            command = [str(HERE / "sender.py"), str(n), str(senders), str(self.seed)]
            self.senders.append(self._member(f"sender-{n}", command, library))
        self.senders.append(self._member("small", [str(HERE / "small_producer.py")], library))
        if self.database is not None:
            self.payers.append(self._member("payer-0", ["-m", "loads.transfers", "p0"], library))

    @property
    def all(self) -> list[Member]:
        return [*self.pods, *self.senders, *self.payers]

    def processes(self) -> dict[int, list[int]]:
        """Each supervisor that runs, and its worker processes."""
        return {pod.process.pid: pod.children() for pod in self.pods if pod.process is not None and pod.runs}

    def tend(self) -> None:
        for member in self.all:
            if member.wanted and member.process is not None and not member.runs:
                member.start()

    def set_clock(self, member: Member, seconds: int) -> None:
        """The time of day that the processes of this place see is wrong by so much, from now on."""
        with (self.directory / f"{member.name}.skew").open("r+b") as file:
            file.write(struct.pack("<q", seconds))

    def close(self) -> None:
        for member in self.all:
            member.wanted = False
            member.kill()

    def _member(self, name: str, command: list[str], library: Path | None) -> Member:
        skew = self.directory / f"{name}.skew"
        skew.write_bytes(struct.pack("<q", 0))
        places = [HERE, HERE.parent, HERE.parent / "lean", HERE.parents[1] / "src"]
        environment = os.environ | {
            "CHAOS_DIRECTORY": str(self.directory),
            "CHAOS_URL": self.url,
            "CHAOS_DURABILITY": self.durability,
            "CHAOS_BEHIND": str(self.behind),
            "CHAOS_LOADS": ",".join(self.loads),
            "CHAOS_DURABLE_PRODUCERS": str(self.durable_producers),
            "CHAOS_VERSION": "2",
            "MIN_IDLE_TIME_MS": str(int(MIN_IDLE * 1000)),
            "QBULL_LOG_LEVEL": "WARNING",
            "PYTHONPATH": os.pathsep.join(str(place) for place in places),
        }
        if self.database is not None:
            environment["CHAOS_DATABASE"] = self.database
        if library is not None:
            environment |= {"LD_PRELOAD": str(library), "SKEWED": str(skew)}
        return Member(name, [sys.executable, *command], environment, self.directory / f"{name}.out")

    def _library(self) -> Path | None:
        compiler = shutil.which("cc")
        if compiler is None:
            self.lacks["clock"] = "no C compiler (cc)"
            return None
        made = self.directory / "skewed.so"
        source = HERE / "skewed.c"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source], check=True)
        return made
