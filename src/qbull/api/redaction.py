"""Redaction: hide configured fields from everybody and, if configured, payloads from viewers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from qbull.api.auth import Caller
from qbull.api.problems import ApiProblem
from qbull.core.access import Access
from qbull.core.job_info import JobInfo

REDACTED = "[redacted]"
MIN_REDACTED_CHARS = 4
"""Shorter hidden values are not searched for in texts: "no" would be found everywhere."""


class Redaction:
    def __init__(self, access: Access) -> None:
        self._fields = frozenset(name.lower() for name in access.redact)
        self._hide = access.hide_payloads

    def sees_payloads(self, caller: Caller) -> bool:
        return caller.role == "admin" or not self._hide

    def job(self, info: JobInfo, caller: Caller) -> JobInfo:
        """A job as this caller may see it."""
        if self._fields:
            secrets: set[str] = set()
            info = replace(
                info,
                payload=self._redacted_value(info.payload, secrets),
                result=self._redacted_value(info.result, secrets),
            )
            info = replace(
                info,
                error=_redact_text(info.error, secrets),
                failed_reason=_redact_text(info.failed_reason, secrets),
                stacktrace=_redact_text(info.stacktrace, secrets),
                history=tuple(replace(one, error=_redact_text(one.error, secrets)) for one in info.history),
            )
        if not self.sees_payloads(caller):
            info = replace(info, payload=None, result=None, stacktrace=None)
        return info

    @property
    def has_hidden_fields(self) -> bool:
        """Whether some fields are hidden from everybody."""
        return bool(self._fields)

    def text(self, text: str, info: JobInfo | None) -> str:
        """A text of a job, without the values of its hidden fields."""
        if not self._fields or info is None:
            return text
        secrets: set[str] = set()
        self._redacted_value(info.payload, secrets)
        return _redact_text(text, secrets) or ""

    def value(self, value: Any, caller: Caller) -> Any:
        """Arguments as this caller may see them."""
        if not self.sees_payloads(caller):
            return None
        return self._redacted_value(value, set()) if self._fields else value

    def refuse_hidden(self, payload: Any) -> None:
        """Refuse arguments that contain the placeholder of a hidden value."""
        if self._fields and _contains(payload, REDACTED):
            raise ApiProblem(
                400,
                f'payload: contains "{REDACTED}", which stands for a hidden value; give the value itself',
            )

    def refuse_hidden_filter(self, caller: Caller, field: str) -> None:
        """Refuse a filter on a value that the caller may not see: it would reveal the value."""
        if not self.sees_payloads(caller):
            raise ApiProblem(
                403, "this server hides arguments from viewers, so viewers cannot filter by them"
            )
        if any(part.lower() in self._fields for part in field.split(".")):
            raise ApiProblem(403, f'"{field}" is hidden on this server, so nobody can filter by it')

    def _redacted_value(self, value: Any, secrets: set[str]) -> Any:
        if isinstance(value, dict):
            return {
                name: self._collect_secrets(inner, secrets)
                if str(name).lower() in self._fields
                else self._redacted_value(inner, secrets)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._redacted_value(inner, secrets) for inner in value]
        return value

    def _collect_secrets(self, value: Any, secrets: set[str]) -> str:
        if isinstance(value, dict):
            for inner in value.values():
                self._collect_secrets(inner, secrets)
        elif isinstance(value, list):
            for inner in value:
                self._collect_secrets(inner, secrets)
        elif value is not None and len(str(value)) >= MIN_REDACTED_CHARS:
            secrets.add(str(value))
        return REDACTED


def _redact_text(text: str | None, secrets: set[str]) -> str | None:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED) if text else text
    return text


def _contains(value: Any, text: str) -> bool:
    if isinstance(value, dict):
        return any(_contains(inner, text) for inner in value.values())
    if isinstance(value, list):
        return any(_contains(inner, text) for inner in value)
    return bool(value == text)
