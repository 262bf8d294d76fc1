"""Redaction: take the values of hidden fields out of arguments and texts.

A text may contain a hidden value in another form: as JSON, as a Python literal, in an address or in base64.
All of these are taken out, whatever their case. So is the start of a value at the end of a text that was cut.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"
MIN_REDACTED_CHARS = 4
"""Shorter values are taken out of texts as whole words only: "no" would be found everywhere."""
MAX_SECRET_CHARS = 10_000
"""A longer value is looked for by its start."""
MAX_SECRETS_CHARS = 20_000
"""If there are more characters to look for, the whole text is hidden: looking would take seconds."""

_ERROR_KIND = re.compile(
    r"([A-Za-z_][A-Za-z0-9_.]{0,80}(?:Error|Exception|Warning|Timeout|Interrupt|Exit))(?:: |$)"
)

_OTHER_JOB = re.compile(
    r'job \S{1,300} \([^()\n]{1,200}\) of queue "[^"\n]{1,100}" [a-z ]{1,60}: '
    r'|queue "[^"\n]{1,100}": job \S{1,300} (?:failed|was cancelled): '
)
"""The start of the error of another job: of one that a job of a flow waits for, or that a job has called."""


def redact_value(value: Any, fields: Collection[str], secrets: set[str]) -> Any:
    """A value without its hidden fields. Their values join `secrets`. Names of fields are in lower case."""
    if isinstance(value, dict):
        return {
            name: _hide(inner, secrets)
            if str(name).lower() in fields
            else redact_value(inner, fields, secrets)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [redact_value(inner, fields, secrets) for inner in value]
    return value


def secrets_in(value: Any, fields: Collection[str]) -> set[str]:
    """The values of the hidden fields in a value."""
    secrets: set[str] = set()
    redact_value(value, fields, secrets)
    return secrets


def all_texts_in(value: Any) -> set[str]:
    """All values in a value, for a caller who may see none of them."""
    secrets: set[str] = set()
    _hide(value, secrets)
    return secrets


def redact_text(text: str, secrets: Collection[str]) -> str:
    """A text without these values, in whatever form they are there."""
    if not text or not secrets:
        return text
    # No form of a value is shorter than the value, so a text has at most the start of a longer one.
    most = len(text) + MIN_REDACTED_CHARS * 4
    starts = {secret[:most] for secret in secrets}
    if sum(map(len, starts)) > MAX_SECRETS_CHARS:
        return REDACTED
    lower = text.lower()
    forms = {
        form
        for start in starts
        for form in _forms(start)
        if lower.find(form[:MIN_REDACTED_CHARS].lower(), max(len(lower) - len(form), 0)) >= 0
        or form.lower() in lower
    }
    if not forms:
        return text
    ordered = sorted(forms, key=len, reverse=True)
    pattern = re.compile("|".join(map(_pattern, ordered)), re.IGNORECASE)
    return _without_cut_end(pattern.sub(REDACTED, text), ordered)


def redact_error(text: str, secrets: Collection[str]) -> str:
    """The same for an error. If it tells of another job, only the type of that job's error is left.

    The arguments of the other job are not known here, so its error could have its hidden values.
    """
    found = _OTHER_JOB.search(text) if text else None
    if found is None:
        return redact_text(text, secrets)
    end = found.end()
    while (found := _OTHER_JOB.match(text, end)) is not None:
        end = found.end()
    return redact_text(text[:end], secrets) + error_kind(text[end:])


def error_kind(error: str) -> str:
    """The type of an error without its text, for a caller who may not see values of jobs."""
    kind = _ERROR_KIND.match(error)
    return REDACTED if kind is None else f"{kind.group(1)}: {REDACTED}"


def _hide(value: Any, secrets: set[str]) -> str:
    if isinstance(value, dict):
        for inner in value.values():
            _hide(inner, secrets)
    elif isinstance(value, list):
        for inner in value:
            _hide(inner, secrets)
    elif value is not None and not isinstance(value, bool) and value != "":
        secrets.add(str(value)[:MAX_SECRET_CHARS])
    return REDACTED


def _forms(secret: str) -> Iterable[str]:
    """The secret as others write it down: once encoded, or twice."""
    once = {secret, *_encoded(secret)}
    return once | {form for each in once for form in _escaped(each)}


def _encoded(text: str) -> set[str]:
    raw = text.encode("utf-8", "replace")
    plain, safe = base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()
    codes = (
        {plain, safe, plain.rstrip("="), safe.rstrip("="), raw.hex()}
        if len(text) >= MIN_REDACTED_CHARS
        else set()
    )
    return _escaped(text) | codes


def _escaped(text: str) -> set[str]:
    raw = text.encode("utf-8", "replace")
    return {
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
        ascii(text)[1:-1],
        repr(raw)[2:-1],
        text.replace("'", "\\'"),
        text.replace('"', '\\"'),
        text.replace("/", "\\/"),
        html.escape(text),
        quote(text, errors="replace"),
        quote(text, safe="", errors="replace"),
        quote_plus(text, errors="replace"),
    }


def _pattern(form: str) -> str:
    if len(form) >= MIN_REDACTED_CHARS:
        return re.escape(form)
    return rf"(?<![^\W_]){re.escape(form)}(?![^\W_])"


def _without_cut_end(text: str, forms: Iterable[str]) -> str:
    """Take the start of a value off the end of a text: errors are cut at some length."""
    ending = text.rstrip("….")
    lower = ending.lower()
    first = len(ending)
    for form in (each.lower() for each in forms if len(each) > MIN_REDACTED_CHARS):
        at = lower.find(form[:MIN_REDACTED_CHARS], max(len(lower) - len(form), 0), first)
        while 0 <= at < first:
            if form.startswith(lower[at:]):
                first = at
            at = lower.find(form[:MIN_REDACTED_CHARS], at + 1, first)
    return text if first == len(ending) else ending[:first] + REDACTED
