"""What so many jobs a second need: the formulas of docs/operate/sizing.md, its tables, and the constants in them.

The constants are in sizing.json, rounded to two digits, so that a reader who repeats the computation gets the same.
`python -m bench.sizing` takes them from the last `make bench ARGS=--cluster` and writes them into both files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from bench.contestant import TEXT
from bench.floor import encode

CONSTANTS = Path(__file__).with_name("sizing.json")
MEASURED = Path(__file__).with_name("out.json")
PAGE = Path(__file__).parents[1] / "docs" / "operate" / "sizing.md"
RATES = (1_000, 10_000, 100_000)
SHARED_PARTITIONS = (64, 1_024)
EXAMPLE_RATE = 10_000
EXAMPLE = f"For {EXAMPLE_RATE:,} jobs a second,"
BUSY = 0.5
"""The part of a core that the usual load may use, of a primary and of a worker process."""
SMALLEST_CLUSTER = 3
PARTITIONS_FOR_EACH_PRIMARY = 16
KEPT_IN_EACH_PARTITION = 10_000
KEPT_BYTES = 200
SPARE_MEMORY = 2
"""How many times the memory that is needed a server should have."""
FEW_PROCESSES = 10
"""So many worker processes read one partition."""


@dataclass(frozen=True)
class Constants:
    """Measured: processor time in microseconds and bytes for one job, and for one idle worker process."""

    server_us: float
    """Of one server, without order: enqueue and run."""
    cluster_us: float
    """Of all primaries of a cluster together."""
    server_key_us: float
    """The same for jobs that are ordered by key."""
    cluster_key_us: float
    client_us: float
    worker_us: float
    waiting_bytes: float
    """Without its arguments."""
    to_server_bytes: float
    from_server_bytes: float
    log_bytes: float
    idle_commands: dict[str, float]
    """Commands a second of an idle worker, by the name of its row in the bench."""
    many: dict[str, dict[str, dict[str, float]]]
    """Commands a second and percent of a core of the server, by partitions and idle worker processes."""
    sharing: dict[str, dict[str, float]]
    """Seconds, by the number of partitions."""

    @classmethod
    def read(cls) -> Constants:
        return cls(**json.loads(CONSTANTS.read_text()))

    @classmethod
    def measured(cls, cluster: Mapping[str, Any]) -> Constants:
        """From the figures of `make bench ARGS=--cluster`."""
        plain, keyed = (cluster["jobs"][order] for order in ("plain", "keyed"))
        one = plain["one"]
        arguments = len(encode({"n": 50_000, "key": "k0", "text": TEXT}))
        of_job = {
            "server_us": _server_us(one),
            "cluster_us": _server_us(plain["cluster"]),
            "server_key_us": _server_us(keyed["one"]),
            "cluster_key_us": _server_us(keyed["cluster"]),
            "client_us": one["enqueue_client_us"],
            "worker_us": one["run_worker_us"],
            "waiting_bytes": one["waiting_bytes"] - arguments,
            "to_server_bytes": one["to_server_bytes"],
            "from_server_bytes": one["from_server_bytes"],
            "log_bytes": one["log_bytes"],
        }
        return cls(
            **_rounded(of_job),
            idle_commands=_rounded(
                {name: idle["commands_per_s"] for name, idle in cluster.get("idle", {}).items()}
            ),
            many={
                partitions: {
                    workers: _rounded({name: found[name] for name in ("commands_per_s", "server_percent")})
                    for workers, found in crowds.items()
                }
                for partitions, crowds in cluster.get("many", {}).items()
            },
            sharing={partitions: _rounded(found) for partitions, found in cluster.get("sharing", {}).items()},
        )


@dataclass(frozen=True)
class Load:
    """Jobs a second, and what one of them is like."""

    rate: int
    seconds: float = 0.05
    cpu_ms: float = 1.0
    argument_bytes: int = 100
    by_key: bool = False
    outage_seconds: int = 600
    """For how long jobs may wait because no worker runs."""


@dataclass(frozen=True)
class Size:
    """What a load needs."""

    server_cores: float
    primaries: int
    processes: int
    concurrency: int
    partitions: int
    memory_gb: float
    network_mbit: float
    disk_mb: float


def size_for(load: Load, constants: Constants) -> Size:
    c = constants
    alone = load.rate * (c.server_key_us if load.by_key else c.server_us) / 1e6
    cores, primaries = alone, 1
    if alone > BUSY:
        cores = load.rate * (c.cluster_key_us if load.by_key else c.cluster_us) / 1e6
        primaries = max(ceil(cores / BUSY), SMALLEST_CLUSTER)
    processes = max(ceil(load.rate * (c.worker_us + load.cpu_ms * 1000) / 1e6 / BUSY), 2)
    partitions = (
        1 if primaries == 1 and processes <= FEW_PROCESSES else PARTITIONS_FOR_EACH_PRIMARY * primaries
    )
    waiting = load.rate * load.outage_seconds * (c.waiting_bytes + load.argument_bytes)
    kept = KEPT_IN_EACH_PARTITION * partitions * KEPT_BYTES
    return Size(
        server_cores=cores,
        primaries=primaries,
        processes=processes,
        concurrency=ceil(load.rate * load.seconds / processes / BUSY),
        partitions=partitions,
        memory_gb=(waiting + kept) * SPARE_MEMORY / 1e9,
        network_mbit=load.rate * (c.to_server_bytes + c.from_server_bytes) * 8 / 1e6,
        disk_mb=load.rate * c.log_bytes / 1e6,
    )


def constants_table(c: Constants) -> list[str]:
    rows = [
        ("server, one job without order", f"{c.server_us:g} µs", f"{c.cluster_us:g} µs on a cluster, all primaries together"),
        ("server, one job by key", f"{c.server_key_us:g} µs", f"{c.cluster_key_us:g} µs on a cluster"),
        ("program that enqueues, one job in a list", f"{c.client_us:g} µs", "processor time"),
        ("worker, one job", f"{c.worker_us:g} µs", "processor time, without that of your function"),
        ("memory of a waiting job", f"{c.waiting_bytes:g} bytes", "and its arguments"),
        ("network, to the server", f"{c.to_server_bytes:g} bytes", "with arguments of 100 bytes, enqueue and run"),
        ("network, from the server", f"{c.from_server_bytes:g} bytes", "the same"),
        ("log on disk", f"{c.log_bytes:g} bytes", "the same"),
    ]  # fmt: skip
    return _table(("for", "measured", ""), rows)


def idle_table(c: Constants) -> list[str]:
    words = {
        "idle_1": "one, one partition",
        "idle_64": "one, 64 partitions",
        "idle_64_cluster": "one, 64 partitions on a cluster",
    }
    rows = [(words[name], f"{commands:g}", "") for name, commands in c.idle_commands.items()]
    rows += [
        (
            f"{int(workers):,}, {'one partition' if partitions == '1' else f'{partitions} partitions'}",
            f"{found['commands_per_s']:,g}",
            f"{found['server_percent']:g} %",
        )
        for partitions, crowds in c.many.items()
        for workers, found in crowds.items()
    ]
    return _table(("idle worker processes", "commands a second", "of a core of the server"), rows)


def sharing_table(c: Constants) -> list[str]:
    found = [c.sharing.get(str(number), {}) for number in SHARED_PARTITIONS]
    rows = [
        (words, *(f"{one[name]:g} s" if one else "not measured" for one in found))
        for words, name in (
            ("100 join: until all shares are even", "join_seconds"),
            ("the longest time that a partition was unread meanwhile", "join_unread_seconds"),
            ("100 stop: until all shares are even", "leave_seconds"),
            ("the longest time that a partition was unread meanwhile", "leave_unread_seconds"),
            ("100 die: until all partitions are read", "die_seconds"),
        )
    ]
    return _table(("100 workers stay", *(f"{number:,} partitions" for number in SHARED_PARTITIONS)), rows)


def sizes_table(constants: Constants) -> list[str]:
    sizes = [size_for(Load(rate), constants) for rate in RATES]
    rows = [
        ("cores of the server that jobs use", [f"{size.server_cores:.2g}" for size in sizes]),
        ("primaries", [f"{size.primaries}" for size in sizes]),
        ("worker processes", [f"{size.processes:,}" for size in sizes]),
        ("`concurrency`", [f"{size.concurrency}" for size in sizes]),
        ("partitions", [f"{size.partitions:,}" for size in sizes]),
        ("memory of all primaries", [f"{size.memory_gb:.2g} GB" for size in sizes]),
        ("network of all primaries", [f"{size.network_mbit:,.0f} Mbit/s" for size in sizes]),
        ("written to disk by all primaries", [f"{size.disk_mb:,.1f} MB/s" for size in sizes]),
    ]
    return _table(
        ("jobs a second", *(f"{rate:,}" for rate in RATES)), [(name, *cells) for name, cells in rows]
    )


def example(c: Constants) -> str:
    """The sentence with the formulas for one load."""
    load = Load(EXAMPLE_RATE)
    size = size_for(load, c)
    return (
        f"{EXAMPLE} the server needs {load.rate:,} x {c.server_us:g} µs = {size.server_cores:.2g} cores, "
        f"and the workers {load.rate:,} x ({c.worker_us:g} µs + {load.cpu_ms * 1000:,g} µs) / {BUSY:g} = "
        f"{size.processes} processes."
    )


TABLES = (constants_table, sizes_table, idle_table, sharing_table)


def two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def with_table(page: str, table: Sequence[str]) -> str:
    """The page with this table instead of the one with the same header."""
    old = re.compile(rf"^{re.escape(table[0])}\n(\|.*\n)*", re.MULTILINE)
    if len(old.findall(page)) != 1:
        raise ValueError(f"the page has no table or several that start with {table[0]}")
    return old.sub(lambda _: "\n".join(table) + "\n", page)


def _server_us(found: Mapping[str, float]) -> float:
    return found["enqueue_server_us"] + found["run_server_us"]


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: two_digits(value) for name, value in figures.items()}


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cells).rstrip() + " |" for cells in lines]


def main() -> None:
    constants = Constants.measured(json.loads(MEASURED.read_text())["cluster"])
    CONSTANTS.write_text(json.dumps(asdict(constants), indent=2) + "\n")
    page = PAGE.read_text()
    for table in TABLES:
        page = with_table(page, table(constants))
    PAGE.write_text(re.sub(rf"^{EXAMPLE}.*", example(constants), page, flags=re.MULTILINE))


if __name__ == "__main__":
    main()
