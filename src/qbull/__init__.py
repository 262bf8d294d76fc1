"""qbull runs background jobs for Python on Redis or Valkey: ordered by key, durable, fast."""

from qbull.app import App
from qbull.config import Keep, Lane
from qbull.core.job import JobInfo
from qbull.core.retry import Retry
from qbull.errors import (
    ArgumentsError,
    ConfigError,
    Conflict,
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
from qbull.letters import FailureGroup, Page, Redriven
from qbull.queue import Queue, Task
from qbull.worker.current import CurrentJob, current_job

__version__ = "0.1.0"

__all__ = [
    "App",
    "ArgumentsError",
    "ConfigError",
    "Conflict",
    "CurrentJob",
    "DeclarationError",
    "EmbeddedError",
    "Fail",
    "FailureGroup",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "Keep",
    "Lane",
    "NotFound",
    "Page",
    "PayloadError",
    "QbullError",
    "Queue",
    "Redriven",
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
