"""Logging for qbull's own programs. The library itself only uses the standard `logging`."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any, Literal

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_STANDARD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
JOB_FIELDS = ("job_id", "task", "queue", "trace_id")
"""The attributes of a log record that name the job which logged it."""


def set_up_logging(format: Literal["text", "json"], level: str) -> None:
    """Write the log to stderr. If the application has configured the root logger, nothing changes."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level)


class TextFormatter(logging.Formatter):
    """Each event starts a line, whatever data it contains. The lines of a traceback follow it, indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = (
            f"{_time_of(record)} {record.levelname:<7} {record.name}: {record.getMessage()}{_job_of(record)}"
        )
        below = "\n".join(text for text in (exception_text(record), record.stack_info) if text)
        return "\n".join(one_line(each) for each in (line, *(f"    {each}" for each in below.splitlines())))


class JsonFormatter(logging.Formatter):
    """Each event is one JSON object, with the values of `extra` beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "at": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in extra_of(record).items():
            if value is not None or name not in JOB_FIELDS:
                event[name if name not in event else f"extra_{name}"] = value
        exception = exception_text(record)
        if exception:
            event["exception"] = exception
        if record.stack_info:
            event["stack"] = record.stack_info
        return to_json(event)


def extra_of(record: logging.LogRecord) -> dict[str, Any]:
    """The attributes that the caller or a filter has added to a record."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD_ATTRIBUTES}


def exception_text(record: logging.LogRecord) -> str | None:
    """The traceback of a record, if it has one."""
    if record.exc_text:
        return record.exc_text
    if record.exc_info and record.exc_info[0] is not None:
        return logging.Formatter().formatException(record.exc_info)
    return None


def to_json(event: dict[str, Any]) -> str:
    """The event as JSON. A value that JSON cannot carry is shown as text."""
    try:
        return json.dumps(event, default=str)
    except Exception:
        return json.dumps({name: _as_json_value(value) for name, value in event.items()})


def one_line(text: str) -> str:
    """The text without characters that would end the line or control a terminal."""
    return _CONTROL_CHARACTERS.sub(lambda c: "\\n" if c.group() == "\n" else f"\\x{ord(c.group()):02x}", text)


def _as_json_value(value: Any) -> Any:
    try:
        json.dumps(value)
    except Exception:
        try:
            return str(value)
        except Exception:
            return f"a {type(value).__name__} that cannot be shown"
    return value


def _time_of(record: logging.LogRecord) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{at}.{int(record.msecs):03d}Z"


def _job_of(record: logging.LogRecord) -> str:
    """The job that logged the record. Lines of qbull itself name it in their message."""
    id = getattr(record, "job_id", None)
    if id is None or record.name.startswith("qbull."):
        return ""
    trace = getattr(record, "trace_id", None)
    fields = [getattr(record, "queue", None), getattr(record, "task", None), id, trace and f"trace={trace}"]
    return f" [{' '.join(str(field) for field in fields if field)}]"
