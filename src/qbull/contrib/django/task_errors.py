"""The error of a failed job, as Django's tasks have it: the path of its class, and a traceback."""

from __future__ import annotations

import re

from qbull.core.job_info import JobInfo

WRAPPED_EXIT = re.compile(r"RuntimeError: the task raised (SystemExit|KeyboardInterrupt)\(")
"""The last line for a task that wanted to end its process; the traceback before has its own exception."""
CAUSE_ENDS = "\n\nThe above exception was the direct cause"


def class_path_of(info: JobInfo) -> str:
    """The class, from the last line of the traceback that starts with a name."""
    for line in reversed((info.stacktrace or "").splitlines()):
        if found := WRAPPED_EXIT.match(line):
            return f"builtins.{found.group(1)}"
        if found := re.match(r"([A-Za-z_][\w.]*)(:|$)", line):
            path = found.group(1)
            return path if "." in path else f"builtins.{path}"
    return "qbull.JobCancelled" if info.state == "cancelled" else "builtins.Exception"


def traceback_of(info: JobInfo) -> str:
    """The traceback, or the text of an error that has none."""
    trace = info.stacktrace or info.error or ""
    if WRAPPED_EXIT.search(trace) and CAUSE_ENDS in trace:
        return trace.rpartition(CAUSE_ENDS)[0] + "\n"
    return trace
