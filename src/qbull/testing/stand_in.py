"""Stand-ins: an app uses other parts during a test, and is restored afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

from qbull.app import App
from qbull.errors import QbullError

_MISSING = object()


class StandIn:
    """Other values for attributes and methods of an app. Its connections are put aside, not closed."""

    def __init__(self, app: App, **instead: Any) -> None:
        if "_stand_in" in vars(app):
            raise QbullError("this app is used by another test already; leave that block first")
        instead |= {
            "_stand_in": self,
            "_clients": {},
            "_portal": None,
        }
        self._app = app
        self._before = {name: vars(app).get(name, _MISSING) for name in instead}
        vars(app).update(instead)

    def undo(self) -> None:
        for name, value in self._before.items():
            if value is _MISSING:
                del vars(self._app)[name]
            else:
                vars(self._app)[name] = value


async def close(app: App) -> None:
    """Close the connections of the stand-in, from asynchronous code."""
    await app.close()
    await asyncio.to_thread(app.close_sync)
    close_elsewhere(app)


def close_elsewhere(app: App) -> None:
    """Close the connections of event loops that no longer run, such as those of ended tests."""
    for loop, client in list(app._clients.items()):
        if not loop.is_closed() and not loop.is_running():
            loop.run_until_complete(client.close())
