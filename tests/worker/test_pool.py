"""The processes of `cpu=True` end under every event loop."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from qbull.worker.cpu_pool import _PoolProcess


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_process_ends_and_is_seen_to(run: object) -> None:
    async def main() -> bool:
        process = await _PoolProcess.start()
        await process.end()
        return process.ended

    assert callable(run) and run(main())
