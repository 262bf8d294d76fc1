"""PostgreSQL beside the queue: outbox (enqueue with your data), inbox (effects once), tracking of every job.

Users import this room by name; the app reaches into it only where PostgreSQL is asked for, so that qbull
works without a driver. The outbox is written through whatever connection the caller holds; everything else
uses psycopg, which the extra `qbull[postgres]` installs.
"""

from qbull.postgres.inbox import once
from qbull.postgres.schema import migrate

__all__ = ["migrate", "once"]
