"""Celery: a qbull app with the API of a Celery app.

`qbull worker MODULE:APP` runs it. Every task is registered in every queue, because Celery can send any task
to any queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from qbull.app import App
from qbull.compat.celery.broker import address_of, broker_in_environment, check_backend, server_in
from qbull.compat.celery.conf import STARTUP_SETTINGS, Conf
from qbull.compat.celery.control import Control
from qbull.compat.celery.django_project import (
    django_packages,
    is_django_project,
    set_up_django,
    with_django_connections,
)
from qbull.compat.celery.instead import (
    CELERY_APP_ATTRIBUTE_HINTS,
    CELERY_APP_HINTS,
    CELERY_CONF_HINTS,
    CELERY_GUIDE,
)
from qbull.compat.celery.modules import import_modules, import_related
from qbull.compat.celery.other_service import send_elsewhere
from qbull.compat.celery.periodic import declare_schedule, schedule_name
from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.shared_tasks import SharedTask, declare_waiting_tasks
from qbull.compat.celery.signals import Signal
from qbull.compat.celery.signature import Signature, signature
from qbull.compat.celery.task import CeleryTask
from qbull.compat.celery.task_classes import class_options, make_task, with_handlers
from qbull.compat.celery.task_options import CeleryTaskOptions
from qbull.compat.celery.task_run import guarded
from qbull.compat.celery.worker_signals import announce_worker
from qbull.compat.exact_arguments import ExactSignature
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.config import Keep
from qbull.core.retry import Retry
from qbull.core.task import task_kind
from qbull.errors import ConfigError, DeclarationError, NotFound
from qbull.queue import Queue
from qbull.worker.assignment import Assignment

APP_OPTIONS = (
    "prefix",
    "database",
    "durability",
    "payload_limit",
    "results",
    "trace",
    "middleware",
    "alerts",
    "enc_hook",
    "dec_hook",
)
"""Keywords of qbull.App that Celery(…) accepts too."""
NO_RETRIES = Retry(attempts=1)

_current: Celery | None = None


class Celery(App):
    """`Celery("shop", broker="redis://…")`.

    The broker may also come from the settings. As in Celery, CELERY_BROKER_URL of the environment wins over
    both; it is not read if QBULL_URL is set. Without a broker: QBULL_URL, else REDIS_URL, else an embedded
    server.

    Args:
        main: The name for tasks of the main module, in place of `__main__`.
        broker: The address of the server.
        backend: The address for results. It must be the same server.
        include: Modules to import when the app is loaded.
        task_cls: The class of tasks that have no `base`.
        others: Settings of Celery, and keywords of `qbull.App` such as `prefix` and `middleware`.
    """

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: Sequence[str] = (),
        task_cls: type[CeleryTask] | None = None,
        **others: Any,
    ) -> None:
        own = {name: others.pop(name) for name in APP_OPTIONS if name in others}
        settings = {name: others.pop(name) for name in list(others) if name not in CELERY_APP_HINTS}
        refuse("Celery", others, CELERY_APP_HINTS, ConfigError, CELERY_GUIDE)
        used = broker_in_environment() or broker
        if is_django_project():
            own["middleware"] = with_django_connections(own.get("middleware", ()))
        super().__init__(address_of(used) if used else None, **own)
        self.main = main
        self._tasks: dict[str, CeleryTask] = {}
        self.conf = Conf(self._check_setting)
        self.control = Control(self)
        self.Task = task_cls or CeleryTask
        self.on_after_configure = Signal("on_after_configure")
        self.on_after_finalize = Signal("on_after_finalize")
        self.has_set_up_logging = False
        self._include = list(include)
        self._discover: list[tuple[Callable[[], Iterable[str]], str | None]] = []
        self.conf.update({"broker_url": broker}, {"result_backend": backend}, settings)
        self.set_current()

    @property
    def tasks(self) -> dict[str, CeleryTask]:
        """The tasks by name."""
        if _current is self:
            declare_waiting_tasks(self)
        return self._tasks

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_APP_ATTRIBUTE_HINTS)

    def task(self, function: Callable[..., Any] | None = None, /, **traits: Any) -> Any:
        """`@app.task`, or `@app.task(bind=True, autoretry_for=(OSError,), …)`.

        Args:
            function: The function, if the decorator has no parentheses.
            traits: The options of the task. Those that qbull cannot keep are refused, with a hint at the
                replacement.
        """

        def declare(function: Callable[..., Any]) -> CeleryTask:
            return self._declare(function, {"ignore_result": self.conf.task_ignore_result} | traits)

        return declare if function is None else declare(function)

    def queue(self, name: str, **settings: Any) -> Queue:
        """Declare a queue with settings of qbull.

        All tasks are registered in it, also those declared later.

        Args:
            name: The name of the queue.
            settings: The settings of `qbull.App.queue`.
        """
        queue = super().queue(name, **({"retry": NO_RETRIES} | settings))
        for task in self._tasks.values():
            self._register(queue, task.name, task.spec.function, task.traits)
        return queue

    def home_of(self, task: str, queue: str | None = None) -> Queue:
        """Return the queue for a job: the given one, that of task_routes, or the default.

        Args:
            task: The name of the task.
            queue: The queue that the caller asks for.
        """
        name = queue or self.conf.queue_of(task) or self.conf.task_default_queue
        if name not in self.queues and name not in self.conf.queues():
            raise NotFound(
                f'queue "{name}": no worker would serve it; declare it with app.queue("{name}"), '
                f"or name it in conf.task_queues; declared queues: {', '.join(self.queues)}"
            )
        return self._queue(name)

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a task by its name. The task may belong to another service with the same server.

        Args:
            name: The name of the task.
            args: Positional arguments of the task.
            kwargs: Keyword arguments of the task.
            options: The options of `apply_async`.
        """
        if name in self.tasks:
            return self.tasks[name].apply_async(args, kwargs, **options)
        job = self.run_sync(send_elsewhere(self, name, args or (), kwargs or {}, options))
        return AsyncResult(job.id, self, job=job)

    def task_named(self, name: str) -> CeleryTask:
        """Return a task by its name. Raises NotFound if it is not declared.

        Args:
            name: The name of the task.
        """
        if name not in self.tasks:
            raise NotFound(
                f'task "{name}": not declared in this app; import its module, '
                'or use the command "qbull enqueue" or the REST API'
            )
        return self.tasks[name]

    def signature(self, *args: Any, **kwargs: Any) -> Signature:
        """Make a signature of a task of this app: `app.signature("shop.add", args=(2, 3))`."""
        made: Signature = signature(*args, **{"app": self, **kwargs})
        return made

    def AsyncResult(self, id: str) -> AsyncResult:
        """Return the result of a job.

        Args:
            id: The id of the job.
        """
        return AsyncResult(id, self)

    def config_from_object(self, source: object, *, namespace: str | None = None) -> None:
        """Read settings.

        Args:
            source: A module, an object, a dictionary, or a path such as "django.conf:settings".
            namespace: The prefix of the settings to read, for example "CELERY".
        """
        self.conf.read(source, namespace)

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str | None = "tasks",
    ) -> None:
        """Import the `tasks` modules of some packages when the app is loaded.

        Args:
            packages: The packages, or a function that returns them; by default Django's apps.
            related_name: The name of the module in each package; None for the package itself.
        """
        if packages is None:
            self._discover.append((django_packages, related_name))
        elif callable(packages):
            self._discover.append((packages, related_name))
        else:
            some = list(packages)
            self._discover.append((lambda: some, related_name))

    def add_periodic_task(
        self,
        schedule: Any,
        sig: Signature,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Add an entry to conf.beat_schedule. Returns its name.

        Args:
            schedule: Seconds, a timedelta or a crontab.
            sig: The signature of the task.
            args: Positional arguments, if the signature has none.
            kwargs: Keyword arguments, if the signature has none.
            name: The name of the entry; by default the call.
            options: `queue`.
        """
        name = name or repr(sig)
        given = {n: v for n, v in {**sig.options, **options}.items() if v is not None}
        self.conf.beat_schedule = {
            **self.conf.beat_schedule,
            name: {
                "task": sig.task,
                "schedule": schedule,
                "args": sig.args or args,
                "kwargs": sig.kwargs or kwargs or {},
                "options": given,
            },
        }
        return name

    def register_task(self, task: CeleryTask | type[CeleryTask]) -> CeleryTask:
        """Declare a class task: a subclass of Task with a method `run`.

        Args:
            task: The class, or an object of it.
        """
        made = task() if isinstance(task, type) else task
        kind = type(made)
        given = class_options(kind)
        name = given.get("name") or f"{kind.__module__}.{kind.__name__}"
        return self._declare(made.run, {**given, "name": name, "base": kind}, made)

    def set_current(self) -> None:
        """Let `@shared_task` and `current_app` mean this app."""
        global _current
        _current = self

    set_default = set_current

    def _assignments(
        self, queues: Sequence[str] | None = None, concurrency: int | None = None
    ) -> list[Assignment]:
        self._loaded()
        return super()._assignments(queues, concurrency)

    def _loaded(self) -> None:
        """Import the configured modules, and declare the queues and schedules of the settings."""
        self._check_backend(self.conf.result_backend)
        if is_django_project():
            set_up_django()
        import_modules(self._include, self.conf.include, self.conf.imports)
        for packages, related in self._discover:
            import_related(packages(), related)
        if _current is self:
            declare_waiting_tasks(self)
        for name in self.conf.queues():
            self._queue(name)
        for signal in (self.on_after_configure, self.on_after_finalize):
            for _, receiver, _ in signal.receivers:
                receiver(signal=signal, sender=self, source=self.conf)
        for name, entry in self.conf.beat_schedule.items():
            if schedule_name(name) not in self.declared:
                declare_schedule(self, name, entry)
        announce_worker(self)

    def _declare(
        self, function: Callable[..., Any], given: dict[str, Any], made: CeleryTask | None = None
    ) -> CeleryTask:
        given = with_handlers(given, self.Task)
        given = {**class_options(given.get("base") or self.Task, is_base=made is None), **given}
        name = given.get("name") or self._name_of(function)
        traits = CeleryTaskOptions.of(self.conf.limits | given | {"name": name})
        run = guarded(function, traits, lambda: self._tasks[name])
        home = self._queue(traits.queue) if traits.queue else self.home_of(name)
        for queue in self.queues.values():
            self._register(queue, name, run, traits)
        self._tasks[name] = task = make_task(self, home, home.tasks[name], traits, made)
        return task

    def _register(self, queue: Queue, name: str, run: Callable[..., Any], traits: CeleryTaskOptions) -> None:
        declare = queue.task(name=name, retry=NO_RETRIES, timeout=traits.time_limit, expires=traits.expires)
        signature = ExactSignature(name, run, self._hooks, returns_plain=traits.pydantic)
        declare(signature.declared)
        kind, durable = task_kind(name, run, cpu=False), traits.has_self
        queue.tasks[name] = replace(
            queue.tasks[name], function=run, signature=signature, kind=kind, durable=durable
        )

    def _name_of(self, function: Callable[..., Any]) -> str:
        module = function.__module__
        return f"{(self.main if module == '__main__' else None) or module}.{function.__name__}"

    def _queue(self, name: str) -> Queue:
        if name in self.queues:
            return self.queues[name]
        settings: dict[str, Any] = {}
        if self.conf.worker_concurrency is not None:
            settings["concurrency"] = self.conf.worker_concurrency
        if self.conf.keep_for is not None:
            settings["keep"] = Keep(completed_for=self.conf.keep_for)
        return self.queue(name, **settings)

    def _check_setting(self, name: str, value: Any) -> None:
        """Raise if a setting comes too late or names another server; use the broker."""
        if name in STARTUP_SETTINGS and self.queues:
            raise ConfigError(f"conf.{name}: set it before the first task or queue is declared")
        if name == "broker_url" and value is not None:
            if self._clients or self._portal is not None:
                raise ConfigError(
                    "conf.broker_url: the app is connected already; set it before the first call"
                )
            self._use_address(address_of(broker_in_environment() or value))
            self._check_backend(self.conf.result_backend)
        elif name == "result_backend" and value:
            check_backend(value)
            if self.conf.broker_url or broker_in_environment():
                self._check_backend(value)

    def _check_backend(self, backend: str | None) -> None:
        """Raise if the results are wanted on another server than the jobs."""
        if backend and server_in(address_of(backend)) != server_in(self.url):
            refuse("conf", {"result_backend": backend}, CELERY_CONF_HINTS, ConfigError, CELERY_GUIDE)


def shared_task(function: Callable[..., Any] | None = None, /, **traits: Any) -> Any:
    """`@shared_task`: declare a task of the newest app.

    If there is no app yet, the task belongs to the first one that is made.

    Args:
        function: The function, if the decorator has no parentheses.
        traits: The options of `@app.task`.
    """
    if _current is not None:
        return _current.task(function, **traits)
    return SharedTask(function, traits) if function is not None else partial(SharedTask, traits=traits)


def newest_app(what: str) -> Celery:
    if _current is None:
        raise DeclarationError(
            f"{what}: there is no Celery(…) yet; first import the module that creates it, "
            "for example in the package's __init__.py"
        )
    return _current
