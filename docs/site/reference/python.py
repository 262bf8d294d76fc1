"""Python: a page for each public class, one for functions, one for errors, one for each further module. Made from the docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import qbull
import qbull.compat
from reference.cells import code, table
from reference.docstrings import field_docs, split
from reference.raises import RAISES, SERVER
from reference.typed_dicts import unpacked_keys

PARTS: dict[str, tuple[str, ...]] = {
    "The front door": ("App", "Queue", "Task", "Job"),
    "Settings": ("JobOptions", "Retry", "Keep", "Lane", "Rate", "Limit", "Unique", "Alert", "Alerts", "Access", "SingleSignOn", "StreamLimits"),
    "Inside a task": ("current_job", "current_jobs", "CurrentJob", "RetryAfter", "Fail"),
    "Flows": ("chain", "group", "Step", "Chain", "Group", "Flow"),
    "What is known": ("JobInfo", "LogLine", "RecordedStep", "Event", "ScheduleInfo", "JobStream", "Page", "FailureGroup", "Redriven", "Repartitioning"),
    "Around jobs": ("Lifespan", "Middleware", "Enqueueing", "Settled", "Compressed", "Encrypted", "Signed", "ResultStore", "FileResults", "FsspecResults", "ArgumentStore", "FileArguments", "FsspecArguments", "JobLogFilter", "asgi", "acting_as", "partition_of"),
    "Errors": (
        "QbullError", "ConfigError", "DeclarationError", "ServerError", "ServerAway", "DatabaseAway", "ServerRefused", "DatabaseRefused", "NotConfirmed",
        "EmbeddedError", "PayloadError", "ArgumentsError", "TooLarge", "SignalMismatch", "NotFound", "Conflict", "LifespanError", "TakenOver", "StepFailed", "HistoryMismatch", "SignalTimeout", "JobFailed", "JobCancelled", "ResultTimeout",
    ),
}  # fmt: skip
MEMBERS: dict[str, tuple[str, ...]] = {
    "App": ("queue", "job", "flow", "send", "send_many", "send_sync", "send_many_sync", "worker", "schedules", "events", "relay", "run_sync", "close", "close_sync"),
    "Queue": (
        "task", "cron", "job", "stats", "jobs", "search", "failures", "redrive", "clean", "cancel", "reschedule", "purge", "pause", "resume", "configure", "live", "reset", "changes",
        "events", "repartition", "repartitioning",
    ),
    "Task": ("enqueue", "enqueue_many", "enqueue_sync", "enqueue_many_sync", "options", "step", "check"),
    "Job": (
        "result", "state", "info", "why", "logs", "stream", "steps", "signal", "cancel", "retry", "promote", "reschedule", "update", "remove",
    ),
    "Lifespan": ("value", "override"),
    "CurrentJob": (
        "progress", "log", "emit", "progress_sync", "log_sync", "emit_sync", "cancelled", "results",
        "step", "checkpoint", "sleep", "wait_for", "call", "patched", "options",
        "step_sync", "checkpoint_sync", "sleep_sync", "wait_for_sync", "call_sync", "patched_sync",
    ),
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


COMPAT = {f"qbull.compat.{one.name}": () for one in pkgutil.iter_modules(qbull.compat.__path__) if one.ispkg}
MODULES: dict[str, tuple[str, ...]] = {**BESIDES, **COMPAT}


def pages() -> dict[str, Callable[[], str]]:
    """The pages by their names: `python/index`, `python/queue` …"""
    made: dict[str, Callable[[], str]] = {"python/index": index}
    for name, thing in classes().items():
        made[page_of(name)] = partial(class_page, name, thing)
    made["python/functions"] = functions_page
    made["python/errors"] = errors_page
    for module in MODULES:
        made[page_of(module)] = partial(module_page, module)
    return made


def classes() -> dict[str, Any]:
    """The public classes, errors excepted, and those that calls return."""
    public = {name: getattr(qbull, name) for part in PARTS.values() for name in part}
    found = {name: thing for name, thing in public.items() if inspect.isclass(thing) and not is_error(thing)}
    returned = {name: getattr(importlib.import_module(module), name) for name, module in GIVEN}
    return {**found, **returned}


def is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def page_of(name: str) -> str:
    return "python/" + name.removeprefix("qbull.").replace(".", "_").lower()


def index() -> str:
    text = (
        "# Python\n\nThe names in `qbull.__all__` are public: they are documented, and changes are announced. All durations are seconds. "
        f"{SERVER}\n"
    )
    for part, names in PARTS.items():
        text += f"\n## {part}\n\n" + table(
            ("name", "about"), [_entry(name, getattr(qbull, name)) for name in names]
        )
    returned = [(name, getattr(importlib.import_module(module), name)) for name, module in GIVEN]
    text += "\n## Returned by calls\n\n" + table(("name", "about"), [_entry(*one) for one in returned])
    modules = [
        (
            f"[{code(module)}]({page_of(module)[7:]}.md)",
            _first_paragraph(importlib.import_module(module).__doc__),
        )
        for module in MODULES
    ]
    return text + "\n## Modules\n\n" + table(("module", "about"), modules)


def _entry(name: str, thing: Any) -> tuple[str, str]:
    if is_error(thing):
        page = f"errors.md#{name.lower()}"
    elif inspect.isclass(thing):
        page = f"{page_of(name)[7:]}.md"
    else:
        page = f"functions.md#{name.lower()}"
    return f"[{code(name)}]({page})", _first_paragraph(split(thing).text).partition(". ")[0].rstrip(".") + "."


def class_page(name: str, thing: Any) -> str:
    public = hasattr(qbull, name)
    return f"# {name}\n\n" + (f"`from qbull import {name}`\n\n" if public else "") + _class(name, thing, "##")


def functions_page() -> str:
    found = [name for part in PARTS.values() for name in part if not inspect.isclass(getattr(qbull, name))]
    return "# Functions\n" + "".join(
        f"\n## {name}\n\n{_callable(name, getattr(qbull, name))}" for name in found
    )


def errors_page() -> str:
    found = [name for part in PARTS.values() for name in part if is_error(getattr(qbull, name))]
    text = "# Errors\n\nEvery error that qbull raises on purpose is a `QbullError`, except `RetryAfter` and `Fail`, which tasks raise.\n"
    for name in found:
        kind = getattr(qbull, name)
        text += f"\n## {name}\n\nA `{kind.__bases__[0].__name__}`. {_explained(kind)}"
    return text


def module_page(module: str) -> str:
    there = importlib.import_module(module)
    text = f"# {module}\n\n{_first_paragraph(there.__doc__)}\n"
    for name in MODULES[module] or there.__all__:
        thing = getattr(there, name)
        text += f"\n## {name}\n\n"
        inner = inspect.isclass(thing) and not is_error(thing)
        text += _class(name, thing, "###", module in COMPAT) if inner else _callable(name, thing)
    return text


def _class(name: str, thing: Any, level: str, without_members: bool = False) -> str:
    made = name not in MADE
    text = (_signature(name, thing) if made else "") + _explained(thing, made)
    for member in () if without_members else MEMBERS.get(name, ()):
        text += f"\n{level} {name}.{member}\n\n{_member(name, member, thing)}"
    return text


def _callable(name: str, thing: Any) -> str:
    return (_signature(name, thing) if callable(thing) and not is_error(thing) else "") + _explained(thing)


def _member(owner: str, name: str, of: type) -> str:
    thing = inspect.getattr_static(of, name, None)
    if isinstance(thing, property):
        return _explained(thing)
    if thing is None:  # made when an object is
        return f"See [{name}](schedules.md).\n"
    text = _signature(name, getattr(of, name)) + _explained(getattr(of, name))
    if raised := RAISES.get(f"{owner}.{name}"):
        text += "\nRaises " + "; ".join(raised) + ".\n"
    return text


def _explained(thing: Any, with_parameters: bool = True) -> str:
    """The docstring, with its parameters as a table."""
    doc = split(thing)
    text = f"{doc.text}\n"
    fields = field_docs(thing) if inspect.isclass(thing) else {}
    signature = _parameters(thing) if with_parameters and callable(thing) else {}
    if thing is qbull.JobOptions:
        fields = split(qbull.Task.options).parameters
        signature = _parameters(qbull.Task.options)
    rows = [_row(name, meaning, signature) for name, meaning in {**doc.parameters, **fields}.items()]
    if rows:
        text += "\n" + table(("name", "type", "default", "meaning"), rows)
    shown = [code(name) for name in _fields(thing) if name not in {**doc.parameters, **fields}]
    return text + (f"\n{'Further fields' if rows else 'Fields'}: {', '.join(shown)}.\n" if shown else "")


def _row(name: str, meaning: str, signature: dict[str, inspect.Parameter]) -> tuple[str, str, str, str]:
    parameter = signature.get(name)
    if parameter is None:
        return code(name), "", "", meaning
    given = "" if parameter.annotation is parameter.empty else _plain(parameter.annotation)
    default = "" if parameter.default is parameter.empty else code(_default(parameter.default))
    return code(name), code(given), default, meaning


def _parameters(thing: Any) -> dict[str, inspect.Parameter]:
    try:
        found = dict(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return {}
    for parameter in list(found.values()):
        for key, annotation in unpacked_keys(thing, parameter).items():
            found[key] = inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    return found


def _fields(thing: Any) -> list[str]:
    """The fields of a class whose objects programs get and do not make."""
    if not inspect.isclass(thing):
        return []
    if dataclasses.is_dataclass(thing):
        names = [field.name for field in dataclasses.fields(thing)]
    else:
        names = list(getattr(thing, "__struct_fields__", ()))
    return [name for name in names if not name.startswith("_")]


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
        if keys := unpacked_keys(thing, parameter):
            named = f"`**{parameter.name}` are " + ", ".join(f"`{key}`" for key in keys) + ".\n\n"
    back = signature.return_annotation
    gives = "" if back is inspect.Signature.empty or inspect.isclass(thing) else f" -> {_plain(back)}"
    line = f"{'async ' if inspect.iscoroutinefunction(thing) else ''}{name}({', '.join(parts)}){gives}"
    if len(line) > 88:
        inner = "".join(f"    {part},\n" for part in parts)
        line = f"{line[: line.index('(')]}(\n{inner}){gives}"
    return f"```python\n{line}\n```\n\n{named}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_plain(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: object) -> str:
    return re.sub(r"<(\w+)[^>]*>", r"\1", repr(value))


def _plain(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('(.*?)'(?:, module='[\w.]+')?\)", r"\1", text)
    text = re.sub(r"Annotated\[(\w+(?:\.\w+)*), msgspec\.Meta\([^)]*\)\]", r"\1", text)
    return re.sub(r"\b(?:typing|collections\.abc|datetime|qbull(?:\.\w+)+|_typing)\.", "", text).replace(
        "'", '"'
    )


def _first_paragraph(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
