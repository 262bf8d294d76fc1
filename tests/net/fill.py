"""Fill a server with jobs in every situation, as an older qbull leaves them, and save it in filled/.

Run it with the source of the version whose data you want to keep, and with qbull's dependencies:

    git worktree add /tmp/older 424ead2
    PYTHONPATH=/tmp/older/src python tests/net/fill.py

All clocks of the run, the server's included, show MOMENT, so that everything is in the past on any day the
test runs. This needs Linux and a C compiler. The results are `server.xz` (see server_dump.py) and
`manifest.json`, which lists each job, its state, and the order of jobs that depend on each other.

The script uses the public names of THAT version. If qbull renames one, do not rename it here.
The label of a job says what its task does on the old worker: "slow" runs until the worker is killed, "doomed"
fails permanently, "again" fails once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import redis
from server_dump import save

import qbull

FOLDER = Path(__file__).parent / "filled"
SKEWED = Path(__file__).parent.parent / "chaos" / "skewed.c"
MOMENT = datetime(2024, 1, 10, 12, 0, tzinfo=UTC)
FAR = datetime(2200, 1, 1, tzinfo=UTC)
DECADE = 10 * 365 * 86_400
KEY = "x3p0eMIqZ2B8cTzUPYDNhGgGJ5pZb3CkQmJmJxM8l1A="
ADMIN = "the administrator's token of the filled server"
KEEP = qbull.Keep(completed=1000, failed=1000)
"""Retention by count only, because the file gets older than any age."""


def label_of(job: dict[str, Any]) -> str:
    return str(job["label"])


class FilledApp:
    """The queues, each with the task `work`; `tidy` is the task of unique jobs."""

    def __init__(self, url: str) -> None:
        self.app = app = qbull.App(url, prefix="test")
        self.encrypted_app = qbull.App(
            url,
            prefix="test",
            middleware=[qbull.Compressed(over=10), qbull.Encrypted([KEY]), qbull.Signed([KEY])],
        )
        retry = qbull.Retry(attempts=2, backoff="fixed", delay=20)
        common: dict[str, Any] = {"keep": KEEP, "retry": retry}
        app.queue("plain", partitions=2, alert=True, **common)
        app.queue("second", **common)
        app.queue("levels", concurrency=1, **common)
        app.queue("ordered", partitions=2, order="key", **common)
        app.queue("halting", order="key", on_failed="halt", **{**common, "retry": qbull.Retry(attempts=1)})
        app.queue("stages", partitions=2, order="partition", **common)
        app.queue(
            "limited",
            max_active=2,
            rate=qbull.Rate(1000),
            lane=qbull.Lane(limit=2, rate=qbull.Rate(1000)),
            **common,
        )
        app.queue("resting", **common)
        app.queue("steered", **common)
        app.queue("moving", partitions=2, order="key", concurrency=2, **common)
        app.queue("chunks", **common)
        app.queue("tracked", track=True, **common)
        self.encrypted_app.queue("sealed", **common)
        self.tasks = {
            queue.name: queue.task(name="work")(work)
            for one in (app, self.encrypted_app)
            for queue in one.queues.values()
            if queue.name != "chunks"
        }
        self.pack = app.queues["chunks"].task(name="pack", chunk=5, wait=0.01)(pack)
        plain = app.queues["plain"]
        self.tidy = plain.task(name="tidy")(tidy)
        every = {"label": "tick-code"}
        plain.cron("* * * * *", name="code", catch_up="one", args=every)(self.tasks["plain"])
        self.jobs: list[dict[str, Any]] = []
        self.order: list[list[str]] = []

    async def add(self, queue: str, *labels: str, **options: Any) -> None:
        """Enqueue one job of `work` for each label. If they share a key, the manifest records their order."""
        call = self.tasks[queue].options(**options)
        if "id" in options:
            handles = [await call.enqueue(label) for label in labels]
        else:
            handles = await call.enqueue_many([{"label": label} for label in labels])
        for label, handle in zip(labels, handles, strict=True):
            self.note(queue, label, handle)
        if "key" in options and queue != "limited":
            self.order.append(list(labels))

    def note(self, queue: str, label: str, handle: qbull.Job[Any]) -> None:
        self.jobs.append({"label": label, "queue": queue, "id": handle.id})

    async def note_states(self) -> None:
        for job in self.jobs:
            job["state"] = await self.handle(job).state()

    def handle(self, job: dict[str, Any]) -> qbull.Job[Any]:
        app = self.encrypted_app if job["queue"] == "sealed" else self.app
        return app.job(job["queue"], job["id"])


async def work(label: str) -> str:
    job = qbull.current_job()
    if label.startswith("slow"):
        await job.log("now it hangs")
        await asyncio.Event().wait()
    if label.startswith("doomed"):
        raise qbull.Fail(f"{label} fails")
    if label.startswith("again") and job.attempt == 1:
        raise ValueError("not yet")
    await job.log(f"{label} at work")
    await job.progress(0.5)
    return f"old {label}"


async def pack(labels: list[str]) -> list[str]:
    return [f"old {label}" for label in labels]


async def tidy(topic: str, label: str) -> str:
    return await work(label)


async def enqueue_for_the_worker(filled_app: FilledApp) -> None:
    """Enqueue the jobs that the old worker completes, fails, retries later, or runs when it is killed."""
    await filled_app.add("plain", "done-0", "done-1", "slow-0", "slow-1", "doomed-0", "doomed-1", "again-0")
    await filled_app.add("plain", "cancelled-0", delay=600)
    await filled_app.app.job("plain", filled_app.jobs[-1]["id"]).cancel("not needed")
    await filled_app.add("ordered", "train-0", "train-1", "slow-train-2", "train-3", "train-4", key="train")
    await filled_app.add("ordered", "again-lane-0", "lane-1", "lane-2", key="retrying")
    await filled_app.add("halting", "doomed-halt-0", "halt-1", "halt-2", key="halted")
    await filled_app.add("limited", "slow-limit-0", "slow-limit-1", "limit-2", "limit-3", key="tenant")
    await filled_app.add("moving", "slow-move-0", "move-1", "move-2", key="moving")
    await filled_app.add("sealed", "done-sealed", "doomed-sealed")
    await add_one_more(filled_app, "slow-after-0")
    first, second = filled_app.tasks["plain"].step, filled_app.tasks["second"].step
    chain = await qbull.chain(first("chain-0"), second("slow-chain-1"), first("chain-2")).enqueue()
    group = await qbull.group(
        first("group-0"), second("group-1"), first("slow-group-2"), then=second("group-then")
    ).enqueue()
    labels = ["chain-0", "slow-chain-1", "chain-2", "group-0", "group-1", "slow-group-2", "group-then"]
    for label, job in zip(labels, (*chain.jobs, *group.jobs), strict=True):
        filled_app.note(job.queue, label, job)
    filled_app.order.append(labels[:3])


async def add_one_more(filled_app: FilledApp, label: str) -> None:
    """Enqueue a job of which one runs and one waits, no matter how often it is asked for."""
    after = qbull.Unique(by=("topic",), mode="after")
    filled_app.note("plain", label, await filled_app.tidy.options(unique=after).enqueue("after", label))


async def enqueue_for_later(filled_app: FilledApp) -> None:
    """Enqueue the jobs that no old worker has touched."""
    await filled_app.add("plain", *(f"waiting-{n}" for n in range(20)))
    await filled_app.add("plain", "due-0", "due-1", delay=1)
    await filled_app.add("plain", "far-0", "far-1", at=FAR)
    await filled_app.add("plain", "expiring-0", expires=FAR)
    await filled_app.add("plain", "named-0", id="order:1")
    for priority in (10, 5, 1):
        await filled_app.add("levels", f"level-{priority}", priority=priority)
    filled_app.order.append(["level-1", "level-5", "level-10"])
    for key in ("a", "b", "c"):
        await filled_app.add("ordered", *(f"{key}-{n}" for n in range(5)), key=key)
    await filled_app.add("ordered", "delayed-lane-0", key="later", delay=1)
    await filled_app.add("ordered", "far-lane-0", key="far", at=FAR)
    await filled_app.add("stages", "stage-0", "stage-1", key="s")
    await filled_app.add("resting", "resting-0", "resting-1")
    await filled_app.add("steered", "steered-0")
    await filled_app.add("limited", "limit-4", key="another tenant")
    await filled_app.add("tracked", "tracked-0")
    await filled_app.add("sealed", "sealed-0", "sealed-1")
    for n, handle in enumerate(
        await filled_app.pack.enqueue_many([{"item": f"chunk-{n}"} for n in range(7)])
    ):
        filled_app.note("chunks", f"chunk-{n}", handle)
    for mode in ("first", "last", "debounce"):
        unique = qbull.Unique(for_=DECADE if mode != "debounce" else 1, by=("topic",), mode=mode)
        filled_app.note(
            "plain",
            f"unique-{mode}",
            await filled_app.tidy.options(unique=unique).enqueue(mode, f"unique-{mode}"),
        )
    first, second = filled_app.tasks["plain"].step, filled_app.tasks["second"].step
    flow = await qbull.chain(
        first("flow-0"), qbull.group(second("flow-1"), first("flow-2")), second("flow-3")
    ).enqueue()
    for n, job in enumerate(flow.jobs):
        filled_app.note(job.queue, f"flow-{n}", job)
    filled_app.order += [["flow-0", "flow-1", "flow-3"], ["flow-0", "flow-2", "flow-3"]]


async def repartition_again(filled_app: FilledApp) -> None:
    """Change the partitions while no worker runs, so that the change has only started."""
    await filled_app.app.queues["moving"].repartition(5)
    await filled_app.add("moving", "move-5", "move-6", key="moving")
    await filled_app.add("moving", "late-1", key="late")
    filled_app.order.append(["slow-move-0", *(f"move-{n}" for n in range(1, 7))])


async def change_live_settings(filled_app: FilledApp) -> None:
    """Pause a queue, change live settings, and make schedules at run time."""
    await filled_app.app.queues["resting"].pause(by="somebody")
    await filled_app.app.queues["steered"].configure(
        concurrency=3, retry=qbull.Retry(delays=(7, 8)), by="somebody"
    )
    schedules, task = filled_app.app.schedules, filled_app.tasks["plain"]
    await schedules.upsert("often", task, every=1, catch_up="one", args={"label": "tick-often"})
    await schedules.upsert(
        "each",
        task,
        every=3600,
        catch_up="all",
        catch_up_limit=3,
        overlap="allow",
        args={"label": "tick-each"},
    )
    await schedules.upsert("never", task, cron="* * * * *", args={"label": "tick-never"})
    await schedules.pause("never")


async def make_token(filled_app: FilledApp) -> str:
    api = httpx.ASGITransport(qbull.asgi(filled_app.app, qbull.Access(admin_token=ADMIN)))
    headers = {"authorization": f"Bearer {ADMIN}"}
    async with httpx.AsyncClient(transport=api, base_url="http://127.0.0.1", headers=headers) as client:
        answer = await client.post("/api/tokens", json={"name": "ci", "role": "viewer"})
    return str(answer.json()["token"])


def wanted_of(label: str) -> str | None:
    """The state that a job must have reached before the old worker is killed; None if any state will do."""
    for start, state in (
        ("slow", "active"),
        ("doomed", "failed"),
        ("again", "delayed"),
        ("done", "completed"),
    ):
        if label.startswith(start):
            return state
    return "completed" if label in ("train-0", "train-1", "chain-0", "group-0", "group-1") else None


async def until_settled(filled_app: FilledApp) -> None:
    wanted = {label_of(job): wanted_of(label_of(job)) for job in filled_app.jobs}
    for _ in range(2000):
        await filled_app.note_states()
        if all(wanted[label_of(job)] in (None, job["state"]) for job in filled_app.jobs):
            return
        await asyncio.sleep(0.01)
    raise SystemExit(
        f"not as wanted: {[job for job in filled_app.jobs if wanted[label_of(job)] not in (None, job['state'])]}"
    )


async def fill(directory: Path) -> None:
    filled_app = FilledApp(f"embedded://{directory}")
    await enqueue_for_the_worker(filled_app)
    environment = os.environ | {"QBULL_SHARING": "leased"}
    worker = subprocess.Popen([sys.executable, __file__, "work", str(directory)], env=environment)
    try:
        await until_settled(filled_app)
        await add_one_more(filled_app, "after-1")
        filled_app.order.append(["slow-after-0", "after-1"])
        await filled_app.app.queues["moving"].repartition(3)
        await filled_app.add("moving", "move-3", "move-4", key="moving")
        await filled_app.add("moving", "move-other-0", "move-other-1", key="other")
        await filled_app.add("moving", "far-move-0", key="late", at=FAR)
        await asyncio.sleep(1)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    await enqueue_for_later(filled_app)
    await repartition_again(filled_app)
    await change_live_settings(filled_app)
    token = await make_token(filled_app)
    await filled_app.note_states()
    write(filled_app, directory, token)
    await filled_app.app.close()
    await filled_app.encrypted_app.close()


def write(filled_app: FilledApp, directory: Path, token: str) -> None:
    password = (directory / "password").read_text().strip()
    server = redis.Redis(unix_socket_path=str(directory / "server.sock"), password=password, protocol=2)
    seconds, _ = server.time()
    if not 0 <= seconds - MOMENT.timestamp() < 600:
        raise SystemExit("the server's clock was not set")
    FOLDER.mkdir(exist_ok=True)
    save(server, FOLDER / "server.xz")
    server.close()
    source = Path(qbull.__file__).parent
    commit = subprocess.run(
        ["git", "-C", source, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, check=True
    )
    about = {
        "made_with": commit.stdout.decode().strip(),
        "encryption_key": KEY,
        "api_token": token,
        "jobs": sorted(filled_app.jobs, key=label_of),
        "in_order": filled_app.order,
    }
    (FOLDER / "manifest.json").write_text(json.dumps(about, indent=1) + "\n")


def run_long_ago(directory: Path) -> None:
    """Run `fill` in a process whose clock, and that of all its children, shows MOMENT."""
    skewed, library = directory / "skewed", directory / "skewed.so"
    skewed.write_bytes(struct.pack("q", int(MOMENT.timestamp() - time.time())))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SKEWED], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library), "SKEWED": str(skewed)}
    subprocess.run([sys.executable, __file__, "fill", str(directory / "server")], env=environment, check=True)


async def run_worker(directory: str) -> None:
    filled_app = FilledApp(f"embedded://{directory}")
    async with filled_app.app.worker(), filled_app.encrypted_app.worker():
        await asyncio.Event().wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", where]:
            asyncio.run(run_worker(where))
        case ["fill", where]:
            asyncio.run(fill(Path(where)))
        case _:
            with tempfile.TemporaryDirectory() as where:
                run_long_ago(Path(where))
