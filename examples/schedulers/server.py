"""One of any number of servers: REST API, dashboard and metrics of the queues, and a worker beside them.

`uvicorn server:web --port 3001`
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schedulers import app
from starlette.applications import Starlette
from starlette.routing import Mount

import qbull

# Each job logs its start and its end; a failure has its reason.
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with app, app.worker():  # at the end the worker finishes what it does
        yield


web = Starlette(routes=[Mount("/", app=qbull.asgi(app))], lifespan=lifespan)
