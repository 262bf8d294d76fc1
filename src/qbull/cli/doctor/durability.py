"""Durability checks of `qbull doctor`: which profile each primary supports, and why not a higher one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.core.durability import Durability, ReplicationFacts, highest_profile, unmet_requirement
from qbull.errors import ServerError
from qbull.store.connection.facts import facts_of
from qbull.store.store import Store


async def check_durability(store: Store, required: Durability | None) -> AsyncIterator[Finding]:
    """Check each primary. `required` is the profile that the app asks for in every enqueue."""
    primaries = await store.server.primaries()
    for primary in primaries:
        subject = "durability"
        if len(primaries) > 1:
            subject += " of {}:{}".format(*primary.address.endpoint)
        try:
            facts = await primary.converse("", partial(facts_of, replicas=True))
        except ServerError as error:
            yield problem(subject, str(error), "the profile it supports is unknown")
            continue
        yield _judge(subject, facts, required)


def _judge(subject: str, facts: ReplicationFacts, required: Durability | None) -> Finding:
    supported, above = highest_profile(facts)
    if required is not None and (unmet := unmet_requirement(required, facts)) is not None:
        truth = (
            f'only "{supported.name}" is supported' if supported is not None else "no profile is supported"
        )
        return problem(subject, f'{truth}, and the app requires "{required}": {unmet.fact}', unmet.remedy)
    if supported is None:
        assert above is not None
        return problem(subject, above[1].fact, above[1].remedy)
    fact = f'"{supported.name}" is supported: {supported.meaning}'
    if above is None:
        return ok(subject, fact)
    profile, unmet = above
    fact += f'; "{profile.name}" is not: {unmet.fact}'
    return ok(subject, fact) if supported.flushes_own_disk else note(subject, fact, unmet.remedy)
