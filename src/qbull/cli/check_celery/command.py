"""`qbull check-celery`: read a Celery project, and tell what works, what differs and what must change."""

from __future__ import annotations

from pathlib import Path
from platform import python_version

import click

from qbull.cli.check_celery.check import check_celery_project
from qbull.cli.check_celery.report import CeleryUse, CheckReport
from qbull.cli.target import as_json
from qbull.cli.terminal import print_json, print_table


@click.command(name="check-celery")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--tests", "include_tests", is_flag=True, help="Check the project's tests too.")
@as_json
@click.pass_context
def check_celery(ctx: click.Context, path: Path, include_tests: bool, as_json: bool) -> None:
    """Check whether a Celery project can move to qbull.

    Reads the Python files under PATH without importing them, and compares the uses of Celery with
    qbull.compat.celery. The exit code is 0 if only imports must change, and 1 if other code must change too.

    \b
    Example:
      qbull check-celery .
      qbull check-celery src/shop --json
    """
    report = check_celery_project(path, include_tests=include_tests)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    ctx.exit(1 if report.of_level("refused") else 0)


def _print(report: CheckReport) -> None:
    must_change, differs, works = report.of_level("refused"), report.of_level("differs"), report.works()
    if works:
        click.echo("Works")
        rows = [(what, count, f"{first.file}:{first.line}") for what, count, first in works]
        print_table(("feature", ">uses", "first use"), rows)
    _print_findings("Differs", differs)
    _print_findings("Must change", must_change)
    if report.unreadable:
        click.echo(f"\nNot checked, because Python {python_version()} cannot parse them")
        click.echo("\n".join(report.unreadable))
    click.echo(f"\n{_summary(report)}")


def _print_findings(title: str, findings: list[CeleryUse]) -> None:
    if findings:
        click.echo(f"\n{title}")
    for each in findings:
        click.echo(f"{each.file}:{each.line}: {each.what}: {each.note}")


def _summary(report: CheckReport) -> str:
    if not report.findings:
        return f"{report.files} files, no use of Celery"
    share = "" if report.share is None else f" ({report.share:.1%})"
    used = len({each.file for each in report.findings})
    tests = f", {report.skipped_tests} test files skipped" if report.skipped_tests else ""
    return (
        f"{used} of {report.files} files use Celery{tests}; "
        "import from qbull.compat.celery instead of celery\n"
        f"{len(report.tasks)} tasks, {report.accepted} accepted as declared{share}\n"
        f"{len(report.of_level('works'))} uses work, {len(report.of_level('differs'))} differ, "
        f"{len(report.of_level('refused'))} must change"
    )
