"""`qbull drain django-celery-beat` and `django-celery-results`: move the rows of a Django database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from qbull.cli.drain import drain, moved_tasks
from qbull.cli.drain_report import drain_json, print_drain
from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import print_json
from qbull.drain.deliver import JobImporter
from qbull.store import audit

if TYPE_CHECKING:
    from qbull.drain.django_rows import RowSource


@dataclass(frozen=True)
class _RowCommand:
    """The options of one call, and the run itself."""

    target: Target
    to: str | None
    names: dict[str, str]
    dry_run: bool
    as_json: bool

    def run(self, kind: str, make: Callable[[JobImporter], RowSource]) -> int:
        from qbull.drain.django_rows import RowMove  # `qbull --help` loads this module and needs no source.

        if not self.target.has_code:
            raise click.UsageError("give --app, so that the tasks and their parameters are known")
        app = self.target.app
        importer = JobImporter(app, to=self.to, names=self.names)
        source = make(importer)

        async def main() -> int:
            move = RowMove(app, importer, source, dry=self.dry_run)
            if self.dry_run:
                report = await move.run()
            else:
                async with audit.entry(self.target.store, "drain", kind):
                    report = await move.run()
                    audit.note(jobs=report.moved.total())
            if self.as_json:
                print_json(drain_json(report, self.dry_run))
            else:
                print_drain(report, self.dry_run, "")
            return 1 if report.left and not self.dry_run else 0

        return self.target.run(main)


@drain.command("django-celery-beat")
@moved_tasks
@on_target
@as_json
def drain_django_celery_beat(target: Target, **options: Any) -> int:
    """Move the periodic tasks of django-celery-beat.

    An interval or a crontab becomes a schedule, and a clocked task becomes a job. The row is then disabled in
    the database. Stop beat first. DJANGO_SETTINGS_MODULE names the settings of the project.

    \b
    Example:
      qbull drain django-celery-beat --app proj.celery:app --dry-run
    """
    from qbull.drain.django_beat import BeatSource

    return _RowCommand(target, **options).run(
        "django-celery-beat", lambda importer: BeatSource(target.app, importer)
    )


@drain.command("django-celery-results")
@moved_tasks
@on_target
@as_json
def drain_django_celery_results(target: Target, **options: Any) -> int:
    """Move the failed tasks of django-celery-results.

    Each becomes a dead letter, which "qbull redrive" runs again. The row is then deleted in the database.
    Results of tasks that succeeded stay there. DJANGO_SETTINGS_MODULE names the settings of the project.

    \b
    Example:
      qbull drain django-celery-results --app proj.celery:app --dry-run
    """
    from qbull.drain.django_results import FailedResultSource

    default_queue = getattr(getattr(target.app, "conf", None), "task_default_queue", "")
    return _RowCommand(target, **options).run(
        "django-celery-results", lambda importer: FailedResultSource(importer, default_queue)
    )
