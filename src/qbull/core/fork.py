"""Forks: a new job that continues the history of another one from a chosen step.

The records before that step are copied, as far as their steps have ended. Steps that were under way there,
and all later ones, run in the new job.

With other arguments or results, the new job may ask for the copied steps with other arguments too. So their
records count for the n-th step of their name, in the order in which the code has asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from qbull.core.digits import whole_number
from qbull.core.durable import ANY_ARGUMENTS, CHECKPOINT_PREFIX, STARTS, StepKey, StepRecord
from qbull.core.published import PUBLISH_PREFIX
from qbull.errors import ArgumentsError


class ForkRequest(NamedTuple):
    """How to fork a job.

    Attributes:
        step: the first step that runs, by its number or its name; after all that have ended if None.
        arguments: other arguments of the job by name.
        results: other results of copied steps, by number or name.
        id: the id of the new job; a new one if None.
    """

    step: int | str | None = None
    arguments: Mapping[str, Any] | None = None
    results: Mapping[int | str, Any] | None = None
    id: str | None = None

    @property
    def changes_steps(self) -> bool:
        """Whether the copied steps may be asked for with other arguments."""
        return self.arguments is not None or bool(self.results)


class CopiedStep(NamedTuple):
    """A record of the new job. `patch` is the name under which the request has another result for it."""

    record: StepRecord
    patch: int | str | None = None


def step_in(text: str) -> int | str:
    """The step that a text names: a number if it is one, otherwise a name."""
    number = whole_number(text)
    return text if number is None else number


def copied_steps(records: Sequence[StepRecord], request: ForkRequest) -> list[CopiedStep]:
    """The records of the new job, with the contents of the old one. Raises ArgumentsError."""
    first = _first_step(records, request.step)
    before = [record for record in records if record.number < first and record.end != "a"]
    ended = {record.key for record in before if record.end not in STARTS}
    copied = [record for record in before if record.key in ended]
    patches = _patches(copied, request.results or {}, first)
    if request.changes_steps:
        copied = _for_any_arguments(copied)
    return [_copy(record, patches.get(record.number)) for record in copied]


def copied_publications(records: Sequence[StepRecord], steps: Sequence[CopiedStep]) -> set[str]:
    """The names that the job has published in the copied part, and not again later."""
    copied, last = {step.record.number for step in steps}, dict[str, int]()
    for record in records:
        if record.name.startswith(PUBLISH_PREFIX):
            last[record.name.removeprefix(PUBLISH_PREFIX)] = record.number
    return {name for name, number in last.items() if number in copied}


def _copy(record: StepRecord, patch: int | str | None) -> CopiedStep:
    if patch is not None and record.end == "e":
        record = replace(record, end="r")
    return CopiedStep(record, patch)


def _first_step(records: Sequence[StepRecord], step: int | str | None) -> int:
    last = max((record.number for record in records), default=0)
    if step is None:
        return last + 1
    if isinstance(step, str):
        return _named(records, step, "step")
    if not isinstance(step, int) or isinstance(step, bool) or not 1 <= step <= last + 1:
        raise ArgumentsError(f"fork(step={step!r}): the job has the steps 1 to {last}")
    return step


def _patches(
    copied: Sequence[StepRecord], results: Mapping[int | str, Any], first: int
) -> dict[int, int | str]:
    """The names of the given results, by the numbers of their records."""
    numbers = {record.number for record in copied if record.end not in STARTS}
    found: dict[int, int | str] = {}
    for name in results:
        number = _named(copied, name, "results") if isinstance(name, str) else name
        if number not in numbers:
            raise ArgumentsError(
                f"fork(results=…): step {number} is not copied; give results of steps before step {first}"
            )
        if number in found:
            raise ArgumentsError(f"fork(results=…): step {number} has two results")
        found[number] = name
    return found


def _named(records: Sequence[StepRecord], name: str, parameter: str) -> int:
    """The number of the step with a name. Of one that was retried, it is the last."""
    by_key: dict[StepKey, int] = {}
    for record in records:
        if name in (record.name, record.name.removeprefix(CHECKPOINT_PREFIX)):
            by_key[record.key] = record.number
    numbers = sorted(by_key.values())
    if len(numbers) == 1:
        return numbers[0]
    if not numbers:
        known = ", ".join(dict.fromkeys(record.name for record in records)) or "none"
        raise ArgumentsError(
            f'fork({parameter}=…): there is no such step "{name[:100]}"; the steps are: {known}'
        )
    listed = ", ".join(map(str, numbers))
    raise ArgumentsError(f'fork({parameter}=…): the steps {listed} have the name "{name}"; give the number')


def _for_any_arguments(copied: Sequence[StepRecord]) -> list[StepRecord]:
    """The same records, recognised by name and by the order of the asks."""
    order: dict[str, list[StepKey]] = {}
    for record in sorted(copied, key=lambda one: (one.asked, one.number)):
        keys = order.setdefault(record.name, [])
        if record.arguments and record.key not in keys:
            keys.append(record.key)
    return [
        replace(record, arguments=ANY_ARGUMENTS, occurrence=order[record.name].index(record.key))
        if record.arguments
        else record
        for record in copied
    ]
