"""Redaction: hide configured fields from everybody and, if configured, the values of jobs from viewers.

A hidden value must not be read around. So filters work on errors and keys as they are shown, and a caller
who does not see the values of jobs cannot filter by them or by errors.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets as random_secrets
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from qbull.api.auth import Caller
from qbull.api.problems import ApiProblem
from qbull.core.access import Access
from qbull.core.job_info import JobInfo
from qbull.core.redaction import (
    REDACTED,
    all_texts_in,
    error_kind,
    redact_error,
    redact_text,
    redact_value,
    secrets_in,
)
from qbull.store.verbs.audit_log import AuditLogRecord
from qbull.views.steps import StepView

_HIDDEN_FILTERS = ("payload", "error_contains", "fingerprint", "query")
"""Filters by values of jobs."""


class Redaction:
    def __init__(self, access: Access) -> None:
        self.fields = frozenset(name.lower() for name in access.redact)
        self._hide = access.hide_payloads
        self._key = random_secrets.token_bytes(32)

    @property
    def has_hidden_fields(self) -> bool:
        """Whether some fields are hidden from everybody."""
        return bool(self.fields)

    @property
    def is_used(self) -> bool:
        """Whether anything is hidden from anybody."""
        return self._hide or bool(self.fields)

    def sees_payloads(self, caller: Caller | None) -> bool:
        """Whether a caller sees the values of jobs. None stands for everybody."""
        return not self._hide or (caller is not None and caller.role == "admin")

    def job(self, info: JobInfo, caller: Caller) -> JobInfo:
        """A job as this caller may see it."""
        if self.fields:
            found: set[str] = set()
            info = replace(
                info,
                payload=redact_value(info.payload, self.fields, found),
                result=redact_value(info.result, self.fields, found),
            )
            info = replace(
                info,
                key=_redacted(info.key, found),
                progress_note=_redacted(info.progress_note, found),
                error=_redacted(info.error, found),
                failed_reason=_redacted(info.failed_reason, found),
                stacktrace=_redacted(info.stacktrace, found),
                history=tuple(
                    replace(
                        one, error=_redacted(one.error, found), stacktrace=_redacted(one.stacktrace, found)
                    )
                    for one in info.history
                ),
            )
        if not self.sees_payloads(caller):
            info = replace(
                info,
                payload=None,
                result=None,
                stacktrace=None,
                progress_note=None,
                error=_kind(info.error),
                failed_reason=_kind(info.failed_reason),
                history=tuple(replace(one, error=_kind(one.error), stacktrace=None) for one in info.history),
            )
        return info

    def steps(self, steps: list[StepView], info: JobInfo, caller: Caller) -> list[StepView]:
        """The steps of a job as this caller may see them."""
        if not self.sees_payloads(caller):
            secrets = _all_secrets(info) | all_texts_in([step.result for step in steps])
            return [
                replace(step, name=redact_text(step.name, secrets), result=None, error=_kind(step.error))
                for step in steps
            ]
        if not self.fields:
            return steps
        found = secrets_in([info.payload, info.result], self.fields)
        steps = [replace(step, result=redact_value(step.result, self.fields, found)) for step in steps]
        return [
            replace(step, name=redact_text(step.name, found), error=_redacted(step.error, found))
            for step in steps
        ]

    def text(self, text: str, info: JobInfo | None, caller: Caller | None) -> str:
        """A text of a job, without the values that this caller may not see."""
        if not self.sees_payloads(caller):
            return REDACTED if info is None else redact_text(text, _all_secrets(info))
        if not self.fields:
            return text
        return REDACTED if info is None else redact_error(text, secrets_in(info.payload, self.fields))

    def error(self, error: str | None, info: JobInfo | None, caller: Caller | None) -> str | None:
        """The error of a job as this caller may see it; `info` is None if the job is not known."""
        if error is None or not self.is_used:
            return error
        if not self.sees_payloads(caller) or (self.fields and info is None):
            return error_kind(error)
        return self.text(error, info, caller)

    def value(self, value: Any, caller: Caller | None) -> Any:
        """Arguments as this caller may see them."""
        if not self.sees_payloads(caller):
            return None
        return redact_value(value, self.fields, set()) if self.fields else value

    def fingerprint(self, fingerprint: str, caller: Caller | None) -> str:
        """The name of a group of failures. It is made of the error, so others get one that tells nothing."""
        if self.sees_payloads(caller):
            return fingerprint
        return hmac.new(self._key, fingerprint.encode(), hashlib.sha256).hexdigest()[:12]

    def filter(self, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The filters of somebody's request as this caller may see them."""
        if self.sees_payloads(caller):
            return dict(given)
        return {name: REDACTED if name in _HIDDEN_FILTERS else value for name, value in given.items()}

    def audit_record(self, record: AuditLogRecord, caller: Caller) -> AuditLogRecord:
        """An entry of the audit log as this caller may see it."""
        entry = record.entry
        if self.sees_payloads(caller) or not isinstance(entry.detail.get("filter"), dict):
            return record
        detail = entry.detail | {"filter": self.filter(entry.detail["filter"], caller)}
        return replace(record, entry=replace(entry, detail=detail))

    def refuse_hidden(self, payload: Any) -> None:
        """Refuse arguments that contain the placeholder of a hidden value."""
        if self.fields and _contains(payload, REDACTED):
            raise ApiProblem(
                400,
                f'payload: contains "{REDACTED}", which stands for a hidden value; give the value itself',
            )

    def refuse_hidden_filter(self, caller: Caller, name: str, field: str = "") -> None:
        """Refuse a filter on a value that the caller may not see: it would reveal the value.

        Args:
            caller: who asks.
            name: the filter.
            field: the argument that it selects by, if it is the filter of arguments.
        """
        if name in _HIDDEN_FILTERS and name != "query" and not self.sees_payloads(caller):
            raise ApiProblem(
                403,
                "this server shows arguments and errors to admins only, so only admins can filter by them",
            )
        if any(part.lower() in self.fields for part in field.split(".")):
            raise ApiProblem(403, f'"{field}" is hidden on this server, so nobody can filter by it')


def _all_secrets(info: JobInfo) -> set[str]:
    found = all_texts_in([info.payload, info.result])
    found |= {
        error for error in (info.error, info.failed_reason, *(one.error for one in info.history)) if error
    }
    return found


def _redacted(text: str | None, found: set[str]) -> str | None:
    return None if text is None else redact_error(text, found)


def _kind(error: str | None) -> str | None:
    return None if error is None else error_kind(error)


def _contains(value: Any, text: str) -> bool:
    if isinstance(value, dict):
        return any(_contains(inner, text) for inner in value.values())
    if isinstance(value, list):
        return any(_contains(inner, text) for inner in value)
    return bool(value == text)
