"""Check the histories of a campaign once more, without running it.

    PYTHONPATH=tests:tests/chaos python tests/chaos/recheck.py DIRECTORY        # the one that make chaos ARGS=--keep has named

What the servers said at the end is in `found.json` there. Where it is missing, dead letters, ticks and counts are taken to be right, and only
what the processes wrote down themselves is judged.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
from checker import Checker, Found
from history import DEAD, runs_in, words_in
from job_plan import plan_of
from loads import schedules
from loads.record import events_in

from table import table


def found_in(directory: Path) -> tuple[Found, bool]:
    """What was found, and whether it was written down."""
    path = directory / "found.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Found), True
    words = words_in(directory / "faults.words")
    letters = {
        f"{key}:{number}"
        for runs in directory.glob("*.runs")
        for kind, _, _, key, number, _ in runs_in(runs)
        if kind == DEAD and plan_of(key, number).letter == "never"
    }
    crashed = sorted({id for word in words for id in word.get("crashed", ())})
    return Found(failed=sorted(letters), crashed=crashed, until=_rung_until(directory)), False


def _rung_until(directory: Path) -> int:
    """The last tick that every schedule has fired."""
    rung = defaultdict[str, int](int)
    for event in events_in(directory).get(schedules.NAME, ()):
        rung[event.key] = max(rung[event.key], event.n)
    return min(rung.values()) if len(rung) == schedules.BELLS else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--replicated", action="store_true", help="of sentinel and cluster, where found.json is missing"
    )
    given = parser.parse_args()
    directory = given.directory / "history" if (given.directory / "history").is_dir() else given.directory
    found, kept = found_in(directory)
    found.replicated = found.replicated or given.replicated
    verdict = Checker(directory, found).check()
    print(
        table(
            verdict,
            {} if kept else {"found.json": "missing, so only what the processes wrote down was judged"},
        )
    )
    return 1 if verdict.broken() else 0


if __name__ == "__main__":
    sys.exit(main())
