"""The shop in the pictures of docs/images: a real Valkey, two real workers and a real server, and people who buy things for some minutes.

`python tests/ui/pictured_shop/run.py --minutes 60` starts one in DIR (--dir) and then takes the pictures, while people go on buying. What the charts show
has happened: nothing is written into the counters. `--keep` leaves it running until Ctrl-C instead.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PASSWORD = "a-long-password"
LONGEST_STOP_SECONDS = 60
"""Workers let running jobs end first."""
NAMES = (
    "Ana",
    "Bruno",
    "Carla",
    "Diego",
    "Elena",
    "Felipe",
    "Greta",
    "Hugo",
    "Irene",
    "Joan",
    "Luca",
    "Marta",
)
CUSTOMERS = ("acme", "globex", "initech", "umbrella", "hooli", "stark")


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--minutes", type=float, default=60)
    asked.add_argument("--dir", type=Path, default=Path("/tmp/shop"))
    asked.add_argument("--port", type=int, default=3057)
    asked.add_argument("--keep", action="store_true")
    said = asked.parse_args()
    said.dir.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "tasks.py", said.dir / "tasks.py")

    from qbull.embedded.server import EmbeddedServer

    valkey = EmbeddedServer.open(said.dir / "data")
    environment = {
        **os.environ,
        "QBULL_URL": f"unix://:{valkey.password}@{valkey.socket}?db=0",
        "QUEUES_UI_PASS": PASSWORD,
        "PYTHONPATH": str(said.dir),
        "TZ": "UTC",
        "QBULL_LOG_LEVEL": "ERROR",
        "QBULL_ALERT_URLS": f"http://127.0.0.1:{said.port + 1}/hooks/ops",
        "QBULL_ALERT_ALLOW": "127.0.0.1",
    }
    os.environ.update(environment)
    sys.path.insert(0, str(said.dir))
    qbull = [sys.executable, "-m", "qbull.cli.main"]
    commands = [
        [sys.executable, "-c", INBOX, str(said.port + 1)],
        *[_named(f"worker-{n}", [*qbull, "worker", "tasks:app", "--processes", "1"]) for n in (1, 2)],
        [*qbull, "serve", "tasks:app", "--port", str(said.port)],
    ]
    processes = [subprocess.Popen(command, env=environment, cwd=said.dir) for command in commands]
    (said.dir / "pids").write_text(" ".join(str(process.pid) for process in processes))
    try:
        asyncio.run(_live(said.minutes, None if said.keep else f"http://127.0.0.1:{said.port}"))
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(LONGEST_STOP_SECONDS)
        valkey.close()


INBOX = """
import http.server, sys
class Inbox(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"] or 0)); self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Inbox).serve_forever()
"""


def _named(host: str, command: list[str]) -> list[str]:
    """With a host name of its own, where that can be."""
    may = shutil.which("unshare") is not None and os.geteuid() == 0
    return (
        ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh", *command] if may else command
    )


async def _live(minutes: float, pictured: str | None) -> None:
    """Let people buy, then take pictures of the server at `pictured` while they go on; without one, go on forever."""
    import tasks

    from qbull.errors import ServerAway

    begun, until = time.monotonic(), time.monotonic() + minutes * 60
    taking: asyncio.subprocess.Process | None = None
    async with tasks.app:
        for amount in (249.0, 18.5, 62.0):  # the first fails, the others wait behind it
            await tasks.charge.enqueue("ACC-7731", amount)
        while taking is None or taking.returncode is None:
            if pictured is not None and taking is None and time.monotonic() > until:
                command = (sys.executable, str(HERE.parent / "pictures.py"), pictured, PASSWORD)
                taking = await asyncio.create_subprocess_exec(*command)
            began = time.monotonic()
            with suppress(ServerAway):  # A busy machine is slow; customers come again.
                await _second(tasks, began - begun, minutes * 60)
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
    if taking.returncode:
        raise SystemExit(taking.returncode)


async def _second(tasks: Any, at: float, whole: float) -> None:
    """What people do in one second: more and less of it, with an outage of the mail server on the way."""
    wave = 1 + 0.35 * math.sin(at / 420) + 0.2 * math.sin(at / 97) + random.uniform(-0.1, 0.1)
    down = 0.5 < at / whole < 0.62
    tasks.MAIL_IS_DOWN.touch() if down else tasks.MAIL_IS_DOWN.unlink(missing_ok=True)
    calls: list[Any] = [_mail(tasks) for _ in range(round(8 * wave))]
    calls += [tasks.newsletter.enqueue(f"u-{_n()}", _address(), 48) for _ in range(round(6 * wave))]
    for _ in range(round(5 * wave)):
        account = f"ACC-{random.randint(1000, 7700)}"
        calls.append(tasks.charge.enqueue(account, round(random.uniform(4, 300), 2)))
    if random.random() < 0.5:
        calls.append(tasks.notify.enqueue("#orders", f"order {_n()} was paid"))
    if random.random() < 0.12:
        rows = random.randint(2_000, 9_000)
        calls.append(tasks.monthly_statement.enqueue(random.choice(CUSTOMERS), "2026-10", rows))
    if random.random() < 0.006:
        calls.append(tasks.export.enqueue(random.choice(CUSTOMERS)))
    if random.random() < 0.004:
        calls.append(tasks.newsletter.enqueue(f"u-{_n()}", "nowhere", 48))
    if random.random() < 0.003:
        calls.append(tasks.charge.enqueue("ACC-7731", round(random.uniform(4, 300), 2)))
    if random.random() < 0.01:
        calls.append(tasks.welcome.options(delay=3600).enqueue(f"u-{_n()}", _address()))
    if random.random() < 0.12:
        calls.append(_order(tasks, sold_out=random.random() < 0.08))
    await asyncio.gather(*calls)


def _mail(tasks: Any) -> Any:
    name = random.choice(NAMES)
    number = _n()
    address = f"{name.lower()}.{number}@example.com"
    if random.random() < 0.6:
        return tasks.verify.enqueue(f"u-{number}", address, name)
    return tasks.welcome.enqueue(f"u-{number}", address)


async def _order(tasks: Any, *, sold_out: bool) -> None:
    import qbull

    order = _n()
    items = ["sold-out"] if sold_out else random.sample(["mug", "shirt", "poster", "lamp"], 2)
    await qbull.chain(
        tasks.reserve.step(order, items),
        qbull.group(
            tasks.invoice.step(order),
            tasks.label.step(order, random.choice(("dhl", "ups"))),
            tasks.pick.step(order),
        ),
        tasks.ship.step(order),
        fallback=tasks.refund.step(order),
    ).enqueue()


def _address() -> str:
    return f"{random.choice(NAMES).lower()}.{_n()}@example.com"


def _n() -> int:
    return random.randint(10_000, 99_999)


if __name__ == "__main__":
    main()
