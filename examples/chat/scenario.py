"""Plays a scenario of the scaling guide with real pods: who reads what, who sent what, and whether each chat is in order.

python scenario.py moderate | high | granular | recovery
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SCENARIOS = {"moderate": (16, 8), "high": (64, 16), "granular": (8, 8), "recovery": (4, 2)}
"""Partitions and pods."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SCENARIOS)
    name = parser.parse_args().name
    partitions, pods = SCENARIOS[name]
    os.environ["TOTAL_PARTITIONS"] = str(partitions)
    os.environ.setdefault("QBULL_PREFIX", f"whatsapp-{name}")
    asyncio.run(recover(pods) if name == "recovery" else share(partitions, pods))


async def share(partitions: int, pods: int) -> None:
    """All pods at work: each sends what is in its partitions."""
    jobs = await write_messages(phones=partitions * 8)
    with running(*(start_pod(number, pods) for number in range(pods))):
        sent_by = await asyncio.gather(*(job.result(timeout=300) for job in jobs))
    read = defaultdict(set)
    for job, pod in zip(jobs, sent_by, strict=True):
        read[int(pod)].add((await job.info()).partition)

    print(f"{partitions} partitions on {pods} pods: partition % {pods} == INSTANCE_ID\n")
    print("| pod | partitions | messages |\n| --- | --- | --- |")
    for pod in sorted(read):
        print(f"| {pod} | {', '.join(map(str, sorted(read[pod])))} | {sent_by.count(str(pod))} |")
    print(f"\n{len(jobs)} messages to {partitions * 8} phones; {out_of_order()} chats are out of order.")


async def recover(pods: int) -> None:
    """A machine is lost while it sends: its messages are sent when the pod is back, those of the others go on."""
    os.environ["MIN_IDLE_TIME_MS"] = "1000"
    jobs = await write_messages(phones=4)
    of_pod: list[list[Any]] = [[] for _ in range(pods)]
    for job in jobs:
        of_pod[(await job.info()).partition % pods].append(job)
    lost = start_pod(1, pods, WHATSAPP_SECONDS="600")  # WhatsApp does not answer
    with running(lost, start_pod(0, pods)):
        held = await first_active(of_pod[1])
        os.killpg(lost.pid, signal.SIGKILL)
        print("Pod 1 was killed while it sent a message.")
        await asyncio.gather(*(job.result(timeout=120) for job in of_pod[0]))
        print(f"Pod 0 sent all its messages meanwhile. The one of pod 1 is {await held.state()}.")
        with running(start_pod(1, pods)):
            await asyncio.gather(*(job.result(timeout=120) for job in of_pod[1]))
            print("Pod 1 is back: after MIN_IDLE_TIME_MS it took the message up again, then those behind it.")
    print(f"\n{len(jobs)} messages to 4 phones; {out_of_order()} chats are out of order.")


async def write_messages(phones: int) -> list[Any]:
    """Three messages to each phone, one after the other."""
    from whatsapp import CHATS, send

    shutil.rmtree(CHATS, ignore_errors=True)
    return [
        job
        for number in (1, 2, 3)
        for job in await send.enqueue_many(
            [{"phone": f"+54935{phone:08}", "text": f"message {number}"} for phone in range(phones)]
        )
    ]


def out_of_order() -> int:
    """A message may be there twice where a pod was killed, but never after one that was written later."""
    from whatsapp import CHATS

    chats = [chat.read_text().splitlines() for chat in CHATS.iterdir()]
    return sum(lines != sorted(lines) or len(set(lines)) != 3 for lines in chats)


async def first_active(jobs: list[Any]) -> Any:
    while True:
        for job in jobs:
            if await job.state() == "active":
                return job
        await asyncio.sleep(0.01)


def start_pod(number: int, pods: int, **settings: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "qbull.cli.main", "worker", "whatsapp:app"],
        env=os.environ | {"INSTANCE_ID": str(number), "INSTANCE_COUNT": str(pods), **settings},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextmanager
def running(*pods: subprocess.Popen[bytes]) -> Iterator[None]:
    """Until the block ends; then they finish what they do."""
    try:
        yield
    finally:
        for pod in pods:
            pod.terminate()
        for pod in pods:
            pod.wait()


if __name__ == "__main__":
    main()
