"""Python: the public names, in the order in which somebody meets them, with what they say of themselves."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from typing import Any

import qbull
import qbull.compat

PARTS: dict[str, tuple[str, ...]] = {
    "The front door": ("App", "Queue", "Task", "Job"),
    "Settings": ("Retry", "Keep", "Lane", "Rate", "Unique", "Alert", "Alerts", "Access", "SingleSignOn", "StreamLimits"),
    "Inside a task": ("current_job", "current_jobs", "CurrentJob", "RetryAfter", "Fail"),
    "Flows": ("chain", "group", "Step", "Chain", "Group", "Flow"),
    "What is known": ("JobInfo", "LogLine", "RecordedStep", "Event", "ScheduleInfo", "JobStream", "Page", "FailureGroup", "Redriven", "Repartitioning"),
    "Around jobs": ("Lifespan", "Middleware", "Enqueueing", "Settled", "Compressed", "Encrypted", "Signed", "ResultStore", "FileResults", "JobLogFilter", "asgi", "acting_as", "partition_of"),
    "Errors": (
        "QbullError", "ConfigError", "DeclarationError", "ServerError", "ServerAway", "DatabaseAway", "ServerRefused", "DatabaseRefused", "NotConfirmed",
        "EmbeddedError", "PayloadError", "ArgumentsError", "TooLarge", "SignalMismatch", "NotFound", "Conflict", "LifespanError", "TakenOver", "StepFailed", "HistoryMismatch", "SignalTimeout", "JobFailed", "JobCancelled", "ResultTimeout",
    ),
}  # fmt: skip
MEMBERS: dict[str, tuple[str, ...]] = {
    "App": ("queue", "job", "flow", "worker", "schedules", "events", "relay", "run_sync", "close", "close_sync"),
    "Queue": (
        "task", "cron", "job", "stats", "jobs", "search", "failures", "redrive", "clean", "cancel", "purge", "pause", "resume", "configure", "live", "reset", "changes",
        "events", "repartition", "repartitioning",
    ),
    "Task": ("enqueue", "enqueue_many", "enqueue_sync", "enqueue_many_sync", "options", "step", "check"),
    "Job": ("result", "state", "info", "why", "logs", "cancel", "retry", "promote", "reschedule", "update", "remove"),
    "Lifespan": ("value", "override"),
    "CurrentJob": ("progress", "log", "progress_sync", "log_sync", "cancelled", "results"),
    "Chain": ("enqueue", "enqueue_sync"),
    "Group": ("enqueue", "enqueue_sync"),
    "Flow": ("result", "counts", "rerun", "cancel"),
    "Middleware": ("around_enqueue", "around_run", "around_call", "settled"),
    "Encrypted": ("new_key",),
    "Signed": ("new_key",),
    "ResultStore": ("put", "get"),
    "Worker": ("drain", "stop"),
    "Schedules": ("upsert", "list", "get", "preview", "run", "pause", "resume", "remove"),
}  # fmt: skip
"""What of a class is for users; what else it has is for other parts of qbull."""
MADE = {
    "Queue",
    "Task",
    "Job",
    "CurrentJob",
    "Step",
    "Chain",
    "Group",
    "Flow",
    "Lifespan",
    "Middleware",
    "Schedules",
    "Worker",
    "Counts",
    "Why",
    "Reason",
    "LiveSettings",
    "LiveSettingChange",
}
"""Nobody makes these with their constructor."""
GIVEN = (
    ("Worker", "qbull.worker.worker"),
    ("Counts", "qbull.store.read.inspect"),
    ("Why", "qbull.core.why"),
    ("Reason", "qbull.core.why"),
    ("LiveSettings", "qbull.store.verbs.live_settings"),
    ("LiveSettingChange", "qbull.store.verbs.live_settings"),
)
"""What calls give, and nobody imports: `app.worker()`, `queue.stats()`, `job.why()`, `queue.live()`, `queue.changes()`."""
BESIDES: dict[str, tuple[str, ...]] = {
    "qbull.schedules": ("Schedules",),
    "qbull.testing": (),
    "qbull.postgres": (),
    "qbull.contrib.starlette": ("lifespan", "qbull_app"),
    "qbull.contrib.flask": ("FlaskContext", "init_app", "qbull_app"),
    "qbull.contrib.django": ("on_commit", "DjangoConnections"),
}
"""Other modules with public names: those of their __all__ where none are named."""


def page() -> str:
    text = "# Python\n\nWhat is in `qbull.__all__` is documented and stays. All durations are seconds.\n"
    for part, names in PARTS.items():
        text += f"\n## {part}\n"
        for name in names:
            text += described(f"qbull.{name}", getattr(qbull, name))
    text += "\n## What calls give\n"
    for name, module in GIVEN:
        text += described(name, getattr(importlib.import_module(module), name))
    compat = {
        f"qbull.compat.{one.name}": () for one in pkgutil.iter_modules(qbull.compat.__path__) if one.ispkg
    }
    for module, names in {**BESIDES, **compat}.items():
        there = importlib.import_module(module)
        text += f"\n## {module}\n\n{_first_paragraph(there.__doc__)}\n"
        for name in names or there.__all__:
            text += described(f"{module}.{name}", getattr(there, name))
    return text


def described(name: str, thing: Any) -> str:
    short = name.rpartition(".")[2]
    text = f"\n### {name}\n\n"
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return text + f"A `{thing.__bases__[0].__name__}`. {_doc(thing)}\n"
    if inspect.isclass(thing):
        text += ("" if short in MADE else _signature(short, thing)) + f"{_doc(thing)}\n" + _fields(thing)
        for member in () if name.startswith("qbull.compat.") else MEMBERS.get(short, ()):
            text += _member(short, member, thing)
        return text
    return text + (_signature(short, thing) if callable(thing) else "") + f"{_doc(thing)}\n"


def _member(owner: str, name: str, of: type) -> str:
    thing = inspect.getattr_static(of, name, None)
    text = f"\n#### {owner}.{name}\n\n"
    if isinstance(thing, property):
        return text + f"{_doc(thing)}\n"
    if thing is None:  # made when an object is
        return text + f"See [{owner}.{name}](#qbull{name}{name}).\n"
    return text + _signature(name, getattr(of, name)) + f"{_doc(getattr(of, name))}\n"


def _fields(thing: type) -> str:
    """Of what has no signature to read them from: what programs get and do not make."""
    if not dataclasses.is_dataclass(thing) and not hasattr(thing, "__struct_fields__"):
        return ""
    names = (
        [field.name for field in dataclasses.fields(thing)]
        if dataclasses.is_dataclass(thing)
        else list(thing.__struct_fields__)
    )
    shown = [f"`{name}`" for name in names if not name.startswith("_")]
    return "\nFields: " + ", ".join(shown) + ".\n" if shown else ""


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parts, named, before = [], "", None
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            parts.append("*")
        before = parameter.kind
        parts.append(_parameter(parameter))
        if unpacked := re.search(r"Unpack\[(\w+)\]", str(parameter.annotation)):
            keys = inspect.unwrap(thing).__globals__[unpacked[1]].__annotations__
            named = f"`**{parameter.name}` are " + ", ".join(f"`{key}`" for key in keys) + ".\n\n"
    back = signature.return_annotation
    gives = "" if back is inspect.Signature.empty or inspect.isclass(thing) else f" -> {_plain(back)}"
    line = f"{'async ' if inspect.iscoroutinefunction(thing) else ''}{name}({', '.join(parts)}){gives}"
    if len(line) > 100:
        inner = "".join(f"    {part},\n" for part in parts)
        line = f"{line[: line.index('(')]}(\n{inner}){gives}"
    return f"```python\n{line}\n```\n\n{named}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_plain(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += " = " + re.sub(r"<(\w+)[^>]*>", r"\1", repr(parameter.default))
    return text


def _plain(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:typing|collections\.abc|datetime|qbull(?:\.\w+)+|_typing)\.", "", text).replace(
        "'", '"'
    )


def _doc(thing: Any) -> str:
    return inspect.cleandoc(inspect.getdoc(thing) or "")


def _first_paragraph(text: str | None) -> str:
    return inspect.cleandoc(text or "").partition("\n\n")[0]
