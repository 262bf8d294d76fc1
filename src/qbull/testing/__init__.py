"""For users' own tests: `inline` runs tasks at the enqueue, without a server; `embedded` has a real one.

Both take the app of the code and restore it afterwards. Both record the jobs that are enqueued.
"""

from qbull.testing.embedded import EmbeddedTestServer as embedded
from qbull.testing.enqueued import Enqueued
from qbull.testing.inline import Inline as inline

__all__ = ["Enqueued", "embedded", "inline"]
