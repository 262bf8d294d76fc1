"""What `qbull doctor` says of durability: which profile really holds, on each primary, and why not a higher one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.core.durability import Durability, ReplicationFacts, highest_profile, unmet_requirement
from qbull.errors import ServerError
from qbull.store.connection.facts import facts_of
from qbull.store.store import Store


async def check_durability(store: Store, wanted: Durability | None) -> AsyncIterator[Finding]:
    """`wanted` is what the app asks of every enqueue."""
    primaries = await store.server.primaries()
    for primary in primaries:
        subject = "durability"
        if len(primaries) > 1:
            subject += " of {}:{}".format(*primary.address.endpoint)
        try:
            facts = await primary.converse("", partial(facts_of, replicas=True))
        except ServerError as error:
            yield problem(subject, str(error), "what it holds is not known")
            continue
        yield _judge(subject, facts, wanted)


def _judge(subject: str, facts: ReplicationFacts, wanted: Durability | None) -> Finding:
    held, above = highest_profile(facts)
    if wanted is not None and (unmet := unmet_requirement(wanted, facts)) is not None:
        truth = f'only "{held.name}" holds' if held is not None else "no profile holds"
        return problem(subject, f'{truth}, and "{wanted}" is asked for: {unmet.fact}', unmet.remedy)
    if held is None:
        assert above is not None
        return problem(subject, above[1].fact, above[1].remedy)
    fact = f'"{held.name}" holds: {held.meaning}'
    if above is None:
        return ok(subject, fact)
    profile, unmet = above
    fact += f'; "{profile.name}" does not: {unmet.fact}'
    return ok(subject, fact) if held.flushes_own_disk else note(subject, fact, unmet.remedy)
