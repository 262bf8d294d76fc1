"""deploy/grafana/alerts.yaml: promtool evaluates every rule against the metrics of real servers with and without its fault."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from reading import DEPLOY, documents
from web import VIEWER, opened

import qbull
from conftest import eventually
from qbull.api import context as api_context
from qbull.core.sharing import Sharing
from qbull.embedded.server import EmbeddedServer
from qbull.store import clock
from qbull.store.store import Store
from qbull.worker.worker import Worker

PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
RULES = DEPLOY / "grafana" / "alerts.yaml"
MINUTES = 180
PARTITIONS = 3

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


@pytest.fixture(scope="session")
def server_url(server: EmbeddedServer) -> str:
    """A server whose clock can be moved."""
    return f"unix://:{server.password}@{server.socket}?db=0&test_clock=1"


@dataclass
class Scene:
    """A queue with a server and two scrapes, between which a minute passes."""

    app: qbull.App
    store: Store
    client: Any
    stack: AsyncExitStack
    scrapes: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = self.app.queue("orders", partitions=PARTITIONS, retry=qbull.Retry(delays=()))

        @self.queue.task
        async def ship(n: int = 0) -> None: ...

        @self.queue.task
        async def fail(n: int) -> None:
            raise ValueError(n)

        self.ship, self.fail = ship, fail

    async def work(self, sharing: Sharing | None = None) -> Worker:
        worker = Worker(self.app._make_store, self.app._assignments(), sharing=sharing or Sharing("auto"))
        await worker.start()
        self.stack.push_async_callback(worker.stop)
        return worker

    async def scrape(self) -> None:
        self.scrapes.append(await self._samples())

    async def minute(self) -> None:
        """Let a minute pass on the server, after which its workers have sent heartbeats again."""
        await clock.advance_clock(self.store, 60_000)
        workers = self.scrapes[-1]['qbull_queue_workers{queue="orders"}']

        async def back() -> bool:
            return (await self._samples())['qbull_queue_workers{queue="orders"}'] == workers

        await eventually(back)

    async def _samples(self) -> dict[str, float]:
        answer = await self.client.get("/metrics")
        return {
            sample.name + series(sample.labels): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
            if "le" not in sample.labels
        }


def series(labels: dict[str, str]) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{{{inner}}}" if inner else ""


Play = Callable[[Scene], Awaitable[None]]


async def all_is_well(scene: Scene) -> None:
    await scene.work()
    await settled(scene, workers=1, owned=PARTITIONS)
    await scene.scrape()
    await scene.ship.enqueue_many([{"n": n} for n in range(50)])
    await settled(scene, waiting=0, active=0, completed=50)
    await scene.minute()
    await scene.scrape()


async def nobody_works(scene: Scene) -> None:
    await scene.ship.enqueue(1)
    await scene.scrape()
    await scene.minute()
    await scene.scrape()


async def a_pod_is_missing(scene: Scene) -> None:
    """Of three static pods only the first is there: two of three partitions are unread."""
    await scene.work(Sharing("static", None, 0, 3))
    await settled(scene, workers=1, owned=1)
    await scene.scrape()
    await scene.minute()
    await scene.scrape()


async def the_workers_are_too_few(scene: Scene) -> None:
    """The only slot is busy all the time."""
    begun, enough = asyncio.Event(), asyncio.Event()

    @scene.app.queue("slow", concurrency=1).task
    async def grind(n: int) -> None:
        begun.set()
        await enough.wait()

    await scene.work()
    scene.stack.callback(enough.set)
    await settled(scene, workers=1, owned=PARTITIONS)
    await grind.enqueue_many([{"n": n} for n in range(50)])
    await begun.wait()
    await scene.scrape()
    await scene.minute()
    await scene.scrape()


async def everything_fails(scene: Scene) -> None:
    await scene.work()
    await settled(scene, workers=1, owned=PARTITIONS)
    await scene.scrape()
    await scene.ship.enqueue_many([{"n": n} for n in range(40)])
    await scene.fail.enqueue_many([{"n": n} for n in range(20)])
    await settled(scene, waiting=0, active=0, failed=20)
    await scene.minute()
    await scene.scrape()


async def nobody_fires_the_schedule(scene: Scene) -> None:
    await scene.app.schedules.upsert("often", "orders/ship", every=10)
    await clock.advance_clock(scene.store, 10_000)
    await scene.scrape()
    await scene.minute()
    await scene.scrape()


async def a_script_is_refused(scene: Scene) -> None:
    worker = await scene.work()
    await settled(scene, workers=1, owned=PARTITIONS)
    await scene.scrape()
    with pytest.raises(qbull.ServerRefused):
        await worker._store.server.script("histograms", "{test:orders}:", "token", "name", "no number")
    await settled(scene, errors=1)
    await scene.minute()
    await scene.scrape()


async def somebody_paused_it(scene: Scene) -> None:
    await scene.queue.pause()
    await scene.work()
    await settled(scene, workers=1, owned=PARTITIONS)
    await scene.ship.enqueue(1)
    await scene.scrape()
    await scene.minute()
    await scene.scrape()


METRICS = {
    "workers": 'qbull_queue_workers{queue="orders"}',
    "owned": 'qbull_queue_partitions_owned{queue="orders"}',
    "errors": 'qbull_script_errors_total{queue="orders"}',
}


async def settled(scene: Scene, **wanted: int) -> None:
    names = {METRICS.get(word) or series_of_state(word): count for word, count in wanted.items()}

    async def there() -> bool:
        read = await scene._samples()
        return all(read.get(name) == count for name, count in names.items())

    await eventually(there)


def series_of_state(state: str) -> str:
    return f'qbull_queue_jobs{{queue="orders",state="{state}"}}'


PLAYS: dict[str, tuple[Play, int, dict[str, str]]] = {
    "all is well": (all_is_well, MINUTES, {}),
    "no workers": (
        nobody_works,
        3,
        {"QbullNoWorkers": "No worker serves the queue orders, and jobs wait"},
    ),
    "unread": (
        a_pod_is_missing,
        MINUTES,
        {"QbullPartitionsUnread": "Nobody reads 2 of the partitions of the queue orders"},
    ),
    "stale": (
        the_workers_are_too_few,
        30,
        {"QbullQueueStale": "The oldest job of the queue slow could have run 30m"},
    ),
    "failing": (
        everything_fails,
        10,
        {"QbullJobsFail": "More than a tenth of the jobs of the queue orders become dead letters"},
    ),
    "dead letters": (
        everything_fails,
        MINUTES,
        {
            "QbullJobsFail": "More than a tenth of the jobs of the queue orders become dead letters",
            "QbullDeadLettersGrow": "The dead letters of the queue orders grow",
        },
    ),
    "late": (
        nobody_fires_the_schedule,
        10,
        {"QbullScheduleLate": "A schedule of the queue orders is 10m"},
    ),
    "refused": (
        a_script_is_refused,
        20,
        {"QbullScriptErrors": "The server refused scripts of the queue orders"},
    ),
    "paused": (
        somebody_paused_it,
        65,
        {"QbullQueueLeftPaused": "The queue orders has been paused for an hour, and jobs wait"},
    ),
}


@pytest.fixture(name="scene")
async def set_scene(app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(api_context, "METRICS_CACHE_SECONDS", 0.0)
    async with opened(app) as web, AsyncExitStack() as stack:
        yield Scene(app, store, (await web.person(VIEWER)).client, stack)
    await store.server.call("DEL", clock.CLOCK_SHIFT_KEY)


@pytest.mark.parametrize("name", PLAYS)
async def test_exactly_the_alerts_of_the_fault_fire(name: str, scene: Scene, tmp_path: Path) -> None:
    play, minute, expected = PLAYS[name]
    await play(scene)

    firing = evaluated(scene.scrapes, minute, tmp_path)

    assert {alert: text[: len(expected.get(alert, ""))] for alert, text in firing.items()} == expected


async def test_a_server_that_is_unavailable_is_told(tmp_path: Path) -> None:
    server = EmbeddedServer.open(tmp_path / "valkey")
    async with qbull.App(f"unix://:{server.password}@{server.socket}?db=0", prefix="test") as app:
        app.queue("orders")
        async with opened(app) as web:
            server.close()
            text = (await (await web.person(VIEWER)).client.get("/metrics")).text

    assert "qbull_up 0" in text.splitlines()
    assert evaluated([{"qbull_up": 1.0}, {"qbull_up": 0.0}], 0, tmp_path) == {}
    assert evaluated([{"qbull_up": 0.0}] * 2, 2, tmp_path) == {
        "QbullServerAway": "The server of the jobs cannot be reached"
    }


def test_every_rule_has_a_fault_that_it_tells() -> None:
    told = {alert for _, _, expected in PLAYS.values() for alert in expected} | {"QbullServerAway"}

    assert told == set(alerts())


def alerts() -> list[str]:
    return [rule["alert"] for group in documents(RULES)[0]["groups"] for rule in group["rules"]]


def evaluated(scrapes: list[dict[str, float]], minute: int, where: Path) -> dict[str, str]:
    """The alerts that fire after so many minutes, each with its summary. Every minute changes what the one between the scrapes has changed."""
    first, last = scrapes
    values = {name: f"{first.get(name, 0):f}{last[name] - first.get(name, 0):+f}x{minute}" for name in last}
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": each} for name, each in values.items()],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []} for alert in alerts()
                ],
            }
        ],
    }
    file = where / "rules.yaml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    said = done.stdout + done.stderr
    firing = re.findall(r'Labels:\{alertname="(\w+)".*?Annotations:\{.*?summary="(.*?)"\}', said, re.DOTALL)
    assert (done.returncode == 0) == (not firing), said
    assert len(firing) == said.count("Annotations:{"), said
    return dict(firing)
