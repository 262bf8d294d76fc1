"""What `qbull doctor` says of durability: which profile really holds, on each primary, and why not a higher one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.core.durability import PROFILES, Durability, ReplicationFacts, highest_profile, unmet_requirement
from qbull.errors import ServerError
from qbull.store.connection.facts import facts_of
from qbull.store.store import Store

PROFILE_MEANINGS: dict[Durability, str] = {
    "fast": "a power cut can lose the last two seconds of acknowledged jobs",
    "durable": "an acknowledged job is on the server's disk",
    "replicated": "an acknowledged job is on the server's disk and on every replica, where it is asked for",
    "strict": "an acknowledged job is on the disks of the server and of every replica, where it is asked for",
}


async def check_durability(store: Store, wanted: Durability | None) -> AsyncIterator[Finding]:
    """`wanted` is what the app asks of every enqueue."""
    primaries = await store.server.primaries()
    for primary in primaries:
        subject = "durability"
        if len(primaries) > 1:
            subject += " of {}:{}".format(*primary.address.endpoint)
        try:
            facts = await primary.talk("", partial(facts_of, replicas=True))
        except ServerError as error:
            yield problem(subject, str(error), "what it holds is not known")
            continue
        yield _judge(subject, facts, wanted)


def _judge(subject: str, facts: ReplicationFacts, wanted: Durability | None) -> Finding:
    held, missed = highest_profile(facts)
    if wanted is not None and (short := unmet_requirement(wanted, facts)) is not None:
        truth = f'only "{held}" holds' if held is not None else "no profile holds"
        return problem(subject, f'{truth}, and "{wanted}" is asked for: {short.fact}', short.step)
    if held is None:
        assert missed is not None
        return problem(subject, missed.fact, missed.step)
    fact = f'"{held}" holds: {PROFILE_MEANINGS[held]}'
    if missed is None:
        return ok(subject, fact)
    fact += f'; "{PROFILES[PROFILES.index(held) + 1]}" does not: {missed.fact}'
    return note(subject, fact, missed.step) if held == "fast" else ok(subject, fact)
