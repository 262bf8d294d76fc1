"""Logging for qbull's own programs. The library itself only uses the standard `logging` and sets nothing up."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Literal

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def set_up_logging(format: Literal["text", "json"], level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class TextFormatter(logging.Formatter):
    """One event per line, whatever data it contains."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = f"{at}.{int(record.msecs):03d}Z {record.levelname:<7} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line += " | " + self.formatException(record.exc_info)
        return one_line(line)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event)


def one_line(text: str) -> str:
    """The text without characters that would end the line or control a terminal."""
    return _CONTROL_CHARACTERS.sub(lambda c: "\\n" if c.group() == "\n" else f"\\x{ord(c.group()):02x}", text)
