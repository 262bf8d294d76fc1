"""Cascades: jobs of a flow that failed because a job before them did. They count under their cause."""

from __future__ import annotations

import re

_CASCADE = re.compile(r'job (\S{1,300}) \([^()\n]{1,200}\) of queue "([^"\n]{1,100})" [a-z ]{1,60}: ')


def root_cause(error: str) -> str | None:
    """The error of the job that failed first, if this one tells of it; None if the error is the job's own."""
    rest = error
    while (found := _CASCADE.match(rest)) is not None:
        rest = rest[found.end() :]
    return rest if rest != error else None


def first_failed_job(error: str) -> tuple[str, str] | None:
    """Queue and id of the job that failed first, if this error tells of it."""
    rest, first = error, None
    while (found := _CASCADE.match(rest)) is not None:
        rest, first = rest[found.end() :], (found[2], found[1])
    return first
