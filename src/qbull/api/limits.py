"""Limits: the shared limits, how much of them is used, and changes for all workers."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.core.ids import check_name
from qbull.core.limit_status import LimitStatus
from qbull.core.rate import Rate
from qbull.views import limits as views


async def limits(call: ApiCall[Nothing, Nothing]) -> views.LimitsView:
    found = await call.context.app.limits.all()
    return views.LimitsView(timestamp=now(), limits=[_view(call, one) for one in found])


async def change_limit(call: ApiCall[Nothing, views.NewLimitBody]) -> views.ChangedLimitView:
    name, asked = check_name("limit", call.path["limit"]), call.body
    values: dict[str, Any] = {}
    if asked.rate is not UNSET:
        values["rate"] = None if asked.rate is None else Rate(asked.rate.count, asked.rate.per)
    if asked.concurrency is not UNSET:
        values["concurrency"] = asked.concurrency
    if asked.daily is not UNSET:
        values["daily"] = asked.daily
    call.audit_details.update(msgspec.to_builtins(values))
    await call.context.app.limits.configure(name, **values, by=call.caller.name)
    return await _changed(call, name)


async def reset_limit(call: ApiCall[views.LimitResetQuery, Nothing]) -> views.ChangedLimitView:
    name, one = check_name("limit", call.path["limit"]), call.query.setting
    call.audit_details["setting"] = one or "all"
    await call.context.app.limits.reset(name, *([one] if one is not None else []), by=call.caller.name)
    return await _changed(call, name)


async def _changed(call: ApiCall[Any, Any], name: str) -> views.ChangedLimitView:
    status = await call.context.app.limits.get(name)
    return views.ChangedLimitView(timestamp=now(), limit=_view(call, status))


def _view(call: ApiCall[Any, Any], status: LimitStatus) -> views.LimitView:
    """A limit as the caller may see it. Nobody can tell from which argument a key comes."""
    redaction = call.context.redaction
    shows_keys = not redaction.has_hidden_fields and redaction.sees_payloads(call.caller)
    return views.LimitView.of(status, shows_keys=shows_keys)


LIMIT_PATH = "/api/limits/{limit}"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/limits",
        role="viewer",
        summary="List the shared limits, their use, and the jobs that wait for them",
        handler=limits,
        answer=views.LimitsView,
    ),
    Endpoint(
        method="PUT",
        path=LIMIT_PATH,
        role="admin",
        summary="Change a shared limit for all workers, until it is reset",
        handler=change_limit,
        body=views.NewLimitBody,
        rule={"minProperties": 1},
        answer=views.ChangedLimitView,
        problems=(404,),
        audit="change limit",
    ),
    Endpoint(
        method="DELETE",
        path=LIMIT_PATH,
        role="admin",
        summary="Reset a shared limit to the values in the code",
        handler=reset_limit,
        query=views.LimitResetQuery,
        answer=views.ChangedLimitView,
        problems=(404,),
        audit="reset limit",
    ),
]
