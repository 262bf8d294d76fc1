"""The producer of the small loads as a process, to be killed: each load enqueues beside the others. Each life uses keys of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from campaign_app import app
from loads import SMALL_LOADS

ONLY = os.environ.get("CHAOS_LOADS", "").split(",")


async def main() -> None:
    loads = [load for load in SMALL_LOADS if ONLY == [""] or load.NAME in ONLY]
    producing = asyncio.gather(*(load.produce() for load in loads))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, producing.cancel)
    with suppress(asyncio.CancelledError):
        await producing
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
