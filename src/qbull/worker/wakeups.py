"""Wake-ups: listen to the messages of the scripts, and pass them on to the parts that they concern.

Nothing depends on a message arriving: every receiver also polls. After each new subscription all of them are
woken, because messages may have been lost meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.worker.outage import Outage


class WakeUpListener:
    """`on_wake_up` receives the base and the word of every message: `Worker._on_wake_up`."""

    def __init__(self, store: Store, outage: Outage, on_wake_up: Callable[[str, str], None]) -> None:
        self._store = store
        self._outage = outage
        self._on_wake_up = on_wake_up

    async def run(self) -> None:
        while True:
            try:
                async for _, message in self._store.server.listen(self._store.names.bell):
                    self._outage.recovered(self)
                    base, _, word = message.decode("utf-8", "replace").partition("\n")
                    self._on_wake_up(base, word)
            except ServerError as error:
                self._outage.failed(error, self)
            await asyncio.sleep(0.2)
