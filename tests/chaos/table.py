"""The table that a campaign ends with."""

from __future__ import annotations

from collections import Counter

from checker import Verdict, spread


def table(verdict: Verdict, facts: dict[str, str]) -> str:
    found, money = verdict.found, verdict.found.money
    faults = sum(verdict.faults.values())
    rows = [
        ("jobs acknowledged", f"{verdict.jobs:,}"),
        ("  of these in sequences", f"{verdict.acknowledged:,}"),
        ("  sent in calls without an answer, then sent again", f"{verdict.unknown:,}"),
        ("faults", f"{faults:,}"),
        ("lost", f"{len(verdict.lost):,}{bound(len(verdict.lost), verdict.acknowledged)}"),
        ("run but never sent", f"{len(verdict.strange):,}"),
        ("out of order", f"{len(verdict.disorder):,}{bound(len(verdict.disorder), verdict.acknowledged)}"),
        ("begun before they were due", f"{len(verdict.early):,}"),
        ("runs", f"{verdict.runs:,}"),
        ("executed again after their effect", f"{verdict.again:,} ({100 * verdict.again / max(verdict.runs, 1):.3f} %)"),
        ("  of these after a later one of their key", _counts(verdict.excused) or "0"),
        ("  outcomes lost with their process, at most", f"{verdict.ahead_ms:.1f} ms of them"),
        ("refused by a correct server / not told that they are new", f"{len(verdict.refused):,} / {len(verdict.untold):,}"),
        ("dead letters made / there at the end", f"{verdict.letters:,} / {len(found.failed):,}"),
        ("  because their workers died three times", f"{len(found.crashed):,}"),
        ("orphan processes", f"{len(found.orphans):,}"),
        *((report.load, report.row) for report in verdict.reports),
        ("excused in these loads", _counts(sum((Counter(report.excused) for report in verdict.reports), Counter())) or "0"),
    ]  # fmt: skip
    if money is not None:
        rows.append(
            (
                "transfers through outbox and inbox",
                (
                    f"{money.asked:,} committed, {money.booked:,} booked, doubled {money.doubled}, missing {money.missing}, "
                    f"out of order {money.disorder}, money made or lost {money.money}"
                ),
            )
        )
    rows += [
        ("longest time without any job done, under load", f"{verdict.stall:.2f} s"),
        ("enqueueing unavailable (batches over a second) / longest", f"{verdict.unavailable:.1f} s / {verdict.longest_wait:.1f} s"),
        ("leaked names / audit", f"{len(found.leaked)} / {len(found.audit)}"),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += ["", f"{'fault':<18} {'times':>6}  {'recovery p50':>12} {'p99':>8} {'max':>8}"]
    for kind, times in verdict.faults.most_common():
        took = verdict.recovery.get(kind)
        p50, p99, longest = (f"{seconds:.2f} s" for seconds in spread(took)) if took else ("", "", "")
        lines.append(f"{kind:<18} {times:>6}  {p50:>12} {p99:>8} {longest:>8}")
    lines += ["", *(f"{name}: {value}" for name, value in facts.items())]
    broken = verdict.broken()
    lines += ["", *(f"BROKEN {line}" for line in broken)] if broken else ["", "every promise was kept"]
    return "\n".join(lines)


def bound(events: int, of: int) -> str:
    """None in n means at most 3 in n, with a confidence of 95 %."""
    return f" (at most {3 / of:.1e} of them, at 95 %)" if not events and of else ""


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{many:,} {word}" for word, many in sorted(counts.items()))
