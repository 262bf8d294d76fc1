"""The settler of a partition: what it tells the worker when outcomes are written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from qbull.store.delivery import Delivery
from qbull.worker.outage import Outage
from qbull.worker.settle import Settler


async def take_all(outcomes: object) -> list[bytes]:
    return []


async def test_a_batch_that_ends_no_delivery_frees_no_slot_of_a_limit() -> None:
    partition: Any = SimpleNamespace(settings=SimpleNamespace(order="key", on_failed="skip"), settle=take_all)
    freed: list[tuple[Delivery, ...]] = []
    settler = Settler(partition, Outage(), lambda *deliveries: freed.append(deliveries))
    fields = [b"first", b"record", b"second", b"record"]
    train = Delivery(partition, "5", b"1-0", fields, b"51-0", 0.0, lane=b"lane")

    assert not settler.done(train.job(0), b"")
    await settler.flush()
    assert freed == []

    assert settler.done(train.job(1), b"")
    await settler.flush()
    assert freed == [(train,)]
