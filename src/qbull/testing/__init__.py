"""For users' own tests: `inline` runs tasks where they are enqueued, without a server; `embedded` is a real one.

Both take an app as it is in the code, and give it back as it was. Both write down what is enqueued.
"""

from qbull.testing.embedded import EmbeddedTestServer as embedded
from qbull.testing.enqueued import Enqueued
from qbull.testing.inline import Inline as inline

__all__ = ["Enqueued", "embedded", "inline"]
