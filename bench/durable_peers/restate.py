"""Restate: a service behind Hypercorn (HTTP/2), registered with the server, and invoked through its ingress."""

from __future__ import annotations

import asyncio
import os
import sys

from callers import steps_a_second

sys.path.pop(0)  # this directory: our name is the library's

import httpx
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

STEPS = int(sys.argv[1])
ADMIN, INGRESS, PORT = (os.environ[f"BENCH_{name}"] for name in ("ADMIN", "INGRESS", "PORT"))
service = restate.Service("bench")


async def one_step(n: int) -> int:
    return n


@service.handler()
async def has_steps(context: restate.Context, callers: int) -> None:
    for n in range(STEPS):
        await context.run_typed("one_step", one_step, n=n)


async def main(callers: int, seconds: float) -> float:
    config = Config()
    config.bind = [f"127.0.0.1:{PORT}"]
    config.loglevel = "ERROR"
    ended = asyncio.Event()
    serving = asyncio.create_task(serve(restate.app([service]), config, shutdown_trigger=ended.wait))
    try:
        limits = httpx.Limits(max_connections=callers, max_keepalive_connections=callers)
        async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:
            deployment = {"uri": f"http://127.0.0.1:{PORT}"}
            (await client.post(f"{ADMIN}/deployments", json=deployment)).raise_for_status()

            async def workflow() -> None:
                (await client.post(f"{INGRESS}/bench/has_steps", json=callers)).raise_for_status()

            return await steps_a_second(workflow, STEPS, callers, seconds)
    finally:
        ended.set()
        await serving


print(asyncio.run(main(int(sys.argv[2]), float(sys.argv[3]))))
