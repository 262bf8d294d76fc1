"""The number of partitions changes from 4 to 16 to 6 under load, while workers, producers, commands and servers die.

No job is lost, none is out of order. These are small; tests/chaos/repartitioning_run.py runs longer ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rebalancing import SHARINGS, TOPOLOGIES
from repartitioning_run import RepartitioningRun

pytestmark = [pytest.mark.xdist_group("repartitioning"), pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("topology", "sharing"),
    [*(("single", sharing) for sharing in SHARINGS), ("cluster", "auto"), ("sentinel", "auto")],
)
async def test_no_job_is_lost_and_every_key_stays_in_order(
    topology: str, sharing: str, tmp_path: Path
) -> None:
    with TOPOLOGIES[topology](tmp_path) as site:
        report = await RepartitioningRun(site, tmp_path, sharing, topology, seconds=6, seed=5).run(keys=40)

    assert (report.lost, report.disorder, report.failed, report.faults) == ([], [], 0, []), report.row
    assert (report.kills["change"], report.kills["command"], report.kills["producer"]) == (2, 2, 2)
    if topology == "single":
        assert report.backward == [] and report.completed == report.jobs, report.row
    else:
        assert report.kills["server"] == 1, report.row
