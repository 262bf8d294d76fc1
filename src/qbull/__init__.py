"""qbull runs background jobs for Python on Redis or Valkey: ordered by key, durable, fast.

Each public name is imported on first use, so that a program pays only for what it needs.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from qbull import postgres as postgres
    from qbull.api.asgi import Api as _Api
    from qbull.app import App
    from qbull.codecs.arguments import ArgumentStore, FileArguments, FsspecArguments
    from qbull.codecs.compress import Compressed
    from qbull.codecs.encrypt import Encrypted
    from qbull.codecs.fsspec_store import FsspecResults
    from qbull.codecs.offload import FileResults, ResultStore
    from qbull.codecs.sign import Signed
    from qbull.config import Keep, Lane
    from qbull.core.access import Access
    from qbull.core.alerts import Alert, Alerts
    from qbull.core.ids import partition_of
    from qbull.core.job_info import JobInfo
    from qbull.core.limits import Limit
    from qbull.core.options import JobOptions
    from qbull.core.rate import Rate
    from qbull.core.recorded_steps import RecordedStep
    from qbull.core.retry import Retry
    from qbull.core.schedule_info import ScheduleInfo
    from qbull.core.single_sign_on import SingleSignOn
    from qbull.core.streams import StreamLimits
    from qbull.core.unique import Unique
    from qbull.errors import (
        ArgumentsError,
        ConfigError,
        Conflict,
        DatabaseAway,
        DatabaseRefused,
        DeclarationError,
        EmbeddedError,
        Fail,
        HistoryMismatch,
        JobCancelled,
        JobFailed,
        LifespanError,
        NotConfirmed,
        NotFound,
        PayloadError,
        QbullError,
        ResultTimeout,
        RetryAfter,
        ServerAway,
        ServerError,
        ServerRefused,
        SignalMismatch,
        SignalTimeout,
        StepFailed,
        TakenOver,
        TooLarge,
    )
    from qbull.events import Event
    from qbull.flows import Chain, Group, Step, chain, group
    from qbull.job import Job
    from qbull.manage.flow import Flow
    from qbull.manage.search import FailureGroup, Page, Redriven
    from qbull.middleware import Enqueueing, Middleware, Settled
    from qbull.queue import Queue
    from qbull.store.audit import acting_as
    from qbull.store.read.drain_status import Repartitioning
    from qbull.store.read.stream import JobStream
    from qbull.store.verbs.progress import LogLine
    from qbull.task import Task
    from qbull.worker.chunk import current_jobs
    from qbull.worker.current import CurrentJob, current_job
    from qbull.worker.job_log import JobLogFilter
    from qbull.worker.lifespan import Lifespan

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Alert",
    "Alerts",
    "App",
    "ArgumentStore",
    "ArgumentsError",
    "Chain",
    "Compressed",
    "ConfigError",
    "Conflict",
    "CurrentJob",
    "DatabaseAway",
    "DatabaseRefused",
    "DeclarationError",
    "EmbeddedError",
    "Encrypted",
    "Enqueueing",
    "Event",
    "Fail",
    "FailureGroup",
    "FileArguments",
    "FileResults",
    "Flow",
    "FsspecArguments",
    "FsspecResults",
    "Group",
    "HistoryMismatch",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "JobLogFilter",
    "JobOptions",
    "JobStream",
    "Keep",
    "Lane",
    "Lifespan",
    "LifespanError",
    "Limit",
    "LogLine",
    "Middleware",
    "NotConfirmed",
    "NotFound",
    "Page",
    "PayloadError",
    "QbullError",
    "Queue",
    "Rate",
    "RecordedStep",
    "Redriven",
    "Repartitioning",
    "ResultStore",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "ScheduleInfo",
    "ServerAway",
    "ServerError",
    "ServerRefused",
    "Settled",
    "SignalMismatch",
    "SignalTimeout",
    "Signed",
    "SingleSignOn",
    "Step",
    "StepFailed",
    "StreamLimits",
    "TakenOver",
    "Task",
    "TooLarge",
    "Unique",
    "acting_as",
    "asgi",
    "chain",
    "current_job",
    "current_jobs",
    "group",
    "partition_of",
]

_HOMES = {
    "qbull.app": ("App",),
    "qbull.codecs.arguments": ("ArgumentStore", "FileArguments", "FsspecArguments"),
    "qbull.codecs.compress": ("Compressed",),
    "qbull.codecs.encrypt": ("Encrypted",),
    "qbull.codecs.fsspec_store": ("FsspecResults",),
    "qbull.codecs.offload": ("FileResults", "ResultStore"),
    "qbull.codecs.sign": ("Signed",),
    "qbull.config": ("Keep", "Lane"),
    "qbull.core.access": ("Access",),
    "qbull.core.alerts": ("Alert", "Alerts"),
    "qbull.core.ids": ("partition_of",),
    "qbull.core.job_info": ("JobInfo",),
    "qbull.core.limits": ("Limit",),
    "qbull.core.options": ("JobOptions",),
    "qbull.core.rate": ("Rate",),
    "qbull.core.recorded_steps": ("RecordedStep",),
    "qbull.core.retry": ("Retry",),
    "qbull.core.schedule_info": ("ScheduleInfo",),
    "qbull.core.single_sign_on": ("SingleSignOn",),
    "qbull.core.streams": ("StreamLimits",),
    "qbull.core.unique": ("Unique",),
    "qbull.errors": (
        "ArgumentsError",
        "ConfigError",
        "Conflict",
        "DatabaseAway",
        "DatabaseRefused",
        "DeclarationError",
        "EmbeddedError",
        "Fail",
        "HistoryMismatch",
        "JobCancelled",
        "JobFailed",
        "LifespanError",
        "NotConfirmed",
        "NotFound",
        "PayloadError",
        "QbullError",
        "ResultTimeout",
        "RetryAfter",
        "ServerAway",
        "ServerError",
        "ServerRefused",
        "SignalMismatch",
        "SignalTimeout",
        "StepFailed",
        "TakenOver",
        "TooLarge",
    ),
    "qbull.events": ("Event",),
    "qbull.flows": ("Chain", "Group", "Step", "chain", "group"),
    "qbull.job": ("Job",),
    "qbull.manage.flow": ("Flow",),
    "qbull.manage.search": ("FailureGroup", "Page", "Redriven"),
    "qbull.middleware": ("Enqueueing", "Middleware", "Settled"),
    "qbull.queue": ("Queue",),
    "qbull.store.audit": ("acting_as",),
    "qbull.store.read.drain_status": ("Repartitioning",),
    "qbull.store.read.stream": ("JobStream",),
    "qbull.store.verbs.progress": ("LogLine",),
    "qbull.task": ("Task",),
    "qbull.worker.chunk": ("current_jobs",),
    "qbull.worker.current": ("CurrentJob", "current_job"),
    "qbull.worker.job_log": ("JobLogFilter",),
    "qbull.worker.lifespan": ("Lifespan",),
}
"""The public names of each module. A test compares them with the imports above."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def asgi(app: "App", access: "Access | None" = None) -> "_Api":
    """The REST API of an app, to mount in an ASGI application. Needs `pip install "qbull[api]"`.

    Args:
        app: the app.
        access: who may use the API. If None: the environment.
    """
    try:
        from qbull.api.asgi import Api
    except ModuleNotFoundError as error:
        from qbull.errors import ConfigError

        raise ConfigError(f'the REST API needs {error.name}; pip install "qbull[api]"') from None
    return Api(app, app.environment.access if access is None else access)


# Hidden from type checkers: they would accept every name.
if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name, or a module of the package such as `qbull.postgres`, on first use."""
        if name in _HOME_OF:
            globals()[name] = found = getattr(_importlib.import_module(_HOME_OF[name]), name)
            return found
        if not name.startswith("_"):
            try:
                return _importlib.import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
