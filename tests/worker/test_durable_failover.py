"""After a failover that has lost the outcome of a durable job, its recorded steps do not run again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_confirmed_order import Gateway, is_empty

import qbull
from conftest import eventually, every_fault
from topology import PASSWORD, raised_pair, wait_for

pytestmark = [pytest.mark.xdist_group("confirm"), pytest.mark.timeout(120)]


async def test_a_job_whose_outcome_a_failover_has_lost_does_not_run_its_recorded_steps_again(
    tmp_path: Path,
) -> None:
    runs: list[str] = []
    recorded, may_end = asyncio.Event(), asyncio.Event()
    with raised_pair(tmp_path) as pair:
        old, (new,) = pair.primary, pair.replicas
        async with Gateway(old).running() as gateway:
            url = f"redis://:{PASSWORD}@127.0.0.1:{gateway.port}/0?replicas=1"
            app = qbull.App(url, prefix="test", durability="replicated")
            work = app.queue("work")

            async def reserve() -> None:
                runs.append("reserve")

            @work.task(durable=True)
            async def order() -> None:
                runs.append("order")
                await qbull.current_job().step(reserve)
                recorded.set()
                await may_end.wait()

            async with app.worker():
                job = await order.enqueue()
                await recorded.wait()

                # The replica is cut off, so that it has the step and never gets the outcome.
                new.tell("REPLICAOF", "NO", "ONE")
                may_end.set()

                async def is_completed() -> bool:
                    return await job.state() == "completed"

                await eventually(is_completed, within=30)
                gateway.lead_to(None)
                old.kill()
                gateway.lead_to(new)
                old.start()
                wait_for(old.answers)
                old.tell("REPLICAOF", "127.0.0.1", new.port)
                await eventually(is_completed, within=60)
                await eventually(lambda: is_empty(work), within=30)

            assert runs == ["order", "reserve", "order"]
            assert await every_fault(app._client().store) == []
            await app.close()
