"""Real producers: Celery and RQ themselves, which write to a server of their own; and what they wrote, moved to qbull."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import celery
import kombu.pools
import pytest
import redis
import rq

import qbull
from qbull.drain.celery import CelerySource
from qbull.drain.deliver import JobImporter
from qbull.drain.move import DrainReport, DrainRun
from qbull.drain.rq import RqSource
from qbull.drain.source import SourceServer
from qbull.embedded.server import EmbeddedServer


class Old:
    """What is moved away from: `url` is its address, `redis` a look at it."""

    def __init__(self, server: EmbeddedServer) -> None:
        place = f":{server.password}@{server.socket}"
        self.url = f"unix://{place}?db=7"
        self.broker = f"redis+socket://{place}?virtual_host=7"
        self.redis = redis.Redis.from_url(self.url)

    def celery(self, **settings: Any) -> celery.Celery:
        app = celery.Celery("shop", broker=self.broker, set_as_current=False)
        app.conf.update(settings)
        return app

    def rq(self, name: str = "default", **options: Any) -> rq.Queue:
        return rq.Queue(name, connection=self.redis, **options)

    def left(self) -> set[str]:
        """The names that are left there, but what says which queues there are."""
        names = {name.decode() for name in self.redis.scan_iter()}
        return {name for name in names if not name.startswith("_kombu.") and name != "rq:queues"}


@pytest.fixture(name="old_server", scope="session")
def open_old_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    embedded = EmbeddedServer.open(tmp_path_factory.mktemp("old"))
    yield embedded
    embedded.close()


@pytest.fixture(name="old")
def open_old(old_server: EmbeddedServer) -> Iterator[Old]:
    old = Old(old_server)
    old.redis.flushall()
    yield old
    old.redis.close()
    kombu.pools.reset()  # connections that are used again believe that their queues are still bound


class Killed(BaseException):
    """Somebody has pulled the plug."""


class Mortal(SourceServer):
    """Dies at one of its commands: before the server has it, or before the answer is heard."""

    def __init__(self, url: str, kind: str, at: int, *, heard: bool) -> None:
        super().__init__(url, kind)
        self.left = at
        self.heard = heard

    async def call(self, *command: str | bytes | int) -> Any:
        self.left -= 1
        if self.left == 0 and not self.heard:
            raise Killed
        answer = await super().call(*command)
        if self.left == 0:
            raise Killed
        return answer


async def move(
    app: qbull.App, source: CelerySource | RqSource, *, dry: bool = False, **options: Any
) -> DrainReport:
    """All that waits in the old system, to this app."""
    delivery = JobImporter(app, **options)
    try:
        queues = await source.queues()
        return await DrainRun(source, delivery, dry=dry, on_step=lambda report: None).run(queues)
    finally:
        await source.old.close()
