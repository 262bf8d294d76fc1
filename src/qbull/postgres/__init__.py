"""PostgreSQL beside the queue: outbox (enqueue with your data), inbox (effects once), tracking of every job.

Users import this room by name. The app imports it only if PostgreSQL is configured, so that qbull works
without a driver. The outbox is written through the caller's connection; everything else uses psycopg, which
the extra `qbull[postgres]` installs.
"""

from qbull.postgres.inbox import once
from qbull.postgres.schema import migrate

__all__ = ["migrate", "once"]
