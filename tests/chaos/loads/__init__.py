"""The kinds of load of a campaign. Each is a module: its queue and tasks, its producer, and the oracle that judges it."""

from loads import (
    cancels,
    chunks,
    cpu,
    deploys,
    durable,
    expiry,
    flows,
    halts,
    limits,
    priorities,
    rates,
    threads,
    unique,
)

SMALL_LOADS = (
    threads, cpu, chunks, flows, unique, cancels, expiry, rates, limits, halts, priorities, deploys, durable,
)  # fmt: skip
"""Those that one producer enqueues (small_producer.py)."""
