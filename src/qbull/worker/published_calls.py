"""Published values: the methods with which a durable task shows values, and how others read them."""

from __future__ import annotations

from typing import Any

from qbull.core.published import check_published_name
from qbull.worker.step_calls import StepCalls, refuse_loop


class PublishedCalls(StepCalls):
    """The calls that publish values, which `current_job()` has."""

    __slots__ = ()

    async def publish(self, name: str, value: Any) -> None:
        """Show a value to others: `handle.published(name)` returns the last one.

        Returns when the server has it. It is recorded like a step, so a run that starts again does not
        publish it again.

        Args:
            name: the name of the value.
            value: the value, which must have a JSON form.
        """
        check_published_name(name)
        await self._steps.publish(name, value)

    def publish_sync(self, name: str, value: Any) -> None:
        """`publish` for plain tasks.

        Args:
            name: the name of the value.
            value: the value, which must have a JSON form.
        """
        check_published_name(name)
        refuse_loop("publish")
        self._steps.publish_sync(name, value)
