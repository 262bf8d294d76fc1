"""For users' own tests: `inline` runs tasks at the enqueue, without a server; `embedded` has a real one.

Both take the app of the code and restore it afterwards, and record the jobs that are enqueued. In both,
`replace_step` replaces steps of durable tasks.
"""

from qbull.testing.embedded import EmbeddedTestServer as embedded
from qbull.testing.enqueued import Enqueued
from qbull.testing.inline import Inline as inline
from qbull.testing.replaced_steps import ReplacedStep, StepReplacement, replace_step

__all__ = ["Enqueued", "ReplacedStep", "StepReplacement", "embedded", "inline", "replace_step"]
