"""Parking: jobs that a worker cannot run wait for a worker that can.

During a rolling deploy two versions of the code serve a queue. A job whose task or arguments only one of them
knows is parked by the other, and taken by a worker that meets its need. docs/decisions/0021 has the reasons.
A job whose task asks for labels or resources is parked by workers that lack them, see docs/decisions/0025.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from qbull.core.flow import NEVER_DUE_MS

PARKED_DUE_MS = NEVER_DUE_MS + 1
"""The due time of parked jobs among the delayed ones. No other job has it."""
UNPARKED_LEVEL = "b"
"""The ready stream through which parked jobs are delivered. Workers do not read it otherwise."""
MISFIT_GRACE_SECONDS = 30.0
"""Seconds for which a job waits for code that fits its arguments, if no live worker has such code. A worker
with the new code may be about to start. Then the job fails."""
ABSENCE_GRACE_SECONDS = 600.0
"""Seconds for which a job waits if a worker with code that fits was alive before, for example while such
workers are restarted."""

NeedKind = Literal["code", "label", "resource"]
"""Why a job is parked: the worker's code, its labels, or tokens of its host that others hold."""

TaskSignatures = Mapping[str, str]
"""The tasks that a worker knows in a queue, each with the digest of its signature."""


class CodeNeed(msgspec.Struct, frozen=True):
    """The code that a parked job needs: its task, with a signature other than those that refused it.

    A worker registers only tasks whose labels and resources it has, so the task is all that has to match.
    """

    task: str
    refused: frozenset[str] = frozenset()
    kind: NeedKind = "code"

    def pack(self) -> str:
        """The need as it is stored. No name of a task has a space."""
        mark = "" if self.kind == "code" else f"{self.kind} "
        return mark + "\n".join([self.task, *sorted(self.refused)])

    @classmethod
    def unpack(cls, packed: str) -> CodeNeed:
        """Read a stored need."""
        marked, *refused = packed.split("\n")
        mark, _, task = marked.rpartition(" ")
        kind: NeedKind = "label" if mark == "label" else "resource" if mark == "resource" else "code"
        return cls(task, frozenset(refused), kind)

    def is_met_by(self, code: TaskSignatures) -> bool:
        """Whether a worker with this code can run the job, as far as can be known before it tries."""
        signature = code.get(self.task)
        return signature is not None and signature not in self.refused

    def is_hopeless(self, living: Iterable[TaskSignatures]) -> bool:
        """Whether all live workers have refused the arguments. A task that nobody knows may still come."""
        return bool(self.refused) and not any(self.is_met_by(code) for code in living)
