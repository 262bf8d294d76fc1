"""Workers join, leave and are killed, and servers die: no job is lost, every key stays in order, with each kind of sharing.

These are small; `make chaos` runs longer ones, with more kinds of faults.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rebalancing import HARM, SHARINGS, TOPOLOGIES, RebalancingRun

pytestmark = [pytest.mark.xdist_group("rebalancing"), pytest.mark.timeout(240)]


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_no_job_is_lost_and_every_key_stays_in_order(
    topology: str, sharing: str, tmp_path: Path
) -> None:
    with TOPOLOGIES[topology](tmp_path) as site:
        report = await RebalancingRun(site, tmp_path, sharing, topology, seconds=5, seed=3).run(keys=60)

    assert (report.lost, report.disorder, report.failed, report.faults) == ([], [], 0, []), report.row
    assert min(report.kills[word] for word in HARM) >= 1, report.row
    if topology == "single":
        assert report.backward == [] and report.completed == report.jobs, report.row
    else:
        assert report.kills["server"] == 1, report.row
