"""The brake: keeps the slots of one queue from starting jobs."""

from __future__ import annotations


class Brake:
    """It is on while the worker stops, while the queue is paused or held, and while surplus slots have to
    close.

    `on` is stored because every slot reads it before every job.
    """

    __slots__ = ("held", "on", "stopping", "surplus")

    def __init__(self) -> None:
        self.on = False
        self.stopping = False
        self.held = False
        self.surplus = 0
        """The number of slots that have to close."""

    def stop(self) -> None:
        """Start nothing more: the worker stops."""
        self.stopping = self.on = True

    def hold(self) -> None:
        """Start nothing until the live settings are applied again."""
        self.held = self.on = True

    def update(self) -> None:
        """Compute `on` after `held` or `surplus` has changed."""
        self.on = self.stopping or self.held or self.surplus > 0
