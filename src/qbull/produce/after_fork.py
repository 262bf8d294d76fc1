"""After a fork: keep the child process from using the connections of its parent."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def keep_parent_connections(of_the_parent: object) -> None:
    """Keep the child from closing its copies of the parent's connections.

    Closing them would remove the sockets from the event queue that both processes share, and the parent would
    wait in vain for replies.
    """
    import ctypes  # Here, because a program that never forks does without it.

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(of_the_parent))


def forget_after_fork(method: Callable[[], None]) -> None:
    """Call a method in every forked process, as long as its object is alive."""
    forget = weakref.WeakMethod(method)

    def after() -> None:
        alive = forget()
        if alive is not None:
            alive()

    os.register_at_fork(after_in_child=after)
