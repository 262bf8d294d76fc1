"""Python runs this first in every process that a test starts.

redis-py imports the SDK of OpenTelemetry if it is installed: a quarter of the time in which `qbull` starts. The tests
need it in their own process only, and most users do not have it at all.
"""

import sys

sys.modules["opentelemetry.sdk"] = None  # type: ignore[assignment]
