"""examples/schedulers: three servers, each tick in one of them; steered over REST, watched, and people are told."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playing import Example, answers, ask

from conftest import eventually
from needed_tools import needs_tool
from qbull.store.store import Store
from topology import free_port

PORTS = ("OUTSIDE_PORT", "SERVER_1_PORT", "SERVER_2_PORT", "SERVER_3_PORT")
ADMIN = "local-admin-token"

pytestmark = pytest.mark.timeout(240)


class Schedulers(Example):
    def __init__(self, where: Path, url: str) -> None:
        super().__init__("schedulers", where, url)
        self.ports = {name: free_port() for name in PORTS}
        outside = f"http://127.0.0.1:{self.ports['OUTSIDE_PORT']}"
        self.configure(**self.ports, PROVIDERS_URL=outside, SLACK_WEBHOOK_URL=f"{outside}/slack")
        self.configure(QBULL_URL=url, QBULL_PREFIX="test")

    async def start_all(self) -> None:
        self.start("honcho start")
        for number in (1, 2, 3):
            await eventually(lambda number=number: answers(self.at(number, "/healthz")), within=60)
        await eventually(lambda: answers(self.outside("/slack")), within=60)

    def at(self, number: int, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[f'SERVER_{number}_PORT']}{path}"

    def outside(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports['OUTSIDE_PORT']}{path}"

    def act(self, path: str, body: Any = None, method: str = "POST") -> Any:
        status, answer = ask(self.at(1, path), method, body, ADMIN)
        assert status == 200, answer
        return answer

    def curl(self, line: str) -> int:
        """A line of the page as it is written there, but for the port."""
        for name, port in zip(PORTS, ("3010", "3001", "3002", "3003"), strict=True):
            line = line.replace(f"localhost:{port}/", f"localhost:{self.ports[name]}/")
        environment = {**self.environment, "TOKEN": f"Authorization: Bearer {ADMIN}"}
        return subprocess.run(
            ["sh", "-c", f"{line} -s -f -o /dev/null"], env=environment, check=False
        ).returncode

    def ran(self, provider: str) -> list[tuple[str | None, int]]:
        """What the runs of a provider have written: for when they were planned, and how many readings were new."""
        with closing(sqlite3.connect(self.directory / "readings.db")) as connection:
            query = "SELECT planned_at, new FROM runs WHERE provider = ? ORDER BY at"
            return connection.execute(query, (provider,)).fetchall()


@pytest.fixture(name="example")
async def prepare(store: Store, server_url: str, tmp_path: Path) -> AsyncIterator[Schedulers]:
    example = Schedulers(tmp_path, server_url)
    yield example
    example.close()


async def test_three_servers_run_each_tick_once(example: Schedulers) -> None:
    example.configure(AYT_CRON="* * * * * *")
    await example.start_all()

    async def completed() -> int:
        stats = ask(example.at(2, "/api/queues/ayt-sync/stats"), token="local-viewer-token")[1]
        return int(stats["completed"]) >= 4

    await eventually(completed, within=60)
    example.act("/api/schedules/ayt/pause")
    planned = [instant for instant, _ in example.ran("ayt")]

    assert len(planned) == len(set(planned)) >= 4
    assert sum(new for _, new in example.ran("ayt")) >= 360


@needs_tool(shutil.which("curl"), "there is no curl here")
async def test_every_line_of_the_page_that_asks_the_api_is_answered(example: Schedulers) -> None:
    await example.start_all()

    lines = [line.partition("  #")[0] for line in example.page.splitlines() if line.startswith("curl ")]
    refused = [line for line in lines if example.curl(line) != 0]

    assert len(lines) > 10
    assert refused == []


async def test_it_is_steered_watched_and_tells_people(example: Schedulers) -> None:
    example.configure(AYT_CRON="0 0 1 1 *", SERPRAM_CRON="0 0 1 1 *")  # they run when they are told to
    await example.start_all()
    refused = ask(example.at(1, "/api/queues/serpram/run"), "POST", token="local-viewer-token")[0]
    started = example.act("/api/queues/serpram/run")
    job = f"/api/queues/serpram-sync/jobs/{started['jobId']}"

    async def done() -> Any:
        found = ask(example.at(3, job), token="local-viewer-token")[1]
        return found if found.get("state") == "completed" else None

    found = await eventually(done, within=60)
    logs = ask(example.at(3, f"{job}/logs"), token="local-viewer-token")[1]
    ask(example.outside("/ayt/break"), "POST")
    example.act("/api/queues/ayt-sync/settings", {"retry": {"attempts": 1}}, "PUT")
    example.act("/api/queues/ayt/run")

    async def told() -> Any:
        return ask(example.outside("/slack"))[1]

    [message] = await eventually(told, within=60)
    failed = ask(example.at(2, "/api/queues/ayt-sync/jobs?state=failed&start=0&end=10"), token=ADMIN)[1]
    ask(example.outside("/ayt/mend"), "POST")
    example.act("/api/queues/ayt-sync/redrive", {})

    async def saved() -> Any:
        return example.ran("ayt")

    await eventually(saved, within=60)

    assert refused == 403
    assert (found["result"], found["progress"]) == (360, 50)
    assert "asking for readings since 1970" in str(logs)
    assert message.startswith('queue "ayt-sync": 1 job failed permanently')
    assert "503" in failed["jobs"][0]["failedReason"]
    schedules = ask(example.at(1, "/api/schedules"), token=ADMIN)[1]
    assert {name for name in ("serpram", "ayt", "esinfa", "sercoamb", "log-cleaning") if name in str(schedules)} == {
        "serpram", "ayt", "esinfa", "sercoamb", "log-cleaning",
    }  # fmt: skip
    assert example.act("/api/queues/serpram-sync/pause")["success"]
    assert example.act("/api/queues/serpram-sync/resume")["success"]
    assert example.act("/api/queues/serpram-sync/clean/completed", {"gracePeriod": 0})["count"] == 1
    health = ask(example.at(2, "/api/queues/health"))
    # The job that failed before may still be reported as an open alert.
    assert health[0] == 200 and health[1]["status"] in ("healthy", "degraded")
    assert re.search(r'qbull_jobs_failed_total\{queue="ayt-sync"\} 1', ask(example.at(3, "/metrics"))[1])
    assert "<title>" in ask(example.at(1, "/ui/"))[1]
