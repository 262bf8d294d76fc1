"""Support: how far qbull keeps a name of Celery.

The drop-in API and `qbull check-celery` ask the same functions, which stand beside the tables of names:
task_options.py, call_options.py, conf.py and names.py. tests/guide compares the guide with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SupportLevel = Literal["works", "differs", "refused"]

UNREADABLE: Any = object()
"""The value of an option that is known only when the program runs."""

UNLISTED_NAME = "is not supported; see docs/guides/from_celery.md for what is"


@dataclass(frozen=True)
class Support:
    """How far a name of Celery is kept, and the difference or the replacement."""

    level: SupportLevel
    note: str = ""


WORKS = Support("works")


def differs(note: str) -> Support:
    """It is accepted, and the note says what is different."""
    return Support("differs", note)


def refused(note: str = UNLISTED_NAME) -> Support:
    """It raises an error with the note, which names the replacement."""
    return Support("refused", note)
