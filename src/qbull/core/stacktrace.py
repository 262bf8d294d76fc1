"""The traceback of a failed run, as text.

Python formats each traceback anew: it looks at the source file and parses the line of every frame again. A
task that fails, fails at the same lines again and again, so the text of a frame is kept. Exceptions with a
cause, notes, parts or suggestions go to the traceback module.
"""

from __future__ import annotations

from traceback import TracebackException, format_tb
from types import CodeType, TracebackType

MAX_STACKTRACE_CHARS = 20_000
MAX_ERROR_CHARS = 2_000
MAX_CACHED_FRAMES = 2_000
"""Frames whose text is kept. When there are more, all are forgotten."""

_SUGGESTING = (SyntaxError, NameError, AttributeError, ImportError)
"""Their texts have more than the message: a line of source, or "Did you mean …"."""
_frames: dict[tuple[CodeType, int, int], str] = {}


def format_stacktrace(error: BaseException) -> str | None:
    """The traceback of an exception and its causes, bounded in length; None if formatting fails."""
    try:
        text = _format_plain(error) if _is_plain(error) else None
        if text is None:
            text = _format_any(error)
    # Formatting calls methods of the exception, which may fail.
    except Exception:
        return None
    return text.encode("utf-8", "replace").decode()[-MAX_STACKTRACE_CHARS:]


def cut_message(text: str) -> str:
    """A message, bounded in length."""
    return text if len(text) <= MAX_ERROR_CHARS else text[:MAX_ERROR_CHARS] + " …"


def _is_plain(error: BaseException) -> bool:
    """Whether the text consists of the frames and the message."""
    return (
        error.__cause__ is None
        and (error.__context__ is None or error.__suppress_context__)
        and not isinstance(error, _SUGGESTING)
        and not isinstance(error, BaseExceptionGroup)
        and not hasattr(error, "__notes__")
    )


def _format_plain(error: BaseException) -> str | None:
    """The text of a plain exception.

    None if a frame repeats, because Python shortens such tracebacks, or if its message cannot be shown.
    """
    try:
        message = cut_message(str(error))
    except Exception:
        return None
    parts = []
    trace, before = error.__traceback__, None
    if trace is not None:
        parts.append("Traceback (most recent call last):\n")
    while trace is not None:
        here = (trace.tb_frame.f_code, trace.tb_lineno)
        if here == before:
            return None
        parts.append(_frame_text(trace))
        trace, before = trace.tb_next, here
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("__main__", "builtins"):
        name = f"{kind.__module__}.{name}"
    parts.append(f"{name}: {message}\n" if message else f"{name}\n")
    return "".join(parts)


def _frame_text(trace: TracebackType) -> str:
    key = (trace.tb_frame.f_code, trace.tb_lasti, trace.tb_lineno)
    text = _frames.get(key)
    if text is None:
        if len(_frames) >= MAX_CACHED_FRAMES:
            _frames.clear()
        text = _frames[key] = "".join(format_tb(trace, limit=1))
    return text


def _format_any(error: BaseException) -> str:
    formatted = TracebackException.from_exception(error, compact=True)
    parts: list[TracebackException | None] = [formatted]
    while parts:
        part = parts.pop()
        if part is not None:
            # The message may have any length: cut it before it is copied into the traceback.
            message = getattr(part, "_str", None)
            if isinstance(message, str):
                part._str = cut_message(message)  # type: ignore[attr-defined]
            parts += [part.__cause__, part.__context__, *(part.exceptions or ())]
    return "".join(formatted.format())
