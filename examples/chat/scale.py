"""Adds and removes pods while messages are being sent: who has which partition after each step, and whether each chat is in order.

PARTITIONS=16 PARTITIONS_PER_POD=2 python scale.py
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import config

PHONES = 16
ALL = config.PARTITIONS // config.PARTITIONS_PER_POD
"""So many pods have all partitions."""


async def main() -> None:
    enough = asyncio.Event()
    writer = asyncio.create_task(write_messages(enough))
    pods = Pods()
    half = ALL // 2
    print("| step | pods | partitions of each | free |\n| --- | --- | --- | --- |")
    try:
        pods.start(half)
        await pods.show("half of the pods")
        pods.start(ALL - half)
        await pods.show("all pods")
        pods.kill()
        pods.start(1)
        await pods.show("one was killed, another started")
        pods.stop(half)
        await pods.show("half of them were stopped")
        pods.start(half)
        await pods.show("all pods again")
        enough.set()
        jobs = await writer
        sent_by = [await job.result(timeout=300) for job in jobs]
    finally:
        writer.cancel()
        pods.close()
    chats = out_of_order(len(jobs) // PHONES)
    print(f"\n{len(jobs)} messages were sent by {len(set(sent_by))} pods; {chats} chats are out of order.")


async def write_messages(enough: asyncio.Event) -> list[Any]:
    """One message after the other to each phone, until there are enough."""
    from whatsapp import CHATS, send

    shutil.rmtree(CHATS, ignore_errors=True)
    jobs: list[Any] = []
    number = 0
    while not enough.is_set():
        number += 1
        calls = [{"phone": f"+54935{phone:08}", "text": f"{number:06}"} for phone in range(PHONES)]
        jobs += await send.enqueue_many(calls)
        await asyncio.sleep(0.5)
    return jobs


def out_of_order(messages: int) -> int:
    """A message may be there twice where a pod was killed, but never after one that was written later."""
    from whatsapp import CHATS

    chats = [chat.read_text().splitlines() for chat in CHATS.iterdir()]
    return sum(lines != sorted(lines) or len(set(lines)) != messages for lines in chats)


class Pods:
    """The pods as an orchestrator has them: started, stopped, killed."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.ended: list[subprocess.Popen[bytes]] = []
        self.names = iter(range(1, 1000))

    def start(self, count: int) -> None:
        for _ in range(count):
            environment = os.environ | {"POD": f"pod-{next(self.names)}"}
            self.running.append(
                subprocess.Popen(
                    [sys.executable, "run_workers.py"],
                    env=environment, stderr=subprocess.DEVNULL, start_new_session=True,
                )
            )  # fmt: skip

    def stop(self, count: int) -> None:
        """They finish what they do and give their partitions back."""
        for _ in range(count):
            pod = self.running.pop(0)
            pod.terminate()
            self.ended.append(pod)

    async def show(self, step: str) -> None:
        """Wait until each pod has its partitions, and say so."""
        held = {pod.pid: config.PARTITIONS_PER_POD for pod in self.running}
        while True:
            if await partitions_of_each() == held:
                break
            await asyncio.sleep(0.5)
        free = config.PARTITIONS - sum(held.values())
        print(f"| {step} | {len(held)} | {config.PARTITIONS_PER_POD} | {free} |", flush=True)

    def kill(self) -> None:
        """Its machine is gone: others take over after MIN_IDLE_TIME_MS."""
        pod = self.running.pop(0)
        os.killpg(pod.pid, signal.SIGKILL)
        self.ended.append(pod)

    def close(self) -> None:
        self.stop(len(self.running))
        for pod in self.ended:
            pod.wait()


async def partitions_of_each() -> Counter[int]:
    """How many partitions each pod reads now, as `qbull partitions` says it. A worker's name is HOST-PROCESS-RANDOM."""
    command = [sys.executable, "-m", "qbull.cli.main", "partitions", "WHATSAPP", "--json"]
    asked = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    printed, _ = await asked.communicate()
    partitions = json.loads(printed)["partitions"] if asked.returncode == 0 else []
    return Counter(int(reader["worker"].split("-")[-2]) for part in partitions for reader in part["readers"])


if __name__ == "__main__":
    os.environ.setdefault("MIN_IDLE_TIME_MS", "2000")
    os.environ.setdefault("QBULL_PREFIX", f"whatsapp-{config.PARTITIONS}")
    asyncio.run(main())
