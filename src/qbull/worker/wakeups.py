"""Bell: hear what the scripts tell, and pass it to whom it concerns.

Nothing depends on a message arriving: whoever is told would have found out by itself a little later. After every
new subscription everybody is told to look, because something may have been said meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.worker.outage import Outage


class WakeUpListener:
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
