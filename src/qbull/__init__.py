"""qbull runs background jobs for Python on Redis or Valkey: ordered by key, durable, fast."""

from qbull.app import App
from qbull.config import Keep, Lane
from qbull.core.job import JobInfo
from qbull.core.retry import Retry
from qbull.errors import (
    ArgumentsError,
    ConfigError,
    DeclarationError,
    EmbeddedError,
    Fail,
    JobCancelled,
    JobFailed,
    NotFound,
    PayloadError,
    QbullError,
    ResultTimeout,
    RetryAfter,
    ServerAway,
    ServerError,
    ServerRefused,
    TooLarge,
)
from qbull.handle import Job
from qbull.queue import Queue, Task
from qbull.worker.current import CurrentJob, current_job

__version__ = "0.1.0"

__all__ = [
    "App",
    "ArgumentsError",
    "ConfigError",
    "CurrentJob",
    "DeclarationError",
    "EmbeddedError",
    "Fail",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "Keep",
    "Lane",
    "NotFound",
    "PayloadError",
    "QbullError",
    "Queue",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "ServerAway",
    "ServerError",
    "ServerRefused",
    "Task",
    "TooLarge",
    "current_job",
]
