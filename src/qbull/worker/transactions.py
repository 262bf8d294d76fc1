"""Transactions: steps of a durable task whose effect and record are one commit in PostgreSQL.

The inbox (postgres/inbox.py) keeps the result of the step, in the transaction of its effect. If the worker
dies before the history has the result, the next run finds it there and does not call the function again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from qbull.worker.step_calls import StepCall, StepCalls, refuse_loop

P = ParamSpec("P")
R = TypeVar("R")


class TransactionCalls(StepCalls):
    """The calls that run a step in a transaction, which `current_job()` has."""

    __slots__ = ()

    async def transaction(
        self,
        pool: Any,
        function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """A step in a transaction of PostgreSQL: its effect happens once, whatever dies.

        The function gets the connection as its first argument. Its statements and the record of the step are
        committed together.

        Args:
            pool: opens transactions: a pool of psycopg or asyncpg, an engine or sessionmaker of SQLAlchemy.
            function: the coroutine function.
            args: its arguments, after the connection.
            kwargs: its arguments, by name.
        """
        result: R = await self._steps.step(StepCall(function, args, kwargs, self._step_options, pool))
        return result

    def transaction_sync(
        self, pool: Any, function: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """`transaction` for plain tasks.

        Args:
            pool: opens transactions: a pool of psycopg, an engine or sessionmaker of SQLAlchemy, or Django's
                connection.
            function: a plain function.
            args: its arguments, after the connection.
            kwargs: its arguments, by name.
        """
        refuse_loop("transaction")
        result: R = self._steps.step_sync(StepCall(function, args, kwargs, self._step_options, pool))
        return result


def in_transaction(call: StepCall, mark: str) -> StepCall:
    """The call with a function that has its effect once, and returns its first result again."""
    # Only programs that use PostgreSQL import the room that speaks to it.
    inbox = importlib.import_module("qbull.postgres.inbox")
    return replace(call, function=inbox.Once(call.pool, mark, is_step=True)(call.function), pool=None)
