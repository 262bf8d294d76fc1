"""`celery.utils`: the functions that tasks use."""

from __future__ import annotations

from uuid import uuid4


def uuid() -> str:
    """Return a new id for a job."""
    return str(uuid4())


gen_unique_id = uuid
