"""Server checks of `qbull doctor`: is the server reachable, does it keep jobs safe, has it enough memory?"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator

from qbull.cli.doctor.durability import check_durability
from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.cli.terminal import span
from qbull.core.durability import Durability
from qbull.embedded.disk import LOW_FREE_DISK_BYTES, MIN_FREE_DISK_BYTES
from qbull.errors import ServerError, ServerRefused
from qbull.store.connection.requirements import read_info, refuse_unfit_server
from qbull.store.read import inspect
from qbull.store.store import Store

MAX_CLOCK_SKEW_SECONDS = 1.0
MEMORY_FULL_RATIO, MEMORY_FILLING_RATIO = 0.9, 0.75


async def check_server(store: Store, required: Durability | None) -> AsyncIterator[Finding]:
    """Check the server.

    If it is unreachable, that is the only finding. `required` is the app's durability.
    """
    shown = store.server.address.shown
    try:
        info = await read_info(store.server)
    except ServerError as error:
        yield problem("server", str(error), "start it, or correct the address in QBULL_URL")
        return
    yield ok("server", f"{_product(info)} at {shown}, up for {span(float(info.get('uptime_in_seconds', 0)))}")
    try:
        refuse_unfit_server(shown, info)
        yield ok("policy", "the version is supported, and nothing is evicted when memory runs out")
    except ServerRefused as error:
        yield problem("policy", str(error), "until then jobs are not safe here")
    if info.get("role") == "slave":
        yield problem("role", "this is a replica, which accepts no jobs", "use the address of its primary")
    yield _memory(info)
    async for finding in check_durability(store, required):
        yield finding
    for finding in _embedded(store):
        yield finding
    yield _transport(store)
    yield await _clock(store)
    yield await _scripts(store)
    yield _connections(info)


def _product(info: dict[str, str]) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', '?')}"


def _memory(info: dict[str, str]) -> Finding:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    machine = int(info.get("total_system_memory", 0))
    if not limit:
        return note(
            "memory",
            f"{_size(used)} used on a machine with {_size(machine)}, and maxmemory is not set",
            "set it, so that the server refuses writes before the system kills it",
        )
    fact = f"{_size(used)} used of {_size(limit)}"
    if used > MEMORY_FULL_RATIO * limit:
        return problem(
            "memory", fact, "raise maxmemory, or keep fewer finished jobs: new jobs will soon be refused"
        )
    if used > MEMORY_FILLING_RATIO * limit:
        return note("memory", fact, "raise maxmemory, or keep fewer finished jobs")
    return ok("memory", fact)


def _embedded(store: Store) -> Iterator[Finding]:
    """Check the embedded server, if it is one: has its disk room, and does it run as root?"""
    directory = store.server.address.directory
    if directory is None:
        return
    free = shutil.disk_usage(directory).free
    if free < MIN_FREE_DISK_BYTES:
        yield problem("disk", f"{directory} is full", "free some space: until then nothing can be enqueued")
    elif free < LOW_FREE_DISK_BYTES:
        next_step = "free some space: without it nothing can be enqueued"
        yield note("disk", f"{directory} has {_size(free)} left", next_step)
    else:
        yield ok("disk", f"{directory} has {_size(free)} left")
    if os.geteuid() == 0:
        next_step = "run qbull as its own user, so that a flaw in the server does not expose the machine"
        yield note("embedded server", "runs as root", next_step)


def _transport(store: Store) -> Finding:
    """Check whether the connection to the server is encrypted."""
    address = store.server.address
    if address.tls is not None:
        if address.tls.verifies:
            return ok("transport", "TLS, and the server's certificate is verified")
        return note(
            "transport", "TLS with any certificate", "remove ssl_cert_reqs=none and set ssl_ca_certs=FILE"
        )
    hosts = [seed.endpoint[0] for seed in address.seeds] or [address.kwargs.get("host", "localhost")]
    if all(_is_local(host) for host in hosts):
        return ok("transport", "does not leave this machine")
    return note("transport", "plain text over the network", "use rediss:// if others can listen")


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


async def _clock(store: Store) -> Finding:
    asked = time.time()
    theirs = await inspect.server_time(store)
    skew = theirs - (asked + time.time()) / 2
    if abs(skew) < MAX_CLOCK_SKEW_SECONDS:
        return ok("clock", f"{span(abs(skew))} from the clock here")
    direction = "ahead of" if skew > 0 else "behind"
    return note(
        "clock",
        f"{span(abs(skew))} {direction} the clock here",
        "qbull uses the server's clock; times shown here are off",
    )


async def _scripts(store: Store) -> Finding:
    try:
        await inspect.probe_script(store)
    except ServerError as error:
        return problem("scripts", str(error), "allow the user EVAL, EVALSHA and the keys of this prefix")
    return ok("scripts", "can run")


def _connections(info: dict[str, str]) -> Finding:
    rejected, clients = int(info.get("rejected_connections", 0)), info.get("connected_clients", "?")
    if rejected:
        return note("connections", f"{rejected} rejected since the server started", "raise its maxclients")
    return ok("connections", f"{clients} now, none rejected")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TB"
