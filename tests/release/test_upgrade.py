"""A rolling upgrade: an earlier release and the code of today serve one server, in both directions.

Jobs of every kind are in flight while one replaces the other. The earlier code is a commit, taken from the history
of the repository: it is pure Python, so its sources run as they are. When a release is published, RELEASES gets its
commit, and keeps those of the releases before.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import eventually
from qbull.store.store import Store

ROOT = Path(__file__).parents[2]
RELEASES = {"0.1.0-candidate": "9f4ec25f"}
HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=RELEASES.items(), ids=lambda release: release[0])
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of an earlier release."""
    commit = request.param[1]
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode and os.environ.get("CI"):
        pytest.fail(f"the clone does not have {commit}: check out with fetch-depth: 0")
    if packed.returncode:
        pytest.skip(f"the history of this repository does not have {commit}: git fetch --unshallow")
    where = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(where, filter="data")
    return where / "src"


class Upgrade:
    """Processes of two releases with one log. `sources` of a process decide its release."""

    def __init__(self, url: str, where: Path) -> None:
        self.log, self.gate, self.output = where / "log", where / "gate", where / "output"
        self.environment = {
            **os.environ,
            "UPGRADE_URL": url,
            "UPGRADE_LOG": str(self.log),
            "UPGRADE_GATE": str(self.gate),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, sources: Path, *command: str, **more: str) -> subprocess.Popen[bytes]:
        environment = {**self.environment, "PYTHONPATH": os.pathsep.join([str(sources), str(HERE)]), **more}
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=HERE, env=environment, stdout=output, stderr=output
            )
        self.started.append(process)
        return process

    def work(self, sources: Path) -> subprocess.Popen[bytes]:
        return self.start(sources, "-m", "qbull.cli.main", "worker", "upgrade_app:app", "--grace", "1")

    def produce(self, sources: Path, who: str) -> None:
        assert self.start(sources, "upgrade_app.py", UPGRADE_WHO=who).wait(60) == 0, self.output.read_text()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def upgrade(store: Store, server_url: str, tmp_path: Path) -> Iterator[Upgrade]:
    upgrade = Upgrade(server_url, tmp_path)
    yield upgrade
    for process in upgrade.started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in upgrade.started:
        process.wait(60)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_jobs_of_every_kind_survive_a_rolling_upgrade(
    upgrade: Upgrade, earlier: Path, store: Store, direction: str
) -> None:
    first, second = (earlier, ROOT / "src") if direction == "up" else (ROOT / "src", earlier)
    before = upgrade.work(first)
    upgrade.produce(first, "a")
    await eventually(lambda: counted(store, "plain", "active", 4), within=60)

    upgrade.work(second)
    upgrade.produce(second, "b")
    await eventually(lambda: has_workers(store, 2), within=60)
    before.terminate()
    await eventually(lambda: has_workers(store, 1), within=60)
    upgrade.gate.touch()
    await eventually(lambda: is_done(store), within=90)

    ran = Counter(word for word, *_ in upgrade.lines())
    steps = defaultdict(list)
    for word, *rest in upgrade.lines():
        if word == "step":
            steps[rest[0]].append(int(rest[1]))
    assert steps.keys() == {f"{who}{n}" for who in "ab" for n in range(4)}
    assert all(sorted(set(numbers)) == numbers == list(range(20)) for numbers in steps.values()), steps
    assert (ran["hold"], ran["lasting"], ran["flaky"]) == (6, 6, 6)
    # Delayed ones, one for each id, and two of each chain.
    assert ran["quick"] == 6 + 2 + 4
    ticks = {file for word, file, *_ in upgrade.lines() if word == "tick"}
    producers = [file for word, file, *_ in upgrade.lines() if word == "from"]
    assert producers == [str(sources / "qbull" / "__init__.py") for sources in (first, second)]
    assert producers[1] in ticks, "the second release has fired the schedule of the first"
    assert await number(store, "plain", "failed") == 6


async def number(store: Store, queue: str, state: str) -> int:
    from qbull.store.read.inspect import count

    partitions = await store.partitions(await store.settings(queue))
    return sum([int(getattr(await count(partition), state)) for partition in partitions])


async def counted(store: Store, queue: str, state: str, wanted: int) -> bool:
    return queue in await store.queues() and await number(store, queue, state) >= wanted


async def has_workers(store: Store, wanted: int) -> bool:
    return len([1 for member in (await store.workers()).values() if "ordered" in member.queues]) == wanted


async def is_done(store: Store) -> bool:
    """All but the schedule: its next run is always to come."""
    active = [
        await number(store, queue, state) for queue in ("plain", "ordered") for state in ("waiting", "active")
    ]
    return not any(active) and await number(store, "plain", "delayed") == 0
