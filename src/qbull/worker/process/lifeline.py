"""Lifeline: a process that must not outlive the process that started it.

The parent holds the writing end of a pipe and never writes to it. The kernel closes that end however the
parent dies, and the reader ends its whole process group. On Linux the kernel also sends a signal, so that
code which holds the GIL cannot delay it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def follow_parent(life: int, parent: int) -> None:
    """End this process with its parent, the process `parent` at the other end of the pipe `life`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=[life], name="qbull-lifeline", daemon=True).start()
    # The parent may have died before the kernel was asked for a signal.
    if os.getppid() != parent:
        end_group()


def is_cut(life: int) -> bool:
    """Whether the parent is gone."""
    readable, _, _ = select.select([life], [], [], 0)
    return bool(readable)


def end_group() -> None:
    """End this process and everything that it has started."""
    os.killpg(0, signal.SIGKILL)


def _end_with(life: int) -> None:
    os.read(life, 1)
    end_group()
