"""From Celery: the guide's table of the most used features names a test for each, and some of these tests."""

from __future__ import annotations

import ast
import re
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from blocks import close_apps  # noqa: F401 - a fixture

import qbull
from qbull.compat.celery import AsyncResult, Celery, crontab, signals
from qbull.compat.celery.names import name_support
from qbull.store.store import Store
from syntax_tree import parse_source

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "from_celery.md"
OTHER_FILES = (ROOT / "tests/guide/test_from_celery.py", ROOT / "tests/drain/test_drain_django.py")
SOON_SECONDS = 30


class Feature(NamedTuple):
    """A row of the table."""

    number: int
    celery: str
    here: str
    tests: list[str]


def features() -> list[Feature]:
    section = GUIDE.read_text().partition("## The forty most used features\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| ((?:`test_\w+`(?:, )?)+) \|$", section, re.MULTILINE)
    return [
        Feature(int(number), celery, here, re.findall(r"\w+", tests)) for number, celery, here, tests in rows
    ]


def celery_tests() -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for path in [*(ROOT / "tests/everyday").glob("test_celery_*.py"), *OTHER_FILES]:
        for node in parse_source(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name] = node
    return found


@pytest.fixture
def app(server_url: str, store: Store, closing: list[qbull.App]) -> Celery:
    closing.append(app := Celery("shop", broker=server_url, prefix="test"))
    return app


def run_all(app: qbull.App) -> None:
    async def drain() -> None:
        async with app.worker() as worker:
            await worker.drain()

    app.run_sync(drain())


def test_each_of_the_forty_features_works_or_has_its_difference_or_replacement_and_a_test() -> None:
    rows = features()
    tests = celery_tests()

    assert [row.number for row in rows] == list(range(1, 41))
    assert [row for row in rows if not re.match(r"(works|differs|refused)\b", row.here)] == []
    unexplained = [row for row in rows if re.fullmatch(r"(differs|refused)\W*", row.here)]
    assert unexplained == []
    named = [name for row in rows for name in row.tests]
    assert [name for name in named if name not in tests] == []
    assert [name for name in named if "skip" in ast.dump(ast.Module([tests[name]], []))] == []  # type: ignore[list-item]


def test_the_row_of_the_signals_names_those_that_are_refused() -> None:
    [row] = [row for row in features() if row.number == 32]
    sent = {name for name, value in vars(signals).items() if isinstance(value, signals.Signal)}
    [listed] = re.findall(r"^\| signals \| (.+) \|$", GUIDE.read_text(), re.MULTILINE)

    assert set(re.findall(r"`(\w+)`", row.here)) == set(signals.CELERY_SIGNAL_HINTS)
    assert set(re.findall(r"`(\w+)`", listed)) == sent
    assert f"the {len(sent)} signals" in row.here


def test_a_row_that_works_names_no_limit_of_it() -> None:
    """A feature that lacks a part of Celery's, or does another thing, is a difference."""
    limits = re.compile(r"\b(but|until it returns|only if|is ignored|cannot)\b")

    assert [row for row in features() if row.here.startswith("works") and limits.search(row.here)] == []


def test_the_counts_of_celerys_own_canvas_tests_add_up() -> None:
    section = GUIDE.read_text().partition("### Celery's own canvas tests\n")[2].partition("\n## ")[0]
    [total] = re.findall(r"The (\d+) tests of", section)
    counts = [int(count) for count in re.findall(r"^\| .+ \| (\d+) \|$", section, re.MULTILINE)]

    assert len(counts) > 1
    assert sum(counts) == int(total)


def test_a_call_that_expires_is_not_run(app: Celery) -> None:
    ran: list[str] = []

    @app.task
    def note(what: str) -> None:
        ran.append(what)

    past = datetime.now(UTC) + timedelta(milliseconds=1)
    late = note.apply_async(("late",), expires=past)
    note.apply_async(("in time",), expires=3600)
    while datetime.now(UTC) <= past:
        pass
    run_all(app)

    assert ran == ["in time"]
    assert late.state == "REVOKED"


@pytest.mark.parametrize(
    "name", ["eta", "expires", "root_id", "parent_id", "properties", "timelimit", "group"]
)
def test_parts_of_the_request_that_are_not_there_name_the_replacement(app: Celery, name: str) -> None:
    @app.task(bind=True)
    def look(self: Any) -> None: ...

    with pytest.raises(AttributeError, match=rf"CeleryRequest.{name}: ."):
        getattr(look.request, name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("chain", r"a chain that has started is fixed; raise qbull\.Fail"),
        ("callbacks", r"callbacks are fixed when the call is made"),
        ("tenant", r"the request cannot be changed; use a variable"),
    ],
)
def test_the_request_cannot_be_changed(app: Celery, name: str, says: str) -> None:
    """Celery would end the chain for `self.request.chain = None`; nothing must happen silently here."""

    @app.task(bind=True)
    def stop(self: Any) -> None:
        setattr(self.request, name, None)

    result = stop.delay()
    run_all(app)

    with pytest.raises(AttributeError, match=rf"self\.request\.{name} = …: {says}"):
        result.get()


def test_a_result_tells_about_its_job(app: Celery) -> None:
    @app.task(name="shop.add", bind=True, default_retry_delay=0)
    def add(self: Any, x: int) -> int:
        if not self.request.retries:
            raise self.retry()
        return x + 1

    made = add.delay(1)
    waiting = AsyncResult(made.id, app)
    assert (waiting.state, waiting.ready(), waiting.result, waiting.date_done) == (
        "PENDING",
        False,
        None,
        None,
    )
    run_all(app)

    result = AsyncResult(made.id, app)
    assert (result.state, result.ready(), result.result, result.info) == ("SUCCESS", True, 2, 2)
    assert (result.name, result.queue, result.retries, result.traceback) == ("shop.add", "celery", 1, None)
    assert result.date_done is not None
    assert result.date_done.tzinfo is not None
    unknown = AsyncResult("nobody", app)
    assert (unknown.name, unknown.date_done, unknown.state) == (None, None, "PENDING")


def test_a_retry_keeps_its_arguments(app: Celery) -> None:
    @app.task(bind=True, max_retries=1, default_retry_delay=0)
    def double(self: Any, n: int) -> int:
        raise self.retry(args=(n * 2,))

    result = double.delay(1)
    run_all(app)

    with pytest.raises(
        qbull.JobFailed, match=r"retry\(args=…\): a retry has the same arguments; enqueue a new"
    ):
        result.get()
    assert result.retries == 0


def test_a_task_reports_no_state_of_another_task(app: Celery) -> None:
    @app.task(bind=True)
    def report(self: Any, id: str) -> None:
        self.update_state(task_id=id, state="PROGRESS")

    result = report.delay("another")
    run_all(app)

    with pytest.raises(qbull.JobFailed, match=r"update_state\(task_id='another'\): .* only its own state"):
        result.get()


def test_an_exception_that_this_program_does_not_know_is_a_failed_job(app: Celery) -> None:
    class Hidden(Exception):
        """Its module has no such name, as that of a module which is not imported."""

    @app.task
    def fail(kind: str) -> None:
        raise Hidden("no name") if kind == "hidden" else ValueError(Decimal("1.5"), {1})

    hidden, several = fail.delay("hidden"), fail.delay("several")
    run_all(app)

    with pytest.raises(qbull.JobFailed, match="Hidden: no name") as unknown:
        hidden.get()
    assert type(unknown.value) is qbull.JobFailed
    with pytest.raises(ValueError, match="Decimal") as known:
        several.get()
    assert known.value.args == ("(Decimal('1.5'), {1})",)


def test_schedules_of_the_settings_run(app: Celery) -> None:
    ran: list[tuple[str, int]] = []

    @app.task(name="shop.note")
    def note(what: str, times: int = 1) -> None:
        ran.append((what, times))

    entry = {"task": "shop.note", "args": ("x",), "kwargs": {"times": 2}}
    app.conf.task_queues = ["mail"]
    app.conf.beat_schedule = {
        "at night": {**entry, "schedule": crontab(minute=30, hour=2)},
        "hourly": {**entry, "schedule": timedelta(hours=1), "options": {"queue": "mail"}},
        "often": {**entry, "schedule": 600.0},
    }

    async def run_each_now() -> None:
        async with app.worker() as worker:
            for name in app.declared:
                await app.schedules.run(name)
            await worker.drain()

    app.run_sync(run_each_now())

    made = app.declared
    assert [(each.name, each.queue) for each in made.values()] == [
        ("at-night", "celery"),
        ("hourly", "mail"),
        ("often", "celery"),
    ]
    assert (made["at-night"].cron, made["hourly"].every_ms, made["often"].every_ms) == (
        "30 2 * * *",
        3_600_000,
        600_000,
    )
    assert ran == [("x", 2)] * 3


def test_packages_around_celery_name_the_replacement() -> None:
    beat = name_support("django_celery_beat.models.PeriodicTask")

    assert (beat.level, "app.schedules.upsert" in beat.note) == ("refused", True)
    assert name_support("django_celery_results.models.TaskResult").level == "refused"


def test_a_time_limit_frees_the_slot_of_a_task_that_hangs(app: Celery) -> None:
    app.queue("celery", concurrency=1)
    end = threading.Event()

    @app.task(time_limit=1)
    def hang() -> None:
        end.wait(SOON_SECONDS * 2)

    @app.task
    def quick() -> str:
        return "ran"

    worker = app.worker()
    app.run_sync(worker.start())
    hung, behind = hang.delay(), quick.delay()

    assert behind.get(timeout=SOON_SECONDS) == "ran"
    with pytest.raises(qbull.JobFailed, match="it ran longer than its timeout of 1 s"):
        hung.get(timeout=SOON_SECONDS)
    end.set()
    app.run_sync(worker.stop())
