"""The check: all files of a project, one after the other."""

from __future__ import annotations

from pathlib import Path

from qbull.cli.check_celery.declarations import DeclarationCheck
from qbull.cli.check_celery.project import Project
from qbull.cli.check_celery.report import CheckReport
from qbull.cli.check_celery.settings import SettingCheck
from qbull.cli.check_celery.uses import UseCheck


def check_celery_project(path: Path, *, include_tests: bool = False) -> CheckReport:
    """Read a project without running it.

    Args:
        path: The directory of the project, or one file.
        include_tests: Whether to read tests too.
    """
    project = Project(path, include_tests=include_tests)
    report = CheckReport(
        files=len(project.modules), skipped_tests=project.skipped_tests, unreadable=project.unreadable
    )
    for module in project.modules:
        DeclarationCheck(project, module, report).run()
        UseCheck(project, module, report).run()
    SettingCheck(project, report).run()
    return report
