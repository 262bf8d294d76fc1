"""Patching: retry jobs with changed arguments, and a preview of the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.filters import filters_of
from qbull.manage.patching import ArgumentPatch, PatchedJob, preview_patch
from qbull.manage.search import filter_of
from qbull.queue import Queue
from qbull.store.verbs.operations import Operation
from qbull.views import operations as views

HIDDEN_REFUSAL = "the new arguments do not fit; a preview of the patch shows why"


def patch_of(context: ApiContext, queue: Queue, patch: Mapping[str, Any] | None) -> ArgumentPatch | None:
    """The changes that a request asks for."""
    if patch is None:
        return None
    context.redaction.refuse_hidden(dict(patch))
    return ArgumentPatch(queue, patch)


def refusal_of(context: ApiContext, operation: Operation) -> str | None:
    """Why a job was refused, without the values of the job if some are hidden."""
    is_hidden = operation.refusal is not None and context.redaction.is_used
    return HIDDEN_REFUSAL if is_hidden else operation.refusal


async def preview(call: ApiCall[Nothing, views.PreviewedPatchBody]) -> views.PatchPreviewView:
    asked, context = call.body, call.context
    queue = await context.queue(call.path["queue"])
    context.redaction.refuse_hidden(asked.patch)
    wanted = filter_of(filters_of(context, call.caller, asked))
    shown = await preview_patch(queue, asked.patch, asked.state, wanted)
    return views.PatchPreviewView(
        timestamp=now(), queue=queue.name, jobs=[_view(call, queue, one) for one in shown]
    )


def _view(call: ApiCall[Any, Any], queue: Queue, patched: PatchedJob) -> views.PatchedJobView:
    redaction, caller = call.context.redaction, call.caller
    refusal = patched.refusal
    if refusal is not None:
        refusal = redaction.text(refusal, queue._info(patched.job), caller)
    return views.PatchedJobView(
        id=patched.job.id,
        task=patched.job.body().task,
        before=redaction.value(patched.before, caller),
        after=redaction.value(patched.after, caller),
        refusal=refusal,
    )


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/operations/preview",
        role="operator",
        summary="Show the arguments of the first five jobs before and after a patch; changes nothing",
        handler=preview,
        body=views.PreviewedPatchBody,
        answer=views.PatchPreviewView,
        problems=(404,),
    ),
]
