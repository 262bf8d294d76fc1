"""From Celery: the code of the page runs, as a program that was written for Celery and as one of qbull's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from blocks import Page, close_apps  # noqa: F401 - one is a fixture
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

import qbull
from qbull.compat.celery import AsyncResult, Celery, MaxRetriesExceededError, crontab, shared_task
from qbull.store.store import Store


@pytest.fixture
def page(server_url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.setenv("QBULL_URL", server_url)
    return Page("from_celery", tmp_path, server_url)


@pytest.fixture
def app(page: Page, closing: list[qbull.App]) -> Celery:
    """An app with no code of the page."""
    closing.append(app := Celery("shop"))
    return app


def run_all(app: qbull.App) -> None:
    async def drain() -> None:
        async with app.worker() as worker:
            await worker.drain()

    app.run_sync(drain())


def info(result: AsyncResult) -> qbull.JobInfo:
    found = [job for q in result.app.queues.values() if (job := result.app.run_sync(q.job(result.id).info()))]
    return found[0]


def test_the_smallest_change_runs_with_a_worker_of_its_own(
    page: Page, shell: Shell, closing: list[qbull.App], capsys: pytest.CaptureFixture[str]
) -> None:
    module, calls, refused = page.code("The smallest change")
    shop = page.module("shop", module)
    closing.append(shop.app)
    said: dict[str, Any] = dict(vars(shop))

    shell.start("worker", "shop:app")
    exec(calls, said)

    assert said["result"].get(timeout=60) == 5
    assert said["result"].state == "SUCCESS"
    receipt = info(AsyncResult("receipt-7", shop.app))
    assert (receipt.task, receipt.payload, receipt.priority) == ("shop.mail_receipt", {"order_id": 7}, 7)
    assert (receipt.queue, receipt.state) == ("mail", "delayed")
    exec(refused, said)
    assert capsys.readouterr().out.startswith("apply_async(shadow=…): a job has the name of its task; ")
    [nightly] = seen(lambda: shop.app.run_sync(shop.app.schedules.list()), within=60)
    assert (nightly.name, nightly.cron, nightly.args) == ("nightly", "30 2 * * *", {"older_than": 86400})


def test_what_is_written_for_celery_there_is_what_celery_takes(page: Page) -> None:
    [before] = page.code("The smallest change", old=True)
    after = page.code("The smallest change")[0]

    module: ModuleType = page.module("shop_before", before)

    assert module.add(2, 3) == 5
    changed = set(before.splitlines()) ^ set(after.splitlines())
    assert len([line for line in changed if line and not line.startswith("#")]) == 5


def test_the_canvas_of_the_page_runs(page: Page, closing: list[qbull.App]) -> None:
    shop = page.module("shop", *page.code("Chains, groups and chords"))
    closing.append(shop.app)
    worker = shop.app.worker()
    shop.app.run_sync(worker.start())

    results = shop.order(7)

    assert [result.get(timeout=60) for result in results] == [16, [0, 2, 4], 6, 11]
    assert shop.count_pages.delay([100, 200]).get(timeout=60) == 302
    shop.app.run_sync(worker.stop())


def test_the_classes_signals_and_states_of_the_page_run(
    page: Page, closing: list[qbull.App], capsys: pytest.CaptureFixture[str]
) -> None:
    shop = page.module("shop", *page.code("Classes, signals and states"))
    closing.append(shop.app)

    result = shop.convert.delay("a.csv", rows=2)
    run_all(shop.app)
    shop.app._loaded()

    assert result.get() == "a.csv: 2 rows"
    out = capsys.readouterr().out
    assert f"start of shop.convert {result.id}" in out
    assert "done: a.csv: 2 rows" in out
    assert "every-minute" in shop.app.declared
    from qbull.compat.celery import signals

    signals.task_prerun.receivers.clear()


def test_the_idiomatic_form_runs_beside_it(page: Page, closing: list[qbull.App]) -> None:
    shop = page.module("shop", *page.code("The idiomatic form"))
    closing.append(shop.app)

    flow = shop.order(7, "ann")
    again = shop.order(7, "ann")
    run_all(shop.app)

    assert shop.app.run_sync(flow.result(timeout=10)) == "ann has receipt 7 at run 1"
    assert again.jobs[0].id == flow.jobs[0].id == "receipt-7"
    assert shop.app.declared["nightly"].cron == "30 2 * * *"


def test_a_task_runs_again_when_it_asks_for_it_and_not_otherwise(app: Celery) -> None:
    runs: list[int] = []

    @app.task(bind=True, max_retries=2)
    def asks(self: Any) -> None:
        runs.append(self.request.retries)
        raise self.retry(exc=ValueError("not yet"), countdown=0)

    @app.task(bind=True, max_retries=0)
    def asks_in_vain(self: Any) -> None:
        self.retry(countdown=0)

    @app.task
    def does_not_ask() -> None:
        runs.append(99)
        raise ValueError("no")

    results = [asks.delay(), asks_in_vain.delay(), does_not_ask.delay()]
    run_all(app)

    assert sorted(runs) == [0, 1, 2, 99]
    assert [result.state for result in results] == ["FAILURE"] * 3
    assert isinstance(results[0].result, ValueError)
    assert str(results[0].result) == "not yet"
    with pytest.raises(MaxRetriesExceededError):
        results[1].get()
    assert "ValueError: no" in (results[2].traceback or "")


def test_autoretry_waits_as_celery_does(app: Celery) -> None:
    from celery.utils.time import get_exponential_backoff_interval

    @app.task(
        autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,), retry_backoff=4, retry_jitter=False
    )
    def fetch(kind: str) -> None:
        raise {"gone": FileNotFoundError, "away": ConnectionError}[kind]("no")

    away, gone = fetch.delay("away"), fetch.delay("gone")

    async def first_run() -> None:
        async with app.worker():
            while (await app.job("celery", away.id).state()) != "delayed":
                pass
            await app.job("celery", gone.id).result(10)

    with pytest.raises(qbull.JobFailed):
        app.run_sync(first_run())

    found = info(away)
    assert (found.state, found.attempt) == ("delayed", 2)
    assert found.due_at is not None
    waits = (found.due_at - datetime.now(UTC)).total_seconds()
    assert 0 < waits <= get_exponential_backoff_interval(4, 0, 600)
    assert [fetch.traits.wait_after(n) for n in range(12)] == [
        get_exponential_backoff_interval(4, n, 600) for n in range(12)
    ]


def test_priorities_keep_their_order_and_what_has_none_is_where_it_was(app: Celery) -> None:
    ran: list[Any] = []
    app.queue("celery", concurrency=1)

    @app.task
    def note(what: Any) -> None:
        ran.append(what)

    for what in (9, 6, 3, None, 0):
        note.apply_async((what,), priority=what)
    app.run_sync(note.options(priority=4).enqueue("first"))
    run_all(app)

    assert ran == ["first", None, 0, 3, 6, 9]


def test_options_of_a_call_arrive(app: Celery) -> None:
    @app.task(queue="mail", priority=9, time_limit=7, ignore_result=True)
    def send(to: str) -> str:
        return to

    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    app.conf.timezone = "America/Argentina/Cordoba"

    late = send.apply_async(("a",), eta=at, task_id="one", expires=7200)
    local = send.apply_async(("b",), eta=datetime(2100, 1, 1, 9, 0))
    again = send.apply_async(("a",), task_id="one")
    quiet = send.delay(to="c")
    due = [info(late).due_at, info(local).due_at]
    app.run_sync(app.job("mail", "one").cancel())
    app.run_sync(app.job("mail", local.id).cancel())
    run_all(app)

    assert (late.id, again.id, late.state) == ("one", "one", "REVOKED")
    assert due == [at, datetime(2100, 1, 1, 12, 0, tzinfo=UTC)]
    assert quiet.get(timeout=10) is None
    assert info(quiet).priority == 10
    assert AsyncResult("nobody", app).state == "PENDING"
    assert AsyncResult(quiet.id, app).successful()


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"rate_limit": "10/m"}, r"rate=qbull.Rate\(100, per=60\)"),
        ({"acks_late": False}, "dead worker always run again"),
        ({"base": object}, "give a subclass of qbull.compat.celery.Task"),
        ({"resultrepr_maxsize": 9}, r"maxsize=…\): is not supported; see docs/guides/from_celery.md"),
        ({"max_retires": 3}, r"max_retires=…\): there is no such option; did you mean max_retries\?"),
        ({"delay": 3}, r"delay=…\): a task has this attribute already; use another name"),
        ({"retry_kwargs": {"queue": "x"}}, "stays in its queue"),
    ],
)
def test_what_a_task_cannot_have_is_refused_by_name(app: Celery, declared: dict[str, Any], says: str) -> None:
    with pytest.raises(qbull.DeclarationError, match=says):

        @app.task(**declared)
        def add(x: int) -> None: ...


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shadow": "x"}, r"apply_async\(shadow=…\): a job has the name of its task"),
        ({"soft_time_limit": 0}, r"apply_async\(soft_time_limit=0\): give seconds, more than 0"),
        ({"kwarg": {}}, "is not supported"),
        ({"queue": "nowhere"}, 'queue "nowhere": no worker would serve it'),
        ({"priority": 10}, "from 0 .first. to 9 .last."),
        ({"countdown": 10, "expires": 5}, "would expire before it is due"),
    ],
)
def test_what_a_call_cannot_have_is_refused_by_name(app: Celery, options: dict[str, Any], says: str) -> None:
    @app.task
    def add(x: int) -> None: ...

    with pytest.raises(qbull.QbullError, match=says):
        add.apply_async((1,), **options)

    assert app.run_sync(app.queues["celery"].stats()).total == 0


def test_names_settings_and_attributes_that_are_not_there_say_what_to_use(app: Celery) -> None:
    @app.task
    def add(x: int) -> None: ...

    with pytest.raises(ImportError, match=r"Reject: raise qbull.Fail"):
        from qbull.compat.celery import Reject  # noqa: F401
    with pytest.raises(AttributeError, match=r"CeleryTask.add_to_chord: the body of a chord waits"):
        _ = add.add_to_chord
    with pytest.raises(AttributeError, match=r"Celery.amqp: use app.queue"):
        _ = app.amqp
    with pytest.raises(qbull.ConfigError, match=r"result_backend=….: results are stored with the jobs"):
        Celery("shop", broker="redis://here", backend="redis://elsewhere")
    with pytest.raises(qbull.ConfigError, match="set it before the first task"):
        app.conf.worker_concurrency = 3
    with pytest.raises(qbull.ConfigError, match="qbull stores jobs on Redis or Valkey"):
        Celery("shop", broker="amqp://guest@localhost")
    app.conf.update(task_serializer="json", accept_content=["json"], task_acks_late=True)


def test_settings_come_from_an_object_and_tasks_from_packages(
    page: Page, tmp_path: Path, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "parcels").mkdir()
    (tmp_path / "parcels" / "__init__.py").touch()
    (tmp_path / "parcels" / "tasks.py").write_text(
        "from qbull.compat.celery import shared_task\n\n\n@shared_task\ndef ship(n):\n    return n\n"
    )

    class Settings:
        CELERY_TASK_ROUTES = {"parcels.*": "post"}  # noqa: RUF012
        CELERY_TIMEZONE = "Europe/Berlin"
        DEBUG = True

    closing.append(app := Celery("shop"))
    app.config_from_object(Settings, namespace="CELERY")
    app.autodiscover_tasks(["parcels"])
    app._loaded()
    result = app.send_task("parcels.tasks.ship", [3])
    run_all(app)

    assert result.get(timeout=10) == 3
    assert info(result).queue == "post"
    assert app.conf.zone == "Europe/Berlin"


def test_shared_tasks_belong_to_the_app_that_was_made_last(app: Celery) -> None:
    @shared_task(name="double", bind=True)
    def double(self: Any, n: int) -> int:
        return n * 2 if self.request.called_directly else n * 20

    result = double.delay(4)
    run_all(app)

    assert double(4) == 8
    assert result.get(timeout=10) == 80
    assert app.tasks["double"] is double


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"minute": 30, "hour": 2},
        {"minute": "*/15", "hour": "8-17"},
        {"minute": 0, "hour": {3, 1}, "day_of_week": "monday,fri"},
        {"minute": 0, "hour": 0, "day_of_month": "1,15", "month_of_year": "*/3"},
    ],
)
def test_a_crontab_ticks_when_celerys_does(fields: dict[str, Any]) -> None:
    from celery.schedules import crontab as theirs

    from qbull.core.cron import Cron

    ours = Cron(crontab(**fields).expression, "UTC")
    now = datetime(2026, 2, 20, 11, 7, tzinfo=UTC)
    old = theirs(**fields, nowfun=lambda: now)

    for _ in range(30):
        tick = ours.after(int(now.timestamp() * 1000))
        assert tick is not None
        wanted = now + old.remaining_delta(now)[1]
        now = datetime.fromtimestamp(tick / 1000, UTC)
        assert now == wanted.replace(microsecond=0)


def test_a_crontab_that_means_both_days_is_refused() -> None:
    with pytest.raises(qbull.DeclarationError, match="in Celery both must match, in cron either"):
        crontab(day_of_week=1, day_of_month=13)
