"""`python -m house`: print the counts, and end with code 1 if one of them is above its ceiling."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from house.checks import CHECKS, Check
from house.source import Finding, House

REPOSITORY = Path(__file__).parents[2]
CEILINGS = "tools/house/ceilings.toml"
HEAD = """\
# The counts of `make house` that have not reached their goals yet. A count may fall and never rise;
# `make house ARGS=--lower` writes the lower counts. A count that is not listed is held to its goal.
"""
FIX = """Fix them, or add an exception with its reason to tools/house/tables.py.
`make house ARGS=NAME` lists all of one count."""
LOWER = "Some counts have fallen: write that down with `make house ARGS=--lower`."
SHOWN_COUNT = 40


def main(arguments: list[str] | None = None) -> int:
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser(prog="house", description="Count the faults of the house.")
    parser.add_argument(
        "counts", nargs="*", metavar="COUNT", help=f"show all violations: all, {', '.join(names)}"
    )
    parser.add_argument("--lower", action="store_true", help=f"write lower counts into {CEILINGS}")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.counts) - {"all", *names}:
        parser.error(f"unknown count {', '.join(sorted(unknown))}; there are: {', '.join(names)}")

    house = House(asked.root)
    found = {check: sorted(check.find(house)) for check in CHECKS}
    ceilings = read_ceilings(house)
    if asked.lower:
        ceilings = lower(ceilings, found)
        write_ceilings(house, ceilings)
    broken = [check for check in CHECKS if len(found[check]) > ceiling_of(check, ceilings)]
    for check in CHECKS:
        chosen = "all" in asked.counts or check.name in asked.counts
        if chosen or (check in broken and not asked.counts):
            show(check, found[check], None if chosen else SHOWN_COUNT)
    print(table(found, ceilings))
    if broken:
        above = " ".join(check.name for check in broken)
        print(f"Above the ceiling: {above}. {FIX}")
    elif lower(ceilings, found) != ceilings:
        print(LOWER)
    return bool(broken)


def read_ceilings(house: House) -> dict[str, int]:
    return {name: int(ceiling) for name, ceiling in tomllib.loads(house.read(CEILINGS)).items()}


def write_ceilings(house: House, ceilings: dict[str, int]) -> None:
    lines = [f"{check.name} = {ceilings[check.name]}\n" for check in CHECKS if check.name in ceilings]
    (house.repository / CEILINGS).write_text(HEAD + "".join(lines), encoding="utf-8")


def ceiling_of(check: Check, ceilings: dict[str, int]) -> int:
    return max(check.goal, ceilings.get(check.name, check.goal))


def lower(ceilings: dict[str, int], found: dict[Check, list[Finding]]) -> dict[str, int]:
    """The ceilings after the counts have fallen. They never rise, and go where the goal is reached."""
    lowered = {check.name: min(len(found[check]), ceiling_of(check, ceilings)) for check in found}
    return {check.name: lowered[check.name] for check in found if lowered[check.name] > check.goal}


def show(check: Check, findings: list[Finding], most: int | None) -> None:
    for finding in findings[:most]:
        print(finding)
    if most is not None and len(findings) > most:
        print(f"… and {len(findings) - most} more: make house ARGS={check.name}")


def table(found: dict[Check, list[Finding]], ceilings: dict[str, int]) -> str:
    lines = [f"{'count':<11}{'now':>5}{'ceiling':>9}{'goal':>6}"]
    for check, findings in found.items():
        count, ceiling = len(findings), ceiling_of(check, ceilings)
        mark = "ABOVE" if count > ceiling else "lower it" if count < ceiling and ceiling > check.goal else ""
        lines.append(
            f"{check.name:<11}{count:>5}{ceiling:>9}{check.goal:>6}  {check.says:<48} {mark}".rstrip()
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
